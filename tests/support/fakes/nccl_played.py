"""Trainers in which a stand-in for NCCL calls hangdog's profiler plug-in, and whose stacks wait for their device."""

import contextlib
import os
import shutil
import subprocess
import sys
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

import pytest

from hangdog_agent.capture import collective_progress
from support.fakes import targets
from support.fakes.dumper import own_job

_ROOT = Path(__file__).resolve().parents[3]
_PLUGIN, _STAND_IN = _ROOT / "agent/profiler/profiler.c", _ROOT / "bench/gpu/trainers/nccl_stand_in.c"
#: What a trainer is inside of meanwhile: its host reads a result back from the device.
_SYNCHRONIZE = """
import ctypes


def synchronize(library, *words):
    called = [b"trainer", *map(str.encode, words)]
    ctypes.CDLL(library).stand_in(len(called), (ctypes.c_char_p * len(called))(*called))
"""
_TRAIN = """
import sys

sys.path.insert(0, sys.argv[1])
from torch.cuda import synchronize


def report():
    synchronize(*sys.argv[2:])


report()
"""


@dataclass(frozen=True, slots=True)
class BuiltNccl:
    """The plug-in, the stand-in as a library that a trainer loads, and the trainer's program beside its `torch`."""

    plugin: Path
    library: Path
    program: Path

    def command(self, *words: object, version: int = 5) -> list[str]:
        """A trainer that plays a scenario of the stand-in."""
        return [
            sys.executable, "-I", str(self.program), str(self.program.parent), str(self.library), str(self.plugin),
            str(version), *map(str, words),
        ]  # fmt: skip


def build(folder: Path) -> BuiltNccl:
    """Builds all of it; skips the test where there is no compiler."""
    compiler = shutil.which("cc") or shutil.which("gcc")
    if compiler is None:
        pytest.skip("no C compiler: apt-get install gcc")
    shared = [compiler, "-O2", "-fPIC", "-shared"]
    plugin, library, program = folder / "plugin.so", folder / "stand_in.so", folder / "train.py"
    subprocess.run([*shared, "-fvisibility=hidden", "-o", plugin, _PLUGIN, "-lpthread"], check=True)
    subprocess.run([*shared, "-Dmain=stand_in", "-o", library, _STAND_IN, "-ldl", "-lpthread"], check=True)
    package = folder / "torch" / "cuda"
    package.mkdir(parents=True)
    (folder / "torch" / "__init__.py").touch()
    (package / "__init__.py").write_text(_SYNCHRONIZE, encoding="utf-8")
    program.write_text(_TRAIN, encoding="utf-8")
    return BuiltNccl(plugin, library, program)


@contextlib.contextmanager
def training(
    nccl: BuiltNccl, rings: Path, *words: object, says: bytes = b"ready", **environ: str
) -> Iterator["subprocess.Popen[bytes]"]:
    """A trainer once it has said that it is there; it keeps its ring in a folder. Killed and reaped afterwards."""
    own: Mapping[str, str] = {**os.environ, **own_job(), "RANK": "0", "HANGDOG_PROFILER_DIR": str(rings), **environ}
    with subprocess.Popen(
        nccl.command(*words), stdin=subprocess.PIPE, stdout=subprocess.PIPE, cwd=rings.parent, env=own
    ) as process:
        try:
            assert process.stdout is not None
            assert process.stdout.readline().strip() == says
            yield process
        finally:
            process.kill()


@contextlib.contextmanager
def pair(
    nccl: BuiltNccl, folder: Path, environ: Callable[[int], Mapping[str, str]]
) -> Iterator[list["subprocess.Popen[bytes]"]]:
    """Two ranks that go through collectives together, until a file `pair.hang` in the folder hangs the device of rank 1.

    `environ`: what more the environment of a rank has.
    """
    with contextlib.ExitStack() as stack:
        yield [
            stack.enter_context(
                training(
                    nccl,
                    folder / "rings",
                    *("pair", folder / "pair", rank),
                    says=b'{"ready": true}',
                    **{"RANK": str(rank), "LOCAL_RANK": "0", "WORLD_SIZE": "2", **environ(rank)},
                )
            )
            for rank in (0, 1)
        ]


def hang(folder: Path, processes: Sequence["subprocess.Popen[bytes]"], stood_s: float = 6.0) -> None:
    """Hangs the device of rank 1 of a pair that has made some steps; returns once the job has stood for a while."""

    def made(process: "subprocess.Popen[bytes]") -> int:
        rings = collective_progress.read(process.pid, time.monotonic_ns(), str(folder / "rings"))
        return sum(one.finished for one in rings)

    targets.until(lambda: all(made(process) > 20 for process in processes))
    (folder / "pair.hang").touch()
    time.sleep(stood_s)  # what is in flight must be older than a moment of a step
