"""What may be tuned in watching for stalls, with the reason of each default."""

from dataclasses import dataclass

from hangdog_models.planning.slowdown import SlowdownSettings


@dataclass(frozen=True, slots=True)
class StallSettings:
    """When the agent suspects a stall; every time is in seconds."""

    #: Between two readings of the trainers' CPU activity, 20 µs each.
    beat_s: float = 1.0
    #: While every rank of every job here makes progress, CPU activity and logs are read only every so many beats. A rank that
    #: rests for one reading is read every beat again: a stall is seen two seconds later at most, for half the cost.
    calm_beats: int = 3
    #: A rank has a baseline after so long of alternating work and waits: imports and joining are neither.
    settle_s: float = 10.0
    #: CPU activity that stops for so long, or for longer than usual, is suspicious: stacks are sampled, nothing is reported.
    suspicious_s: float = 3.0
    #: A rank that is stalled for so long is overdue.
    patience_s: float = 5.0
    #: One that waits for something outside of the job, a server or a file: with large buffers it is woken once in many
    #: seconds, and services have bad moments.
    outside_s: float = 60.0
    #: So many times the longest stall that it survived at that call site, if that is longer.
    factor: float = 3.0
    #: Before a rank has a baseline: ten thousand ranks take minutes to join each other.
    start_s: float = 300.0

    #: Between two readings of the trainers' logs, a millisecond for eight of them; 0 reads none.
    log_every_s: float = 1.0
    #: Read of one log at a time, its newest: some tens of lines.
    log_bytes: int = 8192
    #: Between two looks at heartbeat files; 0 looks at none.
    touch_every_s: float = 1.0
    #: Between two readings of the counts in rings of the NCCL profiler plug-in, 0.1 ms each; 0 reads none.
    ring_every_s: float = 1.0
    #: Between two times that such a reading tells of all communicators and not only of the busiest, half as long while a trainer
    #: rests: of 64 communicators in each of eight trainers it takes some milliseconds; 0: never.
    communicators_every_s: float = 10.0
    #: Between two readings of what NCCL Inspector writes for trainers, and bytes of it at a time, its newest: some tens of
    #: operations; 0 reads none.
    inspector_every_s: float = 1.0
    inspector_bytes: int = 16384
    #: Between two questions to NCCL RAS, each of which goes once around all processes; 0 never asks.
    ras_every_s: float = 30.0
    #: Between two readings of the bytes moved: some drivers ask the card's firmware for each counter; 0 reads none.
    traffic_every_s: float = 5.0
    #: Bytes a second, and share of the usual rate, below which traffic is background noise: a fabric has managers and monitors.
    traffic_least: int = 262144
    traffic_share: float = 0.05
    #: Share of its power limit below which a busy GPU spins in a wait: idle is a sixth, training two thirds. 0: not looked at.
    spin_share: float = 0.25
    #: An active rank whose stall is not sure is tolerated for so long: it may evaluate, or compute at one call site.
    loop_s: float = 60.0

    #: Steps that take so much longer than they used to are a slowdown, and the slow machine is looked for; 0: never. Less is
    #: noise in most jobs, and costs less than the search.
    slow_share: float = 0.1
    #: Steps are timed over so long, or over one: the moment of each end is that of the last line of the log,
    #: and known to a second or two where its file server has another time.
    slow_sample_s: float = 8.0
    #: Of training, before it is known how long a step usually takes: caches fill, and kernels are compiled and chosen.
    slow_settle_s: float = 300.0
    #: What is usual is what the last half an hour was like, and a slowdown that lasts for so long is the job's new pace.
    slow_usual_s: float = 1800.0
    #: A healthy job whose steps vary by chance is reported as slow once in so many hours. The needless light samples cost
    #: seconds of a core.
    slow_alarm_h: float = 1000.0

    @property
    def slowdown(self) -> SlowdownSettings:
        return SlowdownSettings(
            self.slow_share, self.slow_sample_s, self.slow_settle_s, self.slow_usual_s, self.slow_alarm_h
        )
