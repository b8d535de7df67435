"""Any incident that may be, put together again and written as a bundle, is judged the same."""

import tempfile
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field, replace
from pathlib import Path

from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from msgspec import structs

import hangdog
from hangdog.evidence.write_bundle import files
from hangdog_models.diagnosis.judge import diagnose
from hangdog_models.errors import UnreadableEvidence
from hangdog_models.findings import Finding, Impact
from hangdog_models.ranks import Rank
from hangdog_models.snapshot import Job
from hangdog_models.stack import Frame, Missing, ProcessTrace, Reason
from hangdog_models.verdict import Verdict
from hangdog_proto.codec import collectives
from hangdog_proto.codec import findings as found
from hangdog_proto.codec.collectives import Statement
from hangdog_proto.codec.dedup import Packer
from hangdog_proto.codec.piece_cache import PieceCache
from hangdog_proto.codec.pieces import PIECES
from hangdog_proto.codec.traces import pack, unpack
from hangdog_proto.generated import hangdog_pb2 as pb
from hangdog_server.incidents import gather, round_diff
from hangdog_server.incidents.decode import answer
from hangdog_server.incidents.gather import Gathering, RoundPlan
from hangdog_server.incidents.judge import remembered, triage
from hangdog_server.incidents.replay import StoredRound, replay
from hangdog_server.protocol.jobs import AnnouncedJob
from support.cases.evidence import flight
from support.cases.stories import STACKS, trace
from support.fakes.dumper import pickled
from support.servers.exported import RAS, same

GONE = Missing(Reason.NO_AGENT, "the agent of it is not connected: its stream broke 40 s ago")
STOPPED = Missing(Reason.NO_EVIDENCE, "was stopped in order 40 s ago, which is no evidence against the machine")


@dataclass
class Told:
    """An incident as a test makes it up: what was planned, the answers in their order, and how it ended."""

    plan: RoundPlan
    job_toml: str
    announced: dict[str, AnnouncedJob]
    answers: list[pb.Captured] = field(default_factory=list)
    machines: list[str] = field(default_factory=list)
    lost: list[str] = field(default_factory=list)
    gone: dict[str, Missing] = field(default_factory=dict)
    findings: tuple[Finding, ...] = ()

    def judged(self) -> tuple[Verdict, dict[str, object], list[StoredRound]]:
        """Takes the answers in as the server does; the verdict, what is remembered, and what is kept."""
        gathering, kept, dictionary = Gathering(self.plan, 0.0), list[StoredRound](), PieceCache()
        for at, (machine, captured) in enumerate(zip(self.machines, self.answers, strict=True)):
            if at % 2:
                captured = by_digests(captured, dictionary, kept)
            heard = answer(machine, captured, dictionary)
            if not gather.take(gathering, heard):
                kept.append(StoredRound(machine, captured.round, captured.capture.SerializeToString()))
        for machine in self.lost:
            gather.lose(gathering, machine, 0.0)
        snapshot = round_diff.explained(gather.conclude(gathering), gather.owners(gathering), self.gone)
        snapshot = replace(snapshot, findings=(*snapshot.findings, *self.findings))
        verdict = triage(snapshot, self.job_toml, self.announced, gather.placement(gathering), diagnose)
        asked = remembered(
            self.plan, self.job_toml, self.announced, self.gone, self.findings, False, gathering.done, gathering.lost
        )
        return verdict, asked, kept


def by_digests(captured: pb.Captured, dictionary: PieceCache, kept: list[StoredRound]) -> pb.Captured:
    """The same look in the short form, if it can be read; what it names is told and kept."""
    try:
        traces = unpack(captured.capture)
    except UnreadableEvidence:
        return captured
    packer, short = Packer(), pb.Captured()
    short.CopyFrom(captured)
    for name in ("frames", "stacks", "traces"):
        short.capture.ClearField(name)
    short.capture.MergeFrom(packer.pack(traces))
    while lacking := dictionary.missing(short.capture):
        (pieces,) = packer.find(b"".join(lacking), 0)
        dictionary.add(pieces.pieces)
        kept.append(StoredRound(PIECES, len(kept), pieces.SerializeToString()))
    return short


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
        seen = structs.replace(seen, threads=(), missing=Missing(draw(REASONS), draw(WORDS)))
    if kind == 8:
        seen = structs.replace(seen, missing=Missing(draw(REASONS), draw(WORDS)))
    if kind == 9:
        thread = seen.threads[0]
        below = (Frame("recv", "", 0, "libc.so.6"), Frame("??", "", 0, ""))
        seen = structs.replace(
            seen,
            threads=(
                structs.replace(thread, frames=(*thread.frames, *below)),
                structs.replace(thread, name=None, tid=9),
            ),
        )
    children = [structs.replace(seen, role=role, pid=5000 + rank) for role in draw(st.sets(st.sampled_from(
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
    announced = {name: AnnouncedJob("llama 7b", mine, world, sizes) for name, mine in ranks.items()}
    absent = [machines[-1]] if draw(st.booleans()) else []
    asked = {name: ranks[name] for name in machines if name not in absent}
    plan = RoundPlan("0a", Job("llama 7b"), rounds, 2.0, asked, {name: ranks[name] for name in absent})
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
                    Statement(collectives.StatementKind.RECORD, rank, draw(st.sampled_from(
                        [flight(5, 4), flight(6, 5), flight(5, 5), pickled(7, 6), b"no record"])),
                        age_s=draw(st.sampled_from([0, 0, 5, 90])))
                    for rank in mine
                ]  # fmt: skip
                report = RAS.format(draw(st.sampled_from(["ab", "cd"])), mine[0]).encode()
                said.append(Statement(collectives.StatementKind.RAS, None, draw(st.sampled_from([report, b"<html>"]))))
                capture.statements.extend(map(collectives.pack, said))
            if number == rounds - 1 and draw(st.booleans()):
                bad = Finding(
                    "kernel log", "Xid 79", draw(st.sampled_from(Impact)), "fell off the bus", machine, at_s=5.0
                )
                capture.findings.extend(found.pack([bad]))
            last = number == rounds - 1 or manner == "ends"
            told.machines.append(machine)
            told.answers.append(pb.Captured(round=number, capture=capture, last=last))
    known: bool = draw(st.booleans())
    if absent and known:
        told.findings = (Finding("NVML", "Xid 48", Impact.CONVICTS, "double bit error", absent[0], device="0000:1"),)
    return told


@given(incidents())
@settings(suppress_health_check=[HealthCheck.too_slow, HealthCheck.data_too_large])
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
