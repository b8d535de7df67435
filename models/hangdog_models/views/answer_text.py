"""The answer in a few words, the same in a terminal, on a page and in a post-mortem."""

from collections.abc import Iterable, Sequence

from hangdog_models.counts import counted
from hangdog_models.diagnosis.findings.failing_paths import PATH
from hangdog_models.diagnosis.options import Options
from hangdog_models.numbers.wrong_number import WrongNumbers
from hangdog_models.ranks import format_ranks
from hangdog_models.reading.printable import escaped, printable
from hangdog_models.verdict import (
    Activity,
    ClusterView,
    Culprit,
    JobCrash,
    Kind,
    MachineCheck,
    StallCause,
    Suspect,
    Verdict,
)

#: Machines named in the headline; all of them stand under `evict`.
MACHINES = 4
#: Characters of a rank set in the headline.
WIDTH = 32

#: Characters of how a rank failed.
HOW = 60

#: From which probability on it is known who it is.
HALF = 0.5
#: What probabilities are compared with: to tell who it is, and to evict.
BOUNDS = (HALF, Options().coverage_target)
#: A verdict against the code.
CODE_BUG = "code bug, no machine is at fault"
#: Of a job of which every rank is stopped.
SUSPENDED = "every rank is stopped, as a person or a scheduler suspends a job"
#: Why a culprit holds the job up, as people say it, where it is one and where it is several.
_REASONS = {
    StallCause.MACHINE: ("its machine", "their machines"),
    StallCause.GROUP: ("a path or device of its group", "a path or device between them"),
    StallCause.SOFTWARE: ("its code", "their code"),
    StallCause.DEPENDENCY: ("a service it waits for", "a service they wait for"),
    StallCause.SLOW: ("work that takes its time", "work that takes its time"),
    StallCause.HEALTHY: ("a healthy phase", "a healthy phase"),
    StallCause.UNKNOWN: ("work that may be healthy", "work that may be healthy"),
}
#: Kinds that blame no machine: there, calling a machine suspect would send somebody to the wrong place.
BLAMELESS = (Kind.SOFTWARE, Kind.DEPENDENCY)

#: Activities whose written value people would not say; `unknown` is what stands still where no rule knows the place.
_WORDS = {Activity.UNKNOWN: "asleep", Activity.DATALOADER: "data loader", Activity.GIL: "interpreter lock"}


def judged_by(rules: str) -> str:
    """The rule sets of a verdict in a few words: their names are in its JSON."""
    names = rules.split()
    if len(names) < 2:
        return rules
    dates = sorted({name.partition("@")[2] for name in names})
    return f"{counted(len(names), 'rule set')} of {dates[0]}{f' to {dates[-1]}' if len(dates) > 1 else ''}"


def answer(verdict: Verdict) -> str:
    """What it is, and who; how likely, where who it is and why are two matters."""
    if verdict.check is not None:
        return _of_check(verdict, verdict.check)
    if verdict.numbers is not None:
        return _of_numbers(verdict, verdict.numbers)
    if _apart(verdict) and verdict.culprit is not None:
        unseen = not set(verdict.coverage.missing).isdisjoint(verdict.culprit.ranks)
        return _who_and_why(verdict.culprit, verdict, unseen)
    if verdict.crash is not None:
        return _of_crash(verdict, verdict.crash)
    names, first = verdict.evict.machines, verdict.suspects[0] if verdict.suspects else None
    culprits = verdict.culprit.machines if verdict.culprit else ()
    several, alternatives = len(names) > 1, len(names) > 1 and bool(culprits) and not set(names) <= set(culprits)
    who = f"{'one of ' if alternatives else ''}{some(names, MACHINES)}" if names else ""
    holds = "hold" if several and not alternatives else "holds"
    return {
        Kind.MACHINE: f"{who} {holds} the job up" if who else f"a machine holds the job up{_likeliest(first)}",
        Kind.GROUP: _of_group(verdict),
        Kind.SOFTWARE: CODE_BUG,
        Kind.DEPENDENCY: SUSPENDED if _suspended(verdict) else "a service that many ranks share blocks them",
        Kind.SLOW: f"{who} {holds} the job back"
        if who
        else f"the job makes progress, but is held back{_likeliest(first)}",
        Kind.NONE: "the job is making progress",
        Kind.UNDETERMINED: f"cause unknown{_likeliest(verdict.culprit) or _alone(verdict) or _faint(verdict)}",
    }[verdict.kind]


def sure(verdict: Verdict) -> str:
    """How sure the answer is; empty where it says so itself, or where there is none."""
    asked = verdict.check is not None or verdict.numbers is not None
    if asked and verdict.kind is not Kind.MACHINE:
        return ""
    if verdict.kind is Kind.UNDETERMINED or (not asked and _apart(verdict)):
        return ""
    if verdict.evict.machines:
        return percent(verdict.evict.coverage)
    named = verdict.kind is Kind.GROUP and verdict.suspects
    return percent(verdict.suspects[0].probability if named else verdict.confidence)


