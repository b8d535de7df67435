"""No number that moves odds stands in the code of the diagnosis: all of them are rows of the table of likelihoods."""

import ast
from collections.abc import Iterator
from pathlib import Path

DIAGNOSIS = Path(__file__).resolve().parents[2] / "models" / "hangdog_models" / "diagnosis"
#: Folders that say what is seen, before any odds: what counts as the same place, as moved, as late by counters.
SEEN = {"observe", "waits", "clustering"}
#: Constants of the other folders that move no odds, and what they are instead.
NO_ODDS = {
    "options.py": {},
    "findings/incident_history.py": {"NAMED": "incidents shown", "DAY_S": "a unit", "HOUR_S": "a unit"},
    "findings/library_errors.py": {"_QUOTED": "sentences shown"},
    "findings/machine_check.py": {"MOST": "codes shown"},
    "findings/ras_reports.py": {"_SHOWN": "sentences shown"},
    "findings/tcp_retransmits.py": {"_SHOWN": "sentences shown"},
    "findings/wrong_numbers.py": {"_SHOWN": "sentences shown"},
    "findings/hardware.py": {"_STRENGTH": "an order"},
    "hypotheses/blame_factors.py": {"ASKED_ALONE": "bounds the cost"},
    "hypotheses/crossed_order.py": {"_MOST": "bounds the cost"},
    "hypotheses/disagreement.py": {"GROUPS_COMPARED": "bounds the cost"},
    "hypotheses/root_causes.py": {"_WRITER": "a number of a rank"},
    "hypotheses/multiple_roots.py": {
        "NAMED_ALONE": "bounds the cost",
        "BEHIND_SHOWN": "sentences shown",
        "WEIGHED_APART": "bounds the cost",
    },
    "hypotheses/mismatch.py": {"LINK_ENDS": "what is seen: more machines than a link has"},
    "hypotheses/stuck_groups.py": {"ASKED_ALONE": "bounds the cost"},
    "stragglers/fail_slow.py": {
        "ROUNDS": "looks taken",
        "NAMED_FROM": "Wald's bound, of rows of the table",
        "DROPPED_FROM": "Wald's bound, of rows of the table",
    },
    "stragglers/lateness.py": {
        "IN_TIME": "names a vote",
        "LATE": "names a vote",
        "UNSEEN": "names a vote",
        "FREED_AT_LEAST": "what is seen: another moment",
        "SERVED_AT_LEAST": "what is seen: more than one",
        "APART_SHARE": "what is seen: a few apart from many",
    },
    "stragglers/launch_intervals.py": {
        "KNOWN": "what is seen: operations that can be compared",
        "COMPARED_AT_LEAST": "what is seen: ranks that have a middle",
    },
    "stragglers/recorded_intervals.py": {"COMPARED_ONE_BY_ONE": "bounds the cost"},
    "stragglers/sample_lengths.py": {"MOST": "a limit of what is read"},
    "stragglers/sequential_test.py": {
        "SHIFTS": "the grid of an integral",
        "NEGLIGIBLE": "the precision of an integral",
        "TURNS": "the precision of a fixed point",
    },
    "stragglers/straggler.py": {
        "LONGEST": "keeps a quotient finite",
        "LATE_BY": "what is shown: which operations count as joined late",
    },
    "verdict/because.py": {"CONTRADICTIONS_SHOWN": "sentences shown"},
    "verdict/conclude.py": {"NAMED_AT_MOST": "machines shown"},
    "verdict/eviction.py": {"COMBINED": "bounds the cost"},
    "verdict/isolation.py": {"ONE_LOOK_MOST": "a budget of eviction, like that of options.py"},
    "verdict/write_verdict.py": {"GROUPS_SHOWN": "groups shown"},
}
#: Functions in whose formulas numbers stand that nobody can set otherwise, and which formulas these are.
FORMULAS = {
    "stragglers/sequential_test.py:_weights": "the density of Cauchy's distribution",
    "stragglers/sequential_test.py:_solved": "bisection, and half a vote each way",
    "hypotheses/multiple_roots.py:blame_several": "machines beyond the two that stand for the first two faults",
    "stragglers/straggler.py:_lateness": "how many equal parts make a sum: its square over that of its parts",
    "verdict/because.py:_lacking": "percent, to one digit",
    "verdict/decision.py:at_stake": "minutes of seconds",
}
#: What multiplies to odds, and what takes its numbers for them.
MAKE_ODDS = {"Factor", "odds", "Odds"}
#: Never, and as before: numbers that no evidence could change. A half and a double are what a majority is told by.
NEUTRAL = {-1, 0, 1}
MAJORITY = 2


