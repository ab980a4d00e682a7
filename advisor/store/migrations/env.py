"""Alembic's way in: runs migrations on the connection that `store.migrate` hands over, inside its transaction."""

from __future__ import annotations

from alembic import context

context.configure(
    connection=context.config.attributes["connection"],
    render_as_batch=True,  # SQLite cannot alter most things in place
    transactional_ddl=True,  # a migration that fails leaves nothing behind, on SQLite too
)
with context.begin_transaction():
    context.run_migrations()
