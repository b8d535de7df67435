"""Hosts capture themselves over ssh and its like: bounded, each with a deadline, and who does not answer is named."""

import json
import os
import re
import shlex
import shutil
import stat
import subprocess
import sys
from collections.abc import Callable, Iterator
from contextlib import AbstractContextManager
from pathlib import Path

import pytest

from support.fakes import targets
from support.real import sshd
from support.real.sshd import Sshd

pytestmark = [pytest.mark.slow, pytest.mark.parallel]

Run = Callable[..., "subprocess.CompletedProcess[bytes]"]
Ranks = Callable[..., AbstractContextManager[tuple[str, list["subprocess.Popen[bytes]"]]]]
QUICK = ("--looks", "2", "--every", "0.2")
HANGDOG = f"{shlex.quote(sys.executable)} -m hangdog"

#: Plays a program that runs commands on hosts, some of which are not well. What is given to it is noted first.
FAKE = """#!/bin/sh
echo "$0 $*" >> {folder}/calls
host=$({host})
touch {folder}/running/$host
ls {folder}/running | wc -l >> {folder}/beside
case $host in
    silent*) exec sleep 60 ;;
    refused*) echo "ssh: connect to host $host port 22: Connection refused" >&2; exit 255 ;;
    bare*) echo "sh: 1: hangdog: not found" >&2; exit 127 ;;
    idle*) echo "hangdog: no training process found here" >&2; echo "  hint" >&2; exit 65 ;;
    babbling*) head -c 100000 /dev/zero; exit 0 ;;
    typing*) read -r line || line=nobody; echo "typed: $line" >&2; exit 1 ;;
    slow*) for each in $(seq 100); do [ $(ls {folder}/running | wc -l) -gt 1 ] && break; sleep 0.1; done; sleep 0.5 ;;
esac
rm {folder}/running/$host
{remote}
"""
#: Where the host stands among the arguments, and how the rest is run: ssh and pdsh give it to a shell.
LAST = 'for each; do :; done; sh -c "$each"'
CALLED = {
    "ssh": ('while [ "$1" != -- ]; do shift; done; echo "$2"', LAST),
    "pdsh": ('while [ "$1" != -w ]; do shift; done; echo "$2"', LAST),
    "srun": (
        'for each; do case $each in --nodelist=*) echo "${each#*=}" ;; esac; done',
        'while case $1 in --*) true ;; *) false ;; esac; do shift; done; "$@"',
    ),
    "kubectl": ('while [ "$2" != -- ]; do shift; done; echo "$1"', 'while [ "$1" != -- ]; do shift; done; shift; "$@"'),
}


@pytest.fixture
def hosts(tmp_path: Path) -> dict[str, str]:
    """The environment in which these programs are played."""
    folder = tmp_path / "played"
    (folder / "running").mkdir(parents=True)
    for name, (host, remote) in CALLED.items():
        shift = f"found() {{ {host}; }}\n"
        text = FAKE.format(folder=folder, host='found "$@"', remote=remote).replace(
            "#!/bin/sh\n", f"#!/bin/sh\n{shift}"
        )
        (folder / name).write_text(text)
        (folder / name).chmod(0o755)
    return {"PATH": f"{folder}:{os.environ['PATH']}"}


def said(ran: "subprocess.CompletedProcess[bytes]") -> str:
    return ran.stderr.decode()


@pytest.mark.parametrize("over", CALLED)
def test_a_host_is_captured_and_judged_over_each_of_them(
    ranks: Ranks, hangdog: Run, hosts: dict[str, str], tmp_path: Path, over: str
) -> None:
    with ranks(2) as (job, processes):
        targets.stop(processes[1])
        ran = hangdog(
            "capture", "--over", over, "--remote", HANGDOG, "--job", job, *QUICK, "-o", "all", "well", "--format", "json",
            **hosts,
        )  # fmt: skip
    found = json.loads(ran.stdout)
    assert ran.returncode == 1, said(ran)
    assert found["hosts"] == [{"host": "well", "output": "all/well.tar.zst", "problem": None}]
    assert found["verdict"]["suspects"][0]["ranks"] == "1"
    folder, archive = tmp_path / "all", tmp_path / "all" / "well.tar.zst"
    assert (stat.S_IMODE(folder.stat().st_mode), stat.S_IMODE(archive.stat().st_mode)) == (0o700, 0o600)


def test_hosts_that_do_not_answer_are_named_with_the_reason_and_cost_the_others_nothing(
    ranks: Ranks, hangdog: Run, hosts: dict[str, str], tmp_path: Path
) -> None:
    sick = ["refused1", "bare1", "idle1", "babbling1", "typing1"]
    with ranks(1) as (job, _):
        ran = hangdog(
            "capture", "--over", "ssh", "--remote", HANGDOG, "--job", job, "--looks", "1", *sick, "well1", **hosts
        )
    assert ran.returncode == 2, said(ran)
    stated = said(ran)
    assert "1 of 6 hosts " in stated and "well1: captured" in stated
    assert re.search(r"\brefused1: ssh: .* refused1 .*Connection refused \(exit status 255\)", stated)
    assert re.search(r"\bbare1: .*\binstalled .*--remote ", stated)
    assert re.search(r"\bidle1: hangdog: no training process .*\(exit status 65\)", stated)
    assert re.search(r"\bbabbling1: .*\(no archive came\)", stated)
    assert "typing1: typed: nobody (exit status 1)" in stated  # nothing of our own input reaches it
    shown = ran.stdout.decode()
    assert "refused1 was not captured: ssh: " in shown and "typing1 was not captured" in shown


