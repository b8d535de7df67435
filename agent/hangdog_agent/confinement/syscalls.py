"""The calls to Linux that Python lacks: giving up rights, and opening files without leaving a folder."""

import contextlib
import ctypes
import os
import resource
import struct
from collections.abc import Iterable, Iterator

from hangdog_agent.confinement import seccomp
from hangdog_agent.confinement.credentials import Credentials, CredentialsRefused

_PR_SET_DUMPABLE, _PR_SET_KEEPCAPS, _PR_SET_NO_NEW_PRIVS, _PR_CAP_AMBIENT = 4, 8, 38, 47
_PR_CAP_AMBIENT_RAISE, _PR_CAP_AMBIENT_CLEAR_ALL = 2, 4
_PR_CAPBSET_DROP, _PR_GET_SECUREBITS, _PR_SET_SECUREBITS = 24, 27, 28
#: SECBIT_NOROOT and SECBIT_NO_SETUID_FIXUP of capabilities(7): a program that is run as root, and a process that changes its
#: user, have the capabilities that they were given. Each is locked by the bit above it.
_NO_ROOT, _NO_FIXUP = 1, 4
_LOCKED = (_NO_ROOT | _NO_FIXUP) * 3
_SETPCAP = 8
_CAPABILITY_VERSION = 0x20080522
_SYS_PTRACE = 19
_OPENAT2 = 437  # the same on all architectures but alpha
_RESOLVE_NO_MAGICLINKS, _RESOLVE_IN_ROOT = 0x02, 0x10
#: Memory of a child that reads a trainer's files: Python itself takes 20 MiB, a record is 64 MiB at most.
_READER_MEMORY = 1 << 30
_READER_FILES = 256

_libc = ctypes.CDLL(None, use_errno=True)


def no_new_privileges() -> None:
    """Neither this process nor what it starts gains rights by running a program; raises OSError."""
    _prctl(_PR_SET_NO_NEW_PRIVS, 1)


def keep_only(capabilities: int) -> None:
    """Gives up all other capabilities (a set of bits), and hands none on by itself, for good; raises OSError.

    From then on a program gets the capabilities that `handing_on` names, whatever its user: root's gets no more, and those of
    other users no fewer (SECBIT_NOROOT, SECBIT_NO_SETUID_FIXUP). The process must have one thread only.
    """
    for bit in range(64):
        if not capabilities >> bit & 1:
            _prctl(_PR_CAPBSET_DROP, bit, missing=True)
    held = _held() & capabilities
    if held >> _SETPCAP & 1:
        _prctl(_PR_SET_SECUREBITS, _LOCKED)
        _prctl(_PR_CAP_AMBIENT, _PR_CAP_AMBIENT_CLEAR_ALL, missing=True)
        _capabilities(held, held, inheritable=held)
    else:  # a user's agent, which was given some: what it starts has the same
        words = _versions()
        inherited = words[2] | words[5] << 32 if words is not None else 0
        _capabilities(held, held, inheritable=inherited & held)


@contextlib.contextmanager
def handing_on(capabilities: Iterable[int]) -> Iterator[None]:
    """Programs that this thread starts while the block lasts get these capabilities (bits) of its own, and no others.

    Whoever may not arrange that, as an agent that is not root, hands on what it was given.
    """
    words = _versions()
    before = _libc.prctl(ctypes.c_int(_PR_GET_SECUREBITS), *[ctypes.c_ulong(0)] * 4)
    if words is None or before < 0 or not _prctl(_PR_SET_SECUREBITS, before | _NO_ROOT | _NO_FIXUP, missing=True):
        yield
        return
    permitted, effective, inheritable = (words[at] | words[at + 3] << 32 for at in (1, 0, 2))
    wanted = permitted & sum(1 << bit for bit in capabilities)
    given = [bit for bit in range(64) if wanted >> bit & 1]
    try:
        _prctl(_PR_CAP_AMBIENT, _PR_CAP_AMBIENT_CLEAR_ALL, missing=True)
        _capabilities(permitted, effective, inheritable | wanted)
        for bit in given:
            _prctl(_PR_CAP_AMBIENT, _PR_CAP_AMBIENT_RAISE, bit)
        yield
    finally:
        _prctl(_PR_CAP_AMBIENT, _PR_CAP_AMBIENT_CLEAR_ALL, missing=True)
        _capabilities(permitted, effective, inheritable)
        _prctl(_PR_SET_SECUREBITS, before, missing=True)


