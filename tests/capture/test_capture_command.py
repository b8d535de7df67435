"""`hangdog capture` on real processes: what it writes is judged, is its owner's alone, and costs the ranks nothing."""

import io
import json
import os
import re
import stat
import subprocess
import sys
import tarfile
from collections.abc import Callable, Mapping
from contextlib import AbstractContextManager, ExitStack
from pathlib import Path
from typing import Any

import pytest
from click.testing import CliRunner

from hangdog.evidence.packed.zst import zstd
from hangdog.main import main
from hangdog_models.stack import Reason
from support.fakes import targets
from support.fakes.dumper import pickled, played

pytestmark = [pytest.mark.slow, pytest.mark.parallel]

Run = Callable[..., "subprocess.CompletedProcess[bytes]"]
Ranks = Callable[..., AbstractContextManager[tuple[str, list["subprocess.Popen[bytes]"]]]]
QUICK = ("--looks", "2", "--every", "0.2", "--machine", "gpu-a17")


def inside(archive: Path | bytes) -> dict[str, bytes]:
    """The files of an archive."""
    data = archive if isinstance(archive, bytes) else archive.read_bytes()
    if data[:4] == b"\x28\xb5\x2f\xfd":
        data = zstd.decompress(data)
    with tarfile.open(fileobj=io.BytesIO(data)) as opened:
        return {member.name: read.read() for member in opened if (read := opened.extractfile(member))}


def said(ran: "subprocess.CompletedProcess[bytes]") -> str:
    return ran.stderr.decode()


def verdict(ran: "subprocess.CompletedProcess[bytes]") -> Mapping[str, Any]:
    found = json.loads(ran.stdout)
    assert isinstance(found, dict)
    return found


@pytest.mark.parametrize("name", ["b.tar.zst", "b.tar.gz"])
def test_what_it_writes_is_judged_and_names_the_stopped_rank(
    ranks: Ranks, hangdog: Run, tmp_path: Path, name: str
) -> None:
    with ranks(3) as (job, processes):
        targets.stop(processes[1])
        ran = hangdog("capture", "--job", job, *QUICK, "-o", name)
        assert ran.returncode == 0, said(ran)
        letters = [targets.letter(process.pid) for process in processes]
    assert letters == ["S", "T", "S"]
    judged = verdict(hangdog("triage", name, "--format", "json"))
    assert judged["evict"] == {"machines": ["gpu-a17"], "coverage": judged["evict"]["coverage"]}
    assert judged["suspects"][0]["ranks"] == "1"
    assert judged["coverage"]["captured"] == 3
    assert "cannot be followed" not in said(ran), "what the job says of its own progress is read between the looks"
    assert "by a signal" in said(ran) and re.search(r"\blook 2 of 2: 3 .* of 3 ", said(ran))
    assert stat.S_IMODE((tmp_path / name).stat().st_mode) == 0o600


def test_each_look_has_the_kernels_view_and_the_bundle_what_the_job_is(
    ranks: Ranks, hangdog: Run, tmp_path: Path
) -> None:
    with ranks(2, HANGDOG_TOPOLOGY="tp=2") as (job, processes):
        assert hangdog("capture", "--job", job, *QUICK, "-o", "b.tar").returncode == 0
        pids = [process.pid for process in processes]
    files = inside(tmp_path / "b.tar")
    states = [json.loads(files[f"bundle/round-{look}/rank{rank}.proc.json"]) for look in (0, 1) for rank in (0, 1)]
    assert [state["pid"] for state in states] == pids * 2
    about = files["bundle/job.toml"].decode()
    assert f'id = "{job}"' in about and "world_size = 2" in about
    assert '"tp" = 2' in about and '"gpu-a17" = "0-1"' in about
    assert b"interval_s" in files["bundle/rounds.toml"]


def test_stdout_takes_the_archive_and_nothing_else(ranks: Ranks, hangdog: Run) -> None:
    with ranks() as (job, _):
        ran = hangdog("capture", "--job", job, *QUICK, "-o", "-")
    assert ran.returncode == 0
    assert "bundle/round-1/rank1.json" in inside(ran.stdout)


