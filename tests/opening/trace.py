"""Reads what strace wrote: what was opened, connected to, run and asked of the kernel, by whom, and with whose rights."""

import os
import re
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

#: Calls that are looked for. Those that only read what is open already are none of our business.
OPENS = ("open", "openat", "openat2", "creat")
LINKS = ("readlink", "readlinkat")
CHANGES = ("unlink", "unlinkat", "rename", "renameat", "renameat2", "mkdir", "mkdirat", "rmdir", "mknod", "mknodat",
           "symlink", "symlinkat", "link", "linkat", "chmod", "fchmodat", "chown", "fchownat", "truncate")  # fmt: skip
RUNS = ("execve", "execveat")
SOCKETS = ("connect", "bind")
#: Each of these is worth a line in the footprint.
RIGHTS = ("setns", "unshare", "ptrace", "process_vm_readv", "process_vm_writev", "pidfd_getfd", "chroot", "mount", "umount2",
          "pivot_root", "bpf", "perf_event_open", "init_module", "finit_module", "kexec_load", "reboot", "swapon",
          "open_by_handle_at", "keyctl", "add_key", "userfaultfd", "io_uring_setup")  # fmt: skip
#: Who turns into another user.
BECOMES = ("setuid", "setgid", "setresuid", "setresgid", "setreuid", "setregid", "setgroups", "capset")
CALLS = (*OPENS, *LINKS, *CHANGES, *RUNS, *SOCKETS, *RIGHTS, *BECOMES)

_LINE = re.compile(r"(?P<pid>\d+) +(?P<call>\w+)\((?P<rest>.*)")
_FOLDER = re.compile(r"^(?:AT_FDCWD|\d+)<(?P<folder>[^>]*)>, ")
_TEXT = re.compile(r'"(?P<text>(?:[^"\\]|\\.)*)"')
_WRITES = re.compile(r"O_WRONLY|O_RDWR|O_CREAT|O_TRUNC|O_APPEND")
_PORT = re.compile(r"sin6?_port=htons\((\d+)\)")
_UID = re.compile(r"^(?:-1, )?(\d+)")


@dataclass(frozen=True, slots=True)
class Event:
    """One call: `kind` is reads, writes, links, programs, sockets or calls, `what` a path, an address or the call's name."""

    kind: str
    what: str
    #: Whether the process had turned into another user before.
    as_trainer: bool = False


def events(trace: Path) -> Iterator[Event]:
    """All of them, in their order."""
    others: set[str] = set()
    for line in trace.read_text("utf-8", "replace").splitlines():
        found = _LINE.match(line)
        if found is None:  # a signal, an end, or the second half of a call that was interrupted
            continue
        call, rest = found["call"], found["rest"]
        if call in ("setresuid", "setreuid", "setuid") and (uid := _UID.match(rest)) and uid[1] != "0":
            others.add(found["pid"])
        if call in BECOMES:
            continue
        yield from (Event(kind, what, found["pid"] in others) for kind, what in _told(call, rest))


def _told(call: str, rest: str) -> Iterator[tuple[str, str]]:
    if call in OPENS:
        yield "writes" if call == "creat" or _WRITES.search(rest.partition(", ")[2]) else "reads", _path(rest)
    elif call in LINKS:
        yield "links", _path(rest)
    elif call in CHANGES:
        yield "writes", _path(rest)
    elif call in RUNS:
        yield "programs", _path(rest)
    elif call in SOCKETS:
        yield from _socket(call, rest)
    else:
        yield "calls", call


def _path(rest: str) -> str:
    """The path a call names, from the root folder; of one that is relative to an open folder, both."""
    folder, text = _FOLDER.match(rest), _TEXT.search(rest)
    path = text["text"] if text else ""
    if folder and not path.startswith("/"):
        path = f"{folder['folder']}/{path}"
    elif folder and rest[0].isdigit():  # openat2 within a root: the trainer's own name for it
        path = f"{folder['folder'].rstrip('/')}{path}"
    return os.path.normpath(path) if path else "(no path)"


def _socket(call: str, rest: str) -> Iterator[tuple[str, str]]:
    port = _PORT.search(rest)
    if "AF_UNIX" in rest:
        text = _TEXT.search(rest)
        yield "sockets", f"unix {call} {text['text'] if text else ''}".strip()
    elif "AF_NETLINK" in rest:
        yield "sockets", f"netlink {call}"
    elif port:
        yield "sockets", f"tcp {call} {port[1]}"
    elif "AF_UNSPEC" not in rest:
        yield "sockets", f"{call} {rest[:80]}"
