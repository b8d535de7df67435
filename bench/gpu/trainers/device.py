"""The device a trainer computes on, and what can go wrong with it: a real GPU, or the stand-in of a dry run.

Each fault stays inside the process that asks for it, and a hang ends when it is told to: the device is left as it was.
"""

import ctypes
from typing import Any, Protocol

import torch

#: Waits as a kernel whose input never comes: on a word of the host's memory that the device can read.
_WAIT = r"""
extern "C" __global__ void wait_for_host(volatile int* flag) {
    while (*flag == 0) __nanosleep(2000);
}
"""
#: Ends the process's context: Xid 13 (graphics exception).
_TRAP = r'extern "C" __global__ void trap_now(int* unused) { asm("trap;"); }'
#: Ends the process's context: Xid 31 (memory page fault).
_STRAY = r"""
extern "C" __global__ void write_astray(int* unused) {
    *reinterpret_cast<volatile int*>(0x10ULL) = 1;
}
"""


class Device(Protocol):
    """What trainers need of it. Streams run on; `synchronize` waits for all that was given to it."""

    name: str
    backend: str

    def hang(self) -> None:
        """Gives it work that does not end before `release`."""

    def release(self) -> None: ...

    def synchronize(self) -> None: ...


class Gpu:
    """The first GPU that the process sees, by CUDA."""

    backend = "nccl"

    def __init__(self) -> None:
        self.name = "cuda:0"
        torch.cuda.set_device(0)
        self._flag = torch.zeros(1, dtype=torch.int32, pin_memory=True)
        self._wait = _compiled(_WAIT, "wait_for_host")

    def hang(self) -> None:
        self._flag[0] = 0
        self._wait(grid=(1, 1, 1), block=(1, 1, 1), args=[self._flag])

    def release(self) -> None:
        self._flag[0] = 1

    def synchronize(self) -> None:
        torch.cuda.synchronize()

    def trap(self) -> None:
        """Ends the context by a trap; raises what torch makes of it."""
        self._end(_TRAP, "trap_now")

    def stray(self) -> None:
        """Ends the context by a write to an address nobody has; raises what torch makes of it."""
        self._end(_STRAY, "write_astray")

    def _end(self, source: str, name: str) -> None:
        _compiled(source, name)(grid=(1, 1, 1), block=(1, 1, 1), args=[self._flag])
        torch.cuda.synchronize()


class StandIn:
    """The CPU in its place: a hang holds the process inside of C, where a device would."""

    backend = "gloo"

    def __init__(self) -> None:
        self.name = "cpu"
        self._libc = ctypes.CDLL(None)
        self._hang = ctypes.create_string_buffer(64)  # a sem_t
        self._libc.sem_init(self._hang, 0, 1)

    def hang(self) -> None:
        self._libc.sem_trywait(self._hang)

    def release(self) -> None:
        self._libc.sem_post(self._hang)

    def synchronize(self) -> None:
        self._libc.sem_wait(self._hang)
        self._libc.sem_post(self._hang)


def device(dry: bool) -> Device:
    return StandIn() if dry else Gpu()


def _compiled(source: str, name: str) -> Any:
    """A kernel made by the run-time compiler that torch brings (from 2.9 on)."""
    return torch.cuda._compile_kernel(source, name)
