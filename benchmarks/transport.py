"""Processor time of a GET by our own transport against aiohttp's, in one run: `python -m benchmarks.transport`.

A server on 127.0.0.1, in a process of its own, answers ranges out of memory. The transports take turns, as contenders
do everywhere here: `GETS` ranges of one size, `IN_FLIGHT` at a time, signed, one attempt each. What counts is the
processor time of this process, user and system, and the ratio of the two within a round; goals are for its median.

    --rounds N   turns of each transport, 9 by default
    --gets N     GETs in a turn, 2,000 by default
"""

from __future__ import annotations

import argparse
import asyncio
import json
import multiprocessing
import ssl
import sys
import tempfile
import time
from pathlib import Path
from statistics import median
from typing import TYPE_CHECKING, Any, Final

import aiohttp
from yarl import URL

from lance_io.store.http.sigv4 import Signer
from lance_io.store.policies.download import Download
from lance_io.store.s3.bucket import S3Store, open_s3

if TYPE_CHECKING:
    from collections.abc import Iterator
    from multiprocessing.connection import Connection

KIB: Final = 1 << 10
OBJECT_BYTES: Final = 64 << 20
IN_FLIGHT: Final = 32
GOALS: Final = {  # of aiohttp's processor time
    ("plain", 4 * KIB): 0.35,
    ("plain", 64 * KIB): 0.5,
    ("TLS", 4 * KIB): 0.7,
    ("TLS", 64 * KIB): 0.7,
}
SIGNATURE_GOAL_US: Final = 8.0


class _Server(asyncio.Protocol):
    """Answers GETs of ranges with what S3 says besides."""

    CONTENT: Final = bytes(1 << 20)  # of every range

    def __init__(self) -> None:
        self._rest = b""

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        """Called by the loop."""
        assert isinstance(transport, asyncio.Transport)
        self._transport = transport

    def data_received(self, data: bytes) -> None:
        """Called by the loop."""
        *heads, self._rest = (self._rest + data).split(b"\r\n\r\n")
        for head in heads:
            lowered = head.lower()
            first, last = lowered.partition(b"\r\nrange: bytes=")[2].partition(b"\r\n")[0].split(b"-")
            start, end = int(first), int(last) + 1
            answer = (
                f"HTTP/1.1 206 Partial Content\r\nDate: Mon, 01 Jun 2026 12:00:00 GMT\r\n"
                f"x-amz-id-2: {'0' * 76}\r\nx-amz-request-id: {'0' * 16}\r\n"
                f'Last-Modified: Mon, 01 Jun 2026 11:00:00 GMT\r\nETag: "{"0" * 32}"\r\n'
                f"x-amz-server-side-encryption: AES256\r\nAccept-Ranges: bytes\r\n"
                f"Content-Range: bytes {start}-{end - 1}/{OBJECT_BYTES}\r\nContent-Type: binary/octet-stream\r\n"
                f"Content-Length: {end - start}\r\nServer: AmazonS3\r\n\r\n"
            )
            self._transport.write(answer.encode() + self.CONTENT[: end - start])


def _serve(pipe: Connection, certificate: str | None) -> None:
    """Run the server until the other end of the pipe is closed."""

    async def run() -> None:
        context = None
        if certificate is not None:
            context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
            context.load_cert_chain(certificate)
        loop = asyncio.get_running_loop()
        server = await loop.create_server(_Server, "127.0.0.1", 0, ssl=context, backlog=1024)
        pipe.send(server.sockets[0].getsockname()[1])
        ended = asyncio.Event()
        loop.add_reader(pipe.fileno(), ended.set)
        await ended.wait()

    asyncio.run(run())


def _certificate(folder: Path) -> tuple[str, str]:
    """A server's key and certificate in one file, and the authority that gave it."""
    import trustme

    authority = trustme.CA()
    authority.cert_pem.write_to_path(folder / "ca.pem")
    authority.issue_cert("127.0.0.1").private_key_and_cert_chain_pem.write_to_path(folder / "server.pem")
    return str(folder / "server.pem"), str(folder / "ca.pem")


KEY: Final = "AKIAIOSFODNN7EXAMPLE"
SECRET: Final = "wJalrXUtnFEMI/K7MDENG/bPxRfiCYEXAMPLEKEY"
REGION: Final = "us-east-1"
PATH: Final = "table.lance/data/0.lance"


def _store(endpoint: str, authority: str | None) -> S3Store:
    options = {
        "aws_endpoint": endpoint,
        "allow_http": "true",
        "aws_region": REGION,
        "aws_access_key_id": KEY,
        "aws_secret_access_key": SECRET,
    }
    if authority is not None:
        options["proxy_ca_certificate"] = authority
    return open_s3("bucket", options)


class _Ours:
    """GETs by the transport of a store."""

    def __init__(self, endpoint: str, authority: str | None) -> None:
        self._store = _store(endpoint, authority)

    async def get(self, start: int, num_bytes: int) -> None:
        """One GET of a range."""
        over: asyncio.Future[BaseException | None] = asyncio.get_running_loop().create_future()
        download = Download.of_range(PATH, start, start + num_bytes)
        self._store._loop().gets.start(download, over.set_result)
        assert await over is None
        download.finish()

    async def close(self) -> None:
        """Close its connections."""
        await self._store.aclose()


