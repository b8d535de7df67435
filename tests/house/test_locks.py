"""What is installed is pinned with hashes: the locks cover pyproject.toml, and Dockerfile and pages install nothing else."""

import hashlib
import http.server
import json
import re
import shutil
import subprocess
import sys
import threading
import tomllib
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest
from packaging.requirements import Requirement
from packaging.utils import canonicalize_name

ROOT = Path(__file__).resolve().parents[2]
FOLDER = ROOT / "requirements"
LOCKS = sorted(FOLDER.glob("*.txt"))
IMAGES = ("agent", "server", "tester")
PAGES = [ROOT / "README.md", *sorted((ROOT / "docs").rglob("*.md")), *sorted((ROOT / "deploy").rglob("*.*"))]
PROJECT = tomllib.loads((ROOT / "pyproject.toml").read_text("utf-8"))
EXTRAS = PROJECT["project"]["optional-dependencies"]
#: What `pip install` may be told beside a lock: our own tree or wheel, which is no dependency.
OWN = re.compile(r"--no-deps( --\S+)* (\.|/wheels/\*\.whl)(\s|$)")


def entries(path: Path) -> list[str]:
    """Each package of a lock with its hashes, as one line."""
    text = path.read_text("utf-8").replace("\\\n", " ")
    return [line for line in text.splitlines() if line.strip() and not line.strip().startswith("#")]


def pinned(name: str) -> dict[str, Requirement]:
    found = (Requirement(line.partition(" --hash")[0].strip()) for line in entries(FOLDER / f"{name}.txt"))
    return {canonicalize_name(one.name): one for one in found}


def wanted(*extras: str) -> list[Requirement]:
    lines = [line for extra in extras for line in EXTRAS[extra] if not line.startswith("hangdog[")]
    return [Requirement(line) for line in (*PROJECT["project"]["dependencies"], *lines)]


def listed(path: Path) -> list[Requirement]:
    lines = [line for line in path.read_text("utf-8").splitlines() if line and not line.startswith("#")]
    others = [one for line in lines if line.startswith("-r ") for one in listed(FOLDER / line.removeprefix("-r "))]
    return [*others, *(Requirement(line) for line in lines if not line.startswith("-r "))]


ASKED = {
    "cli": wanted(),
    "server": wanted("server", "notify"),
    "otel": wanted("server", "notify", "otel"),
    "agent": listed(FOLDER / "agent.in"),
    "tester": listed(FOLDER / "tester.in"),
    "build": [*(Requirement(one) for one in PROJECT["build-system"]["requires"]), *listed(FOLDER / "build.in")],
}


def test_every_lock_is_known_here() -> None:
    assert {path.stem for path in LOCKS} == set(ASKED)


@pytest.mark.parametrize("name", ASKED)
def test_a_lock_covers_what_the_project_asks_for(name: str) -> None:
    lock = pinned(name)
    for one in ASKED[name]:
        held = lock.get(canonicalize_name(one.name))
        assert held is not None, f"{name}.txt lacks {one.name}: make locks"
        version = next(iter(held.specifier)).version
        assert one.specifier.contains(version, prereleases=True), f"{name}.txt has {held}, {one} is asked: make locks"


def test_the_tester_has_the_agent_s_list_the_torch_that_is_tested_here_and_what_its_programs_import() -> None:
    asked = {str(one) for one in ASKED["tester"]}
    torch = {one for one in EXTRAS["demo"] if one.startswith("torch")}
    numpy = {one for one in EXTRAS["server"] if one.startswith("numpy")}
    assert asked == {str(one) for one in ASKED["agent"]} | torch | numpy and torch and numpy
    cuda = [
        name for name, one in pinned("tester").items() if name.startswith("nvidia-nc") and "linux" in str(one.marker)
    ]
    assert cuda, "torch of the CPU alone would leave GPUs untested"


@pytest.mark.parametrize("path", LOCKS, ids=lambda path: path.stem)
def test_every_package_of_a_lock_has_one_version_and_hashes_and_no_address(path: Path) -> None:
    for entry in entries(path):
        package, *hashes = re.split(r"\s--hash=", entry)
        assert re.fullmatch(r"[a-z0-9-]+==[^\s;]+( ; .+)?\s*", package), entry[:100]
        assert hashes and all(re.fullmatch(r"sha256:[0-9a-f]{64}\s*", one) for one in hashes), package
    assert not re.search(r"://|index-url|find-links|trusted-host", path.read_text("utf-8"))


def test_all_of_hangdog_runs_on_the_same_versions() -> None:
    together: dict[str, set[str]] = {}
    for path in LOCKS:
        for name, one in pinned(path.stem).items():
            together.setdefault(name, set()).add(str(one.specifier))
    assert not {name: versions for name, versions in together.items() if len(versions) > 1}


@pytest.mark.parametrize("name", IMAGES)
def test_the_list_of_an_images_components_names_every_package_of_its_lock(name: str) -> None:
    document = json.loads((FOLDER / f"{name}.cdx.json").read_text("utf-8"))
    assert (document["bomFormat"], document["specVersion"]) == ("CycloneDX", "1.6")
    assert document["metadata"]["component"]["name"] == f"hangdog-{name}"
    said = {(one["name"], one["version"]) for one in document["components"] if one["name"] != "hangdog"}
    assert said == {(key, next(iter(one.specifier)).version) for key, one in pinned(name).items()}
    assert all(one["purl"].startswith("pkg:pypi/") for one in document["components"] if one["name"] != "hangdog")
    left_out = {one["name"] for one in document["components"] if one.get("scope") == "excluded"}
    assert left_out == {key for key, one in pinned(name).items() if "win32" in str(one.marker)}
    assert PROJECT["project"]["version"] == next(
        one["version"] for one in document["components"] if one["name"] == "hangdog"
    )


