"""Policies of hardware events: every row says where it is from, nothing contradicts itself, and nonsense is refused."""

import re
from importlib import resources

import pytest

from hangdog_models.errors import OurFault
from hangdog_models.findings import Impact
from hangdog_models.rules import policy
from hangdog_models.rules.meaning import Meaning

AGAINST = (Impact.CONVICTS, Impact.RESET, Impact.SUSPECTS, Impact.SLOWS)


def text(name: str) -> str:
    return resources.files("hangdog_models.rules").joinpath(f"{name}.toml").read_text(encoding="utf-8")


def meanings() -> list[Meaning]:
    xid, kernel, dcgm = policy.xid(), policy.kernel(), policy.dcgm()
    return [
        *(row for rows in xid.codes.values() for row in rows),
        *xid.switch,
        xid.unlisted,
        *(event.meaning for event in kernel.events if event.meaning),
        *(place.meaning for place in kernel.places),
        *dcgm.messages,
        *dcgm.errors.values(),
        *dcgm.severities.values(),
        dcgm.failed,
    ]


def test_every_row_has_a_sentence_and_a_source_and_what_accuses_says_what_to_do() -> None:
    for row in meanings():
        assert len(row.source) > 8 and len(row.says) > 8, row
        if row.impact in AGAINST:
            assert row.action, row


@pytest.mark.parametrize("name", [policy.XID, policy.KERNEL, policy.DCGM])
def test_a_file_carries_its_own_name(name: str) -> None:
    assert f'\nname = "{name}"\n' in text(name)


@pytest.mark.parametrize("number", [13, 31, 43, 45])
def test_what_the_application_does_never_accuses_a_machine_by_itself(number: int) -> None:
    assert policy.xid().of(number, "anything").impact not in AGAINST


@pytest.mark.parametrize(
    ("number", "message", "bearing"),
    [
        (79, "GPU has fallen off the bus.", Impact.CONVICTS),
        (95, "Uncontained: LTC TAG", Impact.CONVICTS),
        (94, "Contained: CE User Channel", Impact.SUSPECTS),
        (119, "Timeout after 6s of waiting", Impact.RESET),
        (74, "NVLink: fatal error detected on link 1", Impact.CONVICTS),
        (74, "NVLink: non-fatal error detected on link 1", Impact.SUSPECTS),
        (149, "NETIR_LINK_EVT  Fatal   XC0 i0 Link 01 (0x021425c6 0x0)", Impact.CONVICTS),
        (149, "NETIR Fatal XC0 i0 Link -1 (0x000fe406 0x0)", Impact.CONVICTS),
        (149, "NETIR_LINK_EVT Fatal XC0 i0 Link 00 (0x025001c6 0x0)", Impact.PATH),  # sub-code 37: the other end
        (149, "NETIR_BER_EVENT Nonfatal XC0 i0 Link 03 (0x00086226 0x1)", Impact.SUSPECTS),
        (145, "RLW_RXPIPE Nonfatal XC0 i0 Link 13", Impact.SUSPECTS),
        (154, "GPU recovery action changed from 0x0 (None) to 0x4 (Drain and Reset)", Impact.RESET),
        (154, "GPU recovery action changed from 0x0 (None) to 0x2 (None)", Impact.RESET),  # the code, not the label
        (154, "GPU recovery action changed from 0x4 (Drain and Reset) to 0x0 (None)", Impact.TELLS_NOTHING),
        (154, "GPU recovery action changed from 0x0 (None) to 0x00000005 (x)", Impact.SUSPECTS),
        (99_999, "never heard of", Impact.TELLS_NOTHING),
    ],
)
def test_conditions_of_a_code_decide_by_the_message(number: int, message: str, bearing: Impact) -> None:
    assert policy.xid().of(number, message).impact is bearing


def test_a_fatal_switch_error_is_told_from_a_harmless_one() -> None:
    of = policy.xid().of_switch
    assert of("Fatal, Link 30 LTSSM Fault Up").impact is Impact.CONVICTS
    assert of("Non-fatal, Link 32 egress non-posted PRIV error").impact is Impact.TELLS_NOTHING
    assert of("Link 30 LTSSM Fault Up").impact is Impact.SUSPECTS


def test_known_words_of_a_diagnosis_come_before_its_numbers_and_numbers_before_severities() -> None:
    of = policy.dcgm().of
    assert of("Call to cuInit failed", 95, 2).impact is Impact.SUSPECTS
    assert of("something else", 95, 1).impact is Impact.CONVICTS
    assert of("something else", 94, 2).impact is Impact.TELLS_NOTHING  # the test could not run
    assert of("something else", 12345, 6).impact is Impact.RESET
    assert of("something else", None, None) is policy.dcgm().failed


@pytest.mark.parametrize(
    ("parse", "name", "find", "put", "says"),
    [
        (policy.parse_xid, policy.XID, 'bearing = "convicts"', 'bearing = "guilty"', "guilty"),
        (policy.parse_xid, policy.XID, "codes = [79]", 'codes = ["79"]', "no list of codes"),
        (policy.parse_xid, policy.XID, "codes = [79]", "codes = [95]", "exactly the last row"),
        (policy.parse_xid, policy.XID, "codes = [79]", "code = [79]", "unknown keys"),
        (policy.parse_xid, policy.XID, "source = \"NVIDIA: restart the machine;", "sauce = \"NVIDIA: restart the machine;", "unknown keys"),
        (policy.parse_xid, policy.XID, "(?P<other>", "(?P<another>", "does not name"),
        (policy.parse_xid, policy.XID, r"\bto 0x0*0\b", "(", "unterminated|missing"),
        (policy.parse_kernel, policy.KERNEL, 'clears = ["link down"]', 'clears = ["link dawn"]', "link dawn"),
        (policy.parse_kernel, policy.KERNEL, 'needle = "edac mc"', 'needle = "EDAC MC"', "lower case"),
        (policy.parse_kernel, policy.KERNEL, 'reads = "ext4, Linux 3.10 to 6.12"', 'reads = "ext"', "which versions"),
        (policy.parse_kernel, policy.KERNEL, "names_gpu = true", "", "clears nothing"),
        (policy.parse_dcgm, policy.DCGM, "ids = [15, 88, 109]", "ids = [15, 88, 95]", "two rows"),
        (policy.parse_dcgm, policy.DCGM, "when = 'persistence mode'", "", "no words"),
        (policy.parse_dcgm, policy.DCGM, "\n[failed]\n", "\n[fallen]\n", "failed"),
        (policy.parse_dcgm, policy.DCGM, 'name = "dcgm@2026-11"', "name = 3 = 4", "policy file"),
    ],
)  # fmt: skip
def test_a_row_that_means_nothing_is_refused(parse, name: str, find: str, put: str, says: str) -> None:  # type: ignore[no-untyped-def]
    good = text(name)
    assert find in good
    with pytest.raises(OurFault, match=says):
        parse(good.replace(find, put, 1))


def test_every_needle_stands_in_what_its_pattern_can_match() -> None:
    """A needle the pattern does not imply would hide the event; each is a plain part of the pattern's own words."""
    for event in policy.kernel().events:
        plain = re.sub(r"\\(.)", r"\1", event.pattern.pattern).lower()
        words = re.sub(r"\W+", " ", plain)
        for word in re.sub(r"\W+", " ", event.needle).split():
            assert word in words, event
