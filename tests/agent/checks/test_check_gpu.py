"""GPUs through a real NVML client and a fake library: lost, worn, slowed, silent; and what must not be taken for a fault."""

import os
import signal
import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from dataclasses import replace
from pathlib import Path

import pytest

import targets
from fake_gpus import FakeGpus
from hangdog_agent.checks.gpu import Gpus
from hangdog_agent.checks.notes import Notes
from hangdog_agent.checks.result import Kind, Moment, Result
from hangdog_agent.checks.settings import CheckSettings
from hangdog_agent.checks.sweeper import Sweeper
from hangdog_models.findings import Bearing

#: Every sweep asks for all; a call that blocks is given up soon, though not before Python has started.
SETTINGS = CheckSettings(gpu_full_s=0.0, nvml_start_s=10.0, nvml_answer_s=0.5, brake_sightings=2)

Watch = Callable[..., "Watched"]


class Watched:
    """The check on fake GPUs, looked at again and again."""

    def __init__(self, gpus: FakeGpus, clock: Iterator[Moment], notes: Notes, settings: CheckSettings) -> None:
        self.sweeper = Sweeper(settings, environ=gpus.environ)
        self.check = Gpus(settings, notes, self.sweeper)
        self._clock = clock

    def look(self) -> tuple[Result, ...]:
        return self.check.look(next(self._clock))

    def one(self) -> Result:
        found = self.look()
        assert len(found) == 1, [result.words for result in found]
        return found[0]


@pytest.fixture
def watch(clock: Iterator[Moment]) -> Iterator[Watch]:
    """Begins to watch GPUs, which are in order unless told otherwise."""
    watched: list[Watched] = []

    def begin(
        gpus: FakeGpus, settings: CheckSettings = SETTINGS, notes: Notes | None = None, well: bool = True
    ) -> Watched:
        watched.append(Watched(gpus, clock, notes or Notes(None, "boot-1"), settings))
        if well:
            assert watched[-1].check.supported() == ""
            assert watched[-1].look() == ()
        return watched[-1]

    yield begin
    for each in watched:
        each.check.close()


def said(result: Result) -> tuple[str, Kind, Bearing]:
    return result.code, result.kind, result.finding.bearing


@pytest.mark.parametrize(
    ("answers", "code", "kind", "bearing", "words"),
    [
        ({"1/all": "!15"}, "GPU lost", Kind.CONVICT, Bearing.CONVICTS, "the driver has lost it (NVML code 15)"),
        ({"1/handle": "!15"}, "GPU lost", Kind.CONVICT, Bearing.CONVICTS, "the driver has lost it (NVML code 15)"),
        ({"1/handle": "!999"}, "GPU lost", Kind.CONVICT, Bearing.CONVICTS, "questions have no answer"),
        ({"1/all": "!999"}, "GPU lost", Kind.CONVICT, Bearing.CONVICTS, "questions have no answer"),
        ({"1/field.230": "!15"}, "GPU lost", Kind.CONVICT, Bearing.CONVICTS, "the driver has lost it"),
        ({"count": "1"}, "GPU lost", Kind.CONVICT, Bearing.CONVICTS, "does not list it any more"),
        ({"1/power": "!16"}, "reset required", Kind.RESET, Bearing.RESET, "wants a reset of it"),
        ({"1/handle": "!8"}, "GPU not reachable", Kind.SUSPECT, Bearing.SUSPECTS, "NVML code 8"),
        ({"1/field.230": "1"}, "recovery action", Kind.RESET, Bearing.RESET, "(action 1)"),
        ({"1/field.230": "99"}, "recovery action", Kind.RESET, Bearing.RESET, "(action 99)"),
        ({"1/field.230": "5"}, "recovery action", Kind.SUSPECT, Bearing.SUSPECTS, "IMEX domain"),
        ({"1/ecc.1.0.7": "1"}, "SRAM errors", Kind.RESET, Bearing.RESET, "1 uncorrectable SRAM errors since the agent"),
        ({"1/ecc.1.0.2": "5"}, "DRAM errors", Kind.SUSPECT, Bearing.SUSPECTS, "2 uncorrectable memory errors since the a"),
        ({"1/sram_exceeded": "1"}, "SRAM threshold", Kind.CONVICT, Bearing.CONVICTS, "due for replacement"),
        ({"1/remap": "0 0 0 1"}, "row remap failure", Kind.CONVICT, Bearing.CONVICTS, "could not be remapped"),
        ({"1/remap": "1 0 1 0"}, "row remap pending", Kind.RESET, Bearing.SUSPECTS, "at the next reset; correct until"),
        ({"1/remap": "0 1 1 0"}, "row remap pending", Kind.RESET, Bearing.RESET, "waits for a reset"),
        ({"1/remap_spent": "2"}, "row remap spent", Kind.SUSPECT, Bearing.SUSPECTS, "2 memory banks"),
        ({"1/retired_pending": "1"}, "page retirement pending", Kind.RESET, Bearing.SUSPECTS, "at the next reset"),
        ({"1/width": "8"}, "PCIe lanes", Kind.SUSPECT, Bearing.SLOWS, "runs at 8 of 16 lanes"),
        ({"1/fabric": "2 0 0"}, "fabric", Kind.CONVICT, Bearing.CONVICTS, "not up (in progress"),
        ({"1/fabric": "3 0 0x1"}, "fabric bandwidth", Kind.SUSPECT, Bearing.SLOWS, "less bandwidth"),
        ({"1/power": "170000"}, "spinning", Kind.TELEMETRY, Bearing.TELLS_NOTHING, "busy at 170 of 700 W"),
    ],
    ids=lambda value: " ".join(f"{k}={v}" for k, v in value.items()) if isinstance(value, dict) else "",
)  # fmt: skip
def test_what_nvml_answers_is_a_result_about_that_gpu(
    answers: dict[str, str], code: str, kind: Kind, bearing: Bearing, words: str, gpus: FakeGpus, watch: Watch
) -> None:
    watched = watch(gpus)
    for name, value in answers.items():
        gpus.say(name, value)
    result = watched.one()
    assert said(result) == (code, kind, bearing)
    assert words in result.words
    component = result.component
    # Whoever is lost cannot be asked any more: who it was is remembered from before.
    assert (component.name, component.uuid, component.serial) == ("1", "GPU-1", "serial-1")
    assert component.pci == result.finding.device == "0000:1c:00"
    assert result.lasting
    assert result.identity == watched.one().identity
    assert result.on("host-7", 0.0).machine == "host-7"


