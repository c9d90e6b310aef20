"""An HTTP service that reads and appends rows of a table with a column `id`.

    python examples/service/table_service.py s3://bucket/orders.lance --port 8080

    GET  /rows/17                                    the row with this id: one `take`
    GET  /rows?filter=price > 40&columns=id&limit=5  rows that pass a filter
    GET  /search?words=iced+tea&limit=5              rows that match words best, by a full-text index
    GET  /near?column=v&q=0.1,0.2&filter=price > 40  rows whose vectors are nearest to one, among those of a filter
    POST /rows                                       rows as lines of JSON; answers when they are committed
    GET  /metrics                                    metrics for Prometheus
    GET  /health                                     200 while answers are up to date, 503 otherwise

Filters may call only the functions in `FUNCTIONS`, whose results are no longer than their arguments. Numbers that JSON
does not have are texts: "NaN", "Infinity", "-Infinity".

Every answer is from a single version. Concurrent appends share a commit; once a client has its answer, reads find the
rows. The service sees versions of other writers within a second. On SIGTERM it accepts no new connections and answers
running requests; acknowledged rows are in the table.
"""

import argparse
import asyncio
import io
import json
import math
import re
import socket
import time
from collections.abc import AsyncIterator, Awaitable, Callable

import pyarrow as pa
import pyarrow.json as pj
from aiohttp import web

import lance_io
from lance_io import metrics
from lance_io.errors import BindError, EvaluationError, NotFound, SchemaError, UsageError

LOOK_EVERY_S = 1.0
ANSWER_WITHIN_S = 10.0
STALE_AFTER_S = 30.0  # since the last successful check for a newer version
ROWS_MAX = 1000
PROBES = 20  # partitions of a vector index that a search reads
BODY_BYTES_MAX = 8 << 20
DEPTH_MAX = 64
DIGITS_MAX = 20  # of a numeric id
FILTER_LENGTH_MAX = 2000
FUNCTIONS = {"abs", "cast", "ceil", "coalesce", "floor", "length", "lower", "round", "starts_with", "trim", "upper"}
BEFORE_PARENTHESES = {"and", "between", "case", "decimal", "else", "in", "like", "not", "or", "then", "when"}
QUOTED = re.compile(r"""'[^']*'|"[^"]*"|`[^`]*`""")
QUOTED_JSON = re.compile(rb'"(?:[^"\\]|\\.)*"')
TOKEN = re.compile(rb"[\[\]{}]|[^\s\[\]{}]+")
CALLED = re.compile(r"(\w+)\s*\(")
REFUSED_BY_ARROW = (pa.ArrowInvalid, pa.ArrowNotImplementedError)
CLIENT_ERRORS = (BindError, EvaluationError, SchemaError, UsageError, UnicodeDecodeError, *REFUSED_BY_ARROW)


class Newest:
    """The newest known version, with an index of its rows.

    table    the version
    row_ids  row id by `id`
    seen_at  time of the last successful check for a newer version
    is_gone  whether the table did not exist at the last check
    """

    def __init__(self, table: lance_io.AsyncDataset) -> None:
        self.table = table
        self.row_ids: dict[object, int] = {}
        self.seen_at = time.monotonic()
        self.is_gone = False
        self._known: set[str] = set()  # fragments, by their first data file
        self._moving = asyncio.Lock()

    async def move(self, table: lance_io.AsyncDataset) -> None:
        """Switch to another version if it is newer; reads the ids of its new fragments."""
        async with self._moving:
            if self._known and table.version <= self.table.version:
                return
            fragments = {fragment.data_files()[0].path: fragment for fragment in table.get_fragments()}
            new = [fragment for path, fragment in fragments.items() if path not in self._known]
            added = await table.to_table(columns=["id"], with_row_id=True, fragments=new) if new else None
            if added is not None:  # no `await` from here on: other tasks see both changes or none
                self.row_ids.update(zip(added["id"].to_pylist(), added["_rowid"].to_pylist(), strict=True))
            self._known = {*fragments}
            self.table, self.seen_at = table, time.monotonic()

    async def look(self) -> None:
        """Switch to the newest version. One request, and more if there is a newer version. Raises `OSError`."""
        try:
            newest = await self.table.latest_version()
        except NotFound:
            self.is_gone = True
            raise
        self.is_gone = newest < self.table.version  # another table has replaced it
        if newest > self.table.version:
            await self.move(await self.table.checkout_version(None))
        self.seen_at = time.monotonic()

    async def follow(self) -> None:
        """Poll for versions of other writers: one request each time, which lists the newest."""
        while True:
            await asyncio.sleep(LOOK_EVERY_S)
            try:
                await self.look()
            except OSError as error:  # of the store: the next check may succeed, and /health shows the failure
                print(f"cannot check for a newer version: {error}", flush=True)


