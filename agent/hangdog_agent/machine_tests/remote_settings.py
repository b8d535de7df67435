"""What may be tuned in tests that a server orders, with the reason of each default."""

from dataclasses import dataclass


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
