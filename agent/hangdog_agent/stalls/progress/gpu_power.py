"""GPUs that are busy at a quarter of their power: their kernels spin in a wait, and compute nothing."""

from collections.abc import Mapping

from hangdog_agent.stalls.progress.progress_signal import ProgressSignal, SignalKind
from hangdog_agent.stalls.settings import StallSettings

#: Shorter than this it may be one long collective, or a slow batch: two sweeps of NVML. Seconds.
_LEAST_S = 20.0


class Power:
    """The progress signal of a machine's GPUs. `look` takes the last sweep of NVML; nothing here asks NVML."""

    def __init__(self, settings: StallSettings) -> None:
        self._settings = settings
        self._signal: ProgressSignal | None = None

    def look(self, power: Mapping[str, tuple[float, float]], now: float) -> list[ProgressSignal]:
        """`power`: by GPU its power as a share of its limit, and how busy it is, 0 to 1; GPUs without an answer are absent.

        It advances while a GPU computes; one that is busy at less power spins, and one that is idle waits. If none
        has computed yet, there is no signal.
        """
        bound = self._settings.spin_share
        if not bound or not power:
            return []
        computes = any(busy > 0 and share >= bound for share, busy in power.values())
        if computes and self._signal is None:
            self._signal = ProgressSignal(SignalKind.POWER, _LEAST_S)
        if self._signal is None:
            return []
        self._signal.look(computes, now)
        return [self._signal]
