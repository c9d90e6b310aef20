"""Credentials that expire: renewed once and ahead of that, by nobody's leave; whose error is told, and when."""

from __future__ import annotations

import asyncio
import datetime
import json
import random
import re
from typing import TYPE_CHECKING, Any

import pytest
from botocore.credentials import RefreshableCredentials
from botocore.utils import ContainerMetadataFetcher

from lance_io.commit.dynamodb import DynamoManifestStore
from lance_io.commit.external import Row
from lance_io.errors import AccessDenied, LanceError
from lance_io.plans.plan import drive_async
from lance_io.store.cloud import renewal
from lance_io.store.http.range_get import RangeGet
from lance_io.store.offers import WantedRange
from lance_io.store.policies.logical_read import Reading
from lance_io.store.s3 import credentials
from lance_io.store.s3.bucket import S3Store, open_s3
from lance_io.store.s3.credentials import Chain, RenewableCredentials
from lance_io.store.s3.error_codes import credentials_error
from lance_io.store.s3.loop_state import _service_data
from tests.http_faults import Asked, FaultServer, head, serve, status

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence
    from pathlib import Path

    from lance_io.store.offers import StartedRead

CONTENT = random.Random(5).randbytes(50_000)
CALLERS = 32
BEGAN = datetime.datetime(2030, 1, 1, tzinfo=datetime.UTC)
HOLDS_S = 1800.0  # of which half is left when aiobotocore begins to think of the next ones


class Clock:
    """What credentials take for the time; `now_s` counts from `BEGAN`."""

    def __init__(self) -> None:
        self.now_s = 0.0

    def time(self) -> datetime.datetime:
        return BEGAN + datetime.timedelta(seconds=self.now_s)


@pytest.fixture
def clock(monkeypatch: pytest.MonkeyPatch) -> Iterator[Clock]:
    """The time by our leave, and a look at the credentials for each request."""
    clock = Clock()
    monkeypatch.setattr(
        RefreshableCredentials, "_seconds_remaining", lambda self: (self._expiry_time - clock.time()).total_seconds()
    )
    monkeypatch.setattr("lance_io.store.s3.loop_state.LOOK_S", 0.0)
    yield clock


class Service:
    """Gives credentials that hold for `holds_s`, as what a container's environment names does, when it may.

    open    cleared: who asks has to wait
    broken  it answers with an error
    asked   when it was asked, by the clock
    """

    def __init__(self, clock: Clock) -> None:
        self.clock = clock
        self.holds_s = HOLDS_S
        self.broken = False
        self.open = asyncio.Event()
        self.open.set()
        self.asked: list[float] = []
        self.ends_s: dict[str, float] = {}  # of the keys that it gave

    async def fetch(self) -> dict[str, str]:
        """The next ones."""
        self.asked.append(self.clock.now_s)
        await self.open.wait()
        if self.broken:
            raise ValueError("the service is out of order")
        name = f"KEY{len(self.ends_s)}"
        self.ends_s[name] = self.clock.now_s + self.holds_s
        ends = self.clock.time() + datetime.timedelta(seconds=self.holds_s)
        return {
            "access_key": name,
            "secret_key": "secret",
            "token": f"token-of-{name}",
            "expiry_time": ends.isoformat(),
        }


