"""What may be tuned in the connection to the server, with the reason of each default."""

from dataclasses import dataclass


@dataclass(frozen=True, slots=True)
class LinkSettings:
    """How the agent keeps its line to the server; every time is in seconds."""

    #: Back-off before the first reconnection; the real pause is drawn evenly between 0 and the bound (full jitter).
    backoff_first_s: float = 0.5
    #: Largest bound: after a server's restart a whole cluster is back within half a minute, spread out.
    backoff_most_s: float = 30.0
    #: Between two looks at the process table; a scan of some hundred processes takes a few milliseconds.
    scan_s: float = 4.0
    #: While all trainers here make progress, a look only every so many times: to list thousands of processes takes
    #: 10 ms, and a new job whose ranks join each other is not suspected within minutes.
    calm_scans: int = 3
    #: Heartbeat until the server's Welcome names another.
    heartbeat_s: float = 5.0
    #: Most looks one order may ask for, whatever a server says.
    rounds: int = 100
    #: Longest pause between two looks of one order, whatever a server says.
    interval_s: float = 60.0
    #: Between two light looks, whatever servers ask for: a py-spy takes 40 ms of a core for each trainer.
    light_s: float = 2.0
    #: Orders waiting or running at once; a server has one incident at a time for each job.
    orders: int = 16
    #: A dead rank of a job with no living rank here is remembered this long.
    forget_s: float = 600.0
    #: A crash is told so long after its first rank ended, or soon after the last one: those that lose a connection to it end within
    #: a second or two, and launchers end the rest. 0: crashes are not told.
    crash_s: float = 6.0
    #: Wrong numbers are told so long after the first one: other ranks of the machine log theirs within a step. 0: they are not told.
    numbers_s: float = 4.0
    #: Between two writings of the metrics file: as often as Prometheus usually asks node_exporter.
    metrics_s: float = 15.0


@dataclass(frozen=True, slots=True)
class SpoolSettings:
    """What the agent does by itself while no server is there, and how much it keeps; times are in seconds, sizes in bytes."""

    #: So long no server must have been there: one that is restarted is back sooner, and takes the looks itself.
    away_s: float = 15.0
    #: Looks at one standstill and the pause between their starts: as many as a server takes, which knows why.
    away_rounds: int = 3
    away_interval_s: float = 2.0
    #: All that is kept. A look at 8 ranks is some 100 KiB, flight records of 8 ranks some MiB: that is tens of standstills.
    spool_bytes: int = 32 << 20
    #: Messages kept: one standstill is some ten of them.
    spool_looks: int = 256
    #: Between two messages to a server that is back, on average: thousands of agents come back with it.
    spool_pause_s: float = 1.0
    #: A server that has not said by then that it keeps a message is not asked again on this connection: it may be an old
    #: one that knows no such message.
    receipt_s: float = 60.0
