"""Reads what NCCL's and RCCL's tests print (`all_reduce_perf`): wrong results, a run that gave up, one machine far behind others.

The forms are those of nccl-tests 2.0 to 2.18 (src/common.cu, src/util.cu). The tests say which machines took part, and not which
of them was at fault. A table that ends before its last size may have been copied so: what is missing was not printed.
"""

import re
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field
from statistics import median

from hangdog_models.errors import UnreadableEvidence
from hangdog_models.findings import Finding, Impact
from hangdog_models.reading.limits import DEFAULTS, Limits
from hangdog_models.reading.logs.log_process import SOURCE
from hangdog_models.reading.printable import printable
from hangdog_models.reading.stacks.dumped_process import lines_of

_BEGINS = re.compile(r".{0,80}?# nThread \d{1,6} nGpus \d{1,6} minBytes (\d{1,18}) maxBytes (\d{1,18}) .{1,300}")
_CALLED = re.compile(r".{0,80}?# Collective test starting: (\w{1,64})")
_RANK = re.compile(
    r".{0,80}?#\s{1,8}Rank\s{1,8}(\d{1,7}) (?:Group\s{1,8}\d{1,7} )?Pid\s{1,8}\d{1,9} on\s{1,80}(\S{1,253}) device\s{1,4}\d{1,4} \[.{1,20}\].{0,120}"
)
_HEADER = re.compile(r".{0,80}?#\s{1,16}size\s{1,20}count\s{1,20}type\b.{0,200}#wrong\b.{0,20}")
#: Size, count, type, and the operation with its root where it has them; then time, two bandwidths and `#wrong`, each out of
#: place and in place. The tests that have no operation print fewer columns.
_ROW = re.compile(
    r".{0,80}?(?<!\S)(\d{1,18})\s{1,40}\d{1,18}\s{1,20}[a-z]\w{2,15}(?:\s{1,20}[a-z]{2,8})?(?:\s{1,20}-?\d{1,7})?((?:\s{1,20}[\d.]{1,16}\s{1,20}[\d.]{1,16}\s{1,20}[\d.]{1,16}\s{1,20}(?:\d{1,18}|N/A|-?nan)){1,2})\s{0,20}"
)
_TIMEOUT = re.compile(r".{0,80}?(\S{1,253}): Test timeout \((\d{1,9})s\) \S{1,400}")
_FAILED = re.compile(r".{0,80}?# Avg bus bandwidth\s{1,8}: ([\d.e+-]{1,24})\s{1,8}FAILED\s*")
_OVER = re.compile(r".{0,80}?# Out of bounds values : (\d{1,18}) (?:OK|FAILED)\s*")
#: Runs of one text, and machines of one sentence.
_MOST, _SHOWN = 4_096, 4
#: Share of what other machines reach, below which one is behind: the tests of equal machines differ by some per cent.
_BEHIND = 0.6
#: Bytes from which an operation is bound by its links, and runs of single machines that must be there to compare.
_LARGE, _ENOUGH = 1 << 24, 3


@dataclass(slots=True)
class _TestRun:
    """One run of a test. `best` is the highest bandwidth of a large operation, in GB/s."""

    test: str
    largest: int = 0
    hosts: dict[str, int] = field(default_factory=dict)
    wrong: dict[int, int] = field(default_factory=dict)
    last: int = 0
    best: float = 0.0
    over: bool = False
    gave_up: list[tuple[str, str]] = field(default_factory=list)
    below: str = ""

    @property
    def only_host(self) -> str:
        return next(iter(self.hosts)) if len(self.hosts) == 1 else ""

    @property
    def named(self) -> str:
        shown = ", ".join(list(self.hosts)[:_SHOWN]) + (", …" if len(self.hosts) > _SHOWN else "")
        return f"{self.test} over {shown}" if shown else self.test


def recognises(head: str) -> bool:
    """Whether a test begins in a text, or its table does."""
    return any(_BEGINS.fullmatch(line) or _HEADER.fullmatch(line) for line in lines_of(head) if "#" in line)


