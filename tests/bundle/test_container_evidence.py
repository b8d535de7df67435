"""Bundles of what a cluster of containers keeps: logs of runtimes and kubectl's JSON; what the first line of the verdict says."""

import json
from pathlib import Path

from hangdog.offline import triage
from hangdog_models.views.first_line import headline

JOB = '[job]\nworld_size = 16\n[machines]\n"gpu-a" = "0-7"\n"gpu-b" = "8-15"\n'
ECC = "[rank9]: RuntimeError: CUDA error: uncorrectable ECC error encountered"
AT = "2026-01-02T03:04:05.678901234Z"


def first_line(folder: Path, name: str, text: str) -> str:
    (folder / "job.toml").write_text(JOB, encoding="utf-8")
    (folder / name).write_text(text, encoding="utf-8")
    return headline(triage(folder))


def test_a_rank_in_dockers_log_is_on_its_machine(tmp_path: Path) -> None:
    lines = [json.dumps({"log": f"{line}\n", "stream": "stderr", "time": AT}) for line in ("step 1", ECC)]
    said = first_line(tmp_path, "4f1c-json.log", "\n".join(lines) + "\n")
    assert said == "machine: gpu-b holds the job up (97% sure). Evict gpu-b."


def test_a_rank_in_a_log_of_the_cri_is_on_its_machine(tmp_path: Path) -> None:
    said = first_line(tmp_path, "0.log", f"{AT} stdout F step 1\n{AT} stderr F {ECC}\n")
    assert said == "machine: gpu-b holds the job up (97% sure). Evict gpu-b."


def nodes(*states: tuple[str, str]) -> str:
    items = [
        {"kind": "Node", "metadata": {"name": name}, "status": {"conditions": [{"type": "Ready", "status": ready}]}}
        for name, ready in states
    ]
    return json.dumps({"apiVersion": "v1", "kind": "List", "items": items}, indent=4)


def test_a_node_that_kubernetes_lost_is_named_as_its_text_names_it(tmp_path: Path) -> None:
    said = first_line(tmp_path, "nodes.json", nodes(("gpu-a", "True"), ("gpu-b", "Unknown"), ("cpu-7", "Unknown")))
    (tmp_path / "nodes.json").unlink()
    rows = "NAME    STATUS     ROLES    AGE   VERSION\ngpu-a   Ready      <none>   9d    v1.30.1\ngpu-b   NotReady   <none>   9d    v1.30.1\n"
    assert said == first_line(tmp_path, "nodes.txt", rows) and said.startswith("machine: ") and "gpu-b" in said


def test_nodes_of_other_jobs_are_no_news(tmp_path: Path) -> None:
    said = first_line(tmp_path, "nodes.json", nodes(("gpu-a", "True"), ("cpu-7", "Unknown")))
    assert said.startswith("undetermined") and "cpu-7" not in said
