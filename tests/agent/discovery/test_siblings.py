"""Ranks that carry no rank: real processes that meet at a port, started as mp.spawn and JAX's users start them.

The fast ones are fakes: they open the sockets and name the threads as torch 2.13 and JAX 0.10 do, seen in November 2026. The slow
ones are torch itself.
"""

import contextlib
import importlib.util
import os
import signal
import socket
import subprocess
import sys
import time
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path

import pytest

from hangdog_agent.discovery.discover import ProcessRole, RankProcesses, find
from hangdog_agent.discovery.process_table import ProcessTable
from hangdog_agent.procfs import Proc
from support.fakes.targets import proc, until

#: A fake rank: the first one listens, all connect to it, and their threads have a framework's names.
MEET = """
import ctypes, os, socket, sys, threading, time
def named(name, work=lambda: time.sleep(600)):
    def run():
        ctypes.CDLL(None).prctl(15, name.encode(), 0, 0, 0)
        work()
    threading.Thread(target=run, daemon=True).start()
def meet(rank, port, framework="torch"):
    if rank == 0:
        server = socket.create_server(("127.0.0.1", port))
        kept = []
        named("pt_tcpstore_uv" if framework == "torch" else "tf_XLAEigen", lambda: [kept.append(server.accept()) for _ in range(99)])
    else:
        named("pt_gloo_runloop" if framework == "torch" else "tf_XLAEigen")
    for _ in range(600):
        try:
            line = socket.create_connection(("127.0.0.1", port))
            break
        except OSError:
            time.sleep(0.05)
    if os.environ.get("LOADERS") and not os.fork():
        time.sleep(600)
    open(f"met-{rank}", "w").write(str(os.getpid()))
    time.sleep(600)
"""
SPAWN = f"""{MEET}
def helper():
    time.sleep(600)
if __name__ == "__main__":
    import multiprocessing as mp
    context, port = mp.get_context(sys.argv[1]), int(sys.argv[2])
    started = [context.Process(target=meet, args=(rank, port)) for rank in range(3)]
    if os.environ.get("HELPER"):
        started.append(context.Process(target=helper))
    for one in started:
        one.start()
    started[0].join()
"""
EACH = f"{MEET}\nmeet(int(sys.argv[2]), int(sys.argv[1]), 'jax')\n"
PATIENCE_S = 30.0


def port() -> int:
    with socket.create_server(("127.0.0.1", 0)) as free:
        return int(free.getsockname()[1])


@contextlib.contextmanager
def started(folder: Path, command: Sequence[str], *, ranks: int = 3, **environ: str) -> Iterator[dict[int, int]]:
    """Runs it until all ranks have met: their pids, by the rank each knows."""
    strange = ("SLURM_", "PMI", "OMPI_", "RANK", "WORLD_SIZE", "LOCAL_RANK", "MASTER_")
    clean = {name: value for name, value in os.environ.items() if not name.startswith(strange)}
    process = subprocess.Popen(
        command, cwd=folder, env=clean | {"TEST_OF": os.fspath(folder)} | environ, start_new_session=True,
        stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL,
    )  # fmt: skip
    try:
        met = [folder / f"met-{rank}" for rank in range(ranks)]
        until(lambda: all(path.exists() and path.read_text() for path in met), PATIENCE_S)
        time.sleep(0.2)  # what is not accepted yet has no owner
        yield {rank: int(path.read_text()) for rank, path in enumerate(met)}
    finally:
        with contextlib.suppress(ProcessLookupError):
            os.killpg(process.pid, signal.SIGKILL)
        process.wait()


def members(folder: Path, looks: int = 2, within: Proc = proc) -> list[RankProcesses]:
    """Whom discovery finds of those that a test started."""
    table = ProcessTable(within, frozenset({"TEST_OF"}))
    found: tuple[RankProcesses, ...] = ()
    for _ in range(looks):
        found = find(table.take(), ("TEST_OF", os.fspath(folder)))
    return list(found)


def trainers(found: Sequence[RankProcesses]) -> dict[int, int]:
    return {member.rank: member.process.pid for member in found if member.kind is ProcessRole.TRAINER}


