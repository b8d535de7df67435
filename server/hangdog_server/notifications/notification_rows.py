"""Remembers what people are told of: a row for each message and receiver, written before it is sent; each step a transaction.

A subject is told of again only when its state is another than the one told last, whoever looks. A message that a crash, or a
server that was paused, left half sent is sent once more: twice the same is better than never. It is not sent a third time.
"""

from collections.abc import Collection, Iterable
from dataclasses import asdict, dataclass
from enum import StrEnum

import sqlalchemy as sa

from hangdog_server.notifications.message import Message
from hangdog_server.store.tables import NOTICES, storable

#: What the notes of all servers take turns at: two of them must not number one change twice.
TURN = "hangdog: what people are told"
#: Messages that are taken up at once; the next ones are when these are done.
AT_ONCE = 100
#: An hour, in which the messages to one receiver are counted. Seconds.
HOUR_S = 3600.0
#: Subjects in one query: engines take a few thousand.
_ASKED = 500


class Sent(StrEnum):
    """How far a message is."""

    WAITING = "waiting"
    SENDING = "sending"
    SENT = "sent"
    FAILED = "failed"  # given up
    LEFT_OUT = "left-out"  # there were too many within the hour


@dataclass(frozen=True, slots=True)
class Note:
    """A state that a subject has reached, and the message that tells one receiver of it."""

    subject: str
    receiver: str
    about: str
    mark: str
    message: Message


@dataclass(frozen=True, slots=True)
class Notice:
    """One row; times in Unix seconds, `due`: not to be sent before, `unsure`: it may have been sent once already."""

    subject: str
    receiver: str
    number: int
    message: Message
    state: Sent
    noted: float
    tries: int
    unsure: bool


def last(connection: sa.Connection, subjects: Collection[str]) -> dict[tuple[str, str], tuple[int, str]]:
    """Of each subject and receiver the number of messages there are, and the state that the last one tells."""
    columns = NOTICES.c.subject, NOTICES.c.receiver, NOTICES.c.number, NOTICES.c.mark
    asked, found = sorted({storable(one) for one in subjects}), {}
    for begin in range(0, len(asked), _ASKED):
        mine = NOTICES.c.subject.in_(asked[begin : begin + _ASKED])
        for row in connection.execute(sa.select(*columns).where(mine).order_by(NOTICES.c.number)):
            found[row.subject, row.receiver] = row.number, row.mark
    return found


def note(
    connection: sa.Connection,
    notes: Iterable[Note],
    now: float,
    per_hour: int,
    sent: Collection[tuple[str, str, str]] = (),
) -> list[Sent]:
    """Writes messages down, but for those whose state was told last; how far each of them is. Needs the turn.

    `sent`: those that were sent before they could be written, by subject, receiver and mark.
    """
    notes = list(notes)
    known = last(connection, {one.subject for one in notes})
    written: list[Sent] = []
    for one in notes:
        number, mark = known.get((storable(one.subject), one.receiver), (0, ""))
        if mark == one.mark:
            continue
        lately = sa.and_(
            NOTICES.c.receiver == one.receiver, NOTICES.c.noted > now - HOUR_S, NOTICES.c.state != Sent.LEFT_OUT
        )
        before = connection.execute(sa.select(sa.func.count()).select_from(NOTICES).where(lately)).scalar_one()
        message, state = asdict(one.message), Sent.WAITING if before < per_hour else Sent.LEFT_OUT
        if (one.subject, one.receiver, one.mark) in sent:
            state = Sent.SENT
        if before == per_hour - 1:
            message["lines"] = (*message["lines"], f"No more than {per_hour} messages an hour: the rest is left out.")
        connection.execute(
            NOTICES.insert().values(
                subject=one.subject, receiver=one.receiver, number=number + 1, about=one.about, mark=one.mark,
                message=message, state=state, noted=now, changed=now, due=now, tries=0, unsure=False, outcome="",
            )
        )  # fmt: skip
        known[storable(one.subject), one.receiver] = number + 1, one.mark
        written.append(state)
    return written


def due(connection: sa.Connection, now: float, receivers: Collection[str]) -> tuple[Notice, ...]:
    """What is to be sent to these, or was being sent when whoever did so ended; the oldest first."""
    waits = sa.and_(NOTICES.c.state == Sent.WAITING, NOTICES.c.due <= now)
    query = sa.select(NOTICES).where(
        NOTICES.c.receiver.in_(sorted(receivers)), sa.or_(waits, NOTICES.c.state == Sent.SENDING)
    )
    rows = connection.execute(query.order_by(NOTICES.c.noted, NOTICES.c.subject, NOTICES.c.number).limit(AT_ONCE))
    return tuple(
        Notice(
            row.subject, row.receiver, row.number,
            Message(row.message["title"], tuple(row.message["lines"]), row.message["link"]),
            Sent(row.state), row.noted, row.tries, row.unsure,
        )
        for row in rows
    )  # fmt: skip


def begin(connection: sa.Connection, row: Notice, now: float) -> bool:
    """Notes that a message is being sent now, unless somebody else took it; whether that is noted."""
    unsure = row.unsure or row.state is Sent.SENDING
    values = {"state": Sent.SENDING, "tries": row.tries + 1, "unsure": unsure, "changed": now}
    return bool(connection.execute(NOTICES.update().where(_same(row)).values(values)).rowcount)


def end(connection: sa.Connection, row: Notice, state: Sent, words: str, due: float, now: float) -> None:
    """Notes what came of a message; `row` is as `due` gave it, begun or not."""
    mine = sa.and_(_which(row), NOTICES.c.state.in_((Sent.WAITING, Sent.SENDING)))
    values = {"state": state, "outcome": words, "due": due, "changed": now}
    connection.execute(NOTICES.update().where(mine).values(values))


def forget(connection: sa.Connection, before: float) -> None:
    """Removes what was noted before that moment."""
    connection.execute(NOTICES.delete().where(NOTICES.c.noted < before))


def _which(row: Notice) -> sa.ColumnElement[bool]:
    return sa.and_(NOTICES.c.subject == row.subject, NOTICES.c.receiver == row.receiver, NOTICES.c.number == row.number)


def _same(row: Notice) -> sa.ColumnElement[bool]:
    return sa.and_(_which(row), NOTICES.c.state == row.state, NOTICES.c.tries == row.tries)
