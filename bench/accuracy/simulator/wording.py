"""How frames read in one capture: lines that differ between hosts, helper frames, and a framework nobody knows."""

from random import Random

from hangdog_models.stack import Frame

#: Code that is not the training framework's: its names stay when the framework is an unknown one.
_KNOWN = (
    "torch/distributed/distributed_c10d.py", "torch/distributed/c10d_logger.py", "torch/distributed/_functional_collectives.py",
    "torch/distributed/rendezvous.py", "torch/distributed/checkpoint", "torch/distributed/elastic", "torch/storage.py", "torch/_functorch", "concurrent/", "torch/autograd", "torch/_tensor.py", "torch/cuda", "torch/utils", "torch/nn/modules",
    "torch/optim", "torch/_dynamo", "torch/_inductor", "torch/serialization.py", "triton/",
    "threading.py", "queue.py", "multiprocessing/", "selectors.py", "socket.py", "subprocess.py", "logging/", "http/",
    "urllib3/", "requests/", "ssl.py", "hashlib.py", "json/", "tarfile.py", "gzip.py", "numpy/", "boto3/", "s3transfer/", "filelock/",
    "datasets/", "multiprocess/", "transformers/tokenization_utils_fast.py",
)  # fmt: skip
#: Words that invented functions and files are made of.
_WORDS = (
    "drive",
    "lane",
    "weave",
    "fold",
    "pulse",
    "shard",
    "relay",
    "batch",
    "tide",
    "grid",
    "spin",
    "merge",
    "carry",
    "stage",
)
#: Wrappers of tools that some hosts have and others have not; each is dropped or kept, but tells nothing.
_HELPERS = (
    Frame("decorate_context", "torch/utils/_contextlib.py", 116),
    Frame("inner", "contextlib.py", 81),
    Frame("trace_call", "observability/spans.py", 58),
)
#: Ranks with jitter show one of so many spellings of a place: one place of a published job showed four line numbers.
_VARIANTS = 4


class Wording:
    """Writes frames down. Equal ranks, places and looks read equally, so a process that stands still looks it."""

    def __init__(self, rng: Random, *, jitter: float, unknown: bool) -> None:
        """`jitter`: share of ranks whose lines or helper frames differ from the others'."""
        self.unknown = unknown
        self._seed, self._jitter = rng.randrange(1 << 30), jitter
        self._names: dict[tuple[str, str], str] = {}
        self._made: dict[tuple[tuple[Frame, ...], tuple[Frame, ...], int], tuple[Frame, ...]] = {}
        self._word = Random(self._seed)

    def written(self, calls: tuple[Frame, ...], below: tuple[Frame, ...], rank: int) -> tuple[Frame, ...]:
        mark = (self._seed ^ rank * 2654435761) % 10_007
        variant = mark % _VARIANTS + 1 if mark < self._jitter * 10_007 else 0
        key = (calls, below, variant)
        if key not in self._made:
            self._made[key] = (*self._renamed(_varied(calls, variant)), *below)
        return self._made[key]

    def _renamed(self, calls: tuple[Frame, ...]) -> tuple[Frame, ...]:
        if not self.unknown:
            return calls
        return tuple(
            frame
            if frame.file.startswith(_KNOWN)
            else Frame(
                frame.function if frame.function == "<module>" else self._name("function", frame.function),
                f"{self._name('file', frame.file)}.py",
                frame.line,
            )
            for frame in calls
        )

    def _name(self, kind: str, old: str) -> str:
        if (kind, old) not in self._names:
            words = self._word.sample(_WORDS, 2)
            self._names[kind, old] = f"{words[0]}_{words[1]}_{len(self._names)}"
        return self._names[kind, old]


def _varied(calls: tuple[Frame, ...], variant: int) -> tuple[Frame, ...]:
    """Variants 1 and 2 shift lines, 3 adds a helper frame, 4 does both. The innermost frame keeps its function."""
    if not variant or len(calls) < 4:
        return calls
    frames = list(calls)
    if variant != 3:
        for at in range(2, len(frames), 3):
            old = frames[at]
            frames[at] = Frame(old.function, old.file, old.line + variant)
    if variant >= 3:
        frames.insert(2, _HELPERS[variant % len(_HELPERS)])
    return tuple(frames)
