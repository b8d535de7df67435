"""Makes the environments that `make` needs, from nothing but Python 3.11 or newer; run by make, by hand never needed.

`bootstrap.py run|dev|torch|protos|locks` brings `.venv` (or `.venv-protos`, `.venv-locks`) up to one stage and leaves a stamp in it that holds
what the stage was made from: when that has not changed, nothing is installed and no network is touched.
Only the standard library is used here: this runs before anything is installed.
"""

import hashlib
import json
import os
import shutil
import subprocess
import sys
import time
import tomllib
from collections.abc import Sequence
from pathlib import Path
from typing import Any, NoReturn

ROOT = Path(__file__).resolve().parent.parent

#: PyTorch's own index of builds without CUDA: 200 MB in place of the several GB that PyPI's build for x86 pulls in.
TORCH_INDEX = "https://download.pytorch.org/whl/cpu"
#: Seconds to wait for that index before plain PyPI is used; it normally answers in well under one.
TORCH_INDEX_PATIENCE_S = 3
#: The newest generator whose output runs on every protobuf from 4.21 on; it has wheels for Python 3.11 and 3.12 only,
#: and needs the pkg_resources that setuptools dropped in 81.
PROTO_TOOLS = ("grpcio-tools==1.62.3", "mypy-protobuf==3.6.0", "setuptools<81")
PROTO_PYTHONS = ((3, 12), (3, 11))
#: What resolves versions and writes their hashes down, and what writes the lists of components; pinned, so that the same
#: tree gives the same files.
LOCK_TOOLS = ("uv==0.13.9", "cyclonedx-python-lib[json-validation]==11.12.0", "packaging==26.3")
#: Status that tells make `not on this machine`, apart from `it failed`.
UNAVAILABLE = 77


def main() -> None:
    stages = {"run": run, "dev": dev, "torch": torch, "protos": protos, "locks": locks}
    if len(sys.argv) != 2 or sys.argv[1] not in stages:
        stop(f"usage: bootstrap.py {'|'.join(stages)}")
    stages[sys.argv[1]]()


def run() -> None:
    """What hangdog itself needs, the server included."""
    stage(".venv", "run", ["-e", ".[server]"])


def dev() -> None:
    """What the tests and linters need on top."""
    run()
    stage(".venv", "dev", project()["dependency-groups"]["dev"])


def torch() -> None:
    """The training framework, for the demo and the slow tests: without CUDA where that build can be had."""
    run()
    pinned = [one for one in project()["project"]["optional-dependencies"]["demo"] if one.startswith("torch")]
    stage(".venv", "torch", pinned, torch_index)


def protos() -> None:
    """The generator of protobuf code, in an environment of its own."""
    stage(".venv-protos", "protos", PROTO_TOOLS, python=proto_python())


def locks() -> None:
    """What pins the dependencies, in an environment of its own."""
    stage(".venv-locks", "locks", LOCK_TOOLS)


def torch_index() -> list[str]:
    say("looking for the build of torch without CUDA")
    probe = (
        f"import urllib.request as r; r.urlopen({TORCH_INDEX + '/torch/'!r}, timeout={TORCH_INDEX_PATIENCE_S}).close()"
    )
    try:  # in a process of its own: a name look-up has no time limit
        subprocess.run(
            [sys.executable, "-c", probe], check=True, capture_output=True, timeout=TORCH_INDEX_PATIENCE_S + 1
        )
    except (subprocess.CalledProcessError, subprocess.TimeoutExpired):
        say(f"{TORCH_INDEX} does not answer: the build that pip finds elsewhere is used")
        return []
    return ["--extra-index-url", TORCH_INDEX]


def stage(folder: str, name: str, packages: Sequence[str], options: Any = list, python: str = sys.executable) -> None:
    """Installs the packages into the environment, unless its stamp says that this was done."""
    home = ROOT / folder
    stamp = home / f"{name}.stamp"
    made_from = fingerprint(packages, home)
    if stamp.is_file() and stamp.read_text() == made_from and works(home):
        stamp.touch()  # make compares times; nothing that matters here has changed
        return
    if not works(home):
        create(home, python)
    started = time.monotonic()
    chosen = options()
    say(f"{folder}: installing {name}")
    pip(home, [*chosen, *packages])
    stamp.write_text(made_from)
    say(f"{folder}: {name} is ready after {time.monotonic() - started:.0f} s")


