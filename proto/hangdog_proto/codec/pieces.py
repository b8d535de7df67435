"""What is told once and then named by its digest: frames, threads as many ranks share them, and the kernel's view of a process.

A digest is BLAKE2b (16 bytes) over the fields of a piece, each with its length before it: 64 bits of strength against two
pieces that somebody makes alike, 128 against one that takes the place of another. Whoever reads a piece works it out anew.
"""

from collections.abc import Iterator
from dataclasses import dataclass
from hashlib import blake2b

from hangdog_models.stack import Frame
from hangdog_proto.generated import hangdog_pb2 as pb

#: Bytes of a digest.
DIGEST = 16
#: Where an incident's captures are kept, and sent on, its pieces stand among them under the name of no machine.
PIECES = ""
#: The largest number of a uint32 field.
UINT32 = (1 << 32) - 1


@dataclass(frozen=True, slots=True)
class SharedThread:
    """A thread as many ranks share it; `frames` are the digests of its frames, outermost first."""

    name: str
    frames: bytes


@dataclass(frozen=True, slots=True)
class KernelView:
    """What the kernel says of a process, apart from the numbers that are its own."""

    state: str
    wchan: str
    syscall: str
    comm: str
    cmdline: str


PieceContent = Frame | SharedThread | KernelView


def digest(noun: PieceContent) -> bytes:
    """What names a piece."""
    match noun:
        case Frame(function, file, line, module):
            native = b"" if module is None else b"native"
            return _digest(b"frame", _bytes(function), _bytes(file), b"%d" % line, native, _bytes(module or ""))
        case SharedThread(name, frames):
            return _digest(b"thread", _bytes(name), frames)
        case KernelView(state, wchan, syscall, comm, cmdline):
            return _digest(b"face", *map(_bytes, (state, wchan, syscall, comm, cmdline)))


def packed(noun: PieceContent) -> pb.Piece:
    """A piece for the wire."""
    match noun:
        case Frame(function, file, line, module):
            frame = pb.Frame(
                function=text(function), file=text(file), line=line, module=text(module or ""), native=module == ""
            )
            return pb.Piece(frame=frame)
        case SharedThread(name, frames):
            return pb.Piece(thread=pb.SharedThread(name=text(name), frames=frames))
        case KernelView(state, wchan, syscall, comm, cmdline):
            face = pb.Face(
                state=text(state), wchan=text(wchan), syscall=text(syscall), comm=text(comm), cmdline=text(cmdline)
            )
            return pb.Piece(face=face)


def unpacked(piece: pb.Piece) -> PieceContent | None:
    """What a piece says; None when it says nothing that this hangdog knows."""
    match piece.WhichOneof("body"):
        case "frame":
            frame = piece.frame
            module = frame.module if frame.module or frame.native else None
            return Frame(frame.function, frame.file, frame.line, module)
        case "thread":
            return SharedThread(piece.thread.name, piece.thread.frames)
        case "face":
            face = piece.face
            return KernelView(face.state, face.wchan, face.syscall, face.comm, face.cmdline)
    return None


def split(digests: bytes) -> Iterator[bytes]:
    """Digests that stand one behind the other; a rest that is too short for one is passed over."""
    return (digests[at : at + DIGEST] for at in range(0, len(digests) - DIGEST + 1, DIGEST))


def text(raw: str) -> str:
    """Text the wire accepts: /proc may hold bytes that are no UTF-8, which Python carries as lone surrogates."""
    return raw.encode("utf-8", "replace").decode("utf-8")


def _digest(kind: bytes, *fields: bytes) -> bytes:
    written = b"".join(b"%d:%s" % (len(field), field) for field in fields)
    return blake2b(written, digest_size=DIGEST, person=kind).digest()


def _bytes(raw: str) -> bytes:
    return raw.encode("utf-8", "replace")
