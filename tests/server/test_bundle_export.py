"""An incident that the server judged, written as a bundle, is judged the same where there is no server."""

import asyncio
import json
import re
import tempfile
from collections.abc import Coroutine, Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any

import sqlalchemy as sa
from click.testing import CliRunner, Result
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

import hangdog
from cast import NOON, PATIENT, QUICK, Agent, Stage, cluster, stage
from dumper import pickled
from evidence import flight
from hangdog.main import main
from hangdog.written import files
from hangdog_models.diagnosis.judge import diagnose
from hangdog_models.findings import Bearing, Finding
from hangdog_models.ranks import Rank
from hangdog_models.snapshot import Job
from hangdog_models.stack import Frame, Missing, ProcessTrace, Reason
from hangdog_models.verdict import EvidenceReport, Kind, Verdict, from_json, to_json
from hangdog_proto import found, statement
from hangdog_proto.codec import pack
from hangdog_proto.generated import hangdog_pb2 as pb
from hangdog_proto.statement import Statement
from hangdog_server import gather, looks
from hangdog_server.gather import FURTHER, Gathering, Plan
from hangdog_server.heard import answer
from hangdog_server.jobs import LocalJob
from hangdog_server.judging import remembered, triage
from hangdog_server.replay import Look, replay
from hangdog_server.store import Incident, State
from stories import STACKS, trace

#: What a verdict says beside how many files it was read from.
NOTHING = EvidenceReport()
GONE = Missing(Reason.NO_AGENT, "the agent of it is not connected: its stream broke 40 s ago")
STOPPED = Missing(Reason.NO_EVIDENCE, "was stopped in order 40 s ago, which is no evidence against the machine")
RAS = (
    '{{"nccl_version": "2.29.1", "communicators": [{{"hash": "0x{0}", "size": 4, "ranks": [], "missing_ranks": '
    '[{{"rank": {1}, "host": "h{1}", "pid": 7, "status": {{"considered_dead": true}}}}]}}]}}'
)
#: A process whose role is no part of a file's name, as it is and as it is written.
_NAMELESS = re.compile(r"\.(process-[0-9a-f]+|\.\./\.\./etc/passwd|rank7|a b)$")


def same(ours: Verdict, theirs: Verdict) -> None:
    """Everything is equal but the account of files and messages, and the names of processes that no path can hold."""
    told, read = plain(ours), plain(theirs)
    assert read == told, {key: (told[key], read[key]) for key in told if told[key] != read[key]}


def plain(verdict: Verdict) -> dict[str, Any]:
    """A verdict as far as it must be the same: words in one line, as evidence is read."""
    document = to_json(replace(verdict, evidence=NOTHING))
    failed = document["coverage"]["failed"].items()
    document["coverage"]["failed"] = sorted((_NAMELESS.sub(".?", name), why) for name, why in failed)
    shown: dict[str, Any] = json.loads(json.dumps(document).replace("\\n", " "))
    return shown


# ------------------------------------------------------------------------------------------------ any incident at all


@dataclass
class Told:
    """An incident as a test makes it up: what was planned, the answers in their order, and how it ended."""

    plan: Plan
    job_toml: str
    announced: dict[str, LocalJob]
    answers: list[pb.Captured] = field(default_factory=list)
    machines: list[str] = field(default_factory=list)
    lost: list[str] = field(default_factory=list)
    gone: dict[str, Missing] = field(default_factory=dict)
    findings: tuple[Finding, ...] = ()

    def judged(self) -> tuple[Verdict, dict[str, object], list[Look]]:
        """Takes the answers in as the server does; the verdict, what is remembered, and what is kept."""
        gathering, kept = Gathering(self.plan, 0.0), []
        for machine, captured in zip(self.machines, self.answers, strict=True):
            heard, packed = answer(machine, captured)
            if not gather.take(gathering, heard):
                kept.append(Look(machine, captured.round, packed))
        for machine in self.lost:
            gather.lose(gathering, machine, 0.0)
        snapshot = looks.explained(gather.conclude(gathering), gather.owners(gathering), self.gone)
        snapshot = replace(snapshot, findings=(*snapshot.findings, *self.findings))
        verdict = triage(snapshot, self.job_toml, self.announced, gather.placement(gathering), diagnose)
        asked = remembered(
            self.plan, self.job_toml, self.announced, self.gone, self.findings, False, gathering.done, gathering.lost
        )
        return verdict, asked, kept