NEWEST = web.AppKey("newest", Newest)
CALLS = web.AppKey("calls", metrics.CallRecorder)


def json_answer(value: object, status: int = 200) -> web.Response:
    """A value as JSON; values that JSON lacks, such as times and infinite numbers, as text."""
    text = json.dumps(finite(value), default=str, allow_nan=False) + "\n"
    return web.Response(text=text, status=status, content_type="application/json")


def finite(value: object) -> object:
    """A value with texts for the numbers that JSON does not have."""
    if isinstance(value, float) and not math.isfinite(value):
        return "NaN" if math.isnan(value) else "Infinity" if value > 0 else "-Infinity"
    if isinstance(value, dict):
        return {name: finite(member) for name, member in value.items()}
    return [finite(item) for item in value] if isinstance(value, (list, tuple)) else value


async def get_row(request: web.Request) -> web.Response:
    """The row of one id, or 404."""
    newest, asked = request.app[NEWEST], request.match_info["id"]
    table = newest.table
    row_id = newest.row_ids.get(asked)
    if row_id is None and asked.isdecimal() and len(asked) <= DIGITS_MAX:
        row_id = newest.row_ids.get(int(asked))
    try:
        rows = [] if row_id is None else (await table._take_rows([row_id], table.schema.names)).to_pylist()
    except UsageError:  # all rows of its fragment were deleted
        rows = []
    if not rows or str(rows[0]["id"]) != asked:  # the row was deleted, or another row has its row id now
        raise web.HTTPNotFound(text=f"no row has the id {asked}\n")
    return json_answer({"version": table.version, "row": rows[0]})


async def search_rows(request: web.Request) -> web.Response:
    """Rows that pass a filter."""
    query, table = request.query, request.app[NEWEST].table
    columns = query["columns"].split(",") if "columns" in query else None
    limit = query.get("limit", "100")
    if not limit.isdecimal() or len(limit) > DIGITS_MAX or int(limit) > ROWS_MAX:
        raise web.HTTPBadRequest(text=f"limit is a number up to {ROWS_MAX}, not {limit[:DIGITS_MAX]!r}\n")
    check_filter(query.get("filter", ""))
    matches = await table.to_table(columns, query.get("filter"), limit=int(limit))
    return json_answer({"version": table.version, "rows": matches.to_pylist()})


def check_filter(text: str) -> None:
    """Refuse filters that could take far more time and memory than their rows, such as `repeat(name, 100000000)`."""
    if len(text) > FILTER_LENGTH_MAX:
        raise web.HTTPBadRequest(text=f"a filter has at most {FILTER_LENGTH_MAX} characters, not {len(text)}\n")
    outside = QUOTED.sub("quoted", text)
    if "--" in outside or "/*" in outside:
        raise web.HTTPBadRequest(text="a filter has no comments\n")
    refused = sorted({name.lower() for name in CALLED.findall(outside)} - FUNCTIONS - BEFORE_PARENTHESES)
    if refused:
        raise web.HTTPBadRequest(text=f"filters may call {', '.join(sorted(FUNCTIONS))}, not {', '.join(refused)}\n")


async def search_texts(request: web.Request) -> web.Response:
    """The rows that match words best, by the full-text indices of the table."""
    words, table = request.query.get("words", ""), request.app[NEWEST].table
    limit = request.query.get("limit", "10")
    if not limit.isdecimal() or len(limit) > DIGITS_MAX or int(limit) > ROWS_MAX:
        raise web.HTTPBadRequest(text=f"limit is a number up to {ROWS_MAX}, not {limit[:DIGITS_MAX]!r}\n")
    if not words or len(words) > FILTER_LENGTH_MAX:
        raise web.HTTPBadRequest(text=f"words: expected 1 to {FILTER_LENGTH_MAX} characters, found {len(words)}\n")
    matches = await table.to_table(full_text_query=words, limit=int(limit))
    return json_answer({"version": table.version, "rows": matches.to_pylist()})


async def search_vectors(request: web.Request) -> web.Response:
    """The rows whose vectors are nearest to one, among those that pass a filter; by an index, if the table has one."""
    query, table = request.query, request.app[NEWEST].table
    limit, texts = query.get("limit", "10"), query.get("q", "").split(",")
    if not limit.isdecimal() or len(limit) > DIGITS_MAX or not 0 < int(limit) <= ROWS_MAX:
        raise web.HTTPBadRequest(text=f"limit is a number from 1 to {ROWS_MAX}, not {limit[:DIGITS_MAX]!r}\n")
    try:
        numbers = [float(text) for text in texts]
    except ValueError as error:
        raise web.HTTPBadRequest(text="q has the numbers of a vector, separated by commas\n") from error
    check_filter(query.get("filter", ""))
    nearest = {"column": query.get("column", ""), "q": numbers, "k": int(limit), "nprobes": PROBES}
    matches = await table.to_table(None, query.get("filter"), nearest=nearest, prefilter=True)
    return json_answer({"version": table.version, "rows": matches.to_pylist()})