def unplaced(verdict: Verdict) -> tuple[int, ...]:
    """The ranks that are to blame and of which no machine is known."""
    found = [one for one in verdict.suspects[1:] if one.probability > HALF and not one.machines]
    first = [one for one in verdict.suspects[:1] if not one.machines]
    return tuple(sorted({rank for one in (*first, *found) for rank in one.ranks})) if first else ()


def percent(probability: float) -> str:
    """A probability in whole percent. Certainty is never rounded up to, nor is what stays below a bound rounded up to that."""
    if 0 < probability < 0.005:
        return "<1%"
    if probability >= 0.995:
        return ">99%"
    nearest = round(100 * probability)
    reaches = any(probability < bound <= nearest / 100 for bound in BOUNDS)
    return f"{nearest - 1 if reaches else nearest}%"


def rank_text(ranks: Sequence[int], width: int | None = None) -> str:
    """`rank 7`, or `ranks 0-3, 7`: wraps at its commas; cut between two runs when wider than `width`, then with the count."""
    if not ranks:
        return "no rank"
    runs = format_ranks(ranks).split(",")
    text = ", ".join(runs)
    if width is not None and len(text) > width:
        text = f"{text[:width].rpartition(', ')[0] or runs[0]}, ... ({len(ranks)} in all)"
    return f"rank {text}" if len(ranks) == 1 else f"ranks {text}"


def some(names: Iterable[str], most: int) -> str:
    """The first of the names, and how many more there are."""
    known = [escaped(name) for name in names]
    rest = len(known) - most
    return ", ".join(known[:most]) + (f" and {rest} more" if rest > 0 else "")


def doing(cluster: ClusterView) -> str:
    """What the ranks of a cluster do, and in which group: `collective in dp`, `data loader`."""
    word = _WORDS.get(cluster.activity, cluster.activity.replace("_", " "))
    return f"{word} in {escaped(cluster.dim)}" if cluster.dim else word


def _suspended(verdict: Verdict) -> bool:
    return bool(verdict.because) and verdict.because[0].code == "job-suspended"


def _apart(verdict: Verdict) -> bool:
    """Whether it is known who holds the job up, and why is another question: nobody is evicted, and it is no whole group."""
    found = verdict.culprit
    if found is None or found.probability < HALF or verdict.evict.machines:
        return False
    whole = verdict.suspects and len(found.ranks) > 1 and found.ranks == verdict.suspects[0].ranks
    return verdict.kind is not Kind.GROUP or not whole


def _of_check(verdict: Verdict, check: MachineCheck) -> str:
    """What it is of a machine whose checks found something; its job, where it has one, runs."""
    found = ", ".join(printable(code, HOW) for code in check.found) or "something that is over"
    names = verdict.evict.machines or (check.machine,)
    if verdict.kind is Kind.MACHINE:
        what = f": {found}" if check.machine in names else ""
        return f"{some(names, MACHINES)} {'is' if len(names) == 1 else 'are'} at fault{what}"
    return f"{escaped(check.machine)} shows {found}, which does not tell that it is at fault"


def _of_numbers(verdict: Verdict, numbers: WrongNumbers) -> str:
    """What it is of a job that logged wrong numbers: who computed them is known where something else tells it."""
    since = f" since step {numbers.step}" if numbers.step is not None else ""
    wrong = f"the {printable(numbers.what, HOW)} is {printable(numbers.value, HOW)}{since}"
    names = verdict.evict.machines
    if names:
        return f"{wrong}, and {some(names, MACHINES)} {'is' if len(names) == 1 else 'are'} at fault"
    first = next((one for one in verdict.suspects if numbers.rank is not None and numbers.rank in one.ranks), None)
    if first is not None:
        return f"{wrong}, first at {_culprit(first)}, which may have computed it ({percent(first.probability)})"
    return f"{wrong}, and nothing tells who computed it"


def _of_crash(verdict: Verdict, crash: JobCrash) -> str:
    """What it is of a job that crashed, where that is known of machines or causes and not of one culprit."""
    names = verdict.evict.machines
    first = _first_failed(crash) or "the job crashed"
    if names == (crash.machine,):
        return f"{first}, because of its machine"
    if names:
        return f"{some(names, MACHINES)} brought the job down"
    suspect = verdict.suspects[0] if verdict.suspects else None
    return {
        Kind.MACHINE: f"{first}, because of a machine{_likeliest(suspect)}",
        Kind.GROUP: f"{first}, and {_of_group(verdict)}",
        Kind.SOFTWARE: f"{first}: {CODE_BUG}",
        Kind.DEPENDENCY: f"{first}: a service that many ranks share is at fault",
    }.get(verdict.kind, f"{first}, cause unknown{_likeliest(verdict.culprit)}")


