"""Makes an environment that has torch from one Python and hangdog's packages from a folder of wheels: no network is needed.

Only the standard library is used here: nothing else is there before it has run.
"""

import json
import re
import site
import subprocess
import sys
import sysconfig
import tomllib
from pathlib import Path

ROOT = Path(__file__).resolve().parents[2]
ROOMS = ("agent", "server", "models", "proto", "cli", "bench")
#: What a Python with torch has anyway, or what the proof has no use for: the density model, PostgreSQL, wheels too large to carry.
LEFT_OUT = ("numpy", "scipy", "scikit-learn", "hdbscan", "joblib", "threadpoolctl", "narwhals", "psycopg", "psycopg-binary",
            "tzdata", "cython", "setuptools", "wheel")  # fmt: skip
#: Wheels of the glibcs that Linux distributions with a current torch have.
PLATFORMS = ("manylinux_2_34", "manylinux_2_28", "manylinux_2_27", "manylinux_2_17", "manylinux2014", "manylinux_2_12",
             "manylinux2010", "manylinux_2_5", "manylinux1")  # fmt: skip
#: What has to be importable for the proof to run at all.
PROBE = (
    "import torch, msgspec, grpc, uvicorn, sqlalchemy, alembic; from hangdog_agent.capture import pyspy; pyspy.load()"
)


def fetch(folder: Path, version: str) -> None:
    """Fills a folder with the wheels that a Python of this version lacks beside torch, in the pinned versions."""
    folder.mkdir(parents=True, exist_ok=True)
    pinned = {}
    for line in (ROOT / "requirements" / "server.txt").read_text().splitlines():
        if found := re.match(r"([A-Za-z0-9._-]+)==(\S+)", line):
            pinned[found[1]] = found[2]
    wanted = [f"{name}=={at}" for name, at in pinned.items() if name not in LEFT_OUT]
    platforms = [word for name in PLATFORMS for word in ("--platform", f"{name}_x86_64")]
    subprocess.run(
        [sys.executable, "-m", "pip", "download", "-q", "--no-deps", "--only-binary=:all:", "--python-version", version,
         "--implementation", "cp", *platforms, "-d", str(folder), *wanted],
        check=True,
    )  # fmt: skip
    size = sum(path.stat().st_size for path in folder.glob("*.whl"))
    print(f"{len(list(folder.glob('*.whl')))} wheels, {size / 2**20:.0f} MiB, for Python {version}: {folder}")


def make(folder: Path, wheels: Path) -> Path:
    """The interpreter of an environment beside this Python's own: its packages, then ours over them."""
    python = folder / "bin" / "python"
    if python.exists():
        return python
    subprocess.run([sys.executable, "-m", "venv", "--without-pip", str(folder)], check=True)
    packages = [str(path) for path in sorted(wheels.glob("*.whl"))]
    pip = [sys.executable, "-m", "pip", "--python", str(python), "install", "-q", "--no-index", "--no-deps"]
    subprocess.run([*pip, "--no-compile", "--no-cache-dir", *packages], check=True)
    answer = subprocess.run(
        [str(python), "-c", "import json, sysconfig; print(json.dumps(sysconfig.get_path('purelib')))"],
        check=True, capture_output=True,
    )  # fmt: skip
    packages_folder = Path(json.loads(answer.stdout))
    own = [*site.getsitepackages(), sysconfig.get_path("purelib"), sysconfig.get_path("platlib")]
    places = [*(str(ROOT / room) for room in ROOMS), *dict.fromkeys(own)]
    # a .pth file, for the agent's children are isolated: they would not see PYTHONPATH
    (packages_folder / "hangdog.pth").write_text("\n".join(places) + "\n")
    # what pip leaves of an editable install, without what builds one: programs ask which version they are
    stated = packages_folder / f"hangdog-{version()}.dist-info"
    stated.mkdir()
    (stated / "METADATA").write_text(f"Metadata-Version: 2.1\nName: hangdog\nVersion: {version()}\n")
    return python


def version() -> str:
    """Of this checkout."""
    stated: str = tomllib.loads((ROOT / "pyproject.toml").read_text())["project"]["version"]
    return stated


def missing(python: Path) -> str:
    """What an interpreter lacks for the proof, in its own words; nothing where it lacks nothing."""
    ran = subprocess.run([str(python), "-c", PROBE], check=False, capture_output=True, text=True)
    return ran.stderr.strip().splitlines()[-1] if ran.returncode else ""
