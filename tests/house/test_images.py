"""The Dockerfile, as far as it can be checked without Docker, and the two installs its images are made of."""

import json
import os
import re
import shutil
import subprocess
import sys
from pathlib import Path

import pytest

pytestmark = pytest.mark.parallel  # its slow tests measure no time

ROOT = Path(__file__).resolve().parents[2]
INSTRUCTIONS = {
    "FROM",
    "WORKDIR",
    "COPY",
    "RUN",
    "ENTRYPOINT",
    "USER",
    "VOLUME",
    "EXPOSE",
    "ENV",
    "ARG",
    "LABEL",
    "CMD",
}


def instructions() -> list[tuple[str, str]]:
    """Every instruction of the Dockerfile with its argument, continuation lines joined, comments dropped."""
    text = (ROOT / "Dockerfile").read_text(encoding="utf-8")
    text = re.sub(r"^#.*\n", "", text, flags=re.MULTILINE).replace("\\\n", " ")
    return [(line.split()[0], line.split(maxsplit=1)[1].strip()) for line in text.splitlines() if line.strip()]


def test_every_instruction_is_one_docker_knows() -> None:
    assert {word for word, _ in instructions()} <= INSTRUCTIONS


def test_there_are_the_three_targets_and_each_starts_its_program() -> None:
    entrypoints: dict[str, list[str]] = {}
    target = ""
    for word, argument in instructions():
        if word == "FROM":
            target = argument.rpartition(" AS ")[2]
        if word == "ENTRYPOINT":
            entrypoints[target] = json.loads(argument)
    assert entrypoints["agent"] == entrypoints["tester"] == ["hangdog-agent"]
    assert entrypoints["server"][:4] == ["hangdog", "server", "--listen", "0.0.0.0:7411"]
    users = [argument for word, argument in instructions() if word == "USER"]
    assert users == ["hangdog"]  # the server's; the agent has to read other users' processes


def test_whatever_is_copied_exists_and_reaches_the_build() -> None:
    stages: set[str] = set()
    let_in = [line[1:] for line in (ROOT / ".dockerignore").read_text("utf-8").splitlines() if line.startswith("!")]
    for word, argument in instructions():
        if word == "FROM":
            stages.add(argument.rpartition(" AS ")[2])
        if word == "COPY":
            *sources, _ = argument.split()
            if sources[0].startswith("--from="):
                assert sources[0].removeprefix("--from=") in stages
                continue
            for source in sources:
                assert (ROOT / source).exists(), source
                assert source.split("/")[0] in let_in, source


def test_the_servers_entrypoint_is_a_command_line_hangdog_understands() -> None:
    entrypoint = next(
        json.loads(argument) for word, argument in instructions() if "server" in argument and word == "ENTRYPOINT"
    )
    from hangdog.commands.operate.server import command

    parsed = command.make_context("server", list(entrypoint[2:]))
    assert parsed.params["listen"] == "0.0.0.0:7411"


def test_the_tester_is_made_as_the_agent_is_but_for_its_list() -> None:
    """It takes the agent's place: what holds of the one must hold of the other."""
    parts: dict[str, list[tuple[str, str]]] = {}
    target = "before all"
    for word, argument in instructions():
        if word == "FROM":
            target = argument.rpartition(" AS ")[2]
        parts.setdefault(target, []).append(
            (word, argument.replace(target, "NAME") if word != "ENTRYPOINT" else argument)
        )
    assert parts["tester"] == parts["agent"]


