"""The shim alone, over stand-ins for torch's process groups and work handles: what it writes, and that it never harms a trainer."""

import contextlib
import fcntl
import gc
import os
import subprocess
import sys
import time
from collections.abc import Iterator
from importlib.util import find_spec
from pathlib import Path
from types import SimpleNamespace

import pytest

from hangdog.tracing.c10d_calls import CallHooks
from hangdog.tracing.group_tracer import GroupTracer
from hangdog.tracing.ring_file import create_ring
from hangdog_agent.capture import collective_progress
from hangdog_agent.capture import profiler_layout as layout
from hangdog_models.progress.collective_progress import CollectiveProgress, Phase
from support.cases.left_rings import KEPT, left_rings


class PlayedWork:
    """A work handle that is done when the test says so."""

    def __init__(self) -> None:
        self.done = False

    def wait(self) -> bool:
        self.done = True
        return True

    def is_completed(self) -> bool:
        return self.done


class PlayedTensor:
    dtype = "torch.float32"

    def numel(self) -> int:
        return 12


class PlayedGroup:
    """A process group of gloo; `hidden` collectives are called by C++ and pass no method."""

    def __init__(self, name: str, rank: int = 1, ranks: int = 4, backend: str = "gloo") -> None:
        self._device_types = ["cpu"]
        self.group_name, self.group_desc = name, f"about {name}"
        self._at, self._ranks, self._backend, self._count = rank, ranks, backend, 0
        self._set_group_desc(self.group_desc)

    def _set_group_desc(self, text: str) -> None:
        self.group_desc = text

    def _get_backend(self, _device: str) -> SimpleNamespace:
        return SimpleNamespace(name=lambda: self._backend)

    def _get_sequence_number_for_group(self) -> int:
        return self._count

    def hidden(self) -> None:
        self._count += 1

    def rank(self) -> int:
        return self._at

    def size(self) -> int:
        return self._ranks

    def allreduce(self, tensors: list[PlayedTensor], _options: object = None) -> PlayedWork:
        if not tensors:
            raise ValueError("no tensors")
        self._count += 1
        return PlayedWork()

    def barrier(self, opts: object = None) -> PlayedWork:
        self._count += 1
        return PlayedWork()

    def send(self, tensors: list[PlayedTensor], peer: int, tag: int) -> PlayedWork:
        return PlayedWork()

    def shutdown(self) -> None:
        pass


