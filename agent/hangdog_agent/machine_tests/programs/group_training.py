"""Trains the small GPT on all ranks of a group together, and ends badly if it hangs, crashes, or ranks find other bits.

Each step is done twice: once by every rank for itself from equal inputs, where devices that are alike must find the
same bits, and once as one job, where all must hold the same weights after their gradients were summed.
"""

from __future__ import annotations

import sys
from pathlib import Path
from typing import Any

import torch.distributed as dist

from hangdog_agent.machine_tests.programs.device import key, steady
from hangdog_agent.machine_tests.programs.layout import ParallelLayout, join
from hangdog_agent.machine_tests.programs.minigpt import GptStage, step, weights
from hangdog_agent.machine_tests.programs.report_line import ReportLines

#: Items that are named where ranks differ: the first is where it began.
_NAMED = 2


def together(asked: dict[str, Any]) -> ParallelLayout:
    """All ranks as data-parallel ones, in the group that they have joined."""
    layout = ParallelLayout(None, asked["device"])
    layout.rank = layout.dp_at = asked["rank"]
    layout.dp, layout.data = asked["world"], dist.group.WORLD
    return layout


def odd(answers: list[tuple[str, dict[str, str]]]) -> list[str]:
    """The items in which answers of one key differ, each with the ranks that hold other bits than most."""
    found = []
    for cohort in dict.fromkeys(name for name, _ in answers):
        alike = {rank: items for rank, (name, items) in enumerate(answers) if name == cohort}
        for item in next(iter(alike.values())):
            marks = [items[item] for items in alike.values()]
            usual = max(marks, key=marks.count)
            if others := [str(rank) for rank, items in alike.items() if items[item] != usual]:
                found.append(f"{item} differs on rank {', '.join(others)}")
    return found


def main() -> None:
    stated = ReportLines()
    asked = stated.asked
    device = asked["device"]
    stated.at("start")
    steady(asked["threads"])
    stated.at("the meeting of all ranks")
    join(asked, device)
    alone, all_ = ParallelLayout(None, device), together(asked)
    cohort = key(device, __file__, str(Path(__file__).with_name("minigpt.py")))
    for kind in asked["kinds"]:
        start = weights(GptStage(kind, asked["width"], asked["layers"], alone), alone)
        for turn in range(asked["steps"]):
            stated.at(f"step {turn} of {kind}")
            own = step(kind, asked, alone, device, start)
            summed = step(kind, asked, all_, device, start)
            updated = {item: mark for item, mark in summed.items() if item.startswith("updated")}
            answers: list[Any] = [None] * asked["world"]
            dist.all_gather_object(answers, (cohort, own, updated))
            wrong = odd([(name, items) for name, items, _ in answers]) or odd([("", items) for _, _, items in answers])
            if wrong:  # all ranks know; one says it
                print(f"step {turn} of {kind}: " + "; ".join(wrong[:_NAMED]), file=sys.stderr)
                dist.destroy_process_group()
                sys.exit(1 if asked["rank"] == 0 else 0)
    dist.destroy_process_group()
    stated.found({"steps": asked["steps"]})


if __name__ == "__main__":
    main()
