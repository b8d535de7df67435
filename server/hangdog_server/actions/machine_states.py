"""What is decided about each machine now, in a few words: the same on pages and in commands."""

from hangdog_models.views.answer_text import RECENT_S
from hangdog_server.store import actions
from hangdog_server.store.actions import in_short
from hangdog_server.store.store import Store

#: Actions that are read: a cluster has a few a day.
ACTS = 1000


async def machine_states(store: Store, now: float) -> dict[str, str]:
    """By machine its latest action within a day, or longer ago if its mark is still there; raises StoreFailed."""
    rows = await store.ask(actions.lately, now - RECENT_S, ACTS)
    return {row.machine: in_short(row) for row in sorted(rows, key=lambda row: row.changed)}
