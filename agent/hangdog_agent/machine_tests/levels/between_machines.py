"""Level 3, between machines: neighbours exchange known data in turn, then all gather from all; every member tells the same."""

import threading
import time
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any

from hangdog_agent.machine_tests.group import Group
from hangdog_agent.machine_tests.level import LevelOutcome, LevelResult, MachineConviction, PartKind, contained
from hangdog_agent.machine_tests.levels.exchange import GB, Arrived, arrived, damaged, gathered, rates, slow
from hangdog_agent.machine_tests.members import GroupMember
from hangdog_agent.machine_tests.run_members import run
from hangdog_agent.machine_tests.settings import LevelSettings
from hangdog_agent.machine_tests.torch_engine import Engine, Probe, read
from hangdog_agent.machine_tests.untrusted_values import number, numbers, table, text
from hangdog_models.planning.pairs import Pair

#: What the members get at the end of the level to say who was silent.
_LAST_WORDS_S = 15.0


@dataclass(slots=True)
class Between:
    """The level. A link between two machines convicts neither: who is broken shows with other partners, which are the planner's."""

    engine: Engine
    probe: Probe
    settings: LevelSettings
    group: Group
    patience_s: float = 0.0

    number = 3
    name = "between machines"

    @property
    def deadline_s(self) -> float:
        return self.settings.between_s

    def supported(self) -> str:
        return self.probe.why or self.group.wrong()

    def run(self, deadline_s: float, stop: threading.Event) -> tuple[LevelResult, ...]:
        """One process for this machine; the others start theirs, with the same meeting point, within the deadline."""
        names = self.group.names
        ran = run([self._member(deadline_s)], deadline_s, stop=stop)
        results = list(contained(3, ran))
        report = read(ran.members[0])
        everything = [
            one
            for reported in _lists(report.found)
            for one in arrived([each for each in reported if isinstance(each, dict)], names)
        ]
        links = tuple(f"{low} with {high}: {rate / GB:.3g} GB/s" for (low, high), rate in rates(everything).items())
        if not report.found or "silent" in report.found:
            silent = [names[int(at)] for at in numbers(report.found, "silent") if 0 <= at < len(names)]
            why = text(report.found, "why")
            words = f"{', '.join(silent)} did not answer: {why}" if silent else why or report.words
            at = f" (at: {report.at})" if report.found else ""
            one = LevelResult(3, "group", LevelOutcome.INCONCLUSIVE, words + at, evidence=links, seconds=ran.seconds)
            return (*results, one)
        mine = gathered({names[self.group.member]: report.found}, names)
        results += self._judged(everything, tuple(mine), table(report.found, "gather"), links)
        return tuple(replace(one, seconds=ran.seconds) for one in results)

    def _judged(
        self, everything: Sequence[Arrived], at_all: Sequence[Arrived], gather: Mapping[str, Any], links: Sequence[str]
    ) -> list[LevelResult]:
        s, often = self.settings, self.settings.pair_repetitions
        measured = rates(everything)
        late = slow(measured, s.between_drop if self.probe.accelerators else s.pair_drop_cpu, s.between_floor_gb_per_s)
        wrong = {
            one.pair: f"from {one.sender} to {one.receiver}: {one.wrong} wrong bytes" for one in everything if one.wrong
        }
        among = damaged(at_all)
        took = sorted(numbers(gather, "seconds"))
        rate = (
            number(gather, "bytes") * len(self.group.names) / took[len(took) // 2] / GB if took and took[0] > 0 else 0.0
        )
        measures = {"gather_gb_per_s": rate, "slowest_gb_per_s": min(measured.values(), default=0.0) / GB}
        results = []
        for test, bad, good, how in (
            ("integrity", wrong, "everything arrived as it was sent", "data arrives wrong"),
            ("gathering", among, f"all gathered from all at {rate:.3g} GB/s", "data gathered from all arrives wrong"),
            ("bandwidth", late, f"all {len(measured)} links are alike", "slow"),
        ):
            one = LevelResult(
                3, test, LevelOutcome.PASS, good, evidence=tuple(links), measures=measures, repetitions=often
            )
            if bad:
                words = f"{how}: " + "; ".join(f"{low} with {high}: {why}" for (low, high), why in bad.items())
                # gathering goes from neighbour to neighbour: which of them damaged the data does not show
                convicted = (
                    (MachineConviction(PartKind.GROUP, self.group.names),)
                    if test == "gathering"
                    else _links(tuple(bad))
                )
                one = replace(one, outcome=LevelOutcome.FAIL, message=words, convicts=convicted)
            results.append(one)
        return results

    def _member(self, deadline_s: float) -> GroupMember:
        s = self.settings
        accelerated = bool(self.probe.accelerators)
        patience_s = self.patience_s or max(deadline_s / 2, deadline_s - _LAST_WORDS_S)
        asked = {
            "name": self.group.names[self.group.member],
            "device": "cuda:0" if accelerated else "cpu",
            "threads": 1,
            "rank": self.group.member,
            "world": self.group.members,
            "meet": f"tcp://{self.group.meet}",
            "schedule": "ring",
            "bytes": s.pair_bytes if accelerated else s.pair_bytes_cpu,
            "repetitions": s.pair_repetitions,
            "passes": s.pair_passes,
            "until": time.monotonic() + patience_s,
        }
        way = self.group.interface()
        chosen = {
            name: way
            for name in ("GLOO_SOCKET_IFNAME", "NCCL_SOCKET_IFNAME")
            if way and name not in self.engine.environ
        }
        return self.engine.member("pairs", asked, self.group.names[self.group.member], chosen)


def _lists(found: Mapping[str, Any]) -> list[list[Any]]:
    """What all members told; where they never came to that, what this one knows."""
    reported = found.get("all", [found.get("pairs")])
    return [one for one in reported if isinstance(one, list)] if isinstance(reported, list) else []


def _links(pairs: Sequence[Pair]) -> tuple[MachineConviction, ...]:
    return tuple(MachineConviction(PartKind.LINK, pair) for pair in pairs)
