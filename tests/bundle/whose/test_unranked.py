"""Stacks of which nothing tells the ranks: a paste, dumps named by process ids, one text for each machine."""

from collections.abc import Callable, Sequence
from pathlib import Path

import pytest

import hangdog
from hangdog.evidence.open_bundle import open_bundle
from hangdog_models.errors import UnreadableBundle
from hangdog_models.snapshot import Snapshot
from hangdog_models.stack import Reason
from hangdog_models.views.answer_text import answer
from support.refused import refused

Fill = Callable[[dict[str, bytes]], Path]

READS = ("read_shard (data.py:7)", "main (train.py:30)", "<module> (train.py:40)")
REDUCES = ("all_reduce (torch/distributed/distributed_c10d.py:2810)", "main (train.py:31)", "<module> (train.py:40)")
LAUNCHES = ("poll (torch/distributed/elastic/multiprocessing/api.py:7)", "main (torch/distributed/run.py:9)")
RECORDED = (REDUCES[0], "wrapper (torch/distributed/elastic/multiprocessing/errors/__init__.py:362)", *REDUCES[1:])
SERVES = ("_recv (multiprocessing/connection.py:395)", "launch_server (server.py:4)")


def dump(pid: int, frames: Sequence[str], command: str = "python train.py", state: str = "idle") -> str:
    inside = "".join(f"    {frame}\n" for frame in frames)
    return f'Process {pid}: {command}\nPython v3.11.9 (/usr/bin/python3)\n\nThread {pid} ({state}): "MainThread"\n{inside}\n'


def text(*dumps: str) -> bytes:
    return "".join(dumps).encode()


def pids(snapshot: Snapshot) -> dict[int, int | None]:
    return {trace.rank: trace.pid for trace in snapshot.rounds[0].traces}


def test_a_paste_of_one_process_is_shown(fill: Fill) -> None:
    verdict = hangdog.triage(fill({"paste.txt": text(dump(41, REDUCES))}))
    assert [cluster.ranks for cluster in verdict.clusters] == [(0,)]
    (note,) = verdict.evidence.notes
    assert note.endswith("0 is process 41")
    assert not verdict.evict.machines


def test_a_file_named_as_people_like_is_shown_alone_too(fill: Fill) -> None:
    verdict = hangdog.triage(fill({"hang.txt": text(dump(41, REDUCES))}) / "hang.txt")
    assert [cluster.ranks for cluster in verdict.clusters] == [(0,)]


def test_dumps_named_by_process_ids_tell_who_holds_the_job_up(fill: Fill) -> None:
    files = {f"pyspy-{pid}.txt": text(dump(pid, READS if pid == 903 else REDUCES)) for pid in (901, 902, 903, 904)}
    looks = {f"round-{look}/{name}": data for look in (0, 1) for name, data in files.items()}
    root = fill(looks)
    snapshot, _ = open_bundle(root)
    assert pids(snapshot) == {0: 901, 1: 902, 2: 903, 3: 904}
    assert [len(look.traces) for look in snapshot.rounds] == [4, 4]
    assert hangdog.triage(root).suspects[0].ranks == (2,)


def test_launchers_and_other_programs_get_no_number(fill: Fill) -> None:
    """They wait by nature, and nobody waits for them."""
    trainers = [dump(pid, REDUCES) for pid in (11, 12, 13)]
    root = fill({"all.txt": text(dump(5, LAUNCHES), dump(6, SERVES, "python -m server --tp 3"), *trainers)})
    snapshot, _ = open_bundle(root)
    assert pids(snapshot) == {0: 11, 1: 12, 2: 13}
    assert "not numbered: 1 process" in snapshot.account.notes[-1]


def test_a_rank_whose_errors_torch_records_is_a_rank_and_a_launcher_is_known_by_its_command(fill: Fill) -> None:
    dumps = [dump(pid, RECORDED) for pid in (11, 12)]
    starters = [dump(pid, SERVES, "/usr/bin/python3 -m torch.distributed.run train.py") for pid in (5, 6, 7)]
    snapshot, _ = open_bundle(fill({"all.txt": text(*starters, *dumps)}))
    assert pids(snapshot) == {0: 11, 1: 12}


def test_of_as_many_processes_of_two_programs_those_train_that_use_a_library_for_it(fill: Fill) -> None:
    logger = dump(6, ("wait (threading.py:7)", "<module> (logger.py:4)"), "python logger.py")
    snapshot, _ = open_bundle(fill({"all.txt": text(logger, dump(11, REDUCES))}))
    assert pids(snapshot) == {0: 11}


@pytest.mark.parametrize("title", ["sglang::scheduler_TP{}", "VLLM::Worker_TP{}_EP{}"])
def test_an_inference_server_says_the_place_of_a_worker(fill: Fill, title: str) -> None:
    dumps = [dump(90 - place, REDUCES, title.format(place, place)) for place in (3, 1, 2)]
    snapshot, _ = open_bundle(fill({"all.txt": text(*dumps)}))
    assert pids(snapshot) == {1: 89, 2: 88, 3: 87}


def test_workers_of_pipelines_come_in_the_order_of_their_places(fill: Fill) -> None:
    dumps = [dump(90 - at, REDUCES, f"sglang::scheduler_PP{at // 2}_TP{at % 2}") for at in range(4)]
    snapshot, _ = open_bundle(fill({"all.txt": text(*dumps)}))
    assert pids(snapshot) == {0: 90, 1: 89, 2: 88, 3: 87}


