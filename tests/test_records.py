"""Our dataclasses do what those of the standard library do; here, where tests run, they forbid assignments, too."""

from __future__ import annotations

import copy
import dataclasses
import pickle
import subprocess
import sys
from dataclasses import FrozenInstanceError, field
from functools import cached_property, partial
from itertools import product
from typing import Any

import pytest

from lance_io.records import dataclass

OURS: Any = dataclass


def described(cls: Any) -> Any:
    """Fields of all kinds."""
    cls.__annotations__ = {"a": "int", "b": "str | None", "c": "list[int]", "d": "Any", "e": "int"}
    cls.b, cls.c = None, field(default_factory=list, hash=False)
    cls.d, cls.e = field(default=0, compare=False), field(default=7, repr=False)
    return cls


def made_by(make: Any, name: str, members: dict[str, Any], **how: bool) -> Any:
    return make(**how)(described(type(name, (), {"__doc__": "Fields.", "__module__": __name__, **members})))


class Shown:
    """Members of its own that a class may have."""

    def __repr__(self) -> str:
        return "shown"

    def __eq__(self, other: object) -> bool:
        return True

    def __hash__(self) -> int:
        return 5


MEMBERS: list[dict[str, Any]] = [{}, {"__repr__": Shown.__repr__}, {"__eq__": Shown.__eq__, "__hash__": Shown.__hash__}]


GIVEN: list[tuple[Any, ...]] = [
    *((), (1,), (1, "x"), (1, "x", [2]), (1, "x", [2], 3), (1, None, [], 9, 8)),
    *((float("nan"),), (1, 2, 3, 4, 5, 6)),
]


WAYS = [
    {"frozen": frozen, "slots": slots, "eq": eq, "repr": shows}
    for frozen, slots, eq, shows in product([False, True], repeat=4)
]


def answers(kind: Any, left: tuple[Any, ...], right: tuple[Any, ...]) -> Any:
    """What two instances say of each other; the text of the error where there can be none."""
    try:
        one, other = kind(*left), kind(*right)
    except TypeError as error:
        return str(error)
    says: list[Any] = [one == other, one != other, one == left, one == dataclasses.replace(one)]
    if kind.__repr__ is not object.__repr__:
        says += [repr(one), repr(other)]
    if kind.__hash__ not in (None, object.__hash__):
        says += [hash(one) == hash(other), hash(one) == hash(dataclasses.replace(one))]
    return says


def attempts(kind: Any) -> list[str]:
    """What comes of changing an instance, by field and by a name that is none, and of deleting."""
    try:
        one = kind(1, "x")
    except TypeError as error:
        return [str(error)]
    before, tried = [getattr(one, each.name) for each in dataclasses.fields(kind)], []
    for name in ("a", "b", "c", "e", "none"):
        for change in (partial(setattr, one, name, 5), partial(delattr, one, name)):
            try:
                change()
            except (AttributeError, TypeError) as error:  # with slots, the library of Python 3.11 fails on other names
                tried.append("refused" if name == "none" else str(error))
            else:
                tried.append("done")
    assert "cannot assign" not in tried[0] or before == [getattr(one, each.name) for each in dataclasses.fields(kind)]
    return tried


@pytest.mark.parametrize("how", WAYS, ids=str)
@pytest.mark.parametrize("members", MEMBERS, ids=["plain", "shown", "equal"])
def test_they_are_those_of_the_standard_library(members: dict[str, Any], how: dict[str, bool]) -> None:
    ours, theirs = made_by(OURS, "Made", members, **how), made_by(dataclasses.dataclass, "Made", members, **how)
    assert [one.name for one in dataclasses.fields(ours)] == [one.name for one in dataclasses.fields(theirs)]
    assert ours.__match_args__ == theirs.__match_args__
    assert hasattr(ours, "__slots__") is hasattr(theirs, "__slots__") is how["slots"]
    assert (ours.__hash__ is None) is (theirs.__hash__ is None)
    for left, right in product(GIVEN, repeat=2):
        assert answers(ours, left, right) == answers(theirs, left, right), (left, right)
    assert attempts(ours) == attempts(theirs)


@dataclass(frozen=True, slots=True)
class Value:
    """At a place where pickles find it."""

    a: int
    b: tuple[int, ...] = ()


@dataclass(frozen=True)
class Empty:
    """No field."""


def test_values_travel_and_are_keys() -> None:
    one = Value(1, (2,))
    for again in (pickle.loads(pickle.dumps(one)), copy.copy(one), copy.deepcopy(one), dataclasses.replace(one)):
        assert again == one and again is not one and {one: 1}[again] == 1
    assert dataclasses.replace(one, a=2) == Value(2, (2,)) != one
    assert Empty() == Empty() and hash(Empty()) == hash(Empty()) and repr(Empty()) == "Empty()"
    assert Value(1) != Empty()


@dataclass(frozen=True, slots=True)
class Longer(Value):
    """A subclass: fields of its own and of another class."""

    c: int = 3


@dataclass(frozen=True)
class Counted:
    """One that is made of others, and keeps what it has computed."""

    a: int
    doubled: int = field(init=False)

    def __post_init__(self) -> None:
        object.__setattr__(self, "doubled", 2 * self.a)

    @cached_property
    def tripled(self) -> int:
        """Kept."""
        return 3 * self.a


@pytest.mark.parametrize("one", [Value(1, (2,)), Longer(1), Counted(4)], ids=lambda one: type(one).__name__)
def test_a_key_stays_the_same(one: Any) -> None:
    keys = {one: "kept"}
    for copied in (one, copy.copy(one), pickle.loads(pickle.dumps(one)), dataclasses.replace(one)):
        for name in (*(each.name for each in dataclasses.fields(one)), "other"):
            with pytest.raises(FrozenInstanceError):
                setattr(copied, name, 9)
            with pytest.raises(FrozenInstanceError):
                delattr(copied, name)
        assert keys[copied] == "kept"
    assert not isinstance(one, Counted) or (one.doubled, one.tripled, one.tripled) == (8, 12, 12)


FROZEN = """
import lance_io, sys
from dataclasses import FrozenInstanceError
from lance_io.table.manifest.fragment import DataFile, Fragment
from lance_io.table.manifest.manifest import Manifest
for kind in (DataFile, Fragment, Manifest):
    one = kind.__new__(kind)
    name = next(iter(kind.__dataclass_fields__))
    setattr(one, name, 1)
    try:
        setattr(one, name, 2)
    except FrozenInstanceError:
        print(kind.__name__)
"""


def test_processes_that_tests_start_freeze_them_too() -> None:
    done = subprocess.run([sys.executable, "-c", FROZEN], capture_output=True, text=True, check=True)
    assert done.stdout.split() == ["DataFile", "Fragment", "Manifest"]


def test_only_one_method_is_compiled() -> None:
    """Compiling each of them is what costs the time."""

    def compiled(cls: Any) -> set[str]:
        members = {name: getattr(one, "__code__", None) for name, one in vars(cls).items()}
        return {name for name, code in members.items() if code is not None and code.co_filename == "<string>"}

    ours, theirs = (made_by(make, "Made", {}, frozen=True, slots=True) for make in (OURS, dataclasses.dataclass))
    assert compiled(ours) == {"__init__"} < compiled(theirs)
