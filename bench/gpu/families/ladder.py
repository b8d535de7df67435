"""The levels of `hangdog test` on a sound device, again and again; then with a fault in it, one for each test."""

import json
import os
import socket
import threading
import time
from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import replace
from functools import lru_cache
from pathlib import Path
from typing import Any

from gpu.families import ladder_faults, nvml_here
from gpu.kit import Measured, Part, Stand
from hangdog_agent.checks.check_paths import CheckPaths
from hangdog_agent.machine_tests.gpu_settings_backup import GpuSettingsBackup
from hangdog_agent.machine_tests.group import Group
from hangdog_agent.machine_tests.level import Level, LevelOutcome
from hangdog_agent.machine_tests.level_runner import LadderOutcome, LevelsReport, climb, to_json
from hangdog_agent.machine_tests.levels.passive import Passive
from hangdog_agent.machine_tests.members import GroupMember
from hangdog_agent.machine_tests.ordered_tests import repeated
from hangdog_agent.machine_tests.run_members import run
from hangdog_agent.machine_tests.settings import LevelSettings
from hangdog_agent.machine_tests.standard_levels import WantedLevels, standard
from hangdog_agent.machine_tests.torch_engine import Engine, Probe, cleaned

#: Sizes for repetitions: each test does all that it does, in a second or two.
SMALL = replace(
    LevelSettings(),
    passive_apart_s=0.2,
    memory_share=0.02,
    memory_bytes=8 << 20,
    gemm_size=4096,
    gemm_size_cpu=192,
    gemm_repetitions=10,
    speed_repetitions=40,
    alignment_repetitions=4,
    alignment_width=256,
    alignment_width_cpu=32,
    pair_bytes=1 << 20,
    pair_bytes_cpu=1 << 20,
    pair_repetitions=3,
    pair_passes=1,
)
#: How often each test is repeated within its process, as a multiple of its settings.
_TIMES, _TIMES_DRY = 20, 2
_BYTES = 8 << 20
#: Two members of one machine are two machines to NCCL when each has a host identity of its own, and no way inside a machine.
_APART = {"NCCL_NET": "Socket", "NCCL_IB_DISABLE": "1", "NCCL_P2P_DISABLE": "1", "NCCL_SHM_DISABLE": "1",
          "NCCL_MNNVL_ENABLE": "0"}  # fmt: skip
_MEMBERS = 2
#: They are given two thirds of it to start torch and NCCL and to exchange a few megabytes by time slices.
_BETWEEN_S = 45.0


def parts(stand: Stand) -> Iterator[Part]:
    yield Part("ladder/as it is shipped", 85.0, shipped)
    yield Part("ladder/level 1 twenty times, then slow", 40.0, often)
    yield Part("ladder/level 3 on one device", 50.0, between)
    yield Part("ladder-faults/all at once", 35.0, faults)


def shipped(stand: Stand) -> Measured:
    """`hangdog test local` as a user runs it: its default levels in their default sizes."""
    nvml = nvml_here.here(stand)
    here = GpuSettingsBackup(cleaned(nvml.environ))
    here.record()
    command = (str(stand.python), "-m", "hangdog", "test", "local", "--format", "json", "--budget", "90s")
    numbers = ("0", "1", "2") if stand.dry else ("0", "1", "2", "4")
    levels = (word for number in numbers for word in ("--level", number))
    began = time.monotonic()
    (ended,) = run([GroupMember("hangdog test local", (*command, *levels), nvml.environ)], 100.0, _BYTES).members
    seconds = time.monotonic() - began
    (stand.out / "ladder-shipped.json").write_text(ended.stdout or ended.stderr, encoding="utf-8")
    try:
        document = json.loads(ended.stdout)
    except ValueError:
        raise RuntimeError(f"no report: {ended.words}: {' | '.join(ended.last(6))}") from None
    after = GpuSettingsBackup(cleaned(nvml.environ))
    after.record()
    figures = {"took s": round(seconds, 1), **_told(document)}
    figures["settings before"] = [gpu.get("settings") for gpu in here.before.values()]
    wrong = _against(document)
    if {uuid: gpu.get("settings") for uuid, gpu in here.before.items()} != {
        uuid: gpu.get("settings") for uuid, gpu in after.before.items()
    }:
        wrong.append("the settings of the device are not what they were before the ladder")
    return Measured(figures, wrong)


def often(stand: Stand) -> Measured:
    """Level 1 in small sizes, each of its tests so many times in one process; then with a device that is slower than that."""
    engine = Engine(str(stand.python))
    probe = probed(stand.python)
    settings = repeated(SMALL, _TIMES_DRY if stand.dry else _TIMES)
    measured = _climbed(standard(engine, probe, settings, WantedLevels(), {1}))
    rate = measured.figures["rates"].get("speed rate_tflops", 0.0)
    words, why = ladder_faults.slow(stand, probe, replace(SMALL, gemm_repetitions=2), rate)
    return Measured({**measured.figures, "slow device": words}, [*measured.wrong, *([why] if why else [])])


