"""What the commands that ask no server tell, as files that a person has read."""

import re
import shlex
from dataclasses import replace
from pathlib import Path

import pytest
from click.testing import CliRunner

from hangdog.demo.demo_plan import DemoOutcome, DemoPlan
from hangdog.demo.shape import MACHINES, SIZES, WORLD_SIZE, machine
from hangdog.main import main
from hangdog_agent.confinement.capabilities import PTRACE, RuntimePlace, grant
from hangdog_agent.doctor import environment
from hangdog_agent.doctor_finding import DoctorFinding, Health
from hangdog_agent.procfs import Proc, Status
from hangdog_models import topology
from hangdog_models.diagnosis.judge import diagnose
from hangdog_models.ranks import Rank
from hangdog_models.stack import Missing, Reason
from hangdog_models.topology import Layout
from hangdog_server.auth.audit_log import AuditEntry, append, line
from support.cases.goldens import differing, entry, typed_here
from support.cases.stories import snapshot, trace
from support.servers.cast import NOON

GOLDEN = Path(__file__).parent / "golden"
NOTIFY = """\
link = "https://hangdog.example"

[to.on-call]
url_file = "address"
about = ["judged", "approval"]
"""
#: In their order, each a golden file of that name; the exit status of all is 0.
TYPED = {
    "certs-init": "certs init ca --name hangdog.example",
    "certs-machine": "certs machine gpu-a17 gpu-a18 --ca ca",
    "certs-client": "certs client alice --ca ca",
    "certs-server": "certs server --name hangdog.example --ca ca --into renewed",
    "certs-show": "certs show ca",
    "certs-issuer": "certs issuer ca/issuer",
    "certs-deny": "certs deny 3f:a9:00:17 --reason 'lost laptop' --file denied.json",
    "certs-deny-owner": "certs deny 'machine gpu-a17' --reason 'stolen from the rack' --file denied.json",
    "certs-denied": "certs denied --file denied.json",
    "token-new": "token new --name alice --role act --tokens tokens.json",
    "token-list": "token list --tokens tokens.json",
    "token-revoke": "token revoke alice --tokens tokens.json",
    "audit": "audit --file audit.jsonl",
    "notify": "notify --notify notify.toml --dry-run",
    "plan-standby": "plan standby --machines 1024 --p 0.0038 --over 0.1:8",
    "demo-list": "demo --list",
    "plan-backups": "plan backups --tp 2 --pp 4 --dp 2 --gpus-per-machine 2",
}
#: Files whose lines are as long as they are: news to search for, serial numbers and paths to copy.
WIDE = (
    "audit", "certs-init", "certs-machine", "certs-client", "certs-server", "certs-show", "certs-issuer",
    "plan-standby",
)  # fmt: skip
#: What `hangdog doctor` finds where capture works.
WELL = (
    DoctorFinding("py-spy", Health.OK, "0.4.3"),
    DoctorFinding("own child", Health.OK, "captured"),
    DoctorFinding("another's process", Health.OK, "captured"),
    DoctorFinding("user", Health.OK, "root"),
    DoctorFinding("CAP_SYS_PTRACE", Health.OK, "held"),
    DoctorFinding("job llama-70b", Health.OK, "16 processes of ranks 0-7, all captured"),
    DoctorFinding("NVML", Health.OK, "8 GPU(s), driver 580.95.05"),
)
#: A job that fails, tries again, and calls a person.
RUN = "run --attach --server 127.0.0.1:1 --machine gpu-a17 --state runs -- sh -c 'echo step {attempt}; exit 3'"
PEER = "ipv4:192.0.2.7:50112"
DEEDS = (
    AuditEntry("snapshot", "alice", "trigger", "token", PEER, "llama", "it hangs", "", "asked"),
    AuditEntry("snapshot", "alice", "trigger", "token", PEER, "llama", "it hangs", "3fa9c2d4e5f6", "machine"),
    AuditEntry("approve", "bob", "act", "token", PEER, "llama", "the fan is dead", "3fa9c2d4e5f6", "c pending"),
)
#: What is another one each time: serial numbers, which have no zeros in front and so 40 digits or fewer, secrets, moments,
#: how long ago it was, and who runs the tests. In this order: a serial number may be as long as a secret.
OTHERS = {
    r"\bserial [0-9a-f]{1,40}\b": "serial SERIAL",
    r"[\w-]{40,}": "SECRET",
    r"\d{4}-\d\d-\d\dT[\d:.]+\+00:00": "MOMENT",
    r"\b\d+ s ago\b": "0 s ago",
    r"\w+ \(shell\)": "USER (shell)",
}
#: What a supervisor's account holds that no two runs have in common.
TIMES = {r"\d+ (?:s|min|h)\b": "N s", r"\d+\.\d%": "N%"}
pytestmark = pytest.mark.usefixtures("eighty_columns_of_utc")


