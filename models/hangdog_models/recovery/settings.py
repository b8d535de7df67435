"""How far the ladder goes by itself, with the reason of each default."""

from dataclasses import dataclass


@dataclass(frozen=True, slots=True)
class LadderSettings:
    """Counts are of one episode: from the first trouble until the job has trained for `steady_s`. Times in seconds."""

    #: Evictions by verdict. The first may be wrong; a second one that names another machine is new evidence; a third says
    #: that the verdicts are what is wrong. (ByteRobust tests after one: its verdicts name whole groups.)
    evictions: int = 2
    #: Evictions of what tests convicted: a test is better evidence than a verdict, and there may be two faults.
    convictions: int = 3
    #: Machines in one eviction: as many as one verdict may evict by default.
    machines: int = 8
    #: Rounds of stop-time tests: one, and another when the job fails again after what the first one convicted is gone.
    diagnoses: int = 2
    #: "Nothing found by any test: assume that it was transient" (ByteRobust: 23 % of incidents end so). Twice is no transient.
    reattempts: int = 1
    #: Restarts while a service does not answer: automatic chains of a 504-GPU cluster had 6 attempts on average.
    service_reattempts: int = 5
    #: Pause before each of those, the median of the same chains: 11 minutes, of which one goes into the restart.
    service_wait_s: float = 600.0
    #: The change that was merged last is rolled back once: what is left then is not due to it.
    rollbacks: int = 1
    #: Dual-phase replay: the last resort, half an hour to two (ByteRobust: 1 % of incidents).
    replays: int = 1
    #: Steps within 24 hours before a person is called whatever happens. Llama 3's 16,384 GPUs had 9 interruptions a day.
    a_day: int = 20
    #: Training for so long ends an episode: NCCL's watchdog, the slowest way in which a hang shows, has 30 minutes.
    steady_s: float = 1800.0
    #: Changes wait so long for a failure to be merged with (ByteRobust's window): then the job is stopped for them.
    window_s: float = 86400.0
