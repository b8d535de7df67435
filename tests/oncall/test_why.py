"""What `hangdog why` answers: which of the answers wins, what it tells to do, and how it reads in one screen."""

import json
import time
from collections.abc import Iterator
from dataclasses import replace
from io import StringIO
from pathlib import Path

import pytest
from rich.cells import cell_len
from rich.console import Console

from hangdog.commands.oncall.why import as_json, show
from hangdog.evidence.machine_facts import Accusation, MachineFacts
from hangdog.output.machine_status import MachineState, assess
from hangdog_models.findings import Finding, Impact
from hangdog_models.incident import Incident
from hangdog_models.machine_history import Conviction, MachineTest, MachineTests, VerdictMention
from hangdog_models.owner import Owner, OwnerKind
from hangdog_models.ranks import Rank
from hangdog_models.verdict import Suspect
from hangdog_proto.client.incidents import ActionLine, JobLine, MachineLine
from support.cases.goldens import differing
from support.cases.reasons import reasons
from support.servers.cast import NOON

GOLDEN = Path(__file__).parent / "golden"
NOW = MachineLine("gpu-a17", "1", True, 3.0, (JobLine("llama", (Rank(0), Rank(1)), 64, ""),))
INCIDENT = Incident(
    "3fa9c2d4e5f6", "llama", NOON, "somebody asked", "judged", kind="machine", confidence=0.97, evict=("gpu-a17",)
)
ENTRY = VerdictMention("gpu-a17", "3fa9c2d4e5f6", "llama", NOON, "convicted", 0.97, 1, "machine")
SUSPECT = Suspect((Rank(1),), ("gpu-a17",), 0.97, reasons("rank 1 waits for its data loader", "kernel of gpu-a17: NFS"))
ACCUSED = Accusation(INCIDENT, ENTRY, (SUSPECT,))
DOUBTED = Accusation(INCIDENT, replace(ENTRY, mention="suspected", probability=0.3, among=2), (SUSPECT,))
ACT = ActionLine("3fa9c2d4e5f6", "gpu-a17", "llama", "waiting", NOON, NOON + 60, "", "", "", False)
NOTHING = MachineTests((), (), (), 0.0)
QUIET = MachineFacts("gpu-a17", NOW, (), (), (), NOTHING, (), "approve", "")
TEST = MachineTest("gpu-a17", NOON, "c1", 1, "one device: gemm", "fail", 21, "it fails", ())
CONVICTED = MachineTests((TEST,), ("GPU-1",), (Conviction("gpu-a17", "GPU-1", NOON, "c1"),), NOON + 1)
OPEN = replace(INCIDENT, id="4b", state="capturing", kind="")


def found(bearing: Impact) -> MachineFacts:
    return replace(
        QUIET, now=replace(NOW, findings=(Finding("NVML", "Xid 79", bearing, "GPU is lost", device="GPU 3"),))
    )


def act(state: str, **more: object) -> tuple[ActionLine, ...]:
    return (replace(ACT, state=state, **more),)  # type: ignore[arg-type]  # the test names what it changes


