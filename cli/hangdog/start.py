"""The `hangdog` script: where only the agent's packages are installed it says so, in place of a traceback.

It imports nothing but the standard library.
"""

import sys
from importlib.util import find_spec

#: As a command for which a package is missing ends: sysexits' EX_USAGE.
_NOT_INSTALLED = 64
_WORDS = """hangdog: the Python package click is not installed [package-not-installed]
  the agent runs without it: hangdog-agent --help
  for the commands, in hangdog's source tree: pip install --require-hashes -r requirements/cli.txt
"""


def main() -> None:
    """Runs the command line and exits."""
    if find_spec("click") is None:
        sys.stderr.write(_WORDS)
        sys.exit(_NOT_INSTALLED)
    from hangdog.main import main as run  # not at the top: it needs click

    run()
