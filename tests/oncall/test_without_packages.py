"""Where the agent's packages alone are installed, the script of the commands says what is missing."""

import subprocess
import sys
from pathlib import Path

import hangdog

#: The folder above the package.
CLI = Path(hangdog.__file__).parents[1]


def test_without_click_the_script_tells_how_the_commands_are_installed() -> None:
    """-S leaves out the installed packages, as in an environment made of requirements/agent.txt."""
    code = f"import sys; sys.path.insert(0, {str(CLI)!r}); from hangdog.start import main; main()"
    ended = subprocess.run((sys.executable, "-S", "-P", "-c", code), capture_output=True, text=True, check=False)
    assert (ended.returncode, ended.stdout) == (64, "")
    assert "click is not installed [package-not-installed]" in ended.stderr and "requirements/cli.txt" in ended.stderr
    assert "Traceback" not in ended.stderr
