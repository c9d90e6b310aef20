"""One logical read over HTTP, without the HTTP: the range to request, checks of the answer, the bytes received so far.

    download = Download.of_range(key, 100, 200)
    each attempt:   download.resume()
                    headers = download.headers()         a resumed attempt requests only the missing bytes
                    download.begin(status, headers)      headers of the answer; raises if they do not match the request
                    download.add(chunk) ...              its body
                    download.finish()                    complete, or `Transient`: retry

A body that breaks off is resumed at the byte reached, under `If-Match` if the etag is known, so that halves of
different objects never meet. The length of a whole object in chunks is known only after its last chunk: if it breaks
off, it is read again from its beginning.
"""

from __future__ import annotations

import re
from datetime import UTC, datetime
from typing import TYPE_CHECKING, Any, NoReturn

import numpy as np

from lance_io.limits import KIB, MIB
from lance_io.store.api import ObjectMeta
from lance_io.store.failures import (
    InvalidRange,
    LongBody,
    RangeIgnored,
    ShortRead,
    StoreFailure,
    Transient,
    request_id_of,
)

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping

    from lance_io.store.api import Buffer

# MinIO answers a suffix of an empty object with `bytes 0--1/0`.
_CONTENT_RANGE = re.compile(r"bytes (?:(\d{1,19})-(\d{1,19}|-1)|\*)/(\d{1,19}|\*)")
_DATE = re.compile(r"[A-Z][a-z]{2}, (\d{2}) ([A-Z][a-z]{2}) (\d{4}) (\d{2}):(\d{2}):(\d{2}) GMT", re.ASCII)
_MONTHS = ("Jan", "Feb", "Mar", "Apr", "May", "Jun", "Jul", "Aug", "Sep", "Oct", "Nov", "Dec")
SMALL_BYTES = 64 * KIB
TRUSTED_BYTES = 256 * MIB  # largest allocation that relies on the length in an answer


