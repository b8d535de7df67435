"""Who gives way when a port is full, and who still gets in."""

from collections.abc import Callable
from dataclasses import replace

from hypothesis import given
from hypothesis import strategies as st

from hangdog_server.ports.admission import SLOW_S, Admission, AdmissionLimits, ConnectionState, Ticket, key

FEW = AdmissionLimits(served=4, served_each=3, unserved=6, unserved_each=4, slots=2, patience_s=10.0)


class Port:
    """A port whose connections are letters; what became of each is told."""

    def __init__(self, bounds: AdmissionLimits = FEW) -> None:
        self.admission = Admission(bounds)
        self.went: list[str] = []
        self.dropped: list[str] = []
        self.of: dict[str, Ticket] = {}

    def enter(self, name: str, address: str, now: float = 0.0) -> None:
        def note(into: list[str]) -> Callable[[], None]:
            return lambda: into.append(name)

        self.of[name] = self.admission.enter(address, note(self.went), note(self.dropped), now)

    def speak(self, *names: str, now: float = 0.0) -> None:
        for name in names:
            self.admission.speak(self.of[name], now)

    def serve(self, name: str, now: float = 0.0) -> bool:
        return self.admission.serve(self.of[name], now)


def test_of_one_address_the_oldest_silent_connection_gives_way() -> None:
    port = Port()
    for name in "abcd":
        port.enter(name, "10.0.0.1")
    port.speak("a")
    port.enter("e", "10.0.0.1")
    assert port.dropped == ["b"], "a said something"
    port.enter("f", "10.0.0.2")
    assert port.dropped == ["b"]


def test_when_the_port_is_full_the_address_with_most_gives_way() -> None:
    port = Port()
    for name, address in zip("abcdef", "122113", strict=True):
        port.enter(name, address)
    port.enter("g", "4")
    assert port.dropped == ["a"], "of 1, which has three"
    assert port.admission.count(ConnectionState.SILENT) == 6


def test_slots_are_few_and_taken_from_the_greedy_and_the_slow() -> None:
    port = Port()
    for name, address in zip("abcd", "1112", strict=True):
        port.enter(name, address)
    port.speak("a", "b", "c")
    assert port.went == ["a", "b"]
    port.speak("d")
    assert port.went == ["a", "b", "d"] and port.dropped == ["a"], "1 had two of two slots, 2 had none"
    port.admission.tick(SLOW_S)
    assert port.went == ["a", "b", "d", "c"] and port.dropped == ["a", "b"], "c waited, and b was slow"


def test_whoever_comes_last_and_whoever_waits_longest_go_by_turns() -> None:
    port = Port(replace(FEW, slots=1, unserved=99))
    for name, address in zip("abcde", "12345", strict=True):
        port.enter(name, address)
    port.speak(*"abcde")
    for name in "abecd":
        port.serve(name)
        port.admission.leave(port.of[name], 0.0)
    assert port.went == ["a", "b", "e", "c", "d"] and not port.dropped


def test_who_is_not_served_in_time_is_dropped_and_who_is_served_stays() -> None:
    port = Port()
    port.enter("a", "1")
    port.enter("b", "1", 1.0)
    port.speak("a", "b")
    assert port.serve("b")
    port.admission.tick(10.0)
    port.admission.tick(100.0)
    assert port.dropped == ["a"]


def test_served_connections_are_bounded_and_idle_ones_give_way() -> None:
    port = Port(replace(FEW, slots=9, unserved=99))
    for name, address in zip("abcdef", "111123", strict=True):
        port.enter(name, address)
    port.speak(*"abcdef")
    assert [port.serve(name) for name in "abcd"] == [True, True, True, False], "three of one address"
    assert port.serve("e") and not port.serve("f"), "four in all"
    port.admission.rest(port.of["b"], 0.0)
    port.enter("g", "4")
    port.speak("g")
    assert port.serve("g") and port.dropped == ["d", "f", "b"]


def test_addresses_are_counted_as_their_owners_have_them() -> None:
    assert key("10.0.0.1") == key("::ffff:10.0.0.1") == "10.0.0.1"
    assert key("2001:db8::1") == key("2001:db8::ffff:1") != key("2001:db8:0:1::1")
    assert key("fe80::1%eth0") == "fe80::/64" and key("uid 7") == "uid 7"


STEPS = st.lists(st.tuples(st.sampled_from(["enter", "speak", "serve", "rest", "leave", "tick"]), st.integers(0, 40)))


@given(STEPS)
def test_whatever_happens_no_bound_is_exceeded_and_everybody_is_counted_once(steps: list[tuple[str, int]]) -> None:
    port, now = Port(), 0.0
    for step, number in steps:
        now += 0.1
        name, admission = str(number), port.admission
        if step == "enter":
            if name not in port.of:
                port.enter(name, str(number % 3), now)
        elif step == "tick":
            admission.tick(now + number)
        elif (ticket := port.of.get(name)) is not None:
            if step == "speak":
                admission.speak(ticket, now)
            elif step == "serve" and ticket.state is ConnectionState.OPENING:
                admission.serve(ticket, now)
            elif step == "rest":
                admission.rest(ticket, now)
            elif step == "leave":
                admission.leave(ticket, now)
        states = [ticket.state for ticket in port.of.values()]
        assert all(
            admission.count(state) == states.count(state)
            for state in ConnectionState
            if state is not ConnectionState.GONE
        )
        assert admission.count(ConnectionState.SILENT, ConnectionState.READY, ConnectionState.OPENING) <= FEW.unserved
        assert admission.count(ConnectionState.OPENING) <= FEW.slots
        assert admission.count(ConnectionState.SERVED, ConnectionState.IDLE) <= FEW.served
        assert len(port.dropped) == len(set(port.dropped)), "dropped once"
