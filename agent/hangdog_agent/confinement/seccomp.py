"""System calls that the agent, its tools and its readers of trainers' files may not make, as seccomp filters (seccomp(2)).

A filter here is a list of what is forbidden. What is forbidden fails with EPERM and goes on, so that an unforeseen use
costs evidence and not the agent.
"""

import ctypes
import errno
import os
import struct
from collections.abc import Sequence
from dataclasses import dataclass

#: AUDIT_ARCH of <linux/audit.h>, and the column of the tables below.
_MACHINES = {"x86_64": (0xC000003E, 0), "aarch64": (0xC00000B7, 1)}
#: System calls of the x32 ABI, which have numbers of their own (<asm/unistd.h>).
_X32_BIT = 0x40000000

#: Numbers on x86_64 and aarch64; -1 where there is no such call. From <asm/unistd_64.h> and <asm-generic/unistd.h>.
NUMBERS = {
    "accept": (43, 202), "acct": (163, 89), "add_key": (248, 217), "adjtimex": (159, 171), "bind": (49, 200),
    "bpf": (321, 280), "chmod": (90, -1), "chown": (92, -1), "chroot": (161, 51), "clock_adjtime": (305, 266),
    "clock_settime": (227, 112), "clone": (56, 220), "clone3": (435, 435), "creat": (85, -1),
    "delete_module": (176, 106), "execve": (59, 221), "execveat": (322, 281), "fallocate": (285, 47),
    "fchmod": (91, 52), "fchmodat": (268, 53), "fchmodat2": (452, 452), "fchown": (93, 55), "fchownat": (260, 54),
    "finit_module": (313, 273), "fork": (57, -1), "fremovexattr": (199, 16), "fsconfig": (431, 431),
    "fsetxattr": (190, 7), "fsmount": (432, 432), "fsopen": (430, 430), "fspick": (433, 433), "ftruncate": (77, 46),
    "init_module": (175, 105), "io_uring_setup": (425, 425), "ioperm": (173, -1), "iopl": (172, -1),
    "kexec_file_load": (320, 294), "kexec_load": (246, 104), "keyctl": (250, 219), "kill": (62, 129),
    "lchown": (94, -1), "link": (86, -1), "linkat": (265, 37), "listen": (50, 201), "lremovexattr": (198, 15),
    "lsetxattr": (189, 6), "mkdir": (83, -1), "mkdirat": (258, 34), "mknod": (133, -1), "mknodat": (259, 33),
    "mount": (165, 40), "mount_setattr": (442, 442), "move_mount": (429, 429), "open": (2, -1),
    "open_by_handle_at": (304, 265), "open_tree": (428, 428), "openat": (257, 56), "perf_event_open": (298, 241),
    "pidfd_getfd": (438, 438), "pidfd_send_signal": (424, 424), "pivot_root": (155, 41),
    "process_madvise": (440, 440), "process_vm_readv": (310, 270), "process_vm_writev": (311, 271),
    "ptrace": (101, 117), "quotactl": (179, 60), "reboot": (169, 142), "removexattr": (197, 14), "rename": (82, -1),
    "renameat": (264, 38), "renameat2": (316, 276), "request_key": (249, 218), "rmdir": (84, -1),
    "rt_sigqueueinfo": (129, 138), "rt_tgsigqueueinfo": (297, 240), "setdomainname": (171, 162),
    "sethostname": (170, 161), "setns": (308, 268), "settimeofday": (164, 170), "setxattr": (188, 5),
    "socket": (41, 198), "swapoff": (168, 225), "swapon": (167, 224), "symlink": (88, -1), "symlinkat": (266, 36),
    "tgkill": (234, 131), "tkill": (200, 130), "truncate": (76, 45), "umount2": (166, 39), "unlink": (87, -1),
    "unlinkat": (263, 35), "unshare": (272, 97), "userfaultfd": (323, 282), "utime": (132, -1),
    "utimensat": (280, 88), "utimes": (235, -1), "vfork": (58, -1),
}  # fmt: skip


@dataclass(frozen=True, slots=True)
class ForbiddenCall:
    """A call that is forbidden always, or by one of its arguments.

    `values`: when the argument is one of these; `unless`: when it is none of these; `bits`: when it has one of these.
    """

    call: str
    argument: int = 0
    values: tuple[int, ...] = ()
    unless: tuple[int, ...] = ()
    bits: int = 0


def _always(*calls: str) -> tuple[ForbiddenCall, ...]:
    return tuple(ForbiddenCall(call) for call in calls)


#: What changes the machine itself. Nothing of hangdog's does, so all of the agent goes without, and all that it starts.
_MACHINE = _always(
    "acct", "add_key", "adjtimex", "bpf", "chroot", "clock_adjtime", "clock_settime", "delete_module", "finit_module",
    "fsconfig", "fsmount", "fsopen", "fspick", "init_module", "io_uring_setup", "ioperm", "iopl", "kexec_file_load",
    "kexec_load", "keyctl", "mount", "mount_setattr", "move_mount", "open_by_handle_at", "open_tree",
    "perf_event_open", "pidfd_getfd", "pivot_root", "process_madvise", "process_vm_writev", "quotactl", "reboot",
    "request_key", "setdomainname", "sethostname", "settimeofday", "swapoff", "swapon", "umount2", "unshare",
    "userfaultfd",
)  # fmt: skip
#: Requests of ptrace(2) that change the traced process: POKETEXT, POKEDATA, POKEUSR, SETREGS, SETFPREGS, SETSIGINFO, SETREGSET.
_PTRACE_WRITES = (4, 5, 6, 13, 15, 0x4203, 0x4205)
_CLONE_NEWNET = 0x40000000

