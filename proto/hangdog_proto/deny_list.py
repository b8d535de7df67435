"""The deny list: certificates that count no longer, by serial number or by owner, in a file that is read again on change."""

import fcntl
import json
import logging
import os
import secrets
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import asdict, dataclass
from pathlib import Path

from hangdog_models.errors import WrongUse
from hangdog_proto.private_files import file_stamp
from hangdog_proto.x509 import CertificateInfo, serial_digits

#: What the file is called, beside a server's store and in a folder of certificates.
NAME = "denied.json"
#: Bytes of the file, and entries in it: several for each machine of a large cluster.
_MOST_BYTES, MOST = 16 << 20, 50_000
#: Characters of an owner and of a reason.
_WORDS = 1000
#: Authorities date a certificate back by so many seconds, ours by a day: what was made before a denial begins earlier.
BACKDATED_S = 86400.0
_SCHEMA = "hangdog.denied/1"

log = logging.getLogger(__name__)


@dataclass(frozen=True, slots=True)
class DeniedCertificate:
    """One entry: either `serial` (hexadecimal), or `owner`, all of whose certificates made before `at` are denied.

    `at` is Unix seconds.
    """

    serial: str
    owner: str
    at: float
    reason: str = ""

    def covers(self, leaf: CertificateInfo) -> bool:
        """Whether it denies that certificate."""
        if self.serial:
            return self.serial == leaf.serial
        return self.owner in leaf.owners and leaf.begins + BACKDATED_S <= self.at


class DenyList:
    """The deny list in a file as it is now; without a path nothing is denied.

    A file that is damaged, or gone after it was there, fails closed: no certificate is accepted anew until it is mended.
    What was read before stays in force meanwhile, so that streams that are open end only where that names them.
    """

    def __init__(self, path: Path | None) -> None:
        self._path = path
        self._stamp: object = None
        self._serials: dict[str, DeniedCertificate] = {}
        self._owners: tuple[DeniedCertificate, ...] = ()
        self._broken = ""

    @property
    def broken(self) -> bool:
        """Whether the file could not be read when it was last looked at."""
        return bool(self._broken)

    def refuses(self, leaf: CertificateInfo) -> str:
        """Why a certificate that is shown now is not accepted, in words for its owner; empty when it is."""
        self._reload()
        return self._broken or self.denies(leaf)

    def denies(self, leaf: CertificateInfo) -> str:
        """Why a certificate that was accepted before counts no longer; empty when it does."""
        self._reload()
        found = self._serials.get(leaf.serial) or next((one for one in self._owners if one.covers(leaf)), None)
        if found is None:
            return ""
        return f"certificate {leaf.serial} is denied{': ' * bool(found.reason)}{found.reason}"

    def require_readable(self) -> None:
        """Raises WrongUse when the file is damaged: what is wrong from the start is said at once."""
        if self._path is not None:
            read(self._path)

    def _reload(self) -> None:
        if self._path is None:
            return
        stamp = file_stamp(self._path)
        if stamp == self._stamp:
            return
        before, self._stamp = self._stamp, stamp
        try:
            if stamp is None and before is not None:
                raise WrongUse(
                    f"{self._path} is gone",
                    "restore it; hangdog certs deny makes a new one without the old entries",
                    code="no-such-path",
                )
            entries = read(self._path)
        except WrongUse as error:
            self._broken = "the deny list cannot be read"
            log.error("no certificate is accepted anew until the deny list is mended: %s", error)
            return
        self._broken = ""
        self._serials = {one.serial: one for one in entries if one.serial}
        self._owners = tuple(one for one in entries if not one.serial)