@pytest.mark.parametrize("way", ["spawn", "fork"])
def test_ranks_that_one_parent_started_are_numbered_in_their_order(tmp_path: Path, way: str) -> None:
    (tmp_path / "train.py").write_text(SPAWN)
    at = port()
    with started(tmp_path, [sys.executable, "train.py", way, str(at)], HELPER="1", LOADERS="1") as ranks:
        found = members(tmp_path)
        assert trainers(found) == ranks
        assert {(member.job, member.world_size) for member in found} == {(f"port-{at}", 3)}
        said = {int(member.rank): (member.presumed, member.source) for member in found}
        assert not said[0][0] and "listens" in said[0][1]
        assert said[1] == said[2] and said[1][0] and "order" in said[1][1]
        # what a rank forked has inherited its connections, and is a child of it
        assert sorted(member.rank for member in found if member.kind is ProcessRole.CHILD) == [0, 1, 2]


def test_a_job_that_was_named_keeps_its_name(tmp_path: Path) -> None:
    (tmp_path / "train.py").write_text(SPAWN)
    with started(tmp_path, [sys.executable, "train.py", "spawn", str(port())], HANGDOG_JOB="llama"):
        assert {member.job for member in members(tmp_path)} == {"llama"}


def test_the_task_number_of_the_program_above_counts_nodes(tmp_path: Path) -> None:
    """`srun --ntasks-per-node=1 python train.py`, which spawns the ranks of its node."""
    (tmp_path / "train.py").write_text(SPAWN)
    node = {"SLURM_PROCID": "0", "SLURM_NTASKS": "4", "SLURM_STEP_ID": "0", "SLURM_JOB_ID": "77"}
    with started(tmp_path, [sys.executable, "train.py", "spawn", str(port())], ranks=3, **node) as ranks:
        found = members(tmp_path)
        assert trainers(found) == ranks
        assert {(member.job, member.world_size) for member in found} == {("77", 12)}


def test_ranks_whose_command_lines_count_them_are_found_in_any_order(tmp_path: Path) -> None:
    (tmp_path / "train.py").write_text(EACH)
    at = port()
    each = "; ".join(f"{sys.executable} train.py {at} {rank} 3 &" for rank in (2, 0, 1)).replace("&;", "&")
    with started(tmp_path, ["bash", "-c", f"{each} wait"]) as ranks:
        found = members(tmp_path)
        assert trainers(found) == ranks
        (source,) = {member.source for member in found}
        assert "number" in source and "command lines" in source


def test_a_job_of_several_machines_is_not_numbered_by_one(tmp_path: Path) -> None:
    """Somebody else is connected, too: this may be the first machine of many, and nobody says so."""
    (tmp_path / "train.py").write_text(SPAWN)
    at = port()
    with started(tmp_path, [sys.executable, "train.py", "spawn", str(at)]):
        with socket.create_connection(("127.0.0.1", at)):
            until(lambda: not members(tmp_path), PATIENCE_S)  # the rank has to accept the connection first
        until(lambda: bool(members(tmp_path)), PATIENCE_S)


@pytest.mark.parametrize(
    "program",
    [
        MEET.replace("pt_tcpstore_uv", "server").replace("pt_gloo_runloop", "client"),  # a service and its clients
        MEET.replace('("127.0.0.1", port))\n            break', '("127.0.0.1", port)) if rank else None\n            break'),
    ],
    ids=["no framework's thread", "a server that is no client of its own"],
)  # fmt: skip
def test_programs_that_talk_to_each_other_are_no_ranks(tmp_path: Path, program: str) -> None:
    (tmp_path / "train.py").write_text(SPAWN.replace(MEET, program))
    with started(tmp_path, [sys.executable, "train.py", "spawn", str(port())]):
        assert members(tmp_path) == []


def row(number: int, here: str, there: str, state: str, inode: int) -> str:
    """A row of `net/tcp`, as the kernel writes it."""
    return f"{number:4}: {here} {there} {state} 00000000:00000000 00:00000000 00000000  1000        0 {inode} 1 0 20 4 30 10 -1\n"


HEAD = "  sl  local_address rem_address   st tx_queue rx_queue tr tm->when retrnsmt   uid  timeout inode\n"
#: 10.0.0.2 connected to port 29500 of 10.0.0.1.
SECOND = HEAD + "".join(row(at, f"0200000A:900{at}", "0100000A:733C", "01", 50 + at) for at in range(2))


