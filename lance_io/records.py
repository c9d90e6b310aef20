"""Dataclasses that are cheap to define.

    from lance_io.records import dataclass

That of the standard library compiles up to six methods for each class, 0.4 ms for a frozen one: for the hundred classes
that a first row needs, a fifth of the time of a new process until then. Here it compiles `__init__`; what compares,
hashes and shows is made of the names of the fields.

To the type checker these are the dataclasses of the standard library, so that it refuses what is assigned to a frozen
one. Where LANCE_IO_FREEZE is set, as it is wherever tests run, each assignment is looked at, too: anything but the
first one to a field raises `FrozenInstanceError`. Without it an object is made in a quarter of the time that a frozen
one of the standard library takes, and tables have hundreds of thousands.
"""

from __future__ import annotations

import dataclasses
import os
from operator import attrgetter
from types import MemberDescriptorType
from typing import TYPE_CHECKING, Any

from lance_io.redaction import hide_secrets

if TYPE_CHECKING:
    from collections.abc import Callable
    from dataclasses import dataclass as dataclass
else:
    FREEZES = bool(os.environ.get("LANCE_IO_FREEZE"))

    def dataclass(
        *, frozen: bool = False, slots: bool = False, eq: bool = True, repr: bool = True
    ) -> Callable[[type], type]:
        """Like `dataclasses.dataclass`."""

        def make(cls: type) -> type:
            own = vars(cls)
            if not own.get("__doc__"):
                cls.__doc__ = cls.__name__  # else one is made of its signature, which takes as long as all the rest
            made = dataclasses.dataclass(slots=slots, repr=False, eq=False)(cls)
            fields = dataclasses.fields(made)
            if repr and "__repr__" not in own:
                made.__repr__ = _repr_of([one.name for one in fields if one.repr])
            if eq and "__eq__" not in own:
                made.__eq__ = _equality_by(_values([one.name for one in fields if one.compare]))
            if eq and own.get("__hash__") is None:
                names = [one.name for one in fields if (one.compare if one.hash is None else one.hash)]
                made.__hash__ = _hash_by(_values(names)) if frozen else None
            if frozen and FREEZES:
                made.__setattr__, made.__delattr__ = _guards(made, [one.name for one in fields])
            return made

        return make


def _values(names: list[str]) -> Callable[[Any], Any]:
    """What gives the values of these attributes, as a tuple."""
    if len(names) > 1:
        return attrgetter(*names)
    return lambda one: tuple([getattr(one, name) for name in names])


def _equality_by(values: Callable[[Any], Any]) -> Callable[[Any, object], bool]:
    def __eq__(self: Any, other: object) -> bool:
        if other.__class__ is not self.__class__:
            return NotImplemented
        return self is other or bool(values(self) == values(other))

    return __eq__


def _hash_by(values: Callable[[Any], Any]) -> Callable[[Any], int]:
    def __hash__(self: Any) -> int:
        return hash(values(self))

    return __hash__


def _repr_of(names: list[str]) -> Callable[[Any], str]:
    def __repr__(self: Any) -> str:
        shown = ", ".join(f"{name}={getattr(self, name)!r}" for name in names)
        return hide_secrets(f"{type(self).__qualname__}({shown})")

    return __repr__


def _guards(cls: type, names: list[str]) -> tuple[Callable[..., None], Callable[..., None]]:
    """`__setattr__` and `__delattr__` of a frozen class: a field is set once, by what makes the object."""
    slots = {name for name in names if isinstance(getattr(cls, name, None), MemberDescriptorType)}
    own = frozenset(names)

    def is_set(self: Any, name: str) -> bool:
        return hasattr(self, name) if name in slots else name in vars(self)

    def __setattr__(self: Any, name: str, value: object) -> None:
        if is_set(self, name) if name in own else self.__class__ is cls:
            raise dataclasses.FrozenInstanceError(f"cannot assign to field {name!r}")
        object.__setattr__(self, name, value)

    def __delattr__(self: Any, name: str) -> None:
        if self.__class__ is cls or name in own:
            raise dataclasses.FrozenInstanceError(f"cannot delete field {name!r}")
        object.__delattr__(self, name)

    return __setattr__, __delattr__
