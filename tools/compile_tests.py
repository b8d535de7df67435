"""Compiles the tests before several workers collect them: pytest rewrites each `assert`, and every worker would do it anew.

    python tools/compile_tests.py

A share of the files goes to each core. What is compiled already is left as it is. pytest has no public name for this step:
where its private ones have changed, nothing is done, and the workers are slower.
"""

import os
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


def compiled(path: Path) -> Path:
    return path.parent / "__pycache__" / (path.stem + PYC_TAIL)


def is_stale(path: Path) -> bool:
    made = compiled(path)
    return not made.exists() or made.stat().st_mtime < path.stat().st_mtime


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
    late = [path for path in sorted((ROOT / "tests").rglob("*.py")) if is_stale(path)]
    if not late or sys.dont_write_bytecode:
        return
    cores = len(os.sched_getaffinity(0))
    late.sort(key=lambda path: path.stat().st_size)
    with Pool(cores) as pool:
        pool.map(rewrite, [late[core::cores] for core in range(cores)])


if __name__ == "__main__":
    main()
