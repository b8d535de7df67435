"""Rule files state what they were read off, and say no to what no rule can mean."""

import re
import tomllib
from importlib import resources

import pytest

from hangdog_models.errors import OurFault
from hangdog_models.rules.ruleset import DEFAULT, last_component, packaged, parse
from hangdog_models.stack import Frame

TEXT = resources.files("hangdog_models.rules").joinpath(f"{DEFAULT}.toml").read_text(encoding="utf-8")


def test_every_rule_states_framework_and_version() -> None:
    rules = packaged()
    for rule in (*rules.drop, *rules.doing, *rules.group):
        assert re.search(r"\d", rule.applies), f"{rule.name}: which version was it read off?"


def test_names_of_rules_are_unique() -> None:
    rules = packaged()
    names = [rule.name for rule in (*rules.drop, *rules.doing, *rules.group)]
    assert len(names) == len(set(names))


def test_the_file_carries_its_own_name() -> None:
    assert packaged().name == tomllib.loads(TEXT)["name"] == DEFAULT


@pytest.mark.parametrize(
    ("change", "says"),
    [
        (lambda text: text.replace('activity = "gc"', 'activity = "gcc"'), "gcc"),
        (lambda text: text.replace('wait = "peer"', 'wait = "pear"', 1), "pear"),
        (lambda text: text + '\n[[group]]\nrule = "x"\napplies = "y 1"\ndim = "tp"\n', "names files or functions"),
        (lambda text: text + '\n[[drop]]\nrule = "x"\napplies = "y 1"\nfile = ["a.py"]\n', "unknown keys"),
        (lambda text: text + '\n[[drop]]\nrule = "x"\nfiles = ["a.py"]\n', "applies"),
        (lambda text: "name = 3 = 4", "rule file"),
    ],
)
def test_a_rule_that_means_nothing_is_refused(change, says: str) -> None:  # type: ignore[no-untyped-def]
    with pytest.raises(OurFault, match=says):
        parse(change(TEXT))


@pytest.mark.parametrize(
    ("function", "file", "name"),
    [
        ("_call_impl", "torch/nn/modules/module.py", "module call"),
        ("Module._call_impl", "torch/nn/modules/module.py", "module call"),
        ("_call_impl", "/opt/conda/lib/python3.8/site-packages/torch/nn/modules/module.py", "module call"),
        ("_call_impl", "xtorch/nn/modules/module.py", None),
        ("_call_impl", "my/module.py", None),
    ],
)
def test_files_match_by_their_end_in_whole_components(function: str, file: str, name: str | None) -> None:
    frame = Frame(function, file)
    assert next((rule.name for rule in packaged().drop if rule.matches(frame, function)), None) == name


@pytest.mark.parametrize(
    ("function", "last"),
    [("Condition.wait", "wait"), ("a.<locals>.wrapper", "wrapper"), ("c10d::Work::wait", "wait"), ("f", "f"), ("", "")],
)
def test_the_last_component_is_what_all_tools_print(function: str, last: str) -> None:
    assert last_component(function) == last
