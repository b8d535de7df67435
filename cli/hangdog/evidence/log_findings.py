"""Puts together what logs and tools say by themselves: whose each finding is, and which machine an address is of."""

from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import replace

from hangdog.evidence.content import Logged
from hangdog.evidence.machine_names import host_in, only_machine
from hangdog.evidence.placed import Placed
from hangdog_models.findings import CLUSTER_WIDE, Finding, Impact, LogEnd
from hangdog_models.reading.collectives import nccl_diag
from hangdog_models.reading.hardware import kernel_log
from hangdog_models.reading.logs import roll_call
from hangdog_models.reading.logs.log_process import SOURCE
from hangdog_models.reading.logs.training_log import Stream
from hangdog_models.reading.printable import escaped
from hangdog_models.topology import Layout

#: Codes of what a launcher says of a process that nobody ended.
BY_ITSELF = ("ended with an error", "segmentation fault", "aborted")


def findings_of(ordered: Sequence[Placed], layout: Layout) -> tuple[Finding, ...]:
    """All findings with the machine of their folder, by path; one that was read again in a later round is one.

    A log that lies in no machine's folder names its machine itself, where NCCL writes it.
    """
    named = _names_of_addresses(ordered, layout)
    hosts = frozenset(stream.host for _, stream in _streams(ordered) if stream.host)
    found: dict[Finding, Finding] = {}
    for placed, host, finding in _all(ordered, layout):
        rank = placed.name.rank if finding.rank is None else finding.rank
        placed_by_rank = rank is not None and bool(layout.machines or layout.ranks_per_machine)
        named_machine = "" if finding.source == kernel_log.SOURCE and _place(placed, layout) else finding.machine
        if not layout.machines and host == _stands_for(placed, layout):
            host = host_in(placed.name.path, hosts) or host
        machine = named_machine or placed.name.machine or ("" if placed_by_rank else host)
        peers = tuple(dict.fromkeys(named.get(peer, peer) for peer in finding.peers))
        whose = replace(finding, rank=rank, machine=machine, peers=peers)
        key = replace(whose, times=1)
        if key not in found or found[key].times < whose.times:
            found[key] = whose
    return (*found.values(), *_diagnosed(ordered, layout), *_roll_call(ordered))


def _all(ordered: Iterable[Placed], layout: Layout) -> Iterator[tuple[Placed, str, Finding]]:
    """Each finding with its file, and the machine that it is of where neither says so."""
    for placed in ordered:
        if isinstance(placed.content, Logged):
            for stream in placed.content.streams:
                for finding in stream.findings:
                    failed = finding.rank is None and finding.impact in (Impact.CONVICTS, Impact.RESET)
                    machine = _fell(placed.content.streams) or _stands_for(placed, layout) if failed else ""
                    yield placed, stream.host or machine, finding
            machine = _stands_for(placed, layout)
            for finding in placed.content.findings:
                named = finding.source in (SOURCE, *CLUSTER_WIDE)
                yield placed, "" if named else machine, finding


def log_ends(ordered: Iterable[Placed], layout: Layout) -> tuple[LogEnd, ...]:
    """Until when each log goes, with the machine it is of."""
    return tuple(
        replace(end, machine=_place(placed, layout) or end.machine or _stands_for(placed, layout))
        for placed in ordered
        if isinstance(placed.content, Logged)
        for end in placed.content.ends
    )


def _fell(streams: Iterable[Stream]) -> str:
    """The only machine of which the log's launcher says that a process ended by itself; empty where there is no such one."""
    fell = {finding.machine for stream in streams for finding in stream.findings if finding.code in BY_ITSELF}
    return fell.pop() if len(fell) == 1 else ""


def _place(placed: Placed, layout: Layout) -> str:
    """The machine that the file's place, or the job, tells; empty where its lines may tell it."""
    return placed.name.machine or only_machine(layout) or ""


def _stands_for(placed: Placed, layout: Layout) -> str:
    """A tool's output is of some machine, which its file stands for where nothing names it."""
    return only_machine(layout) or f"(machine of {escaped(placed.name.path)})"


def _diagnosed(ordered: Iterable[Placed], layout: Layout) -> tuple[Finding, ...]:
    """What NCCL's diagnostics say of the job, whoever's log they stand in: they name ranks and hosts themselves.

    Where nothing tells how many ranks the job has, the largest communicator is taken for all of it, unless a file is
    called after a rank beyond.
    """
    files = [
        (placed, one) for placed in ordered if isinstance(placed.content, Logged) for one in placed.content.diagnosed
    ]
    world = layout.world_size or layout.product() or max((one.size for _, one in files), default=0)
    beyond = any(placed.name.rank is not None and placed.name.rank >= world for placed in ordered)
    stated = nccl_diag.of_job((one for _, one in files), 0 if beyond else world)
    places = bool(layout.machines or layout.ranks_per_machine)
    return tuple(dict.fromkeys(replace(one, machine="") if places and one.rank is not None else one for one in stated))


def _streams(ordered: Iterable[Placed]) -> Iterator[tuple[Placed, Stream]]:
    for placed in ordered:
        if isinstance(placed.content, Logged):
            for stream in placed.content.streams:
                yield placed, stream


def _roll_call(ordered: Iterable[Placed]) -> tuple[Finding, ...]:
    logs, speakers = [], set()
    for placed, stream in _streams(ordered):
        if stream.own and (rank := placed.name.rank if stream.rank is None else stream.rank) is not None:
            speakers.add(rank)
        if stream.arrivals is not None:
            logs.append(stream.arrivals)
    return roll_call.unheard(logs, speakers)


def _names_of_addresses(ordered: Iterable[Placed], layout: Layout) -> Mapping[str, str]:
    """The machine of each address that a log calls its own; one that two machines claim is nobody's."""
    on = {rank: machine for machine, ranks in layout.machines.items() for rank in ranks}
    found: dict[str, set[str]] = {}
    for placed, stream in _streams(ordered):
        rank = placed.name.rank if stream.rank is None else stream.rank
        machine = placed.name.machine or (on.get(rank) if rank is not None else None)
        if machine is None and rank is not None and layout.ranks_per_machine:
            machine = f"node-{rank // layout.ranks_per_machine}"
        machine = machine or stream.host
        for address in stream.addresses if machine else ():
            found.setdefault(address, set()).add(machine)
    return {address: machines.pop() for address, machines in found.items() if len(machines) == 1}
