"""The pieces that were told so far: finds what a capture names and nobody told yet, and makes nouns that many ranks share.

Ranks in one place get one and the same tuple of threads, so whoever walks over a hundred thousand ranks may ask once for each
tuple, by its identity. Such threads carry no id of their own (`tid` is 0): these are told for each process apart.
"""

from collections.abc import Container, Iterable, Iterator
from dataclasses import dataclass

from hangdog_models.errors import UnreadableEvidence
from hangdog_models.stack import Frame, Thread
from hangdog_proto.codec.pieces import DIGEST, KernelView, PieceContent, SharedThread, digest, packed, split, unpacked
from hangdog_proto.generated import hangdog_pb2 as pb

#: Bytes that stand for one thread of a process: the digest, then what it was doing.
RECORD = DIGEST + 1
#: Pieces and bytes of text that are kept; the stacks of a job of 100,000 ranks are some ten thousand pieces. When there are
#: more, all are forgotten and those still in use are asked for again. So many bytes of stacks put together from them, too.
MOST_PIECES, MOST_BYTES = 1 << 19, 256 << 20
#: Calls of one stack, and characters of one text, as in codec.Bounds.
MOST_FRAMES, MOST_TEXT = 16384, 1 << 16
#: What a piece takes in memory beside its text: the noun, its digest, its places in our tables.
_OVERHEAD = 400
_TRI = (None, True, False, None)


@dataclass(frozen=True, slots=True)
class PieceStacks:
    """The threads of a process, and how many frames they have together."""

    threads: tuple[Thread, ...]
    frames: int


