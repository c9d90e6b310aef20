"""The state of one read, fed with every kind of answer, without a network."""

from __future__ import annotations

from datetime import UTC, datetime
from email.utils import format_datetime, parsedate_to_datetime

import pytest
from hypothesis import example, given
from hypothesis import strategies as st

from lance_io.errors import StoreError
from lance_io.store.failures import InvalidRange, LongBody, Transient
from lance_io.store.policies.download import SMALL_BYTES, Download

SIZE = 4 * SMALL_BYTES
CONTENT = bytes(range(256)) * (SIZE // 256)


def answer(download: Download) -> tuple[dict[str, str], bytes]:
    """Headers and body of the right answer to the next attempt."""
    text = download.headers().get("range")
    if text is None:
        return {"content-length": str(SIZE), "etag": '"1"'}, CONTENT
    first, _, last = text.removeprefix("bytes=").partition("-")
    start, end = (int(first), int(last) + 1) if first else (max(0, SIZE - int(last)), SIZE)
    body = CONTENT[start:end]
    return {"content-range": f"bytes {start}-{end - 1}/{SIZE}", "content-length": str(len(body)), "etag": '"1"'}, body


DOWNLOADS = st.one_of(
    st.builds(
        lambda start, length: Download.of_range("key", start, min(SIZE, start + length)),
        st.integers(0, SIZE - 1),
        st.integers(1, SIZE),
    ),
    st.builds(lambda length: Download.of_suffix("key", length), st.integers(1, 2 * SIZE)),
    st.just(None),
)


@given(DOWNLOADS, st.lists(st.integers(0, SIZE), max_size=5), st.integers(1, SIZE))
def test_any_number_of_breaks_gives_the_same_bytes(made: Download | None, breaks: list[int], chunk_bytes: int) -> None:
    download = made or Download.of_object("key")
    for received in [*breaks, SIZE]:
        headers, body = answer(download)
        download.begin(206 if "content-range" in headers else 200, headers)
        body = body[:received]
        for at in range(0, len(body), max(chunk_bytes, len(body) // 8)):
            download.add(body[at : at + max(chunk_bytes, len(body) // 8)])
        try:
            download.finish()
            break
        except Transient:
            continue
    assert download.start is not None and download.end is not None
    assert bytes(download.buffer()) == CONTENT[download.start : download.end]
    assert memoryview(download.buffer()).readonly
    assert download.meta().size_bytes == SIZE


@given(
    st.sampled_from([200, 206]),
    st.dictionaries(
        st.sampled_from(["content-range", "content-length", "etag", "last-modified"]),
        st.one_of(
            st.text(max_size=20),
            st.builds("bytes {}-{}/{}".format, st.integers(-2, 300), st.integers(-2, 300), st.integers(-2, 300)),
            st.integers(-5, 400).map(str),
        ),
    ),
    st.lists(st.binary(max_size=200), max_size=4),
)
def test_any_answer_is_the_range_or_an_error(status: int, headers: dict[str, str], body: list[bytes]) -> None:
    download = Download.of_range("key", 10, 200)
    try:
        download.begin(status, headers)
        for chunk in body:
            download.add(chunk)
        download.finish()
    except StoreError:
        return
    assert len(bytes(download.buffer())) == 190


def test_more_than_the_range_is_noticed_before_it_is_kept() -> None:
    download = Download.of_range("key", 0, 10)
    download.begin(206, {"content-range": f"bytes 0-9/{SIZE}"})
    download.add(b"123456789")
    with pytest.raises(LongBody):
        download.add(b"xy")
    assert download.received == 9


class Changing:
    """An object that is replaced between the attempts of a read; a store may or may not know `if-match`."""

    def __init__(self, *, knows_if_match: bool) -> None:
        self.knows_if_match = knows_if_match
        self.content, self.etag = b"", ""

    def replace(self, size_bytes: int) -> None:
        """Other bytes under the key."""
        self.etag = f'"{self.etag.count("x")}x{self.etag[1:-1]}"'
        self.content = bytes((at * 7 + len(self.etag)) % 251 for at in range(size_bytes))

    def attempt(self, download: Download, received: int) -> None:
        """One request, whose answer breaks off after so many bytes; raises `Transient` unless all is here."""
        headers = download.headers()
        if self.knows_if_match and headers.get("if-match", self.etag) != self.etag:
            download.object_changed()  # what the transport does on 412
        first, _, last = headers.get("range", "").removeprefix("bytes=").partition("-")
        size = len(self.content)
        start, end = (int(first), min(size, int(last) + 1)) if first else (max(0, size - int(last or size)), size)
        if start >= size:
            download.no_such_range({"content-range": f"bytes */{size}"})
        known = {"content-length": str(end - start), "etag": self.etag}
        if "range" in headers:
            download.begin(206, {**known, "content-range": f"bytes {start}-{end - 1}/{size}"})
        else:
            download.begin(200, known)
        download.add(self.content[start : min(end, start + received)])
        download.finish()


WISHES = {
    "range": (lambda: Download.of_range("key", 20, 60), slice(20, 60)),
    "suffix": (lambda: Download.of_suffix("key", 50), slice(-50, None)),
    "object": (lambda: Download.of_object("key"), slice(None)),
}


@pytest.mark.parametrize("kind", WISHES)
@given(st.booleans(), st.lists(st.tuples(st.integers(60, 120) | st.none(), st.integers(0, 70)), min_size=1, max_size=6))
@example(True, [(120, 10), (60, 0)])
@example(False, [(60, 10), (120, 0)])
@example(True, [(120, 0), (60, 10)])
def test_an_object_that_is_replaced_under_a_read_is_read_anew(
    kind: str, knows_if_match: bool, steps: list[tuple[int | None, int]]
) -> None:
    """Each step is one attempt: perhaps the object gets another size before it, and it breaks off after some bytes."""
    make, part = WISHES[kind]
    download, there = make(), Changing(knows_if_match=knows_if_match)
    there.replace(100)
    for size_bytes, received in [*steps, (None, 1000), (None, 1000)]:  # the last but one may find it changed
        if size_bytes is not None:
            there.replace(size_bytes)
        try:
            there.attempt(download, received)
            break
        except Transient:
            continue
        except InvalidRange:  # the rest of what is no more lies behind the end
            assert not knows_if_match
            return
    assert bytes(download.buffer()) == there.content[part]
    meta = download.meta()
    assert (meta.size_bytes, meta.etag) == (len(there.content), there.etag)


def dated(text: str) -> datetime | None:
    download = Download.of_object("key")
    download.begin(200, {"content-length": "0", "last-modified": text})
    return download.meta().last_modified


@given(st.datetimes(min_value=datetime(1900, 1, 1), timezones=st.just(UTC)))
def test_times_are_those_of_their_texts(time: datetime) -> None:
    text = format_datetime(time, usegmt=True)
    assert dated(text) == time.replace(microsecond=0) == parsedate_to_datetime(text)


@pytest.mark.parametrize(
    "text",
    [
        "Tue, 31 Feb 2026 00:00:00 GMT",
        "Tue, 24 Xyz 2026 00:00:00 GMT",
        "Tue, 24 Nov 2026 25:00:00 GMT",
        "Tue, 24 Nov 2026 06:11:00 +0200",
        "24 Nov 2026 06:11:00 GMT",
        "Tuesday, 24-Nov-26 06:11:00 GMT",
        "yesterday",
        "",
    ],
)
def test_other_texts_of_times_are_read_as_those_of_mail(text: str) -> None:
    try:
        expected = parsedate_to_datetime(text)
    except ValueError:
        expected = None
    assert dated(text) == expected


def test_the_whole_of_an_empty_object_is_an_answer_to_a_wish_for_its_end() -> None:
    download = Download.of_suffix("key", 50)
    download.begin(200, {"content-length": "0", "etag": '"1"'})  # as versitygw has it; others say 416
    download.finish()
    assert (bytes(download.buffer()), download.size_bytes, download.etag) == (b"", 0, '"1"')
