"""What it means that a machine's agent is not connected: evidence against the machine, or a matter of the server's own line.

Pure; `now` and all moments are in seconds on one steady clock.
"""

from collections.abc import Iterable
from dataclasses import dataclass

from hangdog_models.stack import Missing, Reason

#: Streams that break within so long of each other broke together: keepalive notices a dead peer after 5 to 15 s.
TOGETHER_S = 20.0
#: Agents come back within half a minute of the server's own return; one that does not, though most did, is gone by itself.
BACK_S = 60.0


@dataclass(frozen=True, slots=True)
class Disconnect:
    """A machine's stream ended at `at`, after `silent_s` without a word; `goodbye`: its agent said that it would.

    `pace_s` is how far apart its signs of life were to be; 0: as those of others.
    """

    machine: str
    at: float
    silent_s: float
    goodbye: bool = False
    back: bool = False
    pace_s: float = 0.0


def meaning(
    disconnect: Disconnect | None, others: Iterable[Disconnect], connected: int, heartbeat_s: float, now: float
) -> Missing:
    """Why the ranks of a machine are missing, whose agent is not connected; the words go on after "the agent of M".

    `others` are the partings of other machines, those that are `back` too; `connected` counts the machines connected now.
    Who said goodbye, and who was lost together with most others, is only not captured, which says nothing of the machine.
    """
    if disconnect is None:
        return Missing(Reason.NO_AGENT, "is not connected")
    if disconnect.back:
        return Missing(Reason.NO_EVIDENCE, "came back too late to be asked")
    ago = _ago(now - disconnect.at)
    if disconnect.goodbye:
        return Missing(Reason.NO_EVIDENCE, f"was stopped in order {ago}, which is no evidence against the machine")
    lost = [other for other in others if not other.goodbye]
    together = [other for other in lost if abs(other.at - disconnect.at) <= TOGETHER_S]
    back = sum(other.back for other in together)
    later = sum(other.at > disconnect.at + TOGETHER_S and not other.back for other in lost)
    if together and 2 * (1 + len(together)) > 1 + len(together) - back + connected + later:
        with_it = f"was lost together with {len(together)} of the others {ago}"
        if now - disconnect.at < BACK_S or 2 * back <= len(together):
            return Missing(Reason.NO_EVIDENCE, f"{with_it}: the server's line rather than the machine")
        return Missing(Reason.NO_AGENT, f"{with_it}, and {back} of them are back")
    if disconnect.silent_s > 2 * (disconnect.pace_s or heartbeat_s):
        last = _ago(now - disconnect.at + disconnect.silent_s)
        return Missing(Reason.NO_AGENT, f"is not connected: it fell silent {last} and was given up {ago}")
    return Missing(Reason.NO_AGENT, f"is not connected: its stream broke {ago}")


def _ago(seconds: float) -> str:
    return f"{seconds:.0f} s ago" if seconds < 600 else f"{seconds / 60:.0f} min ago"
