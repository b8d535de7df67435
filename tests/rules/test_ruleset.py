"""Rule files state what they were read off, and say no to what no rule can mean."""

import re
import tomllib
from importlib import resources

import pytest

from hangdog_models.errors import OurFault
from hangdog_models.rules.ruleset import last_component, merge, newest, packaged, parse
from hangdog_models.stack import Frame

FILES = {
    file.name.removesuffix(".toml"): file.read_text(encoding="utf-8")
    for file in resources.files("hangdog_models.rules").joinpath("frames").iterdir()
    if file.name.endswith(".toml")
}
TEXT = FILES["torch@2026-11"]


def test_every_rule_states_framework_and_version() -> None:
    rules = packaged()
    for rule in (*rules.drop, *rules.doing, *rules.group):
        assert re.search(r"\d", rule.applies), f"{rule.name}: which version was it read off?"


def test_names_of_rules_are_unique() -> None:
    rules = packaged()
    names = [rule.name for rule in (*rules.drop, *rules.doing, *rules.group)]
    assert len(names) == len(set(names))


@pytest.mark.parametrize("name", FILES)
def test_a_file_carries_its_own_name_and_date(name: str) -> None:
    assert tomllib.loads(FILES[name])["name"] == name and re.fullmatch(r"[a-z_]+@\d{4}-\d\d", name)


def test_all_files_are_merged_and_what_is_built_upon_a_framework_is_asked_before_it() -> None:
    names = packaged().name.split()
    assert set(names) == set(FILES) and len(names) == len(FILES)
    assert names.index("megatron@2026-11") < names.index("torch@2026-11") < names.index("python@2026-11")


def test_of_one_framework_the_newest_file_judges() -> None:
    found = ["torch@2027-01.toml", "jax@2026-11.toml", "torch@2026-11.toml"]
    assert newest(found) == newest(found[::-1]) == ["jax@2026-11.toml", "torch@2027-01.toml"]


def test_the_order_in_which_files_are_found_does_not_matter() -> None:
    sets = [parse(text) for text in FILES.values()]
    rows = [[rule.name for rule in merge(order).doing] for order in (sets, sets[::-1])]
    assert rows[0] == rows[1]


@pytest.mark.parametrize(
    ("change", "says"),
    [
        (lambda text: text.replace('activity = "compile"', 'activity = "compiled"'), "compiled"),
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
