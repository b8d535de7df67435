"""How the command line asks for campaigns of diagnostics: each request a method, each answer a noun."""

import json
from collections.abc import Generator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from hangdog_models.errors import OurFault
from hangdog_models.machine_history import Conviction, MachineTest, MachineTests
from hangdog_proto.client.incidents import ANSWER_S, Client
from hangdog_proto.generated import hangdog_pb2 as pb
from hangdog_proto.generated.hangdog_pb2_grpc import CampaignsStub

#: An abort waits until the campaign has ended: at once, unless the store is away.
ABORT_S = 60.0


@dataclass(frozen=True, slots=True)
class WantedReplay:
    """What level 5 replays: a name that the machines' administrators gave a command, "" for the program of hangdog itself.

    A group has `size` machines; one replay takes `seconds` at most. 0 leaves either to the server.
    """

    name: str = ""
    size: int = 0
    seconds: float = 0.0


#: What nobody asked to have otherwise.
OWN = WantedReplay()


@dataclass(frozen=True, slots=True)
class CampaignStep:
    """One line of a campaign's progress; `report` (hangdog.campaign/1) stands in the last one."""

    campaign: str
    state: str
    text: str
    report: Mapping[str, Any] | None = None


@dataclass(frozen=True, slots=True)
class CampaignLine:
    """A campaign as the list shows it; `began` in Unix seconds; `note` says why it failed."""

    id: str
    state: str
    began: float
    why: str
    who: str
    incident: str
    machines: tuple[str, ...]
    convicted: tuple[str, ...]
    note: str


class CampaignClient(Client):
    """A channel to a server, for those who have machines tested. Every method raises HangdogError when it fails."""

    @property
    def _campaigns(self) -> CampaignsStub:
        return CampaignsStub(self._channel)

    def run(
        self,
        machines: Sequence[str] = (),
        incident: str = "",
        levels: Sequence[int] = (),
        budget_s: float = 0.0,
        why: str = "",
        within_s: float | None = None,
        replay: WantedReplay = OWN,
    ) -> Generator[CampaignStep, None, None]:
        """Starts a campaign and follows it; the last step holds the report. It goes on when the generator is closed.

        Raises ServerUnreachable where that takes longer than `within_s`: a server that hangs ends no campaign.
        """
        request = _request(machines, incident, levels, budget_s, replay, why)
        with self._errors():
            yield from self._steps(self._campaigns.Run(request, timeout=within_s))

    def follow(self, name: str) -> Generator[CampaignStep, None, None]:
        """Follows a campaign, by its name or a prefix that only it has."""
        with self._errors():
            yield from self._steps(self._campaigns.Follow(pb.CampaignName(id=name)))

    def plan(
        self,
        machines: Sequence[str] = (),
        incident: str = "",
        levels: Sequence[int] = (),
        budget_s: float = 0.0,
        replay: WantedReplay = OWN,
    ) -> tuple[tuple[str, ...], Mapping[str, Any]]:
        """The machines of a campaign that would be asked for so, and its first launches as JSON; nobody is asked."""
        request = _request(machines, incident, levels, budget_s, replay)
        with self._errors():
            answer = self._campaigns.Plan(request, timeout=ANSWER_S)
        return tuple(answer.machines), _document(answer.plan_json) or {}

    def abort(self, name: str) -> CampaignLine:
        """Ends a campaign, and waits until it has ended."""
        with self._errors():
            return _line(self._campaigns.Abort(pb.CampaignName(id=name), timeout=ABORT_S))

    def campaigns(self, limit: int = 0) -> tuple[CampaignLine, ...]:
        """The latest campaigns, newest first."""
        with self._errors():
            answer = self._campaigns.List(pb.CampaignsRequest(limit=limit), timeout=ANSWER_S)
        return tuple(map(_line, answer.campaigns))

    def test_history(self, machine: str, limit: int = 0) -> MachineTests:
        """What a machine was tested for, by its name or that of a part in it."""
        with self._errors():
            answer = self._campaigns.History(pb.HistoryRequest(machine=machine, limit=limit), timeout=ANSWER_S)
        tests = tuple(
            MachineTest(
                one.machine, one.at, one.campaign, one.level, one.test, one.outcome, one.repetitions, one.says,
                tuple(one.others),
            )
            for one in answer.entries
        )  # fmt: skip
        convictions = tuple(Conviction(one.machine, one.part, one.at, one.campaign) for one in answer.convictions)
        return MachineTests(tests, tuple(answer.parts), convictions, answer.probation)

    def _steps(self, call: Any) -> Generator[CampaignStep, None, None]:
        try:
            for step in call:
                yield CampaignStep(step.campaign, step.state, step.text, _document(step.report_json))
        finally:
            call.cancel()


def _request(
    machines: Sequence[str], incident: str, levels: Sequence[int], budget_s: float, replay: WantedReplay, why: str = ""
) -> pb.CampaignRequest:
    return pb.CampaignRequest(
        machines=machines, incident=incident, levels=levels, budget_s=budget_s, why=why, replay=replay.name,
        group_size=replay.size, replay_s=replay.seconds,
    )  # fmt: skip


def _line(summary: pb.CampaignSummary) -> CampaignLine:
    return CampaignLine(
        id=summary.id,
        state=summary.state,
        began=summary.began,
        why=summary.why,
        who=summary.who,
        incident=summary.incident,
        machines=tuple(summary.machines),
        convicted=tuple(summary.convicted),
        note=summary.note,
    )


def _document(text: str) -> Mapping[str, Any] | None:
    if not text:
        return None
    try:
        document = json.loads(text)
    except ValueError as error:
        raise OurFault(
            f"the server's answer cannot be read: {error}",
            "is the server another version of hangdog?",
            code="unreadable-answer",
        ) from error
    return document if isinstance(document, dict) else None
