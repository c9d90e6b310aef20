"""One request and its answer: what is sent, how long that may take, what came of it."""

from __future__ import annotations

from types import MappingProxyType
from typing import TYPE_CHECKING, Final, NamedTuple, Protocol

from lance_io.records import dataclass
from lance_io.store.failures import StoreFailure

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping

    from lance_io.store.http.connection import Connection
    from lance_io.store.http.range_get import RangeGet
    from lance_io.store.http.tls import TlsSettings

DOCUMENT_BYTES_MAX: Final = 32 << 20  # a page of a listing has 1,000 keys of at most 1 KiB, escaped
_NO_HEADERS: Final[Mapping[str, str]] = MappingProxyType({})
REFUSAL_BYTES_MAX: Final = 1 << 16  # of the body of an answer that refuses; the rest says nothing more


@dataclass(frozen=True, slots=True)
class Origin:
    """Where requests go: what connections have in common.

    tls  None for plain HTTP
    """

    host: str
    port: int
    tls: TlsSettings | None = None


class Patience(NamedTuple):
    """How long to wait, in seconds.

    connect_s  for a connection
    silence_s  between two signs of life, the first byte of the answer among them
    total_s    for everything, from the moment that the request is made
    """

    connect_s: float
    silence_s: float
    total_s: float


class Sink(Protocol):
    """Takes the body of an answer; `Download` is one."""

    @property
    def num_bytes(self) -> int:
        """How long the body should be, 0 where that is not known yet."""

    def begin(self, status: int, headers: Mapping[str, str]) -> None:
        """The head is here; raises one of our errors if it does not fit."""

    def add(self, chunk: bytes | memoryview) -> None:
        """The next bytes, to be copied if they are a view; raises one of our errors if they are too many."""

    def room(self, num_bytes: int) -> memoryview | None:
        """Memory for the next bytes, at most so many; None: they are to be added."""

    def advance(self, num_bytes: int) -> None:
        """So many bytes are in the memory that `room` gave."""


class Document:
    """A body that is read whole, in whatever form it comes, and kept within bounds.

    name  of what it is about, for errors
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
        """See `Sink`; there is no room."""
        raise AssertionError

    def body(self) -> bytes:
        """All of it."""
        return b"".join(self._pieces)


class Exchange:
    """A GET on its way through a pool.

    head      request line and headers, complete
    sink      takes the body of a right answer (200, 206)
    patience  how long it may take
    done      called once, when it is over, on the loop; not after `cancel`
    again     called when it goes out once more, over another connection

    What came of it: `error` is None when there was an answer. One of `status` 200 or 206 is in the sink, of
    others there are `headers`, by their names in lower case, and the beginning of the `body`. `waited_s` is how
    long there was no connection for it.
    """

    plain: RangeGet | None = None  # of those, itself

    __slots__ = (
        "again",
        "body",
        "connection",
        "done",
        "ends_s",
        "error",
        "head",
        "headers",
        "heard_s",
        "is_over",
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
        again: Callable[[], None],
    ) -> None:
        self.head = head
        self.sink = sink
        self.patience = patience
        self.done = done
        self.again = again
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
        """It is over, with an answer or with an error."""
        if not self.is_over:
            self.is_over = True
            self.connection = None
            self.error = error
            self.done(self)

    def cancel(self) -> None:
        """Nobody wants it any more: `done` is not called; a connection that it is on is given up."""
        if not self.is_over:
            self.is_over = True
            connection, self.connection = self.connection, None
            if connection is not None:
                connection.abandon()
