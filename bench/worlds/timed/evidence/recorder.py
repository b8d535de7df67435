"""PyTorch's flight recorder of each process, as its signal writes it."""

import json
import pickle  # noqa: TID251  # PyTorch writes its dumps so; nothing is unpickled here
from collections.abc import Mapping
from pathlib import Path
from random import Random
from typing import Any

from hangdog_models.ranks import Rank
from worlds.timed.engine.work import Recorded
from worlds.timed.evidence.frames import Installation
from worlds.timed.incident import Incident
from worlds.timed.layout import dimension

#: How frameworks call their groups.
_MEGATRON = {
    "tp": "TENSOR_MODEL_PARALLEL_GROUP",
    "dp": "DATA_PARALLEL_GROUP_WITH_CP",
    "pp": "PIPELINE_MODEL_PARALLEL_GROUP",
    "mp": "MODEL_PARALLEL_GROUP",
    "emb": "EMBEDDING_GROUP",
    "ep": "EXPERT_MODEL_PARALLEL_GROUP",
    "world": "default_pg",
}
_OTHERS = {"fsdp": {"dp": "mesh_dp_shard"}, "ray": {"dp": "mesh_fsdp", "tp": "mesh_infer_tp"}}
_UNNAMED = "undefined"
#: The watchdog finds out so much later that work started, and that it ended.
_STARTED_S, _ENDED_S = 0.05, 0.1
#: The format of the dumps of the older and of the newer PyTorch, with the version of NCCL.
_FORMATS = (("2.5", "2.21.5"), ("2.10", "2.29.3"))