def drawn(root: Path, parent: Sequence[str], table: str) -> Proc:
    """A program and two processes that it spawned, with a socket and a GPU each, on a machine of these connections."""
    spawned = ["python", "-c", "from multiprocessing.spawn import spawn_main", "--multiprocessing-fork"]
    for pid, above, line in ((10, 1, parent), (11, 10, spawned), (12, 10, spawned)):
        folder = root / str(pid)
        (folder / "task" / str(pid)).mkdir(parents=True)
        (folder / "fd").mkdir()
        (folder / "net").mkdir()
        fields = ["S", str(above), *["0"] * 17, str(pid), *["0"] * 30]
        (folder / "stat").write_text(f"{pid} (python) {' '.join(fields)}\n")
        (folder / "cmdline").write_text("".join(f"{word}\0" for word in line))
        (folder / "environ").write_text("")
        (folder / "net" / "tcp").write_text(table)
        if above == 10:
            (folder / "fd" / "3").symlink_to(f"socket:[{39 + pid}]")
            (folder / "fd" / "4").symlink_to(f"/dev/nvidia{pid - 11}")
    return Proc(root)


@pytest.mark.parametrize(
    ("options", "ranks", "world"),
    [
        (["--node-rank", "1", "--nnodes", "2"], [2, 3], 4),
        (["--node_rank=3"], [6, 7], 0),
        (["--node-rank", "0", "--nnodes", "2"], [], 0),  # nobody listens here, so it is not
        (["--node-rank", "5", "--nnodes", "2"], [], 0),
        ([], [], 0),
    ],
)
def test_on_another_machine_the_ranks_are_those_of_its_node(
    tmp_path: Path, options: list[str], ranks: list[int], world: int
) -> None:
    found = find(ProcessTable(drawn(tmp_path, ["python", "train.py", *options], SECOND)).take())
    assert [member.rank for member in found] == ranks
    assert all(member.presumed and member.world_size == world and member.job == "port-29500" for member in found)


@pytest.mark.parametrize(
    "table", ["", HEAD, HEAD + "x y z\n" + row(0, "zz:1", "0100000A:733C", "01", 50), "\udcff" * 99]
)
def test_tables_that_make_no_sense_tell_nothing(tmp_path: Path, table: str) -> None:
    root = tmp_path / "proc"
    within = drawn(root, ["python", "train.py", "--node-rank", "1"], "")
    for pid in (11, 12):
        (root / str(pid) / "net" / "tcp").write_bytes(table.encode("utf-8", "surrogateescape"))
    assert find(ProcessTable(within).take()) == ()


class Counted(Proc):
    """Counts whose threads are looked at."""

    def __init__(self) -> None:
        super().__init__()
        self.asked: list[int] = []

    def tids(self, pid: int) -> tuple[int, ...]:
        self.asked.append(pid)
        return super().tids(pid)


def test_who_has_no_sibling_is_not_looked_into_and_others_seldom(tmp_path: Path) -> None:
    (tmp_path / "train.py").write_text(SPAWN.replace("pt_", "xx_"))
    with started(tmp_path, [sys.executable, "train.py", "spawn", str(port())]) as ranks:
        counted = Counted()
        table = ProcessTable(counted)
        table.take()
        counted.asked.clear()  # each process's threads are asked once, before its environment is read
        began = time.monotonic()
        while time.monotonic() - began < 2.0:
            table.take()
        assert len([pid for pid in counted.asked if pid in ranks.values()]) <= 1


@pytest.mark.slow  # it imports torch, which takes seconds
@pytest.mark.skipif(importlib.util.find_spec("torch") is None, reason="torch is not installed: make torch")
def test_the_ranks_of_the_real_spawn_with_their_loaders(tmp_path: Path) -> None:
    (tmp_path / "train.py").write_text(TORCH)
    environ: Mapping[str, str] = {"GLOO_SOCKET_IFNAME": "lo", "OMP_NUM_THREADS": "1"}
    with started(tmp_path, [sys.executable, "train.py", str(port())], ranks=2, **environ) as ranks:
        found: list[RankProcesses] = []

        def seen() -> bool:
            found[:] = members(tmp_path)
            return sum(member.kind is ProcessRole.DATALOADER for member in found) == 2

        until(seen, PATIENCE_S)
        assert trainers(found) == ranks
        assert {member.world_size for member in found} == {2}


TORCH = """
import os, sys, time
import torch.distributed as dist
import torch.multiprocessing as mp
from torch.utils.data import DataLoader
def work(rank):
    os.environ |= {"MASTER_ADDR": "127.0.0.1", "MASTER_PORT": sys.argv[1]}  # which nobody sees from outside
    dist.init_process_group("gloo", rank=rank, world_size=2)
    for _ in DataLoader(range(1 << 20), num_workers=1):
        open(f"met-{rank}", "w").write(str(os.getpid()))
        dist.barrier()
        time.sleep(0.05)
if __name__ == "__main__":
    mp.spawn(work, nprocs=2)
"""
