"""GPUs through a real NVML client and a fake library: lost, worn, slowed; and what must not be taken for a fault."""

from dataclasses import replace
from pathlib import Path

import pytest

from hangdog_agent.checks.check_result import CheckVerdict
from hangdog_models.findings import Impact
from support.fakes.fake_gpus import FakeGpus
from support.fakes.watched_gpus import SETTINGS, Watch, said


@pytest.mark.parametrize(
    ("answers", "code", "kind", "bearing", "words"),
    [
        ({"1/all": "!15"}, "GPU lost", CheckVerdict.CONVICT, Impact.CONVICTS, "the driver has lost it (NVML code 15)"),
        ({"1/handle": "!15"}, "GPU lost", CheckVerdict.CONVICT, Impact.CONVICTS, "the driver has lost it (NVML code 15)"),
        ({"1/handle": "!999"}, "GPU lost", CheckVerdict.CONVICT, Impact.CONVICTS, "questions have no answer"),
        ({"1/all": "!999"}, "GPU lost", CheckVerdict.CONVICT, Impact.CONVICTS, "questions have no answer"),
        ({"1/field.230": "!15"}, "GPU lost", CheckVerdict.CONVICT, Impact.CONVICTS, "the driver has lost it"),
        ({"count": "1"}, "GPU lost", CheckVerdict.CONVICT, Impact.CONVICTS, "does not list it any more"),
        ({"1/power": "!16"}, "reset required", CheckVerdict.RESET, Impact.RESET, "wants a reset of it"),
        ({"1/handle": "!8"}, "GPU not reachable", CheckVerdict.SUSPECT, Impact.SUSPECTS, "NVML code 8"),
        ({"1/field.230": "1"}, "recovery action", CheckVerdict.RESET, Impact.RESET, "(action 1)"),
        ({"1/field.230": "99"}, "recovery action", CheckVerdict.RESET, Impact.RESET, "(action 99)"),
        ({"1/field.230": "5"}, "recovery action", CheckVerdict.SUSPECT, Impact.SUSPECTS, "IMEX domain"),
        ({"1/ecc.1.0.7": "1"}, "SRAM errors", CheckVerdict.RESET, Impact.RESET, "1 uncorrectable SRAM errors since the agent"),
        ({"1/ecc.1.0.2": "5"}, "DRAM errors", CheckVerdict.SUSPECT, Impact.SUSPECTS, "2 uncorrectable memory errors since the a"),
        ({"1/sram_exceeded": "1"}, "SRAM threshold", CheckVerdict.CONVICT, Impact.CONVICTS, "due for replacement"),
        ({"1/remap": "0 0 0 1"}, "row remap failure", CheckVerdict.CONVICT, Impact.CONVICTS, "could not be remapped"),
        ({"1/remap": "1 0 1 0"}, "row remap pending", CheckVerdict.RESET, Impact.SUSPECTS, "at the next reset; correct until"),
        ({"1/remap": "0 1 1 0"}, "row remap pending", CheckVerdict.RESET, Impact.RESET, "waits for a reset"),
        ({"1/remap_spent": "2"}, "row remap spent", CheckVerdict.SUSPECT, Impact.SUSPECTS, "2 memory banks"),
        ({"1/retired_pending": "1"}, "page retirement pending", CheckVerdict.RESET, Impact.SUSPECTS, "at the next reset"),
        ({"1/width": "8"}, "PCIe lanes", CheckVerdict.SUSPECT, Impact.SLOWS, "runs at 8 of 16 lanes"),
        ({"1/fabric": "2 0 0"}, "fabric", CheckVerdict.CONVICT, Impact.CONVICTS, "not up (in progress"),
        ({"1/fabric": "3 0 0x1"}, "fabric bandwidth", CheckVerdict.SUSPECT, Impact.SLOWS, "less bandwidth"),
    ],
    ids=lambda value: " ".join(f"{k}={v}" for k, v in value.items()) if isinstance(value, dict) else "",
)  # fmt: skip
def test_what_nvml_answers_is_a_result_about_that_gpu(
    answers: dict[str, str], code: str, kind: CheckVerdict, bearing: Impact, words: str, gpus: FakeGpus, watch: Watch
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


def test_who_is_busy_at_little_power_spins_if_the_next_sweep_shows_it_too(gpus: FakeGpus, watch: Watch) -> None:
    """An H200 in the first second of a load: NVML called it 99 % busy, at 221 of the 690 W that it drew from then on."""
    watched = watch(gpus)
    gpus.say("1/power", "221000")
    assert watched.look() == ()
    gpus.say("1/power", "690000")
    assert watched.look() == ()
    gpus.say("1/power", "127000")
    assert watched.look() == (), "the two sightings are not in a row"
    spins = watched.one()
    assert said(spins) == ("spinning", CheckVerdict.TELEMETRY, Impact.TELLS_NOTHING)
    assert "127 of 700 W" in spins.words
    assert spins.identity == watched.one().identity
    gpus.say("1/power", "690000")
    assert watched.look() == ()


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
    assert said(watched.one()) == ("fabric", CheckVerdict.CONVICT, Impact.CONVICTS)


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
    assert said(lost) == ("Xid 79", CheckVerdict.CONVICT, Impact.CONVICTS)
    assert "off the bus" in lost.words
    assert lost.component.serial == "serial-1"
    assert not lost.lasting
    assert watched.look() == ()
    for event in ("8 31", "8 43", "0x4000 0", "0x8000 1"):
        gpus.happen(0, event)
    told = [(result.code, result.kind) for result in watched.look()]
    assert told == [
        ("Xid 31", CheckVerdict.TELEMETRY),
        ("Xid 43", CheckVerdict.TELEMETRY),
        ("GPU lost", CheckVerdict.CONVICT),
    ]


def test_a_brake_counts_when_it_lasts(gpus: FakeGpus, watch: Watch) -> None:
    watched = watch(gpus)
    gpus.say("0/clock_reasons", "0x88")
    assert watched.look() == ()
    assert said(watched.one()) == ("HW power brake", CheckVerdict.SUSPECT, Impact.SLOWS)


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
    assert said(link) == ("NVLink down", CheckVerdict.CONVICT, Impact.CONVICTS)
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
    assert said(watched.one()) == ("fabric manager", CheckVerdict.SUSPECT, Impact.SUSPECTS)
