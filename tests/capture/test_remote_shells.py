"""Hosts are named as Slurm and pdsh name them, and no name, however hostile, reaches a shell or becomes an option."""

import shlex

import pytest

from hangdog.capture.remote_shells import MOST_HOSTS, SHELLS, expanded, parse
from hangdog_models.errors import WrongUse
from support.refused import refused

REMOTE = ("hangdog", "capture", "-o", "-", "--job=a b; rm -rf /")


@pytest.mark.parametrize(
    ("given", "hosts"),
    [
        (["gpu-a17"], ["gpu-a17"]),
        (["a,b", "c"], ["a", "b", "c"]),
        (["a", "a"], ["a"]),
        (["gpu-a[01-03,7]"], ["gpu-a01", "gpu-a02", "gpu-a03", "gpu-a7"]),
        (["rack[1-2]-n[08-10]"], [f"rack{rack}-n{node}" for rack in (1, 2) for node in ("08", "09", "10")]),
        (["x[9-11],y"], ["x9", "x10", "x11", "y"]),
        (["me@10.0.0.1", "fe80::1%eth0"], ["me@10.0.0.1", "fe80::1%eth0"]),
    ],
)
def test_names_and_ranges(given: list[str], hosts: list[str]) -> None:
    assert list(expanded(SHELLS["ssh"], given)) == hosts


@pytest.mark.parametrize("name", SHELLS)
@pytest.mark.parametrize(
    "host",
    [
        "-oProxyCommand=touch /x", "a;b", "a b", "$(id)", "`id`", "a|b", "a&b", "a>b", "a\nb", "a'b", 'a"b', "", "a[", "a[1-x]",
        "@a", "me@-oX", "ä", "a\0", "[1-3", "a/../b",
    ],
)  # fmt: skip
def test_what_is_no_name_is_refused(name: str, host: str) -> None:
    with refused("bad-name" if host else "no-machine-named", WrongUse):
        expanded(SHELLS[name], [host])


@pytest.mark.parametrize("hosts", ["n[0-99999]", "a[0-99]b[0-99]", "a[0-999999999]"])
def test_hosts_are_bounded(hosts: str) -> None:
    with refused("too-many", WrongUse, str(MOST_HOSTS)):
        expanded(SHELLS["ssh"], [hosts])


def test_what_the_other_sides_shell_reads_is_quoted_and_options_of_the_user_come_first() -> None:
    command = parse("ssh -p 2222 -i 'my key'").command("gpu-a17", REMOTE, 60.0)
    assert command[:5] == ("ssh", "-p", "2222", "-i", "my key")
    assert command[-3:-1] == ("--", "gpu-a17")
    assert shlex.split(command[-1]) == list(REMOTE)
    assert "BatchMode=yes" in command


def test_srun_is_given_words_and_an_end() -> None:
    command = parse("srun --jobid=7").command("gpu-a17", REMOTE, 61.0)
    assert command[:2] == ("srun", "--jobid=7") and command[-len(REMOTE) :] == REMOTE
    assert {"--nodelist=gpu-a17", "--ntasks=1", "--overlap", "--input=none", "--time=3"} <= set(command)


@pytest.mark.parametrize(
    ("host", "words"),
    [
        ("trainer-0", ["exec", "trainer-0", "--"]),
        ("train/trainer-0", ["exec", "-n", "train", "trainer-0", "--"]),
        ("train/trainer-0:pytorch", ["exec", "-n", "train", "-c", "pytorch", "trainer-0", "--"]),
    ],
)
def test_a_pod_may_name_its_namespace_and_container(host: str, words: list[str]) -> None:
    call = parse("kubectl --context=lab")
    assert expanded(call.shell, [host]) == (host,)
    assert call.command(host, REMOTE, 60.0) == ("kubectl", "--context=lab", *words, *REMOTE)


def test_pdsh_passes_text_only() -> None:
    command = parse("pdsh -R ssh").command("gpu-a17", REMOTE, 60.5)
    assert command[-1] == f"{shlex.join(REMOTE)} | base64" and command[-3:-1] == ("-w", "gpu-a17")
    assert SHELLS["pdsh"].text and "-N" in command


@pytest.mark.parametrize("over", ["", "rsh", "sh -c", "/usr/bin/ssh", "ssh 'open"])
def test_an_unknown_program_is_refused(over: str) -> None:
    with pytest.raises(WrongUse):
        parse(over)
