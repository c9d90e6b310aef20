"""A bucket in memory behind HTTP on 127.0.0.1, as much of S3 as tables need, which does harm where it is told to.

async with Bucket({"t.lance/_versions/...": b"..."}) as bucket:
    bucket.harm = cut              # a coroutine that gets every answer into its hands
    ...
    bucket.harm = None
"""

from __future__ import annotations

import asyncio
import hashlib
import json
import re
import socket
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Any, ClassVar, Protocol, Self
from urllib.parse import parse_qsl, unquote, urlsplit
from xml.sax.saxutils import escape

from tests.http_faults import Asked, head, read_asked
from tests.listening import Listener

if TYPE_CHECKING:
    from collections.abc import Mapping

NAME = "bucket"
TLS = b"\x16"  # how those begin who want it


@dataclass
class Right:
    """The right answer."""

    status: int
    headers: dict[str, Any]
    body: bytes

    @property
    def data(self) -> bytes:
        """All of it, as it is sent."""
        return head(self.status, self.headers) + self.body


@dataclass
class Exchange:
    """A request whose answer is due."""

    bucket: Bucket
    asked: Asked
    client: asyncio.StreamReader
    to_client: asyncio.StreamWriter

    def right(self) -> Right:
        """Do what was asked for: the answer."""
        return self.bucket.answer(self.asked)

    async def silence(self) -> None:
        """Wait until the client goes away."""
        await self.client.read()

    async def say(self, data: bytes) -> None:
        """Send something."""
        self.to_client.write(data)
        await self.to_client.drain()


class Harm(Protocol):
    """Answers in place of the bucket; gives whether the connection goes on."""

    async def __call__(self, exchange: Exchange, /) -> bool: ...


