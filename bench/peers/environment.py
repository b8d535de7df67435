"""Where the other analysers are: PyTorch's beside hangdog's own Python (`make torch`), NVIDIA's in a folder of its own."""

import subprocess
import sys
from importlib.metadata import PackageNotFoundError, distributions, version
from pathlib import Path

ROOT = Path(__file__).resolve().parents[2]
#: No environment is needed: the analyser is plain Python without dependencies, and the rest of the package is never imported.
NVRX_HOME = ROOT / ".venv-peers"
NVRX = "nvidia-resiliency-ext==0.7.0"
NVRX_MODULE = "nvidia_resiliency_ext.attribution.trace_analyzer.fr_attribution"


def torchfrtrace() -> Path:
    return Path(sys.executable).with_name("torchfrtrace")


def torch_version(command: Path) -> str:
    """The PyTorch that a `torchfrtrace` belongs to."""
    found = distributions(
        name="torch", path=[str(path) for path in command.parents[1].glob("lib/python*/site-packages")]
    )
    return next((one.version for one in found), "unknown")


def nvrx_version() -> str:
    return next((one.version for one in distributions(name="nvidia-resiliency-ext", path=[str(NVRX_HOME)])), "")


def hangdog_version() -> str:
    """The version and the commit that is judged."""
    try:
        released = version("hangdog")
    except PackageNotFoundError:
        released = "unreleased"
    commit = subprocess.run(
        ["git", "describe", "--always", "--dirty"], cwd=ROOT, capture_output=True, text=True, check=False
    ).stdout.strip()
    return f"{released} ({commit})" if commit else released


def install() -> int:
    """Unpacks NVIDIA's package. Its wheels ask for a newer C library than many systems have, which the analyser does not use."""
    command = [
        sys.executable, "-m", "pip", "install", "--quiet", "--disable-pip-version-check", "--target", str(NVRX_HOME),
        "--upgrade", "--no-deps", "--only-binary", ":all:", "--platform", "manylinux_2_39_x86_64",
        "--python-version", "3.12", "--implementation", "cp", "--abi", "cp312", NVRX,
    ]  # fmt: skip
    return subprocess.run(command, check=False).returncode
