"""What trainers wrote last: of which rank it is, and whose a line is that does not say so; secrets stay here."""

import json

from hangdog_agent.exits import last_words
from hangdog_agent.stalls.progress.logs import LastWords
from hangdog_models.findings import Finding, Impact
from hangdog_models.ranks import Rank

RANKS = {(100, 1): Rank(4), (101, 1): Rank(5)}
BOTH = frozenset(RANKS)
ECC = "terminate called after throwing an instance of 'c10::Error'\n  what():  CUDA error: uncorrectable ECC error encountered\n"


def trace(prefix: str, error: str) -> str:
    lines = ("Traceback (most recent call last):", '  File "/x/train.py", line 8, in <module>', "    step()", error)
    return "".join(f"{prefix}{line}\n" for line in lines)


def said(
    text: str, writers: frozenset[tuple[int, int]] = BOTH, world: int = 8
) -> list[tuple[Rank | None, str, Impact]]:
    found = last_words.findings(LastWords({writers: text.encode()}, {}), RANKS, world)
    return [(one.rank, one.code, one.impact) for one in found]


def test_a_log_of_ones_own_is_that_ranks() -> None:
    assert said(trace("", "ValueError: x"), frozenset({(101, 1)})) == [(5, "ValueError", Impact.PROGRAM)]
    assert said(ECC, frozenset({(101, 1)})) == [(5, "CUDA uncorrectable ECC", Impact.CONVICTS)]


def test_in_a_log_of_several_the_prefix_tells_whose_a_line_is() -> None:
    lost = trace(
        "[rank4]: ", "RuntimeError: [../gloo/transport/tcp/pair.cc:534] Connection closed by peer [10.0.0.1]:3"
    )
    assert said(trace("[rank5]: ", "ValueError: x") + lost) == [
        (4, "connection lost", Impact.VICTIM),
        (5, "ValueError", Impact.PROGRAM),
    ]
    assert (5, "ValueError", Impact.PROGRAM) in said(trace("[default1]:", "ValueError: x"))


def test_other_machines_ranks_in_a_shared_log_are_none_of_ours() -> None:
    assert said(trace("[rank0]: ", "ValueError: x")) == []
    assert said(trace("[rank0]: ", "ValueError: x") + trace("[rank5]: ", "KeyError: y") + ECC) == [
        (5, "KeyError", Impact.PROGRAM)
    ], "whose GPU that is nothing tells"


def test_what_says_nothing_of_its_rank_is_this_machines_where_only_its_ranks_speak() -> None:
    assert (None, "CUDA uncorrectable ECC", Impact.CONVICTS) in said(trace("[rank5]: ", "KeyError: y") + ECC)
    assert said(ECC, world=2) == [(None, "CUDA uncorrectable ECC", Impact.CONVICTS)]
    assert said(ECC) == []


def test_the_launchers_word_that_it_was_told_to_stop_comes_through() -> None:
    text = "W1125 api.py:725] Received 15 death signal, shutting down workers\n"
    for before in ("", trace("[rank4]: ", "KeyError: y")):
        assert "told to stop" in [code for _, code, _ in said(before + text)]


def test_an_error_file_is_its_ranks() -> None:
    message = {"message": "ValueError: x", "extraInfo": {"py_callstack": trace("", "ValueError: x"), "timestamp": "1"}}
    errors = {(100, 1): json.dumps({"message": message}).encode(), (101, 1): b"{", (99, 9): b"{}"}
    found = last_words.findings(LastWords({}, errors), RANKS, 8)
    assert [(one.rank, one.code) for one in found] == [(4, "ValueError")]


def test_secrets_are_taken_out() -> None:
    text = trace("", "ValueError: login failed, password=hunter2hunter2")
    (found,) = last_words.findings(LastWords({frozenset({(101, 1)}): text.encode()}, {}), RANKS, 8)
    assert isinstance(found, Finding) and "hunter2" not in found.what and "login failed" in found.what
