"""Recognises stacks in text form and reads them with the reader of their tool, whatever was pasted around them."""

from collections.abc import Callable, Iterator
from dataclasses import dataclass, replace

from hangdog_models.errors import UnreadableEvidence
from hangdog_models.ranks import Rank
from hangdog_models.reading.limits import DEFAULTS, Limits
from hangdog_models.reading.stacks import (
    bare_frames,
    eu_stack,
    faulthandler,
    interrupted,
    kernel_stack,
    perf_script,
    pyspy_raw,
    pyspy_text,
    pystack,
    stacks_in_log,
)
from hangdog_models.reading.stacks.debuggers import gdb, gdb_python, lldb
from hangdog_models.reading.stacks.dumped_process import DumpedProcess
from hangdog_models.reading.stacks.pasted import plain
from hangdog_models.reading.stacks.rank_sections import Section, sections_of
from hangdog_models.reading.stacks.samplers import austin


@dataclass(frozen=True, slots=True)
class Form:
    """What one tool prints. `beside`: another tool's output may stand in the same text, as of two commands of gdb."""

    recognises: Callable[[str], bool]
    read: Callable[[str, Limits], tuple[DumpedProcess, ...]]
    what: str
    beside: bool = False


#: The first form that recognises a text reads it; with it those that may stand beside it.
FORMS = (
    Form(pyspy_text.recognises, pyspy_text.read, "the text of py-spy dump"),
    Form(pystack.recognises, pystack.read, "the text of pystack"),
    Form(gdb.recognises, gdb.read, "the text of gdb", beside=True),
    Form(gdb_python.recognises, gdb_python.read, "the text of gdb's py-bt", beside=True),
    Form(lldb.recognises, lldb.read, "the text of lldb"),
    Form(eu_stack.recognises, eu_stack.read, "the text of eu-stack"),
    Form(perf_script.recognises, perf_script.read, "the text of perf script"),
    Form(kernel_stack.recognises, kernel_stack.read, "/proc/<pid>/stack"),
    Form(pyspy_raw.recognises, pyspy_raw.read, "the lines of py-spy record"),
    Form(austin.recognises, austin.read, "the samples of austin"),
    Form(bare_frames.recognises, bare_frames.read_text, "frames alone"),
)
#: Characters of a text, or of a rank's part of it, that must be enough to tell its form.
_HEAD = 1 << 15


def form_of(head: str) -> str:
    """What a text that begins like this is, in words; empty where it holds no stacks that its beginning tells of."""
    text = plain(head)
    for section in sections_of(text, DEFAULTS):
        if _is_stack(section):
            return "stacks of ranks"
    return next((form.what for form in FORMS if form.recognises(text)), "")


def read(text: str, limits: Limits = DEFAULTS) -> tuple[DumpedProcess, ...]:
    """The processes of a text, those below a header of ranks with these ranks; raises UnreadableEvidence."""
    text = plain(text)
    sections = sections_of(text, limits)
    found: list[DumpedProcess] = []
    problem: UnreadableEvidence | None = None
    for section in sections:
        try:
            found += _read_section(section, limits)
        except UnreadableEvidence as error:
            problem = problem or error
    if found:
        return tuple(found)
    if problem is not None:
        raise problem
    return tuple(_read_forms(text, limits))


def _read_forms(text: str, limits: Limits) -> Iterator[DumpedProcess]:
    head = text[:_HEAD]
    chosen = [form for form in FORMS if form.recognises(head)]
    if not chosen:
        raise UnreadableEvidence("holds no stack in a form that is known", code="no-stack")
    for form in chosen if chosen[0].beside else chosen[:1]:
        if form.beside or form is chosen[0]:
            yield from form.read(text, limits)


def _is_stack(section: Section) -> bool:
    text = "\n".join(section.lines)
    if any(form.recognises(text) for form in FORMS) or faulthandler.recognises(text) or interrupted.read(text):
        return True
    return bare_frames.read(section.lines, DEFAULTS) is not None


def _read_section(section: Section, limits: Limits) -> list[DumpedProcess]:
    text = "\n".join(section.lines)
    ranks: tuple[Rank, ...] = tuple(sorted(section.ranks))
    if any(form.recognises(text[:_HEAD]) for form in FORMS):
        processes = tuple(_read_forms(text, limits))
    elif found := stacks_in_log.read(text, None, limits):  # the ranks of its lines count more
        processes = found
    else:
        alone = bare_frames.read(section.lines, limits)
        processes = (alone,) if alone is not None else ()
    return [
        process if process.ranks else replace(process, ranks=ranks, local=None, host=section.host)
        for process in processes
    ]
