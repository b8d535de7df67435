"""The parts of the supervisor: its file, its hooks, its command lines, and its bill."""

import os
import re
import resource
import threading
import uuid
from collections.abc import Iterator
from http.server import BaseHTTPRequestHandler, HTTPServer
from pathlib import Path

import pytest

from hangdog.supervising.descendants import with_environ
from hangdog.supervising.history_file import HistoryFile
from hangdog.supervising.hooks import carry_out, check
from hangdog.supervising.outage_bill import outage_lines
from hangdog.supervising.run_order import RunOrder, commands, machines_in_use
from hangdog.supervising.spares import free_spares
from hangdog_models.errors import UnreadableEvidence, WrongUse
from hangdog_models.recovery.recovery_history import (
    Began,
    Entry,
    Finished,
    OutageOpened,
    Progressed,
    RecoveryRung,
    RecoveryStep,
    StepDone,
    Stepped,
    Troubled,
)
from hangdog_models.recovery.trouble import Cause, Trouble, of_exit
from support.cases.goldens import differing
from support.fakes import targets
from support.refused import refused

GOLDEN = Path(__file__).parent / "golden"
STEP = RecoveryStep(RecoveryRung.DIAGNOSE, ("a reason", 'with "quotes"'), changes=("one",))
ORDER = RunOrder(("run", "{machine}:{index}", "of {machines} {nothing}"), ("a", "b"), ("c", "d"), "job", Path())


def test_an_entry_is_read_back_and_half_of_one_is_forgotten(tmp_path: Path) -> None:
    path = tmp_path / "new" / "history.jsonl"
    with HistoryFile(path) as kept:
        kept.add(OutageOpened(1.0, "run"))
        kept.add(Began(2.0, ("ä", "b\n"), "t"))
    whole = path.read_bytes()
    path.write_bytes(whole + b'{"entry": "finis')
    with HistoryFile(path) as kept:
        assert kept.entries == (OutageOpened(1.0, "run"), Began(2.0, ("ä", "b\n"), "t"))
        kept.add(Finished(3.0))
    with HistoryFile(path) as kept:
        assert kept.entries[-1] == Finished(3.0)


def test_a_history_cut_anywhere_is_a_shorter_history(tmp_path: Path) -> None:
    """As a kill or a power cut leaves it: whole entries are kept, and the next one follows them."""
    path = tmp_path / "history.jsonl"
    with HistoryFile(path) as kept:
        for number in range(3):
            kept.add(Stepped(float(number), number, STEP))
        entries = kept.entries
    whole = path.read_bytes()
    for cut in range(0, len(whole), 37):
        path.write_bytes(whole[:cut])
        with HistoryFile(path) as kept:
            assert kept.entries == entries[: whole[:cut].count(b"\n")]
            kept.add(Finished(9.0))
        with HistoryFile(path) as kept:
            assert kept.entries[-1] == Finished(9.0)