def _first_failed(crash: JobCrash) -> str:
    """Which rank failed first, or where, and how; empty where none did by itself."""
    if crash.rank is None and crash.machine:
        return f"a process on {escaped(crash.machine)} failed first {printable(crash.how, HOW)}"
    if crash.rank is None:
        return ""
    return f"rank {crash.rank}{f' on {escaped(crash.machine)}' if crash.machine else ''} failed first {printable(crash.how, HOW)}"


def _holds_up(culprit: Culprit, crash: JobCrash | None, several: bool) -> str:
    """What a culprit did or does to its job."""
    if crash is None:
        return f"{'hold' if several else 'holds'} the job up"
    return f"failed first {printable(crash.how, HOW)}" if culprit.ranks == (crash.rank,) else "brought the job down"


def _who_and_why(culprit: Culprit, verdict: Verdict, unseen: bool) -> str:
    """Who holds the job up and why, the likeliest first, and of equals the verdict's kind; nothing tells it of the `unseen`."""
    several, kind = len(culprit.ranks) > 1 or len(culprit.machines) > 1, verdict.kind
    likely = [(p, cause) for cause, p in culprit.causes.items() if p >= LEAST]
    likely.sort(key=lambda one: (-round(one[0], 9), str(one[1]) != str(kind)))
    who, share = _culprit(culprit), percent(culprit.probability)
    does = _holds_up(culprit, verdict.crash, several)
    if kind is Kind.NONE and verdict.crash is None:
        does = f"{'keep' if several else 'keeps'} the others waiting"
    if unseen and likely and likely[0][1] is StallCause.UNKNOWN:
        return f"{who} {does} ({share}), and nothing tells why"
    if len(likely) == 1 and percent(likely[0][0]) == share:
        if likely[0][1] in (StallCause.SLOW, StallCause.HEALTHY):
            return f"{who} {'hold' if several else 'holds'} the job back ({share})"
        return f"{who} {does}, because of {_reason(likely[0][1], culprit)} ({share})"
    why = " or ".join(f"{_reason(cause, culprit)} ({percent(p)})" for p, cause in likely[:2])
    return f"{who} {does} ({share}){f', likely because of {why}' if why else ''}"


def _reason(cause: StallCause, culprit: Culprit) -> str:
    one, several = _REASONS[cause]
    if len(culprit.ranks) < 2 and len(culprit.machines) < 2:
        return one
    return "their machine" if cause is StallCause.MACHINE and len(culprit.machines) == 1 else several


def _likeliest(found: Culprit | Suspect | None) -> str:
    return f"; likeliest is {_culprit(found)} ({percent(found.probability)})" if found is not None else ""


def _alone(verdict: Verdict) -> str:
    """Where the only rank stands of which there is a stack: nobody else can stand out."""
    seen = verdict.clusters[0] if verdict.coverage.captured == 1 and verdict.clusters else None
    if seen is None or not seen.stack:
        return ""
    return f"; only {rank_text(seen.ranks)} was seen ({doing(seen)}{f', {escaped(seen.label)}' if seen.label else ''})"


def _faint(verdict: Verdict) -> str:
    """Whom something speaks against, where it is too little to be likely."""
    first = verdict.suspects[0] if verdict.suspects else None
    if first is None:
        return ", and nobody stands out"
    return f", and at most {_culprit(first)} {'stand' if len(first.ranks or first.machines) > 1 else 'stands'} out"


def _culprit(culprit: Culprit | Suspect) -> str:
    on = some(culprit.machines, MACHINES)
    if not culprit.ranks:
        return on or "somebody"
    return f"{rank_text(culprit.ranks, WIDTH)}{f' on {on}' if on else ''}"


def _of_group(verdict: Verdict) -> str:
    """Of a group that waits as a whole that it does; of ranks that merely stand apart together that they do."""
    first = verdict.suspects[0].ranks if verdict.suspects else ()
    group = next((group for group in verdict.groups if not first or group.ranks == first), None)
    if group is not None and group.dim == PATH:
        ends = verdict.suspects[0].machines if verdict.suspects else ()
        if len(ends) == 1:
            return f"a path at {escaped(ends[0])} fails"
        between = " and ".join(map(escaped, ends)) if len(ends) == 2 else counted(len(ends), "machine")
        return f"{'the path' if len(ends) == 2 else 'the network'} between {between} fails"
    if group is not None:
        return f"{escaped(group.dim)} {rank_text(group.ranks, WIDTH)} all joined, and nothing completes"
    return f"what {rank_text(first, WIDTH) if first else 'the ranks of one group'} do together does not complete"


#: A verdict this old says nothing of what is suspected now. Seconds.
RECENT_S = 24 * 3600.0
#: Less probable suspects are no news.
LEAST = 0.1


def accuses(kind: str) -> bool:
    """Whether a verdict of this kind suspects machines, whatever it lists; without a verdict (`""`) nobody is suspected."""
    return kind not in ("", Kind.NONE, *BLAMELESS)