def test_a_host_that_says_nothing_is_given_up_at_its_deadline(hangdog: Run, hosts: dict[str, str]) -> None:
    ran = hangdog("capture", "--over", "ssh", "--deadline", "1", "silent1", **hosts)
    assert ran.returncode == 65 and re.search(r"\bsilent1: no answer .* 1 s, killed", said(ran))


def test_when_no_host_answers_nothing_is_judged(hangdog: Run, hosts: dict[str, str]) -> None:
    ran = hangdog("capture", "--over", "ssh", "refused[1-3]", **hosts)
    assert ran.returncode == 65
    assert "[no-host-answered]" in said(ran) and re.search(r"\brefused1: ssh: .* refused1 ", said(ran))


def test_no_more_hosts_at_a_time_than_were_allowed(hangdog: Run, hosts: dict[str, str], tmp_path: Path) -> None:
    ran = hangdog("capture", "--over", "ssh", "--at-once", "2", "--remote", "true", "slow[1-6]", **hosts)
    assert ran.returncode == 65
    beside = [int(line) for line in (tmp_path / "played" / "beside").read_text().split()]
    assert len(beside) == 6 and max(beside) == 2


def test_a_name_that_is_no_host_runs_nothing(hangdog: Run, hosts: dict[str, str], tmp_path: Path) -> None:
    ran = hangdog("capture", "--over", "ssh", "-o", "all", "--", "well", "x;touch${IFS}here", **hosts)
    assert ran.returncode == 64 and "[bad-name]" in said(ran)
    assert not (tmp_path / "all").exists() and not (tmp_path / "played" / "calls").exists()


def test_a_dry_run_shows_the_commands_and_runs_none(hangdog: Run, hosts: dict[str, str], tmp_path: Path) -> None:
    ran = hangdog("capture", "--over", "ssh -p 2222", "--dry-run", "--job", "a b", "n[1-2]", **hosts)
    lines = ran.stdout.decode().splitlines()
    assert [shlex.split(line)[-2] for line in lines] == ["n1", "n2"]
    assert shlex.split(shlex.split(lines[0])[-1])[-1] == "--job=a b"
    assert not (tmp_path / "played" / "calls").exists()


def test_captures_may_be_brought_without_a_verdict(
    ranks: Ranks, hangdog: Run, hosts: dict[str, str], tmp_path: Path
) -> None:
    with ranks(1) as (job, _):
        ran = hangdog(
            "capture", "--over", "ssh", "--remote", HANGDOG, "--job", job, "--looks", "1", "--no-triage", "-o", "all", "well",
            **hosts,
        )  # fmt: skip
    assert (ran.returncode, ran.stdout.decode()) == (0, "hangdog triage all/*.tar.zst\n")
    again = hangdog("capture", "--over", "ssh", "-o", "all", "well", **hosts)
    assert again.returncode == 64 and "[unwritable-file]" in said(again) and "folder all" in said(again)


@pytest.fixture(scope="module")
def served(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Sshd]:
    if not sshd.installed():
        pytest.skip(sshd.MISSING)
    with sshd.serving(tmp_path_factory.mktemp("sshd")) as one:
        yield one


def test_a_real_sshd(ranks: Ranks, hangdog: Run, served: Sshd) -> None:
    with ranks(2) as (job, processes):
        targets.stop(processes[0])
        ran = hangdog(
            "capture",
            "--over",
            served.over,
            "--remote",
            HANGDOG,
            "--job",
            job,
            *QUICK,
            "127.0.0.[1,3]",
            "--format",
            "json",
        )
        letters = [targets.letter(process.pid) for process in processes]
    found = json.loads(ran.stdout)
    assert ran.returncode == 1 and found["verdict"]["suspects"][0]["ranks"] == "0", said(ran)
    assert "Connection refused" in found["hosts"][1]["problem"]
    assert letters == ["T", "S"]


def test_a_real_pdsh_over_a_real_sshd(ranks: Ranks, hangdog: Run, served: Sshd) -> None:
    if shutil.which("pdsh") is None:
        pytest.skip("pdsh is not installed: apt-get install pdsh")
    with ranks(1) as (job, _):
        ran = hangdog(
            "capture", "--over", "pdsh -R ssh", "--remote", HANGDOG, "--job", job, "--looks", "1", "127.0.0.1",
            PDSH_SSH_ARGS_APPEND=served.options,
        )  # fmt: skip
    assert ran.returncode == 2 and b"1 of 1 rank captured" in ran.stdout, said(ran)
