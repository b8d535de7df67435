"""The store: what it remembers over a restart, alike on every engine."""

import asyncio
from dataclasses import replace
from pathlib import Path

import pytest

from hangdog_models.errors import WrongUse
from hangdog_models.incident import EarlierVerdict, Incident, IncidentState
from hangdog_models.ranks import Rank
from hangdog_models.snapshot import Job, Round, Snapshot
from hangdog_models.topology import Topology
from hangdog_models.verdict import Eviction, Kind
from hangdog_proto.codec import rounds
from hangdog_proto.codec.rounds import rebuilt
from hangdog_proto.generated import hangdog_pb2 as pb
from hangdog_server.protocol.jobs import AnnouncedJob
from hangdog_server.store.captures import RawCapture, unfolded
from hangdog_server.store.history import stall_incidents
from hangdog_server.store.offline_captures import OfflineCapture, Spooled
from hangdog_server.store.store import EARLIER, Store
from hangdog_server.store.store_errors import StoreFailed
from hangdog_server.telemetry import WentOn
from support.refused import refused
from support.servers.cast import verdict

FIRST, SECOND = Incident("0a1b", "llama", 1.0, "page"), Incident("0a2c", "qwen", 2.0)
JUDGED = replace(
    verdict(Snapshot(Job("llama"), (Round(0, ()),)), Topology(8, {}, {"a": (Rank(0),)})),
    kind=Kind.MACHINE,
    evict=Eviction(("a",), 0.97),
)


async def test_incidents_outlive_the_server(where: Path | str) -> None:
    store = Store(where)
    await store.begin(FIRST, {"rounds": 2})
    await store.begin(SECOND, {})
    await store.keep(FIRST.id, [RawCapture("b", 0, b"two"), RawCapture("a", 0, b"one")])
    await store.judged(FIRST.id, JUDGED, 5.0)
    store.close()
    store = Store(where)
    newest, oldest = await store.latest("", 10)
    assert newest == replace(SECOND, changed=2.0)
    assert (oldest.state, oldest.changed, oldest.kind, oldest.evict) == (IncidentState.JUDGED, 5.0, "machine", ("a",))
    assert not oldest.verdict and (await store.find("0a1b")).verdict.startswith('{"schema": "hangdog.verdict/1"')
    assert await store.recall(FIRST.id) == ({"rounds": 2}, (RawCapture("a", 0, b"one"), RawCapture("b", 0, b"two")))
    assert [line.id for line in await store.latest("qwen", 10)] == ["0a2c"]
    assert [line.id for line in await store.latest("", 1)] == ["0a2c"]
    store.close()


async def test_what_is_open_is_told(where: Path | str) -> None:
    store = Store(where)
    for incident in (FIRST, SECOND):
        await store.begin(incident, {})
    assert [incident.id for incident in await store.open()] == [SECOND.id, FIRST.id], "newest first"
    await store.judged(FIRST.id, JUDGED, 3.0)
    await store.move(SECOND.id, IncidentState.RECORDED, 9.0)
    assert [incident.id for incident in await store.open()] == [SECOND.id]
    await store.move(SECOND.id, IncidentState.FAILED, 9.0, "nobody is back")
    assert await store.open() == ()
    store.close()


OPEN = replace(JUDGED, kind=Kind.UNDETERMINED, evict=Eviction())


async def test_a_further_verdict_takes_the_place_of_the_one_before_which_is_noted(where: Path | str) -> None:
    store = Store(where)
    await store.begin(FIRST, {"rounds": 2})
    await store.keep(FIRST.id, [RawCapture("a", 0, b"one"), RawCapture("a", 66, b"native")])
    assert await store.next_look(FIRST.id, 5) == (67, "")
    assert await store.next_look(FIRST.id, 65) == (67, "") and await store.next_look(FIRST.id, 66) == (68, "")
    await store.move(FIRST.id, IncidentState.FAILED, 3.0, "nobody answered")
    await store.judged_again(FIRST.id, {"rounds": 2, "first": 67, "job_toml": "[job]"}, OPEN, 5.0)
    assert await store.next_look(FIRST.id, 5) == (67 + 2 + 5, "[job]")
    for number in range(1, 100):
        await store.judged_again(FIRST.id, {"rounds": 1, "first": number}, OPEN, 5.0 + number)
    await store.judged_again(FIRST.id, {"rounds": 1, "first": 100}, JUDGED, 900.0)
    found = await store.find(FIRST.id)
    assert (found.state, found.kind, found.evict, found.changed, found.note) == (
        IncidentState.JUDGED, "machine", ("a",), 900.0, "",
    )  # fmt: skip
    assert (found.looks, len(found.earlier)) == (102, EARLIER)
    assert found.earlier[0] == EarlierVerdict(1, 3.0, "", 0.0), "the first is kept, and the latest"
    assert [one.look for one in found.earlier[1:]] == list(range(101 - EARLIER + 2, 102))
    assert (await store.kept(FIRST.id))[0] == {"rounds": 1, "first": 100}
    assert replace(found, verdict="") == (await store.latest("", 1))[0]
    await store.judged_again("gone", {}, OPEN, 5.0)  # retention was first
    store.close()