NAMES = st.sampled_from(
    ["gpu-a1", "gpu-a2", "n.example.org", "x/../y", 'q"\\', "büro", "a b", ".hidden", "NODE", "z" * 120]
)
WHERE = st.sampled_from(sorted(STACKS))
REASONS = st.sampled_from(sorted(Reason))
WORDS = st.sampled_from(
    ["", "py-spy: Permission denied", "stopped, no agent, timed out", "two\nlines", "D state: zombie"]
)


@st.composite
def traces(draw: st.DrawFn, rank: int, usual: str, shift: int) -> list[ProcessTrace]:
    """One rank's processes in one look: mostly as the others stand."""
    kind = draw(st.integers(0, 9))
    stack = usual if kind < 6 else draw(WHERE)
    seen = trace(rank, stack, state=draw(st.sampled_from(["", "S", "R", "D", "T"])), wchan="w", shift=shift)
    if kind == 7:
        seen = replace(seen, threads=(), missing=Missing(draw(REASONS), draw(WORDS)))
    if kind == 8:
        seen = replace(seen, missing=Missing(draw(REASONS), draw(WORDS)))
    if kind == 9:
        thread = seen.threads[0]
        below = (Frame("recv", "", 0, "libc.so.6"), Frame("??", "", 0, ""))
        seen = replace(
            seen, threads=(replace(thread, frames=(*thread.frames, *below)), replace(thread, name=None, tid=9))
        )
    children = [replace(seen, role=role, pid=5000 + rank) for role in draw(st.sets(st.sampled_from(
        ["dataloader-0", "checkpoint", "../../etc/passwd", "rank7", "a b", "w.json"]), max_size=1))]  # fmt: skip
    return [seen, *children]


@st.composite
def incidents(draw: st.DrawFn) -> Told:
    """A job of a few machines, some of which are silent, lost, absent or say odd things."""
    machines = draw(st.lists(NAMES, min_size=2, max_size=4, unique=True))
    each = draw(st.integers(1, 3))
    rounds = draw(st.integers(1, 3))
    ranks = {name: tuple(Rank(at * each + number) for number in range(each)) for at, name in enumerate(machines)}
    world = each * len(machines)
    sizes = draw(st.sampled_from(["", f"dp={world}", f"tp={each},dp={len(machines)}", f"foo={world}", "nonsense"]))
    toml = draw(
        st.sampled_from(["", "", f'[job]\nframework = "fsdp"\n[topology]\ndp = {world}\n[groups]\nmy = ["0-1"]\n'])
    )
    announced = {name: LocalJob("llama 7b", mine, world, sizes) for name, mine in ranks.items()}
    absent = [machines[-1]] if draw(st.booleans()) else []
    asked = {name: ranks[name] for name in machines if name not in absent}
    plan = Plan("0a", Job("llama 7b"), rounds, 2.0, asked, {name: ranks[name] for name in absent})
    told = Told(plan, toml, announced, gone={name: draw(st.sampled_from([GONE, STOPPED])) for name in absent})
    usual, counting, moving = draw(WHERE), draw(st.booleans()), draw(st.booleans())
    for machine, mine in asked.items():
        manner = draw(st.sampled_from(["well"] * 6 + ["silent", "lost", "half", "ends", "unreadable"]))
        if manner in ("lost", "half"):
            told.lost += [machine] if manner == "lost" else []
        for number in range(0 if manner == "silent" else rounds):
            if manner in ("half", "lost", "ends") and number:
                break
            looked = [one for rank in mine for one in draw(traces(rank, usual, number * moving))]
            capture = pack(looked)
            if manner == "unreadable":
                capture.stacks.add(frames=[1 << 20])
            if number == rounds - 1 and counting:
                said = [
                    Statement(statement.Kind.RECORD, rank, draw(st.sampled_from(
                        [flight(5, 4), flight(6, 5), flight(5, 5), pickled(7, 6), b"no record"])))
                    for rank in mine
                ]  # fmt: skip
                report = RAS.format(draw(st.sampled_from(["ab", "cd"])), mine[0]).encode()
                said.append(Statement(statement.Kind.RAS, None, draw(st.sampled_from([report, b"<html>"]))))
                capture.statements.extend(map(statement.pack, said))
            if number == rounds - 1 and draw(st.booleans()):
                bad = Finding(
                    "kernel log", "Xid 79", draw(st.sampled_from(Bearing)), "fell off the bus", machine, at_s=5.0
                )
                capture.findings.extend(found.pack([bad]))
            last = number == rounds - 1 or manner == "ends"
            told.machines.append(machine)
            told.answers.append(pb.Captured(round=number, capture=capture, last=last))
    known: bool = draw(st.booleans())
    if absent and known:
        told.findings = (Finding("NVML", "Xid 48", Bearing.CONVICTS, "double bit error", absent[0], device="0000:1"),)
    return told


