"""With whom a crash began, by how and when each trainer ended: the first that failed by itself, and not the crowd that followed."""

import signal
from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path

import pytest

from hangdog_models.diagnosis.judge import diagnose
from hangdog_models.exits import Exit
from hangdog_models.findings import Finding, Impact
from hangdog_models.ranks import Rank
from hangdog_models.snapshot import Job, Round, Snapshot
from hangdog_models.stack import Missing, ProcessTrace, Reason
from hangdog_models.topology import Layout, build
from hangdog_models.verdict import Act, JobCrash, Kind, Verdict, from_json, to_json
from hangdog_models.views.first_line import headline
from support.cases.goldens import differing

GOLDEN = Path(__file__).parent / "golden"
WORLD = 8
GUILTY = Rank(5)
#: Two machines of four ranks; those of m0 hear that a connection was closed, the others of m1 are ended by their launcher.
LOST = tuple(
    Finding("log", "connection lost", Impact.VICTIM, "the other end went away", "m0", Rank(rank)) for rank in range(4)
)
CROWD = (
    *(Exit(Rank(rank), 1, 10.4 + rank / 10) for rank in range(4)),
    *(Exit(Rank(rank), -signal.SIGTERM, 11.0) for rank in (4, 6, 7)),
)
ERROR = Finding("log", "ValueError", Impact.PROGRAM, "the program ended with ValueError: x", "m1", GUILTY)
BROKEN = Finding("log", "CUDA uncorrectable ECC", Impact.CONVICTS, "an uncorrectable memory error", "m1", GUILTY)


def judged(first: Exit, *findings: Finding, crowd: Sequence[Exit] = CROWD) -> Verdict:
    machines = {"m0": tuple(map(Rank, range(4))), "m1": tuple(map(Rank, range(4, WORLD)))}
    topology, _ = build(Layout(world_size=WORLD, machines=machines), Rank(WORLD - 1))
    gone = tuple(ProcessTrace(Rank(rank), missing=Missing(Reason.NO_EVIDENCE, "it ended")) for rank in range(WORLD))
    return diagnose(Snapshot(Job("j"), (Round(0, gone),), findings=findings, exits=(*crowd, first)), topology)


def without(*machines: str) -> Verdict:
    """What it is where all that is known are victims, and the agents of these machines are gone."""
    placed = {f"m{number}": tuple(map(Rank, range(4 * number, 4 * number + 4))) for number in range(4)}
    topology, _ = build(Layout(world_size=16, machines=placed), Rank(15))
    reasons = {
        rank: Reason.NO_AGENT if name in machines else Reason.NO_EVIDENCE for name, of in placed.items() for rank in of
    }
    gone = tuple(ProcessTrace(Rank(rank), missing=Missing(reason, "x")) for rank, reason in reasons.items())
    victims = CROWD[:4]
    return diagnose(Snapshot(Job("j"), (Round(0, gone),), findings=LOST, exits=victims), topology)


def fell(status: int | None, **more: bool) -> Exit:
    return Exit(GUILTY, status, 10.0, **more)


@pytest.mark.parametrize(
    ("status", "findings"),
    [
        (1, (ERROR, *LOST)),
        (-signal.SIGSEGV, LOST),
        (-signal.SIGABRT, LOST),
        (-signal.SIGBUS, LOST),
        (3, LOST),
        (3, ()),
    ],
)
def test_the_first_to_fail_is_named_and_its_code(status: int, findings: tuple[Finding, ...]) -> None:
    verdict = judged(fell(status), *findings)
    assert verdict.kind is Kind.SOFTWARE and not verdict.evict.machines
    assert verdict.culprit is not None and verdict.culprit.ranks == (GUILTY,) and verdict.culprit.probability > 0.9
    assert verdict.because[0].code == "program-error"
    assert "0.4 s" in verdict.because[0].text and f"{WORLD} ranks" in verdict.because[0].text


def test_a_broken_device_is_the_machines_whatever_the_others_say() -> None:
    verdict = judged(fell(1), BROKEN, *LOST)
    assert verdict.kind is Kind.MACHINE and verdict.evict.machines == ("m1",)


