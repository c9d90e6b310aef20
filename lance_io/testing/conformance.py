"""The requirements on every store, as tests to inherit.

    class TestMyStore(StoreConformance):
        @pytest.fixture
        async def place(self):
            yield Place(store, "some/prefix", write=..., read=...)

`write` and `read` are a back door: they reach the bytes without the store under test, so that `put` and `get` cannot
hide each other's faults. Features that a store does not offer by its capabilities are not tested. Needs pytest, and
pytest-asyncio in auto mode.
"""

from __future__ import annotations

import asyncio
import pickle
from dataclasses import dataclass
from typing import TYPE_CHECKING

import numpy as np
import pytest

from lance_io.errors import AlreadyExists, FormatError, NotFound, StoreError, UsageError
from lance_io.spans import Ranges
from lance_io.store.api import ObjectStore, Selection
from lance_io.store.failures import InvalidRange, OutcomeUnknown, PreconditionFailed, ShortRead
from lance_io.store.offers import PlanReads, SyncReads, SyncWrites
from lance_io.store.upload import PartUpload

if TYPE_CHECKING:
    from collections.abc import Awaitable, Callable

    from lance_io.store.api import ObjectMeta

CONTENT = bytes(range(256)) * 4  # 1,024 bytes, each derived from its offset
PART_BYTES = 5 << 20  # smallest part that S3 accepts, except the last one
_CREATES_MAX = 20
ODD_NAMES = (
    "with space",
    "plus+percent%25",
    "üñí-漢字",
    "a=b&c?d#e",
    "semi;colon:at@",
    "(brackets)~tilde_",
    "quote'!$,*",
)


@dataclass(frozen=True)
class Place:
    """A store, an empty folder in it, and a back door to that folder.

    Attributes:
        store: The store under test.
        prefix: Key prefix of the folder, without a trailing slash.
        write: Writes an object with this key and content, through the back door.
        read: Returns an object's bytes by key, or None if there is none, through the back door.
    """

    store: ObjectStore
    prefix: str
    write: Callable[[str, bytes], None]
    read: Callable[[str], bytes | None]

    def key(self, name: str) -> str:
        """The key of an object in the folder.

        Args:
            name: Its name, relative to the folder.
        """
        return f"{self.prefix}/{name}"

    def put(self, name: str, data: bytes = CONTENT) -> str:
        """Write an object through the back door.

        Args:
            name: Its name, relative to the folder.
            data: Its content.

        Returns:
            Its key.
        """
        key = self.key(name)
        self.write(key, data)
        return key


async def _until_known(create: Callable[[], Awaitable[None]]) -> None:
    """Repeat a create while its outcome is unknown: a refusal may be lost with a connection that a server closes."""
    for _ in range(_CREATES_MAX):
        try:
            return await create()
        except OutcomeUnknown as error:
            unknown = error
    raise unknown


async def _names(folder: Place, **how: object) -> list[str]:
    """A listing of the folder, keys without the prefix."""
    prefix = f"{folder.prefix}/{how.pop('below', '')}"
    asked = Selection(**how)  # type: ignore[arg-type]
    return [meta.key[len(folder.prefix) + 1 :] async for meta in folder.store.list(prefix, asked)]


