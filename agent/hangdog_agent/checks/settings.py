"""What may be tuned in the checks of the machine, with the reason of each default."""

from dataclasses import dataclass


@dataclass(frozen=True, slots=True)
class CheckSettings:
    """How often each check looks and how much it tolerates; times are in seconds unless the name says otherwise."""

    #: ByteRobust (SOSP 2025): kernel events 2 s, GPU 10 s, network 30 s.
    kernel_every_s: float = 2.0
    #: What costs next to nothing; a poller of once a second has slowed NCCL in the field.
    gpu_every_s: float = 10.0
    #: All of a GPU: error counts, remapped rows, links, fabric.
    gpu_full_s: float = 60.0
    network_every_s: float = 30.0
    #: Some small files for each interface; a hang is looked at some ten seconds after it began.
    interfaces_every_s: float = 10.0
    #: The kernel itself gives an NFS server 60 s before it repeats a request.
    nfs_every_s: float = 30.0
    #: A hang is looked at some ten seconds after it began, and by then this has been looked at.
    tcp_every_s: float = 5.0
    disk_every_s: float = 10.0
    memory_every_s: float = 10.0
    #: A width changes when a link is trained anew, which shows elsewhere first.
    pcie_every_s: float = 60.0

    #: Network alerts heal by themselves: one is tolerated, the second within five minutes counts (ByteRobust).
    network_strikes: int = 2
    network_window_s: float = 300.0
    #: A link down for so long does not come back by itself (gpud: four minutes).
    link_down_s: float = 240.0

    #: NVML starts within a second on a machine in order, and takes seconds a GPU without persistence mode.
    nvml_start_s: float = 30.0
    #: A sweep takes milliseconds; a wedged GSP blocks a call for 6 to 45 s.
    nvml_answer_s: float = 10.0
    #: Children in a wedged driver cannot be killed; so many are left behind, and then nobody asks any more.
    nvml_abandoned: int = 3
    #: Sightings of a clock brake within ten minutes that make it a state: gpud calls 0.6 a minute unhealthy.
    brake_sightings: int = 6

    #: Records taken from the kernel log in one look (a flood of 100,000 a second is held, for half a second of work), and those
    #: of them that are worth reading, which cost 0.1 ms each.
    kmsg_records: int = 200_000
    kmsg_relevant: int = 500

    #: Milliseconds a request waits for the server's answer, from which a server is slow: 10 ms are normal (504-GPU report).
    nfs_slow_ms: float = 1_000.0
    #: Milliseconds a request waits in the client itself before it is sent, from which the client is the bottleneck.
    nfs_queue_ms: float = 100.0
    #: So often in a row data was sent again and is not acknowledged: each wait is twice as long as the one before, from 0.2 s
    #: on a fast network, so this is some three seconds of silence.
    tcp_resent: int = 4
    #: Share of memory still available below which the kernel is about to kill.
    memory_short: float = 0.02
    #: Bytes that the agent's own folder must offer: some captures wait there while the server is away.
    spool_bytes: int = 64 << 20
    #: A probe of a path in a child of its own; health checks of others give 5 s.
    probe_s: float = 5.0

    #: How long a tick waits for the checks it started; most need a millisecond, the others are met by the next tick.
    check_grace_s: float = 0.2
    #: A check that has not answered for so long hangs in the kernel, which is evidence by itself.
    check_hangs_s: float = 60.0
    #: A check that had nothing to look at asks again: a driver may be loaded later.
    check_again_s: float = 300.0
    #: An event counts as standing for so long: what diagnosis calls old is one hour.
    check_keep_s: float = 3_600.0
