"""Pretended GPUs: the answers of a fake libnvidia-ml.so.1 (support/fakes/fake_nvml.c), which a real NVML client loads."""

import os
import shutil
import subprocess
from pathlib import Path

SOURCE = Path(__file__).with_name("fake_nvml.c")


class FakeGpus:
    """Two GPUs in order, until a test says otherwise; a process that is started with `environ` sees them."""

    def __init__(self, folder: Path, library: Path) -> None:
        self.folder = folder
        self.environ = {**os.environ, "FAKE_NVML": str(folder), "LD_LIBRARY_PATH": str(library.parent)}
        folder.mkdir()
        self.say("count", "2")
        self.say("driver", "570.133.20")
        for index in (0, 1):
            for name, value in {
                "uuid": f"GPU-{index}",
                "serial": f"serial-{index}",
                "pci": f"00000000:{0x1B + index:02X}:00.0",
                "power": "600000",
                "power_limit": "700000",
                "busy": "100",
                "width": "16",
                "width_max": "16",
                "clock_reasons": "0",
                "event_types": "0xffff",
                "nvlinks": "11",
                "remap": "0 0 0 0",
                "field.230": "0",
                "ecc.1.0.2": "3",
                "ecc.1.0.7": "0",
            }.items():
                self.say(f"{index}/{name}", value)

    def say(self, name: str, value: str) -> None:
        """Has `name` answer `value`, in one step: nobody reads half of it."""
        path = self.folder / name
        path.parent.mkdir(exist_ok=True)
        new = path.with_name(".new")
        new.write_text(value + "\n", encoding="utf-8")
        new.replace(path)

    def happen(self, gpu: int, event: str) -> None:
        """Adds an event, `TYPE DATA`."""
        path = self.folder / str(gpu) / "events"
        before = path.read_text(encoding="utf-8") if path.exists() else ""
        self.say(f"{gpu}/events", before + event)

    def withdraw(self, name: str) -> None:
        """Has `name` answer that it is not supported."""
        (self.folder / name).unlink()


def built(folder: Path, *options: str) -> Path | None:
    """The fake library; None where no C compiler is."""
    compiler = shutil.which("cc") or shutil.which("gcc")
    if compiler is None:
        return None
    library = folder / "libnvidia-ml.so.1"
    soname = f"-Wl,-soname,{library.name}"
    subprocess.run([compiler, "-O1", "-w", "-shared", "-fPIC", *options, soname, "-o", library, SOURCE], check=True)
    return library
