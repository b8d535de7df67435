"""With whom a crash began, by how and when each trainer ended: the first that failed by itself, and not the crowd that followed."""

import signal
from collections.abc import Sequence
from dataclasses import replace

import pytest

from hangdog_models.diagnosis.judge import diagnose
from hangdog_models.exits import Exit
from hangdog_models.findings import Finding, Impact
from hangdog_models.ranks import Rank
from hangdog_models.snapshot import Job, Round, Snapshot
from hangdog_models.stack import Missing, ProcessTrace, Reason
from hangdog_models.topology import Layout, build
from hangdog_models.verdict import Act, Kind, Verdict, from_json, to_json
from hangdog_models.views.first_line import headline

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
    assert "0.4 s before the next of 8 ranks" in verdict.because[0].text


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
    assert "out of memory" in judged(fell(-signal.SIGKILL), kernel, *LOST).because[0].text
    long_ago = judged(fell(-signal.SIGKILL), replace(kernel, age_s=900.0), *LOST)
    assert not any("out of memory: it was killed" in line.text for line in long_ago.because)


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


@pytest.mark.parametrize(
    ("verdict", "line"),
    [
        (
            judged(fell(3), *LOST),
            "software: rank 5 on m1 failed first with exit code 3, because of its code (94%). Evict nobody: look at the code.",
        ),
        (
            judged(fell(-signal.SIGKILL, oom=True), *LOST),
            "software: rank 5 on m1 failed first for lack of memory, because of its code (94%). Evict nobody: look at the code.",
        ),
        (
            judged(fell(-signal.SIGKILL), *LOST),
            "undetermined: rank 5 on m1 failed first by SIGKILL (96%), and nothing tells why. Don't remove anything yet: ask the job's people.",
        ),
        (
            judged(fell(1), BROKEN, *LOST),
            "machine: rank 5 on m1 failed first with CUDA uncorrectable ECC, because of its machine (97% sure). Evict m1.",
        ),
        (
            everywhere(),
            (
                "software: rank 0 on m0 failed first with ValueError: code bug, no machine is at fault (97% sure). "
                "Evict nobody: look at the code."
            ),
        ),
        (
            without(),
            "undetermined: the job crashed, cause unknown. Don't remove anything yet: ask the job's people.",
        ),
    ],
)
def test_the_first_line_says_who_failed_first_how_and_where(verdict: Verdict, line: str) -> None:
    assert headline(verdict) == line
    assert from_json(to_json(verdict)).crash == verdict.crash


def test_the_one_machine_that_is_gone_brought_the_job_down() -> None:
    assert "on m2 brought the job down, because of their machine" in headline(without("m2"))


def test_an_old_rank_that_ends_first_and_well_did_not_begin_it() -> None:
    crowd = [*CROWD[:-1], Exit(Rank(7), 0, 1.0)]
    verdict = judged(fell(3), *LOST, crowd=crowd)
    assert verdict.culprit is not None and verdict.culprit.ranks == (GUILTY,)