def become(who: Credentials, cpu_s: int | None) -> None:
    """Turns this process into one of that user: its rights on files, no capability in force, bounds, a seccomp filter.

    CAP_SYS_PTRACE stays at hand for `privileged` where it was held. `cpu_s` bounds the processor time; None does not.
    The process must have one thread only. Raises Refused where it has not the right to become that user.
    """
    no_new_privileges()
    try:
        if os.geteuid() == 0 or not who.own:
            _prctl(_PR_SET_KEEPCAPS, 1)
            os.setgroups(list(who.groups))
            os.setresgid(who.gid, who.gid, who.gid)
            os.setresuid(who.uid, who.uid, who.uid)
    except PermissionError:
        raise CredentialsRefused(
            "the agent cannot read it as its user, and never reads it as root: it needs CAP_SETUID and CAP_SETGID"
        ) from None
    _capabilities(_held() & 1 << _SYS_PTRACE, 0)
    _prctl(_PR_CAP_AMBIENT, _PR_CAP_AMBIENT_CLEAR_ALL, missing=True)
    # others of this user must neither read its memory nor hold it
    _prctl(_PR_SET_DUMPABLE, 0)
    bounds = [
        (resource.RLIMIT_CORE, 0),
        (resource.RLIMIT_FSIZE, 0),
        (resource.RLIMIT_NOFILE, _READER_FILES),
        (resource.RLIMIT_AS, _READER_MEMORY),
    ]
    for which, most in [*bounds, *([(resource.RLIMIT_CPU, cpu_s)] if cpu_s else [])]:
        resource.setrlimit(which, (most, most))
    seccomp.install(seccomp.READER)


class privileged:
    """CAP_SYS_PTRACE in force while the block lasts, where `become` left it: to reach `/proc/PID/root` and `/proc/PID/fd`.

    What is opened by a name that the trainer chose is opened outside of it.
    """

    def __enter__(self) -> None:
        permitted = _held()
        _capabilities(permitted, permitted)

    def __exit__(self, *_: object) -> None:
        _capabilities(_held(), 0)


def open_inside(root: int, path: str, flags: int) -> int:
    """Opens a path as a process with that root folder would; raises OSError, Refused.

    Links and `..` stay within the root, and links of /proc that lead to other processes' files (magic links) are not
    followed (openat2(2), Linux 5.6).
    """
    how = struct.pack("QQQ", flags | os.O_CLOEXEC, 0, _RESOLVE_IN_ROOT | _RESOLVE_NO_MAGICLINKS)
    opened = int(
        _libc.syscall(ctypes.c_long(_OPENAT2), ctypes.c_int(root), os.fsencode(path), how, ctypes.c_size_t(len(how)))
    )
    if opened < 0:
        number = ctypes.get_errno()
        if number in (38, 1) and flags & os.O_PATH:  # ENOSYS, or a seccomp profile that does not know it
            raise CredentialsRefused(
                "this kernel cannot open a file safely (openat2 is missing: Linux 5.6 or newer has it)"
            )
        raise OSError(number, os.strerror(number))
    return opened


def reopen(handle: int, flags: int) -> int:
    """Opens what an O_PATH descriptor stands for, the very file, with this process's rights; raises OSError."""
    return os.open(f"/proc/self/fd/{handle}", flags | os.O_CLOEXEC | os.O_NOCTTY | os.O_NONBLOCK)


def _held() -> int:
    """The capabilities this process may put in force."""
    words = _versions()
    return 0 if words is None else words[1] | words[4] << 32


def _versions() -> tuple[int, ...] | None:
    """Effective, permitted and inheritable capabilities, the lower halves and then the upper; None where it is not told."""
    data = ctypes.create_string_buffer(24)
    return struct.unpack("6I", data.raw) if _libc.capget(_header(), data) == 0 else None


def _capabilities(permitted: int, effective: int, inheritable: int = 0) -> None:
    low, high = (1 << 32) - 1, 32
    sets = (effective, permitted, inheritable)
    data = struct.pack("6I", *(one & low for one in sets), *(one >> high for one in sets))
    if _libc.capset(_header(), ctypes.create_string_buffer(data, 24)) != 0:
        raise OSError(ctypes.get_errno(), "capset failed")


def _header() -> bytes:
    return struct.pack("Ii", _CAPABILITY_VERSION, 0)


def _prctl(option: int, value: int, further: int = 0, missing: bool = False) -> bool:
    status = _libc.prctl(
        ctypes.c_int(option), ctypes.c_ulong(value), ctypes.c_ulong(further), ctypes.c_ulong(0), ctypes.c_ulong(0)
    )
    if status != 0 and not missing:
        number = ctypes.get_errno()
        raise OSError(number, os.strerror(number))
    return bool(status == 0)