def faults(stand: Stand) -> Measured:
    """Each fault in a process of its own, all at once; level 0 reads the machine meanwhile, and speaks against nobody."""
    nvml = nvml_here.here(stand)
    with ThreadPoolExecutor(1) as pool:
        level = Passive(SMALL, nvml.environ, places=CheckPaths(kmsg=nvml.kmsg))
        beside = pool.submit(_climbed, [level])
        measured = ladder_faults.together(stand, probed(stand.python), SMALL)
        passive = beside.result()
    figures = {**measured.figures, "level 0 beside": passive.figures["outcomes"]}
    return Measured(figures, [*measured.wrong, *passive.wrong])


@lru_cache
def probed(python: Path) -> Probe:
    """Which devices the parts test; asked once, for torch takes seconds to start."""
    probe = Engine(str(python)).probe(60.0)
    if probe.why:
        raise RuntimeError(probe.why)
    return probe


def between(stand: Stand) -> Measured:
    """Level 3 of two members that share the device: whether it runs at all, and convicts nobody."""
    probe = probed(stand.python)
    with socket.socket() as free:
        free.bind(("127.0.0.1", 0))
        meet = f"127.0.0.1:{free.getsockname()[1]}"

    def one(at: int) -> LevelsReport:
        apart = {} if stand.dry else {**_APART, "NCCL_HOSTID": f"member{at}", "NCCL_DEBUG": "WARN"}
        engine = Engine(str(stand.python), {**cleaned(os.environ), **apart})
        wish = WantedLevels(group=Group(meet, at, _MEMBERS))
        return climb(standard(engine, probe, SMALL, wish, {3}), _BETWEEN_S, threading.Event())

    began = time.monotonic()
    with ThreadPoolExecutor(_MEMBERS) as pool:
        reports = list(pool.map(one, range(_MEMBERS)))
    both = LevelsReport(tuple(level for report in reports for level in report.levels))
    document = to_json(both, "", {})
    figures = {"took s": round(time.monotonic() - began, 1), **_told(document)}
    return Measured(figures, _against(document))


def _climbed(levels: Sequence[Level]) -> Measured:
    began = time.monotonic()
    document = to_json(climb(levels, 60.0, threading.Event()), "", {})
    return Measured({"took s": round(time.monotonic() - began, 1), **_told(document)}, _against(document))


def _told(document: Mapping[str, Any]) -> dict[str, Any]:
    """What a report says, shortened: outcomes counted, seconds of each level, what did not pass, rates and golden answers."""
    results = [(level, one) for level in document["levels"] for one in level["results"]]
    rates = {
        f"{one['test']} {name}": value
        for _, one in results
        for name, value in one["measures"].items()
        if one["outcome"] == LevelOutcome.PASS
    }
    digests = {one["key"]: one["digests"] for _, one in results if one["digests"]}
    return {
        "verdict": document["verdict"],
        "outcomes": dict(Counter(f"{one['test']}: {one['outcome']}" for _, one in results)),
        "repetitions": max((one["repetitions"] for _, one in results), default=0),
        "seconds of levels": [[level["level"], level["seconds"]] for level in document["levels"]],
        "not passed": [_words(level, one) for level, one in results if one["outcome"] != LevelOutcome.PASS],
        "skipped": [f"{level['name']}: {level['skipped']}" for level in document["levels"] if level["skipped"]],
        "says": list(dict.fromkeys(one["says"] for _, one in results if one["outcome"] == LevelOutcome.PASS))[:12],
        "rates": rates,
        "golden answers": {key: _few(items) for key, items in digests.items()},
        "remarks": document["remarks"],
    }


def _few(digests: Mapping[str, str]) -> dict[str, str]:
    """All of a small set of digests; of a model's tensors the first ones, for the report itself is kept beside."""
    return dict(list(digests.items())[:16])


def _words(level: Mapping[str, Any], one: Mapping[str, Any]) -> str:
    evidence = "; ".join(one["evidence"][:4])
    return f"level {level['level']} {one['test']} {one['outcome']}: {one['says']} ({evidence})"[:500]


def _against(document: Mapping[str, Any]) -> list[str]:
    """A sound device convicted, a level that came to no end, and settings that a test changed."""
    wrong = [f"a remark: {words}" for words in document["remarks"]]
    for level in document["levels"]:
        for one in level["results"]:
            if one["outcome"] == LevelOutcome.FAIL:
                wrong.append(f"FALSE CONVICTION or failure: {_words(level, one)}")
            elif one["outcome"] == LevelOutcome.INCONCLUSIVE:
                wrong.append(f"a sound device is left open: {_words(level, one)}")
    if document["verdict"] != LadderOutcome.NOT_CONVICTED and not wrong:
        skipped = [level["skipped"] for level in document["levels"]]
        wrong.append(f"the ladder ends as {document['verdict']}; skipped: {skipped}")
    return wrong
