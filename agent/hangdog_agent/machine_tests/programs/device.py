"""What programs share of the device they test: naming it, waiting for it, and settings without which bits differ by chance."""

from __future__ import annotations

import hashlib
import os
import platform
from pathlib import Path
from typing import Any

import torch


def steady(threads: int) -> None:
    """Fixes whatever else chooses between kernels: called before the device is touched."""
    torch.set_num_threads(threads)
    torch.use_deterministic_algorithms(True)
    torch.backends.cudnn.benchmark = False
    torch.backends.cudnn.allow_tf32 = False
    matmul = torch.backends.cuda.matmul
    matmul.allow_tf32 = False
    matmul.allow_fp16_reduced_precision_reduction = False
    matmul.allow_bf16_reduced_precision_reduction = False


def wait(device: str) -> None:
    """Returns when the device has done all it was given; a CPU has by then."""
    if device.startswith("cuda"):
        torch.cuda.synchronize(device)


def digest(tensor: Any) -> str:
    """SHA-256 of a tensor's raw bytes, taken on the host; 32 hexadecimal digits of it tell more than enough apart."""
    flat = tensor.detach().to("cpu").contiguous().view(-1).view(torch.uint8)
    return hashlib.sha256(memoryview(flat.numpy())).hexdigest()[:32]


def uniform(maker: Any, *shape: int) -> Any:
    """Numbers of mean 0 and variance 1, equal on every host: those of torch.randn depend on its instruction set."""
    return (torch.rand(shape, generator=maker) - 0.5) * 12**0.5


def key(device: str, *programs: str) -> str:
    """What two devices must share before their bits may be compared (the cohort). No serial number is in it.

    `programs` are the files that say what is computed: another version of them computes other bits.
    """
    work = hashlib.sha256(b"".join(Path(program).read_bytes() for program in (__file__, *programs)))
    parts = [f"work {work.hexdigest()[:12]}", f"torch {torch.__version__}"]
    if device.startswith("cuda"):
        shape = torch.cuda.get_device_properties(device)
        parts += [shape.name, f"compute {shape.major}.{shape.minor}", f"{shape.multi_processor_count} SMs"]
        parts += [f"CUDA {torch.version.cuda}", f"driver {_driver()}", f"cuDNN {torch.backends.cudnn.version()}"]
    else:
        parts += [platform.machine(), _cpu(), torch.backends.cpu.get_cpu_capability()]
        parts += [f"{torch.get_num_threads()} threads", os.environ.get("MKL_CBWR", "")]
    return ", ".join(filter(None, parts))


def _driver() -> str:
    """Its branch: bits are equal within one."""
    try:
        words = Path("/proc/driver/nvidia/version").read_text("ascii", "replace").split()
    except OSError:
        return "unknown"
    return next((word for word in words if word.count(".") in (1, 2) and word[0].isdigit()), "unknown")


def _cpu() -> str:
    try:
        lines = Path("/proc/cpuinfo").read_text("ascii", "replace").splitlines()
    except OSError:
        return ""
    return next((line.partition(":")[2].strip() for line in lines if line.startswith("model name")), "")
