"""Run by Alembic; the connection comes from `Database.migrate`."""

from __future__ import annotations

from alembic import context

from taps.serve.tables import metadata

context.configure(connection=context.config.attributes["connection"], target_metadata=metadata)
with context.begin_transaction():
    context.run_migrations()
