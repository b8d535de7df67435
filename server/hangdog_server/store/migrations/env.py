"""Where Alembic starts: runs the steps upon the connection, and inside the transaction, of whoever called it."""

from alembic import context

context.configure(connection=context.config.attributes["connection"])
context.run_migrations()