@given(incidents())
@settings(max_examples=150, suppress_health_check=[HealthCheck.too_slow, HealthCheck.data_too_large])
def test_any_incident_is_read_back_to_the_same_verdict(told: Told) -> None:
    verdict, asked, kept = told.judged()
    replayed = replay("llama 7b", asked, kept)
    with written_to(dict(files(replayed, ["a remark\nof two lines"]))) as folder:
        if not kept and not told.findings:
            return  # nobody said anything: there is no evidence to read
        read = hangdog.triage(folder)
    same(verdict, read)
    assert not [name for name in read.evidence.unreadable if not name.endswith(("ras.txt", "pickle"))]
    assert read.evidence.ignored == ()


@contextmanager
def written_to(content: dict[str, bytes]) -> Iterator[Path]:
    with tempfile.TemporaryDirectory() as folder:
        for path, data in content.items():
            file = Path(folder, path).resolve()
            assert file.is_relative_to(Path(folder).resolve()), path
            file.parent.mkdir(parents=True, exist_ok=True)
            file.write_bytes(data)
        yield Path(folder)


# ------------------------------------------------------------------------------------------- over the wire, by the command


async def command(on: Stage, *arguments: str) -> Result:
    return await asyncio.to_thread(CliRunner().invoke, main, ["bundle", *arguments, "--server", on.address])


async def exported(on: Stage, incident: str, folder: Path) -> Verdict:
    """The verdict that `hangdog triage` draws from what `hangdog bundle` wrote."""
    result = await command(on, incident, "-o", str(folder))
    assert result.exit_code == 0, result.output
    read = hangdog.triage(folder)
    assert read.evidence.ignored == () and not read.evidence.unreadable
    return read


async def judged(on: Stage, *playing: Coroutine[Any, Any, None], **asked: Any) -> tuple[str, Verdict]:
    """An incident while the agents play: its name and its verdict."""
    steps, *_ = await asyncio.gather(on.snapshot("llama", **asked), *playing)
    assert steps[-1].verdict is not None
    return steps[-1].incident, steps[-1].verdict


async def shows(agent: Agent, *looked: list[ProcessTrace], said: tuple[Statement, ...] = ()) -> None:
    """Answers an order with these looks, the last with what libraries counted."""
    order = await agent.order()
    for number, one in enumerate(looked):
        capture = pack(one)
        last = number == len(looked) - 1
        capture.statements.extend(map(statement.pack, said if last else ()))
        await agent.say(captured=pb.Captured(order=order.order, round=number, capture=capture, last=last))


def ranks(stories: dict[int, str]) -> list[ProcessTrace]:
    return [trace(rank, stack, state="S") for rank, stack in stories.items()]


TWO = replace(PATIENT, rounds=2)


