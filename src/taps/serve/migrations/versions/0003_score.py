"""What a prediction's threshold was compared with, where that is not the entropy."""

from __future__ import annotations

import sqlalchemy as sa
from alembic import op

revision = "0003"
down_revision = "0002"


def upgrade() -> None:
    op.add_column("predictions", sa.Column("score", sa.Double))
