"""What `requirements/cli.txt` installs is enough for every command but the server's own."""

import subprocess
import sys
from pathlib import Path

from hangdog_models.errors import WrongUse

ROOT = Path(__file__).parents[2]

#: Packages that only extras bring. An import of one fails as where it is not installed.
BLOCKED = """
import importlib.abc, sys
ONLY_IN_EXTRAS = {
    "alembic", "apprise", "grpc_health", "hdbscan", "httpx", "numpy", "opentelemetry", "prometheus_client", "psycopg",
    "scipy", "sklearn", "sqlalchemy", "starlette", "torch", "uvicorn",
}
class Absent(importlib.abc.MetaPathFinder):
    def find_spec(self, name, path=None, target=None):
        if name.partition(".")[0] in ONLY_IN_EXTRAS:
            raise ModuleNotFoundError(f"No module named {name!r}", name=name)
sys.meta_path.insert(0, Absent())
"""
WALK = """
import click
from hangdog.main import main
def walk(command, path):
    if isinstance(command, click.Group):
        with click.Context(command) as context:
            for name in command.list_commands(context):
                try:
                    walk(command.get_command(context, name), [*path, name])
                except ModuleNotFoundError as error:
                    print(*path, name, "needs", error.name)
walk(main, [])
"""


COMMAND = """
from hangdog.main import main
sys.argv[0] = "hangdog"
main()
"""


def without_extras(program: str, *words: str) -> "subprocess.CompletedProcess[str]":
    return subprocess.run(
        [sys.executable, "-c", BLOCKED + program, *words], capture_output=True, text=True, check=False, timeout=120
    )


def test_each_command_is_there_without_the_servers_packages() -> None:
    walked = without_extras(WALK)
    assert walked.returncode == 0, walked.stderr
    assert walked.stdout == ""


def test_a_bundle_is_judged_without_them() -> None:
    bundle = ROOT / "tests/recordings/frameworks/spawn-blocked-read"
    judged = without_extras(COMMAND, "triage", str(next(bundle.glob("bundle.tar.*"))))
    assert judged.returncode == 1, judged.stderr
    assert "rank 3 on node-3 holds the job up" in judged.stdout.splitlines()[0]


def test_what_needs_them_says_how_they_are_installed() -> None:
    asked = without_extras(COMMAND, "plan", "backups", "--dp", "2", "--tp", "8")
    assert asked.returncode == WrongUse.exit_code
    assert "requirements/server.txt" in asked.stderr
