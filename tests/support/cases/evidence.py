"""Files of an evidence bundle as tests make them: small, but in the very formats of the tools."""

import json


def stacks(pid: int = 100, function: str = "train", threads: int = 1) -> bytes:
    """The JSON of a py-spy dump whose main thread is in `function`."""
    frame = {
        "name": function,
        "filename": "/x/t.py",
        "short_filename": "t.py",
        "module": None,
        "line": 3,
        "locals": None,
    }
    names = ["MainThread", *(f"helper-{number}" for number in range(1, threads))]
    about = {"pid": pid, "thread_id": 1, "active": True, "owns_gil": False, "frames": [frame]}
    return json.dumps(
        [{**about, "thread_name": name, "os_thread_id": pid + at} for at, name in enumerate(names)]
    ).encode()


def text_stacks(*pids: int) -> bytes:
    """The text of py-spy dumps of these processes, one after another."""
    return "".join(
        f'Process {p}: python\nPython v3.11\n\nThread {p} (idle): "MainThread"\n    f (t.py:3)\n' for p in pids
    ).encode()


def gdb_stacks(pid: int = 100) -> bytes:
    """The text of gdb with a main thread that synchronises a stream, and a helper."""
    return (
        f'Thread 2 (Thread 0x7f1 (LWP {pid + 50}) "helper"):\n#0  0x01 in poll () from /lib/libc.so.6\n\n'
        f"Thread 1 (Thread 0x7f0 (LWP {pid})):\n#0  0x02 in cudaStreamSynchronize () from /lib/libcudart.so\n"
        "#1  _PyEval_EvalFrameDefault () at ceval.c:3\n#2  main () at main.c:1\n"
    ).encode()


def state(pid: int = 100, letter: str = "S") -> bytes:
    """A `*.proc.json`."""
    return json.dumps(
        {"pid": pid, "state": letter, "wchan": "w", "syscall": "", "cpu_s": 1, "comm": "", "cmdline": ""}
    ).encode()


def flight(enqueued: int = 5, completed: int = 4) -> bytes:
    """A flight recorder dump as JSON."""
    counts = {
        "last_enqueued_collective": enqueued,
        "last_started_collective": -1,
        "last_completed_collective": completed,
    }
    return json.dumps({"version": "2.10", "pg_config": {}, "pg_status": {"0": counts}, "entries": []}).encode()
