"""Tables of processes in a bundle: their ids, commands and order tell which ranks they are of."""

from collections.abc import Callable
from pathlib import Path

import pytest

import hangdog
from hangdog.evidence.open_bundle import open_bundle
from hangdog_models.errors import UnreadableBundle
from hangdog_models.snapshot import Snapshot
from support.refused import refused

Fill = Callable[[dict[str, bytes]], Path]

HEADER = "    PID    PPID STAT WCHAN                            CMD\n"
REDUCES = (
    "    all_reduce (torch/distributed/distributed_c10d.py:2810)\n    main (train.py:31)\n    <module> (train.py:40)\n"
)
READS = "    read_shard (data.py:7)\n    main (train.py:30)\n    <module> (train.py:40)\n"


def row(pid: int, state: str, wchan: str = "-", command: str = "python -u train.py", parent: int = 100) -> str:
    return f"{pid:7} {parent:7} {state:4} {wchan:32} {command}\n"


def dump(pid: int, frames: str) -> bytes:
    return f'Process {pid}: python -u train.py\nPython v3.11.9 (/usr/bin/python3)\n\nThread {pid} (idle): "MainThread"\n{frames}\n'.encode()


def states(snapshot: Snapshot) -> dict[int, tuple[str, str, str]]:
    return {
        trace.rank: (trace.state.state, trace.state.wchan, trace.state.syscall)
        for trace in snapshot.rounds[0].traces
        if trace.state is not None
    }


def test_a_table_tells_the_states_of_stacks_by_their_process_ids(fill: Fill) -> None:
    table = (
        HEADER
        + row(41, "Sl", "futex_wait_queue")
        + row(40, "Dl", "nfs_wait_bit_killable")
        + row(7, "R", command="bash")
    )
    files = {"rank0.txt": dump(41, REDUCES), "rank1.txt": dump(40, READS), "ps.txt": table.encode()}
    root = fill(files)
    snapshot, _ = open_bundle(root)
    assert states(snapshot) == {0: ("S", "futex_wait_queue", ""), 1: ("D", "nfs_wait_bit_killable", "")}
    assert {trace.pid for trace in snapshot.rounds[0].traces} == {40, 41}
    verdict = hangdog.triage(root)
    assert any("storage" in str(why) for why in verdict.because)


def test_two_tools_say_more_of_one_process_than_each(fill: Fill) -> None:
    root = fill({
        "rank0.txt": dump(41, REDUCES),
        "a-ps.txt": (HEADER + row(41, "Sl")).encode(),
        "b-strace.txt": b"strace: Process 41 attached\nrecvfrom(7, ",
        "c.txt": b"/proc/41/wchan:sk_wait_data\n",
    })  # fmt: skip
    assert states(open_bundle(root)[0]) == {0: ("S", "sk_wait_data", "recvfrom")}


def test_a_table_beside_the_stacks_in_one_text_counts(fill: Fill) -> None:
    text = (HEADER + row(41, "T")).encode() + b"\n" + dump(41, READS)
    assert states(open_bundle(fill({"rank3.txt": text}))[0]) == {3: ("T", "", "")}


def test_the_number_on_the_machine_in_a_command_is_the_rank_where_the_layout_tells_it(fill: Fill) -> None:
    toml = b"[topology]\ndp = 4\ngpus_per_node = 2\n"
    table = (
        HEADER + row(50, "R", command="python t.py --local_rank=0") + row(51, "Z", command="python t.py --local_rank=1")
    )
    root = fill({"job.toml": toml, "machine-node-1/ps.txt": table.encode()})
    assert states(open_bundle(root)[0]) == {2: ("R", "", ""), 3: ("Z", "", "")}


def test_the_rank_in_an_environment_counts_and_the_launcher_has_none(fill: Fill) -> None:
    table = (
        HEADER
        + row(49, "S", command="python /usr/bin/torchrun train.py RANK=0")
        + row(50, "T", command="python t.py RANK=5 X=1")
    )
    assert states(open_bundle(fill({"ps.txt": table.encode()}))[0]) == {5: ("T", "", "")}


def test_ranks_alone_are_numbered_without_launchers_loaders_and_helpers(fill: Fill) -> None:
    table = (
        HEADER
        + row(100, "Sl", command="/usr/bin/python /usr/local/bin/torchrun train.py", parent=1)
        + row(201, "Rl")
        + row(202, "Rl")
        + row(203, "Z", command="[pt_main_thread] <defunct>")
        + row(204, "Rl")
        + row(301, "Sl", "pipe_read", parent=201)
        + row(302, "Sl", "pipe_read", parent=202)
        + row(303, "S", command="python -c from multiprocessing.resource_tracker import main;main(7)", parent=201)
        + row(900, "S", command="python monitor.py", parent=1)
    )
    root = fill({"ps.txt": table.encode()})
    assert states(open_bundle(root)[0]) == {0: ("R", "", ""), 1: ("R", "", ""), 2: ("Z", "", ""), 3: ("R", "", "")}
    verdict = hangdog.triage(root)
    assert verdict.suspects[0].ranks == (2,) and not verdict.evict.machines
    assert "0 is process 201" in verdict.evidence.notes[0]


@pytest.mark.parametrize(
    "commands",
    [
        ["VLLM::Worker_TP0", "VLLM::Worker_TP1"],
        [
            "ray::WorkerDict.actor_rollout_update",
            "ray::WorkerDict.actor_rollout_update",
            "ray::IDLE",
            "ray::IDLE",
            "ray::IDLE",
        ],
    ],
)
def test_workers_of_servers_and_of_ray_are_known_by_what_they_call_themselves(fill: Fill, commands: list[str]) -> None:
    table = HEADER + "".join(row(60 + at, "S", command=command) for at, command in enumerate(commands))
    assert sorted(states(open_bundle(fill({"ps.txt": table.encode()}))[0])) == [0, 1]


def test_nobody_is_numbered_where_ranks_and_workers_look_alike(fill: Fill) -> None:
    rows = "".join(f"u {pid} 0.0 0.0 1 1 ? Sl 10:00 0:01 python train.py\n" for pid in range(8))
    root = fill({"ps.txt": b"USER PID %CPU %MEM VSZ RSS TTY STAT START TIME COMMAND\n" + rows.encode()})
    with refused("no-evidence", UnreadableBundle, "ps.txt", "PPID"):
        open_bundle(root)


def test_processes_that_somebody_asked_for_alone_are_numbered(fill: Fill) -> None:
    root = fill({"a.txt": b"strace: Process 41 attached\nread(3, ", "b.txt": b"/proc/43/wchan:pipe_read\n"})
    assert states(open_bundle(root)[0]) == {0: ("", "", "read"), 1: ("", "pipe_read", "")}


def test_a_file_called_after_a_rank_is_of_that_rank(fill: Fill) -> None:
    root = fill(
        {"rank3/wchan.txt": b"/proc/41/wchan:nfs_wait\n", "rank4.strace.txt": b"strace: Process 42 attached\nread(3, "}
    )
    assert states(open_bundle(root)[0]) == {3: ("", "nfs_wait", ""), 4: ("", "", "read")}


def test_a_table_of_another_machine_says_nothing_of_an_equal_id(fill: Fill) -> None:
    table = (HEADER + row(41, "T")).encode()
    root = fill(
        {"machine-a/rank0.txt": dump(41, READS), "machine-b/rank1.txt": dump(42, READS), "machine-b/ps.txt": table}
    )
    assert states(open_bundle(root)[0]) == {}