def test_gpus_in_order_are_no_result_in_any_sweep(gpus: FakeGpus, watch: Watch) -> None:
    for index in (0, 1):
        gpus.say(f"{index}/fabric", "3 0 0x2a")  # every fact in its two bits is offered and false, that is good
        gpus.say(f"{index}/clock_reasons", "0x4")  # a software power cap, as under any load
        gpus.say(f"{index}/ecc.1.1.7", "2")  # errors of long ago
    watched = watch(gpus)
    assert watched.look() == ()
    assert watched.check.power() == {"0000:1b:00": (6 / 7, 1.0), "0000:1c:00": (6 / 7, 1.0)}
    gpus.say("0/power", "175000")
    gpus.say("1/handle", "!15")
    watched.look()
    assert watched.check.power() == {"0000:1b:00": (0.25, 1.0)}


@pytest.mark.parametrize("answer", ["!3", "!13", "!25", "!4", "!999"])
def test_one_question_without_an_answer_is_no_fault(answer: str, gpus: FakeGpus, watch: Watch) -> None:
    watched = watch(gpus)
    gpus.say("1/remap", answer)
    gpus.say("1/field.230", answer)
    assert watched.look() == ()


def test_an_older_driver_lacks_symbols_and_layouts(gpus: FakeGpus, old_nvml: Path, watch: Watch) -> None:
    gpus.environ["LD_LIBRARY_PATH"] = str(old_nvml.parent)
    gpus.say("1/sram_exceeded", "1")  # nobody can ask for it
    watched = watch(gpus)
    gpus.say("1/fabric_layout", "2")
    gpus.say("1/fabric", "1 0 0")
    assert said(watched.one()) == ("fabric", Kind.CONVICT, Bearing.CONVICTS)


def test_a_gpu_that_may_not_be_asked_is_no_lost_one(gpus: FakeGpus, watch: Watch) -> None:
    watched = watch(gpus)
    gpus.say("1/handle", "!4")
    assert watched.look() == ()


def test_errors_before_the_agent_are_old_news_and_each_later_one_is_news(gpus: FakeGpus, watch: Watch) -> None:
    watched = watch(gpus)  # the GPUs began with three memory errors
    gpus.say("1/ecc.1.0.2", "4")
    first = watched.one()
    gpus.say("1/ecc.1.0.2", "5")
    second = watched.one()
    assert first.identity != second.identity
    gpus.say("1/ecc.1.0.2", "1")  # set back by a reset, and one since
    assert "1 uncorrectable memory errors" in watched.one().words


