"""Takes apart what pdsh, clush, dshbak and Ansible print of many hosts, so that each host's output is a text of its own.

Three forms: each line begins with its host (`gpu-b01: …`, pdsh and `clush`), a host's output follows its name between two
rules (`dshbak`, `clush -b`), or a line of Ansible's (`gpu-b01 | CHANGED | rc=0 >>`).
"""

import re
from collections import Counter

from hangdog_models.reading.logs.slurm.slurm_text import hosts_in

_HOST = r"[A-Za-z0-9][\w.-]{0,252}"
_LINE = re.compile(rf"({_HOST}):(?: (.*)|\s*)")
_RULE = re.compile(r"-{5,200}\s*")
#: `gpu-b01`, `gpu-b[01-03,07] (4)`: hosts that printed the same.
_HOSTS = re.compile(
    rf"({_HOST}(?:\[[\d,-]{{1,200}}\])?(?:,{_HOST}(?:\[[\d,-]{{1,200}}\])?){{0,64}})(?: \(\d{{1,6}}\))?\s*"
)
_ANSIBLE = re.compile(rf"({_HOST}) \| (?:CHANGED|SUCCESS|FAILED)!? \| rc=\d{{1,3}} >>\s*")
#: What may stand before the first host: a shell's prompt, and what Ansible warns of.
_BEFORE = re.compile(r"\s{0,8}(?:[$#>] |\[(?:WARNING|ERROR|DEPRECATION WARNING)\]|\S{1,100}[$#] )")
#: Words before a colon that are no host: levels, the kernel, and what counts ranks.
_NO_HOST = re.compile(
    r"(?:kernel|kern|trace|debug|info|notice|warn|warning|error|err|crit|critical|fatal|note|hint|traceback|rank\W?\d{1,7}|\d{1,30}|\d.*\d:.*)",
    re.IGNORECASE,
)
#: Lines of each host at the least where it stands before each, and the share of all lines that must have one.
_LINES, _SHARE = 2.0, 0.95
#: The date of a line of a system log, and its host.
_SYSTEM_LOG = re.compile(rf"(?:[A-Z][a-z]{{2}} [ \d]\d \d\d:\d\d:\d\d|\d{{4}}-\d\d-\d\dT\S{{8,40}}) ({_HOST}) ")
#: Hosts that are told apart, and how many times the text all their outputs may be: a header may name a thousand hosts.
MOST_HOSTS, _GROWS = 4096, 16


def by_host(text: str) -> dict[str, str]:
    """The output of each host; empty where the text is not of several hosts, or not surely."""
    lines = text.split("\n")
    return _in_blocks(lines) or _by_line(lines)


def _by_line(lines: list[str]) -> dict[str, str]:
    found: dict[str, list[str]] = {}
    whole = [line for line in lines if line.strip()]
    unmarked = 0
    for line in whole:
        marked = _LINE.fullmatch(line.rstrip("\r"))
        if marked is None or _NO_HOST.fullmatch(marked[1]):
            unmarked += 1
            if unmarked > (1 - _SHARE) * len(whole):
                return {}
            continue
        if marked[1] not in found and len(found) >= MOST_HOSTS:
            return {}
        found.setdefault(marked[1], []).append(marked[2] or "")
    names = Counter(_shape(host) for host in found)
    # keys of a report differ in their letters, hosts of one cluster in their numbers
    alike = (
        bool(names) and names.most_common(1)[0][1] == len(found) and all(any(map(str.isdigit, one)) for one in found)
    )
    count = sum(map(len, found.values()))
    several = len(found) > 1 and alike and (count >= _LINES * len(found) or count == len(found))
    if not several and not (len(found) == 1 and _of_its_own_log(*found.items())):
        return {}
    return {host: "\n".join(output) + "\n" for host, output in found.items()}


def _of_its_own_log(one: tuple[str, list[str]]) -> bool:
    """Whether each line is of a system log that names the same host again: what `pdsh -w gpu-b02 dmesg` prints of one."""
    host, output = one
    named = [_SYSTEM_LOG.match(line) for line in output if line]
    return bool(named) and all(match is not None and match[1] == host for match in named)


def _in_blocks(lines: list[str]) -> dict[str, str]:
    found: dict[str, list[str]] = {}
    hosts: list[str] = []
    at = begun = 0
    left = _GROWS * sum(map(len, lines))
    while at < len(lines):
        line = lines[at]
        if (ansible := _ANSIBLE.fullmatch(line)) is not None:
            hosts, begun, at = [ansible[1]], begun + 1, at + 1
            continue
        named = _HOSTS.fullmatch(lines[at + 1]) if at + 2 < len(lines) and _RULE.fullmatch(line) else None
        if named is not None and _RULE.fullmatch(lines[at + 2]):
            hosts, begun, at = hosts_in(named[1])[:MOST_HOSTS], begun + 1, at + 3
            continue
        if not begun and line.strip() and not _BEFORE.match(line):
            return {}  # what stands before the first host is nobody's: this is another text
        left -= len(hosts) * len(line)
        if left < 0:
            return {}
        for host in hosts:
            if host in found or len(found) < MOST_HOSTS:
                found.setdefault(host, []).append(line)
        at += 1
    return {host: "\n".join(output) + "\n" for host, output in found.items()} if begun else {}


def _shape(host: str) -> str:
    """A name without its numbers."""
    return re.sub(r"\d{1,30}", "0", host)
