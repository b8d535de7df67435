#!/bin/sh
# Starts the agent of this machine before a job does. For slurm.conf:
#   Prolog=/etc/slurm/prolog.d/hangdog.sh
#   PrologFlags=Alloc      # when the job is given the machine, not at its first step
# A prolog that fails drains its machine, and one that waits holds up the job: this one always ends with 0, and in seconds.
run=${HANGDOG_RUN:-/run/hangdog} log=${HANGDOG_LOG:-/var/log/hangdog-agent.log}
(
    mkdir -p "$run/jobs" && exec 9>"$run/turn" && flock -w 5 9 || exit 0
    : >"$run/jobs/${SLURM_JOB_ID:?}"
    if command -v systemctl && systemctl cat hangdog-agent.service; then
        systemctl start --no-block hangdog-agent.service
    elif flock --nonblock "$run/lock" true 9>&-; then # whoever holds it is the agent, for as long as it lives
        [ -r /etc/hangdog/agent.env ] && set -a && . /etc/hangdog/agent.env && set +a
        unset SLURM_JOB_ID SLURM_JOBID
        rm -f "$run/pid"
        # slurmd ends what a prolog leaves in its process group: the agent gets a session of its own, and is waited for
        # until it has that
        setsid flock --nonblock --no-fork "$run/lock" \
            sh -c 'echo $$ >"$0/pid"; exec "$1"' "$run" "${HANGDOG_AGENT:-/opt/hangdog/bin/hangdog-agent}" \
            9>&- >>"$log" 2>&1 &
        for turn in 1 2 3 4 5 6 7 8 9 10; do
            [ -s "$run/pid" ] && break
            sleep 0.1
        done
    fi
) </dev/null >/dev/null 2>&1
exit 0
