"""The names of other classes in compiled Java classes, from their constant pools."""

from __future__ import annotations

import re
import struct
import zipfile
from typing import TYPE_CHECKING, Final

if TYPE_CHECKING:
    from pathlib import Path

_UTF8: Final = 1
_CLASS: Final = 7
_SIZES: Final = {
    3: 4,
    4: 4,
    5: 8,
    6: 8,
    7: 2,
    8: 2,
    9: 4,
    10: 4,
    11: 4,
    12: 4,
    15: 3,
    16: 2,
    17: 4,
    18: 4,
    19: 2,
    20: 2,
}
_TWO_SLOTS: Final = frozenset({5, 6})  # long and double
_NAME_OF_CLASS: Final = re.compile(r"L([\w$/]+);")


def classes_named_by(class_file: bytes) -> set[str]:
    """The classes that a class refers to: in its code, its signatures and its annotations."""
    assert class_file[:4] == b"\xca\xfe\xba\xbe"
    (count,) = struct.unpack_from(">H", class_file, 8)
    texts: dict[int, str] = {}
    names: list[int] = []
    position, index = 10, 1
    while index < count:
        tag = class_file[position]
        if tag == _UTF8:
            (size,) = struct.unpack_from(">H", class_file, position + 1)
            texts[index] = class_file[position + 3 : position + 3 + size].decode("utf-8", "replace")
            position += 3 + size
        else:
            if tag == _CLASS:
                names.append(struct.unpack_from(">H", class_file, position + 1)[0])
            position += 1 + _SIZES[tag]
        index += 2 if tag in _TWO_SLOTS else 1
    plain = {texts[name] for name in names if not texts[name].startswith("[")}
    in_signatures = {name for text in texts.values() for name in _NAME_OF_CLASS.findall(text)}
    return {name.replace("/", ".") for name in plain | in_signatures}


def class_version(class_file: bytes) -> int:
    """The Java release that a class is for."""
    return int(struct.unpack_from(">H", class_file, 6)[0]) - 44


def classes_of(jar: Path) -> dict[str, bytes]:
    """The class files of an archive by name."""
    with zipfile.ZipFile(jar) as archive:
        return {name: archive.read(name) for name in archive.namelist() if name.endswith(".class")}