async def test_a_machine_outside_the_collective_is_evicted_from_the_bundle_too(tmp_path: Path) -> None:
    async with stage(tmp_path / "s.db", diagnose, TWO) as on, cluster(on, a=[0, 1], b=[2, 3], c=[4, 5]) as (a, b, c):
        wait, stuck = ranks({2: "scatter", 3: "scatter"}), ranks({4: "user", 5: "scatter"})
        first = ranks({0: "scatter", 1: "scatter"})
        playing = (shows(a, first, first), shows(b, wait, wait), shows(c, stuck, stuck))
        name, verdict = await judged(on, *playing, job_toml="[topology]\ndp = 6\n")
        read = await exported(on, name[:6], tmp_path / "out")
        assert (verdict.kind, verdict.evict.machines) == (Kind.MACHINE, ("c",))
        same(verdict, read)
        again = await command(on, name, "-o", str(tmp_path / "out"))
        assert again.exit_code == 64 and "is there already" in again.output, "nothing is written over"
        assert {path.name for path in tmp_path.iterdir() if path.is_dir()} == {"out"}, "and nothing left beside it"
        text = (tmp_path / "out" / "job.toml").read_text()
        assert text.startswith(f"# Incident {name} of ") and "# Verdict of the server: machine" in text
        missing = await command(on, "ff", "-o", str(tmp_path / "other"))
        assert missing.exit_code == 64 and "no incident" in missing.output and not (tmp_path / "other").exists()
        await on.store.do(lambda c: c.execute(sa.text(f"UPDATE incidents SET pruned = {NOON}")))
        gone = await command(on, name, "-o", str(tmp_path / "other"))
        assert gone.exit_code == 64 and "were removed on 2027-01-15" in gone.output


async def test_code_that_calls_different_collectives(tmp_path: Path) -> None:
    async with stage(tmp_path / "s.db", diagnose, TWO) as on, cluster(on, a=[0, 1], b=[2, 3]) as (a, b):
        one, other = ranks({0: "gather", 1: "gather"}), ranks({2: "scatter", 3: "scatter"})
        said = [tuple(Statement(statement.Kind.RECORD, Rank(r), flight(5, 4)) for r in of) for of in ((0, 1), (2, 3))]
        report = Statement(statement.Kind.RAS, None, RAS.format("ab", 1).encode())
        playing = (shows(a, one, one, said=(*said[0], report)), shows(b, other, other, said=(*said[1], report)))
        name, verdict = await judged(on, *playing)
        same(verdict, await exported(on, name, tmp_path / "out"))


async def test_a_group_that_all_joined(tmp_path: Path) -> None:
    async with stage(tmp_path / "s.db", diagnose, TWO) as on, cluster(on, a=[0, 1], b=[2, 3]) as (a, b):
        one, other = ranks({0: "tensor", 1: "tensor"}), ranks({2: "stage", 3: "stage"})
        playing = (shows(a, one, one), shows(b, other, other))
        name, verdict = await judged(on, *playing, job_toml="[topology]\ntp = 2\npp = 2\n")
        assert verdict.kind is Kind.GROUP
        same(verdict, await exported(on, name, tmp_path / "out"))


async def test_native_stacks_that_decided(tmp_path: Path) -> None:
    call = ["<module> train.py", "step train.py", "exchange binding.py"]

    async def plays(agent: Agent, *mine: int) -> None:
        bare = [trace(rank, call, state="S") for rank in mine]
        await shows(agent, bare, bare)
        order = await agent.order()
        assert order.native
        deeper = []
        for seen in bare:
            names = ("take_lock", "pthread_mutex_lock") if seen.rank == 2 else ("receive", "recv")
            below = tuple(Frame(name, "call.so", 0, "/opt/call.so") for name in names)
            deeper.append(replace(seen, threads=(replace(seen.threads[0], frames=seen.threads[0].frames + below),)))
        await agent.answer(order, *deeper, last=True)

    closer = replace(TWO, native_ranks=32)
    async with stage(tmp_path / "s.db", diagnose, closer) as on, cluster(on, a=[0, 1], b=[2, 3]) as (a, b):
        name, verdict = await judged(on, plays(a, 0, 1), plays(b, 2, 3))
        assert (verdict.kind, verdict.evict.machines) == (Kind.MACHINE, ("b",))
        same(verdict, await exported(on, name, tmp_path / "out"))
        asked, kept = await on.store.recall(name)
        assert max(one.round for one in kept) == asked["rounds"] + FURTHER


