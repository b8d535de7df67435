"""Compiles the tests, and what they import of ours, before several workers collect them: every worker would do it anew.

    python tools/compile_tests.py

A share of the files goes to each core. What is compiled already is left as it is. pytest rewrites each `assert` of a test, and
has no public name for this step: where its private ones have changed, nothing is done, and the workers are slower.
"""

import importlib.util
import os
import py_compile
import sys
from multiprocessing import Pool
from pathlib import Path

import pytest

try:
    from _pytest.assertion import AssertionState
    from _pytest.assertion.rewrite import PYC_TAIL, _rewrite_test, _write_pyc
except ImportError:
    sys.exit(0)

ROOT = Path(__file__).resolve().parents[1]
TESTS = ROOT / "tests"
#: What tests import as Python compiles it.
ROOMS = ("agent", "server", "models", "proto", "cli", "bench")


def compiled(path: Path) -> Path:
    if not path.is_relative_to(TESTS):
        return Path(importlib.util.cache_from_source(str(path)))
    return path.parent / "__pycache__" / (path.stem + PYC_TAIL)


def is_stale(path: Path) -> bool:
    made = compiled(path)
    return not made.exists() or made.stat().st_mtime < path.stat().st_mtime


def compile_all(paths: list[Path]) -> None:
    rewrite([path for path in paths if path.is_relative_to(TESTS)])
    for path in paths:
        if not path.is_relative_to(TESTS):
            py_compile.compile(str(path), quiet=2)  # the run itself says which cannot be imported


def rewrite(paths: list[Path]) -> None:
    config = pytest.Config.fromdictargs({"plugins": []}, [f"--rootdir={ROOT}"])
    state = AssertionState(config, "rewrite")
    for path in paths:
        compiled(path).parent.mkdir(exist_ok=True)
        try:
            source, code = _rewrite_test(path, config)
        except SyntaxError:
            continue  # the run itself tells which test cannot be collected
        _write_pyc(state, code, source, compiled(path))


def main() -> None:
    sources = (path for folder in ("tests", *ROOMS) for path in sorted((ROOT / folder).rglob("*.py")))
    late = [path for path in sources if is_stale(path)]
    if not late or sys.dont_write_bytecode:
        return
    cores = len(os.sched_getaffinity(0))
    late.sort(key=lambda path: path.stat().st_size)
    with Pool(cores) as pool:
        pool.map(compile_all, [late[core::cores] for core in range(cores)])


if __name__ == "__main__":
    main()
