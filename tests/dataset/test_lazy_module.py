"""Modules that are loaded when something of them is first used, as such and as what gives plans."""

from __future__ import annotations

import ast
import sys
from functools import cache
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest

import lance_io
from lance_io.lazy_names import LazyModule, lazy_module
from lance_io.plans.lazy_module import lazy_plans
from lance_io.plans.plan import Import

if TYPE_CHECKING:
    from collections.abc import Iterator

PACKAGE = Path(lance_io.__file__).parent
SOURCE = """
LIMIT = 3

class Kept: ...

def doubled(number):
    found = yield "a request"
    return number * 2 + found
"""


@pytest.fixture
def slow(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[str]:
    (tmp_path / "slow_plans.py").write_text(SOURCE)
    monkeypatch.syspath_prepend(str(tmp_path))
    yield "slow_plans"
    sys.modules.pop("slow_plans", None)


def test_a_module_is_imported_when_it_is_used(slow: str) -> None:
    module = lazy_module(slow)
    assert slow not in sys.modules and repr(module) == "lazy_module('slow_plans')"
    assert module.LIMIT == 3 and slow in sys.modules


def test_a_module_takes_the_place_of_what_stood_for_it(slow: str) -> None:
    user: dict[str, Any] = {"lazy_module": lazy_module}
    exec(f"door = same = lazy_module({slow!r})", user)
    before = user["door"]
    assert isinstance(before, LazyModule) and before.LIMIT == 3
    assert user["door"] is user["same"] is sys.modules[slow] and before.LIMIT == 3


def test_a_plan_asks_for_its_module_first(slow: str) -> None:
    plan = lazy_plans(slow).doubled(20)
    assert slow not in sys.modules
    assert next(plan) == Import((slow,)) and slow not in sys.modules
    assert plan.send(None) == "a request" and slow in sys.modules
    with pytest.raises(StopIteration) as ended:
        plan.send(2)
    assert ended.value.value == 42


def test_classes_and_constants_are_looked_up_at_once(slow: str) -> None:
    module = lazy_plans(slow)
    assert module.LIMIT == 3 and isinstance(module.Kept, type)
    with pytest.raises(AttributeError):
        _ = module.__wrapped__


@cache
def plan_functions(name: str) -> set[str]:
    """The functions of a module that say that they give a plan."""
    tree = ast.parse((PACKAGE.parent / f"{name.replace('.', '/')}.py").read_text())
    functions = (node for node in tree.body if isinstance(node, ast.FunctionDef) and node.returns is not None)
    return {node.name for node in functions if ast.unparse(node.returns or node).startswith("Plan[")}


def test_what_is_used_as_a_plan_is_one() -> None:
    """Another function of such a module would give a generator that nobody runs; type checkers do not see that."""
    uses = 0
    for path in PACKAGE.rglob("*.py"):
        text = path.read_text()
        if "lazy_plans" not in text:
            continue
        tree = ast.parse(text)
        modules = {
            node.targets[0].id: ast.literal_eval(node.value.args[0])
            for node in ast.walk(tree)
            if isinstance(node, ast.Assign)
            and isinstance(node.targets[0], ast.Name)
            and isinstance(node.value, ast.Call)
            and isinstance(node.value.func, ast.Name)
            and node.value.func.id == "lazy_plans"
        }
        for node in ast.walk(tree):
            if isinstance(node, ast.Attribute) and isinstance(node.value, ast.Name) and node.value.id in modules:
                if node.attr[0].islower():
                    uses += 1
                    assert node.attr in plan_functions(modules[node.value.id]), f"{path}: {ast.unparse(node)}"
    assert uses > 30
