"""Tells NVSentinel that a machine is unwell, and that it is well again, as one of its health monitors does.

By gRPC on the unix socket of its platform connector. What follows is NVSentinel's to decide, by the rules it was given; a
node that was taken out of its hands by label is left alone.
"""

from collections.abc import Awaitable, Callable
from typing import Any, cast

import grpc

from hangdog_models.reading.printable import printable
from hangdog_proto.generated import nvsentinel_pb2 as pb
from hangdog_proto.generated.nvsentinel_pb2_grpc import PlatformConnectorStub
from hangdog_server.actions.backends.backend import WORDS, BackendFailed, IsolationCase, MachineMark, Mark, left_alone
from hangdog_server.actions.backends.kube_api import KubeApi, named, understood

#: Where its platform connector listens on each node (its Helm chart, and its guide to writing monitors).
SOCKET = "/var/run/nvsentinel.sock"
#: By which it knows us and what we look at: rules of its operators go by these names, so they never change.
AGENT, COMPONENT, CHECK, CODE = "hangdog", "Node", "HangdogVerdict", "HangdogVerdict"
#: What an event is about beside its node: one that says that all is well ends that of its own incident, and no other.
PART = "INCIDENT"
#: The label by which a node is out of its hands, and the word that says so: it would ignore every event.
OPTED_OUT, NOT_MANAGED = "k8saas.nvidia.com/ManagedByNVSentinel", "false"
#: Seconds until an event must be taken: the socket leads to this very machine.
WITHIN_S = 10.0
#: Answers that no second try changes, and what to do.
FINAL = {
    grpc.StatusCode.UNIMPLEMENTED: "it speaks another version of HealthEventOccurredV1, or is no NVSentinel",
    grpc.StatusCode.INVALID_ARGUMENT: "its platform connector's log says more",
    grpc.StatusCode.PERMISSION_DENIED: "let the server's user write to the socket",
    grpc.StatusCode.UNAUTHENTICATED: "let the server's user write to the socket",
}


class NVSentinel:
    """The NVSentinel behind one socket, and the API server of its cluster, which knows what is out of its hands."""

    name = "nvsentinel"
    again_s = 0.0

    def __init__(
        self,
        api: KubeApi,
        clock: Callable[[], float],
        socket: str = SOCKET,
        act: bool = False,
        within_s: float = WITHIN_S,
    ) -> None:
        """`clock` gives Unix seconds; `act`: it may quarantine, drain and remedy, else it keeps and exports what it hears."""
        self._api = api
        self._clock = clock
        self._target = f"unix:{socket}"
        self._strategy = pb.ACT if act else pb.KEEP
        self._within_s = within_s

    async def look(self, case: IsolationCase) -> MachineMark:
        """Whether the node is out of its hands; what it did because of an event it tells nobody."""
        node = await self._api.get(f"/api/v1/nodes/{named(case.machine)}")
        with understood(case.machine):
            managed = (node["metadata"].get("labels") or {}).get(OPTED_OUT, "")
        if managed == NOT_MANAGED:
            return MachineMark(Mark.ANOTHERS, f"{OPTED_OUT}={NOT_MANAGED}")
        return MachineMark(Mark.UNKNOWN)

    async def mark(self, case: IsolationCase) -> None:
        """Tells it that the machine is unwell; after a crash it may be told twice, of the same part."""
        await self._tell(case, healthy=False)

    async def unmark(self, case: IsolationCase) -> None:
        """Tells it that the machine is well again, of this incident."""
        await self._tell(case, healthy=True)

    async def close(self) -> None:
        """Closes its connections."""
        await self._api.close()

    async def _tell(self, case: IsolationCase, healthy: bool) -> None:
        state = await self.look(case)
        if state.mark is Mark.ANOTHERS:
            raise left_alone("NVSentinel", case.machine, state)
        now = self._clock()
        event = pb.Event(
            version=1, agent=AGENT, component_class=COMPONENT, check_name=CHECK, fatal=not healthy, healthy=healthy,
            message=f"released: {case.reason}" if healthy else case.reason, advice=pb.NOTHING if healthy else pb.PEOPLE,
            error_code=[] if healthy else [CODE], parts=[pb.Part(kind=PART, name=case.incident)],
            metadata=[pb.Pair(key="incident", value=case.incident), pb.Pair(key="job", value=printable(case.job, WORDS))],
            at=pb.Moment(seconds=int(now), nanos=int(now % 1 * 1e9)), node_name=case.machine, strategy=self._strategy,
        )  # fmt: skip
        try:
            async with grpc.aio.insecure_channel(self._target) as channel:
                reported = pb.Events(version=1, events=[event])
                call = cast("Callable[..., Awaitable[Any]]", PlatformConnectorStub(channel).HealthEventOccurredV1)
                await call(reported, timeout=self._within_s)  # the stubs know no aio call
        except grpc.aio.AioRpcError as error:
            code, words = error.code(), printable(error.details() or "", WORDS)
            hint = FINAL.get(code, "is its platform connector there, and the socket in this pod?")
            what = f"NVSentinel at {self._target} did not take an event of {case.machine}: {code.name} {words}"
            raise BackendFailed(what, hint, again=code not in FINAL, code="nvsentinel-failed") from error
