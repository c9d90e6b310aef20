"""An HTTP service for key lookups in a Lance table in a bucket: `GET /orders/<token>` returns the row.

    ORDERS_URI=s3://bucket/orders.lance python examples/service/lookups.py        (examples/README.md creates the table)

The key column is read once. A lookup is one `take`, and any number of lookups run concurrently.
"""

import json
import math
import os
from collections.abc import AsyncIterator

from aiohttp import web

import lance_io

TABLE = web.AppKey("table", lance_io.AsyncDataset)
ROWS = web.AppKey("rows", dict[str, int])


async def open_table(app: web.Application) -> AsyncIterator[None]:
    """Open the table when the service starts, close it when the service ends."""
    async with lance_io.AsyncDataset.open(os.environ["ORDERS_URI"]) as table:
        tokens = (await table.to_table(columns=["token"]))["token"].to_pylist()
        app[TABLE], app[ROWS] = table, {token: row for row, token in enumerate(tokens)}
        yield


async def lookup(request: web.Request) -> web.Response:
    """The row with this key as JSON, or 404."""
    row = request.app[ROWS].get(request.match_info["token"])
    if row is None:
        raise web.HTTPNotFound(text="no such order\n")
    rows = await request.app[TABLE].take([row], columns=["id", "drink", "price", "quantity", "ordered", "tags"])
    text = json.dumps(finite(rows.to_pylist()[0]), default=str, allow_nan=False) + "\n"
    return web.Response(text=text, content_type="application/json")


def finite(value: object) -> object:
    """A value with texts for the numbers that JSON does not have: "NaN", "Infinity", "-Infinity"."""
    if isinstance(value, float) and not math.isfinite(value):
        return "NaN" if math.isnan(value) else "Infinity" if value > 0 else "-Infinity"
    if isinstance(value, dict):
        return {name: finite(member) for name, member in value.items()}
    return [finite(item) for item in value] if isinstance(value, (list, tuple)) else value


app = web.Application()
app.cleanup_ctx.append(open_table)
app.add_routes([web.get("/orders/{token}", lookup)])

if __name__ == "__main__":
    web.run_app(app, host="127.0.0.1", port=int(os.environ.get("PORT", "8080")))