class _Aiohttp:
    """The same GETs by aiohttp, signed by the same signer."""

    def __init__(self, endpoint: str, authority: str | None) -> None:
        context = True if authority is None else ssl.create_default_context(cafile=authority)
        self._session = aiohttp.ClientSession(
            connector=aiohttp.TCPConnector(limit=IN_FLIGHT, ssl=context),
            auto_decompress=False,
            cookie_jar=aiohttp.DummyCookieJar(),
            read_bufsize=1 << 20,
        )
        self._endpoint, self._host = endpoint, endpoint.partition("://")[2]
        self._signer = Signer(KEY, SECRET, None, REGION)

    async def get(self, start: int, num_bytes: int) -> None:
        """One GET of a range."""
        download = Download.of_range(PATH, start, start + num_bytes)
        path = f"/bucket/{PATH}"
        headers = self._signer.headers(self._host, path, download.headers(), time.time())
        url = URL(f"{self._endpoint}{path}", encoded=True)
        async with self._session.get(url, headers=headers, allow_redirects=False) as answer:
            download.begin(answer.status, answer.headers)
            async for chunk in answer.content.iter_any():
                download.add(chunk)
        download.finish()

    async def close(self) -> None:
        """Close its connections."""
        await self._session.close()


async def _turn(transport: _Ours | _Aiohttp, num_gets: int, num_bytes: int) -> float:
    """Processor seconds of one GET."""
    starts: Iterator[int] = iter((i * 7919 * 4096) % (OBJECT_BYTES - num_bytes) for i in range(num_gets))

    async def work() -> None:
        for start in starts:
            await transport.get(start, num_bytes)

    began_s = time.process_time()
    await asyncio.gather(*(work() for _ in range(IN_FLIGHT)))
    return (time.process_time() - began_s) / num_gets


async def compare(
    endpoint: str, authority: str | None, num_bytes: int, rounds: int, num_gets: int
) -> tuple[float, float, float]:
    """Microseconds of ours and of aiohttp's, and the median of their ratios."""
    ours, theirs = _Ours(endpoint, authority), _Aiohttp(endpoint, authority)
    seconds: dict[_Ours | _Aiohttp, list[float]] = {ours: [], theirs: []}
    try:
        for number in range(-1, rounds):
            for transport in (ours, theirs) if number % 2 else (theirs, ours):
                took_s = await _turn(transport, num_gets, num_bytes)
                if number >= 0:  # the one before opens connections
                    seconds[transport].append(took_s)
    finally:
        await ours.close()
        await theirs.close()
    ratio = median(a / b for a, b in zip(seconds[ours], seconds[theirs], strict=True))
    return median(seconds[ours]) * 1e6, median(seconds[theirs]) * 1e6, ratio


def signature_us(number: int = 20_000) -> float:
    """Microseconds of signing one GET: the best of five."""
    signer = Signer("AKIAIOSFODNN7EXAMPLE", "wJalrXUtnFEMI/K7MDENG/bPxRfiCYEXAMPLEKEY", None, "us-east-1")
    best_s = float("inf")
    for _ in range(5):
        began_s = time.process_time()
        for start in range(number):
            signer.headers("127.0.0.1:9000", "/bucket/table.lance/data/0.lance", {"range": f"bytes={start}-{number}"})
        best_s = min(best_s, time.process_time() - began_s)
    return best_s / number * 1e6


def run(rounds: int, num_gets: int) -> list[dict[str, Any]]:
    """All comparisons, as rows of a table."""
    rows: list[dict[str, Any]] = []
    processes = multiprocessing.get_context("spawn")
    with tempfile.TemporaryDirectory() as folder:
        certificate, authority = _certificate(Path(folder))
        for name in ("plain", "TLS"):
            ours, theirs = processes.Pipe()
            server = processes.Process(target=_serve, args=(theirs, certificate if name == "TLS" else None))
            server.start()
            theirs.close()
            try:
                scheme = "https" if name == "TLS" else "http"
                endpoint = f"{scheme}://127.0.0.1:{ours.recv()}"
                for num_bytes in (4 * KIB, 64 * KIB):
                    trusted = authority if name == "TLS" else None
                    own_us, aiohttp_us, ratio = asyncio.run(compare(endpoint, trusted, num_bytes, rounds, num_gets))
                    row = {"way": name, "bytes": num_bytes, "own_us": own_us, "aiohttp_us": aiohttp_us}
                    rows.append({**row, "ratio": ratio, "goal": GOALS[name, num_bytes]})
            finally:
                ours.close()
                server.join()
    return rows


def main() -> int:
    """The command line; 1 when a goal is missed."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--rounds", type=int, default=9)
    parser.add_argument("--gets", type=int, default=2000)
    parser.add_argument("--json", action="store_true", help="print the numbers as JSON")
    arguments = parser.parse_args()
    rows, signed_us = run(arguments.rounds, arguments.gets), signature_us()
    if arguments.json:
        print(json.dumps({"gets": rows, "signature_us": signed_us}, indent=2))
    else:
        for row in rows:
            print(
                f"{row['way']:>5} {row['bytes'] // KIB:>3} KiB: {row['own_us']:6.1f} us a GET, aiohttp "
                f"{row['aiohttp_us']:6.1f}, ratio {row['ratio']:.2f} (goal {row['goal']})"
            )
        print(f"signature: {signed_us:.1f} us (goal {SIGNATURE_GOAL_US})")
    is_met = all(row["ratio"] <= row["goal"] for row in rows) and signed_us <= SIGNATURE_GOAL_US
    return 0 if is_met else 1


if __name__ == "__main__":
    sys.exit(main())
