"""The readers of foreign evidence, each as a function of bytes."""

from collections.abc import Callable
from functools import cache
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any

from hangdog.evidence.content import read_contents
from hangdog.evidence.naming import name_of, number_of
from hangdog.evidence.packed.archive import archive_entries
from hangdog_models.numbers.number_watch import USUAL, NumberWatch
from hangdog_models.ranks import Rank
from hangdog_models.reading import job, stated_stall
from hangdog_models.reading.collected import by_host, exported_log
from hangdog_models.reading.collectives import (
    flight_recorder,
    inspected_progress,
    inspector,
    nccl_diag,
    nccl_tests,
    plain_pickle,
    progress_json,
    ras_events,
    ras_json,
    ras_text,
)
from hangdog_models.reading.hardware import (
    amd_smi,
    dcgm,
    dcgm_table,
    findings_json,
    ib_ports,
    kernel_log,
    npu_smi,
    nvidia_smi,
    nvlink,
    pci_devices,
    rdma_link,
    test_report,
)
from hangdog_models.reading.json_document import read_json
from hangdog_models.reading.limits import DEFAULTS
from hangdog_models.reading.logs import (
    container_log,
    error_file,
    kubernetes_json,
    kubernetes_text,
    training_log,
)
from hangdog_models.reading.logs.slurm import slurm_controller, slurm_text
from hangdog_models.reading.numbers import number_line, work_line
from hangdog_models.reading.processes import proc_files, process_table, strace
from hangdog_models.reading.stacks import (
    capture_failure,
    eu_stack,
    faulthandler,
    interrupted,
    kernel_stack,
    perf_script,
    proc_status,
    pyspy,
    pyspy_raw,
    pyspy_text,
    pystack,
    stack_text,
    thread_dump,
)
from hangdog_models.reading.stacks.debuggers import gdb, gdb_python, lldb
from hangdog_models.reading.stacks.samplers import austin
from hangdog_models.reading.wrapped import rejoined

Target = Callable[[bytes], object]


def _text(read: Callable[[str], object]) -> Target:
    return lambda data: read(data.decode("utf-8", "replace"))


def _document(read: Callable[[Any], object]) -> Target:
    return lambda data: read(read_json(data.decode("utf-8", "replace")))


def _nvidia_smi(text: str) -> object:
    part = nvidia_smi.before_log(text)
    assert text.startswith(part)
    return nvidia_smi.recognises(text), nvidia_smi.read(text)


def _amd_smi(text: str) -> object:
    return amd_smi.recognises(text), amd_smi.read(text)


def _npu_smi(text: str) -> object:
    return npu_smi.recognises(text), npu_smi.read(text)


def _rdma_link(text: str) -> object:
    return rdma_link.recognises(text), rdma_link.read(text)


def _ib_ports(text: str) -> object:
    return ib_ports.recognises(text), ib_ports.read(text)


def _exported_log(text: str) -> object:
    return exported_log.recognises(text), exported_log.read(text)


def _pci_devices(text: str) -> object:
    return pci_devices.recognises(text), pci_devices.read(text)


def _nvlink(text: str) -> object:
    return nvlink.recognises(text), nvlink.read(text)


def _nccl_tests(text: str) -> object:
    return nccl_tests.recognises(text), nccl_tests.read(text)


def _kernel_log(text: str) -> object:
    return kernel_log.recognises(text), kernel_log.read(text)


def _ras(text: str) -> object:
    return ras_text.recognises(text), ras_text.read(text)


def _log(text: str) -> object:
    read = training_log.read(text, None), training_log.read(text, Rank(3)), stated_stall.read(text)
    return training_log.recognises(text), read


def _numbers(text: str) -> object:
    watch = NumberWatch(USUAL)
    for line in text.splitlines():
        work_line.read(line)
    return [alarm.text for line in number_line.lines(text) for alarm in watch.take(line)]


def _faulthandler(text: str) -> object:
    return faulthandler.recognises(text), faulthandler.read(text), faulthandler.read(text, Rank(3))


def _interrupted(text: str) -> object:
    return interrupted.recognises(text), interrupted.read(text), interrupted.read(text, Rank(3))


def _thread_dump(text: str) -> object:
    return thread_dump.recognises(text), thread_dump.read(text), thread_dump.read(text, Rank(3))


def _lldb(text: str) -> object:
    return lldb.recognises(text), lldb.read(text)


def _process_table(text: str) -> object:
    return process_table.recognises(text), process_table.read(text)


def _strace(text: str) -> object:
    return strace.recognises(text), strace.read(text)


def _proc_files(text: str) -> object:
    return proc_files.recognises(text), proc_files.read(text)


def _austin(text: str) -> object:
    return austin.recognises(text), austin.read(text)