@pytest.fixture(scope="module")
def wheel(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The wheel as the image's first stage makes it: from nothing but what that stage copies."""
    folder = tmp_path_factory.mktemp("wheel")
    own = [argument.split()[:-1] for word, argument in instructions() if word == "COPY" and "--from" not in argument]
    (folder / "source").mkdir()
    for source in {source for sources in own for source in sources if not source.startswith("requirements")}:
        copy = shutil.copytree if (ROOT / source).is_dir() else shutil.copy
        copy(ROOT / source, folder / "source" / source)
    said([sys.executable, "-m", "pip", "wheel", "-q", "--no-deps", "--wheel-dir", folder, folder / "source"])
    (made,) = folder.glob("*.whl")
    return made


def said(command: list[str | Path], status: int = 0, cwd: Path = ROOT) -> str:
    """What a command printed; fails with all of it unless it ends with that status."""
    clean = {name: value for name, value in os.environ.items() if name != "PYTHONPATH"}
    done = subprocess.run(command, cwd=cwd, env=clean, capture_output=True, text=True, check=False)
    assert done.returncode == status, done.stdout + done.stderr
    return done.stdout


def environment(folder: Path, *packages: str | Path) -> Path:
    said([sys.executable, "-m", "venv", folder])
    said([folder / "bin" / "pip", "install", "-q", *packages])
    return folder / "bin"


def locked(folder: Path, lock: str, wheel: Path) -> Path:
    """An environment as the images make theirs: nothing but what a lock names, and our wheel."""
    only = ("--require-hashes", "--only-binary", ":all:", "-r")
    bin_ = environment(folder, *only, ROOT / "requirements" / f"{lock}.txt")
    said([bin_ / "pip", "install", "-q", "--no-deps", "--no-index", wheel])
    return bin_


@pytest.mark.slow
@pytest.mark.timeout(600)
def test_the_servers_lock_is_all_that_the_server_needs(wheel: Path, tmp_path: Path) -> None:
    bin_ = locked(tmp_path / "venv", "server", wheel)
    said([bin_ / "pip", "check"])
    assert "--listen" in said([bin_ / "hangdog", "server", "--help"], cwd=tmp_path)
    modules = "hangdog_server.main, hangdog_server.web.web_server, hangdog_server.store.postgres, hangdog_server.auth.certificates, apprise"
    said([bin_ / "python", "-c", f"import {modules}"], cwd=tmp_path)
    listed = json.loads((ROOT / "requirements" / "server.cdx.json").read_text("utf-8"))["components"]
    there = {
        row["name"].lower(): row["version"] for row in json.loads(said([bin_ / "pip", "list", "--format", "json"]))
    }
    held = {one["name"]: one["version"] for one in listed if one.get("scope") != "excluded"}
    installed = {re.sub(r"[-_.]+", "-", name): version for name, version in there.items()}
    assert {name: installed.get(name) for name in held} == held
    assert installed.keys() - held.keys() <= {"pip", "setuptools"}  # the environment's own


@pytest.mark.slow
@pytest.mark.timeout(600)
def test_a_package_whose_hash_is_another_is_refused(tmp_path: Path) -> None:
    text = (ROOT / "requirements" / "agent.txt").read_text("utf-8")
    forged = tmp_path / "agent.txt"
    forged.write_text(re.sub(r"sha256:[0-9a-f]{64}", "sha256:" + "0" * 64, text), "utf-8")
    said([sys.executable, "-m", "venv", tmp_path / "venv"])
    pip = tmp_path / "venv" / "bin" / "pip"
    done = subprocess.run(
        [pip, "install", "--require-hashes", "-r", forged], capture_output=True, text=True, check=False
    )
    assert done.returncode == 1 and "DO NOT MATCH THE HASHES" in done.stderr


@pytest.mark.soak
@pytest.mark.timeout(600)
def test_the_readmes_install_needs_nothing_but_its_locks(tmp_path: Path) -> None:
    text = (ROOT / "README.md").read_text("utf-8")
    script = re.search(r"```\n(python3 -m venv ~/hangdog.*?)```", text, re.DOTALL)
    assert script is not None
    source = tmp_path / "source"
    source.mkdir()
    for name in ("pyproject.toml", "README.md", "LICENSE", "requirements", "models", "proto", "agent", "server", "cli"):
        copy = shutil.copytree if (ROOT / name).is_dir() else shutil.copy
        copy(ROOT / name, source / name)
    end = "\nhangdog triage --help\npip check\n"
    done = subprocess.run(
        ["bash", "-e", "-c", script[1] + end], cwd=source, env=os.environ | {"HOME": str(tmp_path)},
        capture_output=True, text=True, check=False,
    )  # fmt: skip
    assert done.returncode == 0, done.stderr
    assert "--html" in done.stdout and "No broken requirements" in done.stdout


@pytest.mark.slow
@pytest.mark.timeout(600)
@pytest.mark.parametrize("protobuf", ["", pytest.param("protobuf==4.21.12", marks=pytest.mark.soak)])
def test_the_agent_installs_and_runs_on_its_short_list(wheel: Path, tmp_path: Path, protobuf: str) -> None:
    """On its lock, which has the newest protobuf, and on the oldest protobuf that training images pin."""
    if protobuf:
        bin_ = environment(tmp_path / "venv", "-r", ROOT / "requirements" / "agent.in", protobuf)
        said([bin_ / "pip", "install", "-q", "--no-deps", wheel])
    else:
        bin_ = locked(tmp_path / "venv", "agent", wheel)
    installed = {row["name"].lower() for row in json.loads(said([bin_ / "pip", "list", "--format", "json"]))}
    assert not installed & {"numpy", "scipy", "scikit-learn", "hdbscan", "click", "rich", "sqlalchemy", "torch"}
    assert "--server" in said([bin_ / "hangdog-agent", "--help"], cwd=tmp_path)
    said([bin_ / "python", "-c", "import hangdog_proto.codec.traces, hangdog_agent.connection.link"], cwd=tmp_path)
    look = json.loads(said([bin_ / "hangdog-agent", "--once", "--match-env", "HANGDOG_JOB=of-nobody"], cwd=tmp_path))
    assert look["jobs"] == []


@pytest.mark.slow
@pytest.mark.timeout(600)
def test_the_bare_install_judges_a_bundle_and_names_the_extra_it_lacks(wheel: Path, tmp_path: Path) -> None:
    bin_ = environment(tmp_path / "venv", wheel)
    frame = {
        "name": "all_reduce",
        "filename": "d.py",
        "short_filename": "torch/d.py",
        "module": None,
        "line": 1,
        "locals": None,
    }
    thread = {
        "pid": 1,
        "thread_id": 1,
        "thread_name": "MainThread",
        "os_thread_id": 1,
        "active": False,
        "owns_gil": False,
    }
    bundle = tmp_path / "bundle"
    bundle.mkdir()
    for rank in range(4):
        (bundle / f"rank{rank}.json").write_text(json.dumps([thread | {"frames": [frame]}]), encoding="utf-8")
    asked = subprocess.run(
        [bin_ / "hangdog", "triage", "--format", "json", bundle], capture_output=True, text=True, check=False
    )
    assert asked.returncode in (1, 2), asked.stderr
    assert json.loads(asked.stdout)["coverage"]["captured"] == 4
    schema = json.loads(said([bin_ / "hangdog", "schema", "verdict"], cwd=tmp_path))
    assert schema["title"] == "hangdog.verdict/1"
    refused = subprocess.run([bin_ / "hangdog", "server"], capture_output=True, text=True, check=False, cwd=tmp_path)
    assert refused.returncode == 64
    assert "requirements/server.txt" in refused.stderr
