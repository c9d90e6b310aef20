"""`doctor`: settings of a store and their origins, and a test of each step of a connection to it."""

from __future__ import annotations

import asyncio
import os
import socket
import ssl
import uuid
from time import perf_counter
from typing import TYPE_CHECKING, Any, Final
from urllib.parse import urlsplit

import typer

from lance_io.cli.option_texts import storage_options
from lance_io.cli.output import show
from lance_io.cli.tables import Pairs, Table
from lance_io.dataset.cli_imports import (
    HEADERS,
    CloudStore,
    Selection,
    certificates_file,
    loop_state,
    normalize,
    open_location,
    planning,
    planning_variables,
    runtime,
    sites,
    tls_context,
)
from lance_io.errors import AlreadyExists, LanceError, NotFound

if TYPE_CHECKING:
    from collections.abc import Awaitable, Callable, Mapping

    from lance_io.cli.tables import Shown
    from lance_io.dataset.cli_imports import Location, ObjectMeta

READ_BYTES: Final = 4096
PROBE: Final = ".lance-io-doctor-"
ADDRESSES_SHOWN: Final = 4
DATABASE_ENDPOINT: Final = "aws_endpoint_url_dynamodb"


def doctor(uri: str, no_write: bool, storage_option: list[str] | None, as_json: bool) -> None:
    """Print the report; a failed step is exit code 1."""
    options = normalize(storage_options(storage_option))
    location, _ = open_location(uri, options)
    report = runtime.run(_examine(location, options, writes=not no_write, has_database=uri.startswith("s3+ddb:")))
    show(report, as_json, _show)
    if not all(step["ok"] for step in report["steps"]):
        raise typer.Exit(1)


async def _examine(
    location: Location, options: Mapping[str, str], *, writes: bool, has_database: bool
) -> dict[str, Any]:
    steps = _Steps()
    settings = _planned(options)
    if isinstance(location.store, CloudStore):
        settings = {**await _effective(location.store, options), **settings}
        if not has_database:
            settings.pop(DATABASE_ENDPOINT, None)
        await _reach(location.store, steps)
    first = await steps.take("list", lambda: _list(location, steps))
    await steps.take("read", lambda: _read(location, first, steps))
    if writes:
        await steps.take("conditional put", lambda: _create_twice(location, steps))
    shown = [{"name": name, "value": value, "origin": origin} for name, (value, origin) in sorted(settings.items())]
    return {"uri": location.uri, "options": shown, "steps": steps.done}


class _Steps:
    """Steps so far; a step may set `detail`, the text that describes its result."""

    def __init__(self) -> None:
        self.done: list[dict[str, Any]] = []
        self.detail = ""

    async def take(self, name: str, work: Callable[[], Awaitable[Any]]) -> Any:
        """Run a step: its result, or None if it fails."""
        began, self.detail, result, is_ok = perf_counter(), "", None, True
        try:
            result = await work()
        except (LanceError, OSError, ValueError) as error:
            text = str(error) or type(error).__name__
            is_ok, self.detail = False, " ".join(text.split())
        seconds = perf_counter() - began
        self.done.append({"step": name, "ok": is_ok, "seconds": seconds, "told": self.detail})
        return result


# -- settings ----------------------------------------------------------------------------------------------------------


def _planned(options: Mapping[str, str]) -> dict[str, tuple[str, str]]:
    """Given numbers for the planning of reads."""
    variables = planning_variables()
    return {
        name: (text, f"option {name}" if name in options else f"variable {variables[name]}")
        for name, text in planning(options).items()
        if name in variables
    }


async def _effective(store: CloudStore[Any], options: Mapping[str, str]) -> dict[str, tuple[str, str]]:
    """Settings from options, variables and profiles, without secrets."""
    settings = dict(store.options.origins)
    for name in options:
        if name.startswith(HEADERS):
            settings[name] = ("***", f"option {name}")
    if "aws_endpoint" not in settings and "google_base_url" not in settings:
        settings.setdefault("endpoint", (store.options.endpoint or "the cloud's own", "default"))
    if "aws_region" not in settings and store.scheme == "s3":
        region, origin = await _region(store)
        settings["aws_region"] = (region, origin)
    settings["credentials"] = await _credentials(store)
    return settings


async def _region(store: CloudStore[Any]) -> tuple[str, str]:
    state = store._loop().state
    try:
        await state.prepare()
        region = str(state.region)
    except LanceError:
        return loop_state.REGION_DEFAULT, "default"
    return region, "default" if region == loop_state.REGION_DEFAULT else "profile"