class PieceCache:
    """What was told, by digest."""

    def __init__(self, most_pieces: int = MOST_PIECES, most_bytes: int = MOST_BYTES) -> None:
        self._most = most_pieces, most_bytes
        self.forget()

    def __len__(self) -> int:
        return len(self._frames) + len(self._shared) + len(self._kernel_views)

    @property
    def stacks_built(self) -> int:
        """How many processes' stacks are kept put together."""
        return len(self._built)

    def forget(self) -> None:
        """Empties it; whatever was made of it stays as it is."""
        self._frames: dict[bytes, Frame] = {}
        self._shared: dict[bytes, SharedThread] = {}
        self._kernel_views: dict[bytes, KernelView] = {}
        self._stacks: dict[bytes, tuple[Frame, ...]] = {}
        self._threads: dict[bytes, Thread] = {}
        self._built: dict[bytes, PieceStacks] = {}
        self._bytes = self._built_bytes = 0

    def add(self, pieces: Iterable[pb.Piece], wanted: Container[bytes] | None = None) -> set[bytes]:
        """Takes pieces in, those that are `wanted` where that is given, and answers their digests.

        Raises UnreadableEvidence on one that is over a bound.
        """
        learned = set()
        for piece in pieces:
            noun = unpacked(piece)
            if noun is not None and (wanted is None or digest(noun) in wanted):
                learned.add(self._store(noun))
        return learned

    def missing(self, capture: pb.Capture) -> set[bytes]:
        """Digests that the capture names, or pieces that it names name, and nobody told."""
        found: set[bytes] = set()
        for group in capture.alike:
            threads, face = group.threads, group.face
            if threads not in self._built:
                for record in records(threads):
                    found.update(self._missing_of(record[:DIGEST]))
            if face and face not in self._kernel_views:
                found.add(face)
        return found

    def stacks(self, threads: bytes) -> PieceStacks:
        """The threads that `Alike.threads` names; raises UnreadableEvidence when a piece is lacking."""
        made = self._built.get(threads)
        if made is None:
            if self._built_bytes > self._most[1]:  # mixtures of threads, of which there may be more than of threads
                self._built.clear()
                self._built_bytes = 0
            self._built_bytes += 2 * len(threads) + _OVERHEAD  # what names them, and as much again for what they are
            nouns = tuple(self._thread(record) for record in records(threads))
            made = self._built[threads] = PieceStacks(nouns, sum(len(thread.frames) for thread in nouns))
        return made

    def kernel_view(self, name: bytes) -> KernelView:
        """What the kernel said; raises UnreadableEvidence when it is lacking."""
        face = self._kernel_views.get(name)
        if face is None:
            raise UnreadableEvidence(
                f"capture message names a process state {name.hex()[:8]} that was not sent before",
                code="damaged-message",
            )
        return face

    def pieces(self, capture: pb.Capture, sent: set[bytes]) -> Iterator[pb.Piece]:
        """All that the capture names and is not in `told`, which takes it in; what is lacking is passed over."""
        for group in capture.alike:
            threads, face = group.threads, group.face
            if threads not in sent:
                sent.add(threads)
                for record in records(threads):
                    yield from self._send(record[:DIGEST], sent)
            if face not in sent:
                yield from self._send(face, sent)

    def _send(self, name: bytes, sent: set[bytes]) -> Iterator[pb.Piece]:
        if name in sent:
            return
        noun: PieceContent | None = self._shared.get(name) or self._kernel_views.get(name) or self._frames.get(name)
        if noun is None:
            return
        sent.add(name)
        if isinstance(noun, SharedThread):
            for frame in split(noun.frames):
                yield from self._send(frame, sent)
        yield packed(noun)

    def _store(self, noun: PieceContent) -> bytes:
        match noun:
            case Frame():
                size = _bounded(noun.function, noun.file, noun.module or "")
            case SharedThread():
                size = _bounded(noun.name) + len(noun.frames)
                if len(noun.frames) > MOST_FRAMES * DIGEST or len(noun.frames) % DIGEST:
                    raise UnreadableEvidence(
                        f"a stack of {len(noun.frames) / DIGEST:g} frames, {MOST_FRAMES} at most", code="too-many"
                    )
            case KernelView():
                size = _bounded(noun.state, noun.wchan, noun.syscall, noun.comm, noun.cmdline)
        if len(self) >= self._most[0] or self._bytes + size > self._most[1]:
            self.forget()
        self._bytes += size + _OVERHEAD
        name = digest(noun)
        match noun:
            case Frame():
                self._frames.setdefault(name, noun)
            case SharedThread():
                self._shared.setdefault(name, noun)
            case KernelView():
                self._kernel_views.setdefault(name, noun)
        return name

    def _missing_of(self, name: bytes) -> tuple[bytes, ...]:
        shared = self._shared.get(name)
        if shared is None:
            return (name,)
        if shared.frames in self._stacks:
            return ()
        missing = tuple(frame for frame in split(shared.frames) if frame not in self._frames)
        if not missing:
            self._stack(shared.frames)  # so that nobody goes over its frames again
        return missing

    def _thread(self, record: bytes) -> Thread:
        thread = self._threads.get(record)
        if thread is None:
            shared, flags = self._shared.get(record[:DIGEST]), record[DIGEST]
            if shared is None:
                raise UnreadableEvidence(
                    f"capture message names a thread {record.hex()[:8]} that was not sent before",
                    code="damaged-message",
                )
            thread = Thread(shared.name or None, 0, self._stack(shared.frames), _TRI[flags & 3], _TRI[flags >> 2 & 3])
            self._threads[record] = thread
        return thread

    def _stack(self, frames: bytes) -> tuple[Frame, ...]:
        stack = self._stacks.get(frames)
        if stack is None:
            try:
                stack = tuple(self._frames[name] for name in split(frames))
            except KeyError as error:
                raise UnreadableEvidence(
                    f"a stack names a frame {error.args[0].hex()[:8]} that was not sent before", code="damaged-message"
                ) from None
            self._stacks[frames] = stack
        return stack


def count_threads(capture: pb.Capture) -> int:
    """How many threads the groups of a capture name: what must be bounded before any of it is looked up."""
    return sum([len(group.threads) for group in capture.alike]) // RECORD


def records(threads: bytes) -> Iterator[bytes]:
    """What stands for each thread in `Alike.threads`; a rest that is too short for one is passed over."""
    return (threads[at : at + RECORD] for at in range(0, len(threads) - RECORD + 1, RECORD))


def _bounded(*texts: str) -> int:
    size = sum(map(len, texts))
    if size > MOST_TEXT * len(texts) or any(len(text) > MOST_TEXT for text in texts):
        raise UnreadableEvidence(
            f"a piece holds a text of {max(map(len, texts))} characters, the bound is {MOST_TEXT}", code="too-long"
        )
    return size
