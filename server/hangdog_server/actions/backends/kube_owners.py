"""Reads who makes the pods of a job anew, up to whoever that is made by; bounded, and silent where the right for it is missing."""

import logging
from collections.abc import Iterable
from itertools import islice

from hangdog_server.actions.backends.kube_api import KubeApi, KubeDenied, Unknown, named
from hangdog_server.actions.backends.kube_restarts import Object, Ref, owner

#: Different owners of one job's pods that are read: a verdict takes eight machines at most, and a JobSet may have a Job for each.
MOST = 8
#: How far up: a pod is made by a Job, which is made by a JobSet.
LEVELS = 2

log = logging.getLogger(__name__)


class Owners:
    """Those of one cluster, by its API server."""

    def __init__(self, api: KubeApi) -> None:
        self._api = api
        self._mute: set[str] = set()

    async def of(self, pods: Iterable[Object]) -> dict[Ref, Object]:
        """Those that could be read; raises BackendFailed while the API server is away."""
        found: dict[Ref, Object] = {}
        for first in islice(dict.fromkeys(map(owner, pods)), MOST):
            ref = first
            for _ in range(LEVELS):
                made = found.get(ref) or await self._read(ref) if ref is not None else None
                if ref is None or made is None:
                    break
                found[ref] = made
                ref = owner(made)
        return found

    async def _read(self, ref: Ref) -> Object | None:
        if not ref.known:
            return None
        version = named(ref.api.rpartition("/")[2])
        group = ref.api.rpartition("/")[0]
        path = f"/apis/{group}/{version}/namespaces/{named(ref.namespace)}/{ref.known}/{named(ref.name)}"
        try:
            return await self._api.get(path)
        except Unknown:
            return None
        except KubeDenied as error:
            if ref.kind not in self._mute:
                self._mute.add(ref.kind)
                log.warning("cannot preview restarts by a %s: %s (%s)", ref.kind, error, error.hint)
            return None
