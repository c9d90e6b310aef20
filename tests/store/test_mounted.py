"""Several stores as one: each read goes where its key says."""

from __future__ import annotations

from typing import TYPE_CHECKING

import pytest

from lance_io.store.local.disk import LocalStore
from lance_io.store.memory import MemoryStore
from lance_io.store.mounted import MountedStore, mounted_key

if TYPE_CHECKING:
    from pathlib import Path


@pytest.mark.parametrize("is_home", [True, False])
async def test_each_read_goes_where_its_key_says(tmp_path: Path, is_home: bool) -> None:
    contents = [b"0123456789", b"abcdefghij"]
    (tmp_path / "file").write_bytes(contents[0])
    memory, local, key = MemoryStore(), LocalStore(), str(tmp_path / "file")
    memory.put_sync(key, contents[1])
    stores: tuple[LocalStore, MemoryStore] = local, memory
    home, other = stores if is_home else reversed(stores)
    store = MountedStore(home, [other])
    place: LocalStore | MemoryStore
    for place, content in zip(stores, contents, strict=True):
        name = key if place is home else mounted_key(place, key)
        before = place.stats.snapshot()
        assert bytes(await store.get_range(name, 2, 5)) == content[2:5]
        tail, size_bytes, _ = await store.get_suffix(name, 4)
        assert (bytes(tail), size_bytes) == (content[-4:], 10)
        data, meta = await store.get(name)
        assert (bytes(data), meta.size_bytes) == (content, 10)
        assert (place.stats.snapshot() - before).requests == 3
    assert (home.identity in store.identity, other.identity in store.identity) == (True, True)