async def test_light_looks_at_a_slow_job(tmp_path: Path) -> None:
    async def plays(agent: Agent, *mine: int, stays: int = -1) -> None:
        for number in range(3):
            order = await agent.order()
            assert order.light
            where = {rank: "user" if rank == stays else ("scatter", "backward", "gather")[number] for rank in mine}
            await agent.answer(order, *ranks(where), last=True)

    light = replace(PATIENT, light_rounds=3, light_interval_s=0.05)
    async with stage(tmp_path / "s.db", diagnose, light) as on, cluster(on, a=[0, 1], b=[2, 3]) as (a, b):
        name, verdict = await judged(on, plays(a, 0, 1), plays(b, 2, 3, stays=2), light=True)
        same(verdict, await exported(on, name, tmp_path / "out"))


async def test_machines_that_were_lost_silent_or_stopped(tmp_path: Path) -> None:
    """What weighs against a machine and what does not is not in the captures, and is kept beside them."""
    machines = {"a": [0, 1], "b": [2, 3], "c": [4, 5], "d": [6, 7]}
    async with stage(tmp_path / "s.db", diagnose, replace(QUICK, rounds=2)) as on, cluster(on, **machines) as agents:
        a, b, c, d = agents
        await d.say(presence=pb.Presence(jobs=[pb.LocalJob(job="llama", ranks=[6, 7])], leaving=True))
        await d.hang_up()
        await on.until(lambda seen: any(not line.connected for line in seen))

        async def half(agent: Agent, mine: dict[int, str], leaves: bool) -> None:
            order = await agent.order()
            await agent.answer(order, *ranks(mine))
            if leaves:
                await agent.hang_up()

        first = ranks({0: "scatter", 1: "scatter"})
        lost, silent = half(b, {2: "scatter", 3: "scatter"}, True), half(c, {4: "scatter", 5: "scatter"}, False)
        name, verdict = await judged(on, shows(a, first, first), lost, silent)
        same(verdict, await exported(on, name, tmp_path / "out"))
        told = verdict.coverage.failed
        assert any("stopped in order" in why for why in told.values())


async def test_what_was_recorded_while_no_server_was_there(tmp_path: Path) -> None:
    brief = replace(PATIENT, returned_s=0.2)
    async with stage(tmp_path / "s.db", diagnose, brief) as on, on.agent("a") as a, on.agent("b") as b:
        await a.hello(llama=[0, 1])
        await b.hello(llama=[2, 3])
        await on.knows("a", "b")
        for number in (0, 1):
            captured = pb.Captured(round=number, last=number == 1, capture=pack(ranks({0: "user", 1: "scatter"})))
            told = pb.LocalJob(job="llama", ranks=[0, 1], world_size=4)
            await a.say(
                spooled=pb.Spooled(
                    id=str(number),
                    standstill="s",
                    job=told,
                    age_s=90.0,
                    captured=captured,
                    rounds=2,
                    interval_s=2.0,
                )
            )
            await a.next()
        async with asyncio.timeout(10):
            while not (kept := await on.store.latest("", 1)) or kept[0].state is not State.JUDGED:
                await asyncio.sleep(0.02)
        name = kept[0].id
        verdict = from_json(json.loads((await on.store.find(name)).verdict))
        same(verdict, await exported(on, name, tmp_path / "out"))


async def test_an_incident_that_has_no_captures_yet_is_no_bundle_to_believe(tmp_path: Path) -> None:
    async with stage(tmp_path / "s.db", diagnose) as on:
        await on.store.begin(Incident("0a", "llama", NOON), {})
        result = await command(on, "0a", "-o", str(tmp_path / "out"))
        assert result.exit_code == 70 and "cannot be put together" in result.output and not (tmp_path / "out").exists()
