"""The table of exit statuses, provoked row by row with the real command."""

import json
import os
import socket
import subprocess
import sys
from pathlib import Path

import pytest

pytestmark = [pytest.mark.slow, pytest.mark.parallel]

#: Frames innermost first, as py-spy writes them: (function, file).
Frames = list[tuple[str, str]]

LOOP: Frames = [("main", "train.py"), ("<module>", "train.py")]
REDUCING: Frames = [("all_reduce", "torch/distributed/distributed_c10d.py"), ("step", "train.py"), *LOOP]
LOADING: Frames = [("__next__", "torch/utils/data/dataloader.py"), ("batch", "train.py"), *LOOP]
COMPUTING: Frames = [("forward", "torch/nn/modules/linear.py"), ("step", "train.py"), *LOOP]
UNHEARD_OF: Frames = [("ponder", "oracle.py")]


def run(*args: str | Path, **environment: str) -> subprocess.CompletedProcess[str]:
    return subprocess.run(
        [sys.executable, "-m", "hangdog", *args],
        capture_output=True,
        text=True,
        env=os.environ | environment,
        check=False,
        timeout=60,
    )


def bundle(folder: Path, *rounds: list[Frames]) -> Path:
    """A bundle of py-spy dumps: one list of stacks a round, one stack a rank."""
    for number, stacks in enumerate(rounds):
        (folder / f"round-{number}").mkdir(parents=True)
        for rank, frames in enumerate(stacks):
            thread = {
                "pid": 100 + rank,
                "thread_id": 1,
                "thread_name": "MainThread",
                "os_thread_id": 100 + rank,
                "active": False,
                "owns_gil": False,
                "frames": [
                    {"name": name, "filename": file, "short_filename": file, "module": None, "line": 1, "locals": None}
                    for name, file in frames
                ],
            }
            (folder / f"round-{number}" / f"rank{rank}.json").write_text(json.dumps([thread]), encoding="utf-8")
    (folder / "job.toml").write_text("[job]\nid = 'x'\n[topology]\ndp = 4\ngpus_per_node = 1\n", encoding="utf-8")
    return folder


@pytest.mark.parametrize(
    ("rounds", "verdict", "status"),
    [
        ([[COMPUTING] * 4, [REDUCING] * 4, [COMPUTING] * 4], "none", 0),
        ([[REDUCING, REDUCING, LOADING, REDUCING]] * 3, "machine", 1),
        ([[UNHEARD_OF] * 4], "undetermined", 2),
    ],
)
def test_a_verdict_is_told_by_the_status(tmp_path: Path, rounds: list[list[Frames]], verdict: str, status: int) -> None:
    asked = run("triage", "--format", "json", bundle(tmp_path / "bundle", *rounds))
    assert (json.loads(asked.stdout)["verdict"], asked.returncode) == (verdict, status), asked.stdout


def test_64_for_what_is_not_there_or_not_asked_rightly(tmp_path: Path) -> None:
    for args in (["triage", tmp_path / "nowhere"], ["triage"], ["triage", "--nope", tmp_path], ["agent", "--nope"]):
        asked = run(*args)
        assert (asked.returncode, asked.stdout) == (64, ""), args
        assert asked.stderr


def test_65_for_a_bundle_without_evidence(tmp_path: Path) -> None:
    (tmp_path / "holiday.jpg").write_bytes(b"\xff\xd8\xff\xe0 sunset")
    asked = run("triage", tmp_path)
    assert (asked.returncode, asked.stdout) == (65, "")
    assert "[no-evidence]" in asked.stderr


@pytest.mark.parametrize("args", [["machines"], ["incidents"], ["show", "1"], ["snapshot"]])
def test_69_when_no_server_answers(args: list[str]) -> None:
    with socket.socket() as taken:
        taken.bind(("127.0.0.1", 0))  # bound but not listening: nobody else can take it meanwhile
        asked = run(*args, HANGDOG_SERVER=f"127.0.0.1:{taken.getsockname()[1]}")
    assert (asked.returncode, asked.stdout) == (69, ""), asked.stderr
    assert len(asked.stderr.splitlines()) == 2


def test_70_when_the_fault_is_ours(tmp_path: Path) -> None:
    """A room of ours that is gone is a broken installation, and no wrong use."""
    probe = "import sys; sys.modules['hangdog_models.topology'] = None; from hangdog.main import main; main(['triage', '.'])"
    asked = subprocess.run([sys.executable, "-c", probe], capture_output=True, text=True, check=False, cwd=tmp_path)
    assert asked.returncode == 70
    assert "[bug]" in asked.stderr
    assert "Traceback" not in asked.stderr
