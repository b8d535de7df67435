"""No act of the server takes the last copy of a shard: what a platform says of copies is heard before, and again right before."""

import json
import os
from collections.abc import AsyncIterator, Mapping
from dataclasses import dataclass
from pathlib import Path

import pytest

from hangdog_models.actions.caps import Mode
from hangdog_models.errors import WrongUse
from hangdog_models.planning.checkpoint import MOST
from hangdog_server.actions import policy
from hangdog_server.actions.backends.exclude_file import ExcludeFile
from hangdog_server.actions.checkpoint_copies import Manifests
from hangdog_server.store import actions
from hangdog_server.store.actions import ActionState
from support.refused import refused
from support.servers.cast import NOON
from support.servers.cast_acting import World, world


@dataclass
class Stage:
    """A server that goes by what the folder `copies` says of each job; `excluded` are the machines it took."""

    server: World
    folder: Path

    def say(self, copies: Mapping[str, object], job: str = "llama") -> None:
        (self.folder / f"{job}.json").write_text(json.dumps(copies))

    @property
    def excluded(self) -> str:
        file = self.folder / "excluded"
        return "".join(line[0] for line in file.read_text().splitlines()) if file.exists() else ""


@pytest.fixture
async def on(tmp_path: Path) -> AsyncIterator[Stage]:
    actor = ExcludeFile(tmp_path / "excluded")
    async with world(tmp_path / "s.db", tmp_path, actor, copies=Manifests(f"{tmp_path}/{{job}}.json")) as server:
        yield Stage(server, tmp_path)


async def test_a_set_that_leaves_a_copy_of_every_shard_is_taken(on: Stage) -> None:
    on.say({"shard-0": ["a", "c"], "shard-1": ["b", "c"]})
    await on.server.judged("0a", "a", "b")
    await on.server.until("0a", ActionState.DONE)
    assert on.excluded == "ab"


async def test_one_that_would_take_the_last_copy_is_refused_with_the_shards_until_they_are_copied(on: Stage) -> None:
    on.say({"shard-0": ["a", "b"], "shard-1": ["b", "c"]})
    await on.server.judged("0a", "a", "b")
    for _ in range(2):
        await on.server.acting.tick()
    assert await on.server.states("0a") == {"a": "refused", "b": "refused"} and on.excluded == ""
    words = await on.server.words("0a")
    assert "taking a, b would " in words and "shard shard-0, taking a alone " in words

    async def approve() -> tuple[actions.ActionRecord, ...]:
        facts, rule = await on.server.acting.facts("0a"), on.server.acting.rule()
        return await on.server.store.do(policy.approve, "0a", facts, rule, "alice")

    assert {row.state for row in await approve()} == {ActionState.REFUSED}, "people are bound by it, too"
    on.say({"shard-0": ["a", "b", "c"], "shard-1": ["b", "c"]})
    assert {row.state for row in await approve()} == {ActionState.PENDING}
    await on.server.until("0a", ActionState.DONE)
    assert on.excluded == "ab"


async def test_what_a_machine_held_that_is_out_counts_for_nothing(on: Stage) -> None:
    on.say({"shard-0": ["a", "b"]})
    await on.server.judged("0a", "a")
    await on.server.until("0a", ActionState.DONE)
    await on.server.judged("0b", "b")
    await on.server.acting.tick()
    assert await on.server.states("0b") == {"b": "refused"} and "shard-0" in await on.server.words("0b")
    await on.server.store.do(policy.release, "a", "", "alice", NOON)
    await on.server.until("0a", ActionState.RELEASED)
    await on.server.judged("0c", "b")
    await on.server.until("0c", ActionState.DONE)


async def test_copies_that_moved_between_the_decision_and_the_act_are_heard(on: Stage) -> None:
    on.say({"shard-0": ["a", "b"]})
    on.server.mode = Mode.APPROVE
    on.server.begin()
    await on.server.judged("0a", "a")
    await on.server.acting.tick()
    facts, rule = await on.server.acting.facts("0a"), on.server.acting.rule()
    await on.server.store.do(policy.approve, "0a", facts, rule, "alice")
    on.say({"shard-0": ["a"]})
    await on.server.acting.tick()
    assert await on.server.states("0a") == {"a": "pending"} and "shard-0" in await on.server.words("0a")
    (row,) = await on.server.store.ask(actions.of, "0a")
    assert on.excluded == "" and not row.marked
    on.say({"shard-0": ["a", "c"]})
    await on.server.until("0a", ActionState.DONE)


async def test_a_mark_that_a_killed_server_may_have_set_is_carried_on_though_copies_moved(on: Stage) -> None:
    """It died between the act and its noting: nobody knows whether the machine is out, and half a mark helps nobody."""
    on.say({"shard-0": ["a", "b"]})
    on.server.mode = Mode.APPROVE
    on.server.begin()
    await on.server.judged("0a", "a")
    await on.server.acting.tick()
    facts, rule = await on.server.acting.facts("0a"), on.server.acting.rule()
    (row,) = await on.server.store.do(policy.approve, "0a", facts, rule, "alice")
    assert await on.server.store.write("0a", actions.may, row)
    on.say({"shard-0": ["a"]})
    await on.server.until("0a", ActionState.DONE)
    assert on.excluded == "a"


async def test_a_job_of_which_nobody_says_anything_is_taken_from(on: Stage) -> None:
    on.say({"shard-0": ["a"]}, job="qwen")
    await on.server.judged("0a", "a")
    await on.server.until("0a", ActionState.DONE)


@pytest.mark.parametrize(
    "content",
    ["{", '{"shard-0": "a"}', "\udcff", None, "[" * 99_999, '{"s": [' + "[]," * 999_999 + "[]]}", "{}" + " " * MOST],
    ids=["torn", "no list", "no text", "a folder", "deep", "many", "long"],
)
async def test_what_cannot_be_read_forbids(on: Stage, content: str | None) -> None:
    file = on.folder / "llama.json"
    if content is None:
        file.mkdir()
    else:
        file.write_text(content, encoding="utf-8", errors="surrogateescape")
    await on.server.judged("0a", "a")
    await on.server.acting.tick()
    assert await on.server.states("0a") == {"a": "refused"}
    with refused("checkpoint-copies-unknown", WrongUse, str(file)) as caught:
        await Manifests(str(file)).of("llama")
    assert str(caught.value) in await on.server.words("0a") and on.excluded == ""


async def test_a_disk_that_hangs_forbids_and_keeps_nobody_waiting(on: Stage) -> None:
    os.mkfifo(pipe := on.folder / "llama.json")  # whoever opens it waits for a writer, as for a dead disk
    on.server.copies = Manifests(str(pipe), within_s=0.5)
    on.server.begin()
    await on.server.judged("0a", "a")
    await on.server.judged("0b", "b")
    await on.server.acting.tick()
    for name in ("0a", "0b"):
        assert "takes too long" in await on.server.words(name)
    with pipe.open("wb"):
        pass


@pytest.mark.parametrize("job", ["../llama", "/etc/passwd", ".hidden", "a\0b", ""])
async def test_the_name_of_a_job_leads_nowhere_else(tmp_path: Path, job: str) -> None:
    with refused("checkpoint-copies-unknown"):
        await Manifests(f"{tmp_path}/{{job}}").of(job)


async def test_one_file_may_speak_for_all_jobs(tmp_path: Path) -> None:
    (tmp_path / "copies").write_text('{"s": ["a"]}')
    assert await Manifests(f"{tmp_path}/copies").of("../llama") == {"s": ["a"]}