async def test_that_a_job_went_on_is_noted_once_and_moves_nothing_else(where: Path | str) -> None:
    store = Store(where)
    for incident in (FIRST, SECOND):
        await store.begin(incident, {})
    await store.judged(FIRST.id, OPEN, 5.0)
    await store.judged(SECOND.id, JUDGED, 5.0)
    assert await store.went_on(FIRST.id, 34.0) is WentOn.BY_ITSELF
    assert await store.went_on(FIRST.id, 35.0) is None and await store.went_on("gone", 35.0) is None
    assert await store.went_on(SECOND.id, 7.0) is WentOn.NAMED
    found = await store.find(FIRST.id)
    assert (found.went_on_s, found.went_on, found.changed) == (34.0, "went on after 34 s", 5.0)
    store.close()


async def test_a_further_look_goes_into_the_incident_of_the_same_stall_and_into_no_other(where: Path | str) -> None:
    store = Store(where)
    mine = replace(FIRST, began=100.0, why="suspected: ranks 0-7")
    await store.begin(mine, {})
    assert await store.ask(stall_incidents.find, "llama", mine.id, 0.0) is None, "it is under way"
    await store.judged(mine.id, OPEN, 105.0)
    for job, name, since, fits in (
        ("llama", mine.id, 999.0, True),
        ("llama", "", 99.0, True),
        ("llama", "", 101.0, False),  # the job moved since it began
        ("qwen", "", 0.0, False),
        ("qwen", mine.id, 0.0, False),
        ("llama", "gone", 0.0, False),
    ):
        assert (await store.ask(stall_incidents.find, job, name, since) is not None) is fits, (job, name, since)
    await store.begin(replace(FIRST, id="0f", began=110.0, why="page"), {})
    await store.judged("0f", OPEN, 111.0)
    newest = await store.ask(stall_incidents.find, "llama", "", 99.0)
    assert newest is not None and newest.id == "0f", "somebody was faster than the suspicion"
    assert await store.ask(stall_incidents.find, "llama", mine.id, 99.0) is not None
    await store.judged(mine.id, JUDGED, 120.0)
    decided = await store.ask(stall_incidents.find, "llama", mine.id, 0.0)
    assert decided is not None and (decided.evict, decided.acted) == (JUDGED.evict.machines, False)
    await store.judged(mine.id, OPEN, 121.0)
    await store.went_on(mine.id, 9.0)
    assert await store.ask(stall_incidents.find, "llama", mine.id, 0.0) is None, "it is over"
    store.close()


async def test_a_prefix_must_say_which(where: Path | str) -> None:
    store = Store(where)
    for name in ("0a1b", "0a2c", "0a2"):
        await store.begin(replace(FIRST, id=name), {})
    assert (await store.find("0a1")).id == "0a1b"
    assert (await store.find("0a2")).id == "0a2", "a whole name is no prefix"
    for wanted, code, named in (
        ("0a", "ambiguous-name", "0a1b"),
        ("ff", "no-such-incident", "'ff'"),
        ("", "no-such-incident", "''"),
        ("%", "no-such-incident", "'%'"),
        ("_a1b", "no-such-incident", "'_a1b'"),
    ):
        with pytest.raises(WrongUse, match=named) as caught:
            await store.find(wanted)
        assert caught.value.code == code
    store.close()


async def test_captures_are_kept_all_or_none(where: Path | str) -> None:
    store = Store(where)
    await store.begin(FIRST, {})
    with pytest.raises(StoreFailed, match=r"(?i)unique") as caught:
        await store.keep(FIRST.id, [RawCapture("a", 0, b"1"), RawCapture("a", 0, b"2")])
    assert caught.value.code == "store-unavailable"
    assert await store.recall(FIRST.id) == ({}, ())
    store.close()


