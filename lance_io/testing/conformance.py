"""What every store must do, as tests to inherit.

    class TestMyStore(StoreConformance):
        @pytest.fixture
        async def place(self):
            yield Place(store, "some/prefix", write=..., read=...)

`write` and `read` are a back door: they reach the bytes without the store under test, so that `put` and `get` cannot
cover for each other. What a store does not promise by its capabilities is not asked of it. Needs pytest, and
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

CONTENT = bytes(range(256)) * 4  # 1,024 bytes, each telling its place
PART_BYTES = 5 << 20  # the least that S3 takes for a part that is not the last
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
    """A store, an empty folder in it, and the back door to that folder.

    prefix  key prefix without a slash at its end
    write   puts an object there, by key
    read    gives an object's bytes, or None if there is none
    """

    store: ObjectStore
    prefix: str
    write: Callable[[str, bytes], None]
    read: Callable[[str], bytes | None]

    def key(self, name: str) -> str:
        """The key of an object in the folder."""
        return f"{self.prefix}/{name}"

    def put(self, name: str, data: bytes = CONTENT) -> str:
        """Put an object in by the back door; gives its key."""
        key = self.key(name)
        self.write(key, data)
        return key


async def _until_known(create: Callable[[], Awaitable[None]]) -> None:
    """Again as long as nobody can tell: a refusal may be lost with the connection that a server closes."""
    for _ in range(_CREATES_MAX):
        try:
            return await create()
        except OutcomeUnknown as error:
            unknown = error
    raise unknown


async def _names(place: Place, **how: object) -> list[str]:
    """A listing of the folder, keys without the prefix."""
    prefix = f"{place.prefix}/{how.pop('below', '')}"
    asked = Selection(**how)  # type: ignore[arg-type]
    return [meta.key[len(place.prefix) + 1 :] async for meta in place.store.list(prefix, asked)]


class StoreConformance:
    """The suite; subclasses give the fixture `place`.

    What a store does not promise is noted as a property of the test that would ask for it: `not promised`, or `promised
    in part` where some of the test is asked.
    """

    @pytest.fixture(autouse=True)
    def _keep_request(self, request: pytest.FixtureRequest) -> None:
        self._noted = request.node.user_properties

    def _lacks(self, what: str, how: str = "not promised") -> None:
        self._noted.append((how, what))

    # -- reading ----------------------------------------------------------------------------------------------------

    @pytest.mark.parametrize(("start", "end"), [(0, 1), (0, 1024), (1000, 1024), (17, 900), (1023, 1024)])
    async def test_a_range_is_exactly_its_bytes(self, place: Place, start: int, end: int) -> None:
        key = place.put("object")
        assert bytes(await place.store.get_range(key, start, end)) == CONTENT[start:end]

    async def test_what_is_read_cannot_be_written_to(self, place: Place) -> None:
        key = place.put("object")
        assert memoryview(await place.store.get_range(key, 0, 10)).readonly

    async def test_an_empty_range_is_empty(self, place: Place) -> None:
        assert bytes(await place.store.get_range(place.put("object"), 10, 10)) == b""

    async def test_a_range_over_the_end_is_short(self, place: Place) -> None:
        with pytest.raises(ShortRead, match="1024 bytes") as caught:
            await place.store.get_range(place.put("object"), 1000, 1025)
        assert isinstance(caught.value, StoreError) and isinstance(caught.value, FormatError)

    @pytest.mark.parametrize(("start", "end"), [(1024, 1025), (5000, 6000), (10, 5), (-1, 5)])
    async def test_a_range_behind_the_end_is_invalid(self, place: Place, start: int, end: int) -> None:
        with pytest.raises(InvalidRange):
            await place.store.get_range(place.put("object"), start, end)

    async def test_a_whole_object(self, place: Place) -> None:
        key = place.put("object")
        data, meta = await place.store.get(key)
        assert (bytes(data), meta.key, meta.size_bytes) == (CONTENT, key, 1024)

    async def test_an_empty_object(self, place: Place) -> None:
        key = place.put("empty", b"")
        data, meta = await place.store.get(key)
        tail, size_bytes, _ = await place.store.get_suffix(key, 10)
        assert (bytes(data), meta.size_bytes, bytes(tail), size_bytes) == (b"", 0, b"", 0)
        with pytest.raises(InvalidRange):
            await place.store.get_range(key, 0, 1)

    @pytest.mark.parametrize("num_bytes", [1, 40, 1024, 5000])
    async def test_a_suffix_comes_with_size_and_etag(self, place: Place, num_bytes: int) -> None:
        key = place.put("object")
        tail, size_bytes, etag = await place.store.get_suffix(key, num_bytes)
        assert (bytes(tail), size_bytes) == (CONTENT[-num_bytes:], 1024)
        if not place.store.capabilities.suffix_range:
            self._lacks("suffix_range", "promised in part")
            return
        assert etag == (await place.store.head(key)).etag

    async def test_head_agrees_with_get(self, place: Place) -> None:
        key = place.put("object")
        head, (_, meta) = await place.store.head(key), await place.store.get(key)
        assert (head.key, head.size_bytes) == (key, 1024)
        assert meta.etag in (None, head.etag)  # where it would be another request it is not told
        assert head.last_modified is None or head.last_modified.tzinfo is not None

    async def test_what_is_not_there_is_not_found(self, place: Place) -> None:
        key = place.key("missing")
        for read in (place.store.get_range(key, 0, 1), place.store.get_suffix(key, 1), place.store.get(key)):
            with pytest.raises(NotFound) as caught:
                await read
            assert caught.value.path == key
        with pytest.raises(NotFound):
            await place.store.head(key)

    async def test_errors_survive_pickling(self, place: Place) -> None:
        with pytest.raises(NotFound) as caught:
            await place.store.get(place.key("missing"))
        copy = pickle.loads(pickle.dumps(caught.value))
        assert (type(copy), str(copy), copy.path) == (type(caught.value), str(caught.value), caught.value.path)

    async def test_a_rewritten_object_is_read_anew(self, place: Place) -> None:
        key = place.put("object")
        assert bytes(await place.store.get_range(key, 0, 4)) == CONTENT[:4]
        before = (await place.store.head(key)).etag
        place.put("object", b"other and shorter")
        assert bytes(await place.store.get_range(key, 0, 5)) == b"other"
        assert (await place.store.head(key)).etag != before

    @pytest.mark.parametrize("name", ODD_NAMES)
    async def test_odd_names(self, place: Place, name: str) -> None:
        key = place.key(f"{name}/{name}.bin")
        await place.store.put(key, CONTENT)
        assert place.read(key) == CONTENT
        assert bytes(await place.store.get_range(key, 3, 9)) == CONTENT[3:9]
        assert await _names(place) == [f"{name}/{name}.bin"]

    async def test_many_reads_at_once(self, place: Place) -> None:
        key = place.put("object")
        reads = [place.store.get_range(key, start, start + 100) for start in range(0, 900, 9)]
        pieces = await asyncio.gather(*reads)
        assert [bytes(piece) for piece in pieces] == [CONTENT[start : start + 100] for start in range(0, 900, 9)]

    # -- whole plans ------------------------------------------------------------------------------------------------

    PLAN = Ranges.of((500, 600), (0, 10), (20, 20), (5, 15), (0, 10), (1000, 1024), (14, 18))

    @pytest.mark.parametrize("gap_bytes", [0, 4, 10_000])
    async def test_a_plan_gives_its_ranges_in_order(self, place: Place, gap_bytes: int) -> None:
        if not isinstance(place.store, PlanReads):
            self._lacks("PlanReads")
            return
        fetched = await place.store.read_ranges(place.put("object"), self.PLAN, gap_bytes, 1 << 20)
        self._check_plan(fetched.piece)

    @pytest.mark.parametrize("gap_bytes", [0, 4, 10_000])
    @pytest.mark.parametrize("scratch_bytes", [None, 1, 1 << 16])
    async def test_a_plan_without_waiting(self, place: Place, gap_bytes: int, scratch_bytes: int | None) -> None:
        if not isinstance(place.store, SyncReads):
            self._lacks("SyncReads")
            return
        scratch = None if scratch_bytes is None else np.zeros(scratch_bytes, np.uint8)
        self._check_plan(place.store.read_sync([(place.put("object"), self.PLAN)], gap_bytes, scratch)[0].piece)

    def _check_plan(self, piece: Callable[[int, int], memoryview]) -> None:
        for index, (start, end) in enumerate(zip(self.PLAN.starts.tolist(), self.PLAN.ends.tolist(), strict=True)):
            assert bytes(piece(index, end - start)) == CONTENT[start:end]

    async def test_a_plan_fails_as_its_ranges_do(self, place: Place) -> None:
        if not isinstance(place.store, SyncReads):
            self._lacks("SyncReads")
            return
        key, store = place.put("object"), place.store
        with pytest.raises(ShortRead):
            store.read_sync([(key, Ranges.of((0, 10), (1000, 1025)))], 0)
        for wrong in ((2000, 2001), (10, 5), (-5, 5)):
            with pytest.raises(InvalidRange):
                store.read_sync([(key, Ranges.of((0, 10), wrong))], 0)
        with pytest.raises(NotFound):
            store.read_sync([(place.key("missing"), Ranges.of((0, 10)))], 0)

    async def test_the_other_reads_without_waiting(self, place: Place) -> None:
        if not isinstance(place.store, SyncReads):
            self._lacks("SyncReads")
            return
        key, store = place.put("folder/object"), place.store
        assert store.get_sync(key) == CONTENT
        for keys in ([key], [key, key]):
            ends = [(bytes(tail), size_bytes) for tail, size_bytes in store.suffix_sync(keys, 24)]
            assert ends == [(CONTENT[-24:], 1024)] * len(keys)
        assert store.head_sync(key) == await place.store.head(key)
        assert [meta.key for meta in store.list_sync(f"{place.prefix}/")] == [key]
        whole = Ranges.of((0, len(CONTENT)), purpose="metadata")
        assert [bytes(one.piece(0, 1024)) for one in store.read_sync([(key, whole)] * 2, 0)] == [CONTENT] * 2
        for read in (
            store.get_sync,
            store.head_sync,
            lambda name: store.suffix_sync([name], 1),
            lambda name: store.suffix_sync([key, name], 1),
            lambda name: store.read_sync([(key, whole), (name, whole)], 0),
        ):
            with pytest.raises(NotFound):
                read(place.key("missing"))

    # -- listing ----------------------------------------------------------------------------------------------------

    NAMES = ("a.1", "a/1", "a/2/x", "a/2/y", "a0", "b", "ab/c")

    async def test_a_listing_is_everything_below_a_prefix_in_key_order(self, place: Place) -> None:
        for name in self.NAMES:
            place.put(name, b"12345")
        found = await _names(place)
        assert sorted(found) == sorted(self.NAMES)
        if place.store.capabilities.ordered_list:
            assert found == sorted(self.NAMES)
            assert await _names(place, start_after=place.key("a/1")) == sorted(self.NAMES)[2:]
            assert await _names(place, limit=3) == sorted(self.NAMES)[:3]
            behind = sorted(self.NAMES)[5:6] if place.store.capabilities.reads_whole_folders else []
            assert await _names(place, limit=3, also_behind=place.key(sorted(self.NAMES)[4])) == [
                *sorted(self.NAMES)[:3],
                *behind,
            ]
        else:
            self._lacks("ordered_list", "promised in part")

    async def test_a_listing_tells_sizes(self, place: Place) -> None:
        place.put("object", b"12345")
        metas = [meta async for meta in place.store.list(f"{place.prefix}/")]
        assert [(meta.name, meta.size_bytes, meta.is_folder) for meta in metas] == [("object", 5, False)]

    async def test_a_listing_of_keys_has_the_same_keys(self, place: Place) -> None:
        for name in self.NAMES:
            place.put(name, b"12345")
        for delimiter in (None, "/"):
            asked = Selection(delimiter=delimiter, keys_only=True)
            metas = [meta async for meta in place.store.list(f"{place.prefix}/", asked)]
            assert [meta.key[len(place.prefix) + 1 :] for meta in metas] == await _names(place, delimiter=delimiter)
            if place.store.capabilities.described_list:
                assert {meta.size_bytes for meta in metas if not meta.is_folder} == {5}
            else:
                self._lacks("described_list", "promised in part")

    async def test_a_delimiter_stops_at_folders(self, place: Place) -> None:
        for name in self.NAMES:
            place.put(name)
        assert sorted(await _names(place, delimiter="/")) == ["a.1", "a/", "a0", "ab/", "b"]
        assert sorted(await _names(place, delimiter="/", below="a/")) == ["a/1", "a/2/"]
        metas = [meta async for meta in place.store.list(f"{place.prefix}/", Selection(delimiter="/"))]
        folders = {(meta.name, meta.size_bytes, meta.etag, meta.last_modified) for meta in metas if meta.is_folder}
        assert folders == {("a", 0, None, None), ("ab", 0, None, None)}

    async def test_a_prefix_is_text(self, place: Place) -> None:
        for name in self.NAMES:
            place.put(name)
        assert sorted(await _names(place, below="a")) == ["a.1", "a/1", "a/2/x", "a/2/y", "a0", "ab/c"]
        assert await _names(place, below="a/2/") == ["a/2/x", "a/2/y"]

    async def test_a_folder_that_is_not_there_is_empty(self, place: Place) -> None:
        assert await _names(place, below="nothing/here/") == []

    async def test_a_listing_sees_what_was_just_written(self, place: Place) -> None:
        assert await _names(place) == []
        await place.store.put(place.key("new"), b"")
        assert await _names(place) == ["new"]
        place.put("behind")
        assert await _names(place) == ["behind", "new"]
        await place.store.delete([place.key("new")])
        assert await _names(place) == ["behind"]

    # -- writing ----------------------------------------------------------------------------------------------------

    @pytest.mark.parametrize("kind", [bytes, bytearray, memoryview])
    async def test_put_writes_what_the_back_door_reads(self, place: Place, kind: Callable[[bytes], object]) -> None:
        key = place.key("new/folder/object")
        meta = await place.store.put(key, kind(CONTENT))
        assert (place.read(key), meta.key, meta.size_bytes) == (CONTENT, key, 1024)
        assert meta.etag in (None, (await place.store.head(key)).etag)

    async def test_put_overwrites(self, place: Place) -> None:
        key = place.put("object")
        await place.store.put(key, b"")
        assert place.read(key) == b""

    async def test_create_does_not_overwrite(self, place: Place) -> None:
        if not place.store.capabilities.conditional_create:
            self._lacks("conditional_create")
            return
        key = place.key("object")
        await place.store.put(key, b"first", if_absent=True)
        with pytest.raises(AlreadyExists):
            await place.store.put(key, b"second", if_absent=True)
        assert place.read(key) == b"first"

    async def test_one_of_many_creators_wins(self, place: Place) -> None:
        if not place.store.capabilities.conditional_create:
            self._lacks("conditional_create")
            return
        key = place.key("object")
        puts = [place.store.put(key, b"%d" % n, if_absent=True) for n in range(16)]
        outcomes = await asyncio.gather(*puts, return_exceptions=True)
        winners = [n for n, outcome in enumerate(outcomes) if not isinstance(outcome, BaseException)]
        assert len(winners) == 1
        assert place.read(key) == b"%d" % winners[0]

    async def test_compare_and_swap(self, place: Place) -> None:
        if not place.store.capabilities.compare_and_swap:
            self._lacks("compare_and_swap")
            return
        key = place.key("object")
        first: ObjectMeta = await place.store.put(key, b"first")
        await place.store.put(key, b"second", if_match=first.etag)
        with pytest.raises(PreconditionFailed):
            await place.store.put(key, b"third", if_match=first.etag)
        assert place.read(key) == b"second"

    @pytest.mark.parametrize("name", ["copy", *ODD_NAMES])
    async def test_copy(self, place: Place, name: str) -> None:
        source, key = place.put(f"from/{name}"), place.key(f"to/{name}")
        for content in (CONTENT, b"other"):
            place.write(source, content)
            before = place.store.stats.snapshot()
            await place.store.copy(source, key)
            assert (place.read(key), place.read(source)) == (content, content)
            assert (place.store.stats.snapshot() - before)["put"].requests == 1
        with pytest.raises(NotFound):
            await place.store.copy(place.key("missing"), key)

    async def test_an_upload_in_parts(self, place: Place) -> None:
        key, first = place.key("large"), b"1" * PART_BYTES
        writer = await place.store.put_multipart(key)
        await asyncio.gather(writer.write_part(1, PART_BYTES, b"2"), writer.write_part(0, 0, first))
        assert place.read(key) is None
        meta = await writer.complete()
        assert (place.read(key), meta.size_bytes) == (first + b"2", PART_BYTES + 1)

    async def test_an_aborted_upload_leaves_nothing(self, place: Place) -> None:
        writer = await place.store.put_multipart(place.key("large"))
        await writer.write_part(0, 0, b"1")
        await writer.abort()
        await writer.abort()
        assert place.read(place.key("large")) is None
        assert await _names(place) == []

    async def test_an_upload_can_be_a_create(self, place: Place) -> None:
        if not place.store.capabilities.conditional_create:
            self._lacks("conditional_create")
            return
        key = place.put("object", b"first")
        writer = await place.store.put_multipart(key, if_absent=True)
        await writer.write_part(0, 0, b"second")
        with pytest.raises(AlreadyExists):
            await writer.complete()
        await writer.abort()
        assert place.read(key) == b"first"

    # -- uploads of any size ----------------------------------------------------------------------------------------

    async def test_a_small_upload_is_one_put(self, place: Place) -> None:
        key = place.key("data/file")
        before = place.store.stats.snapshot()
        async with await place.store.open_upload(key, content_length_hint=1024) as upload:
            await upload.write([CONTENT[:100], bytearray(CONTENT[100:101]), memoryview(CONTENT)[101:]])
            await upload.write([b""])
            assert (upload.size_bytes, place.read(key)) == (1024, None)
            meta = await upload.close()
            assert await upload.close() == meta
        done = place.store.stats.snapshot() - before
        assert (done["put"].requests, done.requests, done.bytes_written) == (1, 1, 1024)
        assert (place.read(key), meta.key, meta.size_bytes) == (CONTENT, key, 1024)

    async def test_an_empty_upload_is_an_empty_object(self, place: Place) -> None:
        async with await place.store.open_upload(place.key("empty")) as upload:
            await upload.close()
        assert place.read(place.key("empty")) == b""

    async def test_a_large_upload_goes_up_in_parts(self, place: Place) -> None:
        key, pieces = place.key("large"), [bytes([n]) * 700_001 for n in range(17)]
        upload = PartUpload(place.store, key, part_bytes=PART_BYTES, parts_in_flight=2)
        buffer = bytearray(700_001)
        for piece in pieces:
            buffer[:] = piece  # a buffer may be reused
            await upload.write([buffer])
            assert place.read(key) is None
        meta = await upload.close()
        assert (place.read(key), meta.size_bytes) == (b"".join(pieces), 17 * 700_001)
        assert meta.etag is None or meta.etag == (await place.store.head(key)).etag

    async def test_an_upload_that_is_left_open_is_removed(self, place: Place) -> None:
        with pytest.raises(ZeroDivisionError):
            async with PartUpload(place.store, place.key("a"), part_bytes=PART_BYTES) as upload:
                await upload.write([bytes(2 * PART_BYTES + 1)])
                raise ZeroDivisionError
        await upload.abort()
        with pytest.raises(UsageError):
            await upload.write([b"1"])
        with pytest.raises(UsageError):
            await upload.close()
        assert await _names(place) == []

    @pytest.mark.parametrize("num_bytes", [6, PART_BYTES + 6])
    async def test_a_created_upload_does_not_overwrite(self, place: Place, num_bytes: int) -> None:
        if not place.store.capabilities.conditional_create:
            self._lacks("conditional_create")
            return
        key = place.put("object", b"first")

        async def create() -> None:
            upload = PartUpload(place.store, key, if_absent=True, part_bytes=PART_BYTES)
            await upload.write([bytes(num_bytes)])
            await upload.close()

        with pytest.raises(AlreadyExists):
            await _until_known(create)
        assert place.read(key) == b"first"
        assert await _names(place) == ["object"]

    async def test_writing_without_waiting(self, place: Place) -> None:
        store = place.store
        if not isinstance(store, SyncWrites):
            self._lacks("SyncWrites")
            return
        key = place.key("folder/object")
        meta = store.put_sync(key, CONTENT, if_absent=True)
        assert (place.read(key), meta) == (CONTENT, await store.head(key))
        with pytest.raises(AlreadyExists):
            store.put_sync(key, b"second", if_absent=True)
        store.put_sync(key, b"third", durability="none")
        assert place.read(key) == b"third"
        store.delete_sync([key, place.key("missing")])
        assert place.read(key) is None

    async def test_an_upload_without_waiting(self, place: Place) -> None:
        store, key = place.store, place.key("data/file")
        if not isinstance(store, SyncWrites):
            self._lacks("SyncWrites")
            return
        many = [CONTENT[n : n + 1] for n in range(1024)] * 3
        with store.open_upload_sync(key) as upload:
            upload.write(iter(many))
            upload.write([b"", memoryview(CONTENT)])
            assert (upload.size_bytes, place.read(key)) == (4096, None)
            meta = upload.close()
            assert upload.close() == meta == await store.head(key)
        assert place.read(key) == CONTENT * 4
        with store.open_upload_sync(key, if_absent=True, durability="none") as upload, pytest.raises(AlreadyExists):
            upload.close()
        with store.open_upload_sync(place.key("left"), durability="none") as upload:
            upload.write([b"1"])
        with pytest.raises(UsageError):
            upload.write([b"2"])
        assert await _names(place) == ["data/file"]

    async def test_delete(self, place: Place) -> None:
        keys = [place.put(name) for name in ("a", "b/c", "d")]
        await place.store.delete([keys[0], keys[1], place.key("missing")])
        assert [place.read(key) for key in keys] == [None, None, CONTENT]
        await place.store.delete([place.key("missing")])
        await place.store.delete([])

    # -- housekeeping -----------------------------------------------------------------------------------------------

    async def test_requests_are_counted(self, place: Place) -> None:
        key = place.put("object")
        before = place.store.stats.snapshot()
        await place.store.get_range(key, 10, 30)
        await place.store.get_suffix(key, 24)
        await place.store.put(place.key("new"), b"12345")
        await _names(place)
        done = place.store.stats.snapshot() - before
        gets = done["get"].requests  # one that finds no suffix range learns the size by a GET or HEAD of its own
        assert (done["put"].requests, done["list"].requests, done.requests - 4) == (
            *(1, 1),
            not place.store.capabilities.suffix_range,
        )
        assert gets + done["head"].requests == done.requests - 2
        assert (done.bytes_read, done.bytes_written) == (20 + 24 * (gets - 1), 5)

    async def test_failures_are_counted(self, place: Place) -> None:
        before = place.store.stats.snapshot()
        with pytest.raises(NotFound):
            await place.store.get_range(place.key("missing"), 0, 1)
        done = place.store.stats.snapshot() - before
        assert (done["get"].requests, done["get"].errors, done["get"].retries) == (1, 1, 0)

    async def test_a_closed_store_opens_again(self, place: Place) -> None:
        key = place.put("object")
        await place.store.get_range(key, 0, 1)
        await place.store.aclose()
        await place.store.aclose()
        assert bytes(await place.store.get_range(key, 0, 2)) == CONTENT[:2]