def test_an_entry_that_the_disk_did_not_take_is_none(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Neither half of one, where it is full, nor one of which it does not say that it has it."""
    path = tmp_path / "history.jsonl"
    with HistoryFile(path) as kept:
        kept.add(OutageOpened(1.0, "run"))
        whole = path.read_bytes()
        before = resource.getrlimit(resource.RLIMIT_FSIZE)
        resource.setrlimit(resource.RLIMIT_FSIZE, (len(whole) + 9, before[1]))
        try:
            with pytest.raises(OSError, match="too large"):
                kept.add(Finished(2.0))
        finally:
            resource.setrlimit(resource.RLIMIT_FSIZE, before)
        assert (path.read_bytes(), kept.entries) == (whole, (OutageOpened(1.0, "run"),))
        with monkeypatch.context() as patched:
            patched.setattr(os, "fsync", _full)
            with pytest.raises(OSError, match="full"):
                kept.add(Finished(2.0))
        assert (path.read_bytes(), kept.entries) == (whole, (OutageOpened(1.0, "run"),))
        kept.add(Finished(3.0))
    with HistoryFile(path) as kept:
        assert kept.entries == (OutageOpened(1.0, "run"), Finished(3.0))


def _full(_file: int) -> None:
    raise OSError("the disk is full")


def test_a_damaged_history_is_no_empty_one(tmp_path: Path) -> None:
    path = tmp_path / "history.jsonl"
    path.write_bytes(b"\xff\xfe\n")
    with refused("damaged-history", UnreadableEvidence, "line 1"), HistoryFile(path):
        pass


@pytest.mark.parametrize(
    ("hook", "ok", "words", "convicted"),
    [
        ("echo b", True, "b", ("b",)),
        ("printf 'found:\\n b \\nnot c\\nb\\nd\\n'", True, "d", ("b", "d")),
        ("sh -c 'echo b; echo why >&2; exit 3'", False, "ended with status 3: why", ()),
        ("sh -c 'echo b; sleep 600'", False, "did not end within 0.5 s", ()),
        ("/nowhere/at-all", False, "No such file", ()),
        ("sh -c 'echo $HANGDOG_STEP $HANGDOG_STEP_ID $HANGDOG_STEP_CHANGES; echo $(echo x)'", True, "x", ()),
    ],
)
def test_a_hook_answers(tmp_path: Path, hook: str, ok: bool, words: str, convicted: tuple[str, ...]) -> None:
    patience_s = 0.5 if "600" in hook else 60.0
    answer = carry_out(hook, STEP, "run-1", ("b", "c", "d"), tmp_path / "log", patience_s)
    assert (answer.ok, answer.convicted) == (ok, convicted)
    assert words in answer.message
    if "$HANGDOG" in hook:
        assert (tmp_path / "log").read_text() == "diagnose run-1 one\nx\n"


def test_a_hook_that_takes_too_long_is_ended_with_its_children(tmp_path: Path) -> None:
    name = f"run-{uuid.uuid4()}"
    assert not carry_out("sh -c 'sleep 600 & sleep 600'", STEP, name, (), tmp_path / "log", 1.0).ok
    targets.until(lambda: not with_environ("HANGDOG_STEP_ID", name))


class Hearer(BaseHTTPRequestHandler):
    """Answers what the path says, and remembers what it was sent."""

    heard: list[tuple[str, bytes]]

    def do_POST(self) -> None:
        body = self.rfile.read(int(self.headers["Content-Length"]))
        self.heard.append((self.headers["Idempotency-Key"], body))
        self.send_response(int(self.path[1:]))
        self.send_header("Location", "/200")
        self.end_headers()

    def log_message(self, *_: object) -> None:
        pass


@pytest.fixture
def hearer() -> Iterator[str]:
    Hearer.heard = []
    with HTTPServer(("127.0.0.1", 0), Hearer) as server:
        thread = threading.Thread(target=server.serve_forever, args=(0.02,))
        thread.start()
        yield f"http://127.0.0.1:{server.server_port}"
        server.shutdown()
        thread.join()


def test_a_webhook_is_delivered_by_2xx_only(tmp_path: Path, hearer: str) -> None:
    answers = [carry_out(f"{hearer}/{code}", STEP, "run-1", (), tmp_path / "log", 9.0).ok for code in (204, 500, 302)]
    assert answers == [True, False, False]
    assert [key for key, _ in Hearer.heard] == ["run-1"] * 3  # and nothing followed the redirect
    assert b'"act": "diagnose"' in Hearer.heard[0][1]
    assert not carry_out("http://127.0.0.1:1/", STEP, "run-1", (), tmp_path / "log", 9.0).ok


@pytest.mark.parametrize(("hook", "tests"), [("", False), ("sh -c 'open", False), ("http://x/", True)])
def test_what_can_be_no_hook_is_refused(hook: str, tests: bool) -> None:
    with pytest.raises(WrongUse):
        check(hook, tests)


def test_a_spare_takes_the_place_of_whoever_is_out() -> None:
    outs: tuple[tuple[str, ...], ...] = ((), ("a",), ("a", "c"), ("c",))
    assert [machines_in_use(ORDER, out) for out in outs] == [("a", "b"), ("c", "b"), ("d", "b"), ("a", "b")]
    assert [free_spares(ORDER, machines_in_use(ORDER, out), out) for out in outs] == [("c", "d"), ("d",), (), ("d",)]
    with refused("no-spare-left", WrongUse):
        machines_in_use(ORDER, ("a", "c", "d"))


def test_places_in_the_command_are_filled() -> None:
    assert commands(ORDER, ("a", "c"), 1, 1) == {
        "a": ("run", "a:0", "of 2 {nothing}"),
        "c": ("run", "c:1", "of 2 {nothing}"),
    }
    once = RunOrder(("srun", "--nodelist={active}", "{first}:{port}"), ("a", "b"), (), "job", Path(), once=True)
    assert commands(once, ("a", "b"), 29500, 1) == {"a": ("srun", "--nodelist=a,b", "a:29500")}


@pytest.mark.parametrize(
    ("words", "cause"),
    [
        ("Traceback (most recent call last):\n  File\nTypeError: x", Cause.SOFTWARE),
        ("[rank3]: Traceback (most recent call last):\n[rank3]: KeyError: 'x'\nRuntimeError: peers", Cause.SOFTWARE),
        ("Traceback (most recent call last):\ntorch.OutOfMemoryError: CUDA out of memory", Cause.UNKNOWN),
        ("Traceback (most recent call last):\nRuntimeError: CUDA error: an illegal memory access", Cause.UNKNOWN),
        ("ValueError: that was caught and logged\nSegmentation fault", Cause.UNKNOWN),
        ("", Cause.UNKNOWN),
    ],
)
def test_an_exit_tells_whether_the_code_is_to_blame(words: str, cause: Cause) -> None:
    trouble = of_exit({"a": 0, "b": 1}, {"a": "TypeError", "b": words})
    assert trouble.cause is cause
    assert re.search(r"\bended on b .*\bstatus 1\b", trouble.what)


def test_the_bill_says_where_the_time_went() -> None:
    trouble = Trouble(Cause.UNKNOWN, "x")
    history: list[Entry] = [
        *(OutageOpened(0.0, "run"), Began(0.0, ("a",), "t"), Progressed(5.0), Troubled(120.0, 100.0, trouble)),
        *(Stepped(120.0, 1, RecoveryStep(RecoveryRung.DIAGNOSE, ("x",))), StepDone(150.0, 1, True)),
        *(
            Stepped(150.0, 2, RecoveryStep(RecoveryRung.REATTEMPT, ("x",))),
            StepDone(150.0, 2, True),
            Began(151.0, ("a",), "u"),
        ),
    ]
    told = ["within it", *outage_lines(history, 160.0)]
    again = Troubled(155.0, 151.0, trouble)
    history += [
        again,
        Stepped(155.0, 3, RecoveryStep(RecoveryRung.ROLLBACK, ("x",))),
        Began(160.0, ("a",), "v"),
        Progressed(170.0),
    ]
    told += ["and where the job failed once more before it trained", *outage_lines(history, 200.0)]
    assert not differing(GOLDEN / "outages.txt", "".join(f"{line}\n" for line in told))
