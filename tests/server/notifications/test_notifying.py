"""People are told once for each change of state, whoever looks how often."""

from dataclasses import replace
from pathlib import Path

from hangdog_models.actions.caps import Caps, Mode
from hangdog_models.actions.respond import ResponseDecision
from hangdog_models.incident import CHECKED_WHY, CRASHED_WHY, NUMBERS_WHY, SUSPECTED_WHY, Incident, ResponseKind
from hangdog_models.incident import IncidentState as Judged
from hangdog_models.ranks import Rank
from hangdog_models.stall_timeouts import Doing, Sign
from hangdog_models.verdict import Kind
from hangdog_server.actions import policy, restart_preview
from hangdog_server.incidents.round_capture import steady
from hangdog_server.notifications import changes, notify_loop
from hangdog_server.notifications.notify_config import Subjects
from hangdog_server.protocol.jobs import AnnouncedJob
from hangdog_server.store import actions, campaigns
from hangdog_server.store.campaigns import Campaign, CampaignState, Convict
from hangdog_server.store.history import responses
from support.cases.goldens import differing
from support.servers.cast import NOON
from support.servers.cast_acting import NOTHING
from support.servers.notified import receiver, watched
from support.worded import names


async def test_an_incident_is_told_of_once_when_it_opens_and_once_when_it_is_judged(tmp_path: Path) -> None:
    async with watched(tmp_path / "s.db", tmp_path) as to:
        await to.opened("0a")
        for _ in range(3):
            await to.tick(1)
        await to.judged("0a", Kind.MACHINE, "gpu-a17", because=("rank 5 is in gc_collect", "63 ranks wait for it"))
        for _ in range(3):
            await to.tick(1)
        to.begin()  # a server that was started anew looks at the same store
        await to.tick(1)
        assert await to.subjects() == [Subjects.OPENED, Subjects.JUDGED]
    (_, first), (_, second) = to.postman.given
    assert names(first.title, "llama") and first.link == second.link == "https://head:7413/incidents/0a"
    assert names(second.title, "llama", "gpu-a17", "97%") and names(second.lines[0], Kind.MACHINE, "gpu-a17")
    assert second.lines[1:] == ("rank 5 is in gc_collect", "63 ranks wait for it")
    assert second.body.splitlines() == [*second.lines, "https://head:7413/incidents/0a"]


async def test_a_crash_is_told_of_as_one_and_judged_like_any_other(tmp_path: Path) -> None:
    async with watched(tmp_path / "s.db", tmp_path) as to:
        await to.opened("0a", why=f"{CRASHED_WHY} rank 3: it ended with exit code 1")
        await to.tick(1)
        await to.judged("0a", Kind.MACHINE, "gpu-a17")
        await to.tick(1)
        assert await to.subjects() == [Subjects.OPENED, Subjects.JUDGED]
    crash, verdict = to.postman.titles()
    assert names(crash, "llama", "crashed") and names(verdict, "llama", "gpu-a17", "97%")


async def test_a_job_that_is_looked_at_again_and_again_is_one_standstill_until_the_verdict_changes(
    tmp_path: Path,
) -> None:
    async with watched(tmp_path / "s.db", tmp_path) as to:
        for name in ("0a", "0b", "0c"):
            await to.opened(name)
            await to.tick(5)
            await to.judged(name, Kind.UNDETERMINED)
            await to.tick(600)
        assert await to.subjects() == [Subjects.OPENED, Subjects.JUDGED]
        stands, unknown = to.postman.titles()
        assert names(stands, "llama", "stand still") and names(unknown, "llama", "cause unknown")
        await to.opened("0d")
        await to.judged("0d", Kind.MACHINE, "a")
        await to.tick()
        await to.judged("0d", Kind.MACHINE, "a")  # a look that came late changes nothing
        await to.tick(5)
        await to.judged("0d", Kind.MACHINE, "b")
        await to.tick(5)
        assert (await to.subjects())[2:] == [Subjects.JUDGED, Subjects.JUDGED]
        of_a, of_b = to.postman.titles()[2:]
        assert names(of_a, "llama", "a", "97%") and names(of_b, "llama", "b", "97%")
        await to.opened("0e")  # it was decided: this is another standstill
        await to.tick(5)
        assert to.postman.titles()[4:] == [stands]
        await to.judged("0e", Kind.UNDETERMINED)
        await to.tick(5)
        await to.opened("0f", why="it is slow")
        await to.tick(5)
        assert (await to.subjects())[6:] == [Subjects.OPENED]
    assert not names(to.postman.titles()[6], "stand still"), "somebody asked, and it stands still no more"


