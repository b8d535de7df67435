"""What one signal says: its rhythm, its stalls, and what it proves; of lines, bytes and power."""

import pytest

from hangdog_agent.stalls.progress.gpu_power import Power
from hangdog_agent.stalls.progress.network_bytes import Meter, total
from hangdog_agent.stalls.progress.progress_signal import LEAST, ProgressSignal, SignalKind
from hangdog_agent.stalls.settings import StallSettings

SETTINGS = StallSettings()


def seen(every: int, until: int, authoritative: bool = True) -> ProgressSignal:
    """One that is looked at every second from 0 on and advances every so many seconds."""
    signal = ProgressSignal(SignalKind.HEARTBEAT, 3.0, authoritative)
    for second in range(until + 1):
        signal.look(second > 0 and second % every == 0, float(second))
    return signal


def test_a_stall_is_longer_than_its_own_usual_intervals() -> None:
    signal = seen(every=8, until=40)
    for second in range(41, 50):
        signal.look(False, float(second))
        assert signal.stalled_since is None
    signal.look(False, 50.0)
    assert signal.stalled_since == 40.0
    signal.look(True, 51.0)
    assert signal.stalled_since is None


def test_nothing_is_known_of_a_time_nobody_looked() -> None:
    signal = seen(every=1, until=10)
    assert signal.stalled_since is None  # whatever the time is now
    signal.look(False, 13.0)
    assert signal.stalled_since == 10.0


def test_before_it_has_a_rhythm_it_neither_stalls_nor_speaks() -> None:
    signal = seen(every=1, until=LEAST - 1)
    assert not signal.contradicts(0.0)
    signal.look(False, 100.0)
    assert signal.stalled_since is None


def test_an_advance_speaks_only_of_the_time_between_two_looks() -> None:
    signal = ProgressSignal(SignalKind.COLLECTIVES, 30.0, authoritative=True)
    for second in range(0, 300, 30):
        signal.look(True, float(second))
    assert signal.proof_at == 240.0
    assert signal.contradicts(240.0)
    assert not signal.contradicts(241.0)  # what it counted may have been before
    assert not seen(every=1, until=20, authoritative=False).contradicts(0.0)


def test_an_advance_lies_between_two_looks_whatever_the_clock_of_its_file_says() -> None:
    for age_s, at in ((0.4, 1.6), (0.0, 2.0), (3600.0, 1.0), (-3600.0, 2.0)):
        signal = ProgressSignal(SignalKind.LINES, 3.0, authoritative=True)
        signal.look(False, 1.0)
        signal.look(True, 2.0, age_s=age_s)
        assert (signal.advanced_at, signal.proof_at) == (at, 1.0), (
            "the proof is the look before, which no clock can move"
        )


def test_a_stall_that_was_explained_is_borne_next_time() -> None:
    signal = seen(every=1, until=10)
    signal.look(False, 30.0)
    signal.mark_benign(30.0)
    assert signal.stalled_since is None
    signal.look(False, 54.0)
    assert signal.stalled_since is None
    signal.look(False, 56.0)
    assert signal.stalled_since == 30.0


def test_bytes_below_the_noise_are_none() -> None:
    meter = Meter(SETTINGS)
    at = 0.0
    for _ in range(20):
        at += 5.0
        meter.take(5_000_000_000, 5.0, at)
    for _ in range(100):  # the noise is not learned while it stands still
        at += 5.0
        meter.take(5 * 20_000_000, 5.0, at)
    assert meter.signal.stalled_since == 100.0
    meter.take(5_000_000_000, 5.0, at + 5.0)
    assert meter.signal.stalled_since is None


def test_a_network_that_only_murmurs_is_no_witness() -> None:
    meter = Meter(SETTINGS)
    for number in range(100):
        meter.take(100_000 if number < 50 else 0, 5.0, 5.0 * number)
    assert meter.signal.stalled_since is None


def test_interfaces_are_added_up() -> None:
    table = (
        "Inter-|   Receive                                                |  Transmit\n"
        " face |bytes    packets errs drop fifo frame compressed multicast|bytes    packets errs drop fifo colls carrier\n"
        "    lo: 1000 1 0 0 0 0 0 0 1000 1 0 0 0 0 0 0\n"
        "  eth0:5000 1 0 0 0 0 0 0 300 1 0 0 0 0 0 0\n"
    )
    assert total(table) == 7300
    assert total(2) is None  # ENOENT: the process is gone
    assert total("eth0: strange\n") is None
    assert total("") is None


def test_gpus_that_spin_or_idle_have_stalled() -> None:
    power = Power(SETTINGS)
    assert power.look({"0000:1b:00": (0.1, 0.0)}, 0.0) == []  # nobody has computed yet
    for second in range(1, 31):
        (signal,) = power.look({"0000:1b:00": (0.8, 1.0), "0000:1c:00": (0.2, 1.0)}, float(second))
    for second in range(31, 49):
        power.look({"0000:1b:00": (0.2, 1.0), "0000:1c:00": (0.1, 0.0)}, float(second))
        assert not signal.advancing
        assert signal.stalled_since is None
    power.look({}, 60.0)  # NVML does not answer
    assert signal.stalled_since is None
    power.look({"0000:1b:00": (0.2, 1.0)}, 61.0)
    assert signal.stalled_since == 30.0


def test_one_sweep_that_met_a_load_as_it_began_is_no_stall() -> None:
    """NVML's power lags behind its utilisation: a sweep within the second in which a GPU begins calls it busy at little power."""
    power = Power(SETTINGS)
    sweeps = [0.99, 0.99, 0.15, 0.99, 0.99, 0.15, 0.99]
    for second in range(10 * len(sweeps)):  # each sweep's answer stands until the next one
        (signal,) = power.look({"0000:00:06": (sweeps[second // 10], 1.0)}, float(second))
        assert signal.stalled_since is None


@pytest.mark.parametrize("readings", [{}, {"0000:1b:00": (0.9, 1.0)}])
def test_power_is_not_looked_at_where_it_is_turned_off(readings: dict[str, tuple[float, float]]) -> None:
    assert Power(StallSettings(spin_share=0.0)).look(readings, 1.0) == []
