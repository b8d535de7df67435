"""Logs as container runtimes keep them: the lines are what the program printed, with the times of the runtime.

Forms: Docker's json-file driver (docs.docker.com/engine/logging/drivers/json-file; moby daemon/logger/jsonfilelog cuts at 16 KB), the
lines of the CRI (kubernetes pkg/kubelet/kuberuntime/logs, `P` and `F`), as containerd 1.7 and CRI-O write them.
"""

import json

import pytest

from hangdog.evidence.content import Logged, StackFile, Unused, read_contents
from hangdog.evidence.naming import name_of
from hangdog_models.findings import Impact
from hangdog_models.reading.limits import DEFAULTS
from hangdog_models.reading.logs import container_log

AT = "2026-01-02T03:04:05.678901234Z"
AT_S = 1767323045.0
ECC = "RuntimeError: CUDA error: uncorrectable ECC error encountered"


def docker(*lines: str, stream: str = "stderr", end: str = "\n") -> str:
    return "".join(json.dumps({"log": line + end, "stream": stream, "time": AT}) + "\n" for line in lines)


def cri(*lines: str, tag: str = "F", at: str = AT) -> str:
    return "".join(f"{at} stderr {tag} {line}\n" for line in lines)


def logged(text: str) -> Logged:
    contents = read_contents(name_of("rank3.log"), text.encode(), DEFAULTS)
    return next(content for content in contents if isinstance(content, Logged))


@pytest.mark.parametrize(
    "text", [docker("step 3", ECC), cri("step 3", ECC), cri(ECC, at="2026-01-02T04:04:05.678+01:00")]
)
def test_a_finding_in_a_container_has_the_time_of_its_line(text: str) -> None:
    assert container_log.recognises(text)
    (stream,) = logged(text).streams
    (finding,) = stream.findings
    assert (finding.code, finding.impact, finding.at_s) == ("CUDA uncorrectable ECC", Impact.CONVICTS, AT_S)


def test_a_line_that_was_cut_into_pieces_is_whole_again() -> None:
    pieces = docker(ECC[:30], end="") + docker("step 4", stream="stdout") + docker(ECC[30:])
    assert container_log.plain(container_log.joined(pieces)) == f"{ECC}\nstep 4\n"
    assert logged(pieces).streams[0].findings[0].code == "CUDA uncorrectable ECC"
    assert logged(cri(ECC[:30], tag="P") + cri(ECC[30:])).streams[0].findings[0].code == "CUDA uncorrectable ECC"


@pytest.mark.parametrize("wrapped", [docker, cri])
def test_the_host_before_nccls_lines_is_found(wrapped: object) -> None:
    line = "gpu-a:5776:5902 [0] NCCL INFO Bootstrap : Using eth0:10.0.0.4<0>"
    (stream,) = logged(docker(line) if wrapped is docker else cri(line)).streams
    assert (stream.host, stream.addresses) == ("gpu-a", frozenset({"10.0.0.4"}))


@pytest.mark.parametrize("wrapped", [docker, cri])
def test_stacks_of_a_dying_process_are_read(wrapped: object) -> None:
    lines = ["Fatal Python error: Aborted", "", "Current thread 0x00007fdcd74d76c0 (most recent call first):"]
    lines += ['  File "/a/train.py", line 12 in step', '  File "/a/train.py", line 40 in <module>']
    text = docker(*lines) if wrapped is docker else cri(*lines)
    stacks = [one for one in read_contents(name_of("rank3.log"), text.encode(), DEFAULTS) if isinstance(one, StackFile)]
    assert [frame.function for frame in stacks[0].processes[0].threads[0].frames] == ["<module>", "step"]


def test_what_is_no_piece_of_a_log_stays_as_it_is() -> None:
    assert container_log.joined(cri("a") + "other\n\n" + '{"log": 3}\n') == f'{AT} stderr F a\nother\n{{"log": 3}}\n'
    for text in ('{"log": "x"}\n', '{"log": "x", "time": "now"}\n', "2026-01-02 step\n", ""):
        assert not container_log.recognises(text)
    assert read_contents(name_of("a.log"), docker("step 3").encode(), DEFAULTS) == (Unused(),)
