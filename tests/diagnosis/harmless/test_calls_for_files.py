"""A rank in a call for a file: whether its disk, a share, its code or a large file is slow, the call alone does not tell."""

from collections.abc import Sequence

import pytest
from msgspec import structs

from hangdog_models.diagnosis.judge import diagnose
from hangdog_models.stack import Frame, ProcessTrace, Reason
from hangdog_models.verdict import Kind, StallCause, Verdict
from support.cases.stories import first, job, look, snapshot, trace

WIDE = job(dp=16, per_machine=1)


def inside(call: str, state: str, wchan: str = "") -> ProcessTrace:
    """Rank 3 in a function of its own, and in a call of C below it."""
    one = trace(3, ["<module> train.py", "load_index index.py"], state=state, wchan=wchan)
    (main,) = one.threads
    return structs.replace(
        one, threads=(structs.replace(main, frames=(*main.frames, Frame(call, "", 0, "libc.so.6"))),)
    )


def of(odd: ProcessTrace) -> Verdict:
    looks: Sequence[Sequence[ProcessTrace]] = [[*look({"0-2,4-15": "gather"}), odd] for _ in range(2)]
    return diagnose(snapshot(*looks), WIDE)


@pytest.mark.parametrize("call", ["__open64", "fsync"])
def test_a_call_for_a_file_alone_convicts_no_machine(call: str) -> None:
    verdict = of(inside(call, state="S"))
    assert (verdict.kind, first(verdict), verdict.evict.machines) == (Kind.DEPENDENCY, (3,), ())
    causes = verdict.causes
    assert {cause: round(20 * causes[cause]) for cause in (StallCause.DEPENDENCY, StallCause.MACHINE, StallCause.SOFTWARE)} == {
        StallCause.DEPENDENCY: 9, StallCause.MACHINE: 6, StallCause.SOFTWARE: 3,
    }  # fmt: skip


@pytest.mark.parametrize(
    "odd",
    [
        inside("__open64", state="D", wchan="io_schedule"),
        trace(3, Reason.UNINTERRUPTIBLE, state="D", wchan="io_schedule"),
    ],
)
def test_one_that_is_stuck_there_in_the_kernel_speaks_for_its_machine(odd: ProcessTrace) -> None:
    verdict = of(odd)
    assert (verdict.kind, first(verdict)) == (Kind.MACHINE, (3,))
    assert verdict.causes[StallCause.MACHINE] > 0.8
