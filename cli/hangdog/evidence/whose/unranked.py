"""Numbers processes of which nothing tells the ranks, so that a paste or a folder of dumps named by process ids is judged.

A folder with one text for each machine (`srun --output=trace-%N.out ... py-spy dump`) also tells the machines, and which of them
lacks a stack that the others have.
"""

import re
from collections import Counter
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field, replace
from itertools import chain

from hangdog.evidence.content import OWNERLESS, Failure, StackFile
from hangdog.evidence.naming import without_round
from hangdog.evidence.placed import Placed
from hangdog.evidence.whose.placing import Placing
from hangdog.evidence.whose.trainers import TITLE, holds_several, places_in, program_of, trainers
from hangdog_models.counts import counted
from hangdog_models.ranks import Rank
from hangdog_models.reading.stacks.dumped_process import DumpedProcess
from hangdog_models.stack import Reason

#: Packages whose frames a trainer or an inference worker has in some thread, and a logger or a dashboard has not.
_LIBRARIES = (
    "torch/",
    "jax/",
    "jaxlib/",
    "megatron/",
    "deepspeed/",
    "vllm/",
    "sglang/",
    "paddle/",
    "tensorflow/",
    "horovod/",
)
#: The machine in a file's name, between what says that it holds stacks and how it ends.
_MACHINE = re.compile(r"(?:(?:trace|py-?spy|stacks?|dumps?|out|log)[-_.])?(.+?)(?:\.[A-Za-z]{1,4})?")
_DIGITS = re.compile(r"(\d+)")
#: How many a note lists one by one.
_SHOWN = 8

_Key = tuple[object, ...]


@dataclass(frozen=True, slots=True)
class _Unranked:
    """One process of one file; `key` is the same in all looks at it, and orders processes."""

    file: Placed
    dumped: DumpedProcess
    key: _Key

    @property
    def machine(self) -> str:
        return self.file.name.machine or ""


@dataclass(slots=True)
class _Numbers:
    """The number of each process, and those of processes that should be there: which machine, and how many it has."""

    of: dict[_Key, Rank] = field(default_factory=dict)
    absent: dict[Rank, tuple[str, int]] = field(default_factory=dict)


def numbered_by_order(found: Sequence[Placed], placing: Placing) -> tuple[list[Placed], tuple[str, ...]]:
    """The same evidence with a number in place of each trainer's rank, and notes; as it is where anything tells a rank.

    Inference servers say a worker's place in its name. Else numbers go by machine, process id and file, and are no ranks: which
    trainer is which, and how many more there are, is not known. Launchers get none: they wait by nature and would stand out.
    """
    if any(not isinstance(placed.content, OWNERLESS) or _speaks(placed) for placed in placing.placed):
        return list(found), ()
    processes = list(chain.from_iterable(map(_processes, _with_machines(found))))
    families = Counter({one.key: program_of(one.dumped.command) for one in processes}.values())
    chosen = _training({program for program, number in families.items() if number == max(families.values())}, processes)
    kept = [one for one in processes if program_of(one.dumped.command) in chosen]
    if not kept:
        return list(found), ()
    numbers = _numbers(kept)
    rest = [placed for placed in found if not isinstance(placed.content, StackFile)]
    rest += [_absent(kept, *entry) for entry in numbers.absent.items()]
    return [*rest, *_parts(kept, numbers)], _notes(kept, numbers, sum(families.values()) - len(numbers.of))


def _training(programs: set[str], processes: Sequence[_Unranked]) -> set[str]:
    """Of programs that equally many processes run, those in which a library for training was seen; all where none was."""
    if len(programs) < 2:
        return programs
    return {
        program_of(one.dumped.command)
        for one in processes
        if program_of(one.dumped.command) in programs
        and any(frame.file.startswith(_LIBRARIES) for thread in one.dumped.threads for frame in thread.frames)
    } or programs


def _speaks(placed: Placed) -> bool:
    """Whether a log has lines of a known rank."""
    return any(stream.rank is not None for stream in getattr(placed.content, "streams", ()))


def _with_machines(found: Sequence[Placed]) -> list[Placed]:
    """The same, each file with the machine that it is called after, where all hold several processes and none has a machine."""
    stacks = {placed.name.path: placed.content for placed in found if isinstance(placed.content, StackFile)}
    machines = {placed.name.machine for placed in found if placed.name.path in stacks}
    many = len(set(map(without_round, stacks))) > 1 and all(map(holds_several, stacks.values()))
    if not many or machines != {None}:
        return list(found)
    return [_on_its_machine(placed) if placed.name.path in stacks else placed for placed in found]


