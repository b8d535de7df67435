"""What `hangdog doctor` finds here, and what it says where capture does not work."""

import json
import os
import platform
import re
import shutil
import subprocess
import sys
from dataclasses import replace
from importlib.metadata import distribution
from pathlib import Path

import pytest
from click.testing import CliRunner

from hangdog.commands.operate.doctor import command
from hangdog_agent.capture import pyspy
from hangdog_agent.confinement.capabilities import RuntimePlace, grant, lacking, place
from hangdog_agent.doctor import doctor, environment
from hangdog_agent.doctor.doctor import DoctorFinding, Health, examine, works
from hangdog_agent.procfs import Proc, Status
from hangdog_models.stack import Missing, Reason
from support.fakes import targets
from support.fakes.targets import SLEEP_IN_KERNEL, WAIT, running

ENVIRON = {"RANK": "3", "LOCAL_RANK": "1", "WORLD_SIZE": "8", "HANGDOG_JOB": f"doctor-{os.getpid()}"}


def found(findings: tuple[DoctorFinding, ...], name: str) -> DoctorFinding:
    return next(finding for finding in findings if finding.name == name)


def test_capture_works_here_and_a_training_process_is_captured(spy: pyspy.PySpy) -> None:
    with running(WAIT, environ=ENVIRON):
        findings = examine(tool=spy)
    for name in ("py-spy", "own child", "another's process", f"job {ENVIRON['HANGDOG_JOB']}"):
        assert found(findings, name).health is Health.OK, found(findings, name)
    assert works(tuple(finding for finding in findings if finding.name in ("py-spy", "own child", "another's process")))


def test_no_py_spy_is_a_failure_with_the_command_that_brings_it() -> None:
    tool = pyspy.load("no-such-distribution")
    findings = examine(tool=tool)
    assert not works(findings)
    assert found(findings, "py-spy").health is Health.FAIL
    assert "pip install" in found(findings, "py-spy").fix
    assert found(findings, "another's process").health is Health.FAIL


def test_no_permission_is_a_failure_with_the_line_to_change(spy: pyspy.PySpy, monkeypatch: pytest.MonkeyPatch) -> None:
    if os.geteuid() != 0:
        pytest.skip("needs root, to run py-spy as another user")
    targets.run_tools_as_nobody(monkeypatch)
    with running(WAIT, environ=ENVIRON):
        findings = examine(tool=spy)
    assert not works(findings)
    for name in ("own child", "another's process", f"job {ENVIRON['HANGDOG_JOB']}"):
        finding = found(findings, name)
        assert finding.health is Health.FAIL
        assert "not permitted" in finding.what
        assert finding.fix


def test_a_trainer_that_cannot_be_read_for_its_own_reasons_is_no_fault_of_the_set_up(
    spy: pyspy.PySpy, hold: Path
) -> None:
    with running(WAIT, environ=ENVIRON) as target:
        targets.end(target, reap=False)
        findings = examine(tool=spy)
    assert found(findings, "another's process").health is Health.OK
    with running(SLEEP_IN_KERNEL, str(hold), "main", environ=ENVIRON):
        findings = examine(tool=spy)
    assert found(findings, f"job {ENVIRON['HANGDOG_JOB']}").health is not Health.FAIL


def kernel(folder: Path, path: str, text: str) -> Proc:
    """A /proc that says so at that path."""
    (folder / path).parent.mkdir(parents=True, exist_ok=True)
    (folder / path).write_text(text)
    return Proc(folder)


NOTHING, ALL = Status(), Status(capabilities=(1 << 41) - 1)


@pytest.mark.parametrize(
    ("scope", "status", "fix"),
    [
        ("0", NOTHING, ""),
        ("1", NOTHING, "sudo sysctl kernel.yama.ptrace_scope=0"),
        ("2", NOTHING, "sudo sysctl kernel.yama.ptrace_scope=0"),
        ("3", NOTHING, "reboot"),
        ("1", ALL, ""),  # the capability overrules it, so that something else must forbid
        ("2", ALL, ""),
        ("3", ALL, "reboot"),
    ],
)
def test_yama_is_named_where_it_forbids(tmp_path: Path, scope: str, status: Status, fix: str) -> None:
    here = kernel(tmp_path, "sys/kernel/yama/ptrace_scope", f"{scope}\n")
    finding = environment.yama(here, status, True, RuntimePlace.SHELL)
    assert finding.health is (Health.WARN if fix else Health.OK)
    assert fix in finding.fix
    assert environment.yama(here, status, False, RuntimePlace.SHELL).fix == ""
    assert "SYS_PTRACE" in environment.yama(here, NOTHING, True, RuntimePlace.KUBERNETES).fix or scope in "03"
    assert environment.yama(Proc(tmp_path / "none"), NOTHING, True, RuntimePlace.SHELL).health is Health.OK


