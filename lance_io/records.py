"""Dataclasses that are cheap to define.

    from lance_io.records import dataclass

The decorator of the standard library compiles up to six methods for each class, 0.4 ms for a frozen class: for the
hundred classes that a first row needs, a fifth of the time of a new process until that row. This one compiles only
`__init__`; comparison, hash and `repr` are closures over the names of the fields.

For the type checker these are the dataclasses of the standard library, so that it refuses assignments to frozen fields.
If LANCE_IO_FREEZE is set, as in all test runs, assignments are also checked at run time: only the first one to a field
is allowed, others raise `FrozenInstanceError`. Without it creating an object takes a quarter of the time of a frozen
dataclass of the standard library; tables have hundreds of thousands of these objects.
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
                cls.__doc__ = cls.__name__  # else `dataclasses` formats the signature, which takes as long as the rest
            record = dataclasses.dataclass(slots=slots, repr=False, eq=False)(cls)
            fields = dataclasses.fields(record)
            if repr and "__repr__" not in own:
                record.__repr__ = _repr_of([field.name for field in fields if field.repr])
            if eq and "__eq__" not in own:
                record.__eq__ = _equality_by(_values([field.name for field in fields if field.compare]))
            if eq and own.get("__hash__") is None:
                names = [field.name for field in fields if (field.compare if field.hash is None else field.hash)]
                record.__hash__ = _hash_by(_values(names)) if frozen else None
            if frozen and FREEZES:
                record.__setattr__, record.__delattr__ = _guards(record, [field.name for field in fields])
            return record

        return make


def _values(names: list[str]) -> Callable[[Any], Any]:
    """A function that returns the values of these attributes as a tuple."""
    if len(names) > 1:
        return attrgetter(*names)
    return lambda record: tuple([getattr(record, name) for name in names])


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
    """`__setattr__` and `__delattr__` of a frozen class: each field can be set once, by `__init__`."""
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