async def test_a_further_look_in_the_same_incident_is_told_of_where_it_says_something_else(tmp_path: Path) -> None:
    async with watched(tmp_path / "s.db", tmp_path) as to:
        await to.opened("0a")
        await to.judged("0a", Kind.UNDETERMINED)
        await to.tick(5)
        before = len(to.postman.titles())
        for _ in range(3):
            await to.judged("0a", Kind.UNDETERMINED, again=True)
            await to.tick(600)
        assert to.postman.titles()[before:] == []
        await to.judged("0a", Kind.SLOW, again=True)
        await to.tick(5)
        assert len(to.postman.titles()[before:]) == 1
        for _ in range(2):
            await to.tick(86400.0)
            await to.judged("0a", Kind.SLOW, again=True)
            await to.tick(5)
            await to.judged("0a", Kind.SLOW, again=True)
            await to.tick(5)
        assert len(to.postman.titles()[before:]) == 3, "one that lasts is told of once more each day"


async def test_that_there_is_no_verdict_is_told_with_why_and_another_look_is_the_same_standstill(
    tmp_path: Path,
) -> None:
    async with watched(tmp_path / "s.db", tmp_path, link="") as to:
        for name in ("0a", "0b"):
            await to.opened(name)
            await to.tick(5)
            await to.on.store.move(name, Judged.FAILED, to.on.now, "no machine answered")
            await to.tick(60)
        assert await to.subjects() == [Subjects.OPENED, Subjects.JUDGED]
    assert names(to.postman.titles()[1], "llama", "no verdict")
    assert to.postman.given[1][1].body.splitlines() == ["no machine answered", "hangdog show 0a"], "and no link"


def test_a_standstill_that_lasts_for_days_is_begun_anew_each_day_and_no_more_often() -> None:
    every = 600.0
    looks = [
        Incident(f"{number:04x}", "llama", NOON + number * every, "suspected: x", Judged.JUDGED, NOON + number * every + 5,
                 kind="undetermined")
        for number in range(3 * 144)
    ]  # fmt: skip
    told = set()
    for number, look in enumerate(looks):
        for minutes in (1, 9):
            now = look.changed + 60.0 * minutes
            seen = [one for one in looks[: number + 1] if one.changed >= now - changes.BACK_S]
            told |= {chain[0].id for chain in changes.chained(seen) if chain[-1].changed >= now - notify_loop.RECENT_S}
    assert len(told) == 4, "three days from noon to noon touch four"


