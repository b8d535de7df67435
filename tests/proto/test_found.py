"""Findings over the wire: what comes out is what went in, and what a stranger says is bounded."""

from hangdog_models.findings import Bearing, Finding
from hangdog_proto import found
from hangdog_proto.generated import hangdog_pb2 as pb


def test_a_finding_survives_the_wire() -> None:
    finding = Finding(
        "kernel log", "Xid 79", Bearing.CONVICTS, "fallen off the bus", "a", None, "0000:4b:00", at_s=2.5, times=3
    )
    assert found.unpack(found.pack([finding]), "a") == (finding,)


def test_the_agent_speaks_for_its_own_machine_only() -> None:
    assert found.unpack(found.pack([Finding("x", "y", Bearing.RESET, "z", machine="other")]), "a")[0].machine == "a"


def test_nonsense_is_bounded_and_tells_nothing() -> None:
    wild = pb.Finding(
        source="s\n" * 9999, code="c" * 9999, bearing="explodes", what="\x1b[31m" * 9999, at_s=float("nan")
    )
    (read,) = found.unpack([wild], "a")
    assert (read.bearing, read.at_s, read.times) == (Bearing.TELLS_NOTHING, None, 1)
    assert max(map(len, (read.source, read.code, read.what))) <= 500
    assert read.what.isprintable() and "\n" not in read.source
    assert len(found.unpack([wild] * 9999, "a")) == found.MOST
