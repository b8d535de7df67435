"""What one live job is: its trainer, its size, and where its ranks run."""

from dataclasses import dataclass

from hangdog_models.ranks import Rank

#: Parallel sizes, fastest-varying first, by trainer and number of ranks.
SIZES: dict[tuple[str, int], dict[str, int]] = {
    ("combined", 8): {"tp": 2, "dp": 2, "pp": 2},
    ("combined", 16): {"tp": 2, "dp": 4, "pp": 2},
    ("combined", 32): {"tp": 2, "dp": 4, "pp": 4},
}
#: The one dimension of the trainers that know only one.
DIMS = {"ddp": "dp", "fsdp": "dp", "tensor": "tp", "pipeline": "pp", "polling": "dp"}
#: What a bundle says of the framework.
FRAMEWORKS = {
    "ddp": "ddp",
    "fsdp": "fsdp",
    "tensor": "other",
    "pipeline": "other",
    "combined": "fsdp",
    "polling": "other",
}


#: What is harmless: each duty with the rank that alone has it in its settings (None: all have); `training` is no duty,
#: the job just goes on. Of reviews and exports all know, and rank 0 does them.
DUTIES: dict[str, int | None] = {
    "training": None,
    "evaluate": None,
    "archive": None,
    "compile": None,
    "review": None,
    "export": None,
    "recompile": 2,
}
#: The first duty is done after this step, and the next ones so many steps later.
FIRST_DUTY, NEXT_DUTY = 5, 2


@dataclass(frozen=True, slots=True)
class Plan:
    """A job of `world` ranks, `per_machine` on each machine; the seed is that of its data and of chance."""

    trainer: str
    world: int = 8
    seed: int = 1
    per_machine: int = 2

    @property
    def sizes(self) -> dict[str, int]:
        return SIZES.get((self.trainer, self.world)) or {DIMS[self.trainer]: self.world}

    @property
    def framework(self) -> str:
        return FRAMEWORKS[self.trainer]

    @property
    def topology(self) -> str:
        return ",".join(f"{dim}={size}" for dim, size in self.sizes.items())

    @property
    def machines(self) -> tuple[str, ...]:
        return tuple(dict.fromkeys(map(self.machine, range(self.world))))

    def machine(self, rank: Rank | int) -> str:
        return f"node-{rank // self.per_machine}"
