#!/bin/sh
# Tests this machine before a job is given it, and has Slurm drain it when a test convicts it. Beside prolog.sh, for slurm.conf:
#   Prolog=/etc/slurm/prolog.d/*.sh
#   PrologFlags=Alloc           # when the job is given the machine, not at its first step
#   BatchStartTimeout=300       # and PrologEpilogTimeout or PrologTimeout, where set: longer than a gate takes at most
#   SchedulerParameters=nohold_on_prolog_fail      # else the job that met the broken machine is held, not sent elsewhere
# It fails for a report that says "convicted" and for nothing else: what cannot be tested here is no reason to lose a machine.
# Where another job is on the machine (as prolog.sh notes them) nothing is put under load: only what hardware tells is read.
run=${HANGDOG_RUN:-/run/hangdog} log=${HANGDOG_GATE_LOG:-/var/log/hangdog-gate.log} seconds=${HANGDOG_GATE_S:-120}
export PATH="${PATH:-/usr/bin:/bin}"
case $seconds in
"" | *[!0-9]*) seconds=120 ;;
esac
(
    true >>"$log" || log=/dev/null
    levels=
    for job in "$run"/jobs/*; do
        [ -e "$job" ] && [ "$job" != "$run/jobs/$SLURM_JOB_ID" ] && levels="--level 0"
    done
    # its own end is the budget's; the rest is for settings of GPUs that are put back, and for a command that is stuck itself
    report=$(timeout -k 15 $((seconds + 90)) "${HANGDOG_COMMAND:-/opt/hangdog/bin/hangdog}" test local --first $levels \
        --budget "${seconds}s" ${HANGDOG_GATE_PYTHON:+--python "$HANGDOG_GATE_PYTHON"} --format json 2>>"$log")
    printf '%s\n' "$report" >>"$log"
    case $report in
    *'"verdict": "convicted"'*) exit 1 ;;
    esac
    exit 0
) </dev/null >/dev/null 2>&1
