"""Bundles of what a cluster of containers keeps: logs of runtimes and kubectl's JSON; what the verdict says."""

import json
from pathlib import Path

from hangdog.offline import triage
from hangdog_models.verdict import Kind, Verdict
from hangdog_models.views.first_line import headline
from support.cases.reasons import codes

JOB = '[job]\nworld_size = 16\n[machines]\n"gpu-a" = "0-7"\n"gpu-b" = "8-15"\n'
ECC = "[rank9]: RuntimeError: CUDA error: uncorrectable ECC error encountered"
AT = "2026-01-02T03:04:05.678901234Z"


def judged(folder: Path, name: str, text: str) -> Verdict:
    (folder / "job.toml").write_text(JOB, encoding="utf-8")
    (folder / name).write_text(text, encoding="utf-8")
    return triage(folder)


def convicts_its_machine(verdict: Verdict) -> bool:
    """Whether it is what a broken device of rank 9 shows."""
    (suspect,) = verdict.suspects
    assert (suspect.ranks, suspect.machines, codes(verdict.because)) == ((9,), ("gpu-b",), ("hardware-broken",))
    return (verdict.kind, verdict.evict.machines, verdict.confidence > 0.95) == (Kind.MACHINE, ("gpu-b",), True)


def test_a_rank_in_dockers_log_is_on_its_machine(tmp_path: Path) -> None:
    lines = [json.dumps({"log": f"{line}\n", "stream": "stderr", "time": AT}) for line in ("step 1", ECC)]
    assert convicts_its_machine(judged(tmp_path, "4f1c-json.log", "\n".join(lines) + "\n"))


def test_a_rank_in_a_log_of_the_cri_is_on_its_machine(tmp_path: Path) -> None:
    assert convicts_its_machine(judged(tmp_path, "0.log", f"{AT} stdout F step 1\n{AT} stderr F {ECC}\n"))


def nodes(*states: tuple[str, str]) -> str:
    items = [
        {"kind": "Node", "metadata": {"name": name}, "status": {"conditions": [{"type": "Ready", "status": ready}]}}
        for name, ready in states
    ]
    return json.dumps({"apiVersion": "v1", "kind": "List", "items": items}, indent=4)


def test_a_node_that_kubernetes_lost_is_named_as_its_text_names_it(tmp_path: Path) -> None:
    lost = judged(tmp_path, "nodes.json", nodes(("gpu-a", "True"), ("gpu-b", "Unknown"), ("cpu-7", "Unknown")))
    (tmp_path / "nodes.json").unlink()
    rows = "NAME    STATUS     ROLES    AGE   VERSION\ngpu-a   Ready      <none>   9d    v1.30.1\ngpu-b   NotReady   <none>   9d    v1.30.1\n"
    assert headline(lost) == headline(judged(tmp_path, "nodes.txt", rows))
    assert (lost.kind, [one.machines for one in lost.suspects]) == (Kind.MACHINE, [("gpu-b",)])


def test_nodes_of_other_jobs_are_no_news(tmp_path: Path) -> None:
    verdict = judged(tmp_path, "nodes.json", nodes(("gpu-a", "True"), ("cpu-7", "Unknown")))
    assert (verdict.kind, verdict.suspects) == (Kind.UNDETERMINED, ()) and "cpu-7" not in headline(verdict)
