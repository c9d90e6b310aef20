"""Rows of an external manifest store in DynamoDB (spec: commit, section 7.1).

    base_uri   S   hash key: key prefix of the table's folder, without bucket and scheme
    version    N   range key
    path       S   key of the manifest
    committer  S   `lancedb`, as all writers of this layout say
    size       N   bytes of the manifest; missing in rows of old releases

The user creates the database table; its keys are checked once per process. Reads are strongly consistent. A retried
write may meet its own result: on `AlreadyExists` the writer reads the row back and looks for its own path.
"""

from __future__ import annotations

import asyncio
import weakref
from contextlib import AsyncExitStack
from dataclasses import dataclass
from functools import partial
from typing import TYPE_CHECKING, Any, Final

from lance_io import runtime
from lance_io.commit.external import Row
from lance_io.errors import AccessDenied, AlreadyExists, FormatError, LanceError, NotFound, UsageError
from lance_io.redaction import hide_secrets
from lance_io.store.cloud.renewal import Generations
from lance_io.store.counters import StoreStats
from lance_io.store.failures import OutcomeUnknown, StoreFailure, Throttled, Transient, request_id_of
from lance_io.store.s3.client_sends import SendCounter, counted_sends, follow_sends
from lance_io.store.s3.loop_state import credentials_of, load_library, make_session
from lance_io.store.s3.server_clock import SKEWED_ELSEWHERE, ServerClock
from lance_io.store.s3.service_clients import ATTEMPTS, service_config

if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping

    from lance_io.plans.plan import Plan
    from lance_io.store.s3.bucket_options import S3Options
    from lance_io.store.s3.credentials import Chain, ProvidedKeys

COMMITTER: Final = "lancedb"
_KEYS: Final = {"base_uri": ("HASH", "S"), "version": ("RANGE", "N")}
_CONDITION_FAILED: Final = "ConditionalCheckFailedException"
_THROTTLED: Final = frozenset(
    {"ProvisionedThroughputExceededException", "ThrottlingException", "RequestLimitExceeded", "LimitExceededException"}
)
_REFUSED: Final = frozenset({"ExpiredTokenException", "InvalidSignatureException", "UnrecognizedClientException"})
_DENIED: Final = _REFUSED | {"AccessDeniedException"}
_VERSION_MAX: Final = (1 << 64) - 1

_checked: set[tuple[str | None, str | None, str]] = set()  # endpoint, region and table