@pytest.fixture
def tracer(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[GroupTracer]:
    monkeypatch.setenv("HANGDOG_PROFILER_DIR", str(tmp_path / "rings"))
    hooks = CallHooks(PlayedGroup, PlayedWork)
    made = GroupTracer(hooks.remove)
    hooks.install(made)
    yield made
    hooks.remove()


def shown(folder: Path, pid: int = 0) -> tuple[CollectiveProgress, ...]:
    return collective_progress.read(pid or os.getpid(), time.monotonic_ns(), str(folder / "rings"))


TENSORS = [PlayedTensor()]


def test_what_a_trainer_calls_stands_in_the_ring(tracer: GroupTracer, tmp_path: Path) -> None:
    group, _small = PlayedGroup("0"), PlayedGroup("1", 0, 2)
    group.allreduce(TENSORS).wait()
    work = group.allreduce([PlayedTensor(), PlayedTensor()])
    message = group.send(TENSORS, 3, 0)
    group.barrier(opts=None).wait()
    world, pair = shown(tmp_path)
    assert (world.name, world.rank, world.ranks) == ("about 0", 1, 4)
    assert (pair.name, pair.rank, pair.ranks, pair.collectives) == ("about 1", 0, 2, 0)
    assert (world.collectives, world.point_to_points, world.launched, world.finished) == (3, 1, 4, 2)
    first, second = world.in_flight
    assert (first.call.function, first.call.datatype, first.call.count) == ("AllReduce", "float32", 24)
    assert (first.order, first.call.sequence, first.phase, first.call.algorithm) == (1, 1, Phase.RUNNING, "gloo")
    assert (second.call.function, second.call.peer, second.call.collective) == ("Send", 3, False)
    assert world.last is not None and world.last.function == "Barrier"
    work.done = True
    assert work.is_completed() and not message.is_completed()
    assert [one.call.function for one in shown(tmp_path)[0].in_flight] == ["Send"]
    assert not tracer.off


def test_a_handle_that_is_thrown_away_is_waited_for_no_more(tracer: GroupTracer, tmp_path: Path) -> None:
    group = PlayedGroup("0")
    group.allreduce(TENSORS)
    gc.collect()
    kept = group.allreduce(TENSORS)
    assert [one.order for one in shown(tmp_path)[0].in_flight] == [1]
    del kept


def test_what_cpp_calls_is_counted_by_the_group(tracer: GroupTracer, tmp_path: Path) -> None:
    group = PlayedGroup("0")
    group.hidden()
    group.hidden()
    tracer.catch_up()
    assert (shown(tmp_path)[0].collectives, shown(tmp_path)[0].finished) == (2, 2)
    work = group.allreduce(TENSORS)
    assert [one.order for one in shown(tmp_path)[0].in_flight] == [2]
    del work


def test_more_operations_than_it_has_places_for_are_left_out(tracer: GroupTracer, tmp_path: Path) -> None:
    group = PlayedGroup("0")
    works = [group.allreduce(TENSORS) for _ in range(layout.OPS + 3)]
    assert (len(shown(tmp_path)[0].in_flight), shown(tmp_path)[0].left_out) == (layout.OPS, 3)
    for work in works:
        work.wait()
    assert (shown(tmp_path)[0].in_flight, shown(tmp_path)[0].finished) == ((), layout.OPS + 3)


def test_a_group_that_ends_and_begins_again_is_one_communicator(tracer: GroupTracer, tmp_path: Path) -> None:
    group = PlayedGroup("0")
    work = group.allreduce(TENSORS)
    group.shutdown()
    assert [(one.ended, one.in_flight) for one in shown(tmp_path)] == [(True, ())]
    again = PlayedGroup("0")
    again.barrier()
    assert [(one.ended, one.collectives) for one in shown(tmp_path)] == [(False, 1)]
    work.wait()
    assert not tracer.off


def test_groups_find_places_while_others_end(tracer: GroupTracer, tmp_path: Path) -> None:
    for number in range(layout.COMMS + 9):
        PlayedGroup(str(number)).barrier().wait()
    names = {one.name for one in shown(tmp_path)}
    assert len(names) == layout.COMMS and f"about {layout.COMMS + 8}" in names
    assert not tracer.off


def test_groups_of_devices_are_left_to_the_plug_in(tracer: GroupTracer, tmp_path: Path) -> None:
    group = PlayedGroup("0", backend="nccl")
    group.allreduce(TENSORS).wait()
    assert not (tmp_path / "rings").exists() and not tracer.off


def test_an_error_of_the_call_is_the_trainers_own(tracer: GroupTracer, tmp_path: Path) -> None:
    group = PlayedGroup("0")
    with pytest.raises(ValueError, match="no tensors"):
        group.allreduce([])
    assert shown(tmp_path)[0].in_flight == () and not tracer.off


def test_the_first_thing_that_goes_wrong_turns_it_off_with_one_line(
    tracer: GroupTracer, tmp_path: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    (tmp_path / "rings").mkdir(mode=0o777)
    (tmp_path / "rings").chmod(0o777)
    plain = PlayedGroup.__dict__["allreduce"]
    group = PlayedGroup("0")
    assert group.allreduce(TENSORS).wait() and group.barrier().wait()
    assert tracer.off and PlayedGroup.__dict__["allreduce"] is not plain, "the trainer has its own methods again"
    lines = capsys.readouterr().err.splitlines()
    assert len(lines) == 1 and "hangdog.trace is off: PermissionError" in lines[0]


def test_a_child_of_a_fork_leaves_its_parents_ring_alone(tracer: GroupTracer, tmp_path: Path) -> None:
    group = PlayedGroup("0")
    group.barrier().wait()
    tracer.forked()  # what the child of a fork is told
    group.barrier()
    assert shown(tmp_path)[0].collectives == 2, "a ring of its own, with what its group has counted"


def test_a_ring_is_not_made_in_a_folder_that_others_may_write_to(tmp_path: Path) -> None:
    (tmp_path / "rings").mkdir()
    (tmp_path / "rings").chmod(0o770)
    with pytest.raises(PermissionError):
        create_ring({"HANGDOG_PROFILER_DIR": str(tmp_path / "rings")})


def test_of_the_rings_of_ended_processes_the_latest_stay_and_the_own_is_held(tmp_path: Path) -> None:
    folder = tmp_path / "rings"
    with left_rings(folder, KEPT + 5) as stay, contextlib.closing(create_ring({"HANGDOG_PROFILER_DIR": str(folder)})):
        (own,) = {file.name for file in folder.iterdir()} - stay
        assert stay < {file.name for file in folder.iterdir()}
        with (folder / own).open() as other, pytest.raises(BlockingIOError):
            fcntl.flock(other, fcntl.LOCK_EX | fcntl.LOCK_NB)
    with (folder / own).open() as other:
        fcntl.flock(other, fcntl.LOCK_EX | fcntl.LOCK_NB)


def test_a_trainer_imports_the_standard_library_and_nothing_else() -> None:
    probe = "import os, sys, hangdog.tracing.trace; assert 'GRPC_ENABLE_FORK_SUPPORT' not in os.environ; print(*{one.partition('.')[0] for one in sys.modules})"
    loaded = subprocess.run(
        [sys.executable, "-I", "-c", probe], env={}, capture_output=True, text=True, check=True
    ).stdout
    from_start = {"_distutils_hack", "_virtualenv", "sitecustomize", "usercustomize", "__main__", "__mp_main__"}
    foreign = set(loaded.split()) - {"hangdog", "hangdog_agent"} - from_start
    assert not {name for name in foreign if name not in sys.stdlib_module_names and not name.startswith("_")}


TRAINER = """
import os, sys, time, hangdog
print(hangdog.trace(), hangdog.trace())
import torch, torch.distributed as dist
def begin(): dist.init_process_group("gloo", init_method="file://" + sys.argv[1] + "/meet%d" % time.monotonic_ns(), rank=0, world_size=1)
begin()
tensor = torch.ones(5)
dist.all_reduce(tensor)
model = torch.nn.parallel.DistributedDataParallel(torch.nn.Linear(2, 1))
step = torch.optim.SGD(model.parameters(), 0.1)
model(torch.ones(1, 2)).sum().backward()
step.step()
dist.destroy_process_group()
begin()
dist.barrier()
dist.new_group([0])
child = os.fork()
if not child:
    os._exit(0)
os.waitpid(child, 0)
dist.all_gather_object([None], "what is pickled")
work = dist.all_reduce(tensor, async_op=True)
print("ready", flush=True)
sys.stdin.readline()
"""


@pytest.mark.slow
@pytest.mark.parallel
@pytest.mark.timeout(400)
@pytest.mark.skipif(find_spec("torch") is None, reason="torch is not installed: make torch")
@pytest.mark.parametrize("switch", ["", "0"])
def test_real_torch_is_traced_and_can_be_told_not_to_be(tmp_path: Path, switch: str) -> None:
    own = os.environ | {"HANGDOG_PROFILER_DIR": str(tmp_path / "rings"), "HANGDOG_PROFILER": switch}
    with subprocess.Popen(
        [sys.executable, "-c", TRAINER, str(tmp_path)],
        env=own,
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
    ) as process:
        try:
            assert process.stdout is not None
            assert process.stdout.readline().split() == ([b"False"] * 2 if switch else [b"True"] * 2)
            assert process.stdout.readline() == b"ready\n"
            if switch:
                assert not (tmp_path / "rings").exists()
                return
            world, pair = shown(tmp_path, process.pid)
            assert (world.name, world.collectives, world.ended) == ("default_pg", 4, False)
            assert [one.call.function for one in world.in_flight] == ["AllReduce"]
            assert (pair.ranks, pair.collectives) == (1, 0)
        finally:
            process.kill()
            assert process.stderr is not None and b"hangdog.trace is off" not in process.stderr.read()
