"""Carries out the hook that tells a person of a spare: `python -m ...spare_notice HOOK NAME MACHINE REASON LOG SECONDS`."""

import sys
from pathlib import Path

from hangdog.supervising import hooks
from hangdog_models.recovery.recovery_history import RecoveryRung, RecoveryStep


def main() -> None:
    hook, name, machine, reason, log, limit = sys.argv[1:]
    step = RecoveryStep(RecoveryRung.SPARE, (reason,), (machine,))
    answer = hooks.carry_out(hook, step, name, (), Path(log), float(limit))
    print(answer.message, file=sys.stderr)
    sys.exit(0 if answer.ok else 1)


if __name__ == "__main__":
    main()