class DynamoManifestStore:
    """The rows of one DynamoDB table. Usable from any event loop; `repr` shows no credentials.

    table     name of the table
    options   options of the bucket: credentials, region, timeouts
    endpoint  URL of the service, None for Amazon's
    """

    answers_sync = False

    def __init__(self, table: str, options: S3Options, endpoint: str | None = None) -> None:
        self.table = table
        self._options = options
        self._endpoint = endpoint
        self._stats = StoreStats()
        self._clients: weakref.WeakKeyDictionary[asyncio.AbstractEventLoop, _Client] = weakref.WeakKeyDictionary()
        weakref.finalize(self, _release, self._clients).atexit = False

    def __repr__(self) -> str:
        return f"DynamoManifestStore({self.table!r})"

    def check(self) -> Plan[None]:
        """Check the keys of the database table, once per process. Raises `UsageError` if they are wrong."""
        identity = (self._endpoint, self._options.region, self.table)
        if identity in _checked:
            return
        answer = yield self._ask("describe_table")
        described = answer["Table"]
        types = {each["AttributeName"]: each["AttributeType"] for each in described.get("AttributeDefinitions", ())}
        keys = {each["AttributeName"]: each["KeyType"] for each in described.get("KeySchema", ())}
        actual = {name: (kind, types.get(name)) for name, kind in keys.items()}
        if actual != _KEYS:
            raise UsageError(
                f"DynamoDB table {self.table!r}: expected the keys base_uri (HASH, S) and version (RANGE, N), "
                f"found {actual}"
            )
        _checked.add(identity)

    def get(self, base: str, version: int) -> Plan[Row | None]:
        """See `ExternalManifestStore`."""
        key = {"base_uri": {"S": base}, "version": {"N": str(version)}}
        answer = yield self._ask("get_item", Key=key, ConsistentRead=True)
        item = answer.get("Item")
        return None if not item else _decode(item)

    def get_latest(self, base: str) -> Plan[Row | None]:
        """See `ExternalManifestStore`."""
        answer = yield self._ask(
            "query",
            ConsistentRead=True,
            KeyConditionExpression="base_uri = :base_uri",
            ExpressionAttributeValues={":base_uri": {"S": base}},
            ScanIndexForward=False,
            Limit=1,
        )
        items = answer.get("Items") or ()
        return _decode(items[0]) if items else None

    def put_if_absent(self, base: str, row: Row) -> Plan[None]:
        """See `ExternalManifestStore`."""
        condition = "attribute_not_exists(base_uri) AND attribute_not_exists(version)"
        yield self._ask("put_item", Item=_encode(base, row), ConditionExpression=condition)

    def put_if_present(self, base: str, row: Row) -> Plan[None]:
        """See `ExternalManifestStore`."""
        condition = "attribute_exists(base_uri) AND attribute_exists(version)"
        try:
            yield self._ask("put_item", Item=_encode(base, row), ConditionExpression=condition)
        except AlreadyExists as error:
            raise NotFound(f"there is no row of version {row.version}", path=base) from error

    def list_rows(self, base: str) -> Plan[list[Row]]:
        """See `ExternalManifestStore`."""
        rows: list[Row] = []
        more: dict[str, Any] = {}
        while True:
            answer = yield self._ask(
                "query",
                ConsistentRead=True,
                KeyConditionExpression="base_uri = :base_uri",
                ExpressionAttributeValues={":base_uri": {"S": base}},
                **more,
            )
            rows += [_decode(item) for item in answer.get("Items") or ()]
            if not answer.get("LastEvaluatedKey"):
                return rows
            more = {"ExclusiveStartKey": answer["LastEvaluatedKey"]}

    def remove_same(self, base: str, row: Row) -> Plan[bool]:
        """See `ExternalManifestStore`."""
        names, values = {"#path": "path", "#size": "size"}, {":path": {"S": row.path}}
        condition = "#path = :path AND attribute_not_exists(#size)"
        if row.size_bytes is not None:
            values[":size"] = {"N": str(row.size_bytes)}
            condition = "#path = :path AND #size = :size"
        try:
            yield self._ask(
                "delete_item",
                Key={"base_uri": {"S": base}, "version": {"N": str(row.version)}},
                ConditionExpression=condition,
                ExpressionAttributeNames=names,
                ExpressionAttributeValues=values,
            )
        except AlreadyExists:  # the condition does not hold
            return False
        return True

    async def aclose(self) -> None:
        """Close the client of the running loop."""
        client = self._clients.pop(asyncio.get_running_loop(), None)
        if client is not None:
            await client.close()

    def _ask(self, operation: str, **arguments: Any) -> _Call:
        return _Call(self, operation, {"TableName": self.table, **arguments})

    async def request(self, operation: str, arguments: Mapping[str, Any]) -> Any:
        """Make a request to the database; retried with other credentials, if there are any, when it refuses them.

        Raises `LanceError`.
        """
        await load_library()
        loop = asyncio.get_running_loop()
        client = self._clients.get(loop)
        if client is None:
            client = self._clients[loop] = _Client(self._options, self._endpoint)
        with counted_sends(partial(self._stats.sent_again, "database")) as sends:
            try:
                answer = await self._request_counted(client, operation, arguments, sends)
            except BaseException:
                if sends.num_sent:
                    self._stats.error("database")
                raise
            self._stats.count("database", self.table, 0)
            return answer

    async def _request_counted(
        self, client: _Client, operation: str, arguments: Mapping[str, Any], sends: SendCounter
    ) -> Any:
        from botocore.exceptions import BotoCoreError, ClientError

        is_renewed = False
        while True:
            generation = client.credentials.generation
            try:
                opened = await client.get()
            except LanceError as error:
                error.path = self._table_name
                raise
            try:
                return await getattr(opened, operation)(**arguments)
            except (TimeoutError, ClientError, BotoCoreError, OSError) as error:
                failure, is_refused = self._as_ours(error, operation, client.secrets)
                failure.attempts = max(1, sends.num_sent)
            if is_renewed or not is_refused or not await self._renewed(client, generation, failure):
                raise failure from None
            is_renewed = True

    async def _renewed(self, client: _Client, refused: int, failure: LanceError) -> bool:
        try:
            return await client.credentials.renewed(refused)
        except LanceError as error:
            error.copy_request_info(failure).path = self._table_name
            raise

    def _as_ours(self, error: Exception, operation: str, secrets: Iterable[str]) -> tuple[LanceError, bool]:
        """Our error for an error of the client, and whether the database refused the credentials.

        secrets  texts that must not appear in its message
        """
        raw_response = getattr(error, "response", None)
        response: dict[str, Any] = raw_response if isinstance(raw_response, dict) else {}
        details, metadata = response.get("Error", {}), response.get("ResponseMetadata", {})
        status = metadata.get("HTTPStatusCode", 0)
        code, text = str(details.get("Code", "")), str(details.get("Message", "")) or type(error).__name__
        secrets = tuple(secrets)
        code, text = hide_secrets(code, secrets), hide_secrets(text, secrets)
        failure = _error(code, status, text, self._table_name, operation)
        request_id = request_id_of(metadata.get("HTTPHeaders", {}))
        failure.request_id = None if request_id is None else hide_secrets(request_id, secrets)
        return failure, code in _REFUSED

    @property
    def _table_name(self) -> str:
        return f"DynamoDB table {self.table}"


