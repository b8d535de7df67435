"""Brings the tables of a store up to this hangdog, and knows a store of a newer one by its revision."""

import logging

import sqlalchemy as sa
from alembic import command
from alembic.config import Config
from alembic.runtime.migration import MigrationContext
from alembic.script import ScriptDirectory

from hangdog_models.errors import WrongUse

log = logging.getLogger(__name__)


def migrate(connection: sa.Connection, name: str) -> None:
    """Runs the steps that are due, in the connection's transaction.

    Raises WrongUse, before anything is changed, when a newer hangdog wrote the store called `name`.
    """
    logging.getLogger("alembic").setLevel(logging.WARNING)  # what it says at every start is of no use to an operator
    config = Config()
    config.set_main_option("script_location", "hangdog_server:store/migrations")
    steps = ScriptDirectory.from_config(config)  # it reads all steps once, and keeps them
    known = {step.revision for step in steps.walk_revisions()}
    found = MigrationContext.configure(connection).get_current_heads()
    for revision in found:
        if revision not in known:
            raise newer(name, revision, max(known))
    if set(found) != set(steps.get_heads()):
        config.attributes["connection"] = connection
        command.upgrade(config, "head")
        log.info("the tables of the store %s are version %s now", name, max(known))


def newer(name: str, theirs: str, ours: str) -> WrongUse:
    """The refusal of a store whose tables this hangdog does not know."""
    what = f"the store {name} was written by a newer hangdog: its tables are version {theirs}, here {ours}"
    return WrongUse(what, "update this hangdog, or give it another --store", code="store-is-newer")
