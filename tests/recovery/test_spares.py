"""Spares are tested before they are used: who passes, who is kept out and why, and what is left when nobody passes."""

import asyncio
import json
import re
import shlex
import subprocess
import sys
from collections.abc import AsyncIterator, Mapping, Sequence
from importlib.util import find_spec
from pathlib import Path
from typing import Any

import pytest

from hangdog.commands.act.test import run as run_tests
from hangdog.supervising.run_order import RunOrder, machines_in_use
from hangdog.supervising.spare_upkeep import campaign_words, environ_for
from hangdog.supervising.spares import free_spares, run_spare_tests, spares_coming_in
from hangdog.supervising.watcher import WatchedCluster
from hangdog_models.planning.checkpoint import Copies
from hangdog_models.recovery.journal import read, written
from hangdog_models.recovery.ladder_state import stand
from hangdog_models.recovery.recovery_history import (
    Began,
    Entry,
    OutageOpened,
    RecoveryRung,
    RecoveryStep,
    StepDone,
    Stepped,
    Tried,
)
from hangdog_models.recovery.recovery_ladder import RecoveryResources, next_step
from hangdog_models.recovery.spare_tests import SpareTest, of_campaign
from hangdog_models.recovery.trouble import Cause, Trouble
from hangdog_proto.client.server_address import ServerAddress
from support.servers.cast import Stage, stage
from support.servers.tested import QUICK, Answer, broken, machines, skipped, sound

#: Much longer than anything here takes on a busy machine. Seconds.
PATIENCE_S = 100.0
ORDER = RunOrder(("run",), ("a", "b"), ("c", "d", "e"), "job", Path(), levels=(1,), test_s=300.0)
#: A job of which the machines named in the file `bad` fail; each start is a line in `starts`.
JOB = """
import sys
from pathlib import Path
machine, folder = sys.argv[1], Path(sys.argv[2])
with (folder / "starts").open("a") as starts:
    starts.write(machine)
sys.exit(machine in (folder / "bad").read_text().split())
"""


def launches(*results: tuple[str, str]) -> dict[str, Any]:
    return {
        "launches": [{"machines": ["c"], "test": test, "result": result, "says": "x"} for test, result in results],
        "convicted": [],
        "untested": [],
    }


@pytest.mark.parametrize(
    ("report", "levels", "trial"),
    [
        (launches(("one device", "pass"), ("one device", "pass")), (1,), SpareTest(("c",))),
        (launches(("one device", "pass"), ("one device", "inconclusive")), (1,), SpareTest(("c",))),
        (
            launches(("one device", "pass")),
            (1, 4),
            SpareTest(doubtful={"c": "it was not tested: the time did not suffice"}),
        ),
        (
            launches(("one device", "pass"), ("one device", "fail")),
            (1,),
            SpareTest(doubtful={"c": "it failed a test: x"}),
        ),
        (
            {**launches(("one device", "fail")), "convicted": [{"machine": "c", "because": ["y\n", "z"]}]},
            (1,),
            SpareTest(failed={"c": "y"}),
        ),
        (
            {"untested": [{"machine": "d", "why": "z"}, {"machine": "c", "why": "it is lost"}]},
            (1,),
            SpareTest(doubtful={"c": "it was not tested: it is lost"}),
        ),
        (
            {"launches": [7, {"machines": "c"}], "convicted": {"machine": "c"}, "untested": None},
            (1,),
            SpareTest(doubtful={"c": "it was not tested: the time did not suffice"}),
        ),
        (
            {"launches": [{"machines": ["c"], "test": ["x"], "result": "pass"}]},
            (1,),
            SpareTest(doubtful={"c": "it was not tested: the time did not suffice"}),
        ),
    ],
)
def test_what_a_report_says_of_a_spare(report: Mapping[str, Any], levels: Sequence[int], trial: SpareTest) -> None:
    assert of_campaign(("c",), levels, report) == trial


