"""Manifests of many versions, or their ends, read concurrently."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, Final, Protocol, TypeVar

from lance_io.commit.latest import read_named
from lance_io.errors import FormatError, LanceError, NotFound
from lance_io.file.file_requests import ReadFiles
from lance_io.file.file_steps import Independent, Suffix
from lance_io.file.open.file_source import ReadContext
from lance_io.limits import MIB
from lance_io.plans.plan import Together
from lance_io.spans import Ranges
from lance_io.store.offers import offers_sync_reads

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence

    from lance_io.commit.latest import VersionFile
    from lance_io.file.file_steps import FilesSteps, FileSteps
    from lance_io.plans.plan import Plan
    from lance_io.reads.version.session import Session
    from lance_io.store.api import Buffer
    from lance_io.store.url import Location

T = TypeVar("T")
T_co = TypeVar("T_co", covariant=True)
PORTION_BYTES: Final = 8 * MIB  # of whole files, read at once if that is one call


class Decode(Protocol[T_co]):
    """Decoder of a manifest file; `data` is its end from `data_start` on."""

    def __call__(self, data: Buffer, *, data_start: int = 0) -> T_co | None:
        """None if more of the file is needed."""


def read_each(
    location: Location,
    session: Session,
    files: Sequence[VersionFile],
    decode: Decode[T],
    end_bytes: int | None = None,
) -> Plan[list[T]]:
    """The decoded values of some manifest files, in their order; one round.

    end_bytes  of each file, read first; None for the whole file. If the end of a file does not suffice, a second
               round reads it whole

    A file that was renamed after the listing is found by its newer name. Raises `NotFound` for a missing file, and
    decoding errors.
    """
    context = ReadContext(location.store, session.cache, shared=session.io_scheduler)
    answers_sync = offers_sync_reads(location.store)
    try:
        decoded: list[T] = []
        for portion in _portions(files, PORTION_BYTES if answers_sync and end_bytes is None else None):
            decoded += yield ReadFiles(context, _side_by_side(portion, decode, end_bytes, answers_sync=answers_sync))
        return decoded
    except (NotFound, FormatError):
        pass
    whole: list[T] = yield Together([_read_whole(location, file, decode) for file in files])
    return whole


def _portions(files: Sequence[VersionFile], bytes_max: int | None) -> Iterator[Sequence[VersionFile]]:
    """Files to read at once: up to `bytes_max`, at least one."""
    first, num_bytes = 0, 0
    for at, file in enumerate(files):
        num_bytes += file.size_bytes
        if bytes_max is not None and num_bytes > bytes_max and at > first:
            yield files[first:at]
            first, num_bytes = at, file.size_bytes
    if first < len(files):
        yield files[first:]


def _side_by_side(
    files: Sequence[VersionFile], decode: Decode[T], end_bytes: int | None, *, answers_sync: bool
) -> FilesSteps[list[T]]:
    decoded: list[T] = yield Independent(
        [(file, _steps(file, decode, end_bytes, answers_sync=answers_sync)) for file in files]
    )
    return decoded


def _steps(file: VersionFile, decode: Decode[T], end_bytes: int | None, *, answers_sync: bool) -> FileSteps[T]:
    size_bytes = file.size_bytes
    if end_bytes is not None and answers_sync:  # one call for all files with the same `end_bytes`
        end = yield Suffix(end_bytes)
        decoded = _decode(file.key, decode, end.buffer, end.file_bytes - len(end.buffer))
        if decoded is not None:
            return decoded
    elif end_bytes is not None and end_bytes < size_bytes:
        fetched = yield Ranges.of((size_bytes - end_bytes, size_bytes), purpose="metadata")
        decoded = _decode(file.key, decode, fetched.piece(0, end_bytes), size_bytes - end_bytes)
        if decoded is not None:
            return decoded
    fetched = yield Ranges.of((0, size_bytes), purpose="metadata")
    return _decode_whole(file.key, decode, fetched.piece(0, size_bytes))


def _read_whole(location: Location, file: VersionFile, decode: Decode[T]) -> Plan[T]:
    data = yield from read_named(location.store, file.key)
    return _decode_whole(file.key, decode, data)


def _decode_whole(key: str, decode: Decode[T], data: Any) -> T:
    decoded = _decode(key, decode, data, 0)
    assert decoded is not None, "a whole file is enough"
    return decoded


def _decode(key: str, decode: Decode[T], data: Any, data_start: int) -> T | None:
    try:
        return decode(data, data_start=data_start)
    except LanceError as error:
        error.path = key
        raise
