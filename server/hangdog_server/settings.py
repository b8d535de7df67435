"""What an operator may set of the server, each with the reason of its default."""

from dataclasses import dataclass


@dataclass(frozen=True, slots=True)
class ServerSettings:
    """Times in seconds, sizes in bytes. A bound that is reached is an error that names it, never a silent cut."""

    #: Looks of one capture: a second one tells a stuck rank from one that was merely seen in that place; a third one, a
    #: job that stands still from one that was on its way a moment ago.
    rounds: int = 3
    #: A rank that gets on (evaluation, checkpoint, compilation) may hold the others up for so long before somebody looks, while
    #: its job's phases are not known: half of the ten minutes after which PyTorch's own watchdog ends a job.
    work_patience_s: float = 300.0
    #: A job that the server has seen for less has not shown all of its phases: some evaluate or export once a day.
    young_s: float = 86400.0
    #: Between looks: longer than one training step of most jobs, short beside the 20 s a verdict may take.
    interval_s: float = 2.0
    #: Light looks at a job that is slow, and the pause between them: ByteRobust (SOSP 2025) takes five, ten seconds apart.
    light_rounds: int = 5
    light_interval_s: float = 10.0
    #: Light looks before the first judgement: two show no more than one step.
    light_from: int = 3
    #: Light looks at a job whose steps came to take longer, at most, and the pause between them: a rank that takes a fifth longer
    #: is seen alone in one look of six: 24 looks name it in half of all cases, and 48 in nearly all. With the 75 s in which the
    #: rise is told that is within three minutes.
    slow_rounds: int = 48
    slow_interval_s: float = 2.2
    #: A job that was slower opens no second incident so soon: the looks take some seconds of a core of each machine. 0: none is opened.
    slow_again_s: float = 3600.0
    #: Ranks read natively for one incident, and on one machine: each is stopped for half a second. 0: none.
    native_ranks: int = 32
    native_each: int = 2
    #: Waited for native stacks: an agent reads two in 3 s as a rule, and a verdict is due 20 s after the suspicion.
    native_s: float = 8.0
    #: Waited for an answer beyond the planned looks: py-spy gives up on a process after some 10 s, then /proc is read.
    patience_s: float = 20.0
    #: An agent that lost its stream has this long to come back before it counts as lost.
    rejoin_s: float = 3.0
    #: Between two signs of life of an agent; a dead one is noticed within 2.5 of them.
    heartbeat_s: float = 5.0
    #: Signs of life of all agents together, a second: each takes a fifth of a millisecond of a core, so that is a tenth of
    #: one. In a cluster of more than `heartbeat_s` times as many machines they are further apart, and a silent agent is
    #: noticed the later; but never further than `heartbeat_most_s`. A machine without power is noticed as soon as ever.
    beats_per_s: float = 500.0
    heartbeat_most_s: float = 30.0
    #: A machine that left is remembered this long as part of its job: people come to a hang hours late.
    forget_s: float = 6 * 3600.0
    #: Asked what a digest in its look stands for, an agent answers within a round trip; after so long another one that
    #: named it is asked.
    ask_again_s: float = 2.0
    #: A look waits so long for what its digests stand for, then it goes on without; well below `patience_s`, so that the
    #: reason is that and not silence.
    hold_s: float = 8.0
    #: Looks that agents took while no server was there are judged once all came, or no other one came for so long: agents
    #: come back within half a minute and hand over one look a second.
    returned_s: float = 60.0
    #: The crash of a job is judged once no other of its machines told of one for so long: agents tell within seven seconds of the
    #: first end, and whoever loses a connection ends within a second or two. A later one has it judged anew.
    crash_s: float = 5.0
    #: What checks find that does not convict a machine opens an incident where it strikes twice within so long: ByteRobust's
    #: window for alerts that may heal by themselves.
    check_window_s: float = 300.0
    #: What checks find is told in an incident after so long: a job that dies of it tells its crash within seven seconds, whose
    #: verdict weighs the same, and the kernel log and NVML find one fault within ten.
    check_settle_s: float = 10.0
    #: The same kind of finding opens no second incident of a machine so soon: an event stands for an hour.
    check_again_s: float = 3600.0
    #: An incident that a server's end cut short is looked at anew if it began this lately: later it would be another
    #: moment of the job, and what had come is judged as it is.
    resumed_s: float = 600.0
    #: Of several servers beside one database one leads a job, and another one takes it over when so long nothing was heard
    #: of the first: longer than a database takes to fail over, short beside what a standstill costs.
    lease_s: float = 15.0
    #: A job whose last agents fell silent is known until then; when they are away for longer than the half a minute in which
    #: agents come back, nobody says that what is there afterwards is the same.
    away_s: float = 60.0
    #: A job that begins again so soon after its end is its restart, and what lies between is lost: ByteRobust's longest
    #: unproductive time was 50 minutes, and what comes hours later may be another experiment of that name.
    restart_s: float = 3600.0
    #: Standstills of one job that began so near to each other, as several machines saw them, are one: a job that is killed
    #: by its own watchdog and started anew stands still again after ten minutes at the earliest.
    near_s: float = 120.0
    #: One step of the store takes no longer, or is taken back and fails: storing the looks of 16,384 machines takes some
    #: seconds on a slow disk, and nobody should wait for a database that hangs.
    store_s: float = 20.0
    #: An incident and its verdict are kept for a year: a machine that fails again and again shows only over months.
    #: 0: for ever.
    keep_s: float = 365 * 86400.0
    #: Its raw captures, nearly all that is stored, for a month: they are for judging it again, and for the post-mortem.
    keep_captures_s: float = 30 * 86400.0
    #: Captures and verdicts together: a hundred incidents of 16,384 ranks, on a disk that any machine has. 0: no bound.
    keep_bytes: int = 10 << 30
    #: Between two looks at what is too old or too much.
    prune_s: float = 600.0
    #: Graceful end: running answers get this long.
    grace_s: float = 2.0
    #: Largest message; the capture of a machine's 16 ranks with native stacks is well below 1 MiB.
    max_message_bytes: int = 16 << 20
    #: Machines connected at once; the largest published jobs have some 12,500 machines of 8.
    max_machines: int = 16384
    #: Jobs on one machine; more than 64 trainings do not share 16 GPUs.
    max_jobs: int = 64
    #: Incidents running at once; each holds one capture of its whole job in memory.
    max_running: int = 16
    #: Looks somebody may ask for, and the longest pause between them: together an hour, then it is profiling.
    max_rounds: int = 60
    max_interval_s: float = 60.0
    #: Incidents in one list when nobody says how many, and at most.
    listed: int = 50
    max_listed: int = 1000
    #: A silent stream has this long to say who it is.
    hello_s: float = 10.0
    #: Messages of one agent, at once and then a second: it says one or two a second while something is wrong, and some
    #: hundred at once when it answers an order with all that libraries counted.
    burst_messages: int = 1000
    messages_per_s: int = 50
    #: Bytes of one agent, as above: a machine's looks are some 100 KiB, its flight records some MiB.
    burst_bytes: int = 64 << 20
    bytes_per_s: int = 4 << 20
    #: Bytes that one agent may have kept of what it recorded by itself: a spool is 32 MiB, a disk is not endless.
    recorded_bytes_per_h: int = 256 << 20
    #: Snapshots one person asks for: each stops every trainer of a job for a moment. A script that watches asks once.
    snapshots_per_min: int = 60
    #: Streams on one connection over TLS, where each machine has its own: 100 is what HTTP/2 wants at the least.
    max_streams: int = 128
    #: Streams whose agents have not said who they are: all of a large cluster come back within half a minute.
    max_greeting: int = 16384
    #: Connections of people at once, on an address or a socket of their own: it takes a token there to be heard, but none to
    #: connect.
    max_people: int = 512
    #: Connections whose peers have not ended their handshake, in total and of one address (or of a user, on the socket):
    #: each costs about 1 KiB until it says something. All of a large cluster come back within half a minute.
    max_unproven: int = 8192
    max_unproven_each: int = 1024
    #: Handshakes under way at once: each costs up to 60 KiB, and some milliseconds of a core; others wait.
    max_handshakes: int = 192
    #: A connection on which nothing is asked is closed: an agent's always has its stream, a person's lasts no longer.
    idle_s: float = 300.0
    #: Bytes of a request's metadata: a token is 50, a proxy's headers some KiB.
    max_metadata_bytes: int = 16 << 10
    #: A campaign of diagnostics may take so long when nobody says, and at most: a job waits for it, but a rare fault takes hours.
    campaign_s: float = 600.0
    max_campaign_s: float = 6 * 3600.0
    #: Machines of one campaign: planning the next round for 1,024 takes up to 0.6 s.
    campaign_machines: int = 1024
    #: Campaigns running at once, each on machines of its own.
    max_campaigns: int = 16
    #: A machine whose agent is lost in the middle of its test has so long to come back, and goes on with it; an agent whose
    #: machine lives is back within some seconds.
    campaign_lost_s: float = 20.0
    #: A machine that was convicted stays more suspicious than others: a GPU that passes everything after a restart fails
    #: again about a month later (AEGIS). 0: never.
    probation_s: float = 35 * 86400.0
