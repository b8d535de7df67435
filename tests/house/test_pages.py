"""The pages are true: every command, setting, error and rule set is named, links lead somewhere, and a stranger's loop works."""

import os
import re
import shutil
import signal
import subprocess
import sys
from dataclasses import fields
from pathlib import Path

import pytest
from click.testing import CliRunner

from hangdog.main import LINES, main
from hangdog_agent.discovery.environ_names import JOB_NAMES
from hangdog_models import errors
from hangdog_models.diagnosis.prices import Prices
from support.markdown import anchors, links

ROOT = Path(__file__).resolve().parents[2]
PAGES = [ROOT / "README.md", ROOT / "AGENTS.md", ROOT / "CHANGELOG.md", *sorted((ROOT / "docs").rglob("*.md"))]
DOCS = "\n".join(page.read_text(encoding="utf-8") for page in PAGES)
SOURCES = [
    path
    for room in ("agent", "server", "models", "proto", "cli")
    for path in sorted((ROOT / room).rglob("*.py"))
    if "generated" not in path.parts
]


@pytest.mark.parametrize("name", LINES)
def test_every_command_has_help_and_a_place_in_the_docs(name: str) -> None:
    shown = CliRunner().invoke(main, [name, "--help"])  # `make docs` asks each in a process of its own
    assert (shown.exit_code, shown.stderr) == (0, "")
    assert "usage" in shown.stdout.lower()
    marked = {"agent": "hangdog-agent"}.get(name, f"hangdog {name}")
    assert f"<!-- help: {marked} -->" in DOCS


def test_the_summaries_of_the_list_do_not_contradict_the_commands_own() -> None:
    for name, line in LINES.items():
        command = main.get_command(main.make_context("hangdog", [name], resilient_parsing=True), name)
        assert command is not None, name
        first = " ".join((command.help or "").split("\n\n")[0].split())
        assert line.partition(" ")[0].rstrip(":") == first.partition(" ")[0], f"{name}: {line!r} is not {first!r}"


def test_every_environment_variable_of_ours_is_a_documented_setting() -> None:
    named = {name for path in SOURCES for name in re.findall(r"HANGDOG_[A-Z_]*[A-Z]", path.read_text(encoding="utf-8"))}
    settings = (ROOT / "docs" / "settings.md").read_text(encoding="utf-8")
    internal = {"HANGDOG_COMPLETE"}  # part of _HANGDOG_COMPLETE, which click's completion scripts set
    assert not {name for name in named - internal if f"`{name}`" not in settings}


def test_the_page_of_settings_names_the_commands_that_read_a_variable_and_the_names_of_a_job() -> None:
    settings = (ROOT / "docs" / "settings.md").read_text(encoding="utf-8")
    rows = {row.split("`")[1]: row for row in settings.splitlines() if row.startswith("| `")}
    context = main.make_context("hangdog", ["schema"], resilient_parsing=True)
    for name in LINES:
        command = main.get_command(context, name)
        assert command is not None, name
        read = {param.envvar for param in command.params if isinstance(param.envvar, str)}
        for variable in read - {"HANGDOG_TLS"}:  # of nearly all of them, and said so
            assert re.search(rf"`(hangdog )?{name}\b", rows[variable].split("|")[2]), f"{variable} is read by {name}"
    assert not [name for name in JOB_NAMES if f"`{name}`" not in rows["HANGDOG_JOB"]]


def test_every_error_stands_in_the_table_with_its_status() -> None:
    table = (ROOT / "docs" / "exit-statuses.md").read_text(encoding="utf-8")
    public = [error for error in errors.HangdogError.__subclasses__() if error.__module__ == errors.__name__]
    assert public
    for error in public:
        rows = [line for line in table.splitlines() if f"`{error.__name__}`" in line]
        assert rows, error
        assert rows[0].startswith(f"| {error.exit_code} |")


def test_every_rule_set_is_named() -> None:
    for rules in (ROOT / "models" / "hangdog_models" / "rules").glob("*.toml"):
        assert rules.stem in DOCS


@pytest.mark.parametrize("page", PAGES, ids=lambda page: page.name)
def test_links_between_pages_lead_somewhere(page: Path) -> None:
    for other, anchor in links(page.read_text(encoding="utf-8"), page):
        assert other.is_file(), other
        if other.suffix == ".png":
            assert not anchor, other
        elif anchor:
            assert anchor in anchors(other.read_text(encoding="utf-8")), f"{other}#{anchor}"


def test_every_page_is_in_the_index() -> None:
    index = (ROOT / "docs" / "README.md").read_text(encoding="utf-8")
    pages = {page.name for page in (ROOT / "docs").glob("*.md")} - {"README.md"}
    assert pages == set(re.findall(r"^\| \[\S+\]\((\S+)\)", index, re.MULTILINE))


def test_the_loop_of_the_readme_makes_a_bundle_that_triage_reads(tmp_path: Path) -> None:
    for tool in ("pgrep", "py-spy"):
        found = shutil.which(tool) or shutil.which(tool, path=str(Path(sys.executable).parent))
        if found is None:
            pytest.skip(f"{tool} is not installed")
    block = re.search(r"<!-- run: by hand -->\n```\n(.*?)```", DOCS, re.DOTALL)
    assert block is not None
    trainer = tmp_path / f"train_{os.getpid()}.py"  # a name of its own: pgrep must find no other test's process
    trainer.write_text("print('ready', flush=True)\ninput()\n", encoding="utf-8")
    process = subprocess.Popen(
        [sys.executable, trainer],
        env=os.environ | {"RANK": "3", "WORLD_SIZE": "4"},
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        text=True,
    )
    try:
        assert process.stdout is not None
        assert process.stdout.readline() == "ready\n"
        path = f"{Path(sys.executable).parent}:{os.environ['PATH']}"
        script = block[1].replace("train.py", trainer.name)
        made = subprocess.run(
            ["sh", "-c", script],
            cwd=tmp_path,
            env=os.environ | {"PATH": path},
            capture_output=True,
            text=True,
            check=False,
        )
    finally:
        process.send_signal(signal.SIGKILL)
        process.communicate()
    assert made.returncode == 0, made.stderr
    if (tmp_path / "bundle" / "rank3.error.txt").is_file():
        pytest.skip(f"py-spy may not read processes here: {(tmp_path / 'bundle' / 'rank3.error.txt').read_text()}")
    assert [file.name for file in (tmp_path / "bundle").iterdir()] == ["rank3.json"]
    judged = CliRunner().invoke(main, ["triage", str(tmp_path / "bundle")])
    assert judged.exit_code == 2
    assert "1 of 4 ranks captured" in judged.stdout
    (python,) = re.findall(r"```python\n(.*?)```", DOCS, re.DOTALL)
    ran = subprocess.run([sys.executable, "-c", python], cwd=tmp_path, capture_output=True, text=True, check=False)
    assert (ran.returncode, ran.stdout) == (0, "undetermined ()\n"), ran.stderr


def test_the_page_of_settings_has_each_price_with_its_default() -> None:
    settings = (ROOT / "docs" / "settings.md").read_text(encoding="utf-8")
    shown = re.findall(r"^\| `(\w+)` \| ([\d.]+) \|", settings, re.MULTILINE)
    assert shown == [(one.name, f"{one.default:g}") for one in fields(Prices)]
