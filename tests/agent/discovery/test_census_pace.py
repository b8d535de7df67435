"""What one pass over the process table reads: everybody who is new or a trainer, and of all others a part."""

from pathlib import Path

import pytest

from hangdog_agent.discovery import ray_train
from hangdog_agent.discovery import watch as watching
from hangdog_agent.discovery.discover import Process, RankProcesses, find
from hangdog_agent.discovery.process_table import TURNS, ProcessTable
from hangdog_agent.discovery.watch import Watch
from hangdog_agent.procfs import Proc, Stat

RANKED = {"RANK": "3", "WORLD_SIZE": "8"}
#: Clock ticks after boot: long ago.
OLD = 1


class Watched(Proc):
    """A drawn process table that notes whose line is read."""

    def __init__(self, root: Path) -> None:
        super().__init__(root)
        self.read: list[int] = []

    def stat(self, pid: int, tid: int | None = None) -> Stat | None:
        if tid is None:
            self.read.append(pid)
        return super().stat(pid, tid)

    def draw(
        self,
        pid: int,
        parent: int,
        comm: str,
        environ: dict[str, str] | None = None,
        started: int = OLD,
        flags: int = 0,
    ) -> None:
        folder = self.root / str(pid)
        (folder / "task").mkdir(parents=True, exist_ok=True)
        fields = ["S", str(parent), *["0"] * 4, str(flags), *["0"] * 12, str(started), *["0"] * 30]
        (folder / "stat").write_text(f"{pid} ({comm}) {' '.join(fields)}\n")
        (folder / "environ").write_text("".join(f"{name}={value}\0" for name, value in (environ or {}).items()))
        (folder / "cmdline").write_text(f"{comm}\0")

    def erase(self, pid: int) -> None:
        for path in (self.root / str(pid)).iterdir():
            path.rmdir() if path.is_dir() else path.unlink()
        (self.root / str(pid)).rmdir()


@pytest.fixture
def proc(tmp_path: Path) -> Watched:
    """A shell, the trainer it started with its worker, and a hundred strangers."""
    proc = Watched(tmp_path)
    proc.draw(1, 0, "init")
    proc.draw(2, 1, "bash")
    proc.draw(3, 2, "python", RANKED)
    proc.draw(4, 3, "python", RANKED)
    for pid in range(100, 200):
        proc.draw(pid, 1, "kworker")
    return proc


def a_pass(census: ProcessTable, proc: Watched) -> set[int]:
    proc.read.clear()
    census.take()
    assert len(proc.read) == len(set(proc.read))
    return set(proc.read)


def test_what_has_settled_is_read_in_turn_and_a_trainer_always(proc: Watched) -> None:
    census = ProcessTable(proc)
    everybody = {1, 2, 3, 4, *range(100, 200)}
    assert a_pass(census, proc) == everybody
    passes = [a_pass(census, proc) for _ in range(TURNS)]
    assert all(3 in read for read in passes)
    assert max(map(len, passes)) <= 2 + len(everybody) // TURNS + 1
    for pid in everybody - {3}:
        assert sum(pid in read for read in passes) == 1, pid


def test_the_kernels_own_threads_are_read_once(proc: Watched) -> None:
    thread = 300
    proc.draw(thread, 1, "kworker/0:1", flags=69238880)  # as the kernel prints it
    census = ProcessTable(proc)
    assert thread in a_pass(census, proc)
    assert not any(thread in a_pass(census, proc) for _ in range(TURNS))


def test_who_is_young_is_read_in_every_pass(proc: Watched) -> None:
    proc.draw(300, 1, "bash", started=1 << 60)
    census = ProcessTable(proc)
    assert all(300 in a_pass(census, proc) for _ in range(TURNS))


def test_who_comes_and_goes_is_known_at_once(proc: Watched) -> None:
    census = ProcessTable(proc)
    assert [member.process.pid for member in find(census.take())] == [3, 4]
    proc.draw(5, 2, "python", RANKED | {"RANK": "4"})
    proc.erase(4)
    assert [member.process.pid for member in find(census.take())] == [3, 5]


def test_an_old_process_that_becomes_a_trainer_is_found_within_its_turn(proc: Watched) -> None:
    census = ProcessTable(proc)
    census.take()
    proc.draw(150, 1, "python", RANKED | {"RANK": "5"})
    found = [5 in {member.rank for member in find(census.take())} for _ in range(TURNS)]
    assert found[-1]
    assert found == sorted(found), "once found, it stays"


def test_a_pid_used_again_is_another_process(proc: Watched) -> None:
    census = ProcessTable(proc)
    census.take()
    proc.draw(3, 2, "python", RANKED | {"RANK": "7"}, started=2)
    assert {member.rank for member in find(census.take())} == {7}


def test_strangers_are_left_out_and_ancestors_are_not(proc: Watched) -> None:
    census = ProcessTable(proc)
    for _ in range(2):
        assert {process.pid for process in census.take()} == {1, 2, 3, 4}


def test_ranks_are_sought_anew_only_where_something_has_changed(proc: Watched, monkeypatch: pytest.MonkeyPatch) -> None:
    sought: list[int] = []

    def counted(rows: tuple[Process, ...], *more: object) -> tuple[RankProcesses, ...]:
        sought.append(len(rows))
        return find(rows)

    monkeypatch.setattr(watching, "find", counted)
    watch = Watch(ProcessTable(proc), None, (), forget_s=60.0)
    passes = [{member.rank for member in watch.see()} for _ in range(2 * TURNS)]
    assert passes == [{3}] * len(passes)
    assert len(sought) == 1
    proc.draw(300, 1, "bash", started=1 << 60)
    watch.see()
    assert len(sought) == 1, "a stranger changes nothing"
    proc.draw(5, 2, "python", RANKED | {"RANK": "4"})
    assert {member.rank for member in watch.see()} == {3, 4}
    folder = proc.root / "5"
    (folder / "stat").write_text((folder / "stat").read_text().replace(" S ", " Z "))
    watch.see()
    assert len(sought) == 3, "it has ended"


def test_the_worker_of_an_old_process_that_becomes_a_trainer_is_found_with_it(proc: Watched) -> None:
    proc.draw(150, 1, "bash")
    proc.draw(151, 150, "python")
    census = ProcessTable(proc)
    for _ in range(2):
        assert not {150, 151} & {process.pid for process in census.take()}
    proc.draw(150, 1, "python", RANKED | {"RANK": "5"})
    for _ in range(TURNS):
        census.take()
    assert {150, 151} <= {member.process.pid for member in find(census.take())}


def test_a_young_worker_of_ray_is_asked_again_until_its_log_tells_all(
    proc: Watched, monkeypatch: pytest.MonkeyPatch
) -> None:
    asked: list[int] = []

    def silent(of: Proc, pid: int, read: object) -> tuple[None, bool]:
        asked.append(pid)
        return None, False

    monkeypatch.setattr(ray_train, "find", silent)
    proc.draw(300, 1, ray_train.WORKER, started=1 << 60)
    census = ProcessTable(proc)
    for _ in range(3):
        census.take()
    assert asked == [300] * 3
