"""Writes what an image is made of as a CycloneDX document (an SBOM), from the lock that the image is installed from."""

import tomllib
from pathlib import Path
from uuid import NAMESPACE_URL, uuid5

from cyclonedx.model import Property
from cyclonedx.model.bom import Bom
from cyclonedx.model.component import Component, ComponentScope, ComponentType
from cyclonedx.output.json import JsonV1Dot6
from cyclonedx.schema import SchemaVersion
from cyclonedx.validation.json import JsonStrictValidator
from packageurl import PackageURL
from packaging.requirements import Requirement

#: What the images run on; a package whose marker says no to this is in the lock, and not in the image.
IMAGE = {
    "implementation_name": "cpython",
    "platform_python_implementation": "CPython",
    "os_name": "posix",
    "platform_system": "Linux",
    "sys_platform": "linux",
    "python_version": "3.11",
    "python_full_version": "3.11.0",
}


def write(lock: Path, path: Path, image: str) -> None:
    """Writes the document of an image. The same lock gives the same bytes: it holds no time, and its number is derived."""
    project = tomllib.loads((lock.parent.parent / "pyproject.toml").read_text("utf-8"))["project"]
    bom = Bom(serial_number=uuid5(NAMESPACE_URL, f"{image}\n{lock.read_text('utf-8')}"))
    bom.metadata.timestamp = None
    bom.metadata.component = Component(
        name=image, version=project["version"], type=ComponentType.CONTAINER, bom_ref=image
    )
    own = Component(name=project["name"], version=project["version"], type=ComponentType.APPLICATION, bom_ref="hangdog")
    bom.components.add(own)
    for one in pinned(lock):
        version = next(iter(one.specifier)).version
        marker = str(one.marker) if one.marker else ""
        inside = one.marker is None or one.marker.evaluate(IMAGE)
        bom.components.add(_component(one.name, version, marker, inside))
    bom.register_dependency(bom.metadata.component, bom.components)
    text = JsonV1Dot6(bom).output_as_string(indent=1)
    if wrong := JsonStrictValidator(SchemaVersion.V1_6).validate_str(text):
        raise SystemExit(f"locks: {path} would be no CycloneDX document: {wrong}")
    path.write_text(text + "\n", "utf-8")


def pinned(lock: Path) -> list[Requirement]:
    """The packages of a lock, each with its version and where it is wanted."""
    lines = (line.removesuffix("\\").strip() for line in lock.read_text("utf-8").splitlines())
    return [Requirement(line) for line in lines if line and not line.startswith(("#", "--"))]


def _component(name: str, version: str, marker: str, inside: bool) -> Component:
    return Component(
        name=name,
        version=version,
        type=ComponentType.LIBRARY,
        bom_ref=f"{name}=={version}",
        purl=PackageURL("pypi", None, name, version),
        scope=ComponentScope.REQUIRED if inside else ComponentScope.EXCLUDED,
        properties=[Property(name="hangdog:marker", value=marker)] if marker else [],
    )