@pytest.fixture(autouse=True)
def utc(monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:
    """Times of day are those here, wherever the tests run."""
    monkeypatch.setenv("TZ", "UTC")
    time.tzset()
    yield
    monkeypatch.undo()
    time.tzset()


@pytest.mark.parametrize(
    ("facts", "word", "status", "do"),
    [
        (QUIET, MachineState.CLEAR, 0, "nothing"),
        (replace(QUIET, under_way=(OPEN,)), MachineState.OPEN, 2, "hangdog watch 4b"),
        (replace(QUIET, now=replace(NOW, connected=False)), MachineState.LOST, 2, "see whether it is up"),
        (replace(QUIET, now=replace(NOW, connected=False, stopped=True)), MachineState.CLEAR, 0, "nothing"),
        (found(Impact.CONVICTS), MachineState.SICK, 1, "take it out of use, whatever the stacks say: Xid 79"),
        (found(Impact.RESET), MachineState.SICK, 1, "reset GPU 3 while no job runs there: Xid 79"),
        (found(Impact.SUSPECTS), MachineState.SICK, 1, "hangdog test run --machines gpu-a17"),
        (found(Impact.SLOWS), MachineState.CLEAR, 0, "nothing"),
        (replace(QUIET, accusations=(DOUBTED,)), MachineState.SUSPECTED, 1, "leave it in use"),
        (replace(QUIET, accusations=(ACCUSED,)), MachineState.CONVICTED, 1, "take it out of use by hand: in mode approve"),
        (replace(QUIET, accusations=(ACCUSED,), actions=act("waiting")), MachineState.CONVICTED, 1, "hangdog approve 3fa9c2d4e5f6"),
        (replace(QUIET, accusations=(ACCUSED,), actions=act("refused", message="4 an hour")), MachineState.CONVICTED, 1, "4 an hour"),
        (replace(QUIET, accusations=(ACCUSED,), actions=act("failed", message="no rights")), MachineState.CONVICTED, 1, "no rights"),
        (replace(QUIET, accusations=(ACCUSED,), actions=act("dismissed", who="eve")), MachineState.CLEAR, 0, "nothing"),
        (replace(QUIET, accusations=(ACCUSED,), actions=act("released", who="eve")), MachineState.CLEAR, 0, "nothing"),
        (replace(QUIET, accusations=(ACCUSED,), actions=act("pending")), MachineState.OUT, 1, "hangdog actions"),
        (replace(QUIET, accusations=(ACCUSED,), actions=act("done")), MachineState.OUT, 1, "hangdog release gpu-a17"),
        (replace(QUIET, test_history=CONVICTED), MachineState.CONVICTED, 1, "have it repaired"),
        (
            replace(QUIET, test_history=replace(CONVICTED, tests=(replace(TEST, campaign="c2", outcome="pass"), TEST))),
            MachineState.CLEAR,
            0,
            "nothing",
        ),
        (replace(QUIET, test_history=CONVICTED, actions=act("released", changed=NOON + 60)), MachineState.CLEAR, 0, "nothing"),
    ],
)  # fmt: skip
def test_the_gravest_answer_wins_and_says_what_to_do(
    facts: MachineFacts, word: MachineState, status: int, do: str
) -> None:
    standing = assess(facts)
    assert (standing.state, standing.exit_code) == (word, status), standing
    assert do in "\n".join(standing.next_steps), standing.next_steps


@pytest.mark.parametrize(
    ("actors", "kind", "typed"),
    [
        (("slurm",), OwnerKind.USER, "scontrol update nodename=gpu-a17 state=drain reason='hangdog: 3fa9c2d4e5f6'"),
        (("none",), OwnerKind.PODS, "kubectl cordon gpu-a17"),
        (("none",), OwnerKind.USER, "start its job again without it: no scheduler started the job"),
    ],
)
def test_what_a_person_does_by_hand_is_a_command_of_the_jobs_scheduler_and_none_that_the_server_refuses(
    actors: tuple[str, ...], kind: OwnerKind, typed: str
) -> None:
    refused = replace(QUIET, accusations=(ACCUSED,), actions=act("refused", message="4 an hour"), actors=actors)
    jobs = tuple(replace(job, owner=Owner(kind, "1", 1)) for job in NOW.jobs)
    facts = replace(refused, now=replace(NOW, jobs=jobs), mode="approve")
    assert typed in assess(facts).next_steps
    assert any("hangdog approve" in line for line in assess(facts).next_steps)
    for state in ("refused", "waiting", "dry-run"):
        dry = replace(facts, mode="dry-run", actions=act(state))
        assert typed in assess(dry).next_steps
        assert not any("approve" in line for line in assess(dry).next_steps), "the server would refuse it"


def test_an_order_that_a_shell_would_read_otherwise_is_quoted() -> None:
    standing = assess(replace(found(Impact.SUSPECTS), machine="a; rm -rf /"))
    assert "hangdog test run --machines 'a; rm -rf /'" in standing.next_steps[0]


def everything(
    machine: str = "gpu-a17", job: str = "llama-70b", words: str = "server filer-3 not responding"
) -> MachineFacts:
    """A machine of which there is something to tell in every section, and more than a screen holds."""
    findings = tuple(
        Finding("kernel", f"NFS {n}", Impact.SUSPECTS, words, machine, times=n, device=words)
        for n in (1, 2, 3, 4, 5, 6)
    )
    incident, entry = replace(INCIDENT, job=job), replace(ENTRY, job=job)
    suspect = replace(SUSPECT, because=reasons(*(f"{number}. {words}" for number in range(9))))
    return MachineFacts(
        machine,
        replace(NOW, jobs=(JobLine(job, (Rank(0), Rank(1)), 64, ""),), findings=findings),
        (Accusation(incident, entry, (suspect,)),),
        (),
        (entry, replace(entry, mention="cleared", incident="2e"), replace(entry, kind="diagnosis", incident="c1", job="")),
        replace(CONVICTED, tests=(replace(TEST, campaign="c2", says=words, others=(machine,)), TEST)),
        act("waiting", message=words, who=machine),
        "approve",
        words,
    )  # fmt: skip


def text(facts: MachineFacts, width: int = 80) -> str:
    out = StringIO()
    show(facts, assess(facts), Console(file=out, width=width, highlight=False, markup=False, emoji=False))
    return out.getvalue()


def test_the_text_is_the_golden_one_and_one_screen() -> None:
    assert not differing(GOLDEN / "why.txt", text(everything()))
    assert len(text(everything()).splitlines()) <= 50


@pytest.mark.parametrize("width", [24, 80])
@pytest.mark.parametrize("hostile", ["\x1b[2J\x07", "\u202egpj", "[bold]", "two\nlines", "y" * 100_000])
def test_whatever_a_machine_calls_itself_is_shown_harmlessly(hostile: str, width: int) -> None:
    shown = text(everything(hostile, hostile, hostile), width)
    assert len(shown) < 20_000
    for line in shown.split("\n"):
        assert line.isprintable() and cell_len(line) <= width, line
    assert "\x1b" not in json.dumps(as_json(everything(hostile, hostile, hostile), assess(everything(hostile))))


def test_tests_that_say_the_same_in_one_second_are_told_once_and_counted() -> None:
    later, other = replace(TEST, at=NOON + 0.5), replace(TEST, at=NOON + 1)
    tests = (other, later, replace(TEST, says="otherwise"), TEST)
    shown = text(replace(QUIET, test_history=replace(CONVICTED, tests=tests)))
    lines = [line.strip() for line in shown.splitlines() if "fail," in line]
    assert lines == [
        "- 2027-01-15 08:00:01 UTC  fail, one device: gemm: it fails",
        "- 2027-01-15 08:00:00 UTC  2 x fail, one device: gemm: it fails",
        "- 2027-01-15 08:00:00 UTC  fail, one device: gemm: otherwise",
    ]
    assert len(as_json(replace(QUIET, test_history=replace(CONVICTED, tests=tests)), assess(QUIET))["tests"]) == 4  # type: ignore[arg-type]  # a list


def test_json_has_all_that_was_asked_for() -> None:
    document = as_json(everything(), assess(everything()))
    assert (document["schema"], document["state"], document["incident"]) == (
        "hangdog.why/1",
        "convicted",
        "3fa9c2d4e5f6",
    )
    assert document["probability"] == 0.97 and len(document["reasons"]) == 9  # type: ignore[arg-type]  # a list
