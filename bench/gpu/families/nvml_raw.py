"""Keeps what nvidia-smi prints, unaltered, and says what our readers make of it."""

import json
import shutil
import subprocess
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from gpu import environment
from gpu.kit import Stand
from hangdog_agent.machine_tests.members import GroupMember
from hangdog_agent.machine_tests.run_members import run
from hangdog_models.errors import UnreadableEvidence
from hangdog_models.findings import Impact
from hangdog_models.reading.hardware import nvidia_smi

#: By the name of the file that keeps it, what is asked of nvidia-smi.
_ASKED: Mapping[str, tuple[str, ...]] = {
    "nvidia-smi.txt": (),
    "nvidia-smi-L.txt": ("-L",),
    "nvidia-smi-q.txt": ("-q",),
    "nvidia-smi-q.xml": ("-q", "-x"),
    "nvidia-smi-topo.txt": ("topo", "-m"),
    "nvidia-smi-nvlink.txt": ("nvlink", "-s"),
    "nvidia-smi-nvlink-e.txt": ("nvlink", "-e"),
}
_UNDER_LOAD: Mapping[str, tuple[str, ...]] = {"nvidia-smi-q-load.xml": ("-q", "-x"), "nvidia-smi-q-load.txt": ("-q",)}
#: Files of the driver that are kept beside.
_FILES = ("/proc/driver/nvidia/version", "/proc/driver/nvidia/params")
_DEADLINE_S = 15.0
_BYTES = 8 << 20
#: A query that our readers know.
_QUERIES = "nvidia-smi-q"
#: What stands for the program in a dry run.
_STAND_IN = """#!/bin/sh
case "$*" in
*-x*) printf '<?xml version="1.0" ?>\\n<nvidia_smi_log><attached_gpus>1</attached_gpus><gpu id="00000000:1B:00.0">'
      printf '<product_name>stand-in</product_name><utilization><gpu_util>0 %%</gpu_util></utilization></gpu></nvidia_smi_log>\\n' ;;
-q)   printf '==============NVSMI LOG==============\\n\\nAttached GPUs                             : 1\\n'
      printf 'GPU 00000000:1B:00.0\\n    Product Name                          : stand-in\\n' ;;
*)    echo "a stand-in of a dry run: $*" ;;
esac
"""


def keep(stand: Stand, environ: Mapping[str, str], under_load: bool = False) -> None:
    """Writes each output into `out/raw/nvml`; what a program says on stderr, and how it ended, stands beside its output."""
    raw = _folder(stand)
    raw.mkdir(parents=True, exist_ok=True)
    program = _program(stand)
    for name, arguments in (_UNDER_LOAD if under_load else _ASKED).items():
        (ended,) = run([GroupMember(name, (program, *arguments), environ)], _DEADLINE_S, _BYTES).members
        (raw / name).write_text(ended.stdout, encoding="utf-8")
        if not ended.well:
            (raw / f"{name}.error").write_text(f"{ended.words}\n{ended.stderr}", encoding="utf-8")
    for path in () if under_load else _FILES:
        try:
            (raw / path.strip("/").replace("/", "-")).write_bytes(Path(path).read_bytes())
        except OSError:
            continue


def _folder(stand: Stand) -> Path:
    """Of this part alone: what others keep of jobs that they hung does convict a machine."""
    return stand.out / "raw" / "nvml"


def read_again(stand: Stand) -> tuple[dict[str, Any], list[str]]:
    """What the readers make of the queries, and what `hangdog triage` knows of all the files."""
    figures: dict[str, Any] = {}
    wrong: list[str] = []
    raw = _folder(stand)
    figures["raw files"] = {path.name: path.stat().st_size for path in sorted(raw.iterdir())}
    for path in sorted(raw.glob(f"{_QUERIES}*")):
        if path.suffix == ".error":
            continue
        text = path.read_text("utf-8", "replace")
        if not text:
            figures[path.name] = "nothing was printed, see its .error"
            continue
        try:
            found = nvidia_smi.read(text)
        except UnreadableEvidence as error:
            figures[path.name] = f"unreadable: {error}"
            wrong.append(f"our reader cannot read {path.name}: {error}")
            continue
        figures[path.name] = [f"{one.code} ({one.impact}): {one.what}" for one in found] or "nothing against it"
        against = [one for one in found if one.impact is not Impact.TELLS_NOTHING]
        wrong += [f"{path.name}: our reader speaks against a sound device: {one.what}" for one in against]
    command = (str(stand.python), "-m", "hangdog", "triage", str(raw), "--format", "json")
    ended = subprocess.run(command, check=False, capture_output=True, text=True, timeout=60, cwd=environment.ROOT)
    try:
        document = json.loads(ended.stdout)
        said = {"verdict": document["verdict"], **document["evidence"]}
    except (ValueError, KeyError):
        said = {"failed": ended.stderr[-600:]}
    figures["triage of the raw files"] = said
    if said.get("verdict") not in ("none", "undetermined"):
        wrong.append(f"triage of a sound machine's raw files: {said}")
    return figures, wrong


def _program(stand: Stand) -> str:
    if not stand.dry:
        return shutil.which("nvidia-smi") or "nvidia-smi"
    program = stand.scratch / "nvidia-smi"
    if not program.exists():
        program.write_text(_STAND_IN, encoding="utf-8")
        program.chmod(0o755)
    return str(program)
