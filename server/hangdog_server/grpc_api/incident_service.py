"""What people ask over gRPC, and the answers."""

import contextlib
from collections.abc import AsyncIterator
from dataclasses import asdict

from hangdog_models.errors import HangdogError, WrongUse
from hangdog_models.lists.list_kinds import ACTIONS, INCIDENTS, MACHINES
from hangdog_models.lists.machine_now import MachineNow
from hangdog_proto.codec import communicator_list, findings, owners
from hangdog_proto.generated import hangdog_pb2 as pb
from hangdog_proto.generated.hangdog_pb2_grpc import IncidentsServicer
from hangdog_server.actions.machine_states import machine_states
from hangdog_server.auth.audit_log import AuditLog, followed
from hangdog_server.auth.authorizer import Authorizer
from hangdog_server.cluster.connection import PastConnection
from hangdog_server.cluster.fleet import Fleet
from hangdog_server.cluster.job_states import JobStates, KnownJob
from hangdog_server.grpc_api import incident_timeline
from hangdog_server.grpc_api.abort import Context, refuse, refusing
from hangdog_server.grpc_api.action_service import ActionService
from hangdog_server.grpc_api.history_service import Records, summary
from hangdog_server.grpc_api.lists.list_codec import asked_of as asked_of_list
from hangdog_server.grpc_api.lists.list_codec import extent
from hangdog_server.grpc_api.lists.list_service import Lists
from hangdog_server.grpc_api.operations_service import Operations
from hangdog_server.grpc_api.response_service import ResponseService, asked_of
from hangdog_server.incidents import decode
from hangdog_server.incidents.episode.seen_before import seen_before
from hangdog_server.incidents.incident_run import IncidentRequest
from hangdog_server.incidents.registry import IncidentRegistry
from hangdog_server.incidents.round_capture import steady
from hangdog_server.protocol.rate_limits import RateLimits
from hangdog_server.settings import ServerSettings
from hangdog_server.store.history import responses
from hangdog_server.store.store import Store
from hangdog_server.store.store_errors import StoreFailed