@pytest.mark.parametrize("where", RuntimePlace)
def test_a_filter_is_named_only_where_reading_was_refused(where: RuntimePlace) -> None:
    filtered = replace(ALL, seccomp=2)
    assert environment.seccomp(ALL, True, where).health is Health.OK
    assert environment.seccomp(filtered, False, where).health is Health.OK
    line = {"Docker": "seccomp=unconfined", "Kubernetes": "seccompProfile", "systemd unit": "SystemCallFilter="}
    assert line.get(where, "the sandbox") in environment.seccomp(filtered, True, where).fix
    without = environment.seccomp(Status(seccomp=2), True, where)
    assert "grant SYS_PTRACE" in without.fix


#: Forbids ptrace and process_vm_readv to what it runs, as old container runtimes do.
SANDBOX = """
import ctypes, os, platform, struct, sys
calls = {"x86_64": (101, 310), "aarch64": (117, 270)}[platform.machine()]
steps = [(0x20, 0, 0, 0)]
steps += [(0x15, len(calls) - at, 0, number) for at, number in enumerate(calls)]
steps += [(0x06, 0, 0, 0x7FFF0000), (0x06, 0, 0, 0x00050001)]
program = b"".join(struct.pack("HBBI", *step) for step in steps)
class Filter(ctypes.Structure):
    _fields_ = [("length", ctypes.c_ushort), ("steps", ctypes.c_char_p)]
libc = ctypes.CDLL(None)
assert libc.prctl(38, 1, 0, 0, 0) == 0
assert libc.prctl(22, 2, ctypes.byref(Filter(len(steps), program)), 0, 0) == 0
assert libc.ptrace(0, 0, 0, 0) == -1
os.execv(sys.executable, [sys.executable, "-m", "hangdog_agent.doctor"])
"""


@pytest.mark.skipif(platform.machine() not in ("x86_64", "aarch64"), reason="the numbers of calls differ")
def test_a_real_filter_is_seen_and_capture_goes_on_beside_it(spy: pyspy.PySpy) -> None:
    said = subprocess.run([sys.executable, "-c", SANDBOX], capture_output=True, text=True, check=False)
    assert "capture" in said.stdout, said.stderr
    assert re.search(r"^ok +seccomp .*filter is on", said.stdout, re.MULTILINE)


@pytest.mark.parametrize(
    ("label", "where", "name", "fix"),
    [
        (
            "cri-containerd.apparmor.d (enforce)\n",
            RuntimePlace.KUBERNETES,
            "AppArmor",
            "appArmorProfile: {type: Unconfined}",
        ),
        ("docker-default (enforce)\n", RuntimePlace.DOCKER, "AppArmor", "apparmor=unconfined"),
        ("system_u:system_r:container_t:s0:c1,c2\0", RuntimePlace.KUBERNETES, "SELinux", "spc_t"),
        ("system_u:system_r:container_t:s0:c1,c2\0", RuntimePlace.DOCKER, "SELinux", "label=disable"),
        ("system_u:system_r:init_t:s0\0", RuntimePlace.UNIT, "SELinux", "unconfined"),
    ],
)
def test_confinement_is_named_where_nothing_else_explains_a_refusal(
    tmp_path: Path, label: str, where: RuntimePlace, name: str, fix: str
) -> None:
    here = kernel(tmp_path, "self/attr/current", label)
    finding = environment.profile(here, ALL, True, where)
    assert finding is not None
    assert finding.name == name
    assert fix in finding.fix
    assert environment.profile(here, ALL, False, where) is None
    assert environment.profile(here, NOTHING, True, where) is None  # the missing capability comes first
    assert environment.profile(kernel(tmp_path, "self/attr/current", "unconfined\n"), ALL, True, where) is None
    assert environment.profile(Proc(tmp_path / "none"), ALL, True, where) is None


def test_a_proc_that_hides_others_is_named(tmp_path: Path) -> None:
    (tmp_path / "self" / "ns").mkdir(parents=True)
    (tmp_path / "self" / "ns" / "pid").symlink_to("pid:[4026531836]")
    finding = environment.namespace(Proc(tmp_path), False, RuntimePlace.SHELL)
    assert (finding.health, finding.fix) == (Health.WARN, "sudo mount -o remount,hidepid=0 /proc")


