"""How several ranks of one NCCL job share one GPU: each passes for a machine of its own, and they talk over loopback."""


def nccl_environ(rank: int) -> dict[str, str]:
    """NCCL refuses two ranks of one host on one GPU; what it takes for a host is `NCCL_HOSTID`."""
    return {
        "NCCL_HOSTID": f"hangdog-{rank}",
        "NCCL_P2P_DISABLE": "1",
        "NCCL_SHM_DISABLE": "1",
        "NCCL_IB_DISABLE": "1",
        "NCCL_NET": "Socket",
        "NCCL_SOCKET_IFNAME": "lo",
        "NCCL_MAX_NCHANNELS": "1",  # its kernels spin, and share the GPU by time slices
        "GLOO_SOCKET_IFNAME": "lo",
    }
