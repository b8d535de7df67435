"""What may be tuned in captures, with the reason of each default."""

import os
from dataclasses import dataclass


@dataclass(frozen=True, slots=True)
class CaptureSettings:
    """Bounds of one look at the processes of a job on this machine; every time is in seconds."""

    #: A nonblocking py-spy takes 10 to 100 ms; twenty times that is a tool that hangs.
    nonblocking_s: float = 2.0
    #: A blocking one stops the trainer while it lasts, so its deadline bounds the freeze too.
    blocking_s: float = 5.0
    #: Nonblocking reads race with a running target: 31 of 40 succeed at once under heavy thread churn, nearly all after two more.
    retries: int = 2
    #: The whole look; below the 20 s that a server waits for an answer, so that a slow one still arrives.
    look_s: float = 15.0
    #: A rank's stacks are some 7 KiB of JSON, 274 KiB were the most seen.
    stdout_bytes: int = 8 << 20
    #: Processes read at the same time; None chooses by the cores. A py-spy takes 8 MiB.
    workers: int | None = None
    #: Children looked at of one rank: data loader and compile workers number in the tens.
    children: int = 128
    #: Trainers that one order may have read natively, one after the other; 0 turns it off. Each py-spy takes up to 335 MiB then.
    native: int = 2
    #: A native py-spy holds the trainer while it reads its libraries' symbols: 0.5 s as a rule with libtorch, 0.8 s at most.
    native_s: float = 5.0
    #: The same process is not held again so soon: of a standstill a second native stack tells nothing new.
    native_again_s: float = 60.0
    #: Switches of what is asked of trainers, 0 turns it off: stacks at all; PyTorch's flight recorder by its worker server's
    #: socket, and by its FIFO and dump; NCCL's RAS; the ring of hangdog's NCCL profiler plug-in; what NCCL Inspector writes; the logs of Ray's workers; the configuration files that command lines name. Native stacks, logs and heartbeats have
    #: settings of their own: native, log_every_s, touch_every_s.
    stacks: int = 1
    recorder_socket: int = 1
    recorder_pipe: int = 1
    ras: int = 1
    profiler_ring: int = 1
    inspector: int = 1
    ray_logs: int = 1
    config_files: int = 1
    #: 1 keeps CAP_SYS_ADMIN, where the agent has it: RAS listens on loopback, in a container on that of its own network.
    ras_networks: int = 0

    def pool(self) -> int:
        """How many processes are read at the same time: twice the cores of this machine, at least 4, at most 32."""
        return self.workers or min(32, max(4, 2 * len(os.sched_getaffinity(0))))
