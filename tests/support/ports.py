"""A port of this machine that nobody listens on now."""

import socket


def free_port() -> int:
    """Its number; whoever asks should listen on it at once."""
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        port: int = probe.getsockname()[1]
        return port