def instructions() -> list[str]:
    text = re.sub(r"^#.*\n", "", (ROOT / "Dockerfile").read_text("utf-8"), flags=re.MULTILINE)
    return text.replace("\\\n", " ").splitlines()


def test_the_base_of_the_images_is_named_by_its_digest_or_must_be_given() -> None:
    stages: set[str] = set()
    for line in instructions():
        if line.startswith("ARG BASE"):
            assert line == "ARG BASE" or re.search(r"@sha256:[0-9a-f]{64}$", line), line
        if line.startswith("FROM"):
            base, _, stage = line.removeprefix("FROM ").partition(" AS ")
            assert base == "${BASE}" or base in stages or re.search(r"@sha256:[0-9a-f]{64}$", base), line
            stages.add(stage)


@pytest.mark.parametrize("name", IMAGES)
def test_an_image_holds_the_list_of_its_components(name: str) -> None:
    assert f"COPY requirements/{name}.cdx.json /usr/share/sbom/hangdog-{name}.cdx.json" in instructions()


def test_images_and_pages_install_nothing_without_a_lock_or_a_version() -> None:
    told = [(ROOT / "Dockerfile", line) for line in instructions()]
    told += [(page, line) for page in PAGES for line in page.read_text("utf-8").splitlines()]
    seen = 0
    for where, line in told:
        for command in re.findall(r"\bpip (?:install|wheel|download)\b([^&|;`]*)", line):
            seen += 1
            locked = "--require-hashes" in command and re.search(r"-r (requirements/\w+|/requirements)\.txt", command)
            versions = re.fullmatch(r"(\s+--\S+)*\s+[\w.-]+==[\w.]+\s*", command)
            assert locked or versions or OWN.search(command.partition(" #")[0] + " ") or "wheel-dir" in command, (
                f"{where.name}: pip install{command}"
            )
    assert seen >= 10


def test_what_is_built_in_an_image_fetches_nothing_by_itself() -> None:
    for line in instructions():
        for command in re.findall(r"\bpip (?:install|wheel)\b([^&]*)", line):
            hashed = "--require-hashes" in command and "--only-binary :all:" in command
            own = "--no-deps" in command and ("--no-build-isolation" in command or "--no-index" in command)
            assert hashed or own, command


INDEX = json.dumps({"schemaVersion": 2, "manifests": []}).encode()


class Registry(http.server.BaseHTTPRequestHandler):
    """A registry that wants a token, as Docker's does for public images."""

    kind = "application/vnd.oci.image.index.v1+json"

    def do_GET(self) -> None:
        host = self.headers["Host"]
        if self.path.startswith("/token"):
            self._answer(200, json.dumps({"token": "t"}).encode(), "application/json")
        elif self.path != "/v2/library/python/manifests/3.11-slim":
            self._answer(404, b"", "text/plain")
        elif self.headers.get("Authorization") != "Bearer t":
            self._answer(401, b"", "text/plain", f'Bearer realm="http://{host}/token",service="r",scope="pull"')
        else:
            self._answer(200, INDEX, self.kind)

    def _answer(self, status: int, body: bytes, kind: str, challenge: str = "") -> None:
        self.send_response(status)
        self.send_header("Content-Type", kind)
        if challenge:
            self.send_header("WWW-Authenticate", challenge)
        self.end_headers()
        self.wfile.write(body)

    def log_message(self, format: str, *args: object) -> None:
        """Nothing is logged."""


@contextmanager
def registry(handler: type[Registry]) -> Iterator[str]:
    with http.server.ThreadingHTTPServer(("127.0.0.1", 0), handler) as server:
        threading.Thread(target=server.serve_forever, daemon=True).start()
        yield f"http://127.0.0.1:{server.server_address[1]}"
        server.shutdown()


def resolve(folder: Path, *arguments: str) -> tuple[int, str, str]:
    """The status, what was said, and the line of the Dockerfile afterwards."""
    (folder / "tools").mkdir(exist_ok=True)
    shutil.copy(ROOT / "tools" / "base_image.py", folder / "tools")
    shutil.copy(ROOT / "Dockerfile", folder)
    command = [sys.executable, str(folder / "tools" / "base_image.py"), *arguments]
    done = subprocess.run(command, capture_output=True, text=True, check=False)
    line = next(line for line in (folder / "Dockerfile").read_text("utf-8").splitlines() if line.startswith("ARG BASE"))
    return done.returncode, done.stderr, line


def test_the_bases_digest_is_that_of_what_the_registry_sends(tmp_path: Path) -> None:
    with registry(Registry) as address:
        status, _, line = resolve(tmp_path, "python:3.11-slim", "--registry", address)
        assert (status, line) == (0, f"ARG BASE=python:3.11-slim@sha256:{hashlib.sha256(INDEX).hexdigest()}")
        before = next(line for line in instructions() if line.startswith("ARG BASE"))
        assert resolve(tmp_path, "python:3.99", "--registry", address)[::2] == (1, before)
        assert resolve(tmp_path, "python", "--registry", address)[0] == 1


def test_a_manifest_of_one_platform_is_no_base(tmp_path: Path) -> None:
    class OnePlatform(Registry):
        kind = "application/vnd.oci.image.manifest.v1+json"

    with registry(OnePlatform) as address:
        status, said, _ = resolve(tmp_path, "python:3.11-slim", "--registry", address)
    assert status == 1 and "no list of platforms" in said
