"""The simulator's engine on worlds of two ranks: who waits for whom, and what a hang leaves behind."""

from collections.abc import Callable
from math import inf

from accuracy.simulator.engine import LAUNCH_LIMIT, Engine
from accuracy.simulator.groups import Group
from accuracy.simulator.process import Process
from accuracy.simulator.program import Mode, Writer
from hangdog_models.ranks import Rank

Script = Callable[[Writer], None]


def world(*scripts: Script, gloo: bool = False, blocking: bool = False) -> Engine:
    """One rank a script, all of them in the groups `world` and `dp`; not run yet."""
    ranks = tuple(Rank(rank) for rank in range(len(scripts)))
    groups = {slot: Group(slot, slot, slot, ranks, {rank: rank for rank in ranks}) for slot in ("world", "dp", "pp")}
    made = []
    for rank, script in enumerate(scripts):
        writer = Writer(frozenset(groups))
        script(writer)
        made.append(Process(rank, writer.finished(), groups))
    return Engine(made, gloo=gloo, blocking=blocking)


def ends(engine: Engine) -> list[str]:
    engine.run()
    return [process.why for process in engine.processes]


def reduce(writer: Writer, size: int = 8, slot: str = "dp") -> None:
    writer.kernels(1, 0.001)
    writer.collective(slot, "all_reduce", size)


def reads(writer: Writer) -> None:
    reduce(writer)
    writer.read()


def nothing(writer: Writer) -> None:
    writer.host("idle", 1.0)


def test_host_runs_ahead_of_a_collective_and_waits_where_it_reads_back() -> None:
    def waits(writer: Writer) -> None:
        reduce(writer)
        writer.host("log", 0.1)
        writer.read()

    engine = world(waits, nothing)
    assert ends(engine) == ["device", "end"]
    assert engine.processes[0].ops[engine.processes[0].at].code.name == "READ"


def test_blocking_and_gloo_hosts_wait_in_the_collective_itself() -> None:
    for mode in ({"blocking": True}, {"gloo": True}):
        engine = world(reduce, nothing, **mode)
        assert ends(engine) == ["collective", "end"]


def test_a_collective_ends_for_all_when_the_last_one_has_arrived() -> None:
    def late(writer: Writer) -> None:
        writer.host("work", 5.0)
        reduce(writer)
        writer.read()

    def early(writer: Writer) -> None:
        reduce(writer)
        writer.read()

    engine = world(early, late)
    assert ends(engine) == ["end", "end"]
    assert engine.processes[0].clock == engine.processes[1].clock > 5.0


def test_another_size_never_completes() -> None:
    def other(writer: Writer) -> None:
        reduce(writer, size=9)
        writer.read()

    assert ends(world(reads, other)) == ["device", "device"]


def test_two_groups_in_crossed_order_are_a_deadlock() -> None:
    def way(*slots: str) -> Script:
        def script(writer: Writer) -> None:
            for slot in slots:
                reduce(writer, slot=slot)
            writer.read()

        return script

    assert ends(world(way("dp", "world"), way("dp", "world"))) == ["end", "end"]
    assert ends(world(way("dp", "world"), way("world", "dp"))) == ["device", "device"]


def test_a_full_launch_queue_stops_the_host_and_not_earlier() -> None:
    def launches(amount: int) -> Script:
        def script(writer: Writer) -> None:
            writer.collective("dp", "all_reduce", 8)
            for _ in range(amount):
                writer.kernels(1, 0.001)

        return script

    assert ends(world(launches(LAUNCH_LIMIT - 1), nothing)) == ["end", "end"]
    assert ends(world(launches(LAUNCH_LIMIT), nothing)) == ["launch", "end"]


def test_a_kernel_that_never_ends_holds_what_is_launched_after_it() -> None:
    def hangs(writer: Writer) -> None:
        writer.kernels(1, inf)
        writer.collective("dp", "all_reduce", 8)
        writer.read()

    engine = world(hangs, reads)
    assert ends(engine) == ["device", "device"]
    starts = [process.log["dp"][0].start for process in engine.processes]
    assert starts[0] is None and starts[1] is not None


def test_a_stopped_host_leaves_its_device_running_and_a_dead_process_does_not() -> None:
    def program(writer: Writer) -> None:
        writer.kernels(1, 1.0)
        writer.collective("dp", "all_reduce", 8)
        writer.host("work", 1.0)
        writer.host("more", 1.0)

    for stops_device, done in ((False, True), (True, False)):
        engine = world(program, program)
        engine.processes[0].host_stop = 0.5
        if stops_device:
            engine.processes[0].device_stop = 0.5
        assert ends(engine) == ["stopped", "end"]
        assert (engine.processes[1].log["dp"][0].done() is not None) == done


def test_a_send_waits_for_its_receiver_and_a_batch_for_all_its_ends() -> None:
    def talk(send: bool) -> Script:
        def script(writer: Writer) -> None:
            writer.p2p("pp", ((1, send, ""),), 8, handle="p2p")
            writer.wait("p2p")
            writer.read()

        return script

    assert ends(world(talk(True), talk(False))) == ["end", "end"]
    assert ends(world(talk(True), talk(True))) == ["device", "device"]


def test_a_barrier_stops_the_host() -> None:
    def barrier(writer: Writer) -> None:
        writer.collective("world", "barrier", 1, mode=Mode.HOST)

    assert ends(world(barrier, nothing)) == ["collective", "end"]
    assert ends(world(barrier, barrier)) == ["end", "end"]
