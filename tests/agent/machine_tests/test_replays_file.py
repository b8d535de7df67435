"""What a server may have replayed: only what a file of this machine's administrator names, and only by that name."""

import os
from pathlib import Path

import pytest

from hangdog_agent.machine_tests.ordered_tests import OrderedTest
from hangdog_agent.machine_tests.remote_tests import wanted
from hangdog_agent.machine_tests.replays import read_replays
from hangdog_agent.machine_tests.settings import RemoteTestSettings
from hangdog_models.errors import HangdogError, UnreadableEvidence, WrongUse
from hangdog_proto.generated import hangdog_pb2 as pb
from support.refused import refused

LLAMA = ("/opt/llama/bin/python", "/opt/llama/reproduce.py", "--steps=20")
GOOD = '[tests.replay]\nllama = ["/opt/llama/bin/python", "/opt/llama/reproduce.py", "--steps=20"]\n'


def kept(folder: Path, text: str, mode: int = 0o644) -> Path:
    path = folder / "replays.toml"
    path.write_text(text)
    path.chmod(mode)
    return path


def order(name: str) -> pb.Diagnose:
    return pb.Diagnose(launch="c-0", levels=[5], repetitions=1, deadline_s=60.0, members=["gpu-a17"], replay=name)


def test_a_name_stands_for_the_command_that_the_file_gives_it(tmp_path: Path) -> None:
    replays = read_replays(kept(tmp_path, GOOD))
    assert replays == {"llama": LLAMA}
    asked = wanted(order("llama"), RemoteTestSettings(), replays)
    assert asked == OrderedTest((5,), 1, 60.0, ("gpu-a17",), 0, command=LLAMA)


def test_without_a_name_it_is_the_program_of_ours_whatever_the_file_holds(tmp_path: Path) -> None:
    assert wanted(order(""), RemoteTestSettings(), read_replays(kept(tmp_path, GOOD))).command == ()
    assert wanted(order(""), RemoteTestSettings(), {}).command == ()


@pytest.mark.parametrize("name", ["qwen", "LLAMA", "/opt/llama/bin/python", "llama; id", "x" * 5000])
def test_a_name_that_the_file_does_not_hold_is_refused_in_words(tmp_path: Path, name: str) -> None:
    with refused("no-such-replay", WrongUse, "this agent's settings name no replay", name[:100]) as caught:
        wanted(order(name), RemoteTestSettings(), read_replays(kept(tmp_path, GOOD)))
    assert len(str(caught.value)) < 400


@pytest.mark.parametrize("mode", [0o664, 0o646, 0o666, 0o777])
def test_a_file_that_others_may_write_is_refused(tmp_path: Path, mode: int) -> None:
    with refused("unsafe-file", WrongUse, "others may change"):
        read_replays(kept(tmp_path, GOOD, mode))


@pytest.mark.skipif(os.geteuid() != 0, reason="only root gives files away")
def test_a_file_of_another_user_is_refused(tmp_path: Path) -> None:
    path = kept(tmp_path, GOOD)
    os.chown(path, 12345, 12345)
    with refused("unsafe-file", WrongUse, "others may change"):
        read_replays(path)


@pytest.mark.parametrize(
    ("text", "code"),
    [
        ("[tests.replay", "damaged-toml"),
        ("\ud800".encode("utf-8", "surrogatepass").decode("latin-1"), "damaged-toml"),
        ("", "wrong-setting"),
        ("[replay]\nllama = ['/a']\n", "wrong-setting"),
        ("[tests.replays]\nllama = ['/a']\n", "wrong-setting"),
        ("tests = 3\n", "wrong-setting"),
        (GOOD + "[tests.more]\n", "wrong-setting"),
        (GOOD + "[more]\n", "wrong-setting"),
        ("[tests.replay]\nllama = '/bin/sh -c id'\n", "wrong-setting"),
        ("[tests.replay]\nllama = []\n", "wrong-setting"),
        ("[tests.replay]\nllama = ['/a', 3]\n", "wrong-setting"),
        ("[tests.replay]\nllama = ['/a', \"b\\u0000\"]\n", "wrong-setting"),
        ("[tests.replay]\nllama = ['python', 'train.py']\n", "wrong-setting"),
        ("[tests.replay]\n" + "".join(f"a{at} = ['/a']\n" for at in range(65)), "wrong-setting"),
        (GOOD + "#" * 70_000, "too-long"),
    ],
)
def test_a_file_that_says_something_else_is_refused_whole(tmp_path: Path, text: str, code: str) -> None:
    with refused(code, HangdogError, "replays.toml"):
        read_replays(kept(tmp_path, text))


def test_a_file_that_is_not_there_is_said(tmp_path: Path) -> None:
    with refused("unreadable-file", UnreadableEvidence, "No such file"):
        read_replays(tmp_path / "none.toml")


def test_an_empty_table_allows_nothing(tmp_path: Path) -> None:
    assert read_replays(kept(tmp_path, "[tests.replay]\n")) == {}