def test_only_spares_that_passed_take_a_place_in_the_order_in_which_they_did() -> None:
    history: list[Entry] = [OutageOpened(1.0, "run"), Began(1.0, ("a", "b"), "t")]
    assert machines_in_use(ORDER, stand(history, 2.0).out, stand(history, 2.0).fit) == ("a", "b")
    evict = RecoveryStep(RecoveryRung.EVICT, ("x",), ("b",))
    assert spares_coming_in(evict, ("a", "b"), ("c", "d")) == ("c",)
    assert spares_coming_in(RecoveryStep(RecoveryRung.EVICT, ("x",), ("c", "b", "a")), ("a", "b"), ("c", "d", "e")) == (
        "d",
        "e",
    )
    assert spares_coming_in(RecoveryStep(RecoveryRung.HUMAN, ("x",)), ("a", "b"), ("c", "d")) == ()
    history += [Tried(2.0, (), ("c",)), Tried(2.0, ("e",), ()), Stepped(2.0, 1, evict)]
    assert [read(written(entry)) for entry in history] == history
    standing = stand(history, 3.0)
    assert standing.out == ("c", "b"), "who failed is out for good"
    assert machines_in_use(ORDER, standing.out, standing.fit) == ("a", "e"), "nobody knows of d"
    history += [Began(3.0, ("a", "e"), "u"), Tried(4.0, ("d",), ())]
    history += [Stepped(4.0, 2, RecoveryStep(RecoveryRung.EVICT, ("x",), ("a",)))]
    standing = stand(history, 5.0)
    assert set(machines_in_use(ORDER, standing.out, standing.fit)) == {"d", "e"}
    assert free_spares(ORDER, ("d", "e"), standing.out) == ()


def test_a_spare_that_tests_of_the_job_convicted_and_that_failed_since_is_not_evicted_once_more() -> None:
    diagnosed: list[Entry] = [
        Stepped(1.0, 1, RecoveryStep(RecoveryRung.DIAGNOSE, ("x",))),
        StepDone(2.0, 1, ok=True, convicted=("b", "c")),
    ]
    assert stand([*diagnosed, Tried(3.0, (), ("c",))], 4.0).convicted == ("b",)


def test_a_pass_that_led_to_nothing_is_no_pass_the_next_time() -> None:
    history: list[Entry] = [Began(1.0, ("a", "b"), "t"), Tried(2.0, ("c",), ()), Tried(3.0, (), ())]
    assert stand(history, 4.0).fit == ("a", "b")


def test_a_person_is_told_why_spares_are_not_counted() -> None:
    trouble = Trouble(Cause.MACHINE, "verdict machine, 97%", (("b",),))
    copies: Copies = {}
    step = next_step([], trouble, 1.0, RecoveryResources((), ("spare c is not used: it is lost",), copies=copies))
    assert step.act is RecoveryRung.HUMAN and step.reasons[-1] == "spare c is not used: it is lost"
    assert step.reasons[-2].startswith("b ") and "no spares" in step.reasons[-2]


def test_where_nobody_can_test_all_spares_are_doubtful() -> None:
    trial = run_spare_tests(WatchedCluster(ServerAddress("127.0.0.1:1")), ORDER, ("c", "d"), "a test")
    assert (trial.passed, trial.failed, list(trial.doubtful)) == ((), {}, ["c", "d"])
    assert "not be tested: " in trial.doubtful["c"] and "127.0.0.1:1" in trial.doubtful["c"]


