"""What may be taken: every bound by its words, and ten thousand random histories beside a count of our own."""

import random
from collections import Counter
from dataclasses import dataclass, field, replace
from typing import Any

import msgspec
import pytest

from hangdog_models.actions.action_history import ActionHistory, Body, PastAction, WantedAction
from hangdog_models.actions.caps import Caps
from hangdog_models.actions.may_isolate import DAY_S, HOUR_S, Bound, decide, tripping

NOW = 1_800_000_000.0
BODIES = {name: Body(f"boot-{name}", f"serial-{name}") for name in "abcdefgh"}
WANTED = WantedAction("0a", "llama", ("a",), NOW - 60, BODIES)
KNOWN = ActionHistory(100, 10, BODIES, dict.fromkeys("abcd", "leaf-1"))


def before(machine: str, incident: str = "00", job: str = "qwen", ago: float = 600.0, **more: Any) -> PastAction:
    """A machine that was taken so many seconds ago."""
    return PastAction(machine, incident, job, KNOWN.domains.get(machine, ""), NOW - ago, took=True, **more)


def test_one_machine_with_fresh_evidence_is_taken() -> None:
    assert decide(WANTED, KNOWN, [], Caps(), NOW).machines == ("a",)
    assert decide(replace(WANTED, machines=("a", "a", "e")), KNOWN, [], Caps(), NOW).machines == ("a", "e")


@pytest.mark.parametrize(
    ("wanted", "known", "past", "caps", "bound", "words"),
    [
        (replace(WANTED, machines=()), KNOWN, [], Caps(), Bound.EMPTY, "no machine"),
        (replace(WANTED, evidence_at=NOW - 1801), KNOWN, [], Caps(), Bound.STALE, "1801 s"),
        (replace(WANTED, evidence_at=NOW + 60), KNOWN, [], Caps(), Bound.STALE, "of the future"),
        (replace(WANTED, evidence_at=float("nan")), KNOWN, [], Caps(), Bound.STALE, "of the future"),
        (replace(WANTED, bodies={}), KNOWN, [], Caps(), Bound.BODY, "start of a "),
        (WANTED, replace(KNOWN, bodies={"a": Body("other", "serial-a")}), [], Caps(), Bound.BODY, "a was started"),
        (WANTED, replace(KNOWN, bodies={"a": Body("boot-a", "x")}), [], Caps(), Bound.BODY, "hardware now (x)"),
        (WANTED, KNOWN, [before("a", "0a", ago=9e5)], Caps(), Bound.TWICE, "a was taken "),
        (WANTED, KNOWN, [before("a", "09", ago=9e4)], Caps(), Bound.AGAIN, " 7 days before (again_s)"),
        (WANTED, KNOWN, [before("e"), before("f")], Caps(per_hour=2), Bound.HOUR, "2 machines were taken"),
        (WANTED, KNOWN, [before("e", job="llama", ago=9e3)], Caps(per_job=1), Bound.JOB, "1 machine was taken"),
        (
            replace(WANTED, user="1001"),
            KNOWN,
            [before("e", job="x1", user="1001"), before("f", job="x2", user="1001"), before("g", user="1000")],
            Caps(per_user=2),
            Bound.USER,
            "user 1001 within a day, 2 are allowed (per_user)",
        ),
        (
            replace(WANTED, conflicts=("b claims rank 1, which a announced first",)),
            KNOWN, [], Caps(), Bound.CONFLICT, ": b claims rank 1",
        ),
        (WANTED, KNOWN, [before("b", out=True), before("c", out=True)], Caps(), Bound.DOMAIN, "3 machines of leaf-1"),
        (WANTED, KNOWN, [before("e", out=True)], Caps(share=0.01), Bound.SHARE, "2 of 100 machines"),
        (WANTED, replace(KNOWN, free=0), [], Caps(), Bound.SPARES, "(1 needed)"),
        (WANTED, replace(KNOWN, free=2), [], Caps(spares=2), Bound.SPARES, "2 spare machines are free (3 needed, 2 of them to be left (spares))"),
        (WANTED, replace(KNOWN, free=1), [before("e", out=True)], Caps(), Bound.SPARES, "no spare machine is free (1 needed)"),
    ],
    ids=lambda value: str(value) if isinstance(value, Bound) else "",
)  # fmt: skip
def test_every_refusal_has_words(
    wanted: WantedAction, known: ActionHistory, past: list[PastAction], caps: Caps, bound: Bound, words: str
) -> None:
    decision = decide(wanted, known, past, caps, NOW)
    assert decision.machines == () and [one.bound for one in decision.refusals] == [bound]
    assert words in decision.words


def test_an_act_that_failed_and_left_no_mark_is_no_reason_against_the_next() -> None:
    assert decide(WANTED, KNOWN, [before("a", "09", failed=True)], Caps(), NOW).machines == ("a",)
    assert not decide(WANTED, KNOWN, [before("a", "09", failed=True, out=True)], Caps(), NOW).machines


def test_part_of_a_set_is_never_taken() -> None:
    decision = decide(replace(WANTED, machines=("a", "b", "c")), KNOWN, [], Caps(), NOW)
    assert decision.machines == () and decision.refusals[0].bound is Bound.DOMAIN


def test_an_open_breaker_forbids_everything_and_says_why() -> None:
    decision = decide(WANTED, KNOWN, [], Caps(), NOW, "half of them")
    assert decision.machines == () and [one.bound for one in decision.refusals] == [Bound.BREAKER]
    assert "(half of them)" in decision.words and "hangdog actions --close-breaker" in decision.words