def read(text: str, limits: Limits = DEFAULTS) -> tuple[Finding, ...]:
    """The findings of all runs of a text; raises UnreadableEvidence where there is none."""
    runs = _runs(text[: limits.file_bytes])
    if not runs:
        raise UnreadableEvidence("not an output of nccl-tests: no table in it", code="damaged-report")
    return (*(finding for run in runs for finding in _of(run)), *_behind(runs))


def _runs(text: str) -> list[_TestRun]:
    runs: list[_TestRun] = []
    test = "the test"
    table = False  # a header without the line above it is a run that was copied without its beginning
    for line in lines_of(text):
        if "#" in line and (called := _CALLED.fullmatch(line)):
            test = called[1]
        elif "#" in line and (begins := _BEGINS.fullmatch(line)):
            if len(runs) >= _MOST:
                break
            runs.append(_TestRun(test, int(begins[2])))
            table = False
        elif "#" in line and _HEADER.fullmatch(line):
            if not runs or table:
                runs.append(_TestRun(test))
            table = True
        elif runs:
            _take(runs[-1], line)
    return runs


def _take(run: _TestRun, line: str) -> None:
    if "#" in line:
        if rank := _RANK.fullmatch(line):
            host = printable(rank[2], 253)
            run.hosts[host] = run.hosts.get(host, 0) + 1
        elif failed := _FAILED.fullmatch(line):
            run.below = failed[1]
        elif _OVER.fullmatch(line):
            run.over = True
    elif gave_up := _TIMEOUT.fullmatch(line):
        if len(run.gave_up) < _MOST:
            run.gave_up.append((printable(gave_up[1], 253), gave_up[2]))
    elif row := _ROW.fullmatch(line):
        values = row[2].split()
        run.last = int(row[1])
        wrong = sum(int(value) for value in values[3::4] if value.isdigit())
        if wrong and (run.last in run.wrong or len(run.wrong) < _MOST):
            run.wrong[run.last] = run.wrong.get(run.last, 0) + wrong
        if run.last >= _LARGE:
            run.best = max([run.best, *(_number(value) for value in values[2::4])])


def _number(value: str) -> float:
    try:
        return float(value)
    except ValueError:
        return 0.0


def _of(run: _TestRun) -> Iterator[Finding]:
    if run.wrong:
        size, count = next(iter(run.wrong.items()))
        what = f"{run.named} gave wrong results, at {size} bytes in {count} values: a device, a link, or settings such as ACS and IOMMU"
        impact = Impact.SUSPECTS if run.only_host else Impact.TELLS_NOTHING
        yield Finding(SOURCE, "wrong results", impact, what, run.only_host)
    if run.gave_up:
        host, seconds = run.gave_up[0]
        what = f"{run.named} made no progress for {seconds} s after {run.last} bytes, says {host}"
        impact = Impact.SUSPECTS if run.only_host else Impact.TELLS_NOTHING
        yield Finding(SOURCE, "test stuck", impact, what, run.only_host)
    elif not run.over and run.largest > run.last:
        what = f"{run.named} is shown up to {run.last} of {run.largest} bytes: it hung there, or the text was cut off"
        yield Finding(SOURCE, "test unfinished", Impact.TELLS_NOTHING, what)
    if run.below:
        what = f"{run.named} reached {run.below} GB/s, less than was asked for"
        yield Finding(SOURCE, "slow test", Impact.SLOWS if run.only_host else Impact.TELLS_NOTHING, what, run.only_host)


def _behind(runs: Sequence[_TestRun]) -> Iterator[Finding]:
    """Machines that alone reach far less than others do alone, in the same test with as many GPUs."""
    kinds: dict[tuple[str, int], dict[str, float]] = {}
    for run in runs:
        if run.only_host and run.best:
            best = kinds.setdefault((run.test, run.hosts[run.only_host]), {})
            best[run.only_host] = max(run.best, best.get(run.only_host, 0.0))
    for (test, _), best in kinds.items():
        usual = median(best.values()) if len(best) >= _ENOUGH else 0.0
        for host, reached in best.items():
            if reached < _BEHIND * usual:
                what = f"{test} on {host} alone reaches {reached:g} GB/s, on {len(best) - 1} others {usual:g}"
                yield Finding(SOURCE, "slow test", Impact.SLOWS, what, host)