def _error(code: str, status: int, text: str, table: str, operation: str) -> LanceError:
    known: dict[str, Any] = {"path": table, "operation": operation, "status": status or None}
    if code == _CONDITION_FAILED:
        return AlreadyExists("the condition of the write does not hold: there is such a row", path=table)
    if code == "ResourceNotFoundException":
        return NotFound(f"there is no such table, or it is not ready: {text}", path=table)
    if code in _DENIED:
        return AccessDenied(f"{code}: {text}", path=table)
    if code in _THROTTLED:
        return Throttled(f"the database asks for fewer requests: {code}: {text}", **known)
    if not code or status >= 500:
        kind = OutcomeUnknown if operation == "put_item" else Transient
        return kind(f"no certain answer: {code} {text}".rstrip(), **known)
    return StoreFailure(f"{code}: {text}", **known)


@dataclass(frozen=True, slots=True)
class _Call:
    """One request to the database, as a request of a plan."""

    store: DynamoManifestStore
    operation: str
    arguments: Mapping[str, Any]

    def answer_sync(self) -> Any:
        """Not possible: the client needs an event loop."""
        raise UsageError("DynamoDB cannot be asked without an event loop")

    async def answer_async(self) -> Any:
        """See `Request`."""
        return await self.store.request(self.operation, self.arguments)


class _Client:
    """aiobotocore's client for one event loop, opened by the first request."""

    def __init__(self, options: S3Options, endpoint: str | None) -> None:
        self._options = options
        self._endpoint = endpoint
        self._stack = AsyncExitStack()
        self._lock = asyncio.Lock()
        self._session: Any = None
        self._chain: Chain | ProvidedKeys | None = None
        self.credentials = Generations(self._ask_again, "dynamodb")
        self.clock = ServerClock(SKEWED_ELSEWHERE)
        self._client: Any = None
        if runtime.on_engine_thread():
            runtime.on_engine_close(self.close)

    async def get(self) -> Any:
        """The client, after loading the credentials: without them nothing is sent. Raises `LanceError`."""
        async with self._lock:
            if self._client is None:
                self._session, self._chain = make_session(self._options, "dynamodb")
                if self._chain is not None:
                    self._stack.push_async_callback(self._chain.close)
                self._stack.push_async_callback(self.credentials.close)
                client = await self._stack.enter_async_context(self._open())
                self.clock.follow(client.meta.events, "dynamodb")
                follow_sends(client.meta.events, "dynamodb")
                self._client = client
        await credentials_of(self._session)
        return self._client

    @property
    def secrets(self) -> tuple[str, ...]:
        """Texts that must not appear in messages: the credentials from the options and those from the chain."""
        from_chain = () if self._chain is None else self._chain.secrets
        return (*self._options.secrets, *from_chain)

    async def _ask_again(self) -> bool:
        return self._chain is not None and await self._chain.search_again()

    def _open(self) -> Any:
        options, session = self._options, self._session
        config = service_config(options, "dynamodb", self._endpoint, min(ATTEMPTS, options.retry.attempts_max))
        region = options.region or session.get_config_variable("region") or "us-east-1"
        return session.create_client("dynamodb", region_name=region, endpoint_url=self._endpoint, config=config)

    async def close(self) -> None:
        """Close the client. Must run on its own loop."""
        self._client = None
        await self._stack.aclose()


def _release(clients: weakref.WeakKeyDictionary[asyncio.AbstractEventLoop, _Client]) -> None:
    """Close all clients on their loops, if those still run. Called when the store is garbage-collected."""
    for loop, client in list(clients.items()):
        runtime.close_soon(loop, client.close)


def _encode(base: str, row: Row) -> dict[str, Any]:
    item = {
        "base_uri": {"S": base},
        "version": {"N": str(row.version)},
        "path": {"S": row.path},
        "committer": {"S": COMMITTER},
    }
    if row.size_bytes is not None:
        item["size"] = {"N": str(row.size_bytes)}
    return item


def _decode(item: Mapping[str, Any]) -> Row:
    """Decode a row; ignores unknown attributes. Raises `FormatError`."""
    version, size = _number(item, "version"), _number(item, "size") if "size" in item else None
    path = item.get("path", {}).get("S")
    if version is None or not isinstance(path, str) or not path:
        raise FormatError(f"DynamoDB: a row without version or path: {sorted(item)}")
    return Row(version, path, size)


def _number(item: Mapping[str, Any], name: str) -> int | None:
    text = item.get(name, {}).get("N")
    if text is None:
        return None
    if not str(text).isdecimal() or int(text) > _VERSION_MAX:
        raise FormatError(f"DynamoDB: expected a number as {name!r}, found {str(text)[:40]!r}")
    return int(text)
