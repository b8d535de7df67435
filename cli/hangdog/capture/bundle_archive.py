"""Writes the files of a bundle as one archive, for its owner alone: as root it lies in folders that others may write to."""

import gzip
import io
import os
import tarfile
from collections.abc import Callable, Iterable
from contextlib import suppress
from pathlib import Path
from typing import BinaryIO, cast

from hangdog.evidence.packed import zst
from hangdog.evidence.write_bundle import File
from hangdog_models.errors import WrongUse
from hangdog_models.reading.printable import printable
from hangdog_proto import private_files

#: The folder that all files lie in: unpacking it by hand fills no other. Its name tells no rank, machine or round.
_FOLDER = "bundle"

Packing = Callable[[BinaryIO], BinaryIO]


def _gzip(to: BinaryIO) -> BinaryIO:
    return cast(BinaryIO, gzip.GzipFile(fileobj=to, mode="wb", filename="", compresslevel=6))


#: How an archive is packed, by the ending of its name. Nothing packs a plain one.
PACKINGS: dict[str, Packing | None] = {".tar.zst": zst.packing, ".tar.gz": _gzip, ".tgz": _gzip, ".tar": None}


def packing_of(path: Path) -> Packing | None:
    """How the archive of this name is packed; raises WrongUse for a name that tells none."""
    for ending, packing in PACKINGS.items():
        if path.name.endswith(ending) and path.name != ending:
            return packing
    raise WrongUse(
        f"{printable(str(path), 200)} is not the name of an archive",
        f"end it in one of {', '.join(PACKINGS)}",
        code="unknown-archive-name",
    )


def pack(content: Iterable[File], to: BinaryIO, packing: Packing | None, at_s: float) -> int:
    """Writes an archive to an open file, which is left open; answers how many files it holds."""
    packed = packing(to) if packing is not None else to
    count = 0
    try:
        with tarfile.open(fileobj=packed, mode="w|", format=tarfile.PAX_FORMAT) as archive:
            for path, data in content:
                member = tarfile.TarInfo(f"{_FOLDER}/{path}")
                member.size, member.mode, member.mtime = len(data), private_files.FILE, int(at_s)
                archive.addfile(member, io.BytesIO(data))
                count += 1
    finally:
        if packed is not to:
            packed.close()
    return count


def require_new(path: Path) -> None:
    """Raises WrongUse where `write` will, before anything is captured: its name tells no kind, or something is there."""
    packing_of(path)
    if path.exists() or path.is_symlink():
        raise _there_already(path)


def create(path: Path) -> BinaryIO:
    """A new file for its owner alone; raises WrongUse where anything, even a link that leads nowhere, is there already."""
    try:
        fd = os.open(path, os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_NOFOLLOW | os.O_CLOEXEC, private_files.FILE)
    except FileExistsError:
        raise _there_already(path) from None
    except OSError as error:
        what = f"cannot write {printable(str(path), 200)}: {error.strerror}"
        raise WrongUse(what, "name a file in a folder that you can write to: -o", code="unwritable-file") from error
    _hand_over(fd)
    return os.fdopen(fd, "wb")


def write(path: Path, content: Iterable[File], at_s: float) -> int:
    """Writes an archive of its name's kind; half of one is none. Answers how many files it holds."""
    packing = packing_of(path)
    with create(path) as opened:
        try:
            return pack(content, opened, packing, at_s)
        except BaseException:
            with suppress(OSError):
                path.unlink()
            raise


def _there_already(path: Path) -> WrongUse:
    what = f"{printable(str(path), 200)} already exists"
    return WrongUse(what, "name a new file: hangdog overwrites nothing", code="already-exists")


def _hand_over(fd: int) -> None:
    """Whoever called us through sudo may read what they asked for."""
    user, group = os.environ.get("SUDO_UID", ""), os.environ.get("SUDO_GID", "")
    if os.geteuid() == 0 and user.isdecimal() and group.isdecimal():
        with suppress(OSError):
            os.fchown(fd, int(user), int(group))