def _gdb(text: str) -> object:
    return gdb.recognises(text), gdb.read(text)


def _stack_text(text: str) -> object:
    return stack_text.form_of(text), stack_text.read(text)


def _nccl_diag(text: str) -> object:
    diagnosed = nccl_diag.read(text)
    return nccl_diag.recognises(text), [*nccl_diag.of_job(diagnosed, 0), *nccl_diag.of_job(diagnosed, 8)]


def _inspected_progress(text: str) -> object:
    return inspected_progress.totals(text), [one.count for one in inspected_progress.completed(text)]


def _slurm(text: str) -> object:
    return slurm_text.recognises(text), slurm_text.read(text)


def _slurm_controller(text: str) -> object:
    return slurm_controller.recognises(text), slurm_controller.read(text)


def _container_log(text: str) -> object:
    return container_log.recognises(text), container_log.plain(container_log.joined(text))


def _kubernetes(text: str) -> object:
    return kubernetes_text.recognises(text), kubernetes_text.read(text)


def _dcgm(document: Any) -> object:
    return dcgm.recognises(document), dcgm.sound(document), dcgm.read(document)


def _naming(path: str) -> object:
    return number_of(path), name_of(path)


@cache
def _folder() -> TemporaryDirectory[str]:
    return TemporaryDirectory()


def _archive(data: bytes) -> object:
    file = Path(_folder().name) / "packed"
    file.write_bytes(data)
    return list(archive_entries(file, DEFAULTS, lambda done, total: None))


def _wrapped(text: str) -> object:
    whole = rejoined(text)
    assert sum(map(str.isalnum, whole)) == sum(map(str.isalnum, text))
    return whole


TARGETS: dict[str, Target] = {
    "pyspy": _document(pyspy.read),
    "pyspy_text": _text(pyspy_text.read),
    "pystack": _text(pystack.read),
    "gdb": _text(_gdb),
    "gdb_python": _text(gdb_python.read),
    "lldb": _text(_lldb),
    "eu_stack": _text(eu_stack.read),
    "kernel_stack": _text(kernel_stack.read),
    "perf_script": _text(perf_script.read),
    "pyspy_raw": _text(pyspy_raw.read),
    "austin": _text(_austin),
    "faulthandler": _text(_faulthandler),
    "interrupted": _text(_interrupted),
    "thread_dump": _text(_thread_dump),
    "numbers": _text(_numbers),
    "stack_text": _text(_stack_text),
    "flight_recorder": _document(lambda document: flight_recorder.read(document, Rank(0))),
    "progress_json": _document(progress_json.read),
    "plain_pickle": lambda data: plain_pickle.read_pickle(b"\x80\x04" + data),
    "ras": _text(_ras),
    "ras_events": _text(ras_events.read),
    "nccl_diag": _text(_nccl_diag),
    "inspector": _text(inspector.read),
    "inspected_progress": _text(_inspected_progress),
    "ras_json": _document(ras_json.read),
    "ras_mended": lambda data: ras_json.read(read_json(ras_json.repaired(data.decode("utf-8", "replace")))),
    "wrapped": _text(_wrapped),
    "log": _text(_log),
    "error_file": _document(lambda document: error_file.read(document, None, 3)),
    "slurm": _text(_slurm),
    "slurm_controller": _text(_slurm_controller),
    "kubernetes": _text(_kubernetes),
    "kubernetes_json": _document(kubernetes_json.read),
    "container_log": _text(_container_log),
    "kernel_log": _text(_kernel_log),
    "nvidia_smi": _text(_nvidia_smi),
    "amd_smi": _text(_amd_smi),
    "amd_smi_json": _document(amd_smi.read_document),
    "npu_smi": _text(_npu_smi),
    "rdma_link": _text(_rdma_link),
    "ib_ports": _text(_ib_ports),
    "pci_devices": _text(_pci_devices),
    "nvlink": _text(_nvlink),
    "nccl_tests": _text(_nccl_tests),
    "dcgm": _document(_dcgm),
    "dcgm_table": _text(lambda text: dcgm.read(dcgm_table.read(text))),
    "diagnosis": _text(test_report.read_diagnosis),
    "findings_json": _document(findings_json.read),
    "proc": _document(proc_status.read),
    "proc_status": _text(proc_status.read_status),
    "process_table": _text(_process_table),
    "strace": _text(_strace),
    "proc_files": _text(_proc_files),
    "failure": _text(capture_failure.read),
    "job": _text(job.read_job),
    "rounds": _text(job.read_interval),
    "sizes": _text(job.read_sizes),
    "naming": _text(_naming),
    "by_host": _text(by_host.by_host),
    "exported_log": _text(_exported_log),
    "archive": _archive,
    "content": lambda data: read_contents(name_of("machine-a/x"), data, DEFAULTS),
}