#: The agent and its tools. ptrace and setns stay, as far as py-spy reads with the one and RAS in a container needs the other.
AGENT = (
    *_MACHINE,
    ForbiddenCall("ptrace", 0, values=_PTRACE_WRITES),
    ForbiddenCall("setns", 1, unless=(_CLONE_NEWNET,)),
)
_O_RDWR, _AF_UNIX = 2, 1
_CREATES = _O_RDWR | os.O_CREAT | os.O_TRUNC
#: A reader of a trainer's files: it starts, signals, traces, names and changes nothing, and speaks to unix sockets only.
READER = (
    *_MACHINE,
    *_always(
        "accept", "bind", "chmod", "chown", "clone", "clone3", "creat", "execve", "execveat", "fallocate", "fchmod",
        "fchmodat", "fchmodat2", "fchown", "fchownat", "fork", "fremovexattr", "fsetxattr", "ftruncate", "kill",
        "lchown", "link", "linkat", "listen", "lremovexattr", "lsetxattr", "mkdir", "mkdirat", "mknod", "mknodat",
        "pidfd_send_signal", "process_vm_readv", "ptrace", "removexattr", "rename", "renameat", "renameat2", "rmdir",
        "rt_sigqueueinfo", "rt_tgsigqueueinfo", "setns", "setxattr", "symlink", "symlinkat", "tgkill", "tkill",
        "truncate", "unlink", "unlinkat", "utime", "utimensat", "utimes", "vfork",
    ),
    ForbiddenCall("open", 1, bits=_CREATES),
    ForbiddenCall("openat", 2, bits=_CREATES),
    ForbiddenCall("socket", 0, unless=(_AF_UNIX,)),
)  # fmt: skip

# struct sock_filter and its codes, <linux/filter.h>; offsets in struct seccomp_data, <linux/seccomp.h>
_LOAD, _EQUAL, _AT_LEAST, _ANY_BIT, _RETURN = 0x20, 0x15, 0x35, 0x45, 0x06
_NUMBER_AT, _ARCHITECTURE_AT, _ARGUMENTS_AT = 0, 4, 16
_ALLOW, _FAIL = 0x7FFF0000, 0x00050000 | errno.EPERM
_SET_MODE_FILTER, _ALL_THREADS = 1, 1
_SECCOMP = {"x86_64": 317, "aarch64": 277}

Instruction = tuple[int, int, int, int]


def program(forbidden: Sequence[ForbiddenCall], machine: str) -> list[Instruction]:
    """The filter for a machine (`uname -m`); raises KeyError where its numbers are not known here."""
    architecture, column = _MACHINES[machine]
    made: list[Instruction] = [
        (_LOAD, 0, 0, _ARCHITECTURE_AT),
        (_EQUAL, 1, 0, architecture),
        (_RETURN, 0, 0, _FAIL),  # a 32-bit program has other numbers: nothing of ours is one
        (_LOAD, 0, 0, _NUMBER_AT),
    ]
    if machine == "x86_64":
        made += [(_AT_LEAST, 0, 1, _X32_BIT), (_RETURN, 0, 0, _FAIL)]
    for one in forbidden:
        number = NUMBERS[one.call][column]
        if number >= 0:
            body = _body(one)
            made += [(_EQUAL, 0, len(body), number), *body]
    return [*made, (_RETURN, 0, 0, _ALLOW)]


def _body(one: ForbiddenCall) -> list[Instruction]:
    """What is done upon that call; only the lower half of an argument is looked at, which is all the kernel takes of these."""
    fail, load = (_RETURN, 0, 0, _FAIL), (_LOAD, 0, 0, _ARGUMENTS_AT + 8 * one.argument)
    allow = (_RETURN, 0, 0, _ALLOW)
    if one.bits:
        return [load, (_ANY_BIT, 0, 1, one.bits), fail, allow]
    if one.values:
        tests = [(_EQUAL, len(one.values) - at, 0, value) for at, value in enumerate(one.values)]
        return [load, *tests, allow, fail]
    if one.unless:
        tests = [(_EQUAL, len(one.unless) - at, 0, value) for at, value in enumerate(one.unless)]
        return [load, *tests, fail, allow]
    return [fail]


class _Program(ctypes.Structure):
    _fields_ = (("length", ctypes.c_ushort), ("filter", ctypes.c_char_p))


def install(forbidden: Sequence[ForbiddenCall]) -> bool:
    """Forbids these to all threads of this process and to all that it starts, for good; False where there is no seccomp.

    The process must have given up new privileges before (kernel.no_new_privileges).
    """
    machine = os.uname().machine
    if machine not in _MACHINES:
        return False
    packed = b"".join(struct.pack("HBBI", *one) for one in program(forbidden, machine))
    made = _Program(len(packed) // 8, packed)
    libc = ctypes.CDLL(None, use_errno=True)
    status: int = libc.syscall(
        ctypes.c_long(_SECCOMP[machine]),
        ctypes.c_uint(_SET_MODE_FILTER),
        ctypes.c_uint(_ALL_THREADS),
        ctypes.byref(made),
    )
    return status == 0