def test_the_breaker_opens_when_too_much_is_asked_or_nothing_succeeds() -> None:
    many = [replace(before(name, ago=10), took=False) for name in "abc"]
    assert " 3 of 10 machines " in tripping(many, replace(KNOWN, machines=10), Caps(), 0.0, NOW)
    assert not tripping(many, replace(KNOWN, machines=10), Caps(), NOW - 5, NOW), "a person closed it since"
    assert not tripping(many, KNOWN, Caps(), 0.0, NOW) and not tripping(
        many[:2], replace(KNOWN, machines=2), Caps(), 0.0, NOW
    )
    failed = [before(name, failed=True, ago=900 + i) for i, name in enumerate("abc")]
    assert "last 3 acts" in tripping(failed, KNOWN, Caps(), 0.0, NOW)
    assert not tripping([*failed, before("d", settled=True, ago=800)], KNOWN, Caps(), 0.0, NOW)
    assert not tripping(failed, KNOWN, Caps(breaker_failures=0), 0.0, NOW)


@pytest.mark.parametrize(
    "bad", [{"per_hour": -1}, {"share": 1.5}, {"evidence_s": float("nan")}, {"again_s": float("inf")}]
)
def test_a_bound_that_is_none_is_refused(bad: dict[str, float]) -> None:
    with pytest.raises(msgspec.ValidationError, match=rf"\$\.{next(iter(bad))}`"):
        msgspec.convert(bad, Caps)  # as a file of settings is read


@dataclass
class World:
    """A small cluster with its own count of what was taken, kept apart from what is tested."""

    dice: random.Random
    size: int
    caps: Caps
    now: float = NOW
    boots: Counter[str] = field(default_factory=Counter)
    past: list[PastAction] = field(default_factory=list)
    taken: int = 0

    def body(self, machine: str) -> Body:
        return Body(f"{machine}-{self.boots[machine]}", machine)

    def known(self) -> ActionHistory:
        names = [f"m{number}" for number in range(self.size)]
        here = {name: self.body(name) for name in names}
        domains = {name: f"leaf-{number // 4}" for number, name in enumerate(names)}
        return ActionHistory(self.size, self.dice.randrange(self.size), here, domains)

    def step(self, number: int) -> None:
        dice = self.dice
        self.now += dice.choice((1.0, 60.0, 1200.0, 4000.0, 50000.0))
        machines = tuple(f"m{dice.randrange(self.size)}" for _ in range(dice.choice((1, 1, 1, 2, 4))))
        known, age = self.known(), dice.choice((5.0, 5.0, 5.0, 900.0, 5000.0))
        seen = {name: self.body(name) for name in machines if dice.random() < 0.95}
        if dice.random() < 0.1:
            self.boots[machines[0]] += 1
            known = replace(known, bodies={**known.bodies, machines[0]: self.body(machines[0])})
        incident = f"i{number if dice.random() < 0.7 else dice.randrange(number + 1)}"
        wanted = WantedAction(incident, f"job-{dice.randrange(2)}", machines, self.now - age, seen)
        decision = decide(wanted, known, self.past, self.caps, self.now)
        assert bool(decision.machines) != bool(decision.refusals) and all(one.message for one in decision.refusals)
        if decision.machines:
            self.hold(wanted, decision.machines, known, age)
        self.past = [
            replace(one, out=one.out and dice.random() < 0.8, settled=dice.random() < 0.8) for one in self.past
        ]
        dice.shuffle(self.past)

    def hold(self, wanted: WantedAction, machines: tuple[str, ...], known: ActionHistory, age: float) -> None:
        """What must be true of every act."""
        assert set(machines) == set(wanted.machines) and age <= self.caps.evidence_s
        for machine in machines:
            assert wanted.bodies[machine] == known.bodies[machine]
            assert (wanted.incident, machine) not in {(one.incident, one.machine) for one in self.past}
        unsettled = sum(one.out and not one.settled for one in self.past)
        assert known.free - unsettled - len(machines) >= self.caps.spares
        self.past += [
            PastAction(one, wanted.incident, wanted.job, known.domains[one], self.now, True, True) for one in machines
        ]
        self.taken += len(machines)
        assert sum(self.now - one.at < HOUR_S for one in self.past) <= self.caps.per_hour
        jobs = Counter(one.job for one in self.past if self.now - one.at < DAY_S)
        assert jobs[wanted.job] <= self.caps.per_job
        out = {one.machine: one.domain for one in self.past if one.out}
        assert len(out) <= (max(1, int(self.caps.share * self.size)) if self.caps.share else 0)
        crowds = Counter(out.values())
        assert all(crowds[known.domains[machine]] <= self.caps.per_domain for machine in machines)


def test_ten_thousand_histories_never_exceed_a_cap_nor_take_a_machine_twice_nor_without_fresh_evidence() -> None:
    dice = random.Random(7)
    taken: Counter[str] = Counter()
    for _ in range(10_000):
        caps = Caps(
            per_hour=dice.randrange(5), per_job=dice.randrange(6), per_domain=dice.randrange(1, 4),
            share=dice.choice((0.0, 0.1, 0.3, 1.0)), spares=dice.randrange(3), again_s=dice.choice((0.0, 3600.0)),
        )  # fmt: skip
        world = World(dice, dice.choice((4, 8, 16)), caps)
        for number in range(4):
            world.step(number)
        taken["acts"] += world.taken
        taken["histories with one"] += bool(world.taken)
    assert taken["acts"] > 4_000 and taken["histories with one"] > 3_000, (
        "a test in which nothing happens shows nothing"
    )
