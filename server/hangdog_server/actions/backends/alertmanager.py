"""Keeps an alert up in Alertmanager (API v2) for as long as a machine is out, and resolves it when it is released.

An alert is told apart by its labels, so they hold nothing that changes; it ends by itself when it is not sent again.
"""

import json
from collections.abc import Callable
from datetime import UTC, datetime

import httpx

from hangdog_server.actions.backends.backend import IsolationCase, MachineMark, Mark
from hangdog_server.actions.backends.http_client import delivered, opened

#: Between two times of sending an alert, and how long one lasts that is not sent again: Prometheus sends every minute or
#: so, and ends alerts after four of them. Seconds.
AGAIN_S, LASTS_S = 60.0, 240.0
ALERT = "HangdogMachineOut"


class Alertmanager:
    """One Alertmanager, by the address its own pages have."""

    name = "alertmanager"
    again_s = AGAIN_S

    def __init__(
        self, url: str, clock: Callable[[], float], cluster: str = "", client: httpx.AsyncClient | None = None
    ) -> None:
        """`clock` gives Unix seconds; `cluster` is a label, where one Alertmanager serves several clusters."""
        self._url = f"{url.rstrip('/')}/api/v2/alerts"
        self._clock = clock
        self._cluster = cluster
        self._client = client or opened()

    async def look(self, case: IsolationCase) -> MachineMark:
        """Whether the alert is up."""
        wanted = self._labels(case)
        filters = [f"{key}={json.dumps(wanted[key])}" for key in ("alertname", "incident")]
        answer = await delivered(self._client, "GET", self._url, params={"filter": filters})
        found = answer.json()
        for alert in found if isinstance(found, list) else ():
            labels = alert.get("labels") if isinstance(alert, dict) else None
            if isinstance(labels, dict) and wanted.items() <= labels.items():
                return MachineMark(Mark.OURS, case.reason, case.incident)
        return MachineMark(Mark.NONE)

    async def mark(self, case: IsolationCase) -> None:
        """Sends the alert; sent again it lasts longer."""
        await self._send(case, self._clock() + LASTS_S)

    async def unmark(self, case: IsolationCase) -> None:
        """Resolves it."""
        await self._send(case, self._clock())

    async def close(self) -> None:
        """Closes its connections."""
        await self._client.aclose()

    def _labels(self, case: IsolationCase) -> dict[str, str]:
        labels = {"alertname": ALERT, "incident": case.incident, "machine": case.machine, "job": case.job}
        return {key: value for key, value in {**labels, "cluster": self._cluster}.items() if value}

    async def _send(self, case: IsolationCase, until: float) -> None:
        alert = {
            "labels": self._labels(case),
            "annotations": {"summary": f"{case.machine} is out of use", "description": case.reason},
            "endsAt": datetime.fromtimestamp(until, UTC).isoformat(timespec="milliseconds").replace("+00:00", "Z"),
        }
        await delivered(self._client, "POST", self._url, json=[alert])
