"""An HTTP service that serves the newest version of a table.

    python examples/pipeline/service.py s3://bucket/texts.lance        prints its address, with a free port

    GET /rows/17    {"version": 3, "rows": 24000, "row": {"id": 17, "text": ...}}
    GET /table      {"version": 3, "rows": 24000, "since": 1795276800.25}

Every request reads from a single version: the newest one when the request begins.
"""

from __future__ import annotations

import asyncio
import socket
import sys
import time
from collections.abc import AsyncIterator

from aiohttp import web

import lance_io

LOOK_EVERY_S = 0.2


class Newest:
    """The newest known version of a table, and the time `since` it is known."""

    def __init__(self, table: lance_io.AsyncDataset) -> None:
        self.table = table
        self.since = time.time()

    async def follow(self) -> None:
        """Poll for a new version: one request each time, which lists the newest."""
        while True:
            await asyncio.sleep(LOOK_EVERY_S)
            version = await self.table.latest_version()
            if version != self.table.version:  # running requests keep reading the older version
                self.table, self.since = await self.table.checkout_version(version), time.time()


NEWEST = web.AppKey("newest", Newest)
FOLLOWING = web.AppKey("following", asyncio.Task[None])


async def answer_row(request: web.Request) -> web.Response:
    """The row of an id, without its vector: by the index, and in rows that it does not cover yet."""
    table = request.app[NEWEST].table
    version, rows = table.version, await table.count_rows()
    columns = [name for name in table.schema.names if name != "vector"]
    row_id = int(request.match_info["id"])
    matches = await table.get("id", [row_id], columns=columns)
    if not matches.num_rows:
        raise web.HTTPNotFound(text=f"version {version} has no row {row_id}\n")
    return web.json_response({"version": version, "rows": rows, "row": matches.to_pylist()[0]})


async def answer_table(request: web.Request) -> web.Response:
    """The served version."""
    if request.app[FOLLOWING].done():
        request.app[FOLLOWING].result()  # raises the error that ended it
    newest = request.app[NEWEST]
    table = newest.table
    return web.json_response({"version": table.version, "rows": await table.count_rows(), "since": newest.since})


def make_app(uri: str) -> web.Application:
    """The service of one table."""

    async def open_table(app: web.Application) -> AsyncIterator[None]:
        async with lance_io.AsyncDataset.open(uri) as table:
            app[NEWEST] = Newest(table)
            app[FOLLOWING] = asyncio.create_task(app[NEWEST].follow())
            yield
            app[FOLLOWING].cancel()
            await asyncio.wait([app[FOLLOWING]])

    app = web.Application()
    app.cleanup_ctx.append(open_table)
    app.add_routes([web.get(r"/rows/{id:\d{1,18}}", answer_row), web.get("/table", answer_table)])
    return app


if __name__ == "__main__":
    listener = socket.create_server(("127.0.0.1", 0))
    print(f"http://127.0.0.1:{listener.getsockname()[1]}", flush=True)
    web.run_app(make_app(sys.argv[1]), sock=listener, print=None, access_log=None)
