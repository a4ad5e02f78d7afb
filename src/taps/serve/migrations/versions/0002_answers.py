"""Questions of yes or no, and answers that name no class: what an image is not, that it is of none."""

from __future__ import annotations

import sqlalchemy as sa
from alembic import op

revision = "0002"
down_revision = "0001"


def upgrade() -> None:
    op.add_column("predictions", sa.Column("question", sa.String(16), nullable=False, server_default="which"))
    op.add_column("predictions", sa.Column("no", sa.JSON, nullable=False, server_default="[]"))
    op.add_column("predictions", sa.Column("none", sa.Boolean, nullable=False, server_default=sa.false()))
