"""The readers of foreign evidence, each as a function of bytes."""

from collections.abc import Callable
from typing import Any

from hangdog.evidence.content import read_content
from hangdog.evidence.naming import name_of
from hangdog_models.ranks import Rank
from hangdog_models.reading import (
    dcgm,
    diagnosis,
    failure,
    findings_json,
    flight_recorder,
    gdb,
    job,
    kernel_log,
    log,
    nvidia_smi,
    plain_pickle,
    proc,
    pyspy,
    pyspy_text,
    pystack,
    ras,
    ras_json,
)
from hangdog_models.reading.document import read_json
from hangdog_models.reading.limits import DEFAULTS

Target = Callable[[bytes], object]


def _text(read: Callable[[str], object]) -> Target:
    return lambda data: read(data.decode("utf-8", "replace"))


def _document(read: Callable[[Any], object]) -> Target:
    return lambda data: read(read_json(data.decode("utf-8", "replace")))


def _nvidia_smi(text: str) -> object:
    return nvidia_smi.recognises(text), nvidia_smi.read(text)


def _kernel_log(text: str) -> object:
    return kernel_log.recognises(text), kernel_log.read(text)


def _ras(text: str) -> object:
    return ras.recognises(text), ras.read(text)


def _log(text: str) -> object:
    return log.recognises(text), log.read(text, None), log.read(text, Rank(3))


TARGETS: dict[str, Target] = {
    "pyspy": _document(pyspy.read),
    "pyspy_text": _text(pyspy_text.read),
    "pystack": _text(pystack.read),
    "gdb": _text(gdb.read),
    "flight_recorder": _document(lambda document: flight_recorder.read(document, Rank(0))),
    "plain_pickle": lambda data: plain_pickle.read_pickle(b"\x80\x04" + data),
    "ras": _text(_ras),
    "ras_json": _document(ras_json.read),
    "ras_mended": lambda data: ras_json.read(read_json(ras_json.repaired(data.decode("utf-8", "replace")))),
    "log": _text(_log),
    "kernel_log": _text(_kernel_log),
    "nvidia_smi": _text(_nvidia_smi),
    "dcgm": _document(dcgm.read),
    "diagnosis": _text(diagnosis.read_diagnosis),
    "findings_json": _document(findings_json.read),
    "proc": _document(proc.read),
    "proc_status": _text(proc.read_status),
    "failure": _text(failure.read),
    "job": _text(job.read_job),
    "content": lambda data: read_content(name_of("machine-a/x"), data, DEFAULTS),
}
