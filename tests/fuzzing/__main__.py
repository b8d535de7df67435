"""Fuzzes the readers of foreign evidence.

    python tests/fuzzing READER [RUNS] [SEED]      READER: one of those below, or all

With atheris in the environment (`pip install atheris`) its coverage guides the inputs; otherwise seeds are mutated
blindly, which is repeatable: the same seed gives the same inputs. Ends with status 1 at the first input that fails,
which is printed.
"""

import argparse
import sys
import time
from collections.abc import Iterator
from pathlib import Path
from types import FunctionType

sys.path.insert(0, str(Path(__file__).parents[1]))

from fuzzing.attempts import attempt, run
from fuzzing.damage import LARGEST, written
from fuzzing.readers import TARGETS
from fuzzing.seeds import SEEDS


def _functions_of_readers() -> Iterator[FunctionType]:
    for name, module in list(sys.modules.items()):
        if name.startswith("hangdog_models.reading."):
            for value in vars(module).values():
                methods = vars(value).values() if isinstance(value, type) else (value,)
                yield from (m for m in methods if isinstance(m, FunctionType) and m.__module__ == name)


def guided(name: str, runs: int) -> bool:
    """Fuzzes with atheris; does not return unless it is not there (its fuzzer ends the process)."""
    try:
        import atheris  # type: ignore[import-not-found, import-untyped, unused-ignore]
    except ImportError:
        return False
    import tempfile

    with tempfile.TemporaryDirectory() as corpus:
        for number, seed in enumerate(SEEDS[name]):
            (Path(corpus) / str(number)).write_bytes(written(seed))
        for function in _functions_of_readers():  # in place; to watch the whole interpreter makes it ten times slower
            atheris.instrument_func(function)
        atheris.Setup(
            ["fuzz", corpus, f"-runs={runs}", f"-max_len={LARGEST}", "-timeout=10"], lambda data: attempt(name, data)
        )
        atheris.Fuzz()
    return True


def main() -> None:
    parser = argparse.ArgumentParser(
        prog="tests/fuzzing", description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("reader", nargs="?", default="all", choices=["all", *TARGETS])
    parser.add_argument("runs", nargs="?", type=int, default=100_000, help="inputs for each reader")
    parser.add_argument("seed", nargs="?", type=int, default=0, help="gives other inputs")
    parser.add_argument("--blind", action="store_true", help="without atheris, also where it is")
    given = parser.parse_args()
    if given.reader != "all" and not given.blind and guided(given.reader, given.runs):
        return
    for target in TARGETS if given.reader == "all" else (given.reader,):
        begin = time.perf_counter()
        slowest = run(target, given.runs, given.seed)
        took = time.perf_counter() - begin
        print(f"{target}: {given.runs} inputs in {took:.0f} s, the slowest {1000 * slowest:.0f} ms", flush=True)


if __name__ == "__main__":
    main()
