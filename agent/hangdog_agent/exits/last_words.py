"""What trainers wrote before they ended, by the readers of logs that read bundles, too."""

import json
from collections.abc import Mapping
from dataclasses import replace

from hangdog_agent.discovery import redact
from hangdog_agent.discovery.discover import Key
from hangdog_agent.stalls.progress.logs import LastWords
from hangdog_models.errors import UnreadableEvidence
from hangdog_models.findings import Finding, Impact
from hangdog_models.ranks import Rank
from hangdog_models.reading.logs import error_file, training_log
from hangdog_models.reading.logs.training_log import Stream


def findings(words: LastWords, ranks: Mapping[Key, Rank], world: int) -> tuple[Finding, ...]:
    """What they say of these ranks, which are all of this machine's; secrets are taken out.

    A log may hold lines of the whole job: what says nothing of its rank is this machine's only where no other one's rank speaks.
    What accuses nobody may be anybody's.
    """
    own = frozenset(ranks.values())
    found: list[Finding] = []
    for writers, data in words.logs.items():
        of = {ranks[key] for key in writers if key in ranks}
        streams = training_log.read(data.decode("utf-8", "replace"), min(of) if len(of) == 1 else None)
        speak = {stream.rank for stream in streams if stream.own and stream.rank is not None}
        ours = len(own) >= world > 0 or (bool(speak) and speak <= own)
        found += _of_streams(streams, own, ours)
    for key, data in words.errors.items():
        try:
            streams = error_file.read(json.loads(data), ranks[key])
        except (ValueError, RecursionError, UnreadableEvidence, KeyError):
            continue
        found += _of_streams(streams, own, False)
    return tuple(dict.fromkeys(found))


def _of_streams(streams: tuple[Stream, ...], own: frozenset[Rank], ours: bool) -> list[Finding]:
    local = dict(enumerate(sorted(own)))
    found = []
    for stream in streams:
        speaker = (
            stream.rank if stream.rank is not None else local.get(stream.local) if stream.local is not None else None
        )
        for one in stream.findings:
            rank = one.rank if one.rank is not None else speaker
            if rank in own or (rank is None and (ours or one.impact is Impact.TELLS_NOTHING)):
                found.append(replace(one, rank=rank, machine="", what=redact.text(one.what), at_s=None))
    return found