async def add_rows(request: web.Request) -> web.Response:
    """Append rows; answers when they are committed and lookups find them."""
    newest, body = request.app[NEWEST], await request.read()
    rows = await asyncio.to_thread(parse_rows, body, newest.table.schema)
    written = await lance_io.AsyncDataset.write(rows, newest.table, mode="append", group_commit=True)
    await newest.move(written)
    return json_answer({"version": written.version, "added": rows.num_rows}, status=201)


def check_nesting(body: bytes) -> None:
    """Refuse rows that are not objects, and values nested deeper than `DEPTH_MAX`: Arrow's parser crashes on both."""
    depth = 0
    for match in TOKEN.finditer(QUOTED_JSON.sub(b"0", body)):
        token = match[0]
        if not depth and token != b"{":
            raise pa.ArrowInvalid("each row is an object: {...}")
        depth += (token in (b"[", b"{")) - (token in (b"]", b"}"))
        if depth > DEPTH_MAX:
            raise pa.ArrowInvalid(f"values are nested more than {DEPTH_MAX} levels deep")


def parse_rows(body: bytes, schema: pa.Schema) -> pa.Table:
    """Parse lines of JSON to a table.

    Raises `pa.ArrowInvalid` for values that do not fit the schema, and `UnicodeDecodeError` for bytes that are not
    UTF-8. Later, in a shared commit, the error would fail other appends, too.
    """
    body.decode()
    check_nesting(body)
    fields = [
        field.with_type(pa.list_(field.type.value_type)) if isinstance(field.type, pa.FixedSizeListType) else field
        for field in schema
    ]
    options = pj.ParseOptions(explicit_schema=pa.schema(fields), unexpected_field_behavior="error")
    return pj.read_json(io.BytesIO(body), parse_options=options).cast(schema)


async def show_metrics(request: web.Request) -> web.Response:
    """The metrics of this process."""
    return web.Response(text=metrics.prometheus_text(request.app[CALLS]))


async def show_health(request: web.Request) -> web.Response:
    """The served version; 503 if the table is gone, or if checks for a newer version have failed for a while."""
    newest = request.app[NEWEST]
    is_fresh = not newest.is_gone and time.monotonic() - newest.seen_at < STALE_AFTER_S
    health = {"version": newest.table.version, "rows": await newest.table.count_rows(), "fresh": is_fresh}
    return json_answer(health, status=200 if is_fresh else 503)


@web.middleware
async def answer_errors(
    request: web.Request, handler: Callable[[web.Request], Awaitable[web.StreamResponse]]
) -> web.StreamResponse:
    """Turn errors into answers: 400 for an invalid request, 503 if the table is gone, 504 after a timeout.

    Other errors are logged, and answered with 500.
    """
    try:
        async with asyncio.timeout(ANSWER_WITHIN_S):
            return await handler(request)
    except CLIENT_ERRORS as error:
        raise web.HTTPBadRequest(text=f"{error}\n") from error
    except NotFound as error:
        raise web.HTTPServiceUnavailable(text="the table does not exist\n") from error
    except TimeoutError as error:
        raise web.HTTPGatewayTimeout(text=f"no answer within {ANSWER_WITHIN_S:g} s\n") from error


def make_app(uri: str) -> web.Application:
    """The service of one table."""

    async def open_table(app: web.Application) -> AsyncIterator[None]:
        app[CALLS] = metrics.CallRecorder()
        async with lance_io.AsyncDataset.open(uri) as table:
            app[NEWEST] = Newest(table)
            await app[NEWEST].move(table)
            following = asyncio.create_task(app[NEWEST].follow())
            yield
            following.cancel()
            await asyncio.wait([following])
        app[CALLS].stop()

    app = web.Application(middlewares=[answer_errors], client_max_size=BODY_BYTES_MAX)
    app.cleanup_ctx.append(open_table)
    app.add_routes([web.get("/rows/{id}", get_row), web.get("/rows", search_rows), web.post("/rows", add_rows)])
    app.add_routes([web.get("/search", search_texts), web.get("/near", search_vectors)])
    app.add_routes([web.get("/metrics", show_metrics), web.get("/health", show_health)])
    return app


def main() -> None:
    """Serve until SIGTERM or Ctrl-C."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("uri", help="URI of a table with a column `id`")
    parser.add_argument("--port", type=int, default=8080, help="0 uses a free port (default: 8080)")
    arguments = parser.parse_args()
    listener = socket.create_server(("127.0.0.1", arguments.port))
    print(f"http://127.0.0.1:{listener.getsockname()[1]}", flush=True)
    app = make_app(arguments.uri)
    web.run_app(app, sock=listener, print=None, access_log=None, shutdown_timeout=ANSWER_WITHIN_S)


if __name__ == "__main__":
    main()
