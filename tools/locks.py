"""Pins every package of the images and of the documented installs, with the hashes of all its files; run by `make locks`.

Each lock is resolved for all platforms and for every Python that hangdog runs on, so one file serves them all. No address
of an index or of a file is written down: where packages come from is the installer's business, what they are is ours.
"""

import argparse
import os
import re
import subprocess
import sys
from dataclasses import dataclass
from pathlib import Path

import sbom

ROOT = Path(__file__).resolve().parent.parent
FOLDER = Path("requirements")
#: The oldest Python that hangdog runs on: `requires-python` of pyproject.toml, and the one of the images.
PYTHON = "3.11"
#: What a lock must not hold: where somebody happened to fetch the packages from.
ADDRESS = re.compile(r"://|--(?:extra-)?index-url|--find-links")


@dataclass(frozen=True, slots=True)
class Lock:
    """`source` as uv takes it, with the `extras` of pyproject.toml; `image`: the list of its components is made, too."""

    name: str
    source: str
    extras: tuple[str, ...] = ()
    image: bool = False

    @property
    def path(self) -> Path:
        return FOLDER / f"{self.name}.txt"


#: The largest comes first: the others take its versions, so that all of hangdog runs on the same ones.
LOCKS = (
    Lock("otel", "pyproject.toml", ("server", "notify", "otel")),
    Lock("server", "pyproject.toml", ("server", "notify"), image=True),
    Lock("cli", "pyproject.toml"),
    Lock("agent", f"{FOLDER}/agent.in", image=True),
    Lock("tester", f"{FOLDER}/tester.in", image=True),
    Lock("build", f"{FOLDER}/build.in"),
)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--upgrade", action="store_true", help="take the newest versions")
    upgrade = parser.parse_args().upgrade
    for lock in LOCKS:
        compile_lock(lock, upgrade)
        print(f"locks: {lock.path}")
        if lock.image:
            sbom.write(ROOT / lock.path, ROOT / FOLDER / f"{lock.name}.cdx.json", f"hangdog-{lock.name}")
            print(f"locks: {FOLDER}/{lock.name}.cdx.json")


def compile_lock(lock: Lock, upgrade: bool) -> None:
    """Resolves one lock and replaces its file; ends the program where that fails, and leaves the file as it was."""
    fresh = ROOT / FOLDER / f".{lock.name}.new"
    if (ROOT / lock.path).is_file() and not upgrade:
        fresh.write_text((ROOT / lock.path).read_text("utf-8"), "utf-8")  # uv keeps the versions that it finds there
    command = [
        str(Path(sys.executable).with_name("uv")), "--no-config", "pip", "compile", "--quiet",
        "--universal", "--python-version", PYTHON, "--fork-strategy", "fewest",
        "--generate-hashes", "--no-emit-index-url", "--no-header",
        lock.source, "--output-file", str(fresh),
    ]  # fmt: skip
    for extra in lock.extras:
        command += ["--extra", extra]
    if lock is not LOCKS[0]:
        command += ["--constraints", str(LOCKS[0].path)]
    if upgrade:
        command.append("--upgrade")
    try:
        done = subprocess.run(command, cwd=ROOT, env=os.environ | {"UV_NO_PROGRESS": "1"}, check=False)
        if done.returncode != 0:
            sys.exit(f"locks: {lock.path} is as it was: uv could not resolve {lock.source}; what it said stands above")
        text = fresh.read_text("utf-8")
        if found := ADDRESS.search(text):
            sys.exit(f"locks: {lock.path} is as it was: the new one holds an address ({found.group()})")
        head = f"# Made by `make locks` of {lock.source}{_extras(lock)}; not to be edited.\n"
        fresh.write_text(head + text.removeprefix(head), "utf-8")
        fresh.replace(ROOT / lock.path)
    finally:
        fresh.unlink(missing_ok=True)


def _extras(lock: Lock) -> str:
    return f" with the extras {', '.join(lock.extras)}" if lock.extras else ""


if __name__ == "__main__":
    main()
