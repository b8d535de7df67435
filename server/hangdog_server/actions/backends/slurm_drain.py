"""Slurm: drains a machine with a reason that names us, has its job start again without it, and undrains only what is ours.

By `scontrol` and `squeue`, which work with every version of Slurm and with whatever right its user has.
"""

import os
import re
from collections.abc import Mapping, Sequence

from hangdog_models.owner import Owner, OwnerKind
from hangdog_server.actions.backends.backend import (
    BackendFailed,
    IsolationCase,
    JobPlacement,
    MachineMark,
    Mark,
    left_alone,
    reason_of,
)
from hangdog_server.actions.backends.subprocess_runner import run

#: Seconds one command may take: Slurm's own patience with a controller that does not answer is 10 (MessageTimeout).
WITHIN_S = 20.0
#: A name that can be no list of machines and no option: `node[1-9]`, `a,b` and `ALL` would mean more than one.
NAME = re.compile(r"[A-Za-z0-9][A-Za-z0-9._-]{0,252}")
#: Flags of a machine's state that take it out of use, whoever set them.
OUT = frozenset({"DRAIN", "DOWN", "FAIL", "FAILING", "MAINTENANCE", "MAINT", "POWERED_DOWN", "POWERING_DOWN"})
#: States of a job that is over, or on its way there.
OVER = frozenset(
    {"CANCELLED", "COMPLETED", "FAILED", "TIMEOUT", "BOOT_FAIL", "DEADLINE", "PREEMPTED", "NODE_FAIL", "REVOKED"}
)
#: What Slurm says that no second try changes, and what to do.
FINAL: Mapping[str, str] = {
    "Invalid node name": "give its agent the --machine that Slurm knows it by",
    "not found": "give its agent the --machine that Slurm knows it by",
    "Access/permission denied": "run the server as SlurmUser, or as an operator: sacctmgr modify user NAME set adminlevel=operator",
    "Invalid user id": "run the server as SlurmUser, or as an operator: sacctmgr modify user NAME set adminlevel=operator",
    "Requested operation is presently disabled": "submit the job with --requeue, or set JobRequeue=1",
    "Only batch jobs are accepted": "only jobs of sbatch can be queued again: start this one anew by hand",
}
GONE = "Invalid job id"
#: Machines that one sentence names.
NAMED = 8


