"""Reads the YAML of our manifests and rules."""

from pathlib import Path
from typing import Any

import yaml


def documents(path: Path) -> list[Any]:
    """The documents of a manifest; no key is twice in one mapping."""
    return list(yaml.load_all(path.read_text(encoding="utf-8"), _Unique))


class _Unique(yaml.SafeLoader):
    """PyYAML takes the last of two equal keys without a word; Kubernetes refuses them."""

    def construct_mapping(self, node: yaml.MappingNode, deep: bool = False) -> dict[Any, Any]:
        keys = [key.value for key, _ in node.value]
        assert len(keys) == len(set(keys)), f"a key twice: {node.start_mark}"
        return super().construct_mapping(node, deep)
