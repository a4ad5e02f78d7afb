"""The first tables."""

from __future__ import annotations

import sqlalchemy as sa
from alembic import op

revision = "0001"
down_revision = None


def upgrade() -> None:
    op.create_table("meta", sa.Column("name", sa.String(40), primary_key=True), sa.Column("value", sa.Text))
    op.create_table(
        "streams",
        sa.Column("id", sa.Integer, primary_key=True),
        sa.Column("name", sa.String(64), nullable=False, unique=True),
        sa.Column("method", sa.String(64), nullable=False),
        sa.Column("classes", sa.JSON, nullable=False),
        sa.Column("settings", sa.JSON, nullable=False),
        sa.Column("seed", sa.Integer, nullable=False),
        sa.Column("deadline", sa.Double),
        sa.Column("hold", sa.Double, nullable=False),
        sa.Column("created", sa.Double, nullable=False),
        sqlite_autoincrement=True,
    )
    op.create_table(
        "events",
        sa.Column("stream", sa.Integer, sa.ForeignKey("streams.id", ondelete="CASCADE"), primary_key=True),
        sa.Column("seq", sa.Integer, primary_key=True, autoincrement=False),
        sa.Column("kind", sa.String(16), nullable=False),
        sa.Column("prediction", sa.Integer),
        sa.Column("value", sa.JSON),
        sa.Column("key", sa.String(200)),
        sa.Column("who", sa.String(64), nullable=False),
        sa.Column("at", sa.Double, nullable=False),
        sa.UniqueConstraint("stream", "key", name="one_event_a_key"),
    )
    op.create_table(
        "predictions",
        sa.Column("stream", sa.Integer, sa.ForeignKey("streams.id", ondelete="CASCADE"), primary_key=True),
        sa.Column("id", sa.Integer, primary_key=True, autoincrement=False),
        sa.Column("seq", sa.Integer, nullable=False),
        sa.Column("at", sa.Double, nullable=False),
        sa.Column("image", sa.String(64), nullable=False),
        sa.Column("kept", sa.Boolean, nullable=False),
        sa.Column("name", sa.Text, nullable=False),
        sa.Column("index", sa.Integer, nullable=False),
        sa.Column("label", sa.Text, nullable=False),
        sa.Column("top", sa.JSON, nullable=False),
        sa.Column("entropy", sa.Double, nullable=False),
        sa.Column("threshold", sa.Double),
        sa.Column("seconds", sa.Double, nullable=False),
        sa.Column("state", sa.String(16), nullable=False),
        sa.Column("deadline", sa.Double),
        sa.Column("answer", sa.Text),
        sa.Column("ended_by", sa.String(64)),
        sa.Column("ended_at", sa.Double),
    )
    op.create_index("predictions_by_state", "predictions", ["stream", "state"])
    op.create_index("predictions_by_image", "predictions", ["image"])
    op.create_table(
        "tokens",
        sa.Column("id", sa.String(16), primary_key=True),
        sa.Column("name", sa.Text, nullable=False),
        sa.Column("hash", sa.String(64), nullable=False, unique=True),
        sa.Column("roles", sa.String(64), nullable=False),
        sa.Column("stream", sa.String(64)),
        sa.Column("parent", sa.String(16)),
        sa.Column("created", sa.Double, nullable=False),
        sa.Column("expires", sa.Double),
        sa.Column("revoked", sa.Double),
    )
    op.create_table(
        "audit",
        sa.Column("id", sa.Integer, primary_key=True),
        sa.Column("at", sa.Double, nullable=False),
        sa.Column("who", sa.String(64), nullable=False),
        sa.Column("action", sa.String(32), nullable=False),
        sa.Column("subject", sa.Text, nullable=False),
    )


def downgrade() -> None:
    for name in ("audit", "tokens", "predictions", "events", "streams", "meta"):
        op.drop_table(name)