def test_a_container_is_no_fault_where_it_holds_the_trainers(tmp_path: Path) -> None:
    (tmp_path / "self" / "ns").mkdir(parents=True)
    (tmp_path / "self" / "ns" / "pid").symlink_to("pid:[4026532200]")
    assert environment.namespace(Proc(tmp_path), True, RuntimePlace.KUBERNETES).health is Health.OK
    alone = environment.namespace(Proc(tmp_path), False, RuntimePlace.KUBERNETES)
    assert (alone.health, alone.fix.split("   ")[0]) == (Health.WARN, "hostPID: true")
    assert "--pid=host" in environment.namespace(Proc(tmp_path), False, RuntimePlace.DOCKER).fix


@pytest.mark.parametrize("where", RuntimePlace)
def test_the_kernel_log_is_readable_absent_or_closed(tmp_path: Path, where: RuntimePlace) -> None:
    log = tmp_path / "kmsg"
    absent = environment.kernel_log(Proc(tmp_path), ALL, where, log)
    assert (absent.health, "No such file" in absent.what) == (Health.WARN, True)
    log.touch()
    assert environment.kernel_log(Proc(tmp_path), ALL, where, log).health is Health.OK


def test_a_closed_kernel_log_is_told_from_a_restricted_one() -> None:
    """As a user: /dev/kmsg of a machine that restricts its log, and a file that belongs to somebody else."""
    if os.geteuid() != 0 or shutil.which("setpriv") is None:
        pytest.skip("needs root and setpriv, to look as another user")
    ask = "from hangdog_agent import procfs; from hangdog_agent.confinement import capabilities; from hangdog_agent.doctor import environment as s; from pathlib import Path; print("
    ask += "s.kernel_log(procfs.Proc(), procfs.Status(capabilities={}), capabilities.RuntimePlace.DOCKER, Path({!r})))"
    user = ["setpriv", "--reuid=65534", "--clear-groups", "--inh-caps=-all", sys.executable, "-c"]
    restricted = Proc().setting("sys/kernel/dmesg_restrict") == "1"
    for capabilities, log in ((0, "/dev/kmsg"), (1 << 34, "/proc/1/environ")):
        said = subprocess.run([*user, ask.format(capabilities, log)], capture_output=True, text=True, check=True).stdout
        if capabilities:
            assert "--device /dev/kmsg" in said
        elif restricted:
            assert "kernel.dmesg_restrict is 1" in said
            assert "--cap-add SYSLOG" in said


def test_a_kernel_that_does_not_count_is_named(tmp_path: Path) -> None:
    assert environment.cpu_activity(Proc()).health is Health.OK
    assert "CONFIG_SCHED_INFO" in environment.cpu_activity(Proc(tmp_path)).fix
    zeros = kernel(tmp_path, f"{os.getpid()}/task/{os.getpid()}/schedstat", "0 0 0\n")
    assert "kernel.task_delayacct=1" in environment.cpu_activity(zeros).fix


#: Runs doctor where py-spy's folder may hold no programs, and memory neither.
NOEXEC = """
import os
del os.memfd_create
from hangdog_agent.doctor import doctor, environment
doctor.main()
"""


def test_a_py_spy_that_may_not_run_is_told_from_one_that_is_not_there() -> None:
    binary = pyspy.load()
    assert not isinstance(binary, Missing)
    folder = Path(next(str(f.locate()) for f in distribution("py-spy").files or () if f.name == "py-spy")).parent
    python = os.fspath(Path(sys.executable).resolve())
    script = f'mount --bind {folder} {folder} && mount -o remount,bind,noexec {folder} && exec {python} -c "$0"'
    said = subprocess.run(
        ["unshare", "--mount", "sh", "-c", script, NOEXEC],
        env=os.environ | {"PYTHONPATH": os.pathsep.join(path for path in sys.path if path)},
        capture_output=True,
        text=True,
        check=False,
    )
    if "unshare" in said.stderr:
        pytest.skip(f"no mount namespace may be made here: {said.stderr}")
    first, fix = said.stdout.splitlines()[:2]
    assert first.startswith("fail  py-spy")
    assert "Permission denied" in first
    assert "->" in fix and "noexec" in fix
    assert said.returncode == 1


def test_memory_that_may_hold_no_programs_is_named(tmp_path: Path) -> None:
    tool = Missing(Reason.TOOL_MISSING, "py-spy cannot be run: cannot be started: Permission denied")
    assert "vm.memfd_noexec=0" in doctor._tool(tool, kernel(tmp_path, "sys/vm/memfd_noexec", "2\n")).fix
    assert "vm.memfd_noexec" not in doctor._tool(tool, kernel(tmp_path, "sys/vm/memfd_noexec", "0\n")).fix


