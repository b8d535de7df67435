"""What people do about incidents, on both engines: once, over nobody's head, and with all that follows from it."""

import asyncio
from dataclasses import asdict, replace
from pathlib import Path

import pytest
import sqlalchemy as sa

from hangdog_models.actions.caps import Mode
from hangdog_models.actions.respond import DecidedSince, ResponseDecision
from hangdog_models.errors import WrongUse
from hangdog_models.incident import Incident, IncidentResponse, IncidentState, ResponseKind, ResponseState, SettledCause
from hangdog_models.past_incidents import IncidentFeatures
from hangdog_models.ranks import Rank
from hangdog_models.verdict import Eviction, Kind, Suspect
from hangdog_server.settings import ServerSettings
from hangdog_server.store import machine_history
from hangdog_server.store.history import responses
from hangdog_server.store.retention import Retention
from hangdog_server.store.store import Store
from hangdog_server.store.tables import INCIDENTS
from support.refused import refused
from support.servers.cast import NOON
from support.servers.cast_acting import NOTHING, Played, body, world

GUILTY = replace(
    NOTHING,
    kind=Kind.MACHINE,
    suspects=(Suspect((), ("a",), 0.97, ()), Suspect((), ("b",), 0.02, ())),
    evict=Eviction(("a",), 0.97),
)


async def judged(store: Store, name: str = "0a") -> None:
    await store.begin(Incident(name, "llama", NOON - 40.0), {"asked": {"a": {}, "b": {}}, "absent": {}})
    await store.judged(name, GUILTY, NOON)


async def did(
    store: Store, what: ResponseKind, who: str, at: float = 0.0, text: str = "", key: str = "", shown: int | None = None,
    over: bool = False, settled: SettledCause | None = None,
) -> bool:  # fmt: skip
    wanted = ResponseDecision(what, who, NOON + at, text, over, settled)
    return await store.do(responses.respond, "0a", wanted, shown, key)


async def response(store: Store) -> IncidentResponse:
    return (await store.find("0a")).response


async def lines(store: Store, machine: str) -> list[str]:
    return [str(one.mention) for one in await store.ask(machine_history.of, machine, 0.0, 99)]


async def test_who_has_it_is_seen_and_kept_taken_over_and_given_back(where: Path | str) -> None:
    store = Store(where)
    await judged(store)
    assert await did(store, ResponseKind.ACKNOWLEDGED, "ada", 1)
    assert not await did(store, ResponseKind.ACKNOWLEDGED, "ada", 2), "sent twice is done once"
    with refused("taken-by-another", DecidedSince, "ada"):
        await did(store, ResponseKind.ACKNOWLEDGED, "bob", 3)
    with refused("taken-by-another", DecidedSince, "ada", "bob"):
        await did(store, ResponseKind.GIVEN_BACK, "bob", 3)
    store.close()
    store = Store(where)
    stands = await response(store)
    assert (stands.acknowledged_by, stands.acknowledged_at) == ("ada", NOON + 1)
    assert await did(store, ResponseKind.ACKNOWLEDGED, "bob", 4, over=True)
    assert (await store.latest("", 1))[0].response.acknowledged_by == "bob"
    assert await did(store, ResponseKind.GIVEN_BACK, "bob", 5) and not await did(
        store, ResponseKind.GIVEN_BACK, "bob", 6
    )
    assert not (await response(store)).acknowledged_by
    steps = await store.ask(responses.of, "0a")
    assert [(one.who, one.what) for one in steps] == [
        ("ada", ResponseKind.ACKNOWLEDGED), ("bob", ResponseKind.ACKNOWLEDGED), ("bob", ResponseKind.GIVEN_BACK),
    ]  # fmt: skip
    assert str(steps[-1]) == "bob gave it back"
    store.close()


