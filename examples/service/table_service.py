"""An HTTP service that answers from a table with a column `id`, and takes rows for it.

    python examples/service/table_service.py s3://bucket/orders.lance --port 8080

    GET  /rows/17                                    the row with this id: one `take`
    GET  /rows?filter=price > 40&columns=id&limit=5  rows that pass a filter
    POST /rows                                       rows as lines of JSON; answers when they are committed
    GET  /metrics                                    for Prometheus
    GET  /health                                     200 while answers are up to date, 503 otherwise

Filters may call the functions of `FUNCTIONS`, whose results are no longer than what they are made of. Numbers that
JSON does not have are texts: "NaN", "Infinity", "-Infinity".

Every answer is of one version. Appends that come together are one commit, and can be read by whoever got their answer.
Versions of other writers are seen within a second. SIGTERM: no new connections, requests under way are answered, and
rows that were acknowledged are there.
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
STALE_AFTER_S = 30.0  # without a look at the newest version
ROWS_MAX = 1000
BODY_BYTES_MAX = 8 << 20
DEPTH_MAX = 64
DIGITS_MAX = 20  # of an id that is a number
FILTER_LENGTH_MAX = 2000
FUNCTIONS = {"abs", "cast", "ceil", "coalesce", "floor", "length", "lower", "round", "starts_with", "trim", "upper"}
BEFORE_PARENTHESES = {"and", "between", "case", "decimal", "else", "in", "like", "not", "or", "then", "when"}
QUOTED = re.compile(r"""'[^']*'|"[^"]*"|`[^`]*`""")
QUOTED_JSON = re.compile(rb'"(?:[^"\\]|\\.)*"')
TOKEN = re.compile(rb"[\[\]{}]|[^\s\[\]{}]+")
CALLED = re.compile(r"(\w+)\s*\(")
REFUSED_BY_ARROW = (pa.ArrowInvalid, pa.ArrowNotImplementedError)
THEIR_FAULT = (BindError, EvaluationError, SchemaError, UsageError, UnicodeDecodeError, *REFUSED_BY_ARROW)


class Newest:
    """The newest version that is known, with where its rows are.

    table    the version
    row_ids  the row id of each `id`
    seen_at  when somebody last looked whether there is a newer one
    is_gone  the table was not there any more at that look
    """

    def __init__(self, table: lance_io.AsyncDataset) -> None:
        self.table = table
        self.row_ids: dict[object, int] = {}
        self.seen_at = time.monotonic()
        self.is_gone = False
        self._known: set[str] = set()  # fragments, by their first data file
        self._moving = asyncio.Lock()

    async def move(self, table: lance_io.AsyncDataset) -> None:
        """Go on with another version, if that is newer; reads the ids of fragments that are new in it."""
        async with self._moving:
            if self._known and table.version <= self.table.version:
                return
            fragments = {fragment.data_files()[0].path: fragment for fragment in table.get_fragments()}
            new = [fragment for path, fragment in fragments.items() if path not in self._known]
            added = await table.to_table(columns=["id"], with_row_id=True, fragments=new) if new else None
            if added is not None:  # from here on nobody else runs until both are there
                self.row_ids.update(zip(added["id"].to_pylist(), added["_rowid"].to_pylist(), strict=True))
            self._known = {*fragments}
            self.table, self.seen_at = table, time.monotonic()

    async def look(self) -> None:
        """Go to the newest version. One request, and more where there is a newer one. Raises `OSError`."""
        try:
            newest = await self.table.latest_version()
        except NotFound:
            self.is_gone = True
            raise
        self.is_gone = newest < self.table.version  # another table is in its place
        if newest > self.table.version:
            await self.move(await self.table.checkout_version(None))
        self.seen_at = time.monotonic()

    async def follow(self) -> None:
        """Look for versions of other writers, again and again: one request each time, which lists the newest."""
        while True:
            await asyncio.sleep(LOOK_EVERY_S)
            try:
                await self.look()
            except OSError as error:  # the store's: the next look may succeed, and until then /health tells
                print(f"no look at the newest version: {error}", flush=True)


NEWEST = web.AppKey("newest", Newest)
CALLS = web.AppKey("calls", metrics.CallRecorder)


def json_answer(value: object, status: int = 200) -> web.Response:
    """A value as JSON; what JSON lacks, such as times and infinite numbers, as text."""
    text = json.dumps(finite(value), default=str, allow_nan=False) + "\n"
    return web.Response(text=text, status=status, content_type="application/json")


def finite(value: object) -> object:
    """A value with texts for the numbers that JSON does not have."""
    if isinstance(value, float) and not math.isfinite(value):
        return "NaN" if math.isnan(value) else "Infinity" if value > 0 else "-Infinity"
    if isinstance(value, dict):
        return {name: finite(one) for name, one in value.items()}
    return [finite(one) for one in value] if isinstance(value, (list, tuple)) else value


async def get_row(request: web.Request) -> web.Response:
    """The row of one id, or 404."""
    newest, asked = request.app[NEWEST], request.match_info["id"]
    table = newest.table
    row_id = newest.row_ids.get(asked)
    if row_id is None and asked.isdecimal() and len(asked) <= DIGITS_MAX:
        row_id = newest.row_ids.get(int(asked))
    try:
        found = [] if row_id is None else (await table._take_rows([row_id], table.schema.names)).to_pylist()
    except UsageError:  # all rows of its fragment were deleted
        found = []
    if not found or str(found[0]["id"]) != asked:  # it was deleted, or its place is another row's now
        raise web.HTTPNotFound(text=f"no row has the id {asked}\n")
    return json_answer({"version": table.version, "row": found[0]})


