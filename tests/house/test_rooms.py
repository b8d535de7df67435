"""The rooms stay what they are: plain folders outside, documented packages inside, and nothing of one machine in them."""

import ast
import importlib.util
import re
import shutil
import subprocess
import sys
from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parents[2]
ROOMS = ("agent", "server", "models", "proto", "cli")


def tracked(*patterns: str) -> list[Path]:
    if shutil.which("git") is None or not (ROOT / ".git").exists():
        pytest.skip("without git, or outside of a checkout, nobody knows what is tracked")
    listed = subprocess.run(["git", "ls-files", *patterns], cwd=ROOT, capture_output=True, text=True, check=True)
    return [ROOT / name for name in listed.stdout.splitlines() if (ROOT / name).is_file()]


def test_the_outer_folders_are_no_packages() -> None:
    """A stray `proto/__init__.py` would shadow proto-plus in any program started from here."""
    stray = [path for room in (*ROOMS, "tests") for path in (ROOT / room).glob("__init__.py")]
    stray += (ROOT / "tests").rglob("__init__.py")
    assert not stray


@pytest.mark.parametrize("name", [*ROOMS, "tests"])
def test_no_outer_folder_can_be_imported_as_a_package_of_that_name(name: str) -> None:
    spec = importlib.util.find_spec(name)
    assert spec is None or spec.origin is None or not Path(spec.origin).is_relative_to(ROOT)


#: Packages that do something as they are imported, and why that cannot wait.
DOING = {
    ROOT / "cli/hangdog/__init__.py",  # offers `hangdog.triage`, and loads it when asked
    ROOT / "agent/hangdog_agent/__init__.py",  # tells gRPC to leave forks alone, which it reads as it is imported
}


def test_inner_packages_hold_a_docstring_and_nothing_else() -> None:
    packages = [
        path for room in ROOMS for path in (ROOT / room).rglob("__init__.py") if path.parent.name != "generated"
    ]
    assert packages
    for path in packages:
        tree = ast.parse(path.read_text(encoding="utf-8"))
        assert ast.get_docstring(tree), path
        assert len(tree.body) == 1 or path in DOING, path


@pytest.mark.parametrize("room", [*ROOMS, "tools", "tests", "bench"])
def test_every_module_opens_with_a_sentence(room: str) -> None:
    modules = [path for path in (ROOT / room).rglob("*.py") if path.parent.name != "generated"]
    opening = re.compile(r'(?:#[^\n]*\n)*\s*r?"""\S')
    bare = [path.relative_to(ROOT) for path in modules if not opening.match(path.read_text(encoding="utf-8"))]
    assert not bare


@pytest.mark.parametrize("room", [*ROOMS, "tools", "bench"])
def test_no_module_is_longer_than_a_reader_has_patience_for(room: str) -> None:
    """What outgrows 400 lines holds two ideas, and each has a name."""
    modules = [path for path in (ROOT / room).rglob("*.py") if path.parent.name != "generated"]
    lines = {str(path.relative_to(ROOT)): path.read_text(encoding="utf-8").count("\n") for path in modules}
    assert modules and not {path: count for path, count in lines.items() if count > 400}


def test_test_files_have_unique_names() -> None:
    names = [path.name for path in (ROOT / "tests").rglob("test_*.py")]
    assert sorted(names) == sorted(set(names))


#: Folders that all machines have: who clones into one may still read of it.
EVERYWHERE = ("/", "/tmp", "/var/tmp", "/home", "/opt", "/srv", "/mnt", "/usr/src")


def test_no_tracked_file_speaks_of_one_machine() -> None:
    """A home, the folder of this clone or the one above it, written out: it says where something was made."""
    here = "|".join(re.escape(f"{folder}/") for folder in (ROOT, ROOT.parent) if str(folder) not in EVERYWHERE)
    own = re.compile(rf"(?<![\w.$}}])(?:/(?:root|home/\w+)/(?!\S*\*)|{here})")
    told = []
    for path in tracked():
        if path == Path(__file__):
            continue
        for number, line in enumerate(path.read_bytes().decode("utf-8", "replace").splitlines(), 1):
            if own.search(line):
                told.append(f"{path.relative_to(ROOT)}:{number}: {line.strip()[:100]}")
    assert not told


def test_the_map_names_every_folder() -> None:
    text = (ROOT / "AGENTS.md").read_text(encoding="utf-8")
    folders = {path.relative_to(ROOT).parts[0] for path in tracked() if len(path.relative_to(ROOT).parts) > 1}
    assert not [folder for folder in sorted(folders) if f"\n{folder}/" not in text]


def test_the_agents_short_list_is_what_the_project_asks_for() -> None:
    import tomllib

    project = tomllib.loads((ROOT / "pyproject.toml").read_text(encoding="utf-8"))["project"]
    lines = (ROOT / "requirements" / "agent.in").read_text(encoding="utf-8").splitlines()
    short = [line for line in lines if line and not line.startswith("#")]
    assert set(short) <= set(project["dependencies"])


def test_the_agent_imports_nothing_beyond_its_short_list() -> None:
    """import-linter forbids the packages it knows; this finds any other, by importing every module of the agent."""
    probe = """
import importlib, pkgutil, sys
import hangdog_agent, hangdog_proto
for package in (hangdog_agent, hangdog_proto):
    for module in pkgutil.walk_packages(package.__path__, package.__name__ + "."):
        if ".machine_tests.programs" not in module.name:  # children's, run by a Python that has torch
            importlib.import_module(module.name)
print(*{name.partition(".")[0] for name in sys.modules})
"""
    done = subprocess.run([sys.executable, "-I", "-c", probe], capture_output=True, text=True, check=True)
    ours = {"hangdog_agent", "hangdog_proto", "hangdog_models"}
    # the last three are grpcio's own: it takes grpc_health in where the server's extra has brought it
    light = {"grpc", "google", "pynvml", "msgspec", "typing_extensions", "cython_runtime", "grpc_health"}
    from_start = {"_distutils_hack", "_virtualenv", "sitecustomize", "usercustomize", "__main__", "__mp_main__"}
    loaded = set(done.stdout.split()) - ours - light - from_start
    assert not {name for name in loaded if name not in sys.stdlib_module_names and not name.startswith("_")}


def test_ci_runs_the_parts_of_make_check_and_the_commands_of_the_readme() -> None:
    makefile = (ROOT / "Makefile").read_text(encoding="utf-8")
    check = re.search(r"^check:.*\n((?:\t.*\n)+)", makefile, re.MULTILINE)
    assert check is not None
    parts = re.findall(r"\$\(MAKE\) --no-print-directory (\S+)", check[1])
    ci = re.findall(r"^stage \d+ make (\S+)", (ROOT / ".ci" / "run").read_text(encoding="utf-8"), re.MULTILINE)
    assert [stage for stage in ci if stage in parts] == parts
    assert {"test", "demo", "test-slow"} <= set(ci)
