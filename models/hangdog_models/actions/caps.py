"""How far hangdog may go by itself, and the bounds of every act, whoever asks for it."""

import sys
from enum import StrEnum
from typing import Annotated

from msgspec import Meta, Struct

#: Kinds of bounds; a number of seconds is finite.
Count = Annotated[int, Meta(ge=0)]
Share = Annotated[float, Meta(ge=0, le=1)]
Seconds = Annotated[float, Meta(ge=0, le=sys.float_info.max)]


class Mode(StrEnum):
    """What follows from a verdict that names machines to evict."""

    OBSERVE = "observe"  # nothing
    DRY_RUN = "dry-run"  # what would be done is worked out, bounded and recorded, and nothing is touched
    APPROVE = "approve"  # it waits until a person approves of it
    AUTO = "auto"  # it is done at once


class Caps(Struct, frozen=True, forbid_unknown_fields=True):
    """The bounds of all actions. A set of machines that does not fit is not taken at all."""

    #: Machines taken within an hour, by all verdicts together: one verdict at its largest (8), and not a second one.
    per_hour: Count = 8
    #: Machines taken for one job within a day: of 1,024 machines that fail at Llama 3's rate (0.38 % a day) 9 fail in
    #: 99 of 100 days.
    per_job: Count = 9
    #: Machines taken within a day for all jobs of one user: twice `per_job`, for a user has more than one job. Whoever may run
    #: a process may give it any job's name, but not another user's id. Where one account runs all jobs, raise it.
    per_user: Count = 18
    #: Machines of one switch or rack that are out at once: more of them speak against the switch, and then for no
    #: machine behind it.
    per_domain: Count = 2
    #: Share of all machines that may be out at once, one machine at least: EKS and Karpenter stop at a fifth; what is
    #: evicted for a hang is a small part of what fails.
    share: Share = 0.1
    #: Machines without a job that are left once each machine taken has got its replacement. A job that cannot start again
    #: is worse off than one that hangs on a machine somebody may repair.
    spares: Count = 0
    #: A machine without a job is a spare only where it passed a test of a campaign, and failed none, within so many
    #: seconds; 0: untested ones are, too. ByteRobust's warm standbys pass its self-check before they count.
    tested_s: Seconds = 0.0
    #: Evidence is believed so long (seconds): long enough for a person to be woken, too short for a repair.
    evidence_s: Seconds = 1800.0
    #: A machine that was taken within so many seconds is not taken again: what brings it back does not mend it, and
    #: that is for people to see (NVSentinel: more than one remediation in 7 days).
    again_s: Seconds = 7 * 86400.0
    #: The breaker trips when verdicts ask for more than this share of all machines (and for three at least) within five
    #: minutes: then the diagnosis, the network or the power is at fault. EKS' and Karpenter's bound.
    breaker_share: Share = 0.2
    #: It also trips when so many acts in a row failed for good: whoever carries them out is not what we think.
    breaker_failures: Count = 3
