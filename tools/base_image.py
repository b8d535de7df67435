"""Asks a registry which digest a tag has now, and writes it into the Dockerfile as the base of all images; run by `make base-image`.

A tag is moved whenever somebody pushes; a digest is the image itself. Only the standard library is used: it runs wherever
the registry can be reached, with or without Docker.
"""

import argparse
import hashlib
import json
import re
import sys
import urllib.error
import urllib.parse
import urllib.request
from pathlib import Path

DOCKERFILE = Path(__file__).resolve().parent.parent / "Dockerfile"
#: The Python of the images: what the locks are resolved for.
DEFAULT = "python:3.11-slim"
#: The list of an image's platforms, in both of the forms that registries have; a single platform's manifest is refused.
INDEXES = ("application/vnd.oci.image.index.v1+json", "application/vnd.docker.distribution.manifest.list.v2+json")
#: Seconds for one answer of a registry.
WITHIN_S = 30
#: Bytes of such a list; real ones have some 10 KB.
MOST_BYTES = 4 << 20
#: Where the line in the Dockerfile stands.
LINE = re.compile(r"^ARG BASE\b.*$", re.MULTILINE)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("image", nargs="?", default=DEFAULT, help="NAME:TAG, as in `docker pull`")
    parser.add_argument("--registry", default="https://registry-1.docker.io", help="where the registry answers")
    given = parser.parse_args()
    name, _, tag = given.image.partition(":")
    if not tag or "@" in given.image:
        sys.exit(f"base-image: {given.image} is no NAME:TAG, such as {DEFAULT}")
    try:
        digest = resolve(given.registry, name if "/" in name else f"library/{name}", tag)
    except (OSError, ValueError) as error:
        sys.exit(f"base-image: the Dockerfile is as it was: {given.registry} did not tell the digest: {error}")
    text, times = LINE.subn(f"ARG BASE={given.image}@{digest}", DOCKERFILE.read_text("utf-8"))
    if times != 1:
        sys.exit(f"base-image: {DOCKERFILE} has {times} lines `ARG BASE` instead of one")
    DOCKERFILE.write_text(text, "utf-8")
    print(f"base-image: ARG BASE={given.image}@{digest}")


def resolve(registry: str, name: str, tag: str) -> str:
    """The digest of a tag, computed from what the registry sent; raises OSError or ValueError."""
    request = urllib.request.Request(f"{registry}/v2/{name}/manifests/{tag}", headers={"Accept": ", ".join(INDEXES)})
    try:
        body, kind = _fetched(request)
    except urllib.error.HTTPError as error:
        if error.code != 401:
            raise
        request.add_header("Authorization", f"Bearer {_token(error.headers.get('WWW-Authenticate', ''))}")
        body, kind = _fetched(request)
    if kind not in INDEXES or not isinstance(json.loads(body), dict):
        raise ValueError(f"{name}:{tag} is no list of platforms but {kind}")
    return f"sha256:{hashlib.sha256(body).hexdigest()}"


def _fetched(request: urllib.request.Request) -> tuple[bytes, str]:
    with urllib.request.urlopen(request, timeout=WITHIN_S) as answer:
        body: bytes = answer.read(MOST_BYTES + 1)
        if len(body) > MOST_BYTES:
            raise ValueError(f"its answer is longer than {MOST_BYTES} bytes")
        return body, answer.headers.get_content_type()


def _token(challenge: str) -> str:
    """The right to read a public image, from where the registry's refusal says that it is given."""
    said = dict(re.findall(r'(\w+)="([^"]*)"', challenge))
    realm = said.pop("realm", "")
    if not realm.startswith(("https://", "http://127.0.0.1:")):
        raise ValueError("it asks for a login that this tool does not know")
    asked = urllib.request.Request(f"{realm}?{urllib.parse.urlencode(said)}")
    return str(json.loads(_fetched(asked)[0])["token"])


if __name__ == "__main__":
    main()
