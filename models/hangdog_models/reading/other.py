"""Tells kinds of evidence that no reader of ours reads yet, so that they are listed as what they are."""

import re

RAS = "NCCL RAS report"
_TEXTS = tuple(
    (re.compile(pattern, re.MULTILINE), kind)
    for pattern, kind in (
        (r"NVSMI LOG|^Attached GPUs|<nvidia_smi_log>", "nvidia-smi query"),
        (r"^(?:Communicators\.\.\.|Job summary|#\d+-\d+ \()|\"communicators(?:_count)?\":", RAS),
        (r"NVRM: |SXid \(|Out of memory: Kill|blocked for more than|nfs: server", "kernel log"),
        (r"ProcessGroupNCCL|Watchdog caught|NCCL (?:WARN|INFO)|NCCL error|CUDA error|DistBackendError", "training log"),
        (r"worker_count=|Last enqueued|Detected mismatch between collectives|\[c10d\]", "training log"),
    )
)


def kind_of(head: str) -> str:
    """The kind of evidence a text is, by its beginning; empty when it is none that we know."""
    return next((kind for pattern, kind in _TEXTS if pattern.search(head)), "")


def kind_of_document(document: object) -> str:
    """The kind of evidence a JSON document is; empty when it is none that we know."""
    if not isinstance(document, dict):
        return ""
    if "communicators" in document:
        return RAS
    return "DCGM diagnosis" if any(str(k).startswith("DCGM") and "Diagnostic" in str(k) for k in document) else ""
