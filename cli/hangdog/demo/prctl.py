"""Requests to the kernel that a process makes for itself: who may look at it, what it dies with, whose orphans it takes."""

import ctypes
import os
import signal

#: Numbers of <linux/prctl.h>.
PR_SET_PDEATHSIG = 1
PR_SET_CHILD_SUBREAPER = 36
PR_SET_PTRACER = 0x59616D61
#: "Anybody who could trace me without Yama": (unsigned long) -1.
PR_SET_PTRACER_ANY = ctypes.c_ulong(-1)

_libc = ctypes.CDLL(None, use_errno=True)


def let_others_look() -> None:
    """Lets any process of the same user read this one's memory.

    Yama, where it is on (ptrace_scope 1, the default of Ubuntu), lets a process be read by its ancestors only. An agent is
    no ancestor of the trainer, so without this it would need root. Without Yama the call fails with EINVAL and is not needed.
    """
    _libc.prctl(PR_SET_PTRACER, PR_SET_PTRACER_ANY)


def die_with(parent: int, number: signal.Signals = signal.SIGKILL) -> None:
    """Makes the kernel signal this process when its parent dies, in whatever way; ends it now if `parent` is already gone."""
    _libc.prctl(PR_SET_PDEATHSIG, ctypes.c_ulong(number))
    if os.getppid() != parent:
        os._exit(1)


def adopt_orphans() -> None:
    """Makes this process the parent of every descendant whose own parent dies, so that none is lost sight of."""
    _libc.prctl(PR_SET_CHILD_SUBREAPER, ctypes.c_ulong(1))
