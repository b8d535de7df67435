"""What may be tuned in a diagnosis, with the reason of each default."""

from dataclasses import dataclass


@dataclass(frozen=True, slots=True)
class LevelSettings:
    """How much each level tests and how long it may take; times are in seconds unless the name says otherwise."""

    #: A process that imports torch from cold storage, on a machine that is otherwise at work.
    start_s: float = 60.0
    #: L0: some seconds; NVML that blocks is waited for twice, for only the second silence convicts.
    passive_s: float = 75.0
    #: NVML starts within a second on a machine in order, and takes seconds a GPU without persistence mode.
    passive_nvml_s: float = 30.0
    #: Between the two looks at what may heal by itself: a link that is trained anew is up again within a second.
    passive_apart_s: float = 2.0
    #: L1: seconds on an H100 as far as is known, and some on a CPU; the rest is for a slow file system.
    device_s: float = 120.0
    #: DCGM's levels 1 and 2 take half a minute and two; level 3 takes 15 minutes and must be asked for.
    dcgm_s: float = 180.0
    dcgm_level: int = 2
    #: L2: a communicator for each pair of devices, one after the other where they share a device.
    inside_s: float = 120.0
    #: L3: as long as NVCRE gives one job of nccl-tests, some of it for members that start late.
    between_s: float = 240.0
    #: L4: a step of a small model, repeated.
    alignment_s: float = 120.0
    #: L5: the job's own command; what it needs to start and to fail only its owner knows.
    replay_s: float = 600.0
    #: Steps of each model where a server has the small GPT replayed: the first loads kernels and opens connections.
    replay_steps: int = 8

    #: Share of an accelerator's free memory that patterns are written to, and bytes on a CPU, where others live too.
    memory_share: float = 0.8
    memory_bytes: int = 256 << 20
    memory_passes: int = 1
    #: Edge of the products: on an accelerator large enough to fill it (diagnostics of the field take 8,192 and more).
    gemm_size: int = 8192
    gemm_size_cpu: int = 512
    #: A fault that shows in one product of five is met by 21 with 99 %: 1 - 0.8 ** 21.
    gemm_repetitions: int = 21
    #: Products whose time is taken.
    speed_repetitions: int = 50
    #: A device this much slower than its like is convicted: SuperBench takes 5 % of the baseline.
    speed_drop: float = 0.05
    #: The same where processes stand for devices: they share caches and cores with whatever else runs.
    speed_drop_cpu: float = 0.15
    #: Rate in TFLOP/s below which a device fails whatever the others do; 0: none is known.
    speed_floor_tflops: float = 0.0
    #: Steps of each model: a fault that shows in one step of three is met by 11 with 99 %, and twice by 16.
    alignment_repetitions: int = 16
    #: Width of the model: on an accelerator enough to use its matrix units.
    alignment_width: int = 1024
    alignment_width_cpu: int = 64
    #: Bytes of one transfer: large enough that the time to begin it does not count (nccl-tests judges one large size).
    pair_bytes: int = 256 << 20
    pair_bytes_cpu: int = 4 << 20
    pair_repetitions: int = 10
    #: Rounds over all pairs: a pair is slow when it was so in each (convict on two, never on one).
    pair_passes: int = 2
    #: A pair this much slower than the median of the pairs is slow. Pairs of one machine need not be alike: two GPUs behind
    #: one PCIe switch reach twice what two on different sockets do.
    inside_drop: float = 0.6
    #: Rate in GB/s below which a pair fails whatever the others do; 0: none is known.
    inside_floor_gb_per_s: float = 0.0
    #: Links between machines should be alike. CHS and nccl-tests allow 10 %; TCP on shared links varies more.
    between_drop: float = 0.3
    between_floor_gb_per_s: float = 0.0
    #: Either, where processes stand for devices: at ten times the work that the cores can do, sound pairs were 40 % apart.
    pair_drop_cpu: float = 0.75


@dataclass(frozen=True, slots=True)
class RemoteTestSettings:
    """How the agent obeys a server that has its machine tested; every time is in seconds."""

    #: 0: it refuses to. No job runs while it does, and no test brings code, so that 1 is the default.
    diagnose: int = 1
    #: Without a server for so long a test is ended: one that is started anew is back within half a minute, and asks for it again.
    diagnose_abandon_s: float = 60.0
    #: No test takes longer, whatever a server says.
    diagnose_most_s: float = 3600.0
    #: Without accelerators, so many processes on the CPU stand for devices.
    diagnose_processes: int = 1
