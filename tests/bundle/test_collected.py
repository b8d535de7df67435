"""What collectors make of evidence: the output of many hosts in one file, logs exported as JSON, single compressed files."""

import bz2
import gzip
import json
import lzma
from collections.abc import Callable
from pathlib import Path

import pytest

from hangdog.evidence.collected import taken_apart
from hangdog.evidence.entry import BundleEntry
from hangdog.evidence.packed import zst
from hangdog.offline import triage
from hangdog_models.reading.collected import by_host, exported_log
from hangdog_models.reading.limits import DEFAULTS

#: Recorded: pdsh 2.34 (`pdsh -R exec -w node[1-2] …`).
PDSH = "node1: up 3 days\nnode1:   indented\nnode1: \nnode1: node1\nnode2: up 3 days\nnode2:   indented\nnode2: \nnode2: node2\n"
#: Recorded: dshbak -c of pdsh 2.34, and clush -b of ClusterShell 1.10.1.
DSHBAK = "----------------\nnode[1,3]\n----------------\nsame\n----------------\nnode2\n----------------\nsame\nother\n"
CLUSH = "---------------\nnode2\n---------------\nsame\nother\n---------------\nnode[1,3] (2)\n---------------\nsame\n"
#: Recorded: ansible-core 2.19.
ANSIBLE = "node2 | CHANGED | rc=0 >>\n  two\n\nthree\nnode1 | FAILED | rc=3 >>\nxnon-zero return code\n"
#: AWS CLI command reference, get-log-events.
CLOUDWATCH = {
    "nextForwardToken": "f/31961209122447488583055879464742346735121166569214640130",
    "events": [
        {"ingestionTime": 1433190494190, "timestamp": 1433190184356, "message": "Example Event 1"},
        {"ingestionTime": 1433190494190, "timestamp": 1433190184358, "message": "Example Event 2"},
    ],
    "nextBackwardToken": "b/31961209122358285602261756944988674324553373268216709120",
}
#: Grafana Loki HTTP API, query_range: streams of pairs of nanoseconds and a line.
LOKI = {"status": "success", "data": {"resultType": "streams", "result": [
    {"stream": {"pod": "llama-0", "node_name": "gpu-1"}, "values": [["1795771258000000000", "step 3"], ["1795771259000000000", "step 4"]]},
]}}  # fmt: skip
XID = "NVRM: Xid (PCI:0000:9b:00): 79, pid=4011, name=python, GPU has fallen off the bus."
STACK = 'Process {pid}: python train.py\nPython v3.11.9 (/usr/bin/python3.11)\n\nThread {pid} (idle): "MainThread"\n{frames}'
WAITS = (
    "    all_reduce (torch/distributed/distributed_c10d.py:2806)\n    step (train.py:40)\n    <module> (train.py:90)\n"
)
LOADS = "    read (dataset.py:12)\n    __next__ (torch/utils/data/dataloader.py:733)\n    <module> (train.py:80)\n"


def test_lines_that_begin_with_a_host_are_the_hosts() -> None:
    found = by_host.by_host(PDSH)
    assert list(found) == ["node1", "node2"]
    assert found["node2"].splitlines()[0] == "up 3 days" and found["node2"].splitlines()[-1] == "node2"
    assert found["node1"].splitlines()[1:3] == ["  indented", ""]


def test_one_host_alone_is_one_where_its_system_log_names_it_again() -> None:
    lines = f"gpu-b02: Nov 27 10:20:58 gpu-b02 kernel: {XID}\ngpu-b02: 2026-11-27T10:20:59+00:00 gpu-b02 kernel: next\n"
    assert list(by_host.by_host(lines)) == ["gpu-b02"]
    for other in (lines.replace(": Nov", ": on Nov"), lines.replace(" gpu-b02 ", " gpu-b03 "), "loss: 3\nloss: 4\n"):
        assert by_host.by_host(other) == {}


@pytest.mark.parametrize("text", [DSHBAK, CLUSH])
def test_blocks_of_hosts_that_printed_the_same_are_each_hosts(text: str) -> None:
    found = {host: said.split() for host, said in by_host.by_host(text).items()}
    assert found == {"node1": ["same"], "node3": ["same"], "node2": ["same", "other"]}


def test_ansible_names_the_host_before_its_output() -> None:
    found = by_host.by_host("[WARNING]: Host 'node2' is using the discovered Python interpreter\n" + ANSIBLE)
    assert found["node2"].startswith("  two\n\nthree") and found["node1"].startswith("xnon-zero")


@pytest.mark.parametrize(
    "text",
    [
        "".join(f"rank{rank}: step {step}\n" for step in range(5) for rank in range(4)),
        "name: gpu-1\nstate: up\nmodel: H100\nserial: 3\n",
        "INFO: a\nINFO: b\nWARNING: c\nERROR: d\n",
        "kernel: a\nkernel: b\nkernel: c\n",
        "gpu-1:57:59 [0] NCCL INFO a\ngpu-1:57:59 [0] NCCL INFO b\ngpu-2:57:59 [0] NCCL INFO a\ngpu-2:57:59 [0] NCCL INFO b\n",
        "Thread 1: x\nloss: 3\n",
        "---\n- hosts: gpu\n---\n",
        "0: a\n1: b\n0: c\n1: d\n",
        "2026-11-27T10:31:02: a\n2026-11-27T10:31:03: b\n",
        "",
    ],
)
def test_what_is_no_output_of_hosts_stays_whole(text: str) -> None:
    assert by_host.by_host(text) == {}


