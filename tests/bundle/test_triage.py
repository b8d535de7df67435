"""`hangdog triage` from the outside: what it prints, where, and the exit status."""

import json
import re
import shutil
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path

import pytest

import hangdog
from hangdog_models.diagnosis.options import Options
from hangdog_models.verdict import from_json
from support.cases.evidence import stacks, state

Fill = Callable[[dict[str, bytes]], Path]


def run(*arguments: str | Path) -> subprocess.CompletedProcess[str]:
    command = [sys.executable, "-m", "hangdog", "triage", *map(str, arguments)]
    return subprocess.run(command, capture_output=True, text=True, stdin=subprocess.DEVNULL, check=False)


@pytest.fixture
def stopped(fill: Fill) -> Path:
    """A job of four ranks on four machines, of which one is stopped, and a file that is none."""
    files = {f"rank{rank}.json": stacks(rank + 1, "all_reduce") for rank in range(3)}
    return fill(
        {
            **files,
            "rank3.proc.json": state(4, "T"),
            "job.toml": b"[topology]\ndp = 4\ngpus_per_node = 1\n",
            "x.json": b"[{",
        }
    )


def test_json_is_one_object_on_stdout_with_the_exit_status_of_the_verdict(stopped: Path) -> None:
    done = run(stopped, "--format", "json")
    verdict = from_json(json.loads(done.stdout))
    assert done.returncode == verdict.exit_code
    assert done.stderr == ""
    assert list(verdict.evidence.unreadable) == ["x.json"]
    assert verdict.world_size == 4


def test_text_is_for_people(stopped: Path) -> None:
    done = run(stopped)
    assert "node-3" in done.stdout and done.returncode in (1, 2)


def test_the_explanation_shows_odds_waits_and_the_fate_of_frames(stopped: Path) -> None:
    plain, explained = run(stopped), run(stopped, "--explain")
    assert explained.returncode == plain.returncode
    assert explained.stdout.startswith(plain.stdout)
    told = explained.stdout[len(plain.stdout) :]
    assert "machine" in told
    assert "x 80" in told  # what being stopped is worth
    assert "waits for nobody" in told
    assert "+ all_reduce (t.py)" in told
    assert run(stopped, "--explain", "--format", "json").returncode == 64


def test_the_python_api_gives_the_same_verdict(stopped: Path) -> None:
    verdict = hangdog.triage(stopped, Options())
    assert from_json(json.loads(run(stopped, "--format", "json").stdout)).kind == verdict.kind


def test_an_archive_gives_the_same_verdict(stopped: Path, tmp_path: Path) -> None:
    archive = shutil.make_archive(str(tmp_path / "packed"), "gztar", stopped.parent, stopped.name)
    assert run(archive, "--format", "json").stdout == run(stopped, "--format", "json").stdout


@pytest.mark.parametrize(
    ("path", "status", "code"),
    [
        ("absent", 64, "no-such-path"),
        ("empty", 65, "no-evidence"),
        ("photo.jpg", 65, "no-evidence"),
    ],
)
def test_without_evidence_it_says_so_on_stderr(tmp_path: Path, path: str, status: int, code: str) -> None:
    (tmp_path / "empty").mkdir()
    (tmp_path / "photo.jpg").write_bytes(b"\xff\xd8\xff\xe0" * 9)
    done = run(tmp_path / path)
    assert (done.returncode, done.stdout) == (status, "")
    assert done.stderr.startswith("hangdog: ") and f"[{code}]" in done.stderr


def test_evidence_of_a_machine_without_any_rank_is_used(fill: Fill) -> None:
    done = run(fill({"machine-a/dmesg.log": b"NVRM: Xid (PCI:0000:01:00): 79"}), "--format", "json")
    verdict = from_json(json.loads(done.stdout))
    assert done.returncode == verdict.exit_code
    assert (verdict.evidence.files_read, verdict.evidence.ignored) == (1, ())


def test_a_topology_that_contradicts_the_ranks_is_told(fill: Fill) -> None:
    root = fill({"job.toml": b"[topology]\ntp = 2\n", **{f"rank{rank}.json": stacks(rank + 1) for rank in range(3)}})
    verdict = hangdog.triage(root)
    assert any(re.search(r"tp 2 .*\b2 ranks\b.*\b3\b", note) for note in verdict.evidence.notes)


def test_the_public_name_is_the_function(tmp_path: Path) -> None:
    (tmp_path / "rank0.error.txt").write_text("py-spy: Permission denied")
    assert hangdog.triage(tmp_path).coverage.failed.keys() == {"0"}
    with pytest.raises(AttributeError, match="triag"):
        getattr(hangdog, "triag")  # noqa: B009  the access is the test
