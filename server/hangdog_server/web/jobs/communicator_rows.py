"""The communicators of a job as the lines of a table."""

from dataclasses import dataclass

from markupsafe import Markup, escape

from hangdog_models.progress.communicator_window import CommunicatorState, JobCommunicator
from hangdog_models.views import communicator_text
from hangdog_models.views.communicator_text import stragglers
from hangdog_server.web.render import machine_links, since

#: How a line looks in which nobody is behind.
_TONES = {CommunicatorState.WAITS: "warn", CommunicatorState.RESTS: "", CommunicatorState.MOVES: "good"}


@dataclass(frozen=True, slots=True)
class CommunicatorRow:
    """One communicator as a line of the table; a cell that has nothing to say is empty."""

    key: str
    tone: str
    title: str
    #: Its number, where the title is its name.
    number: str
    state: str
    #: For how long, as a time that the page's script keeps true.
    lasts: Markup
    behind: Markup
    orders: str
    ranks: str


def communicator_row(one: JobCommunicator, now: float) -> CommunicatorRow:
    """One communicator; `now` is in Unix seconds."""
    number, (title, state, behind, orders, ranks, *_) = (
        communicator_text.number(one.communicator),
        communicator_text.cells(one),
    )
    moves = one.state is CommunicatorState.MOVES
    return CommunicatorRow(
        key=f"communicator {number}",
        tone="bad" if one.behind else _TONES[one.state],
        title=title,
        number=number if title != number else "",
        state=state,
        lasts=Markup("") if moves else Markup("for {}").format(since(now - communicator_text.lasts_s(one), now)),
        behind=_named(one) if one.behind else escape(behind),
        orders=orders,
        ranks=ranks,
    )


def _named(one: JobCommunicator) -> Markup:
    """Who is behind, each machine a link to its page."""
    found = [Markup("{} on {}").format(ranks, machine_links([machine])) for ranks, machine in stragglers(one)]
    return Markup(", ").join(found) + communicator_text.more_text(one)
