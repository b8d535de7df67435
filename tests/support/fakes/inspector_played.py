"""A played trainer that writes files as NCCL Inspector does (NVIDIA/nccl, plugins/profiler/inspector: v4.2), and keeps them open."""

import contextlib
import os
import subprocess
from collections.abc import Iterator
from pathlib import Path

from support.fakes import targets
from support.fakes.dumper import own_job

#: Each tenth of a second the training completes four operations and another communicator one, until `hang` lies in its folder;
#: then only the other one goes on. It writes `json`, `prometheus` or `totals`: Prometheus text, the latter with what is counted.
PROGRAM = """
import json, os, socket, sys, threading, time
folder, rank, form, polls = sys.argv[1], int(sys.argv[2]), sys.argv[3], sys.argv[4]
train = side = 0

def lines(identity, name, size, kind, performances):
    header = {"id": identity, "comm_name": name, "rank": rank % size, "n_ranks": size, "nnodes": 1}
    metadata = {
        "inspector_output_format_version": "v4.2", "git_rev": "", "rec_mechanism": "nccl_profiler_interface",
        "dump_timestamp_us": time.time_ns() // 1000, "hostname": socket.gethostname(), "pid": os.getpid(),
    }
    head = {"header": header, "metadata": metadata}
    yield head | {"dump_stats": {"coll_records": len(performances), "coll_dropped_total": 0, "p2p_records": 0}}
    for one in performances:
        yield head | {kind: one}

def coll(function, number):
    return {
        "coll": function, "coll_algo": "RING", "coll_proto": "SIMPLE", "coll_sn": number, "coll_msg_size_bytes": 1 << 20,
        "coll_exec_time_us": 900, "coll_timing_source": "kernel_gpu", "coll_algobw_gbs": 1.1, "coll_busbw_gbs": 2.2,
    }

def json_dumps():
    file = open(f"{folder}/{socket.gethostname()}-pid{os.getpid()}.log", "w")
    def dump(trained):
        first = {"p2p": "Send", "p2p_sn": side, "p2p_peer": 1, "p2p_msg_size_bytes": 1 << 20, "p2p_exec_time_us": 9}
        second = [coll("AllReduce", number) for number in range(train - 4, train)] if trained else []
        made = [*lines("0xab", "unknown", 2, "p2p_perf", [first])]
        made += lines("0x700885418fd77bcf", "data", 8, "coll_perf", second) if trained else []
        file.write("".join(json.dumps(line, separators=(",", ":")) + "\\n" for line in made))
        file.flush()
    return dump

def prometheus_dumps():
    device = 'version="v6.1",slurm_job_id="unknown",node="a",gpu="GPU0"'
    labels = device + ',comm_name="data",n_nodes="1",nranks="8",collective="AllReduce",message_size="1-2MB",algo_proto="RING_SIMPLE"'
    open_files = []
    def dump(trained):
        if not trained and form == "prometheus":
            return
        for file in open_files:
            file.close()
        file = open(f"{folder}/nccl_inspector_metrics_01020304-0506-0708-090a-0b0c0d0e0f{rank:02x}.prom", "w")
        open_files[:] = [file]
        file.write(f"nccl_bus_bandwidth_gbs{{{labels}}} 2.2\\n" * trained)
        if form == "totals":
            file.write(f"nccl_collectives_total{{{device}}} {train}\\nnccl_collectives_dropped_total{{{device}}} 9\\n")
        file.flush()
    return dump

def write():
    global train, side
    dump = json_dumps() if form == "json" else prometheus_dumps()
    while True:
        trained = not os.path.exists(f"{folder}/hang")
        train, side = train + 4 * trained, side + 1
        dump(trained)
        time.sleep(0.1)

threading.Thread(target=write, daemon=True).start()
os.write(1, b"ready\\n")

def synchronize():
    while True:
        time.sleep(0.002)

synchronize() if polls else os.read(0, 1)
"""


@contextlib.contextmanager
def training(
    folder: Path, rank: int = 0, form: str = "json", polls: str = "", **environ: str
) -> Iterator["subprocess.Popen[bytes]"]:
    """A played trainer of two ranks, whose environment says that its Inspector writes every tenth of a second.

    Its host waits for its input, or `polls` for its device all the time, whether that hangs or not.
    """
    said = own_job() | {"RANK": str(rank), "WORLD_SIZE": "2"} | environ_of(100_000) | environ
    with targets.running(PROGRAM, os.fspath(folder), str(rank), form, polls, environ=said) as process:
        yield process


def environ_of(micros: int) -> dict[str, str]:
    """The environment of a trainer whose Inspector writes so often."""
    return {
        "NCCL_INSPECTOR_ENABLE": "1",
        "NCCL_INSPECTOR_DUMP_THREAD_INTERVAL_MICROSECONDS": str(micros),
    }
