"""A played rank: it has no GPU, and behaves at its FIFO and its dump as the monitor thread of PyTorch's ProcessGroupNCCL does.

As that does it makes its FIFO itself, looks at it again and again (every 20 ms instead of every second), and on any byte
writes all of its record over the dump of the time before. What can go wrong on the way is played on demand.
"""

import base64
import itertools
import json
import os
import pickle  # noqa: TID251  # forges what PyTorch writes; only our own reader reads it
import subprocess
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from support.fakes.targets import running

#: How it answers a poke: `at once`, `late` (after 0.4 s), `never`, `in halves` (0.3 s apart), `half` and no more, or
#: `touch` (the old dump is looked at, and stays as it is). `deaf` never reads its FIFO. `by itself` does not either, and has
#: written its record at once, as of its own thread and its own time; `by another` likewise, as of a thread it does not have.
DUMPER = """
import os, pickle, select, sys, threading, time
pipe, dump, record, how = sys.argv[1:5]
if how in ("by itself", "by another"):
    document = pickle.load(open(record, "rb"))
    for entry in document["entries"]:
        elsewhere = how == "by another"
        entry |= {"thread_id": str(threading.get_ident() ^ elsewhere << 45), "time_created_ns": time.time_ns()}
    pickle.dump(document, open(dump, "wb"), protocol=2)
if pipe:
    os.mkfifo(pipe)
    door = os.open(pipe, os.O_RDONLY | os.O_NONBLOCK)
record = open(record, "rb").read()
def write(*parts):
    with open(dump, "wb", buffering=0) as file:
        for number, part in enumerate(parts):
            time.sleep(0.3 * bool(number))
            file.write(part)
os.write(1, b"ready\\n")
while not select.select([0], [], [], 0.02)[0]:
    try:
        poked = pipe and how not in ("deaf", "by itself", "by another") and os.read(door, 128)
    except BlockingIOError:
        continue
    if not poked or how == "never":
        continue
    if how == "late":
        time.sleep(0.4)
    half = len(record) // 2
    write(*{"in halves": (record[:half], record[half:]), "half": (record[:half],)}.get(how, (record,)))
"""


#: What goes before a played rank's program: it plays PyTorch's worker server at the socket its environment names, in a
#: thread of its own, as `PLAYED_WORKER_SERVER` says: what each handler answers. A handler it does not know is a 404; without
#: any it is silent, as one whose process is stopped: the kernel takes the connection, nobody answers.
SERVING = """
import base64, json, os, socket, threading
def serve(listening, handlers):
    while True:
        line, _ = listening.accept()
        path = line.makefile("rb").readline().split()[1].decode().removeprefix("/handler/")
        content = handlers.get(path)
        status = b"404 Not Found" if content is None else b"200 OK"
        content = content or b""
        line.sendall(b"HTTP/1.0 %s\\r\\nContent-Length: %d\\r\\n\\r\\n" % (status, len(content)) + content)
        line.close()
played = json.loads(os.environ["PLAYED_WORKER_SERVER"])
listening = socket.socket(socket.AF_UNIX)
os.chdir(os.path.dirname(os.environ["TORCH_WORKER_SERVER_SOCKET"]))
listening.bind(os.path.basename(os.environ["TORCH_WORKER_SERVER_SOCKET"]))
listening.listen(8)
if played:
    handlers = {name: base64.b64decode(content) for name, content in played.items()}
    threading.Thread(target=serve, args=(listening, handlers), daemon=True).start()
"""


def serving(path: Path, **handlers: bytes) -> dict[str, str]:
    """The environment of a rank that begins with `SERVING`."""
    played = {name: base64.b64encode(content).decode() for name, content in handlers.items()}
    return {"TORCH_WORKER_SERVER_SOCKET": str(path), "PLAYED_WORKER_SERVER": json.dumps(played)}


def pickled(enqueued: int, completed: int) -> bytes:
    """A flight record as PyTorch writes it into its dump."""
    counts = {
        "last_enqueued_collective": enqueued,
        "last_started_collective": completed,
        "last_completed_collective": completed,
    }
    entry = {
        "pg_id": 0,
        "process_group": ("0", "default_pg"),
        "collective_seq_id": enqueued,
        "profiling_name": "nccl:all_reduce",
        "state": "scheduled",
        "retired": False,
        "is_p2p": False,
        "frames": [{"name": "step", "filename": "train.py", "line": 7}],
    }
    config = {"0": {"name": "0", "desc": "default_pg", "ranks": "[0, 1]"}}
    document = {"version": "2.10", "pg_config": config, "pg_status": {"0": counts}, "entries": [entry]}
    return pickle.dumps(document, protocol=2)


_jobs = itertools.count()


def own_job() -> dict[str, str]:
    """The environment of a job that nobody else has, so that ranks of other tests are never taken for its own."""
    return {"HANGDOG_JOB": f"played-{os.getpid()}-{next(_jobs)}"}


@contextmanager
def played(
    folder: Path, rank: int, record: bytes, how: str = "at once", **environ: str
) -> Iterator["subprocess.Popen[bytes]"]:
    """A played rank whose FIFO and dump lie in `folder`, and whose environment says so as a job's does."""
    said = own_job() | {
        "RANK": str(rank),
        "LOCAL_RANK": str(rank),
        "TORCH_NCCL_DEBUG_INFO_PIPE_FILE": f"{folder}/pipe-",
        "TORCH_NCCL_DEBUG_INFO_TEMP_FILE": f"{folder}/dump-",
    }
    given = folder / f"record-{rank}"
    given.write_bytes(record)
    places = (f"{folder}/pipe-{rank}.pipe", f"{folder}/dump-{rank}", str(given))
    program = SERVING + DUMPER if "PLAYED_WORKER_SERVER" in environ else DUMPER
    with running(program, *places, how, environ=said | environ) as process:
        yield process


def recorded(enqueued: int, completed: int) -> bytes:
    """The same record as the worker server gives it."""
    counts = {
        name: str(number)
        for name, number in (("last_enqueued_collective", enqueued), ("last_completed_collective", completed))
    }
    entry = {"pg_id": 0, "process_group": ["0", "default_pg"], "collective_seq_id": enqueued, "retired": False}
    return json.dumps({"version": "2.10", "pg_config": {}, "pg_status": {"0": counts}, "entries": [entry]}).encode()
