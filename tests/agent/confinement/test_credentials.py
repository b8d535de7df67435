"""Whose rights a trainer's files are opened with: those of its own user, and never ones that a program lent it."""

import os
import struct
import subprocess
import sys

import pytest

from hangdog_agent.confinement.credentials import Credentials, CredentialsRefused, lent, of_its_own, parse

ORDINARY = "Name:\tpython\nUid:\t1000\t1000\t1000\t1000\nGid:\t100\t100\t100\t100\nGroups:\t27 100 \n"


def test_user_and_groups_are_the_kernel_s() -> None:
    assert parse(ORDINARY) == Credentials(1000, 100, (27, 100))
    own = of_its_own(os.getpid())
    assert (own.uid, own.gid, own.own) == (os.geteuid(), os.getegid(), True)


@pytest.mark.parametrize(
    ("before", "after"),
    [
        ("1000\t1000\t1000\t1000", "1000\t0\t0\t0"),
        ("1000\t1000\t1000\t1000", "0\t1000\t1000\t1000"),
        ("100\t100\t100\t100", "100\t42\t42\t42"),
    ],
)
def test_mixed_rights_are_nobody_s(before: str, after: str) -> None:
    with pytest.raises(CredentialsRefused, match="another user's rights"):
        parse(ORDINARY.replace(before, after))


@pytest.mark.parametrize(
    "text", ["", "Uid:\n", "Uid:\t1\t1\t1\nGid:\t1\t1\t1\t1", "Uid:\tx\tx\tx\tx\nGid:\t1\t1\t1\t1"]
)
def test_a_status_that_does_not_tell_is_refused(text: str) -> None:
    with pytest.raises(CredentialsRefused, match="does not say"):
        parse(text)


@pytest.mark.parametrize("form", ["=QQ", "=II"])
def test_a_program_that_gave_rights_is_told_by_what_it_was_told(form: str) -> None:
    def vector(secure: int) -> bytes:
        return b"".join(struct.pack(form, *entry) for entry in ((6, 4096), (23, secure), (0, 0)))

    lent(vector(0))
    lent(b"")  # one that is ending has none
    with pytest.raises(CredentialsRefused, match="setuid"):
        lent(vector(1))
    with pytest.raises(CredentialsRefused, match="does not say"):
        lent(struct.pack(form, 6, 4096))


def test_a_process_that_is_gone_has_none() -> None:
    with subprocess.Popen((sys.executable, "-c", "")) as process:
        process.wait()
    with pytest.raises(ProcessLookupError):
        of_its_own(process.pid)
