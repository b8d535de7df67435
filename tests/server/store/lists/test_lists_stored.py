"""Lists that the database answers: the same on both engines, whatever people decided, however large the verdicts are."""

from collections.abc import Iterator
from dataclasses import asdict
from pathlib import Path
from typing import Any

import pytest
import sqlalchemy as sa

from hangdog_models.incident import IncidentResponse
from hangdog_models.lists.incident_status import status_of
from hangdog_models.lists.list_kinds import ACTIONS, INCIDENTS
from hangdog_models.lists.list_page import ListPage
from hangdog_models.lists.list_query import query_of
from hangdog_models.machine_history import MentionKind
from hangdog_server.store import tables
from hangdog_server.store.lists import accused_machines, action_list, incident_list
from hangdog_server.store.lists.sql_page import hinted
from hangdog_server.store.store import Store

BASE: dict[str, Any] = {
    "state": "judged", "why": "", "note": "", "asked": {}, "kind": "machine", "confidence": 0.9, "evict": [], "verdict": "{}",
}  # fmt: skip
RESPONSES = {
    "01": IncidentResponse("dismissed", "ada"), "02": IncidentResponse("resolved", "bob"), "03": IncidentResponse(acknowledged_by="ada"),
}  # fmt: skip


@pytest.fixture
def store(where: Path | str) -> Iterator[Store]:
    made = Store(where)
    yield made
    made.close()


def fill(connection: sa.Connection) -> None:
    """Eight incidents of two jobs, an hour apart; what people did about three; one that went on, failed, is under way."""
    more: dict[str, dict[str, Any]] = {
        "04": {"went_on_s": 30.0}, "05": {"state": "failed", "kind": "", "note": "nobody ANSWERED 100%"},
        "06": {"state": "capturing", "kind": ""}, "07": {"evict": ["gpu-a17"], "confidence": 0.5},
    }  # fmt: skip
    for number in range(8):
        name = f"{number:02}"
        response = asdict(RESPONSES[name]) if name in RESPONSES else {}
        values = {
            **BASE,
            "id": name,
            "job": f"Llama-{number % 2}",
            "began": 3600.0 * number,
            "changed": 0.0,
            "response": response,
        }
        connection.execute(tables.INCIDENTS.insert().values(**{**values, **more.get(name, {})}))


async def listed(store: Store, **asked: str) -> ListPage[Any]:
    return await store.ask(incident_list.page, query_of(INCIDENTS, {k: [v] for k, v in asked.items()}, 5, 1000))


def names(page: ListPage[Any]) -> str:
    return " ".join(one.id for one in page.rows)


async def test_incidents_are_searched_filtered_sorted_and_paged(store: Store) -> None:
    await store.do(fill)
    first = await listed(store)
    assert (names(first), first.found, first.known, first.pages) == ("07 06 05 04 03", 8, 8, 2)
    assert names(await listed(store, page="2")) == "02 01 00"
    assert names(await listed(store, job="Llama-1", sort="began")) == "01 03 05 07"
    assert names(await listed(store, search="answered")) == "05" == names(await listed(store, search="100%"))
    assert names(await listed(store, search="1%0")) == "", "a sign of SQL is a sign like others"
    assert names(await listed(store, search="llama-1 gpu-A17")) == "07"
    assert names(await listed(store, search="ada")) == "03 01"
    assert names(await listed(store, sort="confidence", limit="1")) in ("05", "07")
    assert names(await listed(store, search="\0")) == ""


async def test_what_people_decided_is_right_in_states_and_counts(store: Store) -> None:
    await store.do(fill)
    page = await listed(store, limit="9")
    assert dict(page.counts) == {
        "under-way": 1, "open": 2, "acknowledged": 1, "failed": 1, "went-on": 1, "resolved": 1, "dismissed": 1,
    }  # fmt: skip
    for state in INCIDENTS.states:
        found = await listed(store, state=state)
        assert {str(status_of(one)) for one in found.rows} == {state}, "the store and the noun say the same"
        assert found.counts == page.counts and found.found == page.counts[state]
    assert names(await listed(store, state="dismissed,resolved", search="llama-1")) == "01"


async def test_a_search_finds_the_incidents_that_name_a_machine(store: Store) -> None:
    await store.do(fill)
    await store.do(mention, "00", "gpu-b03", MentionKind.SUSPECTED)
    assert names(await listed(store, search="GPU-B03")) == "00"


def mention(connection: sa.Connection, incident: str, machine: str, kind: MentionKind, at: float = 5.0) -> None:
    values = {
        "incident": incident,
        "machine": machine,
        "job": "j",
        "at": at,
        "mention": kind,
        "probability": 0.8,
        "among": 1,
        "kind": "machine",
    }
    connection.execute(tables.LEDGER.insert().values(**values))


async def test_a_machine_is_accused_until_that_is_taken_back_old_or_over(store: Store) -> None:
    await store.do(fill)
    await store.do(mention, "00", "a", MentionKind.SUSPECTED)
    await store.do(mention, "01", "b", MentionKind.CONVICTED)
    before = await store.ask(accused_machines.changes)
    await store.do(mention, "01", "b", MentionKind.TAKEN_BACK)
    assert await store.ask(accused_machines.changes) != before
    await store.do(mention, "04", "c", MentionKind.SUSPECTED)  # its job went on: nobody was to blame
    await store.do(mention, "04", "d", MentionKind.CONVICTED)
    await store.do(mention, "00", "e", MentionKind.CONVICTED, 1.0)
    assert await store.ask(accused_machines.accused, 2.0) == {"a", "d"}


async def test_actions_are_listed_by_state(store: Store) -> None:
    def acts(connection: sa.Connection) -> None:
        for number, state in enumerate(["waiting", "done", "dismissed", "waiting"]):
            connection.execute(
                tables.INTENTS.insert().values(
                    incident=f"0{number}", machine=f"gpu-{number}", job="llama", domain="", state=state, at=float(number), changed=1.0,
                    reason="it hangs", message="", who="ada" if state == "dismissed" else "", evidence_at=0.0, boot="", serial="",
                    marked=state == "done", runs={},
                )
            )  # fmt: skip

    await store.do(acts)

    async def page(**asked: str) -> list[str]:
        found = await store.ask(action_list.page, query_of(ACTIONS, {k: [v] for k, v in asked.items()}, 3, 1000))
        assert found.counts["waiting"] == (0 if "search" in asked else 2)
        return [row.machine for row in found.rows]

    assert await page() == ["gpu-3", "gpu-2", "gpu-1"] and await page(page="2") == ["gpu-0"]
    assert await page(state="waiting") == ["gpu-3", "gpu-0"] and await page(search="ADA hangs") == ["gpu-2"]
    assert await store.ask(accused_machines.marked) == {"gpu-1"}


def test_no_verdict_is_read_for_a_list(memory: Path) -> None:
    """SQLite reads the index of lines alone: verdicts stand before what a list shows, and have megabytes."""
    store = Store(memory / "s.db")
    text = sa.select(incident_list.STATUS, incident_list.TEXT, *incident_list.SORTS.values())
    query = hinted(text, tables.INCIDENTS, incident_list.INDEX)
    with store._database.begin(reads=True) as connection:
        made = query.compile(connection.engine, compile_kwargs={"literal_binds": True})
        (plan,) = connection.exec_driver_sql(f"EXPLAIN QUERY PLAN {made}").all()
    store.close()
    assert "USING COVERING INDEX ix_incidents_lines" in plan[-1]