async def test_what_is_kept_comes_back_as_it_was(where: Path | str) -> None:
    """Names in the order of their code points, whatever the language of the machine; moments to the last bit; any JSON."""
    store = Store(where)
    moment = 1_800_000_000.1234567
    odd = replace(FIRST, id="é1", began=moment, why="mit Umlaut: ü, 卡住, 🐕", job='jo"b')
    asked = {"z": 1, "a": [None, True, 1e-300, 2**53], "nul": "\0", "half": "\ud800", "wörter": {"": ""}}
    await store.begin(odd, asked)
    machines = ["B", "a", "Z", "_", "b-1", "b.1", "ä", "10", "9"]
    packed = bytes(range(256)) * 10
    await store.keep("é1", [RawCapture(machine, 0, packed) for machine in machines])
    store.close()
    store = Store(where)
    kept, captures = await store.recall("é1")
    assert (kept, list(kept)) == (asked, list(asked))
    assert [one.machine for one in captures] == sorted(machines)
    assert {one.packed for one in captures} == {packed}
    found = await store.find("é")
    assert (found.began, found.why, found.job) == (moment, odd.why, odd.job)
    store.close()


async def test_looks_kept_beside_another_come_back_as_if_they_had_come_alone(where: Path | str) -> None:
    store = Store(where)
    await store.begin(FIRST, {})
    last = pb.Capture(alike=[pb.Alike(ranks=[0, 1], cpu_s=[5.0, 6.0])])
    befores = [pb.Before(round=at, cpu_s=cpu_s) for at, cpu_s in enumerate(([1.0, 2.0], [3.0, 4.0]))]
    looks = [rebuilt(last, before).SerializeToString() for before in befores]
    packed = last.SerializeToString()
    alone, both = RawCapture("a", 7, b"alone"), RawCapture("b", 9, packed, rounds.pack_earlier(2, befores))
    await store.keep(FIRST.id, [alone, both])
    told = [("a", 7, b"alone"), ("b", 7, looks[0]), ("b", 8, looks[1]), ("b", 9, packed)]
    assert [(one.machine, one.round, one.packed) for one in (await store.recall(FIRST.id))[1]] == told
    assert (await store.kept(FIRST.id))[1] == 4
    pages = [await store.page(FIRST.id, after, 1) for after in (("", -1), ("a", 7), ("b", 9))]
    assert [(one.machine, one.round) for page in pages for one in page] == [("a", 7), ("b", 9)]
    looks_of = [look for page in pages for one in page for look in unfolded(one)]
    assert [(one.machine, one.round, one.packed) for one in looks_of] == told
    store.close()


async def test_capitals_are_other_letters(where: Path | str) -> None:
    store = Store(where)
    for name in ("ab1", "AB1"):
        await store.begin(replace(FIRST, id=name, job=name), {})
    assert (await store.find("ab")).id == "ab1" and (await store.find("AB")).id == "AB1"
    assert [line.id for line in await store.latest("AB1", 9)] == ["AB1"]
    assert [line.id for line in await store.latest("", 9)] == ["AB1", "ab1"], "of one moment by name"
    store.close()


async def test_text_that_no_database_holds_is_no_reason_to_fail(where: Path | str) -> None:
    """Reasons and notes may quote evidence, which may hold anything."""
    store = Store(where)
    await store.begin(replace(FIRST, why="a\0b\ud800c"), {})
    await store.move(FIRST.id, IncidentState.FAILED, 2.0, "\udcff\0")
    found = await store.find(FIRST.id)
    assert (found.why, found.note) == ("a\ufffdb?c", "?\ufffd")
    assert await store.latest("\0", 9) == ()
    with refused("no-such-incident"):
        await store.find("\0\ud800")
    store.close()


async def test_steps_at_the_same_time_each_have_their_turn(where: Path | str) -> None:
    """Looks of one standstill that come at once, as from two servers upon one database, are one incident."""
    store = Store(where)
    spooled = Spooled(store)

    async def fold(number: int) -> str:
        local = AnnouncedJob("llama", (Rank(number),))
        kept = OfflineCapture(f"m{number}", "1", "s", local, 100.0, 0, True, False, 1, 1.0, "still", 0, b"x")
        return (await spooled.fold(kept, f"0{number}", 60.0, 100.0)).incident

    async with asyncio.TaskGroup() as group:
        folded = [group.create_task(fold(number)) for number in range(12)]
    assert len({task.result() for task in folded}) == 1
    assert len(await spooled.of(folded[0].result())) == 12
    store.close()