def test_no_secret_of_the_environment_or_the_command_line_is_in_it(ranks: Ranks, hangdog: Run, tmp_path: Path) -> None:
    with ranks(1, "--api-key=xq7-of-the-line", WANDB_API_KEY="xq7-of-the-environment") as (job, _):
        ran = hangdog("capture", "--job", job, *QUICK, "-o", "b.tar")
        listed = hangdog("capture", "--job", job, "--dry-run")
    assert b"xq7" not in b"".join(inside(tmp_path / "b.tar").values())
    assert b"xq7" not in ran.stdout + ran.stderr + listed.stdout
    assert b"--api-key=" in listed.stdout


@pytest.mark.parametrize("there", ["file", "link", "link that leads nowhere"])
def test_nothing_is_written_over_and_no_link_is_followed(
    ranks: Ranks, hangdog: Run, tmp_path: Path, there: str
) -> None:
    behind = tmp_path / "behind"
    if there == "file":
        (tmp_path / "b.tar").write_text("mine")
    else:
        (tmp_path / "b.tar").symlink_to(behind)
        if there == "link":
            behind.write_text("mine")
    with ranks(1) as (job, _):
        ran = hangdog("capture", "--job", job, *QUICK, "-o", "b.tar")
    assert ran.returncode == 64 and "[already-exists]" in said(ran)
    assert not behind.exists() or behind.read_text() == "mine"


def test_a_name_that_tells_no_kind_costs_no_capture(ranks: Ranks, hangdog: Run, tmp_path: Path) -> None:
    with ranks(1) as (job, _):
        ran = hangdog("capture", "--job", job, *QUICK, "-o", "b.rar")
    assert ran.returncode == 64 and "[unknown-archive-name]" in said(ran) and ".tar.zst" in said(ran)
    assert not list(tmp_path.iterdir())


def test_the_summary_as_json(ranks: Ranks, hangdog: Run) -> None:
    with ranks() as (job, processes):
        targets.stop(processes[0])
        summary = json.loads(hangdog("capture", "--job", job, *QUICK, "--format", "json").stdout)
        pid = processes[0].pid
    assert (summary["schema"], summary["job"], summary["machine"]) == ("hangdog.capture/1", job, "gpu-a17")
    assert (summary["ranks"], summary["looks"], summary["processes"], summary["read"]) == ("0-1", 2, 2, 2)
    (unread,) = summary["unread"]
    assert (unread["rank"], unread["pid"], unread["reason"]) == (0, pid, "stopped")
    assert summary["output"].startswith("hangdog-gpu-a17-") and summary["output"].endswith(".tar.zst")


def test_a_dry_run_lists_whom_it_would_look_at_and_writes_nothing(ranks: Ranks, hangdog: Run, tmp_path: Path) -> None:
    with ranks() as (job, processes):
        listed = hangdog("capture", "--job", job, "--dry-run")
        told = json.loads(hangdog("capture", "--job", job, "--dry-run", "--format", "json").stdout)
        pids = [process.pid for process in processes]
    assert listed.returncode == 0
    assert all(f"rank {rank}: process {pid}" in listed.stdout.decode() for rank, pid in enumerate(pids))
    assert [process["pid"] for process in told["jobs"][0]["processes"]] == pids
    assert not list(tmp_path.iterdir())


def test_a_process_narrows_it_to_its_rank(ranks: Ranks, hangdog: Run, tmp_path: Path) -> None:
    with ranks() as (_, processes):
        ran = hangdog("capture", "--pid", str(processes[1].pid), *QUICK, "-o", "b.tar")
        with subprocess.Popen(("sleep", "60")) as sleeps:
            other = hangdog("capture", "--pid", str(sleeps.pid), *QUICK)
            sleeps.kill()
    assert ran.returncode == 0
    names = "\n".join(inside(tmp_path / "b.tar"))
    assert "rank1.json" in names and "rank0" not in names
    assert other.returncode == 64 and "[no-such-process]" in said(other)


