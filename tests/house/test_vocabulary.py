"""One vocabulary, rooms of twenty: what a newcomer looks for has the name that they look for, and lies in a room they can survey."""

import ast
import io
import re
import subprocess
import sys
import tokenize
import tomllib
from collections import defaultdict
from collections.abc import Iterator
from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parents[2]
ROOMS = ("agent", "server", "models", "proto", "cli")
#: Files of one folder that a reader can survey.
FEW = 20
#: Names of modules that each folder may have one of.
EVERYWHERE = {"__init__", "__main__", "main", "settings", "conftest"}
#: Words of a private language that named things here once; none names anything any more.
PRIVATE = {
    "vigil", "vigils", "witness", "witnesses", "deed", "deeds", "desk", "sentry", "courier", "sparing", "foreseeing", "foresee",
    "heard", "told", "said", "parting", "partings", "telling", "news", "matter", "matters", "pulse", "pulses", "glance", "glances",
    "posture", "standstill", "standstills", "doubt", "doubts", "borne", "errand", "warden", "leash", "tether", "keepsake", "census",
    "tally", "testimony", "splice", "reckoning", "limbs", "accusing", "carrying", "owning", "looking", "lives", "guilt", "bearing",
    "bearings", "means", "standing", "standings",
}  # fmt: skip
#: Words that name no field of a noun, though they may name a value that holds words.
NO_FIELDS = {"words", "because"}
#: Fields that a contract names: they stand in written verdicts.
CONTRACTS = {"because"}
#: Steps of migrations that are past.
PAST = "server/hangdog_server/store/migrations/versions"
#: What an SRE or a training engineer searches a repository for; so many of them must name a file or folder.
SEARCHED = [
    "hang", "stall", "heartbeat", "ack", "incident", "suspect", "quarantine", "drain", "cordon", "isolate", "approve", "notify", "alert", "auth", "token", "role", "certificate", "audit", "retry", "backoff", "reconcile", "execute", "timeout", "lease", "snapshot", "capture", "discover", "profile", "cluster", "outlier", "culprit", "blame", "rendezvous", "evict", "dedup", "cache", "registry", "listener", "config", "metrics",
]  # fmt: skip
FOUND = 36


def sources(*rooms: str) -> list[Path]:
    listed = subprocess.run(["git", "ls-files", *rooms], cwd=ROOT, capture_output=True, text=True, check=True).stdout
    return [ROOT / name for name in listed.splitlines() if "/generated/" not in name and (ROOT / name).is_file()]


def modules(*rooms: str) -> list[Path]:
    return [path for path in sources(*rooms) if path.suffix == ".py"]


def parts(name: str) -> set[str]:
    """The words of an identifier: `StallMonitor` and `stall_monitor` alike."""
    return {part.lower() for part in re.findall(r"[A-Z]+(?![a-z])|[A-Z]?[a-z]+", name)}


def identifiers(source: str) -> Iterator[str]:
    for token in tokenize.generate_tokens(io.StringIO(source).readline):
        if token.type == tokenize.NAME:
            yield token.string


def holds(source: str, words: set[str]) -> bool:
    """Whether one of the words stands anywhere, in prose or in a name: without one there is nothing to take apart."""
    return any(parts(name) & words for name in set(re.findall(r"[A-Za-z]+", source)))


def fields(tree: ast.AST) -> Iterator[str]:
    """What nouns hold: the annotated names of classes, and what `self` is given."""
    for node in ast.walk(tree):
        if isinstance(node, ast.ClassDef):
            yield from (
                one.target.id
                for one in node.body
                if isinstance(one, ast.AnnAssign) and isinstance(one.target, ast.Name)
            )
        elif isinstance(node, ast.Attribute) and isinstance(node.ctx, ast.Store):
            yield node.attr


def test_no_folder_holds_more_than_a_reader_can_survey() -> None:
    folders: dict[Path, int] = defaultdict(int)
    for path in modules(*ROOMS, "tests", "bench", "tools"):
        folders[path.parent] += 1
    assert folders and not {str(folder.relative_to(ROOT)): count for folder, count in folders.items() if count > FEW}


def test_the_contract_of_the_server_names_few_packages() -> None:
    """Packages only, so that a new file inside of one edits no contract."""
    contracts = tomllib.loads((ROOT / "pyproject.toml").read_text(encoding="utf-8"))["tool"]["importlinter"][
        "contracts"
    ]
    (layers,) = (one["layers"] for one in contracts if one["name"] == "inside the server")
    named = {name.strip() for layer in layers for name in layer.split("|")}
    assert len([name for name in named if (ROOT / "server/hangdog_server" / name).is_dir()]) <= 14


def test_no_class_name_means_two_things() -> None:
    where: dict[str, list[str]] = defaultdict(list)
    for path in modules(*ROOMS):
        for name in re.findall(r"^ *class (\w+)(?=[:(])", path.read_text(encoding="utf-8"), re.MULTILINE):
            where[name].append(str(path.relative_to(ROOT)))
    assert where and not {name: places for name, places in where.items() if len(places) > 1}


@pytest.mark.parametrize("room", ROOMS)
def test_no_two_modules_of_a_room_have_one_name(room: str) -> None:
    where: dict[str, list[str]] = defaultdict(list)
    for path in modules(room):
        if path.stem not in EVERYWHERE:
            where[path.stem].append(str(path.relative_to(ROOT)))
    assert where and not {name: places for name, places in where.items() if len(places) > 1}


@pytest.mark.parametrize("room", ROOMS)
def test_no_identifier_is_of_a_private_language(room: str) -> None:
    wrong = set()
    for path in modules(room):
        if path.is_relative_to(ROOT / PAST):
            continue
        source = path.read_text(encoding="utf-8")
        names = set(identifiers(source)) if holds(source, PRIVATE) else set()
        wrong |= {f"{path.relative_to(ROOT)}: {name}" for name in names if parts(name) & PRIVATE}
        held = set(fields(ast.parse(source))) - CONTRACTS if holds(source, NO_FIELDS) else set()
        wrong |= {f"{path.relative_to(ROOT)}: field {name}" for name in held if parts(name) & NO_FIELDS}
    assert not wrong


def test_no_file_or_folder_is_of_a_private_language() -> None:
    assert not [path for path in sources(*ROOMS) for part in path.relative_to(ROOT).parts if parts(part) & PRIVATE]


def test_what_people_search_for_names_a_file_or_folder() -> None:
    names = " ".join(part.lower() for path in sources(*ROOMS) for part in path.relative_to(ROOT).parts[1:])
    missed = [word for word in SEARCHED if not re.search(rf"(?<![a-z]){word}", names)]
    assert len(SEARCHED) - len(missed) >= FOUND, missed


def test_no_function_is_a_maze() -> None:
    """A function has a cyclomatic complexity of 20 at most."""
    asked = ["check", "--select", "C901", "--config", "lint.mccabe.max-complexity=20", "--output-format", "concise"]
    done = subprocess.run(
        [str(Path(sys.executable).with_name("ruff")), *asked, *ROOMS, "tests", "bench", "tools"],
        cwd=ROOT,
        capture_output=True,
        text=True,
        check=False,
    )
    assert done.returncode == 0, done.stdout