async def _credentials(store: CloudStore[Any]) -> tuple[str, str]:
    """Origin of the credentials, without secrets."""
    if store.options.skip_signature:
        return "none", "anonymous requests"
    if store.options.provided is not None:
        return "***", "storage_options_provider"
    given = [origin for name, (value, origin) in store.options.origins.items() if value == "***"]
    if given:
        return "***", given[0]
    if store.scheme != "s3":
        return "***", "default credentials of the cloud"
    try:
        state = store._loop().state
        await state.signer("")
        if state._keys is not None:
            return "***", "variable AWS_ACCESS_KEY_ID"
        return "***", str((await state.session().get_credentials()).method)
    except LanceError as error:
        return "none", " ".join(error.message.split())


# -- steps -----------------------------------------------------------------------------------------------------------


async def _reach(store: CloudStore[Any], steps: _Steps) -> None:
    """Resolve the host, or the proxy's host, and connect to it."""
    state = store._loop().state
    if store.scheme == "s3":
        address = sites.Address(store.options, state.region)  # type: ignore[arg-type]
        url = f"{address.scheme}://{address.host}"
    else:
        url = store.options.endpoint or "https://storage.googleapis.com"
    parts = urlsplit(url)
    proxy = store.options.find_proxy(parts.hostname or "", is_plain_http=parts.scheme == "http")
    parts = urlsplit(proxy or url)
    host, port = parts.hostname or "", parts.port or (443 if parts.scheme == "https" else 80)
    by = " by way of a proxy" if proxy else ""

    async def resolve() -> None:
        infos = await asyncio.get_running_loop().getaddrinfo(host, port, type=socket.SOCK_STREAM)
        addresses = list(dict.fromkeys(str(info[4][0]) for info in infos))
        more = ", ..." if len(addresses) > ADDRESSES_SHOWN else ""
        steps.detail = f"{host}: {', '.join(addresses[:ADDRESSES_SHOWN])}{more}{by}"

    async def connect() -> None:
        secure = _trust(store) if parts.scheme == "https" else None
        async with asyncio.timeout(store.options.connect_timeout_s):
            _, writer = await asyncio.open_connection(host, port, ssl=secure)
        tls = writer.get_extra_info("ssl_object")
        steps.detail = f"port {port}, {tls.version() if tls is not None else 'not encrypted'}{by}"
        writer.close()

    await steps.take("resolve", resolve)
    await steps.take("connect", connect)


def _trust(store: CloudStore[Any]) -> ssl.SSLContext:
    options = store.options
    if not options.verify:
        context = ssl.create_default_context()
        context.check_hostname, context.verify_mode = False, ssl.CERT_NONE
        return context
    bundle = certificates_file(options.ca_certificates) or os.environ.get("AWS_CA_BUNDLE")
    return tls_context(bundle) if bundle else ssl.create_default_context()


async def _list(location: Location, steps: _Steps) -> ObjectMeta | None:
    """The first object that is not empty."""
    prefix = location.key("") if location.path else ""
    metas = [meta async for meta in location.store.list(prefix, Selection(limit=100))]
    steps.detail = f"{len(metas)} objects{' or more' if len(metas) == 100 else ''}"
    return next((meta for meta in metas if meta.size_bytes), None)


async def _read(location: Location, meta: ObjectMeta | None, steps: _Steps) -> None:
    if meta is None:
        try:
            await location.store.get_range(location.key(PROBE + uuid.uuid4().hex), 0, 1)
        except NotFound:
            steps.detail = "nothing to read; the store reports missing objects"
        return
    end = min(meta.size_bytes, READ_BYTES)
    await location.store.get_range(meta.key, 0, end)
    steps.detail = f"{end:,} bytes of {meta.key}"


async def _create_twice(location: Location, steps: _Steps) -> None:
    store, key = location.store, location.key(PROBE + uuid.uuid4().hex)
    if not store.capabilities.conditional_create:
        steps.detail = f"not tried: the store {store.capabilities.create_refusal}"
        return
    try:
        await store.put(key, b"doctor", if_absent=True)
        try:
            await store.put(key, b"doctor", if_absent=True)
        except AlreadyExists:
            steps.detail = "honoured"
        else:
            raise OSError("a second writer replaced the object of the first one: commits need a commit_lock")
    finally:
        await runtime.to_the_end(store.delete([key]))


def _show(report: dict[str, Any]) -> Shown:
    """The report for people."""
    options = [(option["name"], option["value"], option["origin"]) for option in report["options"]]
    steps = [
        (step["step"], "ok" if step["ok"] else "FAILED", f"{1000 * step['seconds']:,.1f}", step["told"])
        for step in report["steps"]
    ]
    return [
        Pairs({"store": report["uri"]}),
        Table(["option", "value", "from"], options, title="settings"),
        Table(["step", "", ">ms", ""], steps),
    ]
