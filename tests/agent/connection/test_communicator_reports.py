"""What is told of communicators, and what that costs: a machine at rest, one that trains, one that hangs."""

import threading
from collections.abc import Sequence
from dataclasses import replace
from typing import Any

import pytest

from hangdog_agent.capture.process_capture import Tools
from hangdog_agent.connection.communicator_reports import BURST, BYTES_S, REFRESH_S, CommunicatorReports, Windows
from hangdog_agent.stalls.monitor import StallMonitor
from hangdog_models.owner import Owner, OwnerKind
from hangdog_models.progress.communicator_window import CommunicatorWindow
from hangdog_models.ranks import Rank
from hangdog_proto.codec.communicator_report import MOST_COMMUNICATORS
from hangdog_proto.generated import hangdog_pb2 as pb
from support.fakes.targets import WAIT, running
from support.servers.far_end import ENVIRON, Server, linked

RANKS = tuple(map(Rank, range(1024, 1032)))
#: A job's name and owner as long as usual ones.
OWNERS = {"k": ("llama-70b-pretrain-run-17", Owner(OwnerKind.SLURM, "1234567", 1000))}
#: Between two readings, and so long every machine is watched. Seconds.
EVERY_S, LONG_S = 5, 600


def window(number: int = 1, idle_s: float = 0.0, **more: object) -> CommunicatorWindow:
    made = CommunicatorWindow(
        (number + 1) * 0x9E3779B97F4A7C15 % 2**64, f"tensor-parallel-{number}", 8, RANKS, 12.5, 812_345, 812_345, RANKS,
        idle_s,
    )  # fmt: skip
    return replace(made, **more)  # type: ignore[arg-type]


def taken(reports: CommunicatorReports, windows: Windows, now: float) -> pb.CommunicatorReport | None:
    """What the agent tells of these, if it tells anything."""
    return reports.take(windows, OWNERS, now) if reports.due(windows, now) else None


def told(report: pb.CommunicatorReport | None) -> tuple[int, int]:
    """How many communicators a report tells of, and how many are gone."""
    jobs: Sequence[pb.JobCommunicators] = report.jobs if report is not None else ()
    return sum(len(job.changed) for job in jobs), sum(len(job.gone) for job in jobs)


def test_each_is_told_once_and_then_when_it_changes() -> None:
    reports = CommunicatorReports()
    assert told(taken(reports, {"k": [window()]}, 0.0)) == (1, 0)
    moved = window(lowest=812_999, highest=813_000, rate=20.0, age_s=0.2, operation="AllReduce", behind=RANKS[:1])
    assert taken(reports, {"k": [moved]}, 5.0) is None, "it moves on"
    rests = window(idle_s=15.0)
    for change in (
        rests,
        replace(rests, age_s=30.0, operation="AllReduce"),
        replace(rests, age_s=30.0, operation="AllGather"),
        replace(rests, age_s=30.0, operation="AllGather", lowest=3),
        replace(rests, age_s=30.0, operation="AllGather", lowest=3, behind=RANKS[2:4]),
        moved,
        replace(moved, rate=1.0),
        replace(moved, rate=1.0, ranks=RANKS[:7]),
    ):
        assert told(taken(reports, {"k": [change]}, 10.0)) == (1, 0), change
        assert taken(reports, {"k": [change]}, 10.0) is None


def test_what_is_gone_is_told_and_a_job_that_ended() -> None:
    reports = CommunicatorReports()
    taken(reports, {"k": [window(1), window(2)]}, 0.0)
    assert told(taken(reports, {"k": [window(1)]}, 1.0)) == (0, 1)
    assert told(taken(reports, {}, 2.0)) == (0, 1)
    assert taken(reports, {}, 3.0) is None
    assert told(taken(reports, {"k": [window(1)]}, 4.0)) == (1, 0)


def test_another_session_is_told_everything() -> None:
    reports = CommunicatorReports()
    taken(reports, {"k": [window(1), window(2)]}, 0.0)
    reports.begin()
    assert told(taken(reports, {"k": [window(1), window(2)]}, 1.0)) == (2, 0)


