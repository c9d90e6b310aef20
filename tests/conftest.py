"""Fixtures that every room's tests may use: the servers of the session, a fresh place in them, what is flushed."""

from __future__ import annotations

import asyncio
import gc
import os
import uuid
from typing import TYPE_CHECKING

os.environ["LANCE_IO_FREEZE"] = "1"  # before the package defines a class, here and in processes that tests start

import pytest
from hypothesis import HealthCheck, is_hypothesis_test, settings

from lance_io.runtime import engine as runtime_engine
from tests import kinds
from tests.seeds import seeded
from tests.servers import (
    AzureServer,
    GcsServer,
    S3Server,
    azure_server,
    gcs_server,
    s3_server,
    versity_server,
)

if TYPE_CHECKING:
    from collections.abc import Generator, Iterator

    from xdist.remote import Producer
    from xdist.scheduler import Scheduling

# Time says nothing about right and wrong: a loaded machine must not fail a test. In CI a change is judged by the same
# examples every time; whoever works on it draws new ones with each run, and a campaign by its seed.
settings.register_profile(
    "lance_io",
    deadline=None,
    suppress_health_check=[HealthCheck.too_slow],
    print_blob=True,
    derandomize=bool(os.environ.get("CI")),
)
settings.load_profile("lance_io")


@pytest.hookimpl(wrapper=True)
def pytest_collection() -> Generator[None, object, object]:
    """What collecting makes lives as long as the process: going through it again with every collection of garbage, of
    which many tests ask for one, took half of their time."""
    gc.disable()
    try:
        return (yield)
    finally:
        gc.collect()
        gc.freeze()
        gc.enable()


@pytest.hookimpl(optionalhook=True)
def pytest_xdist_make_scheduler(config: pytest.Config, log: Producer) -> Scheduling | None:
    """How the tests are shared where whole files go to one process."""
    from tests.sharing import SparkTogether

    return SparkTogether(config, log) if config.getvalue("dist") == "loadfile" else None


@pytest.hookimpl(tryfirst=True)  # before `-m` chooses by the marks
def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    """Processes that share the tests among them must agree on the names; addresses differ from one to the next."""
    unstable = [item.nodeid for item in items if " at 0x" in item.nodeid]
    if unstable:
        raise pytest.UsageError(f"give these cases ids of their own, they are named by address: {unstable[:3]}")
    for item in items:
        test = getattr(item, "obj", None)
        if is_hypothesis_test(test):
            seeded(getattr(test, "__func__", test))
    kinds.mark(items)


@pytest.hookimpl(wrapper=True)
def pytest_runtest_protocol(item: pytest.Item) -> Generator[None, object, object]:
    """A test is marked for what it needs, or does without it."""
    with kinds.servers_refused_unless_marked(item):
        return (yield)


@pytest.fixture(scope="session")
def s3() -> Iterator[S3Server]:
    """A prepared MinIO server, one per test session."""
    with s3_server() as server:
        yield server


@pytest.fixture(scope="session")
def versity() -> Iterator[S3Server]:
    """A prepared versitygw, one per test session."""
    with versity_server() as server:
        yield server


@pytest.fixture(scope="session")
def gcs() -> Iterator[GcsServer]:
    """A prepared fake-gcs-server, one per test session."""
    with gcs_server() as server:
        yield server


@pytest.fixture(scope="session")
def azure() -> Iterator[AzureServer]:
    """A prepared Azurite, one per test session."""
    with azure_server() as server:
        yield server


@pytest.fixture
def s3_prefix() -> str:
    """A key prefix that no other test uses, without a slash at its end."""
    return f"test-{uuid.uuid4().hex}"


@pytest.fixture
def s3_uri(s3: S3Server, s3_prefix: str) -> str:
    """The URI of a fresh place that the restricted user may write to; go with `s3.options()`."""
    return f"s3://{s3.bucket}/{s3_prefix}"


@pytest.fixture(autouse=True)
def no_second_requests(monkeypatch: pytest.MonkeyPatch) -> None:
    """Requests are counted in many tests, and on a loaded machine answers come late."""
    monkeypatch.setenv("LANCE_IO_HEDGE_PERCENT", "0")


@pytest.fixture(autouse=True)
def no_ambient_azure(monkeypatch: pytest.MonkeyPatch) -> None:
    """Tests see no credentials of whoever runs them."""
    for name in [name for name in os.environ if name.startswith(("AZURE_", "AZURITE_"))]:
        monkeypatch.delenv(name)


@pytest.fixture(autouse=True)
def no_ambient_aws(monkeypatch: pytest.MonkeyPatch, tmp_path_factory: pytest.TempPathFactory) -> None:
    """Tests see no credentials of whoever runs them, and never ask a cloud's metadata service."""
    import os

    for name in [name for name in os.environ if name.startswith("AWS_")]:
        monkeypatch.delenv(name)
    monkeypatch.setenv("AWS_EC2_METADATA_DISABLED", "true")
    nowhere = str(tmp_path_factory.getbasetemp() / "no-such-aws-file")
    monkeypatch.setenv("AWS_CONFIG_FILE", nowhere)
    monkeypatch.setenv("AWS_SHARED_CREDENTIALS_FILE", nowhere)


@pytest.fixture(autouse=True)
def no_ambient_google(monkeypatch: pytest.MonkeyPatch, tmp_path_factory: pytest.TempPathFactory) -> None:
    """The same for Google."""
    for name in [name for name in os.environ if name.startswith(("GOOGLE_", "CLOUDSDK_", "GCE_"))]:
        monkeypatch.delenv(name)
    monkeypatch.setenv("NO_GCE_CHECK", "true")
    monkeypatch.setenv("CLOUDSDK_CONFIG", str(tmp_path_factory.getbasetemp() / "no-such-gcloud-folder"))


@pytest.fixture
def flushed(monkeypatch: pytest.MonkeyPatch) -> list[str]:
    """Paths in the order in which they are flushed from here on; those of new files are their temporary names."""
    paths: list[str] = []
    fsync = os.fsync

    def noted(fd: int) -> None:
        paths.append(os.readlink(f"/proc/self/fd/{fd}"))
        fsync(fd)

    monkeypatch.setattr("lance_io.store.local.atomic_writes.os.fsync", noted)
    return paths


@pytest.fixture(scope="module")
def nothing_of_others() -> None:
    """Close what other modules' tests have left open on the engine, of this process like these: counts begin at 0."""
    gc.collect()
    engine = runtime_engine._engine
    if engine is not None:
        asyncio.run_coroutine_threadsafe(_close_all(engine), engine.loop).result()


async def _close_all(engine: runtime_engine.Engine) -> None:
    for find in list(engine.closers.values()):
        closer = find()
        if closer is not None:
            await closer()
