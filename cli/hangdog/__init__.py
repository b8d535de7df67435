"""The door for people: the `hangdog` command, and for Python programs `hangdog.triage(path)`, the same steps."""

from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from hangdog.offline import triage as triage

__all__ = ["triage"]


def __getattr__(name: str) -> Any:
    """Loads the public function when it is asked for: `hangdog --help` must not pay for the diagnosis."""
    if name == "triage":
        from hangdog.offline import triage

        return triage
    raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
