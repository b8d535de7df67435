"""Which frameworks are recorded, in which versions, and how their ranks are started; makes the environment they run in."""

import subprocess
import sys
import venv
from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path

ROOT = Path(__file__).resolve().parents[2]
#: Where the trainers' environment lies: beside hangdog's own, which no framework must change.
HOME = ROOT / ".venv-frameworks"
PYTHON = HOME / "bin" / "python"
TRAINERS = Path(__file__).with_name("trainers")
#: All frameworks run on this one; nothing that is installed may bring another.
TORCH = "torch==2.13.0"
#: Each trainer's ranks; each counts as a machine of its own.
WORLD = 4


@dataclass(frozen=True, slots=True)
class Framework:
    """A framework as pip knows it, its script in trainers/, who starts the ranks, and what a bundle says of the job."""

    name: str
    packages: tuple[str, ...]
    script: str
    starter: str = "torchrun"
    hint: str = "ddp"
    sizes: Mapping[str, int] = field(default_factory=dict)
    environ: Mapping[str, str] = field(default_factory=dict)
    #: Cases that this framework cannot play, by name, and why.
    without: Mapping[str, str] = field(default_factory=dict)
    #: Whether its trainers are ended by a signal in what they do: Python handles signals in the main thread alone.
    interruptible: bool = True


#: Of trainers whose data are read by the rank itself.
NO_WORKERS = {"stopped-worker": "its loader has no workers"}
#: The rank whose data have run out goes on to a barrier, in which the others' loss arrives.
ABORTS = {"uneven-inputs": "gloo aborts where two collectives of unlike sizes meet"}
FRAMEWORKS = {
    one.name: one
    for one in (
        Framework(
            "megatron", ("megatron-core==0.16.1",), "train_megatron.py", hint="megatron", sizes={"tp": 2, "pp": 2},
            without=NO_WORKERS,
        ),
        Framework(
            "transformers", ("transformers==5.23.0", "accelerate==1.15.0"), "train_transformers.py",
            environ={"FRAMEWORKS_SHARD": "0"}, without=ABORTS,
        ),
        Framework(
            "transformers-fsdp2", ("transformers==5.23.0", "accelerate==1.15.0"), "train_transformers.py", hint="fsdp",
            environ={"FRAMEWORKS_SHARD": "1"}, without=ABORTS,
        ),
        Framework("lightning", ("lightning==2.6.6",), "train_lightning.py"),
        Framework(
            "lightning-alone", ("lightning==2.6.6",), "train_lightning.py", starter="itself",
            without={"killed": "its rank 0 starts the others, notices, and ends them"},
        ),
        Framework(
            "jax", ("jax==0.10.2",), "train_jax.py", starter="each", hint="jax",
            environ={"JAX_PLATFORMS": "cpu"},
            without={"build-lock": "it builds no extensions", "mismatched-collective": ABORTS["uneven-inputs"], **NO_WORKERS},
        ),
        Framework("spawn", (), "train_spawn.py", starter="itself", without=NO_WORKERS),
        Framework(
            "deepspeed", ("deepspeed==0.19.8",), "train_deepspeed.py", hint="deepspeed",
            environ={"DS_ACCELERATOR": "cpu", "FRAMEWORKS_ZERO": "2"},
        ),
        Framework(
            "deepspeed-zero3", ("deepspeed==0.19.8",), "train_deepspeed.py", hint="deepspeed",
            environ={"DS_ACCELERATOR": "cpu", "FRAMEWORKS_ZERO": "3"},
            without={"rank0-evaluation": "its all-reduce meets another one of that size, and training goes on, wrongly"},
        ),
        Framework(
            "torch-tp-pp", (), "train_torch.py", hint="other", sizes={"tp": 2, "pp": 2}, environ={"FRAMEWORKS_OUTER": "pp"}
        ),
        Framework(
            "torch-tp-fsdp2", (), "train_torch.py", hint="fsdp", sizes={"tp": 2, "dp": 2},
            environ={"FRAMEWORKS_OUTER": "dp_shard"},
        ),
        Framework(
            "ray", ("ray[train]==2.60.0",), "train_ray.py", starter="itself", interruptible=False,
            without={"killed": "Ray notices that a worker died", **NO_WORKERS},
        ),
    )
}  # fmt: skip


def install() -> int:
    """Installs all frameworks, one after the other; names those that cannot be. Answers how many could not."""
    if not PYTHON.exists():
        venv.create(HOME, with_pip=True)
    constraints = HOME / "constraints.txt"
    constraints.write_text(f"{TORCH}\n")
    failed = []
    for name, packages in (("torch", (TORCH, "numpy")), *((one.name, one.packages) for one in FRAMEWORKS.values())):
        if not packages:
            continue
        command = [
            str(PYTHON),
            "-m",
            "pip",
            "install",
            "--quiet",
            "--disable-pip-version-check",
            "-c",
            str(constraints),
        ]
        done = subprocess.run([*command, *packages], capture_output=True, text=True, check=False)
        print(f"{name:14} {' '.join(packages)}: {'installed' if done.returncode == 0 else 'NOT INSTALLED'}", flush=True)
        if done.returncode != 0:
            failed.append(name)
            print(done.stderr[-2000:], file=sys.stderr)
    if failed:
        print(f"cannot be installed here: {', '.join(failed)}")
    return len(failed)
