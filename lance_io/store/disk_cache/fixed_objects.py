"""Which objects of a table never change, and by what a copy on disk is found.

What is relied on: a name that was drawn at random is never given to other content. So a copy needs no more than the
name, even if the table is deleted and written anew at the same place:

    data/<name>                    24 binary and 26 hexadecimal digits, or a UUID; sidecars in a folder of such a name
    _deletions/<..>-<..>-<id>.*    64 random bits, after fragment and version
    _transactions/<version>-<uuid>.txn
    _indices/<uuid>/...

Files of other names in these folders are not kept. Manifests have names that a new table at the same place uses again:
a copy of one counts only together with the etag that a listing has shown, or where the caller has pinned the version.
"""

from __future__ import annotations

import re
from hashlib import blake2b
from typing import TYPE_CHECKING, Final, NamedTuple

if TYPE_CHECKING:
    from collections.abc import Iterable

    from lance_io.store.offers import WantedRange

ID_BYTES: Final = 16
KNOWN_MAX: Final = 4096  # names of objects that are remembered with what they make

_UUID = r"[0-9a-fA-F]{8}-?(?:[0-9a-fA-F]{4}-?){3}[0-9a-fA-F]{12}"
_FIXED = re.compile(
    rf"""(?:^|/)(?:
        data/(?:[01]{{24}}[0-9a-f]{{26}}|{_UUID})(?:\.[A-Za-z0-9]+|/[^/]+)
      | _deletions/\d+-\d+-\d+\.(?:arrow|bin)
      | _transactions/\d+-{_UUID}\.txn
      | _indices/{_UUID}/.+
    )\Z""",
    re.VERBOSE,
)


class CopyName(NamedTuple):
    """By what a copy is found.

    object_id   16 bytes that stand for store, credentials, object and kind of the copy
    start, end  bytes of the object; of a copy that is not a range of one, numbers of its kind
    is_range    whether a copy of more bytes around it serves as well
    """

    object_id: bytes
    start: int
    end: int
    is_range: bool


class NameSpace:
    """Names the copies of one store, as one set of credentials sees it.

    identity  of the store
    access    what tells these credentials from others; it is not kept, only what it makes of names
    """

    def __init__(self, identity: str, access: str) -> None:
        self._hash = blake2b(digest_size=ID_BYTES)
        for part in (identity, access):
            self._hash.update(b"%d:%b" % (len(part), part.encode("utf-8", "surrogatepass")))

        self._known: dict[tuple[bytes, str], bytes] = {}  # a take asks for many ranges of few objects

    def _id(self, kind: bytes, text: str) -> bytes:
        known = self._known.get((kind, text))
        if known is None:
            found = self._hash.copy()
            found.update(kind + text.encode("utf-8", "surrogatepass"))
            if len(self._known) >= KNOWN_MAX:
                self._known.clear()
            known = self._known[kind, text] = found.digest()
        return known

    def of_range(self, key: str, start: int, end: int) -> CopyName:
        """Bytes `start` to `end` of an object."""
        return CopyName(self._id(b"r", key), start, end, True)

    def of_ranges(self, wanted: Iterable[WantedRange]) -> list[CopyName]:
        """`of_range` for each."""
        names, last, object_id = [], None, b""
        for one in wanted:
            if one.key is not last:
                last = one.key
                object_id = self._id(b"r", last)
            names.append(CopyName(object_id, one.start, one.end, True))
        return names

    def of_suffix(self, key: str, num_bytes: int) -> CopyName:
        """The answer for the last bytes of an object."""
        return CopyName(self._id(b"s", key), 0, num_bytes, False)

    def of_object(self, key: str) -> CopyName:
        """A whole object."""
        return CopyName(self._id(b"o", key), 0, 0, False)

    def of_versioned(self, key: str) -> CopyName:
        """A whole object whose name may be used again, such as a manifest. Those of one folder have one `object_id`."""
        folder, _, name = key.rpartition("/")
        number = int.from_bytes(blake2b(name.encode("utf-8", "surrogatepass"), digest_size=7).digest(), "big")
        return CopyName(self._id(b"v", folder), number, number, False)


def is_fixed(key: str) -> bool:
    """Whether an object of this name never changes."""
    return _FIXED.search(key) is not None


def table_folder(key: str) -> str | None:
    """The folder of the table (or branch) that a fixed object is part of, without `/`; None for other names."""
    found = _FIXED.search(key)
    return None if found is None else key[: found.start()]
