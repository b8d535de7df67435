"""Frames as py-spy writes them, of the places that frames.json and places.toml name."""

import json
from collections.abc import Mapping, Sequence
from functools import cache
from pathlib import Path
from random import Random
from typing import Any, TypeAlias
from zlib import crc32

from worlds.timed.jobs.places import tables

#: Function, file and line of code of public projects, with their versions.
FILE = Path(__file__).resolve().parents[1] / "frames.json"

Frame: TypeAlias = dict[str, Any]

#: Where machines keep libraries, and where users keep their code.
_PACKAGES = (
    "{library}site-packages/",
    "/usr/local/lib/python{version}/dist-packages/",
    "/srv/venvs/research/lib/python{version}/site-packages/",
)
_CODE = ("/workspace/", "/opt/train/", "/srv/research/run/", "/mnt/code/proj/")
_LIBRARY = {"3.10": "/usr/lib/python3.10/", "3.11": "/opt/conda/lib/python3.11/", "3.12": "/usr/lib/python3.12/"}
#: The version of Python whose lines frames.json has; those of others differ a little.
_KNOWN = "3.11"
#: Native libraries of the system, of PyTorch and CUDA, and of Python.
_SYSTEM = ("libc.", "libcuda.", "libstdc", "libres", "libssl", "libcry")
_TORCH = ("libtorch", "libc10", "libnccl", "libcudart")


@cache
def projects() -> Mapping[str, Mapping[str, Any]]:
    """All of frames.json."""
    found: Mapping[str, Mapping[str, Any]] = json.loads(FILE.read_text(encoding="utf-8"))
    return found


@cache
def _known() -> Mapping[str, tuple[str, Sequence[Any]]]:
    return {
        key: (project["under"], lines) for project in projects().values() for key, lines in project["frames"].items()
    }


class Installation:
    """What is installed on the machines of a job, so that frames have paths, lines and names."""

    def __init__(self, seed: str, *, newer: bool, marks_native: bool) -> None:
        rng = Random(f"{seed} installation")
        self._seed = seed
        self._newer = newer
        self._marks_native = marks_native
        self.python = rng.choice(("3.10", "3.11", "3.12"))
        #: Python names functions with their classes since 3.11, where the tool asks for it.
        self._qualified = self.python != "3.10" and rng.random() < 0.6
        self._library = _LIBRARY[self.python]
        self._packages = rng.choice(_PACKAGES).format(library=self._library, version=self.python)
        self._code = rng.choice(_CODE)
        self._found: dict[str, Frame | None] = {}

    def stack(self, frames: str) -> list[Frame]:
        """The frames of a place, innermost first."""
        found: list[Frame] = []
        for key in frames.split():
            if key not in self._found:
                self._found[key] = self._frame(key)
            frame = self._found[key]
            if frame is not None:
                found.append(dict(frame))
        if found:
            found[0]["is_entry"] = True
        return found[::-1]

    def native(self, name: str, salt: int) -> list[Frame]:
        """The native frames below a place, innermost first; `salt` sets apart where a process' driver was loaded."""
        found = []
        for at, (function, library) in enumerate(tables()["native"].get(name, ())):
            if function == "0x":
                function = f"0x7f{16 + self._hash(salt) % 200:02x}{self._hash(library, at) % 16**5:05x}"
            frame = _frame(function, self._path_of(library), library, 0)
            found.append(frame | {"native": True} if self._marks_native else frame)
        return found

    def code(self, path: str) -> str:
        """The path of a file of the user's."""
        return self._code + path

    def _frame(self, key: str) -> Frame | None:
        if "@" in key:
            name, path, line = key.split("@")
            under, _, short = path.partition("/")
            moves = under == "site" and not short.startswith(("requests", "urllib3"))
            number = max(3, int(line) + self._hash(short) % 23 - 9) if moves else int(line)
            return self._named(name, under, short, number)
        under, versions = _known()[key]
        at = versions[-1 if self._newer else 0]
        if at is None:  # this version has no such place
            return None
        name, short, number = at
        if under == "library" and self.python != _KNOWN:
            number = max(2, number + crc32((short + self.python).encode()) % 31 - 14)
        return self._named(name, under, short, number)

    def _named(self, name: str, under: str, short: str, line: int) -> Frame:
        roots = {"site": self._packages, "library": self._library, "code": self._code}
        plain = name if self._qualified or name.startswith("<") else name.rpartition(".")[2]
        return _frame(plain, roots[under] + short, short, line)

    def _path_of(self, library: str) -> str:
        if library.startswith(_SYSTEM):
            return f"/usr/lib/x86_64-linux-gnu/{library}"
        return f"{self._packages}torch/lib/{library}" if library.startswith(_TORCH) else self._library + library

    def _hash(self, *of: object) -> int:
        return crc32("/".join(map(str, (self._seed, *of))).encode())


def _frame(name: str, path: str, short: str, line: int) -> Frame:
    return {
        "name": name,
        "filename": path,
        "module": None,
        "short_filename": short,
        "line": line,
        "locals": None,
        "is_entry": False,
        "is_shim_entry": False,
    }