class Bucket(Listener):
    """The one bucket, `NAME`.

    uri      of it
    objects  by key
    harm     what answers instead, None for the right answer
    asked    how many requests have come
    planted  secrets of a client's, for a server that tells them
    """

    uri: ClassVar[str] = f"s3://{NAME}"

    def __init__(self, objects: Mapping[str, bytes] | None = None) -> None:
        super().__init__()
        self.objects = dict(objects or {})
        self.harm: Harm | None = None
        self.asked = 0
        self.planted: tuple[str, ...] = ()
        self._port_holder = socket.socket()  # bound and not listening, so that nobody else gets the port meanwhile
        self._port_holder.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        self._port_holder.bind(("127.0.0.1", 0))

    async def __aenter__(self) -> Self:
        await self.start()
        return self

    async def __aexit__(self, *_: object) -> None:
        await self.stop()
        self._port_holder.close()

    async def start(self) -> None:
        """Listen, also after `stop`: at the same place."""
        where, port = self._port_holder.getsockname()
        self._server = await asyncio.start_server(self._connected, where, port)
        self.endpoint = f"http://{where}:{port}"

    def options(self, **more: str) -> dict[str, str]:
        """Storage options of a client."""
        known = {**self.place("http"), "allow_http": "true", "aws_region": "us-east-1"}
        return {**known, "aws_access_key_id": "AKIDEXAMPLE", "aws_secret_access_key": "secret", **more}

    def place(self, scheme: str) -> dict[str, str]:
        """Of the options, where it is."""
        return {"aws_endpoint": self.endpoint.replace("http:", f"{scheme}:")}

    async def serve(self, client: asyncio.StreamReader, to_client: asyncio.StreamWriter) -> None:
        """One request after the other."""
        while await self._serve_one(client, to_client):
            await to_client.drain()

    async def _serve_one(self, client: asyncio.StreamReader, to_client: asyncio.StreamWriter) -> bool:
        first = await client.readexactly(1)
        if first == TLS:
            to_client.write(head(400, {"Content-Length": 0}))
            return False
        asked = await read_asked(client, first)
        self.asked += 1
        exchange = Exchange(self, asked, client, to_client)
        if self.harm is not None:
            return await self.harm(exchange)
        to_client.write(exchange.right().data)
        return True

    # -- what S3 does ------------------------------------------------------------------------------------------------

    def answer(self, asked: Asked) -> Right:
        """Do what is asked for."""
        method, target, _ = asked.line.split(" ")
        parts = urlsplit(target)
        query = dict(parse_qsl(parts.query, keep_blank_values=True))
        key = unquote(parts.path).removeprefix(f"/{NAME}").removeprefix("/")
        if method == "GET" and "list-type" in query:
            return self._list(query)
        if method == "POST" and "delete" in query:
            for found in re.findall(rb"<Key>([^<]*)</Key>", asked.body):
                self.objects.pop(found.decode(), None)
            return _document(200, "<DeleteResult></DeleteResult>")
        if method in ("GET", "HEAD"):
            return self._get(key, asked, has_body=method == "GET")
        if method == "PUT" and not query:
            return self._put(key, asked)
        if method == "DELETE" and not query:
            self.objects.pop(key, None)
            return Right(204, {}, b"")
        return _refusal(501, "NotImplemented")

    def _get(self, key: str, asked: Asked, *, has_body: bool) -> Right:
        content = self.objects.get(key)
        if content is None:
            return _refusal(404, "NoSuchKey") if has_body else Right(404, {"Content-Length": 0}, b"")
        etag, size = _etag(content), len(content)
        if asked.headers.get("if-match", etag) != etag:
            return _refusal(412, "PreconditionFailed")
        span = asked.span(size)
        if span is None:
            return Right(200, {"ETag": etag, "Content-Length": size}, content if has_body else b"")
        start, end = span
        if start >= end:
            return _refusal(416, "InvalidRange")
        fields = {"ETag": etag, "Content-Length": end - start, "Content-Range": f"bytes {start}-{end - 1}/{size}"}
        return Right(206, fields, content[start:end])

    def _put(self, key: str, asked: Asked) -> Right:
        known, wanted = self.objects.get(key), asked.headers.get("if-match")
        if known is not None and asked.headers.get("if-none-match") == "*":
            return _refusal(412, "PreconditionFailed")
        if wanted is not None and (known is None or wanted != _etag(known)):
            return _refusal(412, "PreconditionFailed")
        self.objects[key] = asked.body
        return Right(200, {"ETag": _etag(asked.body), "Content-Length": 0}, b"")

    def _list(self, query: Mapping[str, str]) -> Right:
        prefix, delimiter = query.get("prefix", ""), query.get("delimiter", "")
        after = query.get("continuation-token") or query.get("start-after", "")
        most = int(query.get("max-keys", "1000"))
        entries: dict[str, str] = {}
        for key in sorted(self.objects):
            if not key.startswith(prefix) or key <= after:
                continue
            rest = key[len(prefix) :]
            if delimiter and delimiter in rest:
                folder = prefix + rest[: rest.index(delimiter) + 1]
                if folder > after:
                    entries[folder] = f"<CommonPrefixes><Prefix>{escape(folder)}</Prefix></CommonPrefixes>"
                continue
            content = self.objects[key]
            entries[key] = (
                f"<Contents><Key>{escape(key)}</Key><Size>{len(content)}</Size><ETag>{_etag(content)}</ETag></Contents>"
            )
        names = list(entries)[:most]
        truncated = len(entries) > len(names)
        token = f"<NextContinuationToken>{escape(names[-1])}</NextContinuationToken>" if truncated else ""
        body = "".join(entries[name] for name in names)
        whether = "true" if truncated else "false"
        return _document(200, f"<ListBucketResult><IsTruncated>{whether}</IsTruncated>{token}{body}</ListBucketResult>")


