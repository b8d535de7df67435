"""The shape of the demo's job, which the trainer and the conductor must agree upon; it is read without torch."""

#: Parallel sizes, fastest-varying first, as HANGDOG_TOPOLOGY announces them.
SIZES = {"tp": 2, "dp": 2, "pp": 2}
WORLD_SIZE = 8
#: Four machines of two ranks: each holds one tensor-parallel pair, the usual placement.
RANKS_PER_MACHINE = 2
MACHINES = tuple(f"node-{number}" for number in range(WORLD_SIZE // RANKS_PER_MACHINE))
#: Sequences in the batch of one replica, and tokens in a sequence.
ROWS, TOKENS = 8, 64
#: Tokens that one step trains upon, all replicas together.
TOKENS_PER_STEP = ROWS * TOKENS * SIZES["dp"]


def topology() -> str:
    """The sizes as a job announces them: `tp=2,dp=2,pp=2`."""
    return ",".join(f"{dim}={size}" for dim, size in SIZES.items())


def machine(rank: int) -> str:
    """The machine a rank runs on."""
    return MACHINES[rank // RANKS_PER_MACHINE]
