"""Sends one message by Apprise, as a program of its own: what it holds, waits for or breaks on is not the server's.

It reads `{"url", "title", "body"}` on standard input, or without a title only looks at the address, and writes
`{"service", "failed"}`; `failed` is empty where it did what was asked.
"""

import json
import logging
import resource
import sys

import apprise

#: Bytes of memory it may take: a receiver that answers without end ends it, and nothing else.
MEMORY = 1 << 30
#: What the library says of a failure: its first lines name it.
_WORDS = 300


class Complaints(logging.Handler):
    """Keeps what the library complains of."""

    def __init__(self) -> None:
        super().__init__(logging.WARNING)
        self.lines: list[str] = []

    def emit(self, record: logging.LogRecord) -> None:
        self.lines.append(record.getMessage())


def send(url: str, title: str, body: str) -> tuple[str, str]:
    """The kind of service an address belongs to, and why nothing was sent there, empty where it was; no title: nothing is."""
    complaints = Complaints()
    logger = logging.getLogger("apprise")
    logger.addHandler(complaints)
    logger.propagate = False
    asset = apprise.AppriseAsset(
        app_id="hangdog",
        app_desc="hangdog",
        http_redirects=False,  # an address is a secret, and a redirect would hand it on
        interpret_emojis=False,
        interpret_escapes=False,
        storage_mode="memory",
        image_url_mask="",  # no picture that readers' programs would fetch from somewhere else
        image_url_logo="",
    )
    service = apprise.Apprise.instantiate(url, asset=asset, suppress_exceptions=True)
    if service is None:
        return "", _complaint(complaints, "this is no address that Apprise knows")
    name = str(service.service_name or service.protocol or "")
    if not title:
        return name, ""
    all_ = apprise.Apprise(asset=asset)
    all_.add(service)
    sent = all_.notify(body, title, body_format=apprise.NotifyFormat.TEXT)
    return name, "" if sent else _complaint(complaints, "it was not taken")


def main() -> None:
    """Does what standard input says, once."""
    resource.setrlimit(resource.RLIMIT_AS, (MEMORY, MEMORY))
    asked = json.load(sys.stdin)
    service, failed = send(asked["url"], asked.get("title", ""), asked.get("body", ""))
    print(json.dumps({"service": service, "failed": failed}))


def _complaint(complaints: Complaints, otherwise: str) -> str:
    return "; ".join(dict.fromkeys(" ".join(one.split()) for one in complaints.lines))[:_WORDS] or otherwise


if __name__ == "__main__":
    main()
