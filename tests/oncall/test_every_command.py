"""Every command line of `hangdog` has a golden file that a person has read, and a failure that says what to do."""

import shlex
from collections.abc import Iterator
from pathlib import Path

import click
import pytest
from click.testing import CliRunner

from hangdog.main import main
from hangdog_agent.capture import pyspy
from hangdog_models.stack import Missing, Reason
from support.servers.asking import ALONE, COMMANDS

GOLDEN = Path(__file__).parent / "golden"
#: Commands whose output is no text that people read, and where it is held instead.
ELSEWHERE = {
    "server": "runs until it is ended, and logs: tests/server/commands/test_commands.py",
    "agent": "runs until it is ended, and logs: tests/agent/test_agent_main.py",
    "schema": "a file of the package, as it is: tests/house/test_schema.py",
    "capture": "what it says depends on this machine: tests/capture/test_capture_command.py",
    "test local": "what it says depends on this machine: tests/house/test_machine_tests_command.py",
    "test abort": "one line: tests/server/campaigns/test_campaign_commands.py",
    "completion": "a program for the shell, by click: tests/house/test_door.py",
}


def lines_of(group: click.Group, words: tuple[str, ...] = ()) -> Iterator[str]:
    """The command lines that do something, as they are typed: `certs init`, not `certs`."""
    context = click.Context(group)
    for name in group.list_commands(context):
        command = group.get_command(context, name)
        assert command is not None
        if isinstance(command, click.Group):
            yield from lines_of(command, (*words, name))
        else:
            yield " ".join((*words, name))


EVERY = sorted(lines_of(main))


def meant(words: list[str]) -> str:
    """Which command these words call."""
    return max((line for line in EVERY if words[: line.count(" ") + 1] == line.split()), key=len, default="")


def test_every_command_has_a_golden_file() -> None:
    headings = [path.read_text(encoding="utf-8").partition("\n")[0] for path in GOLDEN.rglob("*.txt")]
    held = {meant(heading.removeprefix("$ hangdog ").split()) for heading in headings if heading.startswith("$ ")}
    assert [line for line in EVERY if line not in held and line not in ELSEWHERE] == []
    assert [line for line in ELSEWHERE if line in held] == [], "it has one: say so no longer"


def test_every_command_has_a_failure_that_a_test_provokes() -> None:
    """Those that ask a server have several, in test_on_call.py; the others one each, below."""
    asking = {meant(list(words)) for words in COMMANDS.values()}
    assert [line for line in EVERY if line not in asking and line not in ALONE] == []


@pytest.mark.parametrize("name", ALONE)
def test_what_cannot_be_done_is_refused_with_what_to_do(
    name: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    monkeypatch.setattr(pyspy, "load", lambda: Missing(Reason.TOOL_MISSING, "no py-spy"))
    (tmp_path / "broken").write_text("{")
    (tmp_path / "broken").chmod(0o600)
    (tmp_path / "ca").mkdir()
    (tmp_path / "ca" / "ca.pem").touch()
    typed, status = ALONE[name]
    assert meant(shlex.split(typed)) == name
    result = CliRunner().invoke(main, shlex.split(typed))
    assert result.exit_code == status, result.output
    if name == "doctor":
        assert "-> pip install" in result.stdout
        return
    what, _, then = result.stderr.partition("\n")
    assert what.startswith("hangdog") and then.startswith("  ") and then.strip(), result.output
