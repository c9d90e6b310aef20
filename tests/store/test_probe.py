"""Is create-if-absent kept? Asked of stores that keep it, ignore it, refuse it, and do not answer."""

from __future__ import annotations

import asyncio
import uuid
from dataclasses import replace
from typing import TYPE_CHECKING, Any

import pytest

from lance_io.errors import AccessDenied, UnsupportedError
from lance_io.store.failures import OutcomeUnknown, StoreFailure
from lance_io.store.local.disk import LocalStore
from lance_io.store.memory import MemoryStore
from lance_io.store.probe import PROBE_PREFIX, ConditionalProbe
from lance_io.store.s3.bucket import open_s3
from lance_io.store.url import resolve_uri
from lance_io.testing.faults import Fault, FaultyStore
from lance_io.testing.latency import LatencyStore, run_virtual
from lance_io.testing.record import RecordingStore
from lance_io.testing.wrap import WrappedStore

if TYPE_CHECKING:
    from lance_io.store.api import Capabilities, ObjectMeta, ObjectStore
    from tests.servers import S3Server


class Unproven(WrappedStore):
    """A store that nobody has tried yet; every one is another."""

    keeps = True
    error: Exception | None = None

    def __init__(self, inner: ObjectStore | None = None) -> None:
        super().__init__(inner or MemoryStore())
        self.name = uuid.uuid4().hex

    @property
    def identity(self) -> str:
        return f"test://{self.name}"

    @property
    def capabilities(self) -> Capabilities:
        return replace(self.inner.capabilities, create_unproven=True)

    async def put(self, key: str, data: Any, *, if_absent: bool = False, **rest: Any) -> ObjectMeta:
        if self.error is not None:
            raise self.error
        return await super().put(key, data, if_absent=if_absent and self.keeps, **rest)


class Ignoring(Unproven):
    keeps = False


class NotImplementing(Unproven):
    error = StoreFailure("no such header here", status=501)


async def test_a_store_that_keeps_it_is_asked_once() -> None:
    store = RecordingStore(Unproven())
    probe = ConditionalProbe(store, "t/_versions")
    await probe.run()
    kinds = [line.split(" ")[0] for line in store.log]
    assert kinds == ["put_create", "put_create", "delete"]
    assert all(request.key.startswith(f"t/_versions/{PROBE_PREFIX}") for request in store.requests)
    await ConditionalProbe(store, "other/_versions").run()
    assert len(store.log) == 3
    assert [meta async for meta in store.list("")] == []


@pytest.mark.parametrize("kind", [Ignoring, NotImplementing])
async def test_a_store_that_does_not_keep_it_is_refused_every_time(kind: type[Unproven]) -> None:
    store = kind()
    for _ in range(2):
        with pytest.raises(UnsupportedError, match="commit_lock"):
            await ConditionalProbe(store, "t/_versions").run()
    assert [meta async for meta in store.list("")] == []


@pytest.mark.parametrize("keeps", [True, False])
@pytest.mark.parametrize("lost", [{0}, {1}, {0, 1}, {1, 2}, {0, 2}])
@pytest.mark.parametrize("fault", [Fault.REFUSED, Fault.LOST_ANSWER])
def test_answers_that_are_lost_decide_nothing(keeps: bool, lost: set[int], fault: Fault) -> None:
    inner = (Unproven if keeps else Ignoring)()
    store = FaultyStore(inner, dict.fromkeys(lost, fault), counts=lambda request: request.operation.startswith("put"))

    async def run() -> bool:
        try:
            await ConditionalProbe(store, "t/_versions").run()
        except UnsupportedError:
            return False
        return True

    assert run_virtual(run)[0] is keeps


def test_no_telling_is_not_remembered() -> None:
    store = Unproven()
    store.error = OutcomeUnknown("nobody answers")
    with pytest.raises(OutcomeUnknown):
        run_virtual(lambda: ConditionalProbe(store, "t").run())
    store.error = AccessDenied("no")
    with pytest.raises(AccessDenied):
        run_virtual(lambda: ConditionalProbe(store, "t").run())
    store.error = None
    run_virtual(lambda: ConditionalProbe(store, "t").run())


@pytest.mark.parametrize("moments_s", [(1.5,), (2.5,), (1.5, 0.7), (2.5, 0.1, 0.1)], ids=str)
def test_cancelling_removes_the_probe(moments_s: tuple[float, ...]) -> None:
    """While it is written and while it is removed, once and again: it is gone before the caller goes on."""
    inner = MemoryStore()

    async def run() -> None:
        probing = asyncio.create_task(ConditionalProbe(LatencyStore(Unproven(inner)), "t").run())
        for moment_s in moments_s:
            await asyncio.sleep(moment_s)
            assert len(inner.list_sync("t/")) == 1
            probing.cancel()
        with pytest.raises(asyncio.CancelledError):
            await probing
        assert inner.list_sync("") == []

    run_virtual(run)


async def test_who_is_trusted() -> None:
    for store in (MemoryStore(), LocalStore()):
        recording = RecordingStore(store)
        await ConditionalProbe(recording, "/nowhere").run()
        assert recording.log == []
    keys = {"access_key_id": "a", "secret_access_key": "b"}
    unproven = {
        endpoint: open_s3(
            "bucket", {**keys, **({"endpoint": endpoint} if endpoint else {})}
        ).capabilities.create_unproven
        for endpoint in (
            "",
            "https://s3.eu-west-1.amazonaws.com",
            "https://minio.example",
            "https://amazonaws.com.evil",
        )
    }
    assert list(unproven.values()) == [False, False, True, True]


async def test_minio_keeps_it(s3: S3Server, s3_prefix: str) -> None:
    store = resolve_uri(f"s3://{s3.bucket}", s3.options()).store
    probe = ConditionalProbe(store, f"{s3_prefix}/_versions")
    await probe.run()
    assert [meta async for meta in store.list(f"{s3_prefix}/")] == []
    await store.aclose()