async def search_rows(request: web.Request) -> web.Response:
    """Rows that pass a filter."""
    query, table = request.query, request.app[NEWEST].table
    columns = query["columns"].split(",") if "columns" in query else None
    limit = query.get("limit", "100")
    if not limit.isdecimal() or len(limit) > DIGITS_MAX or int(limit) > ROWS_MAX:
        raise web.HTTPBadRequest(text=f"limit is a number up to {ROWS_MAX}, not {limit[:DIGITS_MAX]!r}\n")
    check_filter(query.get("filter", ""))
    found = await table.to_table(columns, query.get("filter"), limit=int(limit))
    return json_answer({"version": table.version, "rows": found.to_pylist()})


def check_filter(text: str) -> None:
    """Refuse what could take far more time and memory than its rows, such as `repeat(name, 100000000)`."""
    if len(text) > FILTER_LENGTH_MAX:
        raise web.HTTPBadRequest(text=f"a filter has at most {FILTER_LENGTH_MAX} characters, not {len(text)}\n")
    outside = QUOTED.sub("quoted", text)
    if "--" in outside or "/*" in outside:
        raise web.HTTPBadRequest(text="a filter has no comments\n")
    refused = sorted({name.lower() for name in CALLED.findall(outside)} - FUNCTIONS - BEFORE_PARENTHESES)
    if refused:
        raise web.HTTPBadRequest(text=f"filters may call {', '.join(sorted(FUNCTIONS))}, not {', '.join(refused)}\n")


async def add_rows(request: web.Request) -> web.Response:
    """Append rows; answers when they are in a version, and lookups find them."""
    newest, body = request.app[NEWEST], await request.read()
    rows = await asyncio.to_thread(parse_rows, body, newest.table.schema)
    made = await lance_io.AsyncDataset.write(rows, newest.table, mode="append", group_commit=True)
    await newest.move(made)
    return json_answer({"version": made.version, "added": rows.num_rows}, status=201)


def check_nesting(body: bytes) -> None:
    """Refuse rows that are no objects, and values more than `DEPTH_MAX` levels deep: Arrow's parser crashes on both."""
    depth = 0
    for match in TOKEN.finditer(QUOTED_JSON.sub(b"0", body)):
        token = match[0]
        if not depth and token != b"{":
            raise pa.ArrowInvalid("each row is an object: {...}")
        depth += (token in (b"[", b"{")) - (token in (b"]", b"}"))
        if depth > DEPTH_MAX:
            raise pa.ArrowInvalid(f"values lie more than {DEPTH_MAX} levels deep")


def parse_rows(body: bytes, schema: pa.Schema) -> pa.Table:
    """Lines of JSON as a table.

    Raises `pa.ArrowInvalid` for what the schema does not have, and `UnicodeDecodeError` for what is not UTF-8: in a
    commit with others it would be found too late for those.
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
    """The numbers of this process."""
    return web.Response(text=metrics.prometheus_text(request.app[CALLS]))


async def show_health(request: web.Request) -> web.Response:
    """Which version is served; 503 where the table is gone, or nobody could look for a newer version for a while."""
    newest = request.app[NEWEST]
    is_fresh = not newest.is_gone and time.monotonic() - newest.seen_at < STALE_AFTER_S
    told = {"version": newest.table.version, "rows": await newest.table.count_rows(), "fresh": is_fresh}
    return json_answer(told, status=200 if is_fresh else 503)


@web.middleware
async def tell_whose_fault(
    request: web.Request, handler: Callable[[web.Request], Awaitable[web.StreamResponse]]
) -> web.StreamResponse:
    """Errors as answers: 400 where the request is wrong, 503 where the table is gone, 504 where there was no time.

    The rest is logged, and 500.
    """
    try:
        async with asyncio.timeout(ANSWER_WITHIN_S):
            return await handler(request)
    except THEIR_FAULT as error:
        raise web.HTTPBadRequest(text=f"{error}\n") from error
    except NotFound as error:
        raise web.HTTPServiceUnavailable(text="the table is not there\n") from error
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

    app = web.Application(middlewares=[tell_whose_fault], client_max_size=BODY_BYTES_MAX)
    app.cleanup_ctx.append(open_table)
    app.add_routes([web.get("/rows/{id}", get_row), web.get("/rows", search_rows), web.post("/rows", add_rows)])
    app.add_routes([web.get("/metrics", show_metrics), web.get("/health", show_health)])
    return app


def main() -> None:
    """Serve until SIGTERM or Ctrl-C."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("uri", help="of a table with a column `id`")
    parser.add_argument("--port", type=int, default=8080, help="0 takes a free one")
    arguments = parser.parse_args()
    listener = socket.create_server(("127.0.0.1", arguments.port))
    print(f"http://127.0.0.1:{listener.getsockname()[1]}", flush=True)
    app = make_app(arguments.uri)
    web.run_app(app, sock=listener, print=None, access_log=None, shutdown_timeout=ANSWER_WITHIN_S)


if __name__ == "__main__":
    main()
