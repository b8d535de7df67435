"""What the report reads from the store, on both engines: incidents, what came of namings, tests, the ledger, and bounds."""

from dataclasses import replace
from pathlib import Path

import sqlalchemy as sa

from hangdog_models.actions.action_history import Body, WantedAction
from hangdog_models.actions.caps import Mode
from hangdog_models.incident import Incident as Row
from hangdog_models.incident import IncidentState
from hangdog_models.machine_history import MentionKind
from hangdog_models.operations.past_events import Came, MachineTestRecord, Naming, PastEvents, PastIncident
from hangdog_models.planning.campaign.launch import LaunchResult
from hangdog_models.planning.campaign.level_planner import Conclusion
from hangdog_models.reading.hardware.test_report import Diagnosed, OneTest
from hangdog_models.verdict import Eviction, Kind
from hangdog_server.actions import policy
from hangdog_server.actions.policy import ActionFacts, ActionRule
from hangdog_server.grpc_api import operations_service
from hangdog_server.store import actions, campaigns
from hangdog_server.store.actions import ActionState
from hangdog_server.store.campaigns import Campaign, Convict, StoredCampaign
from hangdog_server.store.store import Store
from support.servers.cast import NOON
from support.servers.cast_acting import NOTHING, WIDE
from support.worded import names

FACTS = ActionFacts(100, frozenset({"x", "y", "z"}), {}, {})
RULE = ActionRule(Mode.APPROVE, WIDE, NOON)
EVICTING = replace(NOTHING, kind=Kind.MACHINE, confidence=0.97)


async def judged(store: Store, name: str, *machines: str, began: float = NOON - 40.0, **asked: float) -> None:
    """An incident whose verdict would evict these, which waits for approval."""
    await store.begin(Row(name, "llama", began), asked)
    await store.judged(name, replace(EVICTING, evict=Eviction(machines, 0.97)), began + 15.0)
    wanted = WantedAction(name, "llama", machines, NOON, {machine: Body("b") for machine in machines})
    await store.do(policy.propose, wanted, "because", FACTS, RULE)


async def moved(store: Store, name: str, state: ActionState, marked: bool = True) -> None:
    for row in await store.ask(actions.of, name):
        await store.do(actions.move, row, state, NOON + 25.0, "news", marked)


async def campaign(store: Store, name: str, incident: str, state: campaigns.CampaignState, **outcomes: str) -> None:
    """A campaign for an incident, in which each machine had one test with this outcome; who failed is convicted."""
    await store.do(campaigns.begin, Campaign(name, NOON + 60.0, "ada", "", incident, {}))
    launch = StoredCampaign(0, 1, "one device", tuple(outcomes), 1, NOON + 60.0, 60.0)
    await store.do(campaigns.planned, name, [launch])
    reports = {
        machine: Diagnosed((OneTest(1, "device 0", "gemm", outcome, ""),), {}, {})
        for machine, outcome in outcomes.items()
    }
    came = Conclusion(LaunchResult.FAIL, "", {}, {}, frozenset())
    await store.do(campaigns.concluded, name, launch, came, reports, NOON + 90.0)
    convicts = [
        Convict(machine, 0.99, ("GPU-1", "GPU-2")) for machine, outcome in outcomes.items() if outcome == "fail"
    ]
    await store.do(campaigns.end, name, state, NOON + 90.0, "", "{}", convicts)


async def test_all_that_the_report_rests_on_is_read(where: Path | str) -> None:
    store = Store(where)
    await judged(store, "0a", "a", "b", stood_s=12.5)
    await moved(store, "0a", ActionState.DONE)
    await judged(store, "0b", "c", "d", began=NOON - 50.0)
    await store.do(policy.dismiss, "0b", "it is being debugged", "ada", NOON)
    await judged(store, "0c", "e")
    await store.do(policy.dismiss, "0c", "by ada", "ada", NOON)
    await judged(store, "0d", "f")
    await moved(store, "0d", ActionState.FAILED, marked=False)
    await store.begin(Row("0e", "llama", NOON - 10.0), {})
    await store.move("0e", IncidentState.FAILED, NOON, "away")
    await campaign(store, "7c", "0a", campaigns.CampaignState.DONE, a="fail", b="pass")
    await campaign(store, "7d", "0b", campaigns.CampaignState.ABORTED, c="pass")
    past = await store.ask(operations_service.past, NOON - 45.0)
    assert [(one.id, one.kind, one.failed, one.stood, one.judged) for one in past.incidents] == [
        ("0e", "", True, None, None),
        ("0a", "machine", False, NOON - 52.5, NOON - 25.0),
        ("0c", "machine", False, None, NOON - 25.0),
        ("0d", "machine", False, None, NOON - 25.0),
    ]
    assert {(one.incident, one.machine): (one.came, one.out, one.reason) for one in past.namings} == {
        ("0a", "a"): (Came.TAKEN, NOON + 25.0, False),
        ("0a", "b"): (Came.TAKEN, NOON + 25.0, False),
        ("0b", "c"): (Came.DISMISSED, None, True),
        ("0b", "d"): (Came.DISMISSED, None, True),
        ("0c", "e"): (Came.DISMISSED, None, False),
        ("0d", "f"): (Came.GIVEN_UP, None, False),
    }
    assert {one.began for one in past.namings} == {NOON - 40.0, NOON - 50.0}
    assert set(past.trials) == {
        MachineTestRecord("7c", "0a", "a", NOON + 60.0, True, 0, 0),
        MachineTestRecord("7c", "0a", "b", NOON + 60.0, False, 1, 0),
    }, "what was aborted is no test"
    assert {(one.machine, one.incident, one.kind) for one in past.mentions} >= {("a", "0a", MentionKind.CONVICTED)}
    assert len(past.mentions) == 6 and not past.cut
    store.close()


async def test_what_is_too_much_is_cut_and_said(where: Path | str) -> None:
    store = Store(where)
    for number in range(3):
        await store.begin(Row(f"0{number}", "llama", NOON + number), {})

    def few(connection: sa.Connection) -> PastEvents:
        return operations_service.past(connection, 0.0, most=2)

    past = await store.ask(few)
    assert past.incidents == (PastIncident("02", NOON + 2.0), PastIncident("01", NOON + 1.0))
    (cut,) = past.cut
    assert names(cut, "more than 2 incidents")
    store.close()


async def test_an_act_outlives_its_incident(where: Path | str) -> None:
    store = Store(where)
    wanted = WantedAction("gone", "llama", ("a",), NOON, {"a": Body("b")})
    await store.do(policy.propose, wanted, "because", FACTS, RULE)
    assert (await store.ask(operations_service.past, 0.0)).namings == (Naming("gone", "a", NOON, Came.LEFT),)
    store.close()


async def test_of_an_incident_that_was_looked_at_again_the_first_verdict_is_what_was_waited_for(
    where: Path | str,
) -> None:
    store = Store(where)
    await store.begin(Row("0a", "llama", NOON - 100.0), {"stood_s": 6.0, "began": NOON - 100.0})
    await store.judged("0a", replace(NOTHING, kind=Kind.UNDETERMINED), NOON - 90.0)
    asked = {"stood_s": 66.0, "began": NOON - 40.0}
    await store.judged_again("0a", asked, replace(NOTHING, kind=Kind.SOFTWARE), NOON - 30.0)
    (found,) = (await store.ask(operations_service.past, NOON - 200.0)).incidents
    assert (found.kind, found.stood, found.judged) == ("software", NOON - 106.0, NOON - 90.0)
    store.close()