class World(FaultServer):
    """A bucket, and beside it the service; no request of the former may come with credentials that have expired."""

    def __init__(self, clock: Clock) -> None:
        super().__init__(CONTENT)
        self.service = Service(clock)
        self.used: list[str] = []
        self.late: list[str] = []
        self.script = _Always(self._answer)

    async def _answer(self, server: FaultServer, asked: Asked, writer: asyncio.StreamWriter) -> None:
        if asked.line.startswith("GET /credentials"):
            try:
                found = await self.service.fetch()
            except ValueError:
                writer.write(head(500, {"Content-Length": 0}))
                return
            names = {"access_key": "AccessKeyId", "secret_key": "SecretAccessKey", "token": "Token"}
            body = json.dumps({names.get(name, "Expiration"): value for name, value in found.items()}).encode()
            writer.write(head(200, {"Content-Length": len(body)}) + body)
            return
        found_name = re.search(r"Credential=(\w+)/", asked.headers["authorization"])
        assert found_name is not None
        name = found_name[1]
        self.used.append(name)
        if self.service.clock.now_s >= self.service.ends_s[name]:
            self.late.append(name)
        if asked.line.startswith("POST "):
            writer.write(head(200, {"Content-Length": 2, "Content-Type": "application/x-amz-json-1.0"}) + b"{}")
        elif asked.line.startswith("PUT "):
            writer.write(head(200, {"Content-Length": 0, "ETag": '"new"'}))
        else:
            await serve(server, asked, writer)


class _Always(list):
    """A script that never ends."""

    def __init__(self, answer: Any) -> None:
        super().__init__()
        self._answer = answer

    def __len__(self) -> int:
        return 1 << 30

    def __getitem__(self, _: Any) -> Any:
        return self._answer


def store_of(world: World, monkeypatch: pytest.MonkeyPatch, **options: str) -> S3Store:
    """A store that has its credentials from the service, by the way that containers have."""
    monkeypatch.setenv("AWS_CONTAINER_CREDENTIALS_FULL_URI", f"{world.endpoint}/credentials")
    monkeypatch.setattr(ContainerMetadataFetcher, "SLEEP_TIME", 0)
    monkeypatch.setattr(ContainerMetadataFetcher, "TIMEOUT_SECONDS", 60)
    where = {"aws_endpoint": world.endpoint, "allow_http": "true", "aws_region": "us-east-1"}
    return open_s3("bucket", {**where, "client_max_retries": "0", **options})


async def read(store: S3Store, at: int = 0) -> None:
    assert bytes(await store.get_range("key", at, at + 100)) == CONTENT[at : at + 100]


async def read_all(store: S3Store) -> None:
    """Reads of all callers at once."""
    await asyncio.gather(*(read(store, 1000 * at) for at in range(CALLERS)))


def renewal_of(store: S3Store) -> list[asyncio.Task[Any]]:
    """The renewal that is under way."""
    chain = store._loop().state._chain
    assert chain is not None
    (found,) = chain._renewables
    task = found._renewal._task
    return [] if task is None or task.done() else [task]


async def renewed(store: S3Store) -> None:
    """Wait until no renewal is under way."""
    if renewal := renewal_of(store):
        await asyncio.wait(renewal)


