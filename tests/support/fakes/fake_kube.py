"""A pretend Kubernetes API server, as faithful as acts need it: versions, kinds of patches, evictions, and bad days.

It behaves as kube-apiserver 1.20 does, which test_real_kube.py holds it to where there is one: any PATCH replaces the whole list of taints, a plain merge-patch all
conditions, too; the main resource ignores `status` and `/status` ignores `spec`, both with 200; a patch that changes nothing
keeps the resourceVersion; one against an old version is 409. Its eviction API is policy/v1. Objects of other groups (kube_jobs.py
makes some) are only read, by their path.
"""

import asyncio
import json
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager
from copy import deepcopy
from dataclasses import dataclass, field
from typing import Any
from urllib.parse import parse_qs, urlsplit

Object = dict[str, Any]
MERGE, STRATEGIC = "application/merge-patch+json", "application/strategic-merge-patch+json"
RIGHT, POWERLESS = "right", "powerless"
EFFECTS = {"NoSchedule", "PreferNoSchedule", "NoExecute"}


@dataclass
class Kube:
    """Its objects, `others` by path; kinds that are `denied` (as `jobsets`) may not be read. `faults` are met one after the other, each by one request that its first word names (GET, PATCH, POST)."""

    url: str = ""
    nodes: dict[str, Object] = field(default_factory=dict)
    pods: dict[tuple[str, str], Object] = field(default_factory=dict)
    others: dict[str, Object] = field(default_factory=dict)
    denied: set[str] = field(default_factory=set)
    budgets: set[str] = field(default_factory=set)
    faults: list[str] = field(default_factory=list)
    between: list[Callable[[], None]] = field(default_factory=list)
    asked: list[str] = field(default_factory=list)
    version: int = 100

    def add_node(self, name: str) -> None:
        own = {"type": "Ready", "status": "True", "reason": "KubeletReady"}
        self.nodes[name] = {
            "kind": "Node", "apiVersion": "v1", "metadata": {"name": name, "resourceVersion": self._next(), "labels": {}},
            "spec": {"taints": [{"key": "nvidia.com/gpu", "value": "present", "effect": "NoSchedule"}]},
            "status": {"conditions": [own]},
        }  # fmt: skip

    def add_pod(self, name: str, node: str, uid: str, namespace: str = "train", **labels: str) -> None:
        metadata = {"name": name, "namespace": namespace, "uid": uid, "labels": labels, "resourceVersion": self._next()}
        self.pods[namespace, name] = {"metadata": metadata, "spec": {"nodeName": node}, "status": {"phase": "Running"}}

    def add(self, plural: str, thing: Object) -> None:
        """An object of another group than the core's."""
        metadata = thing["metadata"]
        self.others[f"/apis/{thing['apiVersion']}/namespaces/train/{plural}/{metadata['name']}"] = thing

    def change(self, name: str, **spec: Any) -> None:
        """Another owner writes a node's spec."""
        self.nodes[name]["spec"].update(spec)
        self.nodes[name]["metadata"]["resourceVersion"] = self._next()

    def taints(self, name: str) -> list[str]:
        return [taint["key"] for taint in self.nodes[name]["spec"].get("taints", [])]

    def _next(self) -> str:
        self.version += 1
        return str(self.version)

    def answer(self, method: str, target: str, headers: dict[str, str], body: bytes) -> tuple[int, Object]:
        """Status and content."""
        who = headers.get("authorization", "").removeprefix("Bearer ")
        if who not in (RIGHT, POWERLESS):
            return self._status(401 if who else 403, "Unauthorized" if who else "Forbidden")
        if who == POWERLESS:
            return self._status(403, "Forbidden")
        url = urlsplit(target)
        parts = url.path.removeprefix("/api/v1/").split("/")
        match (method, *parts):
            case ("GET", "nodes", name):
                return (200, deepcopy(self.nodes[name])) if name in self.nodes else self._status(404, "NotFound")
            case ("PATCH", "nodes", name, *sub) if name in self.nodes and sub in ([], ["status"]):
                return self._patch(name, sub == ["status"], headers.get("content-type", ""), json.loads(body))
            case ("GET", "pods"):
                (selector,) = parse_qs(url.query)["fieldSelector"]
                node = selector.removeprefix("spec.nodeName=")
                return self._page(url.query, [pod for pod in self.pods.values() if pod["spec"]["nodeName"] == node])
            case ("GET", "namespaces", namespace, "pods"):
                return self._page(url.query, [pod for (where, _), pod in self.pods.items() if where == namespace])
            case ("POST", "namespaces", namespace, "pods", name, "eviction"):
                return self._evict((namespace, name), json.loads(body))
            case ("GET", "", "apis", *_, plural, _):
                if plural in self.denied:
                    return self._status(403, "Forbidden")
                found = self.others.get(url.path)
                return (200, deepcopy(found)) if found is not None else self._status(404, "NotFound")
        return self._status(404, "NotFound")

    def _page(self, query: str, items: list[Object]) -> tuple[int, Object]:
        """As many as are asked for, and where to go on."""
        asked = parse_qs(query)
        limit, begin = int(asked.get("limit", ["0"])[0]) or len(items), int(asked.get("continue", ["0"])[0])
        metadata = {"resourceVersion": str(self.version)}
        if begin + limit < len(items):
            metadata["continue"] = str(begin + limit)
        return 200, {"kind": "PodList", "metadata": metadata, "items": deepcopy(items[begin : begin + limit])}

    def _patch(self, name: str, status: bool, kind: str, patch: Object) -> tuple[int, Object]:
        if kind not in (MERGE, STRATEGIC):
            return self._status(415, "UnsupportedMediaType")
        before = self.nodes[name]
        told = patch.get("metadata", {}).pop("resourceVersion", None)
        if told is not None and told != before["metadata"]["resourceVersion"]:
            return self._status(409, "Conflict")
        allowed = {
            key: value for key, value in patch.items() if key in (("status",) if status else ("metadata", "spec"))
        }
        after = _merged(before, allowed, kind == STRATEGIC)
        if not after["spec"].get("unschedulable"):
            after["spec"].pop("unschedulable", None)  # as Go writes what is false
        taints = [(taint.get("key"), taint.get("effect")) for taint in after["spec"].get("taints", [])]
        values = [
            *after["metadata"].get("labels", {}).values(),
            *(t.get("value", "") for t in after["spec"].get("taints", [])),
        ]
        if not {effect for _, effect in taints} <= EFFECTS:
            return self._status(422, "Invalid")
        if len(set(taints)) < len(taints) or any(len(value) > 63 or " " in value for value in values):
            return self._status(422, "Invalid")
        if after != before:
            after["metadata"]["resourceVersion"] = self._next()
            self.nodes[name] = after
        return 200, deepcopy(self.nodes[name])

    def _evict(self, key: tuple[str, str], body: Object) -> tuple[int, Object]:
        pod = self.pods.get(key)
        if body.get("apiVersion") != "policy/v1" or body.get("kind") != "Eviction":
            return self._status(400, "BadRequest")
        if pod is None:
            return self._status(404, "NotFound")
        wanted = body.get("deleteOptions", {}).get("preconditions", {}).get("uid")
        if wanted not in (None, pod["metadata"]["uid"]):
            return self._status(409, "Conflict")
        if key[1] in self.budgets:
            return self._status(429, "TooManyRequests")
        pod["metadata"]["deletionTimestamp"] = "2027-01-15T08:00:00Z"
        return 201, {"kind": "Status", "status": "Success", "code": 201}

    def _status(self, code: int, reason: str) -> tuple[int, Object]:
        return code, {"kind": "Status", "status": "Failure", "reason": reason, "code": code}

    async def serve(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        try:
            head = (await reader.readuntil(b"\r\n\r\n")).decode().split("\r\n")
            headers = {key.lower(): value for key, _, value in (line.partition(": ") for line in head[1:] if line)}
            body = await reader.readexactly(int(headers.get("content-length", 0)))
            method, target, _ = head[0].split()
            self.asked.append(f"{method} {target}")
            fault = ""
            if self.faults and self.faults[0].startswith(method):
                fault = self.faults.pop(0).partition(" ")[2]
            if method == "PATCH" and self.between:
                self.between.pop(0)()
            if fault.isdigit():
                code, content = self._status(int(fault), "Bad day")
            else:
                code, content = self.answer(method, target, headers, body)
            if fault != "reset":  # which comes after what was asked is done
                said = json.dumps(content).encode()
                writer.write(
                    f"HTTP/1.1 {code} x\r\nContent-Length: {len(said)}\r\nConnection: close\r\n\r\n".encode() + said
                )
                await writer.drain()
        except (asyncio.IncompleteReadError, ConnectionError):
            pass
        finally:
            writer.close()


def _merged(before: Any, patch: Any, strategic: bool, key: str = "") -> Any:
    if isinstance(patch, list) and strategic and key == "conditions":
        found = {one["type"]: one for one in before or []}
        return list({**found, **{one["type"]: {**found.get(one["type"], {}), **one} for one in patch}}.values())
    if not isinstance(patch, dict):
        return deepcopy(patch)
    after = deepcopy(before) if isinstance(before, dict) else {}
    for name, value in patch.items():
        if value is None:
            after.pop(name, None)
        else:
            after[name] = _merged(after.get(name), value, strategic, name)
    return after


@asynccontextmanager
async def serving() -> AsyncIterator[Kube]:
    kube = Kube()
    server = await asyncio.start_server(kube.serve, "127.0.0.1", 0)
    kube.url = f"http://127.0.0.1:{server.sockets[0].getsockname()[1]}"
    try:
        yield kube
    finally:
        server.close()
        await server.wait_closed()
