"""One logical read over HTTP, without the HTTP: what to ask for, whether the answer fits, what has arrived so far.

    download = Download.of_range(key, 100, 200)
    each attempt:   download.resume()
                    headers = download.headers()         a resumed one asks for the missing rest only
                    download.begin(status, headers)      the answer's head; refuses one that is not what was asked
                    download.add(chunk) ...              its body
                    download.finish()                    complete, or `Transient`: try again

A body that breaks off is continued at the byte reached, under `If-Match` where the etag is known, so that two halves
of different objects never meet. A whole object that comes in chunks says its length by its last chunk: one that breaks
off is read from its beginning.
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
TRUSTED_BYTES = 256 * MIB  # of memory that is asked for because an answer announces so much


class Download:
    """The bytes of one object, or a part of it, on their way.

    start, end   the part that is wanted; of a suffix or a whole object they are known once an answer has come
    suffix       how many bytes from the end, or None
    num_answers  how many attempts came as far as an answer's head
    queue_s      seconds that its requests have waited before they were sent
    request_id   what the server calls the last of its requests; None: no answer yet, or none with an id
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
        self.received = 0  # bytes from `start` that are here
        self.size_bytes = -1  # of the whole object
        self.etag: str | None = None
        self.num_answers = 0
        self.queue_s = 0.0
        self.request_id: str | None = None
        self.on_answer: Callable[[], None] | None = None  # called when the head of an answer is here
        self._last_modified = ""
        self._pieces: list[bytes] = []  # of a small or whole object's body, or its only piece
        self._given = memory
        self._memory = memory  # of a large range, or given: what arrives goes straight to its place
        self._whole = start is None and suffix is None
        self._is_open = False  # a whole object is coming whose length the last chunk will say
        self._may_be_short = may_be_short

    @classmethod
    def of_range(cls, key: str, start: int, end: int, memory: memoryview | None = None) -> Download:
        """Bytes `start` to `end`, not empty.

        memory  writable, of that length: where the bytes are to be
        """
        return cls(key, start, end, None, memory)

    @classmethod
    def of_start(cls, key: str, num_bytes: int) -> Download:
        """The first bytes, at least one, and fewer where the object has no more."""
        return cls(key, 0, num_bytes, may_be_short=True)

    @classmethod
    def of_suffix(cls, key: str, num_bytes: int) -> Download:
        """The last bytes, at least one."""
        return cls(key, None, None, num_bytes)

    @classmethod
    def of_object(cls, key: str) -> Download:
        """Everything."""
        return cls(key, None, None)

    def again(self) -> Download:
        """The same wish as it was at first, as another download, in memory of its own."""
        if self._whole or self.suffix is not None:
            return type(self)(self.key, None, None, self.suffix)
        return type(self)(self.key, self.start, self.end, may_be_short=self._may_be_short)

    @property
    def version(self) -> str | None:
        """What a store takes for the version of the content: the etag, unless it says otherwise."""
        return self.etag

    def adopt(self, other: Download) -> None:
        """Take over what another download of the same wish has got."""
        self.start, self.end, self.received = other.start, other.end, other.received
        self.size_bytes, self.etag, self._last_modified = other.size_bytes, other.etag, other._last_modified
        self._pieces, self._memory, self._is_open = other._pieces, other._memory, other._is_open

    def goes_on(self, size_bytes: int, etag: str | None, received: int, memory: memoryview | None) -> None:
        """An answer had begun, and so much of the range had come, when this one took over."""
        self.num_answers, self.size_bytes, self.etag = 1, size_bytes, etag
        self.received, self._memory = received, memory

    @property
    def _may_move(self) -> bool:
        """Whether it is a suffix of which nothing is here: it lies elsewhere if the object has got another size."""
        return self.suffix is not None and self.received == 0

    @property
    def so_far(self) -> str:
        """What has arrived, for an error."""
        return f"{self.received} bytes" if self._is_open else f"{self.received} of {self.num_bytes} bytes"

    @property
    def is_given(self) -> bool:
        """Whether the bytes are to be in memory of the caller's."""
        return self._given is not None

    # -- asking -----------------------------------------------------------------------------------------------------

    def resume(self) -> None:
        """Get ready for the next attempt: drop what it cannot go on with, an object whose length nobody knows yet."""
        self.request_id = None
        if self._is_open:
            self._pieces.clear()
            self.received, self.etag, self._is_open = 0, None, False

    def asked(self) -> tuple[int, int]:
        """Start and end of the next attempt, for a log: of a suffix its length as a negative start."""
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
        """Check the head of a successful answer (200 or 206); `headers` knows its names in lower case.

        Raises `RangeIgnored`, `LongBody`, `ShortRead`, `InvalidRange`, or `Transient` for an object that changed
        since the first attempt (what had arrived is then dropped).
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
            asked = f"bytes {self.start + self.received}-{self.end - 1}/"  # what nearly every answer says
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
        if end <= first == size_bytes == self.start + self.received:  # Azurite's way to say 416
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
        if of_an_end and _length(headers) == 0:  # all of an empty object are its first and last bytes, too
            self.start = self.end = self.size_bytes = 0
            return
        if not self._whole or self.received:
            self._refuse(
                RangeIgnored,
                "a ranged GET was answered with the whole object: something on the way does not know ranges",
                status,
            )
        length = _length(headers)
        if length is not None:
            self.start, self.end = 0, length
            self.size_bytes = self.end
        elif headers.get("transfer-encoding", "").strip().lower() == "chunked":
            self._is_open = True
        else:  # a connection that is lost would look like the end
            self._refuse(StoreFailure, "the answer has no content-length, and does not come in chunks", status)

    def _check_length(self, headers: Mapping[str, str]) -> None:
        length, expected = _length(headers), self.num_bytes - self.received
        if length is not None and length > expected:
            self._refuse(LongBody, f"the range has {expected} bytes, the answer announces {length}", 206)

    def no_such_range(self, headers: Mapping[str, str]) -> None:
        """Take a 416: the last bytes of an empty object are no bytes; anything else is `InvalidRange`."""
        match = _CONTENT_RANGE.fullmatch(headers.get("content-range", "").strip())
        size = match[3] if match is not None else "*"
        if (self.suffix is not None or self._may_be_short) and size in ("0", "*"):
            self.start = self.end = self.size_bytes = 0
            return
        of_bytes = "" if size == "*" else f" of {size} bytes"
        raise InvalidRange(
            f"range {self.start}-{self.end} starts behind the end of the object{of_bytes}", path=self.key
        )

    def object_changed(self) -> NoReturn:
        """Drop what has arrived: it belongs to an object that is no more."""
        self._pieces.clear()
        self._memory = self._given
        self.received, self.etag = 0, None
        raise Transient("the object changed while it was read", path=self.key, operation="get")

    # -- its body ---------------------------------------------------------------------------------------------------

    @property
    def num_bytes(self) -> int:
        """Length of the part that is wanted; known after `begin`."""
        if self.start is None or self.end is None:
            return 0
        return self.end - self.start

    def add(self, chunk: bytes | memoryview) -> None:
        """Take the next bytes, which are copied if they are a view; `LongBody` if there are too many."""
        if self._is_open:
            self._pieces.append(bytes(chunk))
            self.received += len(chunk)
            return
        if self.received + len(chunk) > self.num_bytes:
            self._refuse(LongBody, f"the answer goes on behind the {self.num_bytes} bytes that it has", None)
        if self._memory is None and not self._whole and len(chunk) < self.num_bytes > SMALL_BYTES:
            memory: Any = np.empty(self.num_bytes, np.uint8)  # the size is the caller's own, so it is no trap
            self._memory = memoryview(memory)
        if self._memory is None:
            self._pieces.append(bytes(chunk))
        else:
            self._memory[self.received : self.received + len(chunk)] = chunk
        self.received += len(chunk)

    def room(self, num_bytes: int) -> memoryview | None:
        """Memory for the next bytes, at most `num_bytes`, which `advance` then says are there.

        None where there is none, for objects of a size that only the answer vouches for: `add` takes their bytes.
        Call it after `begin`; no more than what is still missing may be asked for.
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
        """So many bytes more are in the memory that `room` gave."""
        self.received += num_bytes

    def finish(self) -> None:
        """The body is over; `Transient` unless all of it is here."""
        if self._is_open:
            self.start, self.end, self.size_bytes = 0, self.received, self.received
            self._is_open = False
        if self.received < self.num_bytes:
            raise Transient(f"the answer broke off after {self.so_far}", path=self.key, operation="get")

    # -- the result -------------------------------------------------------------------------------------------------

    def fill(self) -> None:
        """Have all bytes in the memory that was given, if another download got them."""
        if self._given is not None and self._memory is not self._given:
            self._given[:] = self.buffer()

    def buffer(self) -> Buffer:
        """All bytes, read-only."""
        if self._memory is not None:
            return self._memory.toreadonly()
        return self._pieces[0] if len(self._pieces) == 1 else b"".join(self._pieces)

    def meta(self) -> ObjectMeta:
        """What the answer said about the object."""
        return ObjectMeta(self.key, self.size_bytes, self.version, parse_date(self._last_modified))

    def _refuse(self, kind: type[StoreFailure], message: str, status: int | None) -> NoReturn:
        raise kind(message, path=self.key, operation="get", status=status)


def _length(headers: Mapping[str, str]) -> int | None:
    text = headers.get("content-length", "")
    return int(text) if text.isdecimal() and len(text) < 20 else None


def parse_date(text: str) -> datetime | None:
    """A date as HTTP has it; None for anything else."""
    found = _DATE.fullmatch(text)
    try:
        if found is not None:  # the form that HTTP wants
            day, month, year, hour, minute, second = found.groups()
            number = _MONTHS.index(month) + 1
            return datetime(int(year), number, int(day), int(hour), int(minute), int(second), tzinfo=UTC)
        from email.utils import parsedate_to_datetime

        return parsedate_to_datetime(text)
    except ValueError:
        return None  # a date is a courtesy; reading does not depend on it
