"""The requests of the Kubernetes API that isolating a machine takes, and what their refusals mean.

lightkube or kr8s would bring classes of all kinds of objects for the three verbs that are used here. What is most of this file
stays needed beside them: the bounds of an answer, and which refusal passes by itself.
"""

import os
import re
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path
from typing import Any

from hangdog_models.errors import WrongUse
from hangdog_server.actions.backends.backend import BackendFailed
from hangdog_server.actions.backends.http_client import AGAIN, opened, send

#: Where a pod finds what it needs to speak to its own cluster.
POD = Path("/var/run/secrets/kubernetes.io/serviceaccount")
#: Names as Kubernetes allows them for nodes and pods (RFC 1123): none can lead to another place of the API.
NAME = re.compile(r"[a-z0-9]([a-z0-9.-]{0,251}[a-z0-9])?")
#: What can be done about a status that no second try changes.
HINTS: Mapping[int, str] = {
    401: "the token has ended, or is another cluster's",
    403: "give the server's account the rights of deploy/kubernetes/acting.yaml",
    404: "give its agent the --machine that Kubernetes knows the node by",
    415: "this is a bug in hangdog",
    422: "this is a bug in hangdog",
}


class KubeDenied(BackendFailed):
    """The API server knows us, and does not let us (403)."""


class Unknown(BackendFailed):
    """It knows no such object, or no such kind of objects (404)."""


class KubeApi:
    """An API server, by its URL, a file with a token (read for every request, for it is renewed) and its authority."""

    def __init__(self, url: str, token_file: Path, ca_file: str) -> None:
        self._url = url.rstrip("/")
        self._token_file = token_file
        self._client = opened(ca_file)

    @classmethod
    def own(cls) -> "KubeApi":
        """The cluster this process runs in; raises WrongUse outside of one."""
        host, port = os.environ.get("KUBERNETES_SERVICE_HOST"), os.environ.get("KUBERNETES_SERVICE_PORT", "443")
        if not host:
            raise WrongUse(
                "this process runs in no Kubernetes pod",
                "give url, token_file and ca_file below [kubernetes]",
                code="outside-kubernetes",
            )
        return cls(f"https://{f'[{host}]' if ':' in host else host}:{port}", POD / "token", str(POD / "ca.crt"))

    async def get(self, path: str, query: Mapping[str, str] | None = None) -> dict[str, Any]:
        """An object, or a list; raises BackendFailed."""
        answer = await send(self._client, "GET", self._url + path, params=query, headers=self._headers())
        if not answer.good:
            raise self.failed(answer.status, path, answer.words)
        found = answer.json()
        if not isinstance(found, dict):
            raise BackendFailed(
                f"{path}: what the API server answers is no object",
                "is it the right url?",
                again=True,
                code="backend-answer-unreadable",
            )
        return found

    async def patch(self, path: str, change: Mapping[str, Any], kind: str) -> bool:
        """Writes by a patch of this kind (`merge`, `strategic-merge`); False when somebody wrote in between."""
        headers = {**self._headers(), "Content-Type": f"application/{kind}-patch+json"}
        answer = await send(self._client, "PATCH", self._url + path, json=change, headers=headers)
        if not answer.good and answer.status != 409:
            raise self.failed(answer.status, path, answer.words)
        return answer.good

    async def post(self, path: str, body: Mapping[str, Any], within_s: float) -> tuple[int, str]:
        """The status of an answer and its words."""
        answer = await send(self._client, "POST", self._url + path, within_s, json=body, headers=self._headers())
        return answer.status, answer.words

    def failed(self, status: int, path: str, words: str) -> BackendFailed:
        """What a status that is no success means."""
        again = status in AGAIN or status >= 500
        hint = HINTS.get(status, "it is tried again" if again else "the API server's log says more")
        what = f"Kubernetes answers {status} to {path}: {words}"
        if status == 401:
            return BackendFailed(what, hint, again, code="kubernetes-denied")
        if status == 403:
            return KubeDenied(what, hint, again, code="kubernetes-denied")
        if status == 404:
            return Unknown(what, hint, again, code="kubernetes-not-found")
        return BackendFailed(what, hint, again, code="kubernetes-failed")

    async def close(self) -> None:
        """Closes its connections."""
        await self._client.aclose()

    def _headers(self) -> dict[str, str]:
        try:
            token = self._token_file.read_text(encoding="ascii").strip()
        except (OSError, ValueError) as error:
            hint = "mount the service account's token"
            raise BackendFailed(
                f"cannot read the token {self._token_file}: {error}", hint, again=True, code="unreadable-file"
            ) from error
        return {"Authorization": f"Bearer {token}"}


def named(name: str) -> str:
    """The name, which is one node's or pod's; raises BackendFailed."""
    if not NAME.fullmatch(name) or ".." in name:
        raise BackendFailed(
            f"{name[:60]!r} is not a name that Kubernetes allows",
            "see the agent's --machine: the node's name",
            code="wrong-machine-name",
        )
    return name


@contextmanager
def understood(what: str) -> Iterator[None]:
    """Raises BackendFailed where an answer is built otherwise than Kubernetes' are: a proxy's, or half of one."""
    try:
        yield
    except (KeyError, TypeError, AttributeError, ValueError) as error:
        words = f"what is answered about {what} is not as Kubernetes answers ({type(error).__name__}: {error})"
        raise BackendFailed(words, "is it the right url?", again=True, code="backend-answer-unreadable") from error
