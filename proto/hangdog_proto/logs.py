"""How agent and server write their logs: lines for people, or one JSON object a line for a log store."""

import json
import logging
import sys
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from contextvars import ContextVar
from datetime import UTC, datetime

#: The forms a log can have; the first one is the default.
FORMS = ("text", "json")
#: What records are about, beside their words: names of ours, set by `about`.
_CONTEXT: ContextVar[Mapping[str, str]] = ContextVar("about", default={})  # noqa: B039  # never changed, only replaced


@contextmanager
def log_context(**fields: str) -> Iterator[None]:
    """Whatever this task logs meanwhile, and tasks and threads that it starts, is about these; "" for nothing any more."""
    token = _CONTEXT.set({**_CONTEXT.get(), **fields})
    try:
        yield
    finally:
        _CONTEXT.reset(token)


def configure(form: str, text: str, **always: str) -> None:
    """Has all logs written to stderr in that form; `text` is the format of lines for people, `always` in every object."""
    handler = logging.StreamHandler(sys.stderr)
    handler.setFormatter(JsonFormatter(always) if form == "json" else logging.Formatter(text))
    logging.basicConfig(level=logging.INFO, handlers=[handler], force=True)


class JsonFormatter(logging.Formatter):
    """One object a line: time (UTC), level, logger, message, what it is about, and an error's traceback."""

    def __init__(self, always: Mapping[str, str]) -> None:
        super().__init__()
        self._always = always

    def format(self, record: logging.LogRecord) -> str:
        at = datetime.fromtimestamp(record.created, UTC)
        fields = {
            "time": at.isoformat(timespec="milliseconds").replace("+00:00", "Z"),
            "level": record.levelname.lower(),
            "logger": record.name,
            "message": record.getMessage(),
        }
        fields = {name: value for name, value in {**self._always, **_CONTEXT.get()}.items() if value} | fields
        if record.exc_info:
            fields["error"] = self.formatException(record.exc_info)
        return json.dumps(fields)
