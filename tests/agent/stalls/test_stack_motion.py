"""What a trainer at one line does there, by what the kernel counts, and which function all its looks share."""

from dataclasses import replace

import pytest

from hangdog_agent.discovery.cpu_activity import CpuActivity
from hangdog_agent.stalls.stack_motion import StackSample, call_site, meanwhile, waits_outside, writes
from hangdog_models.diagnosis.observe import activity
from hangdog_models.rules.ruleset import packaged
from hangdog_models.stall_timeouts import Doing
from support.cases.stories import trace

RULES = packaged()


def samples(stack: str = "user", **each_second: float) -> list[StackSample]:
    """Six looks at one line, a second apart; `each_second` is by how much a counter grows."""
    state = activity.read(trace(0, stack, active=bool(each_second.get("ran_s"))), RULES)
    dozes = bool(each_second.pop("dozes", False))
    return [
        StackSample(
            float(at), state, ran_s=at * each_second.get("ran_s", 0.0), wakes=int(at * each_second.get("wakes", 0.0)),
            dozes=dozes, helped_s=at * each_second.get("helped_s", 0.0),
            helper_bytes=int(at * each_second.get("helper_bytes", 0)),
        )
        for at in range(6)
    ]  # fmt: skip


@pytest.mark.parametrize(
    ("grows", "doing"),
    [
        ({}, Doing.STILL),
        ({"ran_s": 0.9, "wakes": 5}, Doing.LOOPING),
        ({"ran_s": 0.01, "wakes": 1}, Doing.STILL),  # woken now and then, as who waits for its loader
        ({"dozes": 1, "wakes": 10}, Doing.LOOPING),  # looks again and again for a file
        ({"dozes": 1}, Doing.STILL),  # sleeps once, for ever
        ({"helped_s": 0.5}, Doing.HELPED),
        ({"helped_s": 0.02}, Doing.STILL),  # a logger's process beside it
        ({"helper_bytes": 4096}, Doing.HELPED),
    ],
)
def test_who_stands_at_one_line_may_get_on_all_the_same(grows: dict[str, float], doing: Doing) -> None:
    assert meanwhile(samples("user", **grows), CpuActivity.IDLE, gpus=False) is doing


def test_a_lively_pulse_at_one_line_is_work_and_so_is_a_pinned_one_without_gpus() -> None:
    """As a line that calls a compiled step again and again, or one long call of numpy on cores that others want, too."""
    for mode, gpus, doing in (
        (CpuActivity.ACTIVE, True, Doing.LOOPING),
        (CpuActivity.BUSY, False, Doing.LOOPING),
        (CpuActivity.BUSY, True, Doing.STILL),
        (CpuActivity.IDLE, False, Doing.STILL),
    ):
        assert meanwhile(samples(), mode, gpus=gpus) is doing


def test_who_moves_bytes_at_one_line_writes_or_reads() -> None:
    for each, doing in ((1 << 16, Doing.WRITING), (100, Doing.STILL)):  # a line of a log now and then
        looks = [replace(look, io_bytes=number * each) for number, look in enumerate(samples())]
        assert meanwhile(looks, CpuActivity.IDLE, gpus=False) is doing


def test_who_waits_for_others_is_still_whatever_its_children_do() -> None:
    assert meanwhile(samples("barrier", helped_s=1.0, ran_s=1.0, wakes=9), CpuActivity.IDLE, gpus=False) is Doing.STILL


def test_beside_gpus_who_runs_at_one_line_may_spin_until_its_own_is_done() -> None:
    assert meanwhile(samples(ran_s=1.0, wakes=9), CpuActivity.IDLE, gpus=True) is Doing.STILL


def test_where_the_kernel_does_not_count_nothing_is_known() -> None:
    state = activity.read(trace(0, "user"), RULES)
    assert meanwhile([StackSample(float(at), state) for at in range(6)], CpuActivity.IDLE, gpus=False) is Doing.STILL


def test_the_call_site_is_what_all_looks_share() -> None:
    looks = [
        StackSample(float(at), activity.read(trace(0, stack), RULES)) for at, stack in enumerate(("user", "barrier"))
    ]
    alone = [call_site([look]) for look in looks]
    assert call_site(looks) not in alone and " of " in call_site(looks)
    assert call_site([looks[0], looks[0]]) == alone[0]


READS = ["<module> train.py", "step train.py", "Path.read_bytes pathlib.py"]


@pytest.mark.parametrize(
    ("stack", "wchan", "outside"),
    [
        (READS, "anon_pipe_read", True),
        (READS, "unix_stream_read_generic", True),
        (READS, "futex_wait_queue", True),  # storage by its frames, and nothing says otherwise
        ("user", "anon_pipe_read", False),
        ("user", "do_wait", False),
    ],
)
def test_who_reads_a_pipe_as_a_file_waits_for_its_data(stack: str | list[str], wchan: str, outside: bool) -> None:
    """A data set may come through a named pipe. What else a rank awaits of other processes is no data of a step."""
    state = activity.read(trace(0, stack, state="S", wchan=wchan), RULES)
    fed = [StackSample(float(at), state, io_bytes=at * 100) for at in range(2)]
    assert (waits_outside(state), writes(fed)) == (outside, outside)
