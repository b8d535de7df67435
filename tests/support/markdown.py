"""Reads pages of Markdown: the links in a text, and the anchors of a page's headings."""

import re
from collections.abc import Iterator
from pathlib import Path


def links(text: str, page: Path) -> Iterator[tuple[Path, str]]:
    """Files of ours that a text of this page links to, each with the anchor or an empty one."""
    for target in re.findall(r"\]\(([^)\s]+)\)", text):
        if "://" not in target:
            file, _, anchor = target.partition("#")
            yield ((page.parent / file).resolve() if file else page), anchor


def anchors(text: str) -> set[str]:
    """As GitHub makes them of headings."""
    headings = re.findall(r"^#+ (.+)$", text, re.MULTILINE)
    return {re.sub(r"[^\w\- ]", "", heading.lower()).replace(" ", "-") for heading in headings}
