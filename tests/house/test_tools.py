"""What `make` runs tells the truth when something is wrong: each tool works on a copy of the tree made for the test."""

import os
import shutil
import subprocess
import sys
from pathlib import Path

import pytest

pytestmark = pytest.mark.parallel  # its slow tests measure no time

ROOT = Path(__file__).resolve().parents[2]
GENERATOR = ROOT / ".venv-protos" / "bin" / "python"


def tree(folder: Path, tool: str, *files: str) -> Path:
    """A tree that holds the tool and these files of ours; the tool takes it for the whole."""
    for name in (f"tools/{tool}", *files):
        (folder / name).parent.mkdir(parents=True, exist_ok=True)
        shutil.copy(ROOT / name, folder / name)
    return folder / "tools" / tool


def run(*command: str | Path, **environment: str) -> subprocess.CompletedProcess[str]:
    return subprocess.run(command, capture_output=True, text=True, env=os.environ | environment, check=False)


def test_a_help_text_that_differs_is_found_and_rewritten(tmp_path: Path) -> None:
    tool = tree(tmp_path, "helps.py")
    page = tmp_path / "README.md"
    page.write_text("before\n<!-- help: hangdog schema -->\n```\nold words\n```\nafter\n", encoding="utf-8")
    found = run(sys.executable, tool)
    assert found.returncode == 1
    assert "README.md" in found.stderr
    assert run(sys.executable, tool, "--fix").returncode == 0
    assert "Usage: hangdog schema [OPTIONS] {verdict}" in page.read_text(encoding="utf-8")
    assert page.read_text(encoding="utf-8").startswith("before\n<!--")
    assert page.read_text(encoding="utf-8").endswith("\n```\nafter\n")
    assert run(sys.executable, tool).returncode == 0


@pytest.mark.slow
def test_a_failing_pip_shows_what_it_said_and_leaves_no_stamp(tmp_path: Path) -> None:
    tool = tree(tmp_path, "bootstrap.py", "pyproject.toml")
    nothing = {"PIP_NO_INDEX": "1", "PIP_FIND_LINKS": str(tmp_path), "PIP_CONFIG_FILE": os.devnull}
    failed = run(sys.executable, tool, "run", **nothing)
    assert failed.returncode == 1
    assert "No matching distribution found for hatchling" in failed.stderr
    assert "pip install -e .[server] failed" in failed.stderr
    assert (tmp_path / ".venv").is_dir()
    assert not list(tmp_path.glob(".venv/*.stamp"))


@pytest.mark.slow
def test_an_environment_that_is_up_to_date_touches_no_network(tmp_path: Path) -> None:
    home = tmp_path / ".venv"
    tool = tree(tmp_path, "bootstrap.py", "pyproject.toml")
    script = (
        "import pathlib, sys; sys.path.insert(0, sys.argv[1]); import bootstrap; bootstrap.pip = lambda *a: print('pip')\n"
        "for _ in range(2): bootstrap.stage('.venv', 'x', ['one'])\n"
        "bootstrap.stage('.venv', 'x', ['two'])\n"
    )
    done = run(sys.executable, "-c", script, tool.parent)
    assert done.stdout.splitlines().count("pip") == 2, done.stdout + done.stderr
    assert (home / "x.stamp").is_file()


@pytest.mark.skipif(not GENERATOR.exists(), reason="the generator is not installed: make protos-check installs it")
def test_stale_code_and_a_field_without_a_comment_are_found(tmp_path: Path) -> None:
    generated = [str(path.relative_to(ROOT)) for path in (ROOT / "proto/hangdog_proto/generated").glob("hangdog_pb2*")]
    tool = tree(tmp_path, "protos.py", "proto/hangdog.proto", *generated)
    path = f"{GENERATOR.parent}:{os.environ['PATH']}"
    assert run(GENERATOR, tool, "--check", PATH=path).returncode == 0
    with (tmp_path / "proto" / "hangdog.proto").open("a", encoding="utf-8") as proto:
        proto.write("\n// Said.\nmessage Said {\n  string unsaid = 1;\n}\n")
    found = run(GENERATOR, tool, "--check", PATH=path)
    assert found.returncode == 1
    assert "out of date: hangdog_pb2.py" in found.stderr
    assert "without a comment in the .proto file: Said.unsaid" in found.stderr
    assert run(GENERATOR, tool, PATH=path).returncode == 0
    assert "out of date" not in run(GENERATOR, tool, "--check", PATH=path).stderr


def test_what_is_compiled_ahead_is_what_pytest_takes(tmp_path: Path) -> None:
    tool = tree(tmp_path, "compile_tests.py")
    (tmp_path / "tests").mkdir()
    test = tmp_path / "tests" / "test_one.py"
    test.write_text("def test_it():\n    left = 1\n    assert left == 2\n")
    (tmp_path / "models").mkdir()
    (tmp_path / "models" / "one.py").write_text("ONE = 1\n")
    assert run(sys.executable, tool, PYTHONDONTWRITEBYTECODE="").returncode == 0
    (made,) = (tmp_path / "tests" / "__pycache__").glob("test_one.*-pytest-*.pyc")
    assert list((tmp_path / "models" / "__pycache__").glob("one.*.pyc")), "ours, which tests import, too"
    before = made.stat()
    bare = {"PYTHONDONTWRITEBYTECODE": "", "PYTEST_DISABLE_PLUGIN_AUTOLOAD": "1"}  # to import our plugins takes 2 s
    said = run(sys.executable, "-m", "pytest", "-q", "-p", "no:cacheprovider", test, **bare).stdout
    assert "assert 1 == 2" in said
    assert made.stat().st_ino == before.st_ino, "pytest would have written its own"