def test_processes_whose_ranks_nothing_tells_are_numbered_as_they_are_given(hangdog: Run, tmp_path: Path) -> None:
    """As the workers of XGBoost or LightGBM, which meet by sockets of their own."""
    waits = ("import sys; print(flush=True); sys.stdin.read()",)
    with ExitStack() as stack:
        command = (sys.executable, "-c", *waits)
        workers = [stack.enter_context(subprocess.Popen(command, stdin=-1, stdout=-1)) for _ in range(2)]
        for worker in workers:
            assert worker.stdout is not None and worker.stdout.readline()
        asked = [part for worker in reversed(workers) for part in ("--pid", str(worker.pid))]
        ran = hangdog("capture", *asked, *QUICK, "-o", "b.tar")
        for worker in workers:
            worker.kill()
    assert ran.returncode == 0, said(ran)
    files = inside(tmp_path / "b.tar")
    pids = [json.loads(files[f"bundle/round-0/rank{rank}.json"])[0]["pid"] for rank in range(2)]
    assert pids == [worker.pid for worker in reversed(workers)]
    assert "world_size = 2" in files["bundle/job.toml"].decode()


def test_an_unknown_job_is_wrong_use(ranks: Ranks, hangdog: Run) -> None:
    with ranks(1) as (job, _):
        ran = hangdog("capture", "--job", "no-such", *QUICK)
    assert ran.returncode == 64 and "[no-such-job]" in said(ran) and " no-such " in said(ran) and job in said(ran)


def test_what_libraries_counted_comes_along(readable: None, hangdog: Run, tmp_path: Path) -> None:
    (folder := tmp_path / "dumps").mkdir()
    with played(folder, 3, pickled(7, 6), "at once") as process:
        ran = hangdog("capture", "--pid", str(process.pid), *QUICK, "-o", "b.tar")
    assert ran.returncode == 0, said(ran)
    assert inside(tmp_path / "b.tar")["bundle/rank3.flight.pickle"] == pickled(7, 6)


def test_native_stacks_of_all_ranks_on_request(ranks: Ranks, hangdog: Run, tmp_path: Path) -> None:
    with ranks() as (job, processes):
        ran = hangdog("capture", "--job", job, *QUICK, "--native", "all", "-o", "b.tar")
        assert [targets.letter(process.pid) for process in processes] == ["S", "S"]
    files = inside(tmp_path / "b.tar")
    if b'"module": "' not in files["bundle/round-1/rank0.json"]:
        assert "no native stack" in said(ran)
        pytest.skip(f"py-spy reads no native stacks here: {said(ran)}")
    assert re.search(r"\bnative stacks were read .*\b0-1\b", said(ran))
    assert (
        b'"module": "' in files["bundle/round-1/rank1.json"]
        and b'"module": "' not in files["bundle/round-0/rank1.json"]
    )


def test_what_may_not_be_read_is_written_with_its_reason_and_says_what_to_do(
    ranks: Ranks,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    if os.geteuid() != 0:
        pytest.skip("only root can read with somebody else's rights")
    targets.run_tools_as_nobody(monkeypatch)
    output = tmp_path / "b.tar"
    with ranks() as (job, _):
        ran = CliRunner().invoke(main, ["capture", "--job", job, *QUICK, "-o", str(output)])
    assert re.search(rf"\b2 .*\branks 0-1 .*: {Reason.NOT_PERMITTED}", ran.stderr)
    assert "sudo hangdog capture" in ran.stderr
    files = inside(output)
    assert b"hangdog: not permitted" in files["bundle/round-0/rank0.error.txt"]
    assert "bundle/round-0/rank0.proc.json" in files
    assert ran.exit_code != 0


def test_several_jobs_are_told_apart_by_name_only(ranks: Ranks, hangdog: Run) -> None:
    with ranks(1) as (one, _), ranks(1) as (other, _):
        ran = hangdog("capture", *QUICK)
    assert ran.returncode == 64 and "[ambiguous-job]" in said(ran)
    assert one in said(ran) and other in said(ran)