class Tables(Bucket):
    """The same bucket, and beside it the DynamoDB table `rows`, which has version 1 of `t.lance`."""

    uri = f"s3+ddb://{NAME}"

    def __init__(self, objects: Mapping[str, bytes] | None = None) -> None:
        super().__init__(objects)
        self.rows: dict[str, dict[str, Any]] = {}
        for key in self.objects:
            if key.endswith(".manifest"):
                size = {"N": str(len(self.objects[key]))}
                row = {"base_uri": {"S": "t.lance"}, "version": {"N": "1"}, "path": {"S": key}, "size": size}
                self.rows["1"] = row

    def options(self, **more: str) -> dict[str, str]:
        """Storage options of a client."""
        return super().options(dynamodb_endpoint=self.endpoint, **more)

    def answer(self, asked: Asked) -> Right:
        """Do what is asked for."""
        wanted = asked.headers.get("x-amz-target", "").partition(".")[2]
        if not wanted:
            return super().answer(asked)
        said = json.loads(asked.body)
        keys = [("base_uri", "HASH", "S"), ("version", "RANGE", "N")]
        described = {
            "KeySchema": [{"AttributeName": name, "KeyType": kind} for name, kind, _ in keys],
            "AttributeDefinitions": [{"AttributeName": name, "AttributeType": kind} for name, _, kind in keys],
        }
        of_table = said.get("ExpressionAttributeValues", {}).get(":base_uri", {}).get("S", "t.lance") == "t.lance"
        found = {
            "DescribeTable": lambda: {"Table": described},
            "GetItem": lambda: {"Item": self.rows[said["Key"]["version"]["N"]]},
            "Query": lambda: {"Items": list(self.rows.values()) if of_table else []},
            "PutItem": dict,
        }
        body = json.dumps(found[wanted]()).encode()
        return Right(200, {"Content-Length": len(body), "Content-Type": "application/x-amz-json-1.0"}, body)


class Container(Bucket):
    """The same as a container in Azure's blob storage."""

    uri = f"az://{NAME}"

    def options(self, **more: str) -> dict[str, str]:
        """Storage options of a client."""
        return {**self.place("http"), "allow_http": "true", "account_name": "account", "account_key": "a2V5", **more}

    def place(self, scheme: str) -> dict[str, str]:
        """Of the options, where it is."""
        return {"azure_endpoint": f"{self.endpoint.replace('http:', f'{scheme}:')}/account"}

    def answer(self, asked: Asked) -> Right:
        """Do what is asked for."""
        method, target, _ = asked.line.split(" ")
        parts = urlsplit(target)
        query = dict(parse_qsl(parts.query, keep_blank_values=True))
        key = unquote(parts.path).removeprefix(f"/account/{NAME}").removeprefix("/")
        if method == "GET" and query.get("comp") == "list":
            return self._list_blobs(query)
        if method in ("GET", "HEAD") and not query:
            found = self._get(key, asked, has_body=method == "GET")
        elif method == "PUT" and not query:
            if key in self.objects and asked.headers.get("if-none-match") == "*":
                return _refusal(409, "BlobAlreadyExists")
            found = self._put(key, asked)
        elif method == "DELETE" and not query:
            if self.objects.pop(key, None) is None:
                return _refusal(404, "BlobNotFound")
            return Right(202, {"Content-Length": 0}, b"")
        else:
            return _refusal(501, "NotImplemented")
        return replace(found, status=201) if (method, found.status) == ("PUT", 200) else found

    def _list_blobs(self, query: Mapping[str, str]) -> Right:
        prefix, delimiter, after = query.get("prefix", ""), query.get("delimiter", ""), query.get("marker", "")
        most = int(query.get("maxresults", "5000"))
        entries: dict[str, str] = {}
        for key in sorted(self.objects):
            rest = key[len(prefix) :]
            if not key.startswith(prefix) or key <= after:
                continue
            if delimiter and delimiter in rest:
                folder = prefix + rest[: rest.index(delimiter) + 1]
                entries[folder] = f"<BlobPrefix><Name>{escape(folder)}</Name></BlobPrefix>"
                continue
            content = self.objects[key]
            size, etag = len(content), _etag(content).strip('"')
            said = f"<Content-Length>{size}</Content-Length><Etag>{etag}</Etag>"
            entries[key] = f"<Blob><Name>{escape(key)}</Name><Properties>{said}</Properties></Blob>"
        names = [name for name in entries if name > after][:most]
        marker = escape(names[-1]) if len(names) < len(entries) else ""
        body = "".join(entries[name] for name in names)
        text = f"<EnumerationResults><Blobs>{body}</Blobs><NextMarker>{marker}</NextMarker></EnumerationResults>"
        return _document(200, text)