class StoreConformance:
    """The suite; subclasses provide the fixture `place`, which returns a `Place`.

    Features that a store does not offer become properties of the test that needs them: `not promised`, or `promised in
    part` if the rest of the test runs.
    """

    @pytest.fixture
    def folder(self, place: Place) -> Place:  # plain: subclasses provide a fixture of this name
        """The folder that the tests use.

        Args:
            place: The fixture of the subclass.
        """
        return place

    @pytest.fixture(autouse=True)
    def _keep_request(self, request: pytest.FixtureRequest) -> None:
        self._noted = request.node.user_properties

    def _lacks(self, what: str, how: str = "not promised") -> None:
        self._noted.append((how, what))

    # -- reading ----------------------------------------------------------------------------------------------------

    @pytest.mark.parametrize(("start", "end"), [(0, 1), (0, 1024), (1000, 1024), (17, 900), (1023, 1024)])
    async def test_a_range_is_exactly_its_bytes(self, folder: Place, start: int, end: int) -> None:
        key = folder.put("object")
        assert bytes(await folder.store.get_range(key, start, end)) == CONTENT[start:end]

    async def test_what_is_read_cannot_be_written_to(self, folder: Place) -> None:
        key = folder.put("object")
        assert memoryview(await folder.store.get_range(key, 0, 10)).readonly

    async def test_an_empty_range_is_empty(self, folder: Place) -> None:
        assert bytes(await folder.store.get_range(folder.put("object"), 10, 10)) == b""

    async def test_a_range_over_the_end_is_short(self, folder: Place) -> None:
        with pytest.raises(ShortRead, match="1024 bytes") as caught:
            await folder.store.get_range(folder.put("object"), 1000, 1025)
        assert isinstance(caught.value, StoreError) and isinstance(caught.value, FormatError)

    @pytest.mark.parametrize(("start", "end"), [(1024, 1025), (5000, 6000), (10, 5), (-1, 5)])
    async def test_a_range_behind_the_end_is_invalid(self, folder: Place, start: int, end: int) -> None:
        with pytest.raises(InvalidRange):
            await folder.store.get_range(folder.put("object"), start, end)

    async def test_a_whole_object(self, folder: Place) -> None:
        key = folder.put("object")
        data, meta = await folder.store.get(key)
        assert (bytes(data), meta.key, meta.size_bytes) == (CONTENT, key, 1024)

    async def test_an_empty_object(self, folder: Place) -> None:
        key = folder.put("empty", b"")
        data, meta = await folder.store.get(key)
        tail, size_bytes, _ = await folder.store.get_suffix(key, 10)
        assert (bytes(data), meta.size_bytes, bytes(tail), size_bytes) == (b"", 0, b"", 0)
        with pytest.raises(InvalidRange):
            await folder.store.get_range(key, 0, 1)

    @pytest.mark.parametrize("num_bytes", [1, 40, 1024, 5000])
    async def test_a_suffix_comes_with_size_and_etag(self, folder: Place, num_bytes: int) -> None:
        key = folder.put("object")
        tail, size_bytes, etag = await folder.store.get_suffix(key, num_bytes)
        assert (bytes(tail), size_bytes) == (CONTENT[-num_bytes:], 1024)
        if not folder.store.capabilities.suffix_range:
            self._lacks("suffix_range", "promised in part")
            return
        assert etag == (await folder.store.head(key)).etag

    async def test_head_agrees_with_get(self, folder: Place) -> None:
        key = folder.put("object")
        head, (_, meta) = await folder.store.head(key), await folder.store.get(key)
        assert (head.key, head.size_bytes) == (key, 1024)
        assert meta.etag in (None, head.etag)  # None if it would take another request
        assert head.last_modified is None or head.last_modified.tzinfo is not None

    async def test_what_is_not_there_is_not_found(self, folder: Place) -> None:
        key = folder.key("missing")
        for read in (folder.store.get_range(key, 0, 1), folder.store.get_suffix(key, 1), folder.store.get(key)):
            with pytest.raises(NotFound) as caught:
                await read
            assert caught.value.path == key
        with pytest.raises(NotFound):
            await folder.store.head(key)

    async def test_errors_survive_pickling(self, folder: Place) -> None:
        with pytest.raises(NotFound) as caught:
            await folder.store.get(folder.key("missing"))
        copy = pickle.loads(pickle.dumps(caught.value))
        assert (type(copy), str(copy), copy.path) == (type(caught.value), str(caught.value), caught.value.path)

    async def test_a_rewritten_object_is_read_anew(self, folder: Place) -> None:
        key = folder.put("object")
        assert bytes(await folder.store.get_range(key, 0, 4)) == CONTENT[:4]
        before = (await folder.store.head(key)).etag
        folder.put("object", b"other and shorter")
        assert bytes(await folder.store.get_range(key, 0, 5)) == b"other"
        assert (await folder.store.head(key)).etag != before

    @pytest.mark.parametrize("name", ODD_NAMES)
    async def test_odd_names(self, folder: Place, name: str) -> None:
        key = folder.key(f"{name}/{name}.bin")
        await folder.store.put(key, CONTENT)
        assert folder.read(key) == CONTENT
        assert bytes(await folder.store.get_range(key, 3, 9)) == CONTENT[3:9]
        assert await _names(folder) == [f"{name}/{name}.bin"]

    async def test_many_reads_at_once(self, folder: Place) -> None:
        key = folder.put("object")
        reads = [folder.store.get_range(key, start, start + 100) for start in range(0, 900, 9)]
        pieces = await asyncio.gather(*reads)
        assert [bytes(piece) for piece in pieces] == [CONTENT[start : start + 100] for start in range(0, 900, 9)]

    # -- whole plans ------------------------------------------------------------------------------------------------

    PLAN = Ranges.of((500, 600), (0, 10), (20, 20), (5, 15), (0, 10), (1000, 1024), (14, 18))

    @pytest.mark.parametrize("gap_bytes", [0, 4, 10_000])
    async def test_a_plan_gives_its_ranges_in_order(self, folder: Place, gap_bytes: int) -> None:
        if not isinstance(folder.store, PlanReads):
            self._lacks("PlanReads")
            return
        fetched = await folder.store.read_ranges(folder.put("object"), self.PLAN, gap_bytes, 1 << 20)
        self._check_plan(fetched.piece)

    @pytest.mark.parametrize("gap_bytes", [0, 4, 10_000])
    @pytest.mark.parametrize("scratch_bytes", [None, 1, 1 << 16])
    async def test_a_plan_without_waiting(self, folder: Place, gap_bytes: int, scratch_bytes: int | None) -> None:
        if not isinstance(folder.store, SyncReads):
            self._lacks("SyncReads")
            return
        scratch = None if scratch_bytes is None else np.zeros(scratch_bytes, np.uint8)
        self._check_plan(folder.store.read_sync([(folder.put("object"), self.PLAN)], gap_bytes, scratch)[0].piece)

    def _check_plan(self, piece: Callable[[int, int], memoryview]) -> None:
        for index, (start, end) in enumerate(zip(self.PLAN.starts.tolist(), self.PLAN.ends.tolist(), strict=True)):
            assert bytes(piece(index, end - start)) == CONTENT[start:end]

    async def test_a_plan_fails_as_its_ranges_do(self, folder: Place) -> None:
        if not isinstance(folder.store, SyncReads):
            self._lacks("SyncReads")
            return
        key, store = folder.put("object"), folder.store
        with pytest.raises(ShortRead):
            store.read_sync([(key, Ranges.of((0, 10), (1000, 1025)))], 0)
        for wrong in ((2000, 2001), (10, 5), (-5, 5)):
            with pytest.raises(InvalidRange):
                store.read_sync([(key, Ranges.of((0, 10), wrong))], 0)
        with pytest.raises(NotFound):
            store.read_sync([(folder.key("missing"), Ranges.of((0, 10)))], 0)

    async def test_the_other_reads_without_waiting(self, folder: Place) -> None:
        if not isinstance(folder.store, SyncReads):
            self._lacks("SyncReads")
            return
        key, store = folder.put("folder/object"), folder.store
        assert store.get_sync(key) == CONTENT
        for keys in ([key], [key, key]):
            ends = [(bytes(tail), size_bytes) for tail, size_bytes in store.suffix_sync(keys, 24)]
            assert ends == [(CONTENT[-24:], 1024)] * len(keys)
        assert store.head_sync(key) == await folder.store.head(key)
        assert [meta.key for meta in store.list_sync(f"{folder.prefix}/")] == [key]
        whole = Ranges.of((0, len(CONTENT)), purpose="metadata")
        assert [bytes(fetched.piece(0, 1024)) for fetched in store.read_sync([(key, whole)] * 2, 0)] == [CONTENT] * 2
        for read in (
            store.get_sync,
            store.head_sync,
            lambda name: store.suffix_sync([name], 1),
            lambda name: store.suffix_sync([key, name], 1),
            lambda name: store.read_sync([(key, whole), (name, whole)], 0),
        ):
            with pytest.raises(NotFound):
                read(folder.key("missing"))

    # -- listing ----------------------------------------------------------------------------------------------------

    NAMES = ("a.1", "a/1", "a/2/x", "a/2/y", "a0", "b", "ab/c")

    async def test_a_listing_is_everything_below_a_prefix_in_key_order(self, folder: Place) -> None:
        for name in self.NAMES:
            folder.put(name, b"12345")
        names = await _names(folder)
        assert sorted(names) == sorted(self.NAMES)
        if folder.store.capabilities.ordered_list:
            assert names == sorted(self.NAMES)
            assert await _names(folder, start_after=folder.key("a/1")) == sorted(self.NAMES)[2:]
            assert await _names(folder, limit=3) == sorted(self.NAMES)[:3]
            behind = sorted(self.NAMES)[5:6] if folder.store.capabilities.reads_whole_folders else []
            assert await _names(folder, limit=3, also_behind=folder.key(sorted(self.NAMES)[4])) == [
                *sorted(self.NAMES)[:3],
                *behind,
            ]
        else:
            self._lacks("ordered_list", "promised in part")

    async def test_a_listing_tells_sizes(self, folder: Place) -> None:
        folder.put("object", b"12345")
        metas = [meta async for meta in folder.store.list(f"{folder.prefix}/")]
        assert [(meta.name, meta.size_bytes, meta.is_folder) for meta in metas] == [("object", 5, False)]

    async def test_a_listing_of_keys_has_the_same_keys(self, folder: Place) -> None:
        for name in self.NAMES:
            folder.put(name, b"12345")
        for delimiter in (None, "/"):
            asked = Selection(delimiter=delimiter, keys_only=True)
            metas = [meta async for meta in folder.store.list(f"{folder.prefix}/", asked)]
            assert [meta.key[len(folder.prefix) + 1 :] for meta in metas] == await _names(folder, delimiter=delimiter)
            if folder.store.capabilities.described_list:
                assert {meta.size_bytes for meta in metas if not meta.is_folder} == {5}
            else:
                self._lacks("described_list", "promised in part")

    async def test_a_delimiter_stops_at_folders(self, folder: Place) -> None:
        for name in self.NAMES:
            folder.put(name)
        assert sorted(await _names(folder, delimiter="/")) == ["a.1", "a/", "a0", "ab/", "b"]
        assert sorted(await _names(folder, delimiter="/", below="a/")) == ["a/1", "a/2/"]
        metas = [meta async for meta in folder.store.list(f"{folder.prefix}/", Selection(delimiter="/"))]
        folders = {(meta.name, meta.size_bytes, meta.etag, meta.last_modified) for meta in metas if meta.is_folder}
        assert folders == {("a", 0, None, None), ("ab", 0, None, None)}

    async def test_a_prefix_is_text(self, folder: Place) -> None:
        for name in self.NAMES:
            folder.put(name)
        assert sorted(await _names(folder, below="a")) == ["a.1", "a/1", "a/2/x", "a/2/y", "a0", "ab/c"]
        assert await _names(folder, below="a/2/") == ["a/2/x", "a/2/y"]

    async def test_a_folder_that_is_not_there_is_empty(self, folder: Place) -> None:
        assert await _names(folder, below="nothing/here/") == []

    async def test_a_listing_sees_what_was_just_written(self, folder: Place) -> None:
        assert await _names(folder) == []
        await folder.store.put(folder.key("new"), b"")
        assert await _names(folder) == ["new"]
        folder.put("behind")
        assert await _names(folder) == ["behind", "new"]
        await folder.store.delete([folder.key("new")])
        assert await _names(folder) == ["behind"]

    # -- writing ----------------------------------------------------------------------------------------------------

    @pytest.mark.parametrize("kind", [bytes, bytearray, memoryview])
    async def test_put_writes_what_the_back_door_reads(self, folder: Place, kind: Callable[[bytes], object]) -> None:
        key = folder.key("new/folder/object")
        meta = await folder.store.put(key, kind(CONTENT))
        assert (folder.read(key), meta.key, meta.size_bytes) == (CONTENT, key, 1024)
        assert meta.etag in (None, (await folder.store.head(key)).etag)

    async def test_put_overwrites(self, folder: Place) -> None:
        key = folder.put("object")
        await folder.store.put(key, b"")
        assert folder.read(key) == b""

    async def test_create_does_not_overwrite(self, folder: Place) -> None:
        if not folder.store.capabilities.conditional_create:
            self._lacks("conditional_create")
            return
        key = folder.key("object")
        await folder.store.put(key, b"first", if_absent=True)
        with pytest.raises(AlreadyExists):
            await folder.store.put(key, b"second", if_absent=True)
        assert folder.read(key) == b"first"

    async def test_one_of_many_creators_wins(self, folder: Place) -> None:
        if not folder.store.capabilities.conditional_create:
            self._lacks("conditional_create")
            return
        key = folder.key("object")
        puts = [folder.store.put(key, b"%d" % n, if_absent=True) for n in range(16)]
        outcomes = await asyncio.gather(*puts, return_exceptions=True)
        winners = [n for n, outcome in enumerate(outcomes) if not isinstance(outcome, BaseException)]
        assert len(winners) == 1
        assert folder.read(key) == b"%d" % winners[0]

    async def test_compare_and_swap(self, folder: Place) -> None:
        if not folder.store.capabilities.compare_and_swap:
            self._lacks("compare_and_swap")
            return
        key = folder.key("object")
        first: ObjectMeta = await folder.store.put(key, b"first")
        await folder.store.put(key, b"second", if_match=first.etag)
        with pytest.raises(PreconditionFailed):
            await folder.store.put(key, b"third", if_match=first.etag)
        assert folder.read(key) == b"second"

    @pytest.mark.parametrize("name", ["copy", *ODD_NAMES])
    async def test_copy(self, folder: Place, name: str) -> None:
        source, key = folder.put(f"from/{name}"), folder.key(f"to/{name}")
        for content in (CONTENT, b"other"):
            folder.write(source, content)
            before = folder.store.stats.snapshot()
            await folder.store.copy(source, key)
            assert (folder.read(key), folder.read(source)) == (content, content)
            assert (folder.store.stats.snapshot() - before)["put"].requests == 1
        with pytest.raises(NotFound):
            await folder.store.copy(folder.key("missing"), key)

    async def test_an_upload_in_parts(self, folder: Place) -> None:
        key, first = folder.key("large"), b"1" * PART_BYTES
        writer = await folder.store.put_multipart(key)
        await asyncio.gather(writer.write_part(1, PART_BYTES, b"2"), writer.write_part(0, 0, first))
        assert folder.read(key) is None
        meta = await writer.complete()
        assert (folder.read(key), meta.size_bytes) == (first + b"2", PART_BYTES + 1)

    async def test_an_aborted_upload_leaves_nothing(self, folder: Place) -> None:
        writer = await folder.store.put_multipart(folder.key("large"))
        await writer.write_part(0, 0, b"1")
        await writer.abort()
        await writer.abort()
        assert folder.read(folder.key("large")) is None
        assert await _names(folder) == []

    async def test_an_upload_can_be_a_create(self, folder: Place) -> None:
        if not folder.store.capabilities.conditional_create:
            self._lacks("conditional_create")
            return
        key = folder.put("object", b"first")
        writer = await folder.store.put_multipart(key, if_absent=True)
        await writer.write_part(0, 0, b"second")
        with pytest.raises(AlreadyExists):
            await writer.complete()
        await writer.abort()
        assert folder.read(key) == b"first"

    # -- uploads of any size ----------------------------------------------------------------------------------------

    async def test_a_small_upload_is_one_put(self, folder: Place) -> None:
        key = folder.key("data/file")
        before = folder.store.stats.snapshot()
        async with await folder.store.open_upload(key, content_length_hint=1024) as upload:
            await upload.write([CONTENT[:100], bytearray(CONTENT[100:101]), memoryview(CONTENT)[101:]])
            await upload.write([b""])
            assert (upload.size_bytes, folder.read(key)) == (1024, None)
            meta = await upload.close()
            assert await upload.close() == meta
        done = folder.store.stats.snapshot() - before
        assert (done["put"].requests, done.requests, done.bytes_written) == (1, 1, 1024)
        assert (folder.read(key), meta.key, meta.size_bytes) == (CONTENT, key, 1024)

    async def test_an_empty_upload_is_an_empty_object(self, folder: Place) -> None:
        async with await folder.store.open_upload(folder.key("empty")) as upload:
            await upload.close()
        assert folder.read(folder.key("empty")) == b""

    async def test_a_large_upload_goes_up_in_parts(self, folder: Place) -> None:
        key, pieces = folder.key("large"), [bytes([n]) * 700_001 for n in range(17)]
        upload = PartUpload(folder.store, key, part_bytes=PART_BYTES, parts_in_flight=2)
        buffer = bytearray(700_001)
        for piece in pieces:
            buffer[:] = piece  # a buffer may be reused
            await upload.write([buffer])
            assert folder.read(key) is None
        meta = await upload.close()
        assert (folder.read(key), meta.size_bytes) == (b"".join(pieces), 17 * 700_001)
        assert meta.etag is None or meta.etag == (await folder.store.head(key)).etag

    async def test_an_upload_that_is_left_open_is_removed(self, folder: Place) -> None:
        with pytest.raises(ZeroDivisionError):
            async with PartUpload(folder.store, folder.key("a"), part_bytes=PART_BYTES) as upload:
                await upload.write([bytes(2 * PART_BYTES + 1)])
                raise ZeroDivisionError
        await upload.abort()
        with pytest.raises(UsageError):
            await upload.write([b"1"])
        with pytest.raises(UsageError):
            await upload.close()
        assert await _names(folder) == []

    @pytest.mark.parametrize("num_bytes", [6, PART_BYTES + 6])
    async def test_a_created_upload_does_not_overwrite(self, folder: Place, num_bytes: int) -> None:
        if not folder.store.capabilities.conditional_create:
            self._lacks("conditional_create")
            return
        key = folder.put("object", b"first")

        async def create() -> None:
            upload = PartUpload(folder.store, key, if_absent=True, part_bytes=PART_BYTES)
            await upload.write([bytes(num_bytes)])
            await upload.close()

        with pytest.raises(AlreadyExists):
            await _until_known(create)
        assert folder.read(key) == b"first"
        assert await _names(folder) == ["object"]

    async def test_writing_without_waiting(self, folder: Place) -> None:
        store = folder.store
        if not isinstance(store, SyncWrites):
            self._lacks("SyncWrites")
            return
        key = folder.key("folder/object")
        meta = store.put_sync(key, CONTENT, if_absent=True)
        assert (folder.read(key), meta) == (CONTENT, await store.head(key))
        with pytest.raises(AlreadyExists):
            store.put_sync(key, b"second", if_absent=True)
        store.put_sync(key, b"third", durability="none")
        assert folder.read(key) == b"third"
        store.delete_sync([key, folder.key("missing")])
        assert folder.read(key) is None

    async def test_an_upload_without_waiting(self, folder: Place) -> None:
        store, key = folder.store, folder.key("data/file")
        if not isinstance(store, SyncWrites):
            self._lacks("SyncWrites")
            return
        many = [CONTENT[n : n + 1] for n in range(1024)] * 3
        with store.open_upload_sync(key) as upload:
            upload.write(iter(many))
            upload.write([b"", memoryview(CONTENT)])
            assert (upload.size_bytes, folder.read(key)) == (4096, None)
            meta = upload.close()
            assert upload.close() == meta == await store.head(key)
        assert folder.read(key) == CONTENT * 4
        with store.open_upload_sync(key, if_absent=True, durability="none") as upload, pytest.raises(AlreadyExists):
            upload.close()
        with store.open_upload_sync(folder.key("left"), durability="none") as upload:
            upload.write([b"1"])
        with pytest.raises(UsageError):
            upload.write([b"2"])
        assert await _names(folder) == ["data/file"]

    async def test_delete(self, folder: Place) -> None:
        keys = [folder.put(name) for name in ("a", "b/c", "d")]
        await folder.store.delete([keys[0], keys[1], folder.key("missing")])
        assert [folder.read(key) for key in keys] == [None, None, CONTENT]
        await folder.store.delete([folder.key("missing")])
        await folder.store.delete([])

    # -- housekeeping -----------------------------------------------------------------------------------------------

    async def test_requests_are_counted(self, folder: Place) -> None:
        key = folder.put("object")
        before = folder.store.stats.snapshot()
        await folder.store.get_range(key, 10, 30)
        await folder.store.get_suffix(key, 24)
        await folder.store.put(folder.key("new"), b"12345")
        await _names(folder)
        done = folder.store.stats.snapshot() - before
        gets = done["get"].requests  # without suffix ranges another GET or HEAD finds the size
        assert (done["put"].requests, done["list"].requests, done.requests - 4) == (
            *(1, 1),
            not folder.store.capabilities.suffix_range,
        )
        assert gets + done["head"].requests == done.requests - 2
        assert (done.bytes_read, done.bytes_written) == (20 + 24 * (gets - 1), 5)

    async def test_failures_are_counted(self, folder: Place) -> None:
        before = folder.store.stats.snapshot()
        with pytest.raises(NotFound):
            await folder.store.get_range(folder.key("missing"), 0, 1)
        done = folder.store.stats.snapshot() - before
        assert (done["get"].requests, done["get"].errors, done["get"].retries) == (1, 1, 0)

    async def test_a_closed_store_opens_again(self, folder: Place) -> None:
        key = folder.put("object")
        await folder.store.get_range(key, 0, 1)
        await folder.store.aclose()
        await folder.store.aclose()
        assert bytes(await folder.store.get_range(key, 0, 2)) == CONTENT[:2]
