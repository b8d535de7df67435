"""Reads the table that `dcgmi diag` prints without `-j`, as the JSON document of DCGM 3.1 that says the same.

Up to 3.3 a result is `Fail - GPUs: 1, 3` and its reason a row `Warning` that begins with the GPU. 4.x lists each entity in
a row of its own (`GPU1: Fail`). Text is cut into pieces of 45 characters, wherever a word may stand (DCGM, dcgmi/Diag.cpp).
"""

import re
from collections.abc import Iterator
from dataclasses import dataclass, field

from hangdog_models.errors import UnreadableEvidence
from hangdog_models.reading.stacks.dumped_process import lines_of

KEY = "DCGM GPU Diagnostic"

_HEAD = re.compile(r"^[ \t]{0,16}\|\s{0,40}Diagnostic\s{1,40}\|\s{0,40}Result\s{1,60}\|", re.MULTILINE)
#: A section of which the table's head is cut off, and a result in it.
_TITLED = re.compile(
    r"^[ \t]{0,16}[|+]-----  (?:Deployment|Metadata|Hardware|Integration|Stress)  -{1,60}\+-{20,80}\+\s{1,40}\|[^|\n]{1,60}\|\s{1,8}(?:Pass|Fail|Skip|Warn)\b",
    re.MULTILINE,
)
#: Its lines have 78 columns; what is much longer is another tool's.
_WIDEST = 200
#: Characters of text in a row.
_PIECE = 45
#: Characters kept of one reason; DCGM itself cuts off at some 500.
_REASON = 2_000
#: Tests and reasons kept of a file.
_MOST = 2_000
_STATUS = r"(Pass|Fail|Skip|Warn|Not Run)\b"
#: `Pass`, `Fail - All`, `Fail - GPUs: 1, 3`
_RESULT = re.compile(_STATUS + r"(?: - (?:All|GPUs?:([\d, ]*)))?\s*")
#: `GPU1: Fail`
_ENTITY = re.compile(r"([A-Za-z][A-Za-z ]{0,20}?)\s?(\d{1,4}): " + _STATUS + r"\s*")
_REMARK = re.compile(r"(Warning|Error|Info)\b(?::\s*(.*))?")
_GPU = re.compile(r"\s*GPU\s?(\d{1,4})\b")
_MORE_GPUS = re.compile(r"[\d, ]+")
_SECTION = re.compile(r"[|+]-----  (\w[\w ]{0,30}?)  -")


@dataclass(slots=True)
class _Remark:
    """A reason and the GPU that it is about, if it names one."""

    gpu: str
    text: str


@dataclass(slots=True)
class _Test:
    """A test as its rows tell it: (status, GPUs) of each result, other entities by name, and why."""

    name: str
    results: list[tuple[str, str]] = field(default_factory=list)
    others: list[tuple[str, str]] = field(default_factory=list)
    remarks: list[_Remark] = field(default_factory=list)


def recognises(text: str) -> bool:
    """Whether a text holds the head of the table, or the title of one of its sections with a test below it."""
    return _HEAD.search(text) is not None or _TITLED.search(text) is not None


def read(text: str) -> dict[str, object]:
    """The document that says what the tables in a text say; raises UnreadableEvidence where no test has a result.

    A file that was cut off ends with the last whole row.
    """
    tests = _tests(text)
    if not tests:
        raise UnreadableEvidence("a table of dcgmi diag without any result", code="damaged-gpu-report")
    listed = [{"name": test.name, "results": list(_results(test))} for test in tests]
    return {KEY: {"test_categories": [{"category": "of the table", "tests": listed}]}}


def _tests(text: str) -> list[_Test]:
    tests: list[_Test] = []
    section, open_ = "", False
    for line in lines_of(text[: text.rfind("\n") + 1]):
        row = line.strip()
        if len(row) > _WIDEST or len(tests) >= _MOST:
            continue
        if found := _SECTION.match(row):
            section, open_ = found[1], False
        elif (cells := row.split("|", 2)) and len(cells) == 3 and not cells[0]:
            open_ = _take(tests, section, cells[1].strip(), _piece(cells[2]), open_)
        else:
            open_ = False
    return [test for test in tests if test.results or test.others]


def _take(tests: list[_Test], section: str, name: str, value: str, open_: bool) -> bool:
    """Takes a row; whether text goes on in the next one."""
    test = tests[-1] if tests else None
    if remark := _REMARK.fullmatch(name):
        if test is None or (remark[1] == "Error" and section == "Deployment"):
            test = _Test(section or "a test", [("Fail", "")])  # what stands there by itself names no test
            tests.append(test)
        gpu = _GPU.match(remark[2] or "") or _GPU.match(value)
        if remark[1] != "Info" and len(test.remarks) < _MOST:
            test.remarks.append(_Remark(gpu[1] if gpu else "", value))
        return remark[1] != "Info"
    if name:
        if found := _RESULT.fullmatch(value):
            tests.append(_Test(name, [(found[1], found[2] or "")]))
        return False
    if test is None:
        return False
    if entity := _ENTITY.fullmatch(value):
        results = test.results if entity[1] == "GPU" else test.others
        results.append((entity[3], entity[2] if entity[1] == "GPU" else f"{entity[1]} {entity[2]}"))
        return False
    if found := _RESULT.fullmatch(value):
        test.results.append((found[1], found[2] or ""))
    elif open_ and test.remarks:
        test.remarks[-1].text = (test.remarks[-1].text + value)[:_REASON]
        return True
    elif test.results and test.results[-1][1] and _MORE_GPUS.fullmatch(value):
        test.results[-1] = (test.results[-1][0], test.results[-1][1] + value)
    return False


def _piece(cell: str) -> str:
    """The text of a cell, with the blanks that a word of the next row may need."""
    return cell.removesuffix("|")[1 : _PIECE + 1].ljust(_PIECE) if len(cell) > _PIECE else cell.removesuffix("|")[1:]


def _results(test: _Test) -> Iterator[dict[str, object]]:
    """A result for each GPU that is named, with its reasons; one of nobody for reasons that name none of those."""
    left = list(test.remarks)
    named = [(status, gpu) for status, gpus in test.results for gpu in re.findall(r"\d{1,4}", gpus)]
    for status, gpu in named:
        own = [one.text for one in left if one.gpu == gpu]
        left = [one for one in left if one.gpu != gpu]
        yield {"status": status, "gpu_id": gpu, "warnings": [{"warning": one.strip()} for one in own]}
    for status, entity in test.others:
        yield {"status": status, "gpu_ids": "", "name": entity}
    blank = [status for status, gpus in test.results if not gpus]
    if not blank:
        return
    overall = blank[0]
    for gpu in dict.fromkeys(one.gpu for one in left if one.gpu):
        own = [one.text for one in left if one.gpu == gpu]
        yield {"status": overall, "gpu_id": gpu, "warnings": [{"warning": one.strip()} for one in own]}
    of_nobody = [one.text for one in left if not one.gpu]
    explained = len(left) > len(of_nobody) or any(status == overall for status, _ in (*named, *test.others))
    if of_nobody or not explained:
        yield {"status": overall, "warnings": [{"warning": one.strip()} for one in of_nobody]}