def test_each_is_told_again_after_a_while_and_together() -> None:
    reports = CommunicatorReports()
    taken(reports, {"k": [window(1)]}, 0.0)
    taken(reports, {"k": [window(1), window(2)]}, REFRESH_S / 2)
    assert taken(reports, {"k": [window(1), window(2)]}, REFRESH_S - 1.0) is None
    assert told(taken(reports, {"k": [window(1), window(2)]}, REFRESH_S)) == (2, 0)


def test_of_too_many_those_that_wait_are_told_and_the_others_counted() -> None:
    reports, hung = CommunicatorReports(), window(9999, idle_s=60.0, age_s=60.0, rate=0.0)
    many = [*(window(number) for number in range(MOST_COMMUNICATORS + 9)), hung]
    found = set()
    for at in range(0, 600, EVERY_S):
        if (report := taken(reports, {"k": many}, float(at))) is not None:
            assert report.jobs[0].left_out == 10
            found |= {one.communicator for one in report.jobs[0].changed}
    assert len(found) == MOST_COMMUNICATORS and hung.communicator in found


@pytest.mark.parametrize("distinct", [64, MOST_COMMUNICATORS], ids=["64 of all ranks", "64 of each rank"])
@pytest.mark.parametrize("step_s", [0.5, 25.0, 40.0, float("inf")], ids=["trains", "long steps", "longer", "at rest"])
def test_a_machine_of_eight_ranks_sends_less_than_a_kilobyte_a_second(distinct: int, step_s: float) -> None:
    reports, sent = CommunicatorReports(), [0]
    ranks = RANKS if distinct == 64 else RANKS[:1]
    for at in range(0, LONG_S, EVERY_S):
        steps, into_s = (0, float(at)) if step_s == float("inf") else (int(at / step_s), at % step_s)
        windows = [
            window(number, into_s, lowest=steps, highest=steps, ranks=ranks, behind=ranks, rate=steps % 2 + 4.0)
            for number in range(distinct)
        ]
        report = taken(reports, {"k": windows}, float(at))
        sent.append(report.ByteSize() if report is not None else 0)
    print(f"\n{sum(sent) / LONG_S:.0f} bytes a second, {max(sent)} in the largest message")
    assert sum(sent) <= BYTES_S * LONG_S + BURST * (distinct > 64) and max(sent) <= BURST + 256


def test_a_hang_after_minutes_of_training_is_told_at_once() -> None:
    reports = CommunicatorReports()
    for at in range(0, LONG_S, EVERY_S):
        taken(reports, {"k": [window(number) for number in range(64)]}, float(at))
    hung = [window(number, idle_s=12.0, age_s=12.0, operation="AllReduce") for number in range(64)]
    assert told(taken(reports, {"k": hung}, LONG_S + 1.0)) == (64, 0)


async def test_the_line_tells_of_them_at_once_and_again_to_another_server(
    tools: Tools, monkeypatch: pytest.MonkeyPatch
) -> None:
    tick = StallMonitor.tick
    shown = {"now": window()}

    def watched(monitor: StallMonitor, *members: Any) -> Any:
        signs = tick(monitor, *members)
        monitor.communicators = dict.fromkeys(monitor._jobs, (shown["now"],))
        return signs

    monkeypatch.setattr(StallMonitor, "tick", watched)
    still = replace(tools, stop=threading.Event(), settings=replace(tools.settings, profiler_ring=0, recorder_pipe=0))
    async with Server() as server, linked(server, still):
        line = await server.line()
        with running(WAIT, environ=ENVIRON):
            (job,) = (await line.hear("communicator_report")).jobs
            assert (job.job, [one.communicator for one in job.changed]) == ("linked", [window().communicator])
            shown["now"] = window(idle_s=20.0)
            (job,) = (await line.hear("communicator_report")).jobs
            assert [one.idle_s for one in job.changed] == [20.0]
            line.outbox.put_nowait(None)
            line = await server.line()
            (job,) = (await line.hear("communicator_report")).jobs
            assert len(job.changed) == 1