def numbers(node: ast.AST) -> Iterator[ast.Constant]:
    for one in ast.walk(node):
        if isinstance(one, ast.Constant) and isinstance(one.value, int | float) and not isinstance(one.value, bool):
            yield one


class OutsideOfTexts(ast.NodeTransformer):
    """A function without what shows a few of many, `[:3]`, and what is written into sentences."""

    def visit_JoinedStr(self, node: ast.JoinedStr) -> ast.AST:
        return ast.copy_location(ast.Constant(""), node)

    def visit_Subscript(self, node: ast.Subscript) -> ast.AST:
        kept: ast.AST = self.visit(node.value)
        return kept


def modules() -> Iterator[tuple[str, ast.Module]]:
    for path in sorted(DIAGNOSIS.rglob("*.py")):
        name = str(path.relative_to(DIAGNOSIS))
        if name.partition("/")[0] not in SEEN:
            yield name, ast.parse(path.read_text(encoding="utf-8"))


def constants(tree: ast.Module) -> Iterator[str]:
    """The names of a module that hold numbers written there."""
    for node in tree.body:
        if isinstance(node, ast.Assign | ast.AnnAssign) and node.value is not None:
            targets = node.targets if isinstance(node, ast.Assign) else [node.target]
            if any(numbers(node.value)):
                for target in targets:
                    yield from (one.id for one in ast.walk(target) if isinstance(one, ast.Name))


def test_no_constant_of_a_module_moves_odds_outside_of_the_table() -> None:
    found = {name: set(constants(tree)) for name, tree in modules()}
    wrong = {name: held - set(NO_ODDS.get(name, {})) for name, held in found.items()}
    assert not {name: sorted(held) for name, held in wrong.items() if held}
    assert not {name: set(listed) - found[name] for name, listed in NO_ODDS.items() if set(listed) - found[name]}


def test_no_field_of_a_noun_of_odds_has_a_number_as_its_default() -> None:
    found = [
        f"{name}: {node.name}.{field.target.id}"
        for name, tree in modules()
        if name.startswith(("hypotheses/", "findings/"))
        for node in ast.walk(tree)
        if isinstance(node, ast.ClassDef)
        for field in node.body
        if isinstance(field, ast.AnnAssign) and isinstance(field.target, ast.Name) and field.value is not None
        if any(numbers(field.value))
    ]
    assert not found


def test_no_number_multiplies_odds_where_it_is_written() -> None:
    """Neither in what makes a factor, nor in a product, a quotient, a power or a fraction anywhere else in these folders."""
    wrong, used = [], set()
    for name, tree in modules():
        for function in (node for node in tree.body if isinstance(node, ast.FunctionDef)):
            place = f"{name}:{function.name}"
            for number in moving(function):
                if place in FORMULAS:
                    used.add(place)
                else:
                    wrong.append(f"{name}:{number.lineno}: {number.value!r}")
    assert not wrong
    assert used == set(FORMULAS)


def moving(function: ast.FunctionDef) -> Iterator[ast.Constant]:
    """The numbers of a function that would move odds: fractions, factors of products, exponents, what a factor is made of."""
    seen: dict[int, ast.Constant] = {}
    for node in ast.walk(OutsideOfTexts().visit(function)):
        made = isinstance(node, ast.Call) and isinstance(node.func, ast.Name) and node.func.id in MAKE_ODDS
        power = isinstance(node, ast.BinOp) and isinstance(node.op, ast.Pow)
        product = isinstance(node, ast.BinOp) and isinstance(node.op, ast.Mult | ast.Div)
        if isinstance(node, ast.Call) and made:
            for one in (*node.args, *node.keywords):
                seen.update((id(n), n) for n in numbers(one) if n.value not in (*NEUTRAL, MAJORITY))
        elif isinstance(node, ast.BinOp) and power:
            seen.update((id(n), n) for n in numbers(node.right) if n.value not in NEUTRAL)
        elif isinstance(node, ast.BinOp) and product:
            sides = (n for n in (node.left, node.right) if isinstance(n, ast.Constant))
            seen.update(
                (id(n), n) for n in sides if isinstance(n.value, int | float) and n.value not in (*NEUTRAL, MAJORITY)
            )
        elif isinstance(node, ast.Constant) and isinstance(node.value, float) and node.value not in NEUTRAL:
            seen[id(node)] = node
    return iter(seen.values())
