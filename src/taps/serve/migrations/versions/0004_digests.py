"""A digest in every row; the events of a stream are a chain. States and questions get the words of today."""

from __future__ import annotations

import sqlalchemy as sa
from alembic import op

from taps.aliases import VALUES
from taps.serve.chain import seal_all

revision = "0004"
down_revision = "0003"


def upgrade() -> None:
    for table in ("meta", "streams", "events", "predictions", "tokens", "audit"):
        op.add_column(table, sa.Column("digest", sa.String(32)))
    for column, words in ((name, VALUES[name]) for name in ("state", "question")):
        for old, new in words.items():
            op.execute(sa.text(f"UPDATE predictions SET {column} = '{new}' WHERE {column} = '{old}'"))
    seal_all(op.get_bind())