class Download:
    """The bytes of one object, or a part of it, in transfer.

    start, end   the requested part; of a suffix or a whole object known after the first answer
    suffix       number of bytes at the end, or None
    num_answers  attempts with an answer
    queue_s      seconds that its requests waited before they were sent
    request_id   the server's id of the latest request; None: no answer yet, or none with an id
    """

    def __init__(
        self,
        key: str,
        start: int | None,
        end: int | None,
        suffix: int | None = None,
        memory: memoryview | None = None,
        *,
        may_be_short: bool = False,
    ) -> None:
        self.key = key
        self.start = start
        self.end = end
        self.suffix = suffix
        self.received = 0  # bytes from `start` that have arrived
        self.size_bytes = -1  # of the whole object
        self.etag: str | None = None
        self.num_answers = 0
        self.queue_s = 0.0
        self.request_id: str | None = None
        self.on_answer: Callable[[], None] | None = None  # called when the headers of an answer arrive
        self._last_modified = ""
        self._pieces: list[bytes] = []  # of a small or whole object's body, or its only piece
        self._given = memory
        self._memory = memory  # of a large range, or the caller's: bytes are received into it
        self._whole = start is None and suffix is None
        self._is_open = False  # a whole object of unknown length, in chunks
        self._may_be_short = may_be_short

    @classmethod
    def of_range(cls, key: str, start: int, end: int, memory: memoryview | None = None) -> Download:
        """Bytes `start` to `end`, not empty.

        memory  writable, `end - start` bytes: destination of the bytes
        """
        return cls(key, start, end, None, memory)

    @classmethod
    def of_start(cls, key: str, num_bytes: int) -> Download:
        """The first bytes, at least one; fewer if the object is shorter."""
        return cls(key, 0, num_bytes, may_be_short=True)

    @classmethod
    def of_suffix(cls, key: str, num_bytes: int) -> Download:
        """The last bytes, at least one."""
        return cls(key, None, None, num_bytes)

    @classmethod
    def of_object(cls, key: str) -> Download:
        """A whole object."""
        return cls(key, None, None)

    def duplicate(self) -> Download:
        """Another download of the same request, from its beginning, in memory of its own."""
        if self._whole or self.suffix is not None:
            return type(self)(self.key, None, None, self.suffix)
        return type(self)(self.key, self.start, self.end, may_be_short=self._may_be_short)

    @property
    def version(self) -> str | None:
        """The version of the content in the store's terms: the etag, by default."""
        return self.etag

    def adopt(self, other: Download) -> None:
        """Take over the bytes of another download of the same request."""
        self.start, self.end, self.received = other.start, other.end, other.received
        self.size_bytes, self.etag, self._last_modified = other.size_bytes, other.etag, other._last_modified
        self._pieces, self._memory, self._is_open = other._pieces, other._memory, other._is_open

    def continue_from(self, size_bytes: int, etag: str | None, received: int, memory: memoryview | None) -> None:
        """Continue an answer that another object began, with `received` bytes in `memory`."""
        self.num_answers, self.size_bytes, self.etag = 1, size_bytes, etag
        self.received, self._memory = received, memory

    @property
    def _may_move(self) -> bool:
        """Whether it is a suffix without bytes yet: its start changes if the object gets another size."""
        return self.suffix is not None and self.received == 0

    @property
    def so_far(self) -> str:
        """The received bytes, for an error message."""
        return f"{self.received} bytes" if self._is_open else f"{self.received} of {self.num_bytes} bytes"

    @property
    def is_given(self) -> bool:
        """Whether the bytes go to memory of the caller."""
        return self._given is not None

    # -- asking -----------------------------------------------------------------------------------------------------

    def resume(self) -> None:
        """Prepare the next attempt: drops bytes that it cannot continue, those of an object of unknown length."""
        self.request_id = None
        if self._is_open:
            self._pieces.clear()
            self.received, self.etag, self._is_open = 0, None, False

    def asked(self) -> tuple[int, int]:
        """Start and end of the next attempt, for the log; of a suffix its length as a negative start."""
        if self.start is None or self.end is None:
            return -(self.suffix or 0), -1
        return self.start + self.received, self.end

    def headers(self) -> dict[str, str]:
        """`range` and `if-match` of the next attempt, lower-case names."""
        if self._may_move:
            return {"range": f"bytes=-{self.suffix}"}
        if self.start is None or self.end is None:
            return {}
        headers = {}
        if not (self._whole and self.received == 0):
            headers["range"] = f"bytes={self.start + self.received}-{self.end - 1}"
        if self.received and self.etag is not None:
            headers["if-match"] = self.etag
        return headers

    # -- the answer's head ------------------------------------------------------------------------------------------

    def begin(self, status: int, headers: Mapping[str, str]) -> None:
        """Check the headers of a successful answer (200 or 206); their names are in lower case.

        Raises `RangeIgnored`, `LongBody`, `ShortRead`, `InvalidRange`, or `Transient` for an object that changed
        since the first attempt (which drops the bytes received before).
        """
        self.num_answers += 1
        self.request_id = request_id_of(headers)
        if self.on_answer is not None:
            self.on_answer()
        etag = headers.get("etag")
        if self.received and self.etag is not None and etag is not None and etag != self.etag:
            self.object_changed()
        self.etag = etag
        self._last_modified = headers.get("last-modified", "")
        if status == 206:
            self._begin_part(headers)
        else:
            self._begin_whole(status, headers)

    def _begin_part(self, headers: Mapping[str, str]) -> None:
        text = headers.get("content-range", "")
        if self.start is not None and self.end is not None and not self._may_move:
            asked = f"bytes {self.start + self.received}-{self.end - 1}/"  # in nearly every answer
            size = text[len(asked) :]
            if text.startswith(asked) and size.isdecimal() and len(size) < 20 and int(size) >= self.end:
                self.size_bytes = int(size)
                self._check_length(headers)
                return
        match = _CONTENT_RANGE.fullmatch(text.strip())
        if match is None or match[1] is None or match[3] == "*":
            self._refuse(RangeIgnored, f"a partial answer with content-range {text!r}, expected 'bytes a-b/size'", 206)
        first, end, size_bytes = int(match[1]), int(match[2]) + 1, int(match[3])
        if self.start is None or self.end is None or self._may_move:  # a suffix: now we know which
            wanted = self.suffix or 0
            self.start, self.end = max(0, size_bytes - wanted), size_bytes
            self._memory = None
        if self._may_be_short and first == self.start == self.received and end == size_bytes < self.end:
            self.end = end
        if end <= first == size_bytes == self.start + self.received:  # Azurite sends this in place of 416
            self.no_such_range(headers)
            return
        if first != self.start + self.received or end > self.end or end > size_bytes:
            self._refuse(RangeIgnored, f"asked for {self.headers()}, the answer is content-range {text!r}", 206)
        if end < self.end:
            raise ShortRead(
                f"the object of {size_bytes} bytes ends inside the range {self.start}-{self.end}", path=self.key
            )
        self.size_bytes = size_bytes
        self._check_length(headers)

    def _begin_whole(self, status: int, headers: Mapping[str, str]) -> None:
        of_an_end = self.suffix is not None or self._may_be_short
        if of_an_end and _length(headers) == 0:  # an empty object is its own suffix
            self.start = self.end = self.size_bytes = 0
            return
        if not self._whole or self.received:
            self._refuse(
                RangeIgnored,
                "the answer to a ranged GET is the whole object: a server or proxy on the way does not support ranges",
                status,
            )
        length = _length(headers)
        if length is not None:
            self.start, self.end = 0, length
            self.size_bytes = self.end
        elif headers.get("transfer-encoding", "").strip().lower() == "chunked":
            self._is_open = True
        else:  # a lost connection would look like the end
            self._refuse(StoreFailure, "the answer has no content-length, and does not come in chunks", status)

    def _check_length(self, headers: Mapping[str, str]) -> None:
        length, expected = _length(headers), self.num_bytes - self.received
        if length is not None and length > expected:
            self._refuse(LongBody, f"the range has {expected} bytes, the answer announces {length}", 206)

    def no_such_range(self, headers: Mapping[str, str]) -> None:
        """Handle a 416: for the last bytes of an empty object there are no bytes; else raise `InvalidRange`."""
        match = _CONTENT_RANGE.fullmatch(headers.get("content-range", "").strip())
        size = match[3] if match is not None else "*"
        if (self.suffix is not None or self._may_be_short) and size in ("0", "*"):
            self.start = self.end = self.size_bytes = 0
            return
        of_bytes = "" if size == "*" else f" of {size} bytes"
        raise InvalidRange(f"range {self.start}-{self.end} starts after the end of the object{of_bytes}", path=self.key)

    def object_changed(self) -> NoReturn:
        """Drop the received bytes, which belong to an older object, and raise `Transient`."""
        self._pieces.clear()
        self._memory = self._given
        self.received, self.etag = 0, None
        raise Transient("the object changed while it was read", path=self.key, operation="get")

    # -- its body ---------------------------------------------------------------------------------------------------

    @property
    def num_bytes(self) -> int:
        """Length of the requested part; known after `begin`."""
        if self.start is None or self.end is None:
            return 0
        return self.end - self.start

    def add(self, chunk: bytes | memoryview) -> None:
        """Add the next bytes, copied if they are a view; `LongBody` if there are too many."""
        if self._is_open:
            self._pieces.append(bytes(chunk))
            self.received += len(chunk)
            return
        if self.received + len(chunk) > self.num_bytes:
            self._refuse(LongBody, f"the answer has more than the {self.num_bytes} bytes of the range", None)
        if self._memory is None and not self._whole and len(chunk) < self.num_bytes > SMALL_BYTES:
            memory: Any = np.empty(self.num_bytes, np.uint8)  # safe: the caller chose the size
            self._memory = memoryview(memory)
        if self._memory is None:
            self._pieces.append(bytes(chunk))
        else:
            self._memory[self.received : self.received + len(chunk)] = chunk
        self.received += len(chunk)

    def room(self, num_bytes: int) -> memoryview | None:
        """Memory for the next bytes, at most `num_bytes`; call `advance` after receiving into it.

        None for large objects whose size only the answer states: pass their bytes to `add`.
        Call it after `begin`, for at most the missing bytes.
        """
        if self._memory is None or len(self._memory) != self.num_bytes:
            if self._whole and self.num_bytes > TRUSTED_BYTES:
                return None
            memory = memoryview(np.empty(self.num_bytes, np.uint8))  # type: ignore[arg-type]
            at = 0
            for piece in self._pieces:
                memory[at : at + len(piece)] = piece
                at += len(piece)
            self._pieces.clear()
            self._memory = memory
        return self._memory[self.received : self.received + num_bytes]

    def advance(self, num_bytes: int) -> None:
        """Count bytes that were received into the memory of `room`."""
        self.received += num_bytes

    def finish(self) -> None:
        """End the body; `Transient` unless it is complete."""
        if self._is_open:
            self.start, self.end, self.size_bytes = 0, self.received, self.received
            self._is_open = False
        if self.received < self.num_bytes:
            raise Transient(f"the answer broke off after {self.so_far}", path=self.key, operation="get")

    # -- the result -------------------------------------------------------------------------------------------------

    def fill(self) -> None:
        """Copy the bytes to the caller's memory, if another download received them."""
        if self._given is not None and self._memory is not self._given:
            self._given[:] = self.buffer()

    def buffer(self) -> Buffer:
        """All bytes, read-only."""
        if self._memory is not None:
            return self._memory.toreadonly()
        return self._pieces[0] if len(self._pieces) == 1 else b"".join(self._pieces)

    def meta(self) -> ObjectMeta:
        """Metadata of the object in the answer."""
        return ObjectMeta(self.key, self.size_bytes, self.version, parse_date(self._last_modified))

    def _refuse(self, kind: type[StoreFailure], message: str, status: int | None) -> NoReturn:
        raise kind(message, path=self.key, operation="get", status=status)


def _length(headers: Mapping[str, str]) -> int | None:
    text = headers.get("content-length", "")
    return int(text) if text.isdecimal() and len(text) < 20 else None


def parse_date(text: str) -> datetime | None:
    """A date in HTTP's format; None for anything else."""
    match = _DATE.fullmatch(text)
    try:
        if match is not None:  # the preferred format of HTTP
            day, month, year, hour, minute, second = match.groups()
            number = _MONTHS.index(month) + 1
            return datetime(int(year), number, int(day), int(hour), int(minute), int(second), tzinfo=UTC)
        from email.utils import parsedate_to_datetime

        return parsedate_to_datetime(text)
    except ValueError:
        return None  # dates are optional; reading does not depend on them
