"""Reads what a child process prints, never for longer than agreed."""

import os
import selectors
import subprocess
import time
from collections.abc import Callable

#: How often a wait looks up to do what is to be done meanwhile. Seconds.
POLL_S = 0.1


def first_line(process: subprocess.Popen[bytes], patience_s: float) -> str:
    """The first line a process prints; what there is of it when the process ends or `patience_s` seconds are over."""
    text = _read(process, patience_s, lambda so_far: b"\n" in so_far, lambda: None)
    return text.decode("utf-8", "replace").partition("\n")[0]


def whole_output(process: subprocess.Popen[bytes], patience_s: float, meanwhile: Callable[[], None]) -> str:
    """All that a process prints until it ends, which it does within `patience_s` seconds or is killed."""
    text = _read(process, patience_s, lambda _: False, meanwhile)
    try:
        process.wait(POLL_S)
    except subprocess.TimeoutExpired:  # it printed too long, or closed its stdout and goes on
        process.kill()
        process.wait()
    meanwhile()
    return text.decode("utf-8", "replace")


def _read(
    process: subprocess.Popen[bytes], patience_s: float, enough: Callable[[bytes], bool], meanwhile: Callable[[], None]
) -> bytes:
    assert process.stdout is not None
    until = time.monotonic() + patience_s
    so_far = b""
    with selectors.DefaultSelector() as selector:
        selector.register(process.stdout, selectors.EVENT_READ)
        while not enough(so_far) and (left := until - time.monotonic()) > 0:
            meanwhile()
            for key, _ in selector.select(min(left, POLL_S)):
                part = os.read(key.fd, 1 << 16)
                if not part:
                    return so_far
                so_far += part
    return so_far