def test_an_xid_event_is_read_by_the_policy_and_told_once(gpus: FakeGpus, watch: Watch) -> None:
    gpus.happen(1, "8 79")  # before the agent listened: NVML does not tell it
    watched = watch(gpus)
    gpus.happen(1, "8 79")
    lost = watched.one()
    assert said(lost) == ("Xid 79", Kind.CONVICT, Bearing.CONVICTS)
    assert "fallen off the bus" in lost.words
    assert lost.component.serial == "serial-1"
    assert not lost.lasting
    assert watched.look() == ()
    for event in ("8 31", "8 43", "0x4000 0", "0x8000 1"):
        gpus.happen(0, event)
    told = [(result.code, result.kind) for result in watched.look()]
    assert told == [("Xid 31", Kind.TELEMETRY), ("Xid 43", Kind.TELEMETRY), ("GPU lost", Kind.CONVICT)]


def test_a_brake_counts_when_it_lasts(gpus: FakeGpus, watch: Watch) -> None:
    watched = watch(gpus)
    gpus.say("0/clock_reasons", "0x88")
    assert watched.look() == ()
    assert said(watched.one()) == ("HW power brake", Kind.SUSPECT, Bearing.SLOWS)


def test_a_link_that_was_up_and_stays_down_convicts(gpus: FakeGpus, watch: Watch) -> None:
    gpus.say("0/nvlinks", "110")
    watched = watch(gpus, replace(SETTINGS, gpu_full_s=3600.0))
    assert watched.look() == ()  # the third link never was
    watched.check.close()
    watched = watch(gpus)
    gpus.say("0/nvlinks", "100")
    assert watched.look() == ()
    gpus.say("0/nvlinks", "110")
    assert watched.look() == ()  # it was trained anew
    gpus.say("0/nvlinks", "100")
    assert watched.look() == ()
    link = watched.one()
    assert said(link) == ("NVLink down", Kind.CONVICT, Bearing.CONVICTS)
    assert "NVLink 1 is down" in link.words


def test_between_full_sweeps_only_the_cheap_questions_are_asked(gpus: FakeGpus, watch: Watch) -> None:
    watched = watch(gpus, replace(SETTINGS, gpu_full_s=35.0))
    gpus.say("1/remap", "0 0 0 1")
    assert watched.look() == watched.look() == ()
    gpus.say("1/field.230", "1")
    assert watched.one().code == "recovery action"
    assert {result.code for result in watched.look()} == {"recovery action", "row remap failure"}


def test_what_all_gpus_share_is_a_setting_of_the_host(gpus: FakeGpus, watch: Watch) -> None:
    watched = watch(gpus)
    for index in (0, 1):
        gpus.say(f"{index}/width", "8")
        gpus.say(f"{index}/fabric", "1 0 0")
    assert said(watched.one()) == ("fabric manager", Kind.SUSPECT, Bearing.SUSPECTS)


@pytest.mark.parametrize(
    ("answers", "why"),
    [({"init": "!9"}, "driver is not loaded"), ({"init": "!12"}, "no NVIDIA driver"), ({"count": "0"}, "finds no GPU")],
)
def test_a_machine_without_gpus_says_why(answers: dict[str, str], why: str, gpus: FakeGpus, watch: Watch) -> None:
    for name, value in answers.items():
        gpus.say(name, value)
    assert why in watch(gpus, well=False).check.supported()


@pytest.mark.parametrize(
    ("program", "why"),
    [
        ("raise SystemExit(3)", "ended with status 3"),
        ("input(); print('nonsense')", "answers no document"),
        ("input(); print('[' * 100000)", "answers no document"),
        ("import sys; sys.stdout.write('x' * (4 << 20))", "its child"),
    ],
)
def test_a_child_that_cannot_ask_is_no_evidence(program: str, why: str, clock: Iterator[Moment]) -> None:
    sweeper = Sweeper(SETTINGS, command=(sys.executable, "-c", program))
    check = Gpus(SETTINGS, Notes(None, "boot-1"), sweeper)
    assert why in check.supported()
    check.close()
    missing = Gpus(SETTINGS, Notes(None, "boot-1"), Sweeper(SETTINGS, command=("/no/such/program",)))
    assert "cannot be started" in missing.supported()


def test_a_machine_without_the_library_says_why(gpus: FakeGpus, watch: Watch) -> None:
    gpus.environ["LD_LIBRARY_PATH"] = str(gpus.folder)
    why = watch(gpus, well=False).check.supported()
    if not why:
        pytest.skip("this machine has an NVML of its own")
    assert why


@pytest.mark.parametrize(
    ("init", "code", "kind"),
    [("!9", "no driver", Kind.CONVICT), ("!18", "driver mismatch", Kind.SUSPECT), ("!999", "no driver", Kind.SUSPECT)],
)
def test_a_driver_that_is_gone_is_evidence_where_it_was_there(
    init: str, code: str, kind: Kind, gpus: FakeGpus, watch: Watch
) -> None:
    watched = watch(gpus)
    gpus.say("init", init)
    watched.sweeper.let_go()  # NVML is started once for each child
    result = watched.one()
    assert (result.code, result.kind) == (code, kind)