class Slurm:
    """The cluster that `scontrol` finds by its own means: slurm.conf, or SLURM_CONF of `environ`."""

    name = "slurm"
    again_s = 0.0

    def __init__(self, requeue: bool = True, environ: Mapping[str, str] | None = None) -> None:
        """`requeue`: the job is queued again; else its machine is drained, and the job is left to whoever runs it."""
        self._requeue = requeue
        self._environ = {**(os.environ if environ is None else environ), "LC_ALL": "C.UTF-8", "SLURM_TIME_FORMAT": "%s"}

    async def look(self, case: IsolationCase) -> MachineMark:
        """Drained or down, and by whom."""
        line = await self._ask("scontrol", "--oneliner", "show", "node", _name(case.machine))
        state = re.search(r" State=(\S+)", line)
        if state is None:
            raise BackendFailed(
                f"scontrol reports no state of {case.machine}",
                "is it a Slurm of another kind?",
                again=True,
                code="backend-answer-unreadable",
            )
        flags = {flag.rstrip("*~#!%$@^-") for flag in state[1].split("+")}
        if not flags & OUT:
            return MachineMark(Mark.NONE)
        reason = re.search(r" Reason=(.*) \[[^\[\]]*@[^\[\]]*\]", line)
        return reason_of(reason[1] if reason else "")

    async def mark(self, case: IsolationCase) -> None:
        """Drains it: what runs there goes on until it is moved. A second drain would overwrite another owner's reason."""
        state = await self.look(case)
        if state.mark is Mark.ANOTHERS:
            raise left_alone("Slurm", case.machine, state)
        if state.mark is Mark.NONE:
            await self._ask(
                "scontrol", "update", f"nodename={_name(case.machine)}", "state=drain", f"reason={case.reason}"
            )

    async def unmark(self, case: IsolationCase) -> None:
        """Takes the drain away; a machine that is down beside it stays down."""
        state = await self.look(case)
        if state.mark is Mark.ANOTHERS:
            raise left_alone("Slurm", case.machine, state)
        if state.mark is Mark.OURS and state.incident == case.incident:
            await self._ask("scontrol", "update", f"nodename={_name(case.machine)}", "state=undrain")

    async def run_of(self, case: IsolationCase) -> str:
        """`JOBID:RESTARTS` of the job that runs there: the one hangdog knows it by, or the only one."""
        if not self._requeue:
            return ""
        reported = await self._ask(
            "squeue", "--noheader", "--states=all", f"--nodelist={_name(case.machine)}", "--format=%A %T %U"
        )
        found = re.findall(r"^(\d+) (?:RUNNING|SUSPENDED)(?: (\d+))?$", reported, re.MULTILINE)
        there = [job for job, _ in found]
        owner = case.owner
        if owner.kind is OwnerKind.SLURM:  # the kernel's word: another user's job may well be called so
            there = [job for job in there if job == owner.id]
        elif owner.uid is not None:
            there = [job for job, user in found if user == str(owner.uid)]
        if case.job in there:
            there = [case.job]
        if len(set(there)) > 1:
            what = f"Slurm runs several jobs on {case.machine} ({', '.join(sorted(set(there)))}), none is called {case.job}"
            raise BackendFailed(
                what, "export HANGDOG_JOB=$SLURM_JOB_ID in the job; queue this one again by hand", code="ambiguous-job"
            )
        return f"{there[0]}:{(await self._job(there[0])).get('Restarts', '0')}" if there else ""

    async def contradicts(self, stated: JobPlacement) -> tuple[str, ...]:
        """Of a Slurm job: whose it is, and machines that it does not run on. Of a user's: machines where Slurm runs none of theirs."""
        owner = stated.owner
        if owner.kind is OwnerKind.SLURM:
            return await self._outside(owner, stated.machines)
        found = []
        for machine in stated.accused if owner.uid is not None else ():
            reported = await self._ask(
                "squeue", "--noheader", "--states=all", f"--nodelist={_name(machine)}", "--format=%A %U"
            )
            if not re.search(rf"^\d+ {owner.uid}$", reported, re.MULTILINE):
                found.append(f"Slurm runs no job of user {owner.uid} on {machine}")
        return tuple(found)

    async def move(self, case: IsolationCase, run: str, machines: Sequence[str]) -> bool:
        """Queues it again and keeps it off these machines, without the wait for its old credential to end."""
        job, _, restarts = run.partition(":")
        found = await self._job(job)
        state = found.get("JobState", "")
        if not found or state in OVER:
            return True  # it ended by itself, or somebody ended it: not ours to start again
        if state == "COMPLETING":  # after our requeue, or somebody's scancel, which a requeue now would undo
            return False
        if found.get("Restarts", "0") == restarts and state != "PENDING":
            await self._ask("scontrol", "requeue", job)
            return False
        if state == "PENDING":
            before = [one for one in (found.get("ExcNodeList") or "").split(",") if one and one != "(null)"]
            excluded = ",".join(dict.fromkeys((*before, *map(_name, machines))))
            await self._ask("scontrol", "update", f"jobid={job}", f"ExcNodeList={excluded}", "StartTime=now")
            return True
        return state == "RUNNING"  # elsewhere: its machines are drained

    async def close(self) -> None:
        """Holds nothing."""

    async def _outside(self, owner: Owner, machines: Sequence[str]) -> tuple[str, ...]:
        job = await self._job(owner.id)
        if not job:
            return (f"Slurm knows no job {owner.id}",)
        user = re.fullmatch(r".*\((\d+)\)", job.get("UserId", ""))
        if user is not None and owner.uid is not None and int(user[1]) != owner.uid:
            return (f"Slurm says that job {owner.id} is user {user[1]}'s, and agents say {owner.uid}'s",)
        nodes = job.get("NodeList", "(null)")
        if nodes in ("", "(null)"):  # it waits to start again: where it ran is not told any more
            return ()
        placed = frozenset((await self._ask("scontrol", "show", "hostnames", nodes)).split())
        outside = [machine for machine in machines if machine not in placed]
        more = f" and {len(outside) - NAMED} more" if len(outside) > NAMED else ""
        words = f"Slurm does not run job {owner.id} on {', '.join(outside[:NAMED])}{more}"
        return (words,) if outside else ()

    async def _job(self, job: str) -> dict[str, str]:
        """The fields of a job; empty when Slurm has forgotten it."""
        try:
            line = await self._ask("scontrol", "--oneliner", "show", "job", job)
        except BackendFailed as error:
            if GONE in str(error):
                return {}
            raise
        fields = {key: value for key, _, value in (word.partition("=") for word in line.split())}
        if "JobState" not in fields:  # nothing is known of it, least of all that it is to be queued again
            raise BackendFailed(
                f"scontrol reports no state of job {job}",
                "is it a Slurm of another kind?",
                again=True,
                code="backend-answer-unreadable",
            )
        return fields

    async def _ask(self, *command: str) -> str:
        status, out, complaints = await run(command, self._environ, WITHIN_S)
        if status == 0:
            return out
        words = " ".join((complaints or out).split())[:300] or f"status {status}"
        for stated, advice in FINAL.items():
            if stated in words:
                raise BackendFailed(f"Slurm refuses {' '.join(command[:3])}: {words}", advice, code="slurm-failed")
        raise BackendFailed(
            f"{command[0]} failed: {words}",
            "it is tried again until the evidence is too old",
            again=True,
            code="slurm-failed",
        )


def _name(machine: str) -> str:
    if not NAME.fullmatch(machine) or machine.upper() in ("ALL", "DEFAULT"):
        raise BackendFailed(
            f"{machine[:60]!r} is not the name of one machine in Slurm",
            "see the agent's --machine",
            code="wrong-machine-name",
        )
    return machine