async def test_a_job_that_goes_on_is_told_of_once_where_its_standstill_was(tmp_path: Path) -> None:
    async with watched(tmp_path / "s.db", tmp_path, receiver(), receiver("late", "json://x", "recovered")) as to:
        await to.opened("0a")
        await to.tick()
        await to.judged("0a", Kind.SOFTWARE)
        await to.tick()
        to.notifying._going = {"llama": float("-inf")}
        await to.tick()
        assert len(to.postman.given) == 2, "its agents are mute: nobody knows"
        stands = {"llama": {Rank(0): Sign(Doing.STILL, 400.0, overdue=True)}}
        now = steady()
        for machine in "abc":  # whose agents are heard for as long as this takes
            heard = to.on.fleet.connect(machine, "1", "here", now + 3600)
            to.on.fleet.announce(heard, {"llama": AnnouncedJob("llama", (Rank(0),), 1)}, now + 3600)
            to.vigil.note(machine, stands, now)
        to.notifying._going = {"llama": float("-inf")}
        await to.tick()
        assert len(to.postman.given) == 2, "it stands"
        for machine in "abc":
            to.vigil.note(machine, {}, now)
        await to.tick()
        assert len(to.postman.given) == 2, "not yet: an agent may be about to say otherwise"
        to.notifying._going = {"llama": steady() - notify_loop.RECOVERED_S}
        for _ in range(3):
            await to.tick()
        assert (await to.subjects())[2:] == [Subjects.RECOVERED]
    assert names(to.postman.titles()[2], "llama")
    assert to.postman.titles("late") == [], "who was not told that it stood need not be told that it goes on"


async def test_who_is_to_approve_is_told_what_the_restart_costs_where_that_is_known(tmp_path: Path) -> None:
    async with watched(tmp_path / "s.db", tmp_path, receiver("chat", "json://x", "approval")) as to:
        to.on.mode = Mode.APPROVE
        to.on.begin()
        await to.on.judged("0a", "a")
        await to.on.acting.tick()
        costs = "1 restart of 2"
        assert await to.on.store.do(restart_preview._noted, "0a", costs)
        for _ in range(2):
            await to.tick(1)
        (_, message), *more = to.postman.given
        assert costs in message.body and "hangdog approve 0a" in message.body and not more


async def test_what_is_done_to_machines_is_told_once_it_has_come_to_rest(tmp_path: Path) -> None:
    async with watched(tmp_path / "s.db", tmp_path, receiver("chat", "json://x", "approval", "acted", "breaker")) as to:
        await to.on.store.do(policy.set_breaker, "", "alice", to.on.now)
        await to.tick(1)
        assert to.postman.given == [], "it opened before anybody was told of anything"
        to.on.mode = Mode.APPROVE
        to.on.begin()
        await to.on.judged("0a", "a", "b")
        await to.on.acting.tick()
        for _ in range(2):
            await to.tick(1)
        assert await to.subjects() == [Subjects.APPROVAL]
        assert names(to.postman.titles()[0], "llama", "a, b")
        assert "hangdog approve 0a" in to.postman.given[0][1].body
        facts, rule = await to.on.acting.facts("0a"), to.on.acting.rule()
        await to.on.store.do(policy.approve, "0a", facts, rule, "alice")
        await to.tick(1)
        assert len(to.postman.given) == 1, "it is being done"
        await to.on.until("0a", actions.ActionState.DONE)
        await to.tick(1)
        await to.tick(1)
        assert (await to.subjects())[1:] == [Subjects.ACTED]
        assert names(to.postman.titles()[1], "llama", f"2 machines {actions.ActionState.DONE}")
        await to.on.store.do(policy.release, "a", "repaired", "alice", to.on.now)
        await to.on.until("0a", actions.ActionState.DONE, actions.ActionState.RELEASED)
        await to.tick(1)
        assert (await to.subjects())[2:] == [Subjects.ACTED]
        released, done = actions.ActionState.RELEASED, actions.ActionState.DONE
        assert names(to.postman.titles()[2], "llama", f"1 machine {released}", f"1 machine {done}")
        assert names(to.postman.given[-1][1].lines[0], "a", "repaired")
        await to.on.store.do(policy.set_breaker, "too much at once", "", to.on.now)
        await to.tick(1)
        await to.tick(1)
        await to.on.store.do(policy.set_breaker, "", "alice", to.on.now)
        await to.tick(1)
        assert (await to.subjects())[3:] == [Subjects.BREAKER, Subjects.BREAKER]
    opened, closed = (message for _, message in to.postman.given[3:])
    assert opened.lines[0] == "too much at once" and opened.title != closed.title


