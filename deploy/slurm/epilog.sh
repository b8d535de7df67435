#!/bin/sh
# Ends the agent of this machine after its last job. For slurm.conf: Epilog=/etc/slurm/epilog.d/hangdog.sh
# Leave it out to keep the agent running between jobs: it costs some 40 MB. No Slurm command is asked: it may wait for the
# controller while that waits for this epilog.
run=${HANGDOG_RUN:-/run/hangdog}
(
    exec 9>"$run/turn" && flock -w 5 9 || exit 0
    rm -f "$run/jobs/${SLURM_JOB_ID:?}"
    rmdir "$run/jobs" || exit 0 # another job is here
    if command -v systemctl && systemctl cat hangdog-agent.service; then
        systemctl stop --no-block hangdog-agent.service
    else
        # while the lock is held, the pid beside it is the agent's
        flock --nonblock "$run/lock" true 9>&- || kill -TERM "$(cat "$run/pid")"
    fi
) </dev/null >/dev/null 2>&1
exit 0
