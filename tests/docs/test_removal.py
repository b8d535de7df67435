"""The page that says how hangdog is removed names what the files in deploy/ make on a machine."""

import re
from collections.abc import Iterator
from pathlib import Path

import pytest

from support.cases.manifests import documents

ROOT = Path(__file__).resolve().parents[2]
DEPLOY = ROOT / "deploy"
_PAGE = (ROOT / "docs" / "deploy.md").read_text("utf-8")
REMOVING = re.search(r"^## Removing it\n(.*?)^## ", _PAGE, re.MULTILINE | re.DOTALL)
_STATE = re.compile(r"^StateDirectory=(\S+)$", re.MULTILINE)
_DEFAULT = re.compile(r"\$\{HANGDOG_\w+:-(/[^}]+)\}")


def made() -> Iterator[str]:
    """Folders and files that units, manifests and scripts make or read."""
    for unit in (DEPLOY / "systemd").glob("*.service"):
        text = unit.read_text("utf-8")
        yield "/etc/systemd/system/hangdog-"
        yield from (f"/var/lib/{name}" for name in _STATE.findall(text))
        if "DynamicUser=yes" in text:
            yield from (f"/var/lib/private/{name}" for name in _STATE.findall(text))
    for script in (DEPLOY / "slurm").glob("*.sh"):
        yield from _DEFAULT.findall(script.read_text("utf-8"))
    for manifest in (DEPLOY / "kubernetes").glob("*.yaml"):
        for document in documents(manifest):
            template = document.get("spec", {}).get("template", document)
            for volume in template.get("spec", {}).get("volumes", ()):
                if "hostPath" in volume:
                    yield volume["hostPath"]["path"]


@pytest.mark.parametrize("path", sorted(set(made())))
def test_what_is_made_on_a_machine_is_removed(path: str) -> None:
    assert REMOVING is not None
    named = re.findall(r"`(/[^`*]+)", REMOVING[1])
    assert any(path == one or path.startswith(f"{one}/") for one in named), path


def test_each_manifest_and_script_has_its_way_out() -> None:
    assert REMOVING is not None
    ours = [*(DEPLOY / "kubernetes").glob("*.yaml"), *(DEPLOY / "slurm").glob("*.sh")]
    assert not [path.name for path in ours if path.stem != "sidecar" and f"`{path.name}`" not in REMOVING[1]]