@pytest.mark.parametrize(("express", "hours"), [("false", 3), ("true", 1)])
async def test_hours_of_callers_none_of_whom_waits(
    express: str, hours: int, clock: Clock, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Every other minute 32 callers read and one writes; they end before the service gives what it is asked for."""
    monkeypatch.setattr(credentials, "AGAIN_S", 0.0)  # for which the loop's clock counts
    async with World(clock) as world:
        store, service = store_of(world, monkeypatch, s3_express=express), world.service
        await read_all(store)
        assert service.asked == [0.0]  # once for all of them
        service.open.clear()
        for clock.now_s in range(120, 3600 * hours + 1, 120):
            await read_all(store)
            await store.put("key", b"1")
            if renewal_of(store):
                service.open.set()
                await renewed(store)
                service.open.clear()
        assert world.late == []
        assert len(world.used) == CALLERS + 30 * hours * (CALLERS + 1)
        # Less than a quarter of an hour before their end, when aiobotocore would begin, too.
        assert service.asked == list(range(0, 3600 * hours + 1, 960))
        assert set(world.used) == set(service.ends_s)
        await store.aclose()


@pytest.mark.parametrize("given", [True, False])
async def test_nobody_waits_for_a_look_at_credentials(
    given: bool, clock: Clock, monkeypatch: pytest.MonkeyPatch
) -> None:
    """GETs go together by the short way, unless credentials have to be fetched; each is a task of its own then."""
    keys = {"aws_access_key_id": "KEY", "aws_secret_access_key": "secret"} if given else {}
    async with World(clock) as world:
        store = store_of(world, monkeypatch, **keys)
        if given:
            world.service.ends_s["KEY"] = float("inf")

        async def together() -> set[type]:
            over: asyncio.Future[None] = asyncio.get_running_loop().create_future()
            missing = {0, 500, 900}

            def ended(reads: Sequence[StartedRead]) -> None:
                missing.difference_update(read.tag for read in reads)
                if not missing:
                    over.set_result(None)

            wanted = [WantedRange("key", at, at + 100, tag=at) for at in sorted(missing)]
            started = store.start_ranges(wanted, ended, lambda *_: None)
            await over
            assert [bytes(one.result() or b"") for one in started] == [CONTENT[at : at + 100] for at in (0, 500, 900)]
            return {type(one) for one in started}

        assert await together() == {Reading}  # the first ones
        assert await together() == {RangeGet}
        clock.now_s = HOLDS_S - 600  # their renewal is due, and they hold
        assert await together() == {RangeGet}
        if not given:
            await renewed(store)
            assert await together() == {Reading}  # signs with the new ones from now on
            assert await together() == {RangeGet}
            clock.now_s += HOLDS_S
            assert await together() == {Reading}
            assert len(world.service.asked) == 3
        await store.aclose()


async def test_an_error_is_told_when_nothing_is_left_that_holds(clock: Clock, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(credentials, "AGAIN_FAILED_S", 0.0)
    async with World(clock) as world:
        store, service = store_of(world, monkeypatch), world.service
        await read_all(store)
        service.broken = True
        for clock.now_s in (HOLDS_S - 800, HOLDS_S - 300, HOLDS_S - 6, HOLDS_S - 1):
            before = len(service.asked)
            await read_all(store)
            await store.put("key", b"1")
            await renewed(store)
            assert len(service.asked) > before  # it was tried
        sent = len(world.used)
        clock.now_s = HOLDS_S + 1
        for work in (read(store), store.put("key", b"1"), store.head("key"), store.get_suffix("key", 10)):
            with pytest.raises(AccessDenied, match=r"no credentials: .*500") as caught:
                await work
            assert (caught.value.path, "(bucket bucket)" in str(caught.value)) == ("key", True)
        found = await asyncio.gather(*(read(store) for _ in range(CALLERS)), return_exceptions=True)
        assert {type(error) for error in found} == {AccessDenied}
        assert len({id(error) for error in found}) == CALLERS
        assert (len(world.used), world.late) == (sent, [])
        service.broken = False
        await read_all(store)
        assert set(world.used[sent:]) == {"KEY1"}
        await store.aclose()


async def test_those_who_have_to_wait_wait_for_one_renewal(clock: Clock, monkeypatch: pytest.MonkeyPatch) -> None:
    """Also where some of them, the first one too, give up meanwhile."""
    async with World(clock) as world:
        store, service = store_of(world, monkeypatch), world.service
        await read(store)
        clock.now_s = HOLDS_S + 1
        service.open.clear()
        waiting = [asyncio.create_task(read(store, 1000 * at)) for at in range(CALLERS)]
        while len(service.asked) < 2:  # noqa: ASYNC110 (the request to the service)
            await asyncio.sleep(0.001)
        for task in waiting[:5]:
            task.cancel()
        found = await asyncio.gather(*waiting[:5], return_exceptions=True)
        assert {type(error) for error in found} == {asyncio.CancelledError}
        service.open.set()
        await asyncio.gather(*waiting[5:])
        assert service.asked == [0.0, HOLDS_S + 1]
        assert world.late == []
        await store.aclose()


@pytest.mark.parametrize("loaded", [False, True])
async def test_closing_a_store_ends_a_renewal(loaded: bool, clock: Clock, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(renewal, "CLOSE_S", 0.01)
    async with World(clock) as world:
        store, service = store_of(world, monkeypatch), world.service
        if loaded:
            await read(store)
            clock.now_s = HOLDS_S + 1
        before = len(service.asked)
        service.open.clear()
        waiting = [asyncio.create_task(work) for work in (read(store), store.put("key", b"1"))]
        while len(service.asked) == before:  # noqa: ASYNC110
            await asyncio.sleep(0.001)
        await store.aclose()
        for error in await asyncio.gather(*waiting, return_exceptions=True):
            assert isinstance(error, LanceError) and "closed" in str(error)
        service.open.set()
        await read(store)  # it may come back
        assert world.late == []
        await store.aclose()


# -- a database ------------------------------------------------------------------------------------------------------


async def test_a_database_is_asked_with_the_same_credentials(clock: Clock, monkeypatch: pytest.MonkeyPatch) -> None:
    """Renewed in the background; where none are left, nothing is sent, so that a row was certainly not written."""
    monkeypatch.setattr(credentials, "AGAIN_S", 0.0)
    monkeypatch.setattr(credentials, "AGAIN_FAILED_S", 0.0)
    async with World(clock) as world:
        service, rows = world.service, DynamoManifestStore("rows", store_of(world, monkeypatch).options, world.endpoint)
        row = Row(1, "t/_versions/1.manifest", 100)
        service.broken = True
        for plan in (rows.get("t", 1), rows.put_if_absent("t", row)):
            with pytest.raises(AccessDenied, match=r"no credentials: .*500") as caught:
                await drive_async(plan)
            assert caught.value.path == "DynamoDB table rows"
        assert world.used == []
        service.broken = False
        assert await drive_async(rows.get("t", 1)) is None
        service.open.clear()
        for clock.now_s in (HOLDS_S - 800, HOLDS_S - 300, HOLDS_S - 6):
            await drive_async(rows.put_if_absent("t", row))
        service.open.set()
        clock.now_s = HOLDS_S + 1
        await drive_async(rows.put_if_absent("t", row))
        assert (world.used, world.late) == (["KEY0"] * 4 + ["KEY1"], [])
        await rows.aclose()


@pytest.mark.parametrize("express", ["false", "true"])
async def test_credentials_that_the_store_calls_expired(express: str) -> None:
    async with FaultServer(CONTENT, [status(400, "ExpiredToken")] * 2) as server:
        keys = {"aws_access_key_id": "AKIA", "aws_secret_access_key": "secret", "aws_session_token": "old"}
        where = {"aws_endpoint": server.endpoint, "allow_http": "true", "aws_region": "us-east-1"}
        store = open_s3("bucket", {**keys, **where, "s3_express": express})
        for work in (read(store), store.put("key", b"1")):
            with pytest.raises(AccessDenied, match="the credentials have expired: HTTP 400 ExpiredToken"):
                await work
        await store.aclose()


# -- any provider ------------------------------------------------------------------------------------------------------


async def held_by(service: Service) -> RenewableCredentials:
    """Credentials of a service, as a provider of aiobotocore's makes them."""
    from aiobotocore.credentials import AioRefreshableCredentials

    async def find() -> Any:
        return AioRefreshableCredentials.create_from_metadata(await service.fetch(), service.fetch, "a service")

    found = await Chain(find, credentials_error, "s3").load_credentials()
    assert isinstance(found, RenewableCredentials)
    return found


async def name_of(held: RenewableCredentials) -> str:
    return str((await held.get_frozen_credentials()).access_key)


async def test_credentials_that_never_hold_for_long_are_not_renewed_all_the_time(
    clock: Clock, monkeypatch: pytest.MonkeyPatch
) -> None:
    """aiobotocore would ask its service for each request within the last quarter of an hour."""
    service = Service(clock)
    service.holds_s = 300.0
    held = await held_by(service)
    names = []
    for clock.now_s in range(0, 100, 10):
        names.append(await name_of(held))
        await asyncio.wait([held._renewal.begin()] if held._renewal._task is None else [held._renewal._task])
    assert (len(service.asked), names) == (2, ["KEY0", *["KEY1"] * 9])
    monkeypatch.setattr(credentials, "AGAIN_S", 0.0)
    held._not_before_s = 0.0
    await name_of(held)
    await held._renewal.result()
    assert await name_of(held) == "KEY2"
    await held.close()


async def test_a_service_that_fails_is_left_alone_for_a_while(clock: Clock) -> None:
    service = Service(clock)
    held = await held_by(service)
    service.broken = True
    clock.now_s = HOLDS_S - 60
    for _ in range(CALLERS):
        assert await name_of(held) == "KEY0"
        assert held._renewal._task is not None
        await asyncio.wait([held._renewal._task])
    assert len(service.asked) == 2
    await held.close()


async def test_what_is_fetched_only_when_it_is_needed(clock: Clock) -> None:
    """Single sign-on and assumed roles: there is nothing before the first renewal."""
    from aiobotocore.credentials import AioDeferredRefreshableCredentials

    service = Service(clock)
    service.broken = True
    held = RenewableCredentials(AioDeferredRefreshableCredentials(service.fetch, "a service"), credentials_error, "s3")
    with pytest.raises(AccessDenied, match="out of order"):
        await held.get_frozen_credentials()
    service.broken = False
    assert set(await asyncio.gather(*(name_of(held) for _ in range(CALLERS)))) == {"KEY0"}
    assert len(service.asked) == 2
    assert held.method == "a service"


async def test_what_comes_is_expired_already(clock: Clock) -> None:
    """aiobotocore says so by a `RuntimeError`."""
    service = Service(clock)
    held = await held_by(service)
    clock.now_s = HOLDS_S + 1
    service.holds_s = -1.0
    with pytest.raises(AccessDenied, match="still expired"):
        await held.get_frozen_credentials()


async def test_every_error_of_a_provider_is_ours(monkeypatch: pytest.MonkeyPatch) -> None:
    """Of a service that refuses, a program that is not there, a profile that nobody has written; no secret shows."""
    from botocore.exceptions import ClientError

    for raised in (
        ClientError({"Error": {"Code": "AccessDenied"}}, "AssumeRole"),
        OSError("no such program"),
        KeyError(),
    ):

        async def find(raised: Exception = raised) -> Any:
            raise raised

        chain = Chain(find, lambda error: credentials_error(error, secrets=("program",)), "s3")
        with pytest.raises(AccessDenied, match=r"no credentials \(\w+Error: ") as caught:
            await chain.load_credentials()
        assert "program" not in str(caught.value)


@pytest.mark.parametrize("region", [None, "us-east-1"])
async def test_a_profile_that_is_not_there(region: str | None) -> None:
    where = {"aws_endpoint": "http://127.0.0.1:9", "allow_http": "true", "client_max_retries": "0"}
    store = open_s3("bucket", {**where, "aws_profile": "none", **({} if region is None else {"aws_region": region})})

    async def list_all() -> None:
        async for _ in store.list(""):
            raise AssertionError

    for work in (store.get_range("key", 0, 1), list_all(), store.put("key", b"1"), store.head("key")):
        with pytest.raises(AccessDenied, match=r"profile \(none\) could not be found"):
            await work
    await store.aclose()


def test_what_botocore_knows_may_come_from_another_place(tmp_path: Path) -> None:
    """As `AWS_DATA_PATH` and `data_path` of a profile say."""
    assert str(tmp_path) in _service_data(str(tmp_path)).search_paths
    assert str(tmp_path) not in _service_data(None).search_paths
