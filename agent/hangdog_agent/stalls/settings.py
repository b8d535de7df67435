"""What may be tuned in watching for stalls, with the reason of each default."""

from dataclasses import dataclass

from hangdog_models.planning.slowdown import SlowdownSettings


@dataclass(frozen=True, slots=True)
class StallSettings:
    """When the agent suspects a standstill; every time is in seconds."""

    #: Between two readings of the trainers' pulse, 20 µs each.
    beat_s: float = 1.0
    #: A rank has a rhythm after so long of alternating work and waits: imports and joining are no such thing.
    settle_s: float = 10.0
    #: A pulse that stops for so long, or for longer than usual, makes wonder: stacks are glanced at, nobody is told.
    suspicious_s: float = 3.0
    #: A rank that stands still for so long is overdue.
    patience_s: float = 5.0
    #: One that waits for somebody outside of the job, a server or a file: it is woken once in many seconds where buffers are
    #: large, and services have bad moments.
    outside_s: float = 60.0
    #: So many times the longest standstill it survived at that place, when that is longer.
    factor: float = 3.0
    #: Before a rank has a rhythm: ten thousand ranks take minutes to join each other.
    start_s: float = 300.0

    #: Between two readings of the trainers' logs, a millisecond for eight of them; 0 reads none.
    log_every_s: float = 1.0
    #: Read of one log at a time, its newest: some tens of lines.
    log_bytes: int = 8192
    #: Between two looks at heartbeat files; 0 looks at none.
    touch_every_s: float = 1.0
    #: Between two readings of the counts in rings of the NCCL profiler plug-in, 0.1 ms each; 0 reads none.
    ring_every_s: float = 1.0
    #: Between two questions to NCCL RAS, each of which goes once around all processes; 0 never asks.
    ras_every_s: float = 30.0
    #: Between two readings of the bytes moved: some drivers ask the card's firmware for each counter; 0 reads none.
    traffic_every_s: float = 5.0
    #: Bytes a second, and share of the usual rate, below which traffic is background noise: a fabric has managers and monitors.
    traffic_least: int = 262144
    traffic_share: float = 0.05
    #: Share of its power limit below which a busy GPU spins in a wait: idle is a sixth, training two thirds. 0: not looked at.
    spin_share: float = 0.25
    #: A rank with a lively pulse whose standstill is not sure is borne for so long: it may evaluate, or compute at one place.
    loop_s: float = 60.0

    #: Steps that take so much longer than they used to make a slowdown, in which a machine is sought; 0: none is told. Less is in
    #: the noise of most jobs, and costs less than looking for it.
    slow_share: float = 0.1
    #: Steps are timed over so long, or over one: the moment of each end is known to a second, from readings of the logs.
    slow_sample_s: float = 8.0
    #: Of training, before it is known how long a step usually takes: caches fill, and kernels are compiled and chosen.
    slow_settle_s: float = 300.0
    #: What is usual is what the last half an hour was like, and a slowdown that lasts for so long is the job's new pace.
    slow_usual_s: float = 1800.0
    #: A sound job whose steps vary by chance alone is told to be slow once in so many hours: then it is looked at lightly for
    #: nothing, which costs seconds of a core.
    slow_alarm_h: float = 1000.0

    @property
    def slowdown(self) -> SlowdownSettings:
        return SlowdownSettings(
            self.slow_share, self.slow_sample_s, self.slow_settle_s, self.slow_usual_s, self.slow_alarm_h
        )
