"""What the proof runs on: versions of all that its figures depend on."""

import json
import os
import platform
import subprocess
from collections.abc import Iterator
from pathlib import Path

from gpu import environment
from gpu.kit import Measured, Part, Stand

_TORCH = """
import json, torch
cuda = torch.cuda.is_available()
print(json.dumps({
    "torch": torch.__version__,
    "CUDA": torch.version.cuda,
    "NCCL": ".".join(map(str, torch.cuda.nccl.version())) if cuda else None,
    "GPUs": [torch.cuda.get_device_name(index) for index in range(torch.cuda.device_count())] if cuda else [],
}))
"""


def parts(stand: Stand) -> Iterator[Part]:
    yield Part("machine/versions", 30.0, measure)


def measure(stand: Stand) -> Measured:
    ran = subprocess.run([stand.python, "-c", _TORCH], capture_output=True, text=True, check=True)
    found = json.loads(ran.stdout)
    figures = {
        "hangdog": environment.version(),
        "commit": _commit(),
        "Python": platform.python_version(),
        **found,
        "driver": _driver(),
        "kernel": platform.release(),
        "CPUs": os.cpu_count(),
        "root": os.geteuid() == 0,
        "dry": stand.dry,
    }
    lacks = [] if stand.dry or found["GPUs"] else ["torch sees no GPU here"]
    return Measured(figures, lacks)


def _driver() -> str | None:
    try:
        return Path("/sys/module/nvidia/version").read_text().strip()
    except OSError:
        return None


def _commit() -> str | None:
    try:
        ran = subprocess.run(
            ["git", "-C", environment.ROOT, "describe", "--always", "--dirty"],
            check=False,
            capture_output=True,
            text=True,
        )
    except OSError:
        return None
    return ran.stdout.strip() or None