class Incidents(IncidentsServicer):
    """What people ask."""

    def __init__(
        self,
        fleet: Fleet,
        registry: IncidentRegistry,
        store: Store,
        records: Records,
        actions: ActionService,
        settings: ServerSettings,
        gate: Authorizer,
        limits: RateLimits,
        audit: AuditLog,
        operations: Operations,
        responding: ResponseService,
        states: JobStates,
        lists: Lists,
    ) -> None:
        self._fleet = fleet
        self._registry = registry
        self._store = store
        self._settings = settings
        self._gate = gate
        self._limits = limits
        self._audit = audit
        self._records = records
        self._actions = actions
        self._operations = operations
        self._responding = responding
        self._states = states
        self._lists = lists

    async def Snapshot(self, request: pb.SnapshotRequest, context: Context) -> AsyncIterator[pb.Progress]:
        """Starts or joins an incident and tells its steps."""
        try:
            if len(request.why) > decode.WHY:
                raise WrongUse(
                    f"a reason of {len(request.why)} characters is too long",
                    f"give {decode.WHY} at most",
                    code="too-long",
                )
            asked = IncidentRequest(
                request.job, request.rounds, request.interval_s, request.job_toml, request.why, request.light
            )
            person = self._gate.person(context)
            self._limits.snapshot(person.name, steady())
            steps = followed(
                self._registry.ask(asked), self._audit, person.audit_entry("snapshot", request.job, request.why)
            )
            async for step in steps:
                yield pb.Progress(incident=step.name, state=step.state, text=step.text, verdict_json=step.document)
        except HangdogError as error:
            await refuse(context, error)

    @refusing
    async def List(self, request: pb.ListRequest, context: Context) -> pb.IncidentList:
        """The latest incidents, or a page of the list."""
        if request.HasField("list"):
            listed = await self._lists.incidents(asked_of_list(INCIDENTS, request.list, self._settings))
            return pb.IncidentList(incidents=map(summary, listed.rows), extent=extent(listed))
        limit = min(request.limit or self._settings.listed, self._settings.max_listed)
        return pb.IncidentList(incidents=[summary(found) for found in await self._store.latest(request.job, limit)])

    @refusing
    async def Get(self, request: pb.GetRequest, context: Context) -> pb.Incident:
        """One incident."""
        found = await self._store.find(request.id)
        entries = await self._store.ask(responses.of, found.id)
        similar = await seen_before(self._store, found.id)
        line = incident_timeline.packed(await incident_timeline.of(self._store, found))
        return pb.Incident(
            summary=summary(found),
            verdict_json=found.verdict,
            entries=[pb.ResponseEntry(**asdict(one)) for one in entries],
            similar=[pb.SimilarIncident(**asdict(one)) for one in similar.shown],
            similar_count=similar.count,
            timeline=line,
        )

    @refusing
    async def Machines(self, request: pb.MachinesRequest, context: Context) -> pb.MachineList:
        """The machines, or a page of their list, and how their jobs are."""
        if request.HasField("list"):
            listed = await self._lists.machines(
                asked_of_list(MACHINES, request.list, self._settings), without_store=True
            )
            return pb.MachineList(machines=[self._machine(one, steady()) for one in listed.rows], extent=extent(listed))
        now, jobs = steady(), await self._states.known()
        decided: dict[str, str] = {}
        with contextlib.suppress(StoreFailed):  # who is there is known without a store
            decided = await machine_states(self._store, self._registry.now())
        machines = [
            _machine(seen, self._fleet, now, decided.get(seen.machine, "")) for seen in self._fleet.machines(now)
        ]
        return pb.MachineList(machines=machines, jobs=map(_state, jobs))

    @refusing
    async def Communicators(self, request: pb.CommunicatorsRequest, context: Context) -> pb.CommunicatorList:
        """How the communicators of a job go on."""
        found = await self._states.communicators(request.job)
        limit = min(request.limit or self._settings.listed, self._settings.max_listed)
        lines = map(communicator_list.pack, found.communicators[:limit])
        return pb.CommunicatorList(communicators=lines, found=len(found.communicators), left_out=found.left_out)

    @refusing
    async def Mentions(self, request: pb.MentionsRequest, context: Context) -> pb.MentionsAnswer:
        """What verdicts said of machines."""
        return await self._records.ledger(request)

    @refusing
    async def Report(self, request: pb.ReportRequest, context: Context) -> pb.ReportAnswer:
        """What operation was like lately."""
        return await self._operations.report(request)

    async def Bundle(self, request: pb.BundleRequest, context: Context) -> AsyncIterator[pb.BundlePart]:
        """All that is kept of an incident."""
        try:
            async for part in self._records.bundle(request.id):
                yield part
        except HangdogError as error:
            await refuse(context, error)

    @refusing
    async def Actions(self, request: pb.ActionsRequest, context: Context) -> pb.ActionList:
        """What was, is and would be done to machines."""
        if request.HasField("list"):
            listed = await self._lists.actions(asked_of_list(ACTIONS, request.list, self._settings))
            answer = await self._actions.answer(listed.rows)
            answer.extent.CopyFrom(extent(listed))
            return answer
        return await self._actions.listed(request)

    @refusing
    async def Act(self, request: pb.ActRequest, context: Context) -> pb.ActionList:
        """What somebody decided."""
        return await self._actions.act(request, self._gate.person(context))

    @refusing
    async def Respond(self, request: pb.RespondRequest, context: Context) -> pb.IncidentSummary:
        """What somebody does about an incident."""
        return summary(await self._responding.respond(request.id, asked_of(request), self._gate.person(context)))

    def _machine(self, one: MachineNow, now: float) -> pb.Machine:
        """A line of the list; of a machine of which no agent speaks there is no more than its history."""
        seen = self._fleet.machine(one.name)
        found = _machine(seen, self._fleet, now, one.state) if seen is not None else pb.Machine(name=one.name)
        found.states.extend(one.states)
        return found


def _state(job: KnownJob) -> pb.JobState:
    state = job.state
    return pb.JobState(
        job=job.name, condition=state.condition, text=state.text, incident=state.incident, since=state.since
    )


def _machine(seen: PastConnection, fleet: Fleet, now: float, decided: str) -> pb.Machine:
    jobs = [
        pb.LocalJob(
            job=label,
            ranks=local.ranks,
            world_size=local.world_size or 0,
            topology=local.topology,
            owner=owners.pack(local.owner),
            conflict="; ".join(fleet.conflicts(label)),
        )
        for label, local in seen.jobs.items()
    ]
    silent, held = max(0.0, now - seen.last_message), fleet.certificates.of(seen.machine)
    return pb.Machine(
        name=seen.machine,
        version=seen.version,
        silent_s=silent,
        jobs=jobs,
        connected=seen.connected,
        findings=findings.pack(seen.findings),
        stopped=seen.stopped,
        certificate_serial=held.serial if held is not None else "",
        certificate_left_s=held.ends - now if held is not None else 0.0,
        certificate_ends_soon=held is not None and held.ends_soon(now),
        decided=decided,
    )
