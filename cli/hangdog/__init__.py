"""The door for people: the `hangdog` command, and for Python programs `hangdog.triage(path)` and `hangdog.trace()`."""

from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from hangdog.offline import triage as triage
    from hangdog.tracing.trace import trace as trace

__all__ = ["trace", "triage"]


def __getattr__(name: str) -> Any:
    """Loads the public function when it is asked for: `hangdog --help` must not pay for the diagnosis."""
    if name == "triage":
        from hangdog.offline import triage

        return triage
    if name == "trace":  # in a trainer, where the rest of hangdog need not be installed
        from hangdog.tracing.trace import trace

        return trace
    raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
