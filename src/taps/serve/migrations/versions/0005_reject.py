"""How likely an image shows none of the classes."""

from __future__ import annotations

import sqlalchemy as sa
from alembic import op

revision = "0005"
down_revision = "0004"


def upgrade() -> None:
    op.add_column("predictions", sa.Column("reject", sa.Double))