def test_no_gpu_is_no_fault_and_an_unreachable_one_is(tmp_path: Path) -> None:
    """A driver that is loaded shows in /proc, in containers too."""
    none = "raise SystemExit('NVML Shared Library Not Found')"
    assert environment.nvml(Proc(tmp_path), RuntimePlace.KUBERNETES, none).health is Health.OK
    loaded = kernel(tmp_path, "driver/nvidia/version", "NVRM version: ...")
    for where, line in ((RuntimePlace.KUBERNETES, "runtimeClassName: nvidia"), (RuntimePlace.DOCKER, "--gpus all")):
        finding = environment.nvml(loaded, where, none)
        assert finding.health is Health.WARN
        assert line in finding.fix
    assert "nvidia-ml-py" in environment.nvml(loaded, RuntimePlace.SHELL, "import no_such_module").fix
    assert environment.nvml(loaded, RuntimePlace.SHELL, "print(8, '580.1')").what == "8 GPU(s), driver 580.1"


@pytest.mark.parametrize(
    ("where", "root", "line"),
    [
        (
            RuntimePlace.KUBERNETES,
            True,
            'securityContext: {capabilities: {add: ["SYS_PTRACE", "DAC_READ_SEARCH", "SETUID", "SETGID", "SETPCAP"]}}',
        ),
        (RuntimePlace.KUBERNETES, False, "runAsUser: 0"),
        (
            RuntimePlace.DOCKER,
            True,
            "docker run --cap-add SYS_PTRACE --cap-add DAC_READ_SEARCH --cap-add SETUID --cap-add SETGID --cap-add SETPCAP ...",
        ),
        (RuntimePlace.DOCKER, False, "--user root"),
        (
            RuntimePlace.UNIT,
            True,
            "CapabilityBoundingSet=CAP_SYS_PTRACE CAP_DAC_READ_SEARCH CAP_SETUID CAP_SETGID CAP_SETPCAP",
        ),
        (RuntimePlace.UNIT, False, "User=root"),
        (
            RuntimePlace.SHELL,
            True,
            "CAP_SYS_PTRACE and CAP_DAC_READ_SEARCH and CAP_SETUID and CAP_SETGID and CAP_SETPCAP",
        ),
        (RuntimePlace.SHELL, False, "sudo "),
    ],
)
def test_the_line_that_grants_depends_on_the_place(where: RuntimePlace, root: bool, line: str) -> None:
    assert line in grant(lacking(NOTHING), where, root)


def test_where_we_run_is_told_by_the_environment(monkeypatch: pytest.MonkeyPatch) -> None:
    for name in ("KUBERNETES_SERVICE_HOST", "SYSTEMD_EXEC_PID"):
        monkeypatch.delenv(name, raising=False)
    monkeypatch.setenv("SYSTEMD_EXEC_PID", "1")  # inherited from the session
    outside = place()
    assert outside in (RuntimePlace.SHELL, RuntimePlace.DOCKER)
    monkeypatch.setenv("SYSTEMD_EXEC_PID", str(os.getpid()))
    assert place() is (RuntimePlace.UNIT if outside is RuntimePlace.SHELL else RuntimePlace.DOCKER)
    monkeypatch.setenv("KUBERNETES_SERVICE_HOST", "10.0.0.1")
    assert place() is RuntimePlace.KUBERNETES


def test_the_agent_s_image_has_a_doctor_without_the_hangdog_command(spy: pyspy.PySpy) -> None:
    """Nothing of it imports what only the command needs."""
    code = "import sys; from hangdog_agent.doctor import doctor; assert not {'click', 'rich'} & set(sys.modules); doctor.main()"
    said = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=False)
    assert said.stdout.splitlines()[0] == f"ok    py-spy               {doctor.PINNED}", said.stderr
    assert (said.returncode == 0) is said.stdout.endswith("capture works here\n")


def test_no_kernel_to_ask_is_survived(tmp_path: Path, spy: pyspy.PySpy) -> None:
    assert not works(examine(Proc(tmp_path), spy))


def test_the_command_prints_one_screen_and_ends_with_0_or_1(monkeypatch: pytest.MonkeyPatch, spy: pyspy.PySpy) -> None:
    shown = CliRunner().invoke(command)
    assert len(shown.output.splitlines()) < 40
    assert shown.exit_code == (0 if "capture works here" in shown.output else 1)  # other users' jobs may run here
    document = json.loads(CliRunner().invoke(command, ["--format", "json"]).output)
    assert document["works"] is all(finding["health"] != "fail" for finding in document["findings"])
    assert {"name": "py-spy", "health": "ok", "what": "0.4.3", "fix": ""} in document["findings"]
    monkeypatch.setattr(pyspy, "load", lambda: Missing(Reason.TOOL_MISSING, "no py-spy"))
    shown = CliRunner().invoke(command)
    assert shown.exit_code == 1
    assert "-> pip install" in shown.output
