"""The `hangdog` command itself: lazy, and every failure a sentence and an exit status."""

import os
import re
import subprocess
import sys
from collections.abc import Callable
from importlib.metadata import requires

import click
import pytest
from click.testing import CliRunner, Result

from hangdog.main import EXTRAS, INSTALLED, LINES, CommandGroup, main
from hangdog_models.errors import HangdogError, OurFault, ServerUnreachable, UnreadableBundle, WrongUse


class OneRoom(CommandGroup):
    """The real door with a single command behind it, which does what the test says."""

    def __init__(self, act: Callable[[], object]) -> None:
        super().__init__("hangdog", params=list(main.params), callback=main.callback)
        self.act = act

    def get_command(self, ctx: click.Context, cmd_name: str) -> click.Command:
        return click.Command(cmd_name, callback=self.act)


def ask(act: Callable[[], object], *options: str, **environment: str) -> Result:
    return CliRunner().invoke(OneRoom(act), [*options, "go"], env=environment)


def failing(error: BaseException) -> Callable[[], None]:
    def act() -> None:
        raise error

    return act


def run(*args: str, **environment: str) -> subprocess.CompletedProcess[str]:
    return subprocess.run(
        [sys.executable, "-m", "hangdog", *args],
        capture_output=True,
        text=True,
        env=os.environ | environment,
        check=False,
        timeout=60,
    )


@pytest.mark.parametrize(
    ("error", "status"),
    [
        (WrongUse("no", "do this"), 64),
        (UnreadableBundle("no", "do this"), 65),
        (ServerUnreachable("no", "do this"), 69),
        (OurFault("no", "do this"), 70),
        (HangdogError("no", "do this"), 70),
    ],
    ids=lambda value: type(value).__name__,
)
def test_our_errors_say_what_and_what_to_do(error: HangdogError, status: int) -> None:
    result = ask(failing(error))
    assert (result.exit_code, result.stdout, result.stderr) == (status, "", "hangdog: no\n  do this\n")


def test_an_unexpected_error_is_told_as_our_bug_and_shows_the_traceback_only_when_asked() -> None:
    quiet = ask(failing(ValueError("boom")))
    assert quiet.exit_code == 70
    assert quiet.stderr.startswith("hangdog: this is a bug in hangdog: ValueError: boom [bug]\n")
    assert "Traceback" not in quiet.stderr
    assert "Traceback" in ask(failing(ValueError("boom")), "--debug").stderr
    assert "Traceback" in ask(failing(ValueError("boom")), HANGDOG_DEBUG="1").stderr


def test_a_full_disk_is_not_called_our_bug() -> None:
    result = ask(failing(OSError(28, "No space left on device", "incidents.db")))
    assert result.exit_code == 70
    assert "incidents.db" in result.stderr and "[out-of-resources]" in result.stderr


@pytest.mark.parametrize(("package", "extra"), EXTRAS.items())
def test_a_missing_package_names_its_extra(package: str, extra: str) -> None:
    result = ask(failing(ModuleNotFoundError("No module", name=f"{package}.orm")))
    assert result.exit_code == 64
    assert INSTALLED[extra] in result.stderr and "pip install hangdog" not in result.stderr


def test_a_missing_module_of_our_own_is_our_bug() -> None:
    assert ask(failing(ModuleNotFoundError("No module", name="hangdog_models.oops"))).exit_code == 70


def test_every_package_of_an_extra_is_known_to_bring_that_extra() -> None:
    optional = {
        re.sub("opentelemetry_.*", "opentelemetry", re.split(r"[][<>=;! ]", line)[0].replace("-", "_"))
        for line in requires("hangdog") or ()
        if "extra ==" in line and not line.startswith("hangdog")
    }
    modules = {
        "grpcio_health_checking": "grpc_health",
        "scikit_learn": "sklearn",
    }  # where the package is called otherwise than what it brings
    assert {modules.get(name, name) for name in optional} == set(EXTRAS)


def test_ctrl_c_ends_with_130() -> None:
    result = ask(failing(KeyboardInterrupt()))
    assert result.exit_code == 130
    assert "Traceback" not in result.stderr


@pytest.mark.parametrize(("act", "status"), [(lambda: 2, 2), (lambda: None, 0), (lambda: sys.exit(1), 1)])
def test_a_command_may_return_or_raise_its_status(act: Callable[[], object], status: int) -> None:
    assert ask(act).exit_code == status


def test_control_characters_in_an_error_reach_no_terminal() -> None:
    result = ask(failing(WrongUse("file \x1b]0;owned\x07", "see \x1b[31m")))
    assert result.stderr == "hangdog: file \\x1b]0;owned\\x07\n  see \\x1b[31m\n"


@pytest.mark.parametrize(
    ("args", "said"),
    [
        (["nope"], "No such command 'nope'."),
        (["--nope"], "No such option"),
        (["schema"], "Missing argument"),
        (["schema", "incident"], "'incident' is not"),
        (["schema", "verdict", "again"], "unexpected extra argument"),
    ],
)
def test_wrong_use_is_64_with_the_help_to_ask_for(args: list[str], said: str) -> None:
    result = CliRunner().invoke(main, args)
    assert result.exit_code == 64
    assert result.stdout == ""
    assert said in result.stderr
    assert result.stderr.splitlines()[-1].startswith("  try 'hangdog")


def test_help_version_and_an_empty_command_line_import_no_sub_command() -> None:
    assert run("--version").stdout.startswith("hangdog ")
    assert run().stdout == run("--help").stdout
    probe = "import sys; from hangdog.main import main; main(['--help'], standalone_mode=False); print(*sys.modules)"
    loaded = subprocess.run(
        [sys.executable, "-c", probe], capture_output=True, text=True, check=False, timeout=60
    ).stdout.split()
    assert "click" in loaded
    assert not {"rich", "numpy", "grpc", "hangdog_server", "hangdog_agent", "hangdog.commands"} & set(loaded)


def test_a_reader_that_goes_away_is_no_error() -> None:
    read, write = os.pipe()
    os.close(read)
    for args in (["--help"], ["schema", "verdict"]):
        ended = subprocess.run(
            [sys.executable, "-m", "hangdog", *args], stdout=write, stderr=subprocess.PIPE, check=False, timeout=60
        )
        assert (ended.returncode, ended.stderr) == (141, b"")
    os.close(write)


def test_a_closed_stdout_is_no_bug() -> None:
    ended = subprocess.run(
        ["sh", "-c", f"{sys.executable} -m hangdog schema verdict >&-"], stderr=subprocess.PIPE, check=False, timeout=60
    )
    assert b"[bug]" not in ended.stderr


@pytest.mark.parametrize("shell", ["bash", "zsh", "fish"])
def test_completion_prints_a_script_and_proposes_the_commands(shell: str) -> None:
    assert "_HANGDOG_COMPLETE" in run("completion", shell).stdout
    at = "s" if shell == "fish" else "1"  # fish hands over the word, the others its number
    proposed = run(_HANGDOG_COMPLETE=f"{shell}_complete", COMP_WORDS="hangdog s", COMP_CWORD=at)
    assert proposed.returncode == 0
    words = re.split(r"[,\t\n]", proposed.stdout)  # each shell's own way to part names, kinds and helps
    for name in LINES:
        assert (name in words) == name.startswith("s")
