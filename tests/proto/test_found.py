"""Findings over the wire: what comes out is what went in, and what a stranger says is bounded."""

from dataclasses import replace

from hangdog_models.findings import Finding, Impact
from hangdog_proto.codec import findings
from hangdog_proto.generated import hangdog_pb2 as pb


def test_a_finding_survives_the_wire() -> None:
    finding = Finding(
        "kernel log", "Xid 79", Impact.CONVICTS, "fallen off the bus", "a", None, "0000:4b:00", at_s=2.5, times=3
    )
    assert findings.unpack(findings.pack([finding]), "a") == (finding,)


def test_the_agent_speaks_for_its_own_machine_only() -> None:
    assert (
        findings.unpack(findings.pack([Finding("x", "y", Impact.RESET, "z", machine="other")]), "a")[0].machine == "a"
    )


def test_nonsense_is_bounded_and_tells_nothing() -> None:
    wild = pb.Finding(
        source="s\n" * 9999, code="c" * 9999, impact="explodes", what="\x1b[31m" * 9999, at_s=float("nan")
    )
    (read,) = findings.unpack([wild], "a")
    assert (read.impact, read.at_s, read.times) == (Impact.TELLS_NOTHING, None, 1)
    assert max(map(len, (read.source, read.code, read.what))) <= 500
    assert read.what.isprintable() and "\n" not in read.source
    assert len(findings.unpack([wild] * 9999, "a")) == findings.MOST


def test_an_age_is_told_even_of_this_moment_and_none_is_none() -> None:
    finding = Finding("NVML", "GPU lost", Impact.CONVICTS, "gone", "a", at_s=2.5)
    for age in (None, 0.0, 7.5, 1e9):
        (read,) = findings.unpack(findings.pack([replace(finding, age_s=age)]), "a")
        assert read.age_s == (max(age, 0.001) if age is not None else None)
    for nonsense in (-5.0, float("nan"), float("inf"), 1e300):
        assert findings.unpack([pb.Finding(age_s=nonsense)], "a")[0].age_s is None


def test_addresses_that_are_none_or_that_every_machine_has_are_left_out() -> None:
    sent = ["10.0.0.7", "127.0.0.1", "fe80::1", "::1", "0.0.0.0", "fd00::7", "gpu-7", "10.0.0.7; rm", "224.0.0.1"]
    assert findings.addresses(sent) == ("10.0.0.7", "fd00::7")
    assert len(findings.addresses([f"10.0.{n}.1" for n in range(200)])) == 64