def _on_its_machine(placed: Placed) -> Placed:
    called = _MACHINE.fullmatch(placed.name.path.rpartition("/")[2])
    return replace(placed, name=replace(placed.name, machine=called[1])) if called else placed


def _processes(placed: Placed) -> list[_Unranked]:
    if not isinstance(placed.content, StackFile):
        return []
    machine, path = placed.name.machine or "", without_round(placed.name.path)
    natural = tuple((int(part), "") if part.isdigit() else (-1, part) for part in _DIGITS.split(path))
    return [
        _Unranked(
            placed, process, (machine, process.pid or 0, () if process.pid else (natural, process.local or 0, at))
        )
        for at, process in enumerate(trainers(placed.content))
    ]


def _numbers(processes: Sequence[_Unranked]) -> _Numbers:
    """By the places in their names where those tell them apart, else in order, with room for those that are absent."""
    places = {one.key: places_in(one.dumped.command) for one in processes}
    inner = [place["TP"] for place in places.values() if "TP" in place and not place.get("PP")]
    if len(set(inner)) == len(places):
        return _Numbers({key: Rank(place["TP"]) for key, place in places.items()})
    numbers = _Numbers()
    machines = Counter({one.key: one.machine for one in processes}.values())
    most = _usual(machines)
    on = {one.key: one.machine for one in processes}
    order = sorted(on, key=lambda key: (on[key], [places[key].get(dim, -1) for dim in ("DP", "PP", "TP")], key))
    for at, key in enumerate(order):
        numbers.of[key] = Rank(len(numbers.of) + len(numbers.absent))
        machine = on[key]
        if order[at + 1 :] and on[order[at + 1]] == machine:
            continue
        for _ in range(most - machines[machine]):
            numbers.absent[Rank(len(numbers.of) + len(numbers.absent))] = machine, machines[machine]
    return numbers


def _usual(machines: Counter[str]) -> int:
    """How many processes most machines have, where none has more; 0 where machines are few, or not alike."""
    most = max(machines.values(), default=0)
    alike = sum(number == most for number in machines.values())
    return most if len(machines) > 2 and 2 * alike > len(machines) else 0


def _parts(processes: Sequence[_Unranked], numbers: _Numbers) -> Iterator[Placed]:
    """The stacks of each process. If a text has all of its processes several times, these are so many looks at them."""
    looks: dict[tuple[str, _Key], list[_Unranked]] = {}
    for one in processes:
        looks.setdefault((one.file.name.path, one.key), []).append(one)
    times = {len(found) for found in looks.values()}
    repeated = len(times) == 1 and all(one.file.name.round is None for one in processes)
    for found in looks.values():
        for look, one in enumerate(found if repeated else found[:1]):
            name = replace(
                one.file.name,
                rank=numbers.of[one.key],
                round=look if len(found) > 1 and repeated else one.file.name.round,
            )
            yield Placed(name, StackFile((one.dumped,)), from_text=True)


def _absent(processes: Sequence[_Unranked], number: Rank, whose: tuple[str, int]) -> Placed:
    machine, has = whose
    file = next(one.file for one in processes if one.machine == machine)
    what = f"hangdog: {Reason.NO_EVIDENCE}: its machine has {counted(has, 'stack')}, and most have more"
    return Placed(replace(file.name, rank=number), Failure(what), from_text=True)


def _notes(kept: Sequence[_Unranked], numbers: _Numbers, others: int) -> tuple[str, ...]:
    called = {numbers.of[one.key]: _called(one) for one in reversed(kept)}
    listed = [f"{number} is {called[number]}" for number in sorted(called)[:_SHOWN]]
    more = f", and {len(called) - _SHOWN} more" if len(called) > _SHOWN else ""
    notes = [f"nothing tells the ranks of these processes, so they are numbered: {', '.join(listed)}{more}"]
    if others:
        notes.append(f"not numbered: {counted(others, 'process', 'processes')} of other programs, which may not train")
    return tuple(notes)


def _called(one: _Unranked) -> str:
    title, pid = TITLE.match(one.dumped.command), one.dumped.pid
    name = (
        title[0] if title else f"process {pid}" if pid is not None else f"that of {without_round(one.file.name.path)}"
    )
    return f"{name} on {one.machine}" if one.machine else name