def read(path: Path) -> tuple[DeniedCertificate, ...]:
    """All entries of a file; none when there is no file. Raises WrongUse when it is damaged or cannot be read."""
    try:
        with path.open("rb") as file:
            content = file.read(_MOST_BYTES + 1)
    except FileNotFoundError:
        return ()
    except OSError as error:
        raise WrongUse(
            f"cannot read {path}: {error.strerror}", "run this as the user of the server", code="unreadable-file"
        ) from error
    try:
        if len(content) > _MOST_BYTES:
            raise ValueError("it is too long")
        document = json.loads(content)
        if document["schema"] != _SCHEMA:
            raise ValueError("it is of another version")
        found = tuple(_entry(row) for row in document["denied"])
    except (KeyError, TypeError, AttributeError, ValueError, RecursionError) as error:
        raise WrongUse(
            f"{path} is not a deny list: {error}",
            "hangdog certs deny makes one; docs/security.md",
            code="damaged-deny-list",
        ) from error
    return found


def add(path: Path, entry: DeniedCertificate) -> bool:
    """Adds an entry; False when there is one already that denies as much. Raises WrongUse."""
    with _locked(path):
        entries = read(path)
        same = [one for one in entries if (one.serial, one.owner) == (entry.serial, entry.owner)]
        if same and (entry.serial or same[0].at >= entry.at):
            return False
        entries = tuple(one for one in entries if one not in same)
        if len(entries) >= MOST:
            raise WrongUse(
                f"{path} is full: it holds {MOST} entries", "make a new authority; docs/security.md", code="too-many"
            )
        _write(path, [*entries, _entry(asdict(entry))])
    return True


def remove(path: Path, serial: str, owner: str) -> None:
    """Takes an entry away; raises WrongUse when there is none."""
    with _locked(path):
        before = read(path)
        left = [one for one in before if (one.serial, one.owner) != (serial, owner)]
        if len(left) == len(before):
            raise WrongUse(f"{serial or owner} is not denied", "hangdog certs denied lists what is", code="not-denied")
        _write(path, left)


def _entry(row: dict[str, object]) -> DeniedCertificate:
    found = DeniedCertificate(**row)  # type: ignore[arg-type]  # what it holds is looked at below
    texts = (found.serial, found.owner, found.reason)
    if not all(isinstance(text, str) and len(text) <= _WORDS for text in texts) or not isinstance(
        found.at, int | float
    ):
        raise ValueError("an entry holds what is no text")
    if bool(found.serial) is bool(found.owner):
        raise ValueError("an entry names a serial number or an owner")
    return DeniedCertificate(
        serial_digits(found.serial) if found.serial else "", found.owner, float(found.at), found.reason
    )


@contextmanager
def _locked(path: Path) -> Iterator[None]:
    """One writer at a time: of two, neither may lose what the other wrote."""
    try:
        path.parent.mkdir(mode=0o700, parents=True, exist_ok=True)
        fd = os.open(path.with_name(path.name + ".lock"), os.O_RDWR | os.O_CREAT | os.O_NOFOLLOW | os.O_CLOEXEC, 0o600)
        with open(fd, "wb") as lock:  # noqa: PTH123 - opened by descriptor
            fcntl.flock(lock, fcntl.LOCK_EX)
            yield
    except OSError as error:
        raise WrongUse(
            f"cannot write {path}: {error.strerror}", "run this as the user of the server", code="unwritable-file"
        ) from error


def _write(path: Path, entries: Sequence[DeniedCertificate]) -> None:
    """Puts a new file in the old one's place: whoever reads meanwhile finds one or the other, whole."""
    document = {"schema": _SCHEMA, "denied": [asdict(entry) for entry in entries]}
    new = path.with_name(f".{path.name}.{secrets.token_hex(4)}.new")
    try:
        fd = os.open(new, os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_CLOEXEC, 0o644)
        with open(fd, "w", encoding="utf-8") as file:  # noqa: PTH123 - opened by descriptor
            file.write(json.dumps(document, indent=1) + "\n")
            file.flush()
            os.fsync(fd)
        new.rename(path)
    except OSError:
        new.unlink(missing_ok=True)
        raise