class GoogleBucket(Bucket):
    """The same in Google Cloud Storage, by its JSON API, without uploads in parts."""

    uri = f"gs://{NAME}"

    def options(self, **more: str) -> dict[str, str]:
        """Storage options of a client."""
        return {**self.place("http"), "allow_http": "true", "google_storage_token": "token", **more}

    def place(self, scheme: str) -> dict[str, str]:
        """Of the options, where it is."""
        return {"google_base_url": self.endpoint.replace("http:", f"{scheme}:")}

    def answer(self, asked: Asked) -> Right:
        """Do what is asked for."""
        method, target, _ = asked.line.split(" ")
        parts = urlsplit(target)
        query = dict(parse_qsl(parts.query, keep_blank_values=True))
        key = unquote(parts.path.partition("/o/")[2])
        if method == "POST" and query.get("uploadType") == "media":
            return self._upload(query, asked.body)
        if method == "GET" and not key:
            return self._list_objects(query)
        if method == "GET" and query.get("alt") == "media":
            found = self._get(key, asked, has_body=True)
            if found.status in (200, 206):
                found.headers["x-goog-generation"] = _generation(self.objects[key])
            return found
        if method in ("GET", "DELETE") and key not in self.objects:
            return _refusal(404, "notFound")
        if method == "GET":
            return _json(self._described(key))
        if method == "DELETE":
            del self.objects[key]
            return Right(204, {}, b"")
        return _refusal(501, "notImplemented")

    def _upload(self, query: Mapping[str, str], body: bytes) -> Right:
        key, wanted = query["name"], query.get("ifGenerationMatch")
        known = self.objects.get(key)
        if wanted is not None and wanted != ("0" if known is None else _generation(known)):
            return _refusal(412, "conditionNotMet")
        self.objects[key] = body
        return _json(self._described(key))

    def _described(self, key: str) -> dict[str, Any]:
        content = self.objects[key]
        return {"name": key, "size": str(len(content)), "generation": _generation(content)}

    def _list_objects(self, query: Mapping[str, str]) -> Right:
        prefix, delimiter, after = query.get("prefix", ""), query.get("delimiter", ""), query.get("pageToken", "")
        first, most = query.get("startOffset", ""), int(query.get("maxResults", "1000"))
        entries: dict[str, bool] = {}  # names, and whether they are folders
        for key in sorted(self.objects):
            rest = key[len(prefix) :]
            if key.startswith(prefix) and key >= first:
                is_folder = bool(delimiter) and delimiter in rest
                entries[prefix + rest[: rest.index(delimiter) + 1] if is_folder else key] = is_folder
        left = [name for name in entries if name > after]
        names = left[:most]
        page: dict[str, Any] = {
            "items": [self._described(name) for name in names if not entries[name]],
            "prefixes": [name for name in names if entries[name]],
        }
        return _json({**page, "nextPageToken": names[-1]} if len(names) < len(left) else page)


def _generation(content: bytes) -> str:
    return str(int(hashlib.md5(content, usedforsecurity=False).hexdigest()[:12], 16))


def _json(found: dict[str, Any]) -> Right:
    body = json.dumps(found).encode()
    return Right(200, {"Content-Length": len(body), "Content-Type": "application/json"}, body)


def _etag(content: bytes) -> str:
    return f'"{hashlib.md5(content, usedforsecurity=False).hexdigest()}"'


def _document(status: int, text: str) -> Right:
    body = text.encode()
    return Right(status, {"Content-Length": len(body), "Content-Type": "application/xml"}, body)


def _refusal(status: int, code: str) -> Right:
    return _document(status, f"<Error><Code>{code}</Code><Message>no</Message></Error>")


def refuse(status: int, code: str, **headers: str) -> Harm:
    """A refusal, whatever was asked."""

    async def answer(exchange: Exchange) -> bool:
        found = _refusal(status, code)
        if exchange.asked.line.startswith("HEAD "):
            found = Right(status, {"Content-Length": 0}, b"")
        found.headers.update({name.replace("_", "-"): value for name, value in headers.items()})
        await exchange.say(found.data)
        return True

    return answer
