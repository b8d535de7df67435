"""The layout of a ring as its reader has it, taken from the agent without what the agent's package does to a process."""

import os

_GRPC = "GRPC_ENABLE_FORK_SUPPORT"  # set for the agent as its package is imported; a trainer may speak gRPC, and fork
_before = os.environ.get(_GRPC)

from hangdog_agent.capture import profiler_layout as layout

if _before is None:
    os.environ.pop(_GRPC, None)
else:
    os.environ[_GRPC] = _before

__all__ = ["layout"]
