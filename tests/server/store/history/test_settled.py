"""What people said that incidents turned out to be, on both engines: the latest word stands, and survives a restart."""

import tempfile
from dataclasses import replace
from pathlib import Path

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from hangdog_models.errors import WrongUse
from hangdog_models.incident import Incident, IncidentState, SettledCause
from hangdog_models.verdict import StallCause
from hangdog_server.store.history import responses, settled
from hangdog_server.store.store import Store
from support.refused import refused
from support.servers.cast import NOON
from support.servers.cast_acting import NOTHING

BY_ADA = SettledCause("machine", ("a",), "the fan is dead", "ada", NOON)
CODE = SettledCause("software", (), "fixed by a change of the loader", "bob", NOON + 1)


async def judged(store: Store, name: str = "0a") -> None:
    await store.begin(Incident(name, "llama", NOON - 40.0), {"asked": {"gpu-a": {}, "a": {}}, "absent": {"b": {}}})
    await store.judged(name, NOTHING, NOON)


async def test_the_latest_word_stands_and_is_there_after_a_restart(where: Path | str) -> None:
    store = Store(where)
    await judged(store)
    assert (await store.find("0a")).settled is None
    await store.do(responses.resolve, "0a", BY_ADA)
    await store.do(responses.resolve, "0a", replace(CODE, who="ada"))
    store.close()
    store = Store(where)
    last = replace(CODE, who="ada")
    assert (await store.find("0a")).settled == last == (await store.latest("", 1))[0].settled
    assert await store.ask(settled.of_each, ["0a", "gone"]) == {"0a": last}
    await store.do(responses.resolve, "0a", SettledCause("unknown", (), "", "ada", NOON))
    assert (await store.find("0a")).settled is None and await store.ask(settled.of_each, ["0a"]) == {}
    store.close()


async def test_a_further_look_keeps_what_people_said(where: Path | str) -> None:
    store = Store(where)
    await judged(store)
    await store.do(responses.resolve, "0a", CODE)
    await store.judged_again("0a", {}, NOTHING, NOON + 60.0)
    assert (await store.find("0a")).settled == CODE
    store.close()


@pytest.mark.parametrize("state", [IncidentState.SUSPECTED, IncidentState.CAPTURING, IncidentState.RECORDED])
async def test_an_incident_that_is_under_way_is_not_settled(where: Path | str, state: IncidentState) -> None:
    store = Store(where)
    await store.begin(Incident("0a", "llama", NOON), {})
    await store.move("0a", state, NOON)
    with refused("no-verdict-yet"):
        await store.do(responses.resolve, "0a", CODE)
    assert (await store.find("0a")).settled is None
    await store.move("0a", IncidentState.FAILED, NOON)
    await store.do(responses.resolve, "0a", CODE)
    assert (await store.find("0a")).settled == CODE, "people may know what hangdog could not judge"
    store.close()


async def test_a_machine_that_the_job_did_not_run_on_is_refused(here: Path) -> None:
    store = Store(here)
    await judged(store)
    for machine in ("gpu-a", "b"):
        await store.do(responses.resolve, "0a", SettledCause("machine", (machine,), "", "ada", NOON))
    with pytest.raises(WrongUse, match="'gpu-b'") as caught:
        await store.do(responses.resolve, "0a", SettledCause("machine", ("gpu-b",), "", "ada", NOON))
    assert caught.value.code == "unknown-machine" and caught.value.hint == "is it gpu-a?"
    await store.begin(Incident("0b", "", NOON - 40.0), {})
    await store.judged("0b", NOTHING, NOON)
    await store.do(responses.resolve, "0b", SettledCause("machine", ("x",), "", "ada", NOON))
    assert (await store.find("0b")).settled is not None, "nothing tells on which machines it was"
    with refused("no-such-incident"):
        await store.do(responses.resolve, "0c", CODE)
    store.close()


@pytest.mark.parametrize("stored", [{"cause": 3}, {"machines": ["a"]}, {"cause": "x", "machines": 1}, [], {}])
def test_what_another_version_kept_is_passed_over(stored: dict[str, object]) -> None:
    assert settled.read(stored) is None


WORDS = st.builds(
    SettledCause, st.sampled_from([*map(str, StallCause)]), st.lists(st.sampled_from("ab"), unique=True).map(tuple),
    st.text(st.characters(codec="utf-8", exclude_characters="\0"), max_size=20), st.just("ada"), st.floats(0, 9e9),
)  # fmt: skip


@settings(max_examples=10, deadline=None)
@given(st.lists(WORDS, min_size=1, max_size=4))
async def test_whatever_was_said_only_the_last_word_counts(spoken: list[SettledCause]) -> None:
    with tempfile.TemporaryDirectory() as folder:
        store = Store(Path(folder) / "s.db")
        await judged(store)
        for one in spoken:
            await store.do(responses.resolve, "0a", one)
        last = spoken[-1]
        found = await store.find("0a")
        assert found.settled == (None if last.cause == StallCause.UNKNOWN else last)
        assert (found.state, found.kind) == (IncidentState.JUDGED, NOTHING.kind), "the verdict stays as it was"
        store.close()