async def test_what_would_be_done_is_no_news_but_what_a_bound_forbids_is(tmp_path: Path) -> None:
    async with watched(tmp_path / "s.db", tmp_path, receiver("chat", "json://x", "acted")) as to:
        to.on.mode = Mode.DRY_RUN
        to.on.begin()
        await to.on.judged("0a", "a")
        await to.on.acting.tick()
        await to.tick(1)
        assert to.postman.given == []
        to.on.caps = Caps(per_hour=1)
        to.on.begin()
        await to.on.judged("0b", "b", "c", job="other")
        await to.on.acting.tick()
        await to.tick(1)
        assert await to.subjects() == [Subjects.ACTED]
    assert names(to.postman.titles()[0], "other", f"2 machines {actions.ActionState.REFUSED}")


async def test_an_act_on_a_machine_without_a_job_is_told_without_an_empty_name(tmp_path: Path) -> None:
    async with watched(tmp_path / "s.db", tmp_path, receiver("chat", "json://x", "acted")) as to:
        to.on.caps = Caps(per_hour=1)
        to.on.begin()
        await to.on.judged("0a", "a", "b", job="")
        await to.on.acting.tick()
        await to.tick(1)
        assert await to.subjects() == [Subjects.ACTED]
    assert to.postman.titles()[0].partition(":")[0].strip()


async def test_a_campaign_is_told_of_where_it_convicts(tmp_path: Path) -> None:
    async with watched(tmp_path / "s.db", tmp_path) as to:
        for name, convicts in (("c1", []), ("c2", [Convict("gpu/a17", 0.99)])):
            await to.on.store.do(campaigns.begin, Campaign(name, to.on.now, "alice", "after the hang", "", {}))
            await to.tick(1)
            await to.on.store.do(campaigns.end, name, CampaignState.DONE, to.on.now, "", "{}", convicts)
            await to.tick(1)
        assert await to.subjects() == [Subjects.CONVICTED]
    [(_, message)] = to.postman.given
    assert names(message.title, "gpu/a17") and message.link == "https://head:7413/machines/gpu%2Fa17"


async def test_who_wants_to_hear_of_some_things_hears_of_those(tmp_path: Path) -> None:
    some = receiver("chat", "json://x", "judged"), receiver("all")
    async with watched(tmp_path / "s.db", tmp_path, *some) as to:
        await to.opened("0a")
        await to.tick(1)
        await to.judged("0a", Kind.NONE)
        await to.tick(1)
        assert await to.subjects() == [Subjects.JUDGED]
        assert await to.subjects("all") == [Subjects.OPENED, Subjects.JUDGED]


async def test_a_store_full_of_the_past_is_no_news(tmp_path: Path) -> None:
    async with watched(tmp_path / "s.db", tmp_path) as to:
        await to.opened("0a")
        await to.judged("0a", Kind.MACHINE, "a")
        await to.tick(notify_loop.RECENT_S + 1)
    assert to.postman.given == []


async def test_names_of_a_stranger_wake_nobody_and_fill_nothing(tmp_path: Path) -> None:
    hostile = "<!channel> @here [a](http://evil) `x` *b*\x1b[31m\u202e\n# x " + "y" * 100_000
    async with watched(tmp_path / "s.db", tmp_path) as to:
        await to.opened("0a", job=hostile[:200], why=f"suspected: {hostile}")
        await to.tick(1)
        await to.judged("0a", Kind.MACHINE, hostile, because=(hostile, hostile, hostile, hostile))
        await to.tick(1)
    for _, message in to.postman.given:
        assert not set("<>@[]`*\x1b\u202e") & set(message.title + "".join(message.lines))
        assert "://" not in message.title + "".join(message.lines) and "\n" not in message.title
        assert len(message.title) <= 150 and len(message.lines) <= 3 and max(map(len, message.lines)) <= 300
    assert len(to.postman.given) == 2


