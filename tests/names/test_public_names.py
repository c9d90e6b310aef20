"""Public names stay: `public_names.txt` has each one with its parameters, and the members of classes below it."""

from __future__ import annotations

import importlib
import inspect
from pathlib import Path
from typing import Any

import pytest

STORED = Path(__file__).with_name("public_names.txt")


def stored_names() -> dict[str, list[str]]:
    """Lines below each public name, with its own line first."""
    names: dict[str, list[str]] = {}
    last = ""
    for line in STORED.read_text().splitlines():
        if not line.startswith(" "):
            last = line.partition("(")[0]
        names.setdefault(last, []).append(line.strip())
    return names


NAMES = stored_names()


def check(value: Any, line: str) -> None:
    """Parameters of a line are still there, in their order; new ones may stand between."""
    _, is_function, rest = line.partition("(")
    if is_function:
        stored = [name for name in rest.rstrip(")").split(", ") if name]
        names = [name for name in inspect.signature(value).parameters if name in stored]
        assert names == stored


@pytest.mark.parametrize("name", NAMES)
def test_it_is_there_with_its_parameters(name: str) -> None:
    module, _, last = name.rpartition(".")
    value = getattr(importlib.import_module(module), last)
    line, *members = NAMES[name]
    check(value, line)
    for member in members:
        check(getattr(value, member.partition("(")[0]), member)


def test_new_names_are_stored() -> None:
    """A name that is public from now on has to stay, too: add it to the list."""
    modules = sorted({name.rpartition(".")[0] for name in NAMES})
    public = {f"{name}.{last}" for name in modules for last in getattr(importlib.import_module(name), "__all__", ())}
    assert not public - NAMES.keys()


def test_a_parameter_that_is_gone_is_noticed() -> None:
    def function(first: int, third: int) -> None:
        """Lacks one."""

    check(function, "function(first, third)")
    with pytest.raises(AssertionError):
        check(function, "function(first, second)")
