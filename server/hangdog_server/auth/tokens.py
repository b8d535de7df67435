"""The file of people's tokens: names, roles and hashes, and never a token itself.

A token is 256 random bits, so a plain SHA-256 of it is enough: what makes a password's hash slow and salted is that
passwords can be guessed, and these cannot.
"""

import fcntl
import hashlib
import hmac
import logging
import os
import secrets
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from enum import IntEnum
from pathlib import Path
from typing import Annotated, Literal

import msgspec

from hangdog_models.errors import WrongUse
from hangdog_proto.private_files import file_stamp, make_file, make_folder, restrict_file

#: What a token begins with, so that it is known by its shape where it must not be: in a command line, in a repository.
PREFIX = "hangdog_"
#: Days a token lasts: as long as a certificate, and longer than most people's turns on call.
DAYS = 90
#: Bytes of the file, and tokens in it: some thousand people would have a proxy with roles of its own.
_MOST_BYTES, MOST = 1 << 20, 1000
#: Characters of a name, as of a user's elsewhere.
_NAME = 100

log = logging.getLogger(__name__)


class Role(IntEnum):
    """What somebody may do; each includes the ones before."""

    VIEW = 1
    TRIGGER = 2
    ACT = 3

    @property
    def word(self) -> str:
        """As people write it."""
        return self.name.lower()


class Token(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """What the file says of one token; times are Unix seconds, `sha256` is in hexadecimal digits."""

    name: str
    role: str
    made: float
    expires: float
    sha256: Annotated[str, msgspec.Meta(pattern="^[0-9a-fA-F]{64}$")]


class TokenFile(msgspec.Struct, frozen=True):
    """The whole file."""

    schema: Literal["hangdog.tokens/1"]
    tokens: tuple[Token, ...]


def new(path: Path, name: str, role: Role, now: float, days: int = DAYS) -> str:
    """Makes a token and gives it: it is nowhere else from then on. Raises WrongUse, also when `name` has one that lasts."""
    if not name.strip() or not name.isprintable() or len(name) > _NAME:
        raise WrongUse(
            f"{name[:_NAME]!r} is no name", f"names are printable and at most {_NAME} characters", code="bad-name"
        )
    with _turn(path):
        # those that have ended stay, but for one of this name: by a clock that has jumped forward all have
        kept = [token for token in read(path) if token.name != name or token.expires > now]
        if any(token.name == name for token in kept):
            raise WrongUse(
                f"{name} already has a token",
                f"revoke it with `hangdog token revoke {name}`, or give another --name",
                code="already-exists",
            )
        if len(kept) >= MOST:
            hint = "revoke the expired ones (`hangdog token list`), or let a proxy authenticate people"
            raise WrongUse(f"{path} is full: it holds {MOST} tokens", hint, code="too-many")
        made = PREFIX + secrets.token_urlsafe(32)
        _write(path, [*kept, Token(name, role.word, now, now + days * 86400.0, digest(made))])
    return made


def revoke(path: Path, name: str) -> None:
    """Ends a token; a server that runs refuses it from its next request on. Raises WrongUse when there is none."""
    with _turn(path):
        before = read(path)
        kept = [token for token in before if token.name != name]
        if len(kept) == len(before):
            raise WrongUse(f"{name} has no token", "`hangdog token list` lists who has one", code="no-such-token")
        _write(path, kept)


def read(path: Path) -> tuple[Token, ...]:
    """All tokens of a file, those that have ended too; none when there is no file. Raises WrongUse when it is damaged."""
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
        found = msgspec.json.decode(content, type=TokenFile).tokens
        for token in found:
            Role[token.role.upper()]
            if not token.expires > token.made:
                raise ValueError(f"{token.name!r} is none")
    except (KeyError, TypeError, AttributeError, ValueError, RecursionError) as error:
        raise WrongUse(
            f"{path} is not a token file: {error}", "hangdog token new makes one", code="wrong-schema"
        ) from error
    return found


def digest(token: str) -> str:
    """What the file holds of a token."""
    return hashlib.sha256(token.encode("utf-8", "replace")).hexdigest()


class Tokens:
    """The tokens of a file as they are now; without a path there are none. Once there were any, a file that is gone or damaged lets nobody in."""

    def __init__(self, path: Path | None, clock: Callable[[], float]) -> None:
        self._path = path
        self._clock = clock
        self._stamp: object = None
        self._tokens: tuple[Token, ...] = ()
        self.used = False

    def find(self, shown: str) -> Token | None:
        """Whose token this is, None when it is nobody's or has ended; how long it takes tells nothing of the tokens."""
        self.look()
        asked, found = digest(shown), None
        for token in self._tokens:
            if hmac.compare_digest(token.sha256, asked):
                found = token
        return found if found is not None and found.expires > self._clock() else None

    def names(self, role: Role) -> tuple[str, ...]:
        """Whose tokens last and allow that much, by name."""
        self.look()
        now = self._clock()
        return tuple(sorted(one.name for one in self._tokens if one.expires > now and Role[one.role.upper()] >= role))

    def look(self) -> bool:
        """Reads the file again if it is another than before; whether tokens are asked for at all."""
        if self._path is None:
            return False
        stamp = file_stamp(self._path)
        if stamp != self._stamp:
            self._stamp = stamp
            restrict_file(self._path)
            try:
                self._tokens = read(self._path)
            except WrongUse as error:
                self._tokens, self.used = (), True
                log.error("no token is accepted: %s", error)
            self.used = self.used or stamp is not None
        return self.used


@contextmanager
def _turn(path: Path) -> Iterator[None]:
    """One writer at a time: of two, neither may lose what the other wrote."""
    try:
        make_folder(path.parent)
        beside = path.with_name(path.name + ".lock")
        make_file(beside)
        with beside.open("wb") as lock:
            fcntl.flock(lock, fcntl.LOCK_EX)
            yield
    except OSError as error:
        raise WrongUse(
            f"cannot write {path}: {error.strerror}", "run this as the user of the server", code="unwritable-file"
        ) from error


def _write(path: Path, tokens: Sequence[Token]) -> None:
    document = msgspec.json.encode(TokenFile("hangdog.tokens/1", tuple(tokens)))
    new = path.with_name(f"{path.name}.{secrets.token_hex(4)}.new")
    fd = os.open(new, os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_CLOEXEC, 0o600)
    with open(fd, "w", encoding="utf-8") as file:  # noqa: PTH123 - opened by descriptor
        file.write(msgspec.json.format(document, indent=1).decode() + "\n")
        file.flush()
        os.fsync(fd)
    new.rename(path)
