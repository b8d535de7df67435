"""Takes from the agent itself, as it starts, every right that none of its features uses (footprint.toml)."""

import logging

from hangdog_agent.confinement import seccomp, syscalls
from hangdog_agent.confinement.capabilities import CAPABILITIES, SYS_ADMIN

log = logging.getLogger(__name__)


def confine(ras_networks: bool) -> None:
    """Gives up rights for good, for this process and all that it starts. It must have one thread only.

    `ras_networks` keeps CAP_SYS_ADMIN, where it is held: the settings of that name.
    """
    kept = sum(1 << capability.bit for capability in CAPABILITIES)
    if ras_networks:
        kept |= 1 << SYS_ADMIN.bit
    try:
        syscalls.keep_only(kept)
        syscalls.no_new_privileges()
        filtered = seccomp.install(seccomp.AGENT)
    except OSError as error:  # a sandbox that plays a kernel may not know it
        log.warning("cannot drop privileges that the agent does not need: %s", error)
        return
    if not filtered:
        log.warning("this kernel has no seccomp: system calls are not filtered")