def fingerprint(packages: Sequence[str], home: Path) -> str:
    """What a stage is made from: place, packages and, with hangdog among them, the tables of pyproject.toml pip reads."""
    tables = project()
    own = [tables["build-system"], tables["project"], tables["tool"]["hatch"]] if "-e" in packages else []
    parts = [str(home), list(packages), *own]
    return hashlib.blake2b(json.dumps(parts, sort_keys=True).encode(), digest_size=16).hexdigest()


def project() -> dict[str, Any]:
    return tomllib.loads((ROOT / "pyproject.toml").read_text(encoding="utf-8"))


def works(home: Path) -> bool:
    """Whether this environment exists, has a Python that starts, and was made at this place."""
    try:
        asked = [str(home / "bin" / "python"), "-I", "-c", "import pip, sys; print(sys.prefix)"]
        answer = subprocess.run(asked, capture_output=True, text=True, check=True).stdout.strip()
    except (OSError, subprocess.CalledProcessError):
        return False
    return Path(answer) == home


def create(home: Path, python: str) -> None:
    """Makes the environment; installs Debian's missing half of `venv` where that is allowed, else names the command."""
    asked = [python, "-c", "import sys; print('%d.%d' % sys.version_info[:2]); import ensurepip, venv"]
    answer = subprocess.run(asked, capture_output=True, text=True, check=False)
    if answer.returncode != 0:
        install_venv(f"python{answer.stdout.strip()}-venv")
    say(f"making {home.name} with {python}")
    made = subprocess.run([python, "-m", "venv", "--clear", str(home)], capture_output=True, text=True, check=False)
    if made.returncode != 0:
        stop(f"{made.stdout}{made.stderr}\n{python} -m venv {home} failed; what it said stands above")


def install_venv(package: str) -> None:
    command = ["apt-get", "install", "-y", "--no-install-recommends", package]
    if shutil.which("apt-get") is None:
        stop(f"this Python lacks the modules venv and ensurepip: install your system's package of them ({package})")
    if os.geteuid() != 0:
        stop(
            f"this Python lacks the modules venv and ensurepip; run\n\n    sudo {' '.join(command)}\n\nand then make again"
        )
    say(f"installing {package}, which this Python lacks")
    quiet = os.environ | {"DEBIAN_FRONTEND": "noninteractive"}
    subprocess.run(["apt-get", "update"], capture_output=True, env=quiet, check=False)  # an old list may still do
    done = subprocess.run(command, capture_output=True, text=True, env=quiet, check=False)
    if done.returncode != 0:
        stop(f"{done.stdout}{done.stderr}\n`{' '.join(command)}` failed; what it said stands above")


def pip(home: Path, arguments: Sequence[str]) -> None:
    command = [str(home / "bin" / "python"), "-I", "-m", "pip", "install", "--no-input", "--disable-pip-version-check"]
    quiet = os.environ | {"PIP_USER": "0"}  # somebody's habit of `pip install --user` has no meaning in here
    done = subprocess.run(
        [*command, *arguments],
        cwd=ROOT,
        env=quiet,
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
        text=True,
        check=False,
    )
    if done.returncode != 0:
        stop(f"{done.stdout}\npip install {' '.join(arguments)} failed; what it said stands above")


def proto_python() -> str:
    """A Python that the pinned generator has wheels for; ends with status UNAVAILABLE where there is none."""
    for version in PROTO_PYTHONS:
        for name in (sys.executable, "python{}.{}".format(*version)):
            test = [name, "-c", f"import sys; sys.exit(sys.version_info[:2] != {version})"]
            try:
                if subprocess.run(test, capture_output=True, check=False).returncode == 0:
                    return name
            except OSError:
                continue
    say("grpcio-tools 1.62.3 needs Python 3.11 or 3.12, and neither is here: the generated code is not checked")
    sys.exit(UNAVAILABLE)


def say(what: str) -> None:
    print(f"bootstrap: {what}", flush=True)


def stop(why: str) -> NoReturn:
    print(why, file=sys.stderr)
    sys.exit(1)


if __name__ == "__main__":
    main()
