"""Which objects of a table are immutable, and the keys of their cached copies.

A name drawn at random is never reused for other content. So the name is enough to identify a copy, even if the table
is deleted and written again at the same location:

    data/<name>                    24 binary and 26 hexadecimal digits, or a UUID; sidecars in a folder of such a name
    _deletions/<..>-<..>-<id>.*    64 random bits, after fragment and version
    _transactions/<version>-<uuid>.txn
    _indices/<uuid>/...

Files with other names in these folders are not cached. A new table at the same location reuses the names of manifests:
a copy of a manifest is valid only with the etag from a listing, or if the caller has pinned the version.
"""

from __future__ import annotations

import re
from hashlib import blake2b
from typing import TYPE_CHECKING, Final, NamedTuple

if TYPE_CHECKING:
    from collections.abc import Iterable

    from lance_io.store.offers import WantedRange

ID_BYTES: Final = 16
KNOWN_MAX: Final = 4096  # cached object ids

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
    """Key of a copy in the cache.

    object_id   16 bytes: hash of store, credentials, object and kind of the copy
    start, end  bytes of the object; for other kinds of copies, numbers that depend on the kind
    is_range    whether a larger copy around it also serves
    """

    object_id: bytes
    start: int
    end: int
    is_range: bool


class NameSpace:
    """Keys of the copies of one store, for one set of credentials.

    identity  of the store
    access    identifies the credentials; only its hash is stored
    """

    def __init__(self, identity: str, access: str) -> None:
        self._hash = blake2b(digest_size=ID_BYTES)
        for part in (identity, access):
            self._hash.update(b"%d:%b" % (len(part), part.encode("utf-8", "surrogatepass")))

        self._known: dict[tuple[bytes, str], bytes] = {}  # a take reads many ranges of few objects

    def _id(self, kind: bytes, text: str) -> bytes:
        known = self._known.get((kind, text))
        if known is None:
            digest = self._hash.copy()
            digest.update(kind + text.encode("utf-8", "surrogatepass"))
            if len(self._known) >= KNOWN_MAX:
                self._known.clear()
            known = self._known[kind, text] = digest.digest()
        return known

    def of_range(self, key: str, start: int, end: int) -> CopyName:
        """Bytes `start` to `end` of an object."""
        return CopyName(self._id(b"r", key), start, end, True)

    def of_ranges(self, wanted: Iterable[WantedRange]) -> list[CopyName]:
        """`of_range` for each."""
        names, last, object_id = [], None, b""
        for request in wanted:
            if request.key is not last:
                last = request.key
                object_id = self._id(b"r", last)
            names.append(CopyName(object_id, request.start, request.end, True))
        return names

    def of_suffix(self, key: str, num_bytes: int) -> CopyName:
        """The answer to a suffix read."""
        return CopyName(self._id(b"s", key), 0, num_bytes, False)

    def of_object(self, key: str) -> CopyName:
        """A whole object."""
        return CopyName(self._id(b"o", key), 0, 0, False)

    def of_versioned(self, key: str) -> CopyName:
        """A whole object whose name may be reused, such as a manifest. Those of a folder share one `object_id`."""
        folder, _, name = key.rpartition("/")
        number = int.from_bytes(blake2b(name.encode("utf-8", "surrogatepass"), digest_size=7).digest(), "big")
        return CopyName(self._id(b"v", folder), number, number, False)


def is_fixed(key: str) -> bool:
    """Whether the object with this name is immutable."""
    return _FIXED.search(key) is not None


def table_folder(key: str) -> str | None:
    """The folder of the table (or branch) of an immutable object, without a trailing `/`; None for other names."""
    match = _FIXED.search(key)
    return None if match is None else key[: match.start()]