async def test_a_verdict_of_another_version_is_told_by_its_kind(tmp_path: Path) -> None:
    async with watched(tmp_path / "s.db", tmp_path) as to:
        await to.opened("0a")
        broken = replace(NOTHING, kind=Kind.GROUP)
        await to.on.store.judged("0a", broken, to.on.now)
        await to.on.store.do(lambda connection: connection.exec_driver_sql("UPDATE incidents SET verdict = '{}'"))
        await to.tick(1)
    assert to.postman.titles() == ["llama: group"]


async def test_the_words_of_messages_are_those_that_a_person_has_read(tmp_path: Path) -> None:
    opened = {
        "stands": f"{SUSPECTED_WHY} ranks 0-3 stand still for 40 s",
        "crashed": f"{CRASHED_WHY} rank 3: it ended with exit code 1",
        "wrong": f"{NUMBERS_WHY} the loss is NaN since step 40",
        "": f"{CHECKED_WHY} gpu-a17: GPU lost: the driver has lost it",
        "slow": "page 4711",
    }
    kinds = (Kind.NONE, Kind.SOFTWARE, Kind.SLOW, Kind.UNDETERMINED, Kind.MACHINE)
    async with watched(tmp_path / "s.db", tmp_path) as to:
        for number, (job, why) in enumerate(opened.items()):
            await to.opened(f"0{number}", why=why, job=job)
            await to.tick(1)
        for number, kind in enumerate(kinds):
            evicts = ("gpu-a17",) if kind is Kind.MACHINE else ()
            await to.judged(f"0{number}", kind, *evicts, because=("63 ranks wait for it",))
            await to.tick(1)
        heard = to.on.fleet.connect("m", "1", "here", steady() + 3600)
        to.on.fleet.announce(heard, {"stands": AnnouncedJob("stands", (Rank(0),), 1)}, steady() + 3600)
        to.notifying._going = {"stands": steady() - notify_loop.RECOVERED_S}
        await to.tick()
        taken = ResponseDecision(ResponseKind.ACKNOWLEDGED, "alice", to.on.now)
        await to.on.store.do(responses.respond, "01", taken, None, "")
        await to.tick(1)
        await to.opened("0f", job="mute")
        await to.on.store.move("0f", Judged.FAILED, to.on.now, "no machine answered")
        await to.tick(1)
        await to.on.store.do(campaigns.begin, Campaign("c1", to.on.now, "alice", "after the hang", "", {}))
        found = [Convict("gpu-a17", 0.99)]
        await to.on.store.do(campaigns.end, "c1", CampaignState.DONE, to.on.now, "", "{}", found)
        await to.tick(1)
        to.on.mode = Mode.APPROVE
        to.on.begin()
        await to.on.judged("1a", "a", "b")
        await to.on.acting.tick()
        await to.tick(1)
        facts, rule = await to.on.acting.facts("1a"), to.on.acting.rule()
        await to.on.store.do(policy.approve, "1a", facts, rule, "alice")
        await to.on.until("1a", actions.ActionState.DONE)
        await to.tick(1)
        await to.on.store.do(policy.release, "a", "repaired", "alice", to.on.now)
        await to.on.until("1a", actions.ActionState.DONE, actions.ActionState.RELEASED)
        await to.tick(1)
        for why, who in (("too much at once", ""), ("", "alice")):
            await to.on.store.do(policy.set_breaker, why, who, to.on.now)
            await to.tick(1)
        abouts = await to.subjects()
    assert set(abouts) == {*Subjects}
    said = [
        "".join(f"{line}\n" for line in (f"[{about}] {message.title}", *message.lines, message.link))
        for about, (_, message) in zip(abouts, to.postman.given, strict=True)
    ]
    assert not (changed := differing(Path(__file__).with_name("golden") / "messages.txt", "\n".join(said))), changed