def test_an_export_is_its_lines_with_their_times() -> None:
    (log,) = exported_log.read(json.dumps(CLOUDWATCH))
    assert log.text == "2015-06-01T20:23:04Z Example Event 1\n2015-06-01T20:23:04Z Example Event 2\n"
    (log,) = exported_log.read(json.dumps(LOKI))
    assert (log.host, log.pod, log.text.splitlines()[1]) == ("gpu-1", "llama-0", "2026-11-27T09:20:59Z step 4")


@pytest.mark.parametrize(
    "record",
    [
        {"textPayload": "step 3", "timestamp": "2026-11-27T09:20:58Z", "resource": {"labels": {"pod_name": "llama-0"}}},
        {"_source": {"message": "step 3", "@timestamp": "2026-11-27T09:20:58.000Z", "kubernetes": {"pod": "llama-0"}}},
        {"preview": False, "result": {"_raw": "step 3", "_time": "2026-11-27T09:20:58.000+00:00", "pod": "llama-0"}},
        {"timestamp": "2026-11-27T09:20:58.1Z", "labels": {"pod": "llama-0"}, "line": "step 3"},
    ],
)
@pytest.mark.parametrize("many", [json.dumps, lambda records: "\n".join(map(json.dumps, records))])
def test_records_of_other_services_are_read_alike(record: object, many: Callable[[object], str]) -> None:
    (log,) = exported_log.read(many([record, record]))
    assert (log.host, log.pod, log.text) == ("", "llama-0", "2026-11-27T09:20:58Z step 3\n" * 2)


@pytest.mark.parametrize(
    "document",
    [
        {"version": "2.9", "pg_config": {}, "entries": [{"message": "a"}]},
        {"kind": "List", "apiVersion": "v1", "items": [{"message": "a"}]},
        [{"log": "step 3\n", "stream": "stderr", "time": "2026-01-02T03:04:05.6Z"}],
        [{"loss": 3.0}, {"message": "a"}],
        {"message": 3},
        [],
    ],
)
def test_other_documents_are_left_to_their_readers(document: object) -> None:
    assert exported_log.read(json.dumps(document)) == ()


def test_the_journal_of_a_kernel_as_json_names_its_machine(tmp_path: Path) -> None:
    record = {
        "__REALTIME_TIMESTAMP": "1795771258000000",
        "_HOSTNAME": "gpu-b02",
        "_TRANSPORT": "kernel",
        "MESSAGE": XID,
    }
    (tmp_path / "journal.json").write_text(
        json.dumps(record) + "\n" + json.dumps({**record, "MESSAGE": "usb 1-1: new"})
    )
    assert triage(tmp_path).suspects[0].machines == ("gpu-b02",)


def test_dumps_of_two_hosts_in_one_file_name_the_host_that_others_wait_for(tmp_path: Path) -> None:
    said = []
    for pid in range(8):
        host, frames = f"gpu-b0{1 + pid // 4}", LOADS if pid == 6 else WAITS
        said += [f"{host}: {line}" for line in STACK.format(pid=100 + pid, frames=frames).splitlines()]
    (tmp_path / "dumps.txt").write_text("\n".join(said) + "\n")
    verdict = triage(tmp_path)
    assert verdict.coverage.captured == 8
    assert verdict.suspects[0].machines == ("gpu-b02",) and not verdict.evict.machines


@pytest.mark.parametrize(
    ("ending", "pack"),
    [(".gz", gzip.compress), (".bz2", bz2.compress), (".xz", lzma.compress), (".zst", zst.zstd.compress)],
)
def test_a_single_compressed_file_is_the_file_inside(ending: str, pack: Callable[[bytes], bytes]) -> None:
    data = XID.encode() * 100
    (found,) = taken_apart(BundleEntry(f"a/rank0.txt{ending}", pack(data)), DEFAULTS)
    assert (found.path, found.data, found.problem) == ("a/rank0.txt", data, "")


def test_a_compressed_file_is_bounded_and_damage_is_a_reason() -> None:
    bomb = gzip.compress(bytes(DEFAULTS.file_bytes + 1))
    (found,) = taken_apart(BundleEntry("rank0.txt.gz", bomb), DEFAULTS)
    assert found.problem and not found.data
    (cut,) = taken_apart(BundleEntry("rank0.txt.gz", gzip.compress(XID.encode())[:-9]), DEFAULTS)
    assert cut.problem.startswith("damaged")


def test_an_output_that_a_thousand_hosts_share_is_not_copied_a_thousand_times() -> None:
    rule, output = "-" * 16, "x" * 10_000
    assert by_host.by_host(f"{rule}\nnode[1-1000]\n{rule}\n{output}\n") == {}
    assert len(by_host.by_host(f"{rule}\nnode[1-8]\n{rule}\n{output}\n")) == 8
