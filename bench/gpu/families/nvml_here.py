"""What parts about NVML and the kernel log read: those of this machine or, in a dry run, a fake of two GPUs and a log of its own."""

import os
import sys
import time
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path

from gpu import environment
from gpu.kit import NotHere, Stand

sys.path.append(str(environment.ROOT / "tests"))

from support.fakes.fake_gpus import FakeGpus, built

#: The log of a sound machine: nothing here is the hardware's fault.
_LOG = ("NVRM: loading NVIDIA UNIX x86_64 Kernel Module  570.133.20", "nfs: server store OK")
#: What the fake reports besides, as a real H200 does.
_MORE = {"fabric": "3 0 0x2a", "temperature": "34", "sram_exceeded": "0", "persistence": "1"}


@dataclass(frozen=True, slots=True)
class NvmlHere:
    """`environ` is for children that ask NVML; `fake` is None on a real machine."""

    environ: Mapping[str, str]
    kmsg: Path
    fake: FakeGpus | None = None

    def log(self, line: str) -> None:
        """Adds a line to the log of a dry run."""
        assert self.fake is not None
        number = len(self.kmsg.read_bytes().splitlines()) if self.kmsg.exists() else 0
        with self.kmsg.open("a", encoding="utf-8") as file:
            file.write(f"4,{number},{int(1e6 * time.monotonic())},-;{line}\n")


def here(stand: Stand) -> NvmlHere:
    """The real ones, or fakes in a folder of their own."""
    environ = {**os.environ, "PYTHONPATH": str(environment.ROOT / "bench")}
    if not stand.dry:
        return NvmlHere(environ, Path("/dev/kmsg"))
    folder = stand.folder("nvml")
    library = built(folder)
    if library is None:
        raise NotHere("no C compiler to build the fake NVML with")
    fake = FakeGpus(folder / "answers", library)
    for index in (0, 1):
        for name, value in _MORE.items():
            fake.say(f"{index}/{name}", value)
    found = NvmlHere({**environ, **fake.environ, "PYTHONPATH": environ["PYTHONPATH"]}, folder / "kmsg", fake)
    for line in _LOG:
        found.log(line)
    return found
