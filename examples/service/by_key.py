"""An HTTP service for look-ups by key, answered from an index of the table: `GET /orders/17`, `POST /orders`.

    ORDERS_URI=s3://bucket/orders.lance python examples/service/by_key.py        (examples/README.md creates the table)

The service builds a BTREE index of `id` if there is none, and loads it once. From then on a look-up is two requests to
the bucket, or one if its page of the index is in memory; nothing else of the column is ever read. Rows that other
writers append are found, too: the service looks for a newer version every second.
"""

import asyncio
import contextlib
import os
from collections.abc import AsyncIterator

from aiohttp import web

import lance_io
from lance_io.errors import LanceError, UsageError

TABLE = web.AppKey("table", lance_io.AsyncDataset)
COLUMNS = ["id", "drink", "quantity", "tags"]
KEYS_MAX = 1000


async def open_table(app: web.Application) -> AsyncIterator[None]:
    """Open the table and load its index when the service starts; close it when the service ends."""
    async with lance_io.AsyncDataset.open(os.environ["ORDERS_URI"]) as table:
        if "id_idx" not in [index.name for index in await table.describe_indices()]:
            await table.create_scalar_index("id", "BTREE")
        await table.prewarm_index("id_idx")
        app[TABLE] = table
        refresh = asyncio.create_task(follow(table))
        yield
        refresh.cancel()
        with contextlib.suppress(asyncio.CancelledError):
            await refresh


async def follow(table: lance_io.AsyncDataset) -> None:
    """Go on to newer versions."""
    while True:
        await asyncio.sleep(1)
        with contextlib.suppress(LanceError):  # the next second is another chance
            await table.checkout_latest()


async def look_up(request: web.Request) -> web.Response:
    """The rows of one key as JSON; 404 if there is none."""
    try:
        rows = await request.app[TABLE].get("id", [int(request.match_info["id"])], COLUMNS)
    except (ValueError, UsageError) as error:  # no number, or one that no 64-bit column has
        raise web.HTTPBadRequest(text=f"{error}\n") from error
    if not rows.num_rows:
        raise web.HTTPNotFound(text="no such order\n")
    return web.json_response(rows.to_pylist())


async def look_up_many(request: web.Request) -> web.Response:
    """The rows of a JSON list of keys, in their order; null where no row has the key."""
    try:
        keys = await request.json()
    except ValueError:
        keys = None
    if not isinstance(keys, list) or len(keys) > KEYS_MAX or not all(type(key) is int for key in keys):
        raise web.HTTPBadRequest(text=f"expected a list of at most {KEYS_MAX} numbers\n")
    try:
        rows = await request.app[TABLE].get("id", keys, COLUMNS, on_missing="null")
    except UsageError as error:
        raise web.HTTPBadRequest(text=f"{error}\n") from error
    return web.json_response([row if row["id"] is not None else None for row in rows.to_pylist()])


app = web.Application()
app.cleanup_ctx.append(open_table)
app.add_routes([web.get("/orders/{id}", look_up), web.post("/orders", look_up_many)])

if __name__ == "__main__":
    web.run_app(app, host="127.0.0.1", port=int(os.environ.get("PORT", "8080")))