def test_a_text_with_the_same_processes_twice_has_two_looks_at_them(fill: Fill) -> None:
    look = [dump(pid, READS if pid == 903 else REDUCES) for pid in (901, 902, 903, 904)]
    root = fill({"all.txt": text(*look, *look)})
    snapshot, _ = open_bundle(root)
    assert [len(look.traces) for look in snapshot.rounds] == [4, 4]
    assert "unchanged in 2 looks" in hangdog.triage(root).because[0].text
    snapshot, _ = open_bundle(fill({"all.txt": text(*look, look[0])}))
    assert [len(look.traces) for look in snapshot.rounds] == [4]


def one_text_a_machine(lost: str = "") -> dict[str, bytes]:
    """What `srun --output=trace-%N.out` leaves; the first process of `lost` could not be read."""
    return {
        f"trace-gpu-{machine:02}.out": text(
            *(
                dump(pid, REDUCES)
                for pid in range(100 + machine, 500, 100)
                if (f"gpu-{machine:02}", pid // 100) != (lost, 1)
            )
        )
        for machine in range(5)
    }


def test_a_text_for_each_machine_tells_the_machines(fill: Fill) -> None:
    snapshot, layout = open_bundle(fill(one_text_a_machine()))
    assert layout.machines == {f"gpu-{machine:02}": tuple(range(4 * machine, 4 * machine + 4)) for machine in range(5)}
    assert not [trace for trace in snapshot.rounds[0].traces if trace.missing]


def test_the_machine_that_lacks_a_stack_is_the_one_to_look_at(fill: Fill) -> None:
    root = fill(one_text_a_machine(lost="gpu-03"))
    snapshot, _ = open_bundle(root)
    assert [(trace.rank, trace.missing.reason) for trace in snapshot.rounds[0].traces if trace.missing] == [
        (15, Reason.NO_EVIDENCE)
    ]
    verdict = hangdog.triage(root)
    assert verdict.suspects[0].machines == ("gpu-03",)
    assert not verdict.evict.machines


def test_machines_that_are_not_alike_lack_nothing(fill: Fill) -> None:
    files = one_text_a_machine(lost="gpu-03") | {"trace-gpu-04.out": text(dump(1, REDUCES), dump(2, REDUCES))}
    files["trace-gpu-05.out"] = text(*(dump(pid, REDUCES) for pid in range(600, 605)))
    snapshot, _ = open_bundle(fill(files))
    assert not [trace for trace in snapshot.rounds[0].traces if trace.missing]


def test_no_number_is_invented_beside_a_known_rank_or_a_known_shape(fill: Fill) -> None:
    snapshot, _ = open_bundle(fill({"rank3.txt": text(dump(41, REDUCES)), "other.txt": text(dump(42, REDUCES))}))
    assert pids(snapshot) == {3: 41}
    assert list(snapshot.account.unreadable) == ["other.txt"]


def test_a_declared_shape_takes_no_numbers(fill: Fill) -> None:
    root = fill({"job.toml": b"[job]\nworld_size = 8\n", "other.txt": text(dump(42, REDUCES))})
    with refused("no-evidence", UnreadableBundle, "other.txt"):
        open_bundle(root)


def test_a_log_in_which_somebody_ran_py_spy_tells_both(fill: Fill) -> None:
    """SGLang's watchdog dumps its workers' stacks into the log as it gives up."""
    lines = "".join(f"[2026-11-01 10:00:00] step {step}\n" for step in range(3000))
    waits = "[rank1]:[E1101 10:00:00.0 ProcessGroupNCCL.cpp:632] [Rank 1] Watchdog caught collective operation timeout: WorkNCCL(SeqNum=7, OpType=ALLREDUCE, NumelIn=1, NumelOut=1, Timeout(ms)=600000) ran for 600010 milliseconds before timing out.\n"
    for log in (waits, lines + waits):
        verdict = hangdog.triage(fill({"job.log": (log + dump(41, REDUCES)).encode()}))
        assert any("all_reduce 7" in line.text for line in verdict.because)
    snapshot, _ = open_bundle(fill({"job.log": (lines + dump(41, REDUCES)).encode()}))
    assert pids(snapshot) == {0: 41}


@pytest.mark.parametrize("prefix", ["[1784] [rank0]:", "[1,0]<stderr>:", "[0]<stderr>:"])
def test_a_log_whose_first_line_begins_with_a_bracketed_number_is_no_json(fill: Fill, prefix: str) -> None:
    waits = "[E1101 10:00:00.0 ProcessGroupNCCL.cpp:632] [Rank 0] Watchdog caught collective operation timeout: WorkNCCL(SeqNum=7, OpType=ALLREDUCE, NumelIn=1, NumelOut=1, Timeout(ms)=600000) ran for 600010 milliseconds before timing out.\n"
    verdict = hangdog.triage(fill({"job.log": f"{prefix}{waits}".encode()}))
    assert any("all_reduce 7" in line.text for line in verdict.because)


def test_what_docker_compose_shows_is_read_one_container_after_another(fill: Fill) -> None:
    dumps = {"trainer-1": dump(41, REDUCES), "trainer-2": dump(42, READS)}
    lines = {name: body.splitlines() for name, body in dumps.items()}
    mixed = [f"{name}  | {lines[name][at]}" for at in range(7) for name in lines]
    snapshot, _ = open_bundle(fill({"compose.log": "\n".join(mixed).encode()}))
    shown = {trace.pid: trace.threads[0].frames[-1].function for trace in snapshot.rounds[0].traces}
    assert shown == {41: "all_reduce", 42: "read_shard"}


def test_the_first_line_says_where_the_only_process_stands(fill: Fill) -> None:
    verdict = hangdog.triage(fill({"paste.txt": text(dump(41, REDUCES))}))
    assert "only rank 0 " in answer(verdict) and "(collective" in answer(verdict)
