"""Draws pages from templates: everything foreign is escaped, and nothing runs or styles but what was hashed here."""

import base64
import hashlib
import json
from collections.abc import Mapping, Sequence
from datetime import UTC, datetime
from functools import lru_cache
from importlib.resources import files
from typing import Any
from urllib.parse import quote, urlencode

from jinja2 import DictLoader, Environment, StrictUndefined
from markupsafe import Markup, escape

from hangdog_models.counts import counted
from hangdog_models.ranks import Runs, format_runs, runs_of, size
from hangdog_models.reading.printable import printable
from hangdog_models.views.answer_text import judged_by, percent

#: The script of every page, in this order: how a page becomes another, what keeps it true, what an incident's page draws.
SCRIPTS = (
    "morph.js", "live.js", "page_data.js", "taken_along.js", "map_layout.js", "map.js", "raw_stacks.js", "icicle.js", "stack_tree.js",
    "begin.js",
)  # fmt: skip
#: Characters of a piece of foreign text that shows on a page unless its place allows more.
TEXT = 120
#: Machines that are named in a line, and characters of one's name.
MACHINES, NAME = 8, 80
#: Characters of a rank set in a line; the verdict's JSON has all of it.
SET = 90


def page(template: str, title: str, live: bool = False, **given: Any) -> str:
    """A whole page as one file without anything outside of it. `live`: it may ask its own server."""
    made = _environment()
    drawn = made.get_template(template).render(
        title=printable(title, TEXT), policy=policy(live), css=Markup(_text("page.css")), js=Markup(_script()), live=live, **given
    )  # fmt: skip
    return drawn


def part(template: str, **given: Any) -> Markup:
    """A part of a page, drawn by itself."""
    return Markup(_environment().get_template(template).render(**given))


def still_page(template: str, title: str, **given: Any) -> str:
    """A whole page as one file that runs nothing at all and asks nobody."""
    style = _hash(_text("page.css"))
    policy = f"default-src 'none'; style-src '{style}'; form-action 'none'; base-uri 'none'"
    drawn = _environment().get_template(template)
    return drawn.render(title=printable(title, TEXT), policy=policy, css=Markup(_text("page.css")), **given)


@lru_cache
def policy(live: bool = False) -> str:
    """The content security policy: our style and our script by their hashes, no other content from anywhere."""
    style, script = _hash(_text("page.css")), _hash(_script())
    own = "'self'" if live else "'none'"
    return (
        f"default-src 'none'; style-src '{style}'; script-src '{script}'; img-src data:; connect-src {own}; "
        f"form-action {own}; base-uri 'none'"
    )


def script_data(document: Mapping[str, Any]) -> Markup:
    """JSON for a script element of data: nothing in it ends the element or begins another."""
    text = json.dumps(document, separators=(",", ":"))
    return Markup(text.replace("<", "\\u003c").replace(">", "\\u003e").replace("&", "\\u0026"))


def bar(share: float) -> Markup:
    """A bar as long as the share; it only repeats a number that stands beside it."""
    width = f"{100 * min(1.0, max(0.0, share)):.1f}"
    return Markup(
        '<svg class="bar-of" viewBox="0 0 100 10" preserveAspectRatio="none" aria-hidden="true">'
        '<rect class="track" width="100" height="10"></rect><rect class="fill" width="{}" height="10"></rect></svg>'
    ).format(width)


def runs(ranks: Runs, width: int = SET) -> str:
    """A rank set, cut between two runs when wider than `width`, then with how many there are."""
    text = format_runs(ranks)
    if len(text) <= width:
        return text
    return f"{text[:width].rpartition(',')[0]}, … ({size(ranks)} in all)"


def machine_path(name: str) -> str:
    """Where a server has the page of a machine."""
    return f"/machines/{quote(name, safe='')}"


def communicators_path(job: str) -> str:
    """Where a server has the page of a job's communicators."""
    return f"/jobs/{quote(job, safe='')}/communicators"


def machine_links(names: Sequence[str], live: bool = True, most: int = MACHINES) -> Markup:
    """Names of machines, each a link to its page; of more than `most` only how many they are. Not `live`: without links."""
    shown = (printable(name, NAME) for name in names[:most])
    links = (
        Markup('<a href="{}">{}</a>').format(machine_path(name), text) if live else escape(text)
        for name, text in zip(names, shown, strict=False)
    )
    rest = f" and {len(names) - most:,} more" if len(names) > most else ""
    return Markup(", ").join(links) + rest


def rank_links(ranks: Runs, live: bool = True, width: int = SET) -> Markup:
    """A rank set that leads to the stacks of its first rank, further down on the page; not `live`: where there are none."""
    text = runs(ranks, width)
    return Markup('<a href="#rank-{}">{}</a>').format(ranks[0][0], text) if live and ranks else escape(text)


def job_link(name: str, text: str) -> Markup:
    """A link to the incidents of a job."""
    return Markup('<a href="/incidents?{}">{}</a>').format(urlencode({"job": name}), text)


@lru_cache
def _environment() -> Environment:
    folder = files(__package__) / "templates"
    texts = {one.name: one.read_text("utf-8") for one in folder.iterdir() if one.name.endswith(".html")}
    made = Environment(
        loader=DictLoader(texts), autoescape=True, undefined=StrictUndefined, trim_blocks=True, lstrip_blocks=True
    )
    made.filters.update(
        shown=lambda text, most=TEXT: printable(str(text), most),
        percent=percent,
        share="{:.0%}".format,
        counted=counted,
        judged_by=judged_by,
    )
    made.globals.update(
        bar=bar, runs=runs, ranks=lambda ranks: runs(runs_of(ranks)), machine_links=machine_links, job_link=job_link,
        machine_path=machine_path, rank_links=rank_links, runs_of=runs_of, communicators_path=communicators_path,
    )  # fmt: skip
    return made


@lru_cache
def _text(name: str) -> str:
    return (files(__package__) / "templates" / name).read_text("utf-8")


@lru_cache
def _script() -> str:
    return "".join(_text(name) for name in SCRIPTS)


def _hash(text: str) -> str:
    return "sha256-" + base64.b64encode(hashlib.sha256(text.encode()).digest()).decode()


def utc(moment: float) -> str:
    """A Unix time for people, to the second."""
    return datetime.fromtimestamp(moment, UTC).strftime("%Y-%m-%d %H:%M:%S UTC")


def since(moment: float, now: float) -> Markup:
    """How long ago a Unix time was, which the page's script keeps true."""
    written = datetime.fromtimestamp(moment, UTC).isoformat(timespec="milliseconds")
    return Markup('<time datetime="{}" data-ago title="{}">{}</time>').format(written, utc(moment), ago(now - moment))


def ago(seconds: float) -> str:
    """A span in the one unit that says it best: `4 s`, `12 min`, `3 h`, `5 d`."""
    for span, unit in ((86400, "d"), (3600, "h"), (60, "min")):
        if seconds >= 2 * span:
            return f"{seconds / span:.0f} {unit}"
    return f"{max(0.0, seconds):.0f} s"