def test_a_test_ahead_asks_the_server_of_the_job_with_its_token_in_the_environment_alone(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """The command line of a process is for everyone to read; and what names another server must not count."""
    monkeypatch.setenv("HANGDOG_SERVER", "elsewhere:1")
    monkeypatch.setenv("HANGDOG_TOKEN_FILE", "/nowhere")
    server = ServerAddress("gpu-head:7411", Path("/etc/tls"), "a-secret")
    words = campaign_words(ORDER, server, "c")
    assert "--server gpu-head:7411 --tls /etc/tls" in " ".join(words) and "a-secret" not in " ".join(words)
    run = run_tests.make_context("run", list(words[2:])).params
    assert (run["machines"], run["wanted"], run["budget"], run["form"]) == ("c", (1,), ORDER.test_s, "json")
    environ = environ_for(server)
    assert environ["HANGDOG_TOKEN"] == "a-secret"
    assert not {"HANGDOG_SERVER", "HANGDOG_TOKEN_FILE"} & environ.keys()
    assert "HANGDOG_TOKEN" not in environ_for(ServerAddress("127.0.0.1:1"))


@pytest.fixture
async def on(tmp_path: Path) -> AsyncIterator[Stage]:
    async with stage(tmp_path / "s.db", settings=QUICK) as on:
        yield on


class Scene:
    """`hangdog run` of JOB on a and b over a server; tests of the stopped job convict whoever is in `bad`."""

    def __init__(self, folder: Path, *options: str) -> None:
        self.folder = folder
        (folder / "job.py").write_text(JOB)
        told = shlex.join(["cat", str(folder / "bad")])
        self.command = (
            *(sys.executable, "-m", "hangdog", "run", "--state", str(folder / "state"), "--grace", "1s"),
            *("--machine", "a", "--machine", "b", *(word for name in "cdef" for word in ("--spare", name))),
            *(*options, "--on-diagnose", told, "--on-human", "sh -c 'echo \"$HANGDOG_STEP_BECAUSE\"'"),
            *("--", sys.executable, str(folder / "job.py"), "{machine}", str(folder)),
        )

    def run(self, bad: str) -> tuple[int, str]:
        (self.folder / "bad").write_text(bad)
        ran = subprocess.run(self.command, capture_output=True, text=True, timeout=3 * PATIENCE_S, check=False)
        return ran.returncode, ran.stderr

    def tested(self) -> list[tuple[list[str], list[str]]]:
        lines = (self.folder / "state" / "history.jsonl").read_text().splitlines()
        return [(one["passed"], one["failed"]) for one in map(json.loads, lines) if one["entry"] == "tried"]


@pytest.mark.slow
@pytest.mark.parallel
@pytest.mark.timeout(4 * PATIENCE_S)  # three runs, on a machine that has ten times as much to do as it can
async def test_a_spare_that_does_not_pass_is_named_and_the_next_is_taken_until_none_is_left(
    on: Stage, tmp_path: Path
) -> None:
    scene = Scene(tmp_path, "--attach", "--server", on.address, "--spare-level", "1")
    bare: Answer = lambda order: skipped(order.levels[0], "torch is not installed")
    async with machines(on, c=sound, d=broken(1), e=bare, f=sound) as played:
        status, said = await asyncio.to_thread(scene.run, "a\nb")
        assert status == 0, said
        assert "testing c, d, to replace a, b" in said
        assert re.search(r"\bspare d .*not used: one device: gemm: it fails", said)
        assert re.search(r"\bspare e .*not used: .*not tested: torch is not installed", said)
        assert "attempt 2 starts on c, f" in said
        assert scene.tested() == [(["c"], ["d"]), (["c"], []), (["c", "f"], [])]
        asked = len(played["d"].orders)
        status, said = await asyncio.to_thread(scene.run, "f")
        assert status == 1, said
        assert re.search(r"\bf must go, .*no spares.*; spare e .*not used: .*not tested: torch is not installed", said)
        assert len(played["d"].orders) == asked, "who failed is out for good"
        played["e"].answer = sound
        status, said = await asyncio.to_thread(scene.run, "f")
        assert (status, scene.tested()[-1]) == (0, (["e"], [])), said
        assert "starts on c, e" in said


@pytest.mark.slow
@pytest.mark.timeout(4 * PATIENCE_S)
@pytest.mark.skipif(find_spec("torch") is None, reason="torch is not installed: pip install 'hangdog[demo]'")
def test_on_one_machine_a_spare_moves_bytes_before_it_is_used(tmp_path: Path) -> None:
    """Real server and agents; two real processes stand for the devices between which known bytes go."""
    small = (
        "diagnose_processes=2",
        "diagnose.pair_bytes_cpu=65536",
        "diagnose.pair_repetitions=2",
        "diagnose.pair_passes=1",
    )
    sets = [word for one in small for word in ("--set", one)]
    scene = Scene(tmp_path, "--spare-level", "2", "--spare-budget", "10m", *sets)
    status, said = scene.run("b")
    assert status == 0, said
    assert "testing c, to replace b" in said and "attempt 2 starts on a, c" in said
    assert scene.tested() == [(["c"], [])]