async def test_notes_are_many_once_each_and_bounded(where: Path | str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(responses, "NOTES", 3)
    store = Store(where)
    await judged(store)
    for key in ("k1", "k1", "k2"):
        await did(store, ResponseKind.NOTED, "ada", text="seen\0 twice", key=key)
    assert len(await store.ask(responses.of, "0a")) == 2
    assert await did(store, ResponseKind.NOTED, "bob", text="mine", shown=99), "a note crosses nobody's decision"
    with pytest.raises(WrongUse, match="3 notes") as caught:
        await did(store, ResponseKind.NOTED, "bob", text="one more")
    assert caught.value.code == "too-many"
    assert await did(store, ResponseKind.DISMISSED, "bob", text="closed all the same")
    assert (await response(store)).decisions == 1 and (await response(store)).entries == 4
    store.close()


async def test_what_was_decided_since_stands_and_that_is_said(where: Path | str) -> None:
    store = Store(where)
    await judged(store)
    code = SettledCause("software", (), "", "ada", NOON)
    await did(store, ResponseKind.ACKNOWLEDGED, "ada", 1)
    with refused("changed-meanwhile", DecidedSince, "ada"):
        await did(store, ResponseKind.RESOLVED, "bob", 2, shown=0, settled=code)
    assert await did(store, ResponseKind.RESOLVED, "ada", 3, shown=1, settled=code)
    assert not await did(store, ResponseKind.RESOLVED, "ada", 4, shown=1, settled=code), "its form came twice"
    with refused("already-closed", DecidedSince, ResponseState.RESOLVED, "ada"):
        await did(store, ResponseKind.RESOLVED, "bob", 5, settled=replace(code, cause="healthy"))
    with refused("already-closed", DecidedSince, ResponseState.RESOLVED, "ada"):
        await did(store, ResponseKind.DISMISSED, "bob", 5)
    with refused("already-closed", DecidedSince, ResponseState.RESOLVED, "ada"):
        await did(store, ResponseKind.ACKNOWLEDGED, "bob", 5)
    assert await did(store, ResponseKind.REOPENED, "bob", 6, "it hangs still")
    assert not await did(store, ResponseKind.REOPENED, "bob", 7)
    found = await store.find("0a")
    assert found.settled is None and found.response.state == ResponseState.OPEN and not found.response.acknowledged_by
    with refused("already-open", DecidedSince, "bob"):
        await did(store, ResponseKind.REOPENED, "ada", 8)
    store.close()


async def test_two_who_decide_at_once_leave_one_decision(where: Path | str) -> None:
    store = Store(where)
    other = Store(where) if store.shared else store  # SQLite has one server
    await judged(store)
    both = await asyncio.gather(
        *(did(one, ResponseKind.ACKNOWLEDGED, who) for one, who in ((store, "ada"), (other, "bob"))),
        return_exceptions=True,
    )
    assert sorted(isinstance(one, DecidedSince) for one in both) == [False, True]
    assert len(await store.ask(responses.of, "0a")) == 1
    store.close()
    if other is not store:
        other.close()


async def test_a_dismissal_takes_a_conviction_back_and_a_reopening_says_it_again(where: Path | str) -> None:
    store = Store(where)
    await judged(store)
    assert await lines(store, "a") == ["convicted"]
    await did(store, ResponseKind.DISMISSED, "ada", 1, "a drill")
    await did(store, ResponseKind.DISMISSED, "ada", 2, "a drill")
    await store.judged_again("0a", {}, GUILTY, NOON + 3)  # a further look, or a replay, counts nothing twice
    assert await lines(store, "a") == ["taken back", "convicted"] and await lines(store, "b") == [
        "taken back",
        "suspected",
    ]
    (first, second) = await store.ask(machine_history.worst, 0.0, 9)
    assert (first.convicted, first.suspected, first.cleared, first.weight, second.weight) == (0, 0, 1, 0.0, 0.0)
    await did(store, ResponseKind.REOPENED, "ada", 4, "it was none")
    assert await lines(store, "a") == ["convicted", "taken back", "convicted"]
    assert [one.convicted for one in await store.ask(machine_history.worst, 0.0, 9)] == [1, 0]
    store.close()


@pytest.mark.parametrize(
    ("cause", "machines", "a", "b"),
    [
        ("software", (), "taken back", "taken back"),
        ("machine", ("a",), "convicted", "taken back"),
        ("machine", ("b",), "taken back", "suspected"),
        ("machine", (), "convicted", "suspected"),
        ("unknown", (), "convicted", "suspected"),
    ],
)
async def test_a_cause_takes_back_what_was_said_against_others(
    here: Path, cause: str, machines: tuple[str, ...], a: str, b: str
) -> None:
    store = Store(here)
    await judged(store)
    await store.do(responses.resolve, "0a", SettledCause(cause, machines, "", "ada", NOON + 1))
    assert [(await lines(store, machine))[0] for machine in "ab"] == [a, b]
    assert (await response(store)).state == ResponseState.RESOLVED
    store.close()


async def test_what_is_open_is_dismissed_never_asked_for_and_asked_again_once_reopened(
    where: Path | str, tmp_path: Path
) -> None:
    async with world(where, tmp_path, Played(), mode=Mode.APPROVE) as on:
        await on.judged("0a", "a", "b")
        await on.acting.tick()
        assert await on.states("0a") == {"a": "waiting", "b": "waiting"}
        said = SettledCause("machine", ("b",), "", "ada", NOON)
        await did(on.store, ResponseKind.RESOLVED, "ada", settled=said)
        assert await on.states("0a") == {"a": "dismissed", "b": "waiting"}
        await did(on.store, ResponseKind.REOPENED, "ada", text="both")
        await on.acting.tick()
        assert await on.states("0a") == {"a": "waiting", "b": "waiting"}
        await on.judged("0b", "c")
        wanted = ResponseDecision(ResponseKind.DISMISSED, "ada", NOON, "before anything was asked for")
        await on.store.do(responses.respond, "0b", wanted)
        await on.acting.tick()
        assert await on.states("0b") == {}, "no machine is at fault: none is asked for"


async def test_a_further_look_that_names_another_machine_asks_for_that_one(where: Path | str, tmp_path: Path) -> None:
    async with world(where, tmp_path, Played(), mode=Mode.APPROVE) as on:
        await on.judged("0a", "a")
        await on.acting.tick()
        kept, _ = await on.store.kept("0a")
        known = {machine: [body(machine).boot, ""] for machine in "ab"}
        asked = {**kept, "asked": {"a": {}, "b": {}}, "bodies": known}
        other = replace(GUILTY, evict=Eviction(("b",), 0.97))
        await on.store.judged_again("0a", asked, other, NOON)
        await on.acting.tick()
        assert await on.states("0a") == {"a": "dismissed", "b": "waiting"}
        await on.store.judged_again("0a", asked, GUILTY, NOON)
        await on.acting.tick()
        assert await on.states("0a") == {"a": "waiting", "b": "dismissed"}


@pytest.mark.parametrize("what", [ResponseKind.RESOLVED, ResponseKind.DISMISSED])
async def test_what_is_under_way_cannot_be_closed_and_can_be_taken(here: Path, what: ResponseKind) -> None:
    store = Store(here)
    await store.begin(Incident("0a", "llama", NOON), {})
    await store.move("0a", IncidentState.CAPTURING, NOON)
    with refused("no-verdict-yet"):
        await did(store, what, "ada", settled=SettledCause("software", (), "", "ada", NOON))
    assert await did(store, ResponseKind.ACKNOWLEDGED, "ada")
    assert (await response(store)).verdict == "capturing", "a verdict that comes then is news"
    store.close()


async def test_a_dismissed_incident_without_acts_teaches_nothing(where: Path | str) -> None:
    features = IncidentFeatures("a", (Rank(0),), "dataloader", ("main",), ())
    store = Store(where)
    await judged(store)

    def known(connection: sa.Connection) -> None:
        connection.execute(INCIDENTS.update().values(features=asdict(features)))

    await store.do(known)
    assert len(await store.ask(machine_history.past, "0b", NOON)) == 1
    await did(store, ResponseKind.DISMISSED, "ada", text="a drill")
    assert await store.ask(machine_history.past, "0b", NOON) == ()
    store.close()


async def test_what_people_did_goes_with_the_incident(here: Path) -> None:
    store = Store(here)
    await judged(store)
    await did(store, ResponseKind.NOTED, "ada", text="x")
    await Retention(store, replace(ServerSettings(), keep_bytes=1), lambda: NOON).once()
    assert await store.ask(responses.of, "0a") == () and await store.latest("", 9) == ()
    store.close()