def plain(text: str, others: dict[str, str]) -> str:
    """The text without what is another one each time."""
    for made, shown in others.items():
        text = re.sub(made, shown, text)
    return text


def test_each_command_tells_as_its_golden_file_does(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    (tmp_path / "notify.toml").write_text(NOTIFY)
    (tmp_path / "address").write_text("json://192.0.2.1:9/hook\n")
    (tmp_path / "address").chmod(0o600)
    for deed in DEEDS:
        append(tmp_path / "audit.jsonl", line(deed, NOON))
    wrong = []
    for name, typed in TYPED.items():
        text = entry(typed, plain(typed_here(typed), OTHERS), wide=name in WIDE)
        wrong.append(differing(GOLDEN / f"{name}.txt", text))
    assert not any(wrong), "\n".join(wrong)


def refused(proc: Proc) -> tuple[DoctorFinding, ...]:
    """What it finds where a user may read the own children only, in the words of the examinations themselves."""
    status, place = Status(), RuntimePlace.SHELL
    line = grant([PTRACE], place, root=False)
    return (
        *WELL[:2],
        DoctorFinding(
            "another's process", Health.FAIL, str(Missing(Reason.NOT_PERMITTED, "py-spy: Permission denied")), line
        ),
        DoctorFinding("user", Health.OK, "uid 1000: sees the processes of this user"),
        environment.yama(proc, status, True, place),
        environment.seccomp(replace(status, seccomp=2), True, place),
        environment.namespace(proc, False, place),
    )


def test_the_doctor_tells_a_machine_as_its_golden_file_does(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """It examines this machine; here it is told what others have shown."""
    (tmp_path / "sys/kernel/yama").mkdir(parents=True)
    (tmp_path / "sys/kernel/yama/ptrace_scope").write_text("1\n")
    monkeypatch.setattr("os.geteuid", lambda: 1000)
    monkeypatch.setattr("sys.executable", "/usr/bin/python3")
    findings = {"doctor": (WELL, 0), "doctor-refused": (refused(Proc(tmp_path)), 1)}
    wrong = []
    for name, (found, status) in findings.items():
        monkeypatch.setattr("hangdog.commands.operate.doctor.examine", lambda found=found: found)
        wrong.append(differing(GOLDEN / f"{name}.txt", entry("doctor", typed_here("doctor", status))))
    assert not any(wrong), "\n".join(wrong)


@pytest.mark.slow
def test_a_real_job_that_fails_twice_is_told_as_its_golden_file_has_it(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    result = CliRunner().invoke(main, shlex.split(RUN))
    assert result.exit_code == 1, result.output
    text = entry(RUN, result.stdout, wide=True) + entry(
        "run: what it says beside the job's output", plain(result.stderr, TIMES), wide=True
    )
    assert not differing(GOLDEN / "run.txt", text)


def test_the_demo_tells_what_came_of_it_as_its_golden_file_does(monkeypatch: pytest.MonkeyPatch) -> None:
    """Of a job that hangs as its fault would have it; the real ones are in tests/demo."""

    def play(plan: DemoPlan, *_: object) -> DemoOutcome:
        stacks = {rank: "stage" if rank // 4 != plan.rank // 4 else "backward" for rank in range(WORLD_SIZE)}
        odd = trace(plan.rank, "user")
        looks = [[odd if rank == plan.rank else trace(rank, stack, state="S") for rank, stack in stacks.items()]] * 3
        machines = {
            name: tuple(rank for rank in map(Rank, range(WORLD_SIZE)) if machine(rank) == name) for name in MACHINES
        }
        shape, _ = topology.build(Layout(sizes=SIZES, machines=machines), None)
        return DemoOutcome(plan, diagnose(snapshot(*looks), shape), 5.2, 3.4)

    monkeypatch.setattr("hangdog.demo.conductor.run_demo", play)
    monkeypatch.setattr("hangdog.commands.triage.demo.NEEDED", ())
    typed = "demo --fault gc --seed 3"
    assert not differing(GOLDEN / "demo.txt", entry(typed, typed_here(typed), wide=True))
