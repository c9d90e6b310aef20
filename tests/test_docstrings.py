"""Docstrings of public names: Google style, with each parameter, and with the errors that a function raises itself."""

from __future__ import annotations

import ast
import builtins
import importlib
import inspect
import pkgutil
import textwrap
from functools import cached_property
from typing import TYPE_CHECKING, Any

import griffe
import pytest

import lance_io

if TYPE_CHECKING:
    from collections.abc import Iterator

RAISES = griffe.DocstringSectionKind.raises

# Public modules: those of the root, and the two packages that programs build on.
MODULES = [
    *(f"lance_io.{module.name}" for module in pkgutil.iter_modules(lance_io.__path__) if not module.ispkg),
    "lance_io",
    "lance_io.dataset.distributed",
    "lance_io.spark",
    "lance_io.testing",
]

# Classes without a public name of their own: calls of the dataset answer with their objects.
ANSWERS = {
    "lance_io.dataset.optimizer": ("Compaction", "AsyncCompaction", "DatasetOptimizer", "AsyncDatasetOptimizer"),
    "lance_io.dataset.sql_query": ("SqlQuery", "AsyncSqlQuery", "SqlQueryBuilder", "AsyncSqlQueryBuilder"),
    "lance_io.dataset.tags_and_branches": ("Tags", "Branches"),
    "lance_io.dataset.version_delta": ("DatasetDelta", "AsyncDatasetDelta"),
    "lance_io.reads.metadata.table_statistics": ("LanceStats", "AsyncStats"),
}


class PublicFunction:
    """A function that users reach, under the name that they use."""

    def __init__(self, name: str, function: Any) -> None:
        self.name = name
        self.function = inspect.unwrap(function)

    @cached_property
    def docstring(self) -> str:
        return inspect.getdoc(self.function) or ""

    @property
    def refers(self) -> bool:
        """Whether the docstring names a twin that has the parameters."""
        return "See `" in self.docstring

    @cached_property
    def parameters(self) -> dict[str, inspect.Parameter]:
        parameters = inspect.signature(self.function).parameters
        return {name: parameter for name, parameter in parameters.items() if name not in ("self", "cls")}

    @property
    def takes_any(self) -> bool:
        return any(parameter.kind is parameter.VAR_KEYWORD for parameter in self.parameters.values())

    def section(self, kind: griffe.DocstringSectionKind) -> list[Any]:
        parsed = griffe.Docstring(self.docstring).parse("google", warnings=False)
        return [item for section in parsed if section.kind is kind for item in section.value]

    @property
    def documented(self) -> list[str]:
        kinds = (griffe.DocstringSectionKind.parameters, griffe.DocstringSectionKind.other_parameters)
        return [item.name.lstrip("*") for kind in kinds for item in self.section(kind)]

    @property
    def raised(self) -> set[type[BaseException]]:
        """Classes that the function raises in its own body."""
        try:
            tree = ast.parse(textwrap.dedent(inspect.getsource(self.function)))
        except (OSError, TypeError):
            return set()
        raises = [node.exc for node in ast.walk(tree) if isinstance(node, ast.Raise)]
        names = {node.func.id for node in raises if isinstance(node, ast.Call) and isinstance(node.func, ast.Name)}
        names_here = {**vars(builtins), **self.function.__globals__}
        return {names_here[name] for name in names if isinstance(names_here.get(name), type)}

    def names_error(self, error: type[BaseException]) -> bool:
        """Whether `Raises:` has a class, or one that it is derived from."""
        documented = {str(item.annotation).rpartition(".")[2] for item in self.section(RAISES)}
        return any(base.__name__ in documented for base in error.__mro__ if base is not object)


def public_functions() -> Iterator[PublicFunction]:
    seen: set[int] = set()
    names = {name: getattr(importlib.import_module(name), "__all__", ()) for name in MODULES}
    for module_name, public in (names | ANSWERS).items():
        module = importlib.import_module(module_name)
        for name in public:
            for function in functions_of(f"{module_name}.{name}", getattr(module, name)):
                if id(function.function) not in seen:
                    seen.add(id(function.function))
                    yield function


def functions_of(name: str, value: Any) -> Iterator[PublicFunction]:
    """A function, or the public methods of a class of ours."""
    if inspect.isfunction(value) and value.__module__.startswith("lance_io"):
        yield PublicFunction(name, value)
    elif inspect.isclass(value) and value.__module__.startswith("lance_io"):
        for member, _ in inspect.getmembers(value):
            method = inspect.getattr_static(value, member)
            method = getattr(method, "__func__", method)
            if not member.startswith("_") and inspect.isfunction(method) and method.__module__.startswith("lance_io"):
                yield PublicFunction(f"{name}.{member}", method)


FUNCTIONS = sorted(public_functions(), key=lambda function: function.name)


@pytest.mark.parametrize("function", FUNCTIONS, ids=lambda function: function.name)
def test_parameters_are_documented(function: PublicFunction) -> None:
    assert function.docstring, "no docstring"
    unknown = set(function.documented) - set(function.parameters)
    assert function.takes_any or not unknown, f"documented, and no parameters: {unknown}"
    assert len(function.documented) == len(set(function.documented)), "documented twice"
    if not function.refers:
        assert set(function.parameters) <= set(function.documented), "Args: lacks parameters"
        lacking = [error.__name__ for error in function.raised if not function.names_error(error)]
        assert not lacking, f"Raises: lacks {lacking}"


def test_the_walk_meets_what_users_meet() -> None:
    names = {function.name.rpartition(".")[2] for function in FUNCTIONS}
    assert {"write_dataset", "to_table", "merge_insert", "take", "compact_files", "commit_write"} <= names


def test_a_docstring_that_lacks_something_is_noticed() -> None:
    def lacking(first: int, second: int) -> None:
        """Does something.

        Args:
            first: the first.
            third: no parameter.
        """
        raise ValueError(first, second)

    function = PublicFunction("lacking", lacking)
    assert function.documented == ["first", "third"] and function.raised == {ValueError}
    with pytest.raises(AssertionError):
        test_parameters_are_documented(function)