def test_who_was_killed_first_is_named_and_nobody_is_evicted() -> None:
    verdict = judged(fell(-signal.SIGKILL), *LOST)
    assert verdict.kind is Kind.UNDETERMINED and not verdict.evict.machines
    assert verdict.culprit is not None and verdict.culprit.ranks == (GUILTY,) and verdict.culprit.probability > 0.9
    assert [step.do for step in verdict.next] == [Act.ASK_PEOPLE]


def test_a_kill_for_memory_is_the_programs() -> None:
    assert judged(fell(-signal.SIGKILL, oom=True), *LOST).kind is Kind.SOFTWARE
    kernel = Finding("kernel log", "out of memory", Impact.PROGRAM, "killed", "m1", age_s=45.0)
    lately = judged(fell(-signal.SIGKILL), kernel, *LOST)
    assert lately.because[0].code == "out-of-memory" and lately.kind is Kind.SOFTWARE
    long_ago = judged(fell(-signal.SIGKILL), replace(kernel, age_s=900.0), *LOST)
    assert long_ago.kind is Kind.UNDETERMINED and long_ago.crash == JobCrash(GUILTY, "m1", "by SIGKILL")


def test_errors_of_those_who_ended_later_are_consequences() -> None:
    odd = [replace(one, code="RuntimeError", impact=Impact.PROGRAM, what="peer is gone") for one in LOST]
    for findings in ((ERROR, *odd), tuple(odd)):
        verdict = judged(fell(1), *findings)
        assert verdict.culprit is not None and verdict.culprit.ranks == (GUILTY,)


def test_the_same_error_everywhere_is_the_code_of_all() -> None:
    everywhere = [replace(ERROR, rank=Rank(rank), machine=f"m{rank // 4}") for rank in range(WORLD)]
    crowd = [Exit(Rank(rank), 1, 10.0 + rank / 100) for rank in range(WORLD) if rank != GUILTY]
    verdict = judged(fell(1), *everywhere, crowd=crowd)
    assert verdict.kind is Kind.SOFTWARE and not verdict.evict.machines
    assert verdict.culprit is None or len(verdict.culprit.machines) != 1 or verdict.culprit.probability < 0.6


def test_where_all_are_victims_nobody_is_named() -> None:
    verdict = judged(Exit(GUILTY, -signal.SIGTERM, 11.0), *LOST)
    assert verdict.kind is Kind.UNDETERMINED and verdict.culprit is None


def test_the_one_machine_that_is_gone_is_named_and_not_evicted() -> None:
    verdict = without("m2")
    assert verdict.kind is Kind.MACHINE and not verdict.evict.machines
    assert verdict.culprit is not None and verdict.culprit.machines == ("m2",) and verdict.culprit.probability > 0.7
    for several in ((), ("m2", "m3")):
        assert without(*several).kind is Kind.UNDETERMINED and without(*several).culprit is None


def everywhere() -> Verdict:
    errors = [replace(ERROR, rank=Rank(rank), machine=f"m{rank // 4}") for rank in range(WORLD)]
    return judged(fell(1), *errors, crowd=[Exit(Rank(rank), 1, 10.0 + rank / 100) for rank in range(5)])


def test_the_first_line_says_who_failed_first_how_and_where() -> None:
    verdicts = {
        "an exit code": judged(fell(3), *LOST),
        "killed for memory": judged(fell(-signal.SIGKILL, oom=True), *LOST),
        "killed by nobody knows whom": judged(fell(-signal.SIGKILL), *LOST),
        "a broken device": judged(fell(1), BROKEN, *LOST),
        "the same error everywhere": everywhere(),
        "all are victims": without(),
        "one machine is gone": without("m2"),
    }
    lines = "".join(f"{name}\n  {headline(verdict)}\n" for name, verdict in verdicts.items())
    assert not differing(GOLDEN / "first_lines_of_crashes.txt", lines)
    for verdict in verdicts.values():
        assert from_json(to_json(verdict)).crash == verdict.crash


def test_an_old_rank_that_ends_first_and_well_did_not_begin_it() -> None:
    crowd = [*CROWD[:-1], Exit(Rank(7), 0, 1.0)]
    verdict = judged(fell(3), *LOST, crowd=crowd)
    assert verdict.culprit is not None and verdict.culprit.ranks == (GUILTY,)
