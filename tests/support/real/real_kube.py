"""A real kube-apiserver upon etcd of the tests' own, where a program is named by HANGDOG_KUBE_APISERVER: it keeps the pretend one honest.

`tests/kube_apiserver.sh DIR` builds one from Debian's source, in some ten minutes of two cores. There is no controller,
scheduler or kubelet: nodes and pods are what tests make of them.
"""

import json
import os
import shutil
import ssl
import subprocess
import tempfile
import time
import urllib.error
import urllib.request
from collections.abc import Iterator, Mapping
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from cryptography.hazmat.primitives import serialization
from cryptography.hazmat.primitives.asymmetric import rsa

from hangdog.demo.conductor import free_port
from support.cases.manifests import documents

PROGRAM = "HANGDOG_KUBE_APISERVER"
MISSING = f"{PROGRAM} names no kube-apiserver; tests/kube_apiserver.sh builds one (etcd: apt-get install etcd-server)"
#: Tokens of one who may do everything, of one who has the rights of deploy/kubernetes/acting.yaml, and of one with none.
ROOT, ACTING, POWERLESS = "root-token", "acting-token", "powerless-token"
TOKENS = f'{ROOT},root,1,"system:masters"\n{ACTING},hangdog,2\n{POWERLESS},nobody,3\n'
#: A server starts in one to five seconds on an idle machine.
PATIENCE_S = 120.0

MANIFEST = Path(__file__).resolve().parents[3] / "deploy" / "kubernetes" / "acting.yaml"

Object = dict[str, Any]


@dataclass
class RealKube:
    """One API server, by its URL and the file with its authority."""

    url: str
    ca: Path

    def ask(
        self, method: str, path: str, body: Object | None = None, kind: str = "application/json", token: str = ROOT
    ) -> tuple[int, Object]:
        """Status and content."""
        headers = {"Authorization": f"Bearer {token}", "Content-Type": kind}
        data = None if body is None else json.dumps(body).encode()
        request = urllib.request.Request(self.url + path, data, headers, method=method)
        try:
            with urllib.request.urlopen(
                request, context=ssl.create_default_context(cafile=self.ca), timeout=20
            ) as answer:
                return answer.status, json.load(answer)
        except urllib.error.HTTPError as error:
            said = error.read()  # of a path that nobody serves it is plain text
            return error.code, json.loads(said) if error.headers.get_content_type() == "application/json" else {}

    def did(self, method: str, path: str, body: Object | None = None, kind: str = "application/json") -> Object:
        """The same of what must succeed."""
        status, content = self.ask(method, path, body, kind)
        assert status in (200, 201), content
        return content

    def add_node(self, name: str) -> None:
        """A node that is ready, with another owner's taint; the server's own `not-ready` is taken away as a controller would."""
        self.did("POST", "/api/v1/nodes", {"metadata": {"name": name}})
        taint = {"key": "nvidia.com/gpu", "value": "present", "effect": "NoSchedule"}
        self.change(name, taints=[taint])
        own = {"type": "Ready", "status": "True", "reason": "KubeletReady"}
        conditions = {"status": {"conditions": [own]}}
        self.did("PATCH", f"/api/v1/nodes/{name}/status", conditions, "application/strategic-merge-patch+json")

    def node(self, name: str) -> Object:
        return self.did("GET", f"/api/v1/nodes/{name}")

    def change(self, name: str, annotations: Mapping[str, str] | None = None, **spec: Any) -> None:
        """Another owner writes a node."""
        patch = {"metadata": {"annotations": annotations or {}}, "spec": spec}
        self.did("PATCH", f"/api/v1/nodes/{name}", patch, "application/merge-patch+json")

    def restore(self) -> None:
        """Removes all nodes."""
        self.did("DELETE", "/api/v1/nodes")


@contextmanager
def started() -> Iterator[RealKube | None]:
    """A server for as long as the block lasts; None where none is named."""
    program, etcd = os.environ.get(PROGRAM), shutil.which("etcd")
    if not program or etcd is None:
        yield None
        return
    with ExitStack() as stack:
        folder = Path(stack.enter_context(tempfile.TemporaryDirectory(prefix="hangdog-kube-")))
        port, peers, clients = (free_port() for _ in range(3))
        (folder / "tokens").write_text(TOKENS)
        key = rsa.generate_private_key(65537, 2048)
        pem, pkcs8 = serialization.Encoding.PEM, serialization.PrivateFormat.PKCS8
        (folder / "key").write_bytes(key.private_bytes(pem, pkcs8, serialization.NoEncryption()))
        store, between = f"http://127.0.0.1:{clients}", f"http://127.0.0.1:{peers}"
        stack.enter_context(
            _running(
                folder / "etcd.log", etcd, f"--data-dir={folder}/etcd", f"--listen-client-urls={store}",
                f"--advertise-client-urls={store}", f"--listen-peer-urls={between}",
                f"--initial-advertise-peer-urls={between}", f"--initial-cluster=default={between}",
            )
        )  # fmt: skip
        process = stack.enter_context(
            _running(
                folder / "log", program, f"--etcd-servers={store}", "--bind-address=127.0.0.1",
                "--advertise-address=127.0.0.1", f"--secure-port={port}", f"--cert-dir={folder}/certs",
                "--service-cluster-ip-range=10.0.0.0/24", "--service-account-issuer=hangdog-tests",
                f"--service-account-key-file={folder}/key", f"--service-account-signing-key-file={folder}/key",
                f"--token-auth-file={folder}/tokens", "--authorization-mode=RBAC",
                "--disable-admission-plugins=ServiceAccount",
            )
        )  # fmt: skip
        kube = RealKube(f"https://127.0.0.1:{port}", folder / "certs" / "apiserver.crt")
        until = time.monotonic() + PATIENCE_S
        while not _ready(kube):
            assert process.poll() is None and time.monotonic() < until, (folder / "log").read_text()[-4000:]
            time.sleep(0.2)
        _grant(kube)
        yield kube


def _grant(kube: RealKube) -> None:
    """Gives one user the rights of our manifest, and no others."""
    _, role, binding = documents(MANIFEST)
    subject = {"kind": "User", "name": "hangdog", "apiGroup": "rbac.authorization.k8s.io"}
    for kind, made in (("clusterroles", role), ("clusterrolebindings", {**binding, "subjects": [subject]})):
        kube.did("POST", f"/apis/rbac.authorization.k8s.io/v1/{kind}", made)


@contextmanager
def _running(log: Path, *command: str) -> Iterator["subprocess.Popen[bytes]"]:
    with log.open("wb") as file, subprocess.Popen(command, stdout=file, stderr=file) as process:
        try:
            yield process
        finally:
            process.kill()


def _ready(kube: RealKube) -> bool:
    try:
        status, _ = kube.ask("GET", "/api/v1/nodes")
        return kube.ca.exists() and status == 200
    except (OSError, ValueError):
        return False