class Recorders:
    """Writes the dumps of an incident. `dumped` are the operations in them: of each group and rank, by number."""

    def __init__(self, incident: Incident, installation: Installation, pids: Mapping[Rank, int], rng: Random) -> None:
        self._incident, self._installed, self._pids, self._rng = incident, installation, pids, rng
        self.dumped: dict[str, dict[Rank, dict[int, tuple[object, str]]]] = {}
        self._pickled = rng.random() < 0.67
        self._framed = self._pickled and rng.random() < 0.6
        self._ids = {group: str(at) for at, group in enumerate(incident.layout.groups)}
        self._offsets = {
            group: Random(f"{incident.job.seed} {group}").randrange(200, 9000) * 4 for group in incident.layout.groups
        }

    def write(self, folder: Path, time: float, epoch: int) -> None:
        """Writes a dump of each process that can still write one."""
        place = folder / self._rng.choice(("fr", "flight_recorder", "dumps"))
        place.mkdir(parents=True)
        name = self._rng.choice(("nccl_trace_rank_{}", "_dump_{}")) if self._pickled else "fr_trace_{}.json"
        for rank in self._incident.layout.ranks:
            host, at = self._incident.host(rank), self._incident.seen(rank)
            cannot = host.dead is not None or self._incident.frozen(rank) or host.stopped is not None
            # a dump with frames needs the interpreter's lock, which a library that waits for ever may hold
            held = at is not None and at.gil and at.native != "python"
            if cannot or self._rng.random() < (0.5 if held else 0.02):
                continue
            dump = self._dump(rank, time, epoch)
            path = place / name.format(rank)
            if self._pickled:
                path.write_bytes(pickle.dumps(dump, protocol=2))
            else:
                path.write_text(json.dumps(dump), encoding="utf-8")

    def description(self, group: str) -> str:
        """How the framework calls a group."""
        names = _MEGATRON if self._incident.job.name == "megatron" else _OTHERS.get(self._incident.job.name, {})
        dim = dimension(group)
        return names.get(dim, "default_pg" if dim == "world" else _UNNAMED)

    def _dump(self, rank: Rank, time: float, epoch: int) -> dict[str, Any]:
        layout, gloo = self._incident.layout, self._incident.job.gloo
        mine = [group for group, ranks in layout.groups.items() if rank in ranks and self._used(group)]
        entries: list[dict[str, Any]] = []
        status: dict[str, list[int]] = {}
        for one in self._incident.host(rank).records:
            other = one.payload.name.startswith(("store", "init", "jax"))
            if one.created > time or other or (gloo and one.one_to_one):
                continue
            state = self._state(one, time)
            entries.append(self._entry(one, state, _retired(one, time), mine.index(one.work.group), rank, epoch))
            if one.one_to_one:
                continue
            of_rank = self.dumped.setdefault(one.work.group, {}).setdefault(rank, {})
            of_rank[one.number] = (one.payload, "completed" if _retired(one, time) else state)
            number = self._offsets[one.work.group] + one.number
            known = status.setdefault(str(mine.index(one.work.group)), [-1, -1, -1])
            known[0] = number
            known[1] = number if state != "scheduled" else known[1]
            known[2] = number if state == "completed" else known[2]
        version, nccl = _FORMATS[self._incident.job.newer]
        names = ("last_enqueued_collective", "last_started_collective", "last_completed_collective")
        numbers = {
            at: dict(zip(names, known if self._pickled else map(str, known), strict=True))
            for at, known in status.items()
        }
        groups = {
            self._ids[group]: {
                "name": self._ids[group],
                "desc": self.description(group),
                "ranks": f"[{', '.join(map(str, layout.groups[group]))}]",
            }
            for group in mine
        }
        return {
            "version": version,
            "pg_config": {} if gloo else groups,
            "comm_lib_version" if self._incident.job.newer else "nccl_version": nccl,
            "pg_status": numbers,
            "entries": entries[-(100 if layout.world_size <= 32 else 48) :],
        }

    def _used(self, group: str) -> bool:
        ranks = self._incident.layout.groups[group]
        crossed = self._incident.kind.name == "crossed-groups"
        return (len(ranks) > 1 or group == "world") and (group != "second" or crossed)

    def _state(self, one: Recorded, time: float) -> str:
        done, started = one.work.done, one.work.started
        if self._incident.job.gloo:
            return "scheduled"
        if done is not None and done <= time:
            return "completed"
        return "started" if started is not None and started <= time else "scheduled"

    def _entry(self, one: Recorded, state: str, retired: bool, at: int, rank: Rank, epoch: int) -> dict[str, Any]:
        offset, gloo = self._offsets[one.work.group], self._incident.job.gloo
        never = None if self._pickled else 0

        def nanoseconds(time: float | None, late: float = 0.0) -> int | None:
            if time is None or gloo:
                return never
            return int((epoch + time + late) * 1e9) + self._rng.randrange(1_000_000)

        entry: dict[str, Any] = {}
        if self._framed:
            entry["frames"] = [
                {"name": frame["name"], "filename": frame["filename"], "line": frame["line"]}
                for frame in self._installed.stack(one.at.frames)
            ]
        group = (self._ids[one.work.group], self.description(one.work.group))
        entry |= {
            "record_id": one.operation - 1,
            "pg_id": at,
            "process_group": group if self._pickled else list(group),
        }
        if self._incident.job.newer:
            entry |= {"thread_name": "pt_main_thread", "thread_id": str(140000000000000 + self._pids[rank])}
        return entry | {
            "collective_seq_id": offset + one.number,
            "p2p_seq_id": one.message_number,
            "op_id": offset + one.operation,
            "profiling_name": one.payload.name,
            "time_created_ns": int((epoch + one.created) * 1e9) + self._rng.randrange(1_000_000),
            "input_sizes": [list(size) for size in one.payload.inputs],
            "input_dtypes": [one.payload.dtype] * len(one.payload.inputs),
            "output_sizes": [list(size) for size in one.payload.outputs],
            "output_dtypes": [one.payload.dtype] * len(one.payload.outputs),
            "state": state,
            "time_discovered_started_ns": nanoseconds(one.work.started if state != "scheduled" else None, _STARTED_S),
            "time_discovered_completed_ns": nanoseconds(one.work.done if state == "completed" else None, _ENDED_S),
            "retired": retired,
            "timeout_ms": self._incident.job.timeout_s * 1000,
            "is_p2p": one.one_to_one,
        }


def _retired(one: Recorded, time: float) -> bool:
    """Whether an operation is over: all that a recorder knows of gloo's, whose state stays as it was."""
    return one.work.done is not None and one.work.done <= time
