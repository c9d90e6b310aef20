"""One request and its answer: head, timeouts, result."""

from __future__ import annotations

from types import MappingProxyType
from typing import TYPE_CHECKING, Final, NamedTuple, Protocol

from lance_io.records import dataclass
from lance_io.store.failures import StoreFailure

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping

    from lance_io.store.http.connection import Connection
    from lance_io.store.http.proxy import Proxy
    from lance_io.store.http.range_get import RangeGet
    from lance_io.store.http.tls import TlsSettings

DOCUMENT_BYTES_MAX: Final = 32 << 20  # a page of a listing has 1,000 keys of at most 1 KiB, escaped
_NO_HEADERS: Final[Mapping[str, str]] = MappingProxyType({})
REFUSAL_BYTES_MAX: Final = 1 << 16  # of the body of an error answer; the rest is ignored


@dataclass(frozen=True, slots=True)
class Origin:
    """The server of a request; connections to it are interchangeable.

    tls    None for plain HTTP
    proxy  the proxy between; None for a direct connection
    """

    host: str
    port: int
    tls: TlsSettings | None = None
    proxy: Proxy | None = None

    @property
    def first_hop(self) -> tuple[str, int]:
        """Host and port to connect to: of the proxy, or of the server."""
        return (self.host, self.port) if self.proxy is None else (self.proxy.host, self.proxy.port)

    @property
    def is_plain(self) -> bool:
        """Whether connections are plain TCP, all the way."""
        return self.tls is None and (self.proxy is None or self.proxy.tls is None)


class Patience(NamedTuple):
    """Timeouts in seconds.

    connect_s  for a connect
    silence_s  without received bytes, also before the answer's first byte
    total_s    for the whole request, including the wait for a connection
    """

    connect_s: float
    silence_s: float
    total_s: float


class Sink(Protocol):
    """Receives the body of an answer; `Download` is one."""

    @property
    def num_bytes(self) -> int:
        """Expected length of the body, 0 if unknown."""

    def begin(self, status: int, headers: Mapping[str, str]) -> None:
        """Check the head of the answer. Raises our errors if it does not fit the request."""

    def add(self, chunk: bytes | memoryview) -> None:
        """Add the next bytes; copies them if they are a view. Raises our errors if they are too many."""

    def room(self, num_bytes: int) -> memoryview | None:
        """Memory for at most `num_bytes` next bytes; None to pass them to `add`."""

    def advance(self, num_bytes: int) -> None:
        """`num_bytes` have been written to the memory from `room`."""


class Document:
    """A body that is read whole, up to `DOCUMENT_BYTES_MAX`.

    name  its subject, for errors
    """

    num_bytes = 0

    def __init__(self, name: str, operation: str) -> None:
        self._name, self._operation = name, operation
        self._pieces: list[bytes] = []
        self._received = 0

    def begin(self, status: int, headers: Mapping[str, str]) -> None:
        """See `Sink`."""

    def add(self, chunk: bytes | memoryview) -> None:
        """See `Sink`."""
        self._received += len(chunk)
        if self._received > DOCUMENT_BYTES_MAX:
            text = f"an answer of more than {DOCUMENT_BYTES_MAX} bytes"
            raise StoreFailure(text, path=self._name, operation=self._operation)
        self._pieces.append(bytes(chunk))

    def room(self, num_bytes: int) -> memoryview | None:
        """See `Sink`."""
        return None

    def advance(self, num_bytes: int) -> None:
        """Never called: `room` returns None."""
        raise AssertionError

    def body(self) -> bytes:
        """The whole body."""
        return b"".join(self._pieces)


class Exchange:
    """A GET sent through a pool.

    head       complete request line and headers
    sink       receives the body of a success (200, 206)
    patience   timeouts
    done       called once on the loop when the exchange ends; not after `cancel`
    on_resend  called when the request is sent again over another connection

    Result: `error` is None if there was an answer. The body of `status` 200 or 206 is in the sink; for other statuses
    there are `headers` (lower-case names) and the beginning of the `body`. `waited_s` is the time without a connection.
    """

    plain: RangeGet | None = None  # a `RangeGet` has itself here

    __slots__ = (
        "body",
        "connection",
        "done",
        "ends_s",
        "error",
        "head",
        "headers",
        "heard_s",
        "is_over",
        "on_resend",
        "patience",
        "sink",
        "status",
        "waited_s",
    )

    def __init__(
        self,
        head: bytes,
        sink: Sink,
        patience: Patience,
        done: Callable[[Exchange], None],
        now_s: float,
        on_resend: Callable[[], None],
    ) -> None:
        self.head = head
        self.sink = sink
        self.patience = patience
        self.done = done
        self.on_resend = on_resend
        self.ends_s = now_s + patience.total_s
        self.heard_s = now_s
        self.waited_s = 0.0
        self.connection: Connection | None = None
        self.is_over = False
        self.error: BaseException | None = None
        self.status = 0
        self.headers: Mapping[str, str] = _NO_HEADERS
        self.body = b""

    def end(self, error: BaseException | None = None) -> None:
        """End, with an answer or with an error."""
        if not self.is_over:
            self.is_over = True
            self.connection = None
            self.error = error
            self.done(self)

    def cancel(self) -> None:
        """Cancel: `done` is not called, and the connection of a sent request is closed."""
        if not self.is_over:
            self.is_over = True
            connection, self.connection = self.connection, None
            if connection is not None:
                connection.abandon()
