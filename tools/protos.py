"""Generates the protobuf code; with `--check`, says whether the committed code is what the .proto file generates.

Runs in `.venv-protos`, where the pinned generator lives. The check also wants a comment on every message, field, enum,
value, service and call: the wire is read by people who have nothing else to go by.
"""

import filecmp
import sys
import tempfile
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any

from google.protobuf.descriptor_pb2 import FileDescriptorSet
from grpc_tools import protoc

ROOT = Path(__file__).resolve().parent.parent
#: protoc writes imports by the path it is given: the file is mapped to where its code lives, so no import needs mending.
MAPPED = "hangdog_proto/generated"
#: Where the parts of a descriptor live in the numbering of descriptor.proto: list name -> field number.
FILE_PARTS = {"message_type": 4, "enum_type": 5, "service": 6}
PARTS = {"DescriptorProto": {"field": 2, "nested_type": 3, "enum_type": 4}} | {
    "EnumDescriptorProto": {"value": 2},
    "ServiceDescriptorProto": {"method": 2},
}


def main() -> None:
    if sys.argv[1:] not in ([], ["--check"]):
        sys.exit("usage: protos.py [--check]")
    if not sys.argv[1:]:
        generate(ROOT / "proto")
        return
    with tempfile.TemporaryDirectory() as folder:
        fresh = Path(folder)
        described = fresh / "described"
        generate(fresh, f"--descriptor_set_out={described}", "--include_source_info")
        stale = [made.name for made in sorted((fresh / MAPPED).iterdir()) if not same(made)]
        files = FileDescriptorSet.FromString(described.read_bytes()).file
    bare = [name for file in files for name in uncommented(file)]
    if stale:
        print(f"out of date: {', '.join(stale)}; run `make protos` and commit what it writes", file=sys.stderr)
    if bare:
        print(f"without a comment in the .proto file: {', '.join(bare)}", file=sys.stderr)
    sys.exit(1 if stale or bare else 0)


def generate(folder: Path, *options: str) -> None:
    (folder / MAPPED).mkdir(parents=True, exist_ok=True)
    outputs = [f"--{kind}_out={folder}" for kind in ("python", "grpc_python", "mypy", "mypy_grpc")]
    files = [f"{MAPPED}/{file.name}" for file in sorted((ROOT / "proto").glob("*.proto"))]
    if protoc.main(["protoc", f"-I{MAPPED}={ROOT / 'proto'}", *outputs, *options, *files]) != 0:
        sys.exit("protoc failed; what it said stands above")


def same(made: Path) -> bool:
    committed = ROOT / "proto" / MAPPED / made.name
    return committed.is_file() and filecmp.cmp(made, committed, shallow=False)


def uncommented(file: Any) -> Iterator[str]:
    """Names of everything in the file that no comment stands before."""
    commented = {tuple(place.path) for place in file.source_code_info.location if place.leading_comments.strip()}

    def walk(thing: Any, parts: dict[str, int], path: Sequence[int], name: str) -> Iterator[str]:
        for part, number in parts.items():
            for index, child in enumerate(getattr(thing, part)):
                here = (*path, number, index)
                if here not in commented:
                    yield f"{name}{child.name}"
                yield from walk(child, PARTS.get(type(child).__name__, {}), here, f"{name}{child.name}.")

    yield from walk(file, FILE_PARTS, (), "")


if __name__ == "__main__":
    main()