def test_a_blocked_call_is_evidence_and_convicts_when_it_repeats(gpus: FakeGpus, watch: Watch) -> None:
    watched = watch(gpus, replace(SETTINGS, nvml_start_s=1.0))
    gpus.say("1/power", "@")
    began = time.monotonic()
    first = watched.one()
    assert time.monotonic() - began < 5.0
    assert said(first) == ("NVML hangs", Kind.SUSPECT, Bearing.SUSPECTS)
    assert "no answer within 0.5 s" in first.words
    assert "its child is in state" in first.evidence[0]
    second = watched.one()
    assert said(second) == ("NVML hangs", Kind.CONVICT, Bearing.CONVICTS)
    assert first.identity != second.identity
    gpus.say("1/power", "600000")
    watched.sweeper._settings = SETTINGS
    assert watched.look() == ()  # it answers again


def test_children_that_do_not_die_are_left_behind_up_to_a_number(
    gpus: FakeGpus, watch: Watch, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A child inside a wedged driver does not die of a kill; here it is only stopped, and killed at the end."""
    watched = watch(gpus, replace(SETTINGS, nvml_start_s=0.5, nvml_answer_s=0.2, nvml_abandoned=2))
    gpus.say("0/power", "@")
    gpus.say("init", "@")
    with monkeypatch.context() as patched:
        patched.setattr("hangdog_agent.checks.sweeper.os.killpg", lambda pid, _signal: os.kill(pid, signal.SIGSTOP))
        for _ in range(2):
            watched.look()
        held = watched.sweeper.abandoned
        assert len(held) == 2
        refused = watched.one()
        assert "no further one is sent" in refused.words
        assert refused.kind is Kind.CONVICT
        assert watched.sweeper.abandoned == held
    for pid in held:
        os.kill(pid, signal.SIGKILL)
    targets.until(lambda: watched.sweeper.abandoned == ())


def test_while_a_gpu_is_lost_nobody_holds_the_device(gpus: FakeGpus, watch: Watch) -> None:
    others = targets.children().keys()  # multiprocessing keeps a child of its own, once a test has used it
    watched = watch(gpus)
    assert len(targets.children().keys() - others) == 1
    gpus.say("1/all", "!15")
    assert watched.one().code == "GPU lost"
    assert targets.children().keys() <= others  # it may be reset now
    gpus.withdraw("1/all")
    assert watched.look() == ()  # it came back
    assert len(targets.children().keys() - others) == 1


def test_a_killed_child_is_started_again(gpus: FakeGpus, watch: Watch) -> None:
    others = targets.children().keys()
    watched = watch(gpus)
    (child,) = targets.children().keys() - others
    os.kill(child, signal.SIGKILL)
    targets.until(lambda: targets.letter(child) in ("Z", ""))
    assert watched.one().code == "NVML not asked"
    assert watched.look() == ()


def test_who_was_there_is_known_after_a_restart_of_the_agent_but_not_of_the_machine(
    gpus: FakeGpus, watch: Watch, tmp_path: Path
) -> None:
    watch(gpus, notes=Notes(tmp_path / "notes", "boot-1")).check.close()
    gpus.say("count", "1")
    again = watch(gpus, notes=Notes(tmp_path / "notes", "boot-1"), well=False)
    assert again.check.supported() == ""
    assert (again.one().code, again.one().component.serial) == ("GPU lost", "serial-1")
    watch(gpus, notes=Notes(tmp_path / "notes", "boot-2"))


def test_the_child_ends_with_the_agent_even_if_that_is_killed_while_nvml_is_silent(gpus: FakeGpus) -> None:
    program = """
from hangdog_agent.checks.settings import CheckSettings
from hangdog_agent.checks.sweeper import Sweeper
import os, sys
sweeper = Sweeper(CheckSettings())
assert sweeper.ask(full=True).document["count"] == 2
os.write(1, b"%d\\n" % sweeper._process.pid)
os.read(0, 1)
sweeper.ask(full=True)
"""
    with subprocess.Popen(
        [sys.executable, "-I", "-c", program], env=gpus.environ, stdin=subprocess.PIPE, stdout=subprocess.PIPE
    ) as agent:
        assert agent.stdout is not None
        assert agent.stdin is not None
        child = int(agent.stdout.readline())
        gpus.say("0/power", "@")
        before = _wakes(child)
        agent.stdin.write(b"x")
        agent.stdin.flush()
        targets.until(lambda: _wakes(child) > before + 20)  # the fake sleeps and looks again, as long as it blocks
        agent.kill()
    targets.until(lambda: targets.letter(child) in ("", "Z"))


def _wakes(pid: int) -> int:
    status = targets.proc.status(pid)
    return status.switches if status else 0
