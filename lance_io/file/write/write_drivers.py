"""The two drivers of writing computations.

    SyncFileWrites    in the caller's thread, over a store that writes without waiting (local disk, memory)
    AsyncFileWrites  on the engine's loop, over any store

Both run the same generators and encode pages on the pool for the CPU. A driver belongs to one data file and the files
beside it (`<stem>/<name>`). Nothing of them is visible before `close`, or, of files beside it, before they are whole;
`abort` removes everything, those included.
"""

from __future__ import annotations

import asyncio
from concurrent.futures import Future
from typing import TYPE_CHECKING, Any, Final, TypeVar

from lance_io.file.write.write_steps import Begin, Complete, Result, Write
from lance_io.limits import KIB
from lance_io.runtime import cpu_count, cpu_pool

if TYPE_CHECKING:
    from lance_io.file.write.write_steps import WriteSteps
    from lance_io.store.api import Durability, ObjectMeta, ObjectStore, SyncUpload, SyncWrites, Upload

T = TypeVar("T")
INLINE_WORK_BYTES_MAX: Final = 128 * KIB  # encoding less takes about as long as handing it to another thread


def key_beside(key: str, name: str) -> str:
    """The key of a file that lies beside a data file, in the folder that has its name without the ending."""
    folder, slash, file_name = key.rpartition("/")
    stem = file_name.removesuffix(".lance")
    return f"{folder}{slash}{stem}/{name}"


class SyncFileWrites:
    """Runs writing computations in the caller's thread.

    key  of the data file. One thread at a time.
    """

    def __init__(self, store: SyncWrites, key: str, *, durability: Durability | None = None) -> None:
        self._store = store
        self._key = key
        self._durability: Durability | None = durability
        self._uploads: dict[str | None, SyncUpload] = {}
        self._whole: list[str] = []

    def run(self, steps: WriteSteps[T]) -> T:
        """Run a computation to its end."""
        answer: Any = None
        try:
            while True:
                answer = self._answer(steps.send(answer))
        except StopIteration as done:
            result: T = done.value
            return result
        finally:
            steps.close()

    def close(self) -> ObjectMeta:
        """Make the data file visible; the files beside it are whole by then."""
        meta = self._upload(None).close()
        self._whole.clear()
        return meta

    def abort(self) -> None:
        """Remove what was written; harmless a second time and after `close`."""
        for upload in self._uploads.values():
            upload.abort()
        whole, self._whole = self._whole, []
        if whole:
            self._store.delete_sync(whole)

    def _answer(self, request: Any) -> Any:
        if type(request) is Begin:
            return (request.work(),) if cpu_count() == 1 else _begun(request)
        if type(request) is Result:
            ticket = request.ticket
            return ticket.result() if isinstance(ticket, Future) else ticket[0]
        if type(request) is Write:
            self._upload(request.beside).write(request.buffers)
            return None
        assert type(request) is Complete
        self._whole.append(key_beside(self._key, request.beside))  # before it is certain: to be removed in any case
        self._uploads.pop(request.beside).close()
        return None

    def _upload(self, beside: str | None) -> SyncUpload:
        upload = self._uploads.get(beside)
        if upload is None:
            key = self._key if beside is None else key_beside(self._key, beside)
            upload = self._uploads[beside] = self._store.open_upload_sync(key, durability=self._durability)
        return upload


def _begun(request: Begin) -> Any:
    """A ticket: a future, or the result in a tuple where the work is done at once."""
    if request.num_bytes <= INLINE_WORK_BYTES_MAX:
        return (request.work(),)
    return cpu_pool().submit(request.work)


class AsyncFileWrites:
    """Runs writing computations on the engine's loop.

    key  of the data file. One task at a time.
    """

    def __init__(self, store: ObjectStore, key: str, *, durability: Durability | None = None) -> None:
        self._store = store
        self._key = key
        self._durability: Durability | None = durability
        self._uploads: dict[str | None, Upload] = {}
        self._whole: list[str] = []

    async def run(self, steps: WriteSteps[T]) -> T:
        """Run a computation to its end."""
        answer: Any = None
        try:
            while True:
                answer = await self._answer(steps.send(answer))
        except StopIteration as done:
            result: T = done.value
            return result
        finally:
            steps.close()

    async def close(self) -> ObjectMeta:
        """Make the data file visible; the files beside it are whole by then."""
        meta = await (await self._upload(None)).close()
        self._whole.clear()
        return meta

    async def abort(self) -> None:
        """Remove what was written; harmless a second time and after `close`. Not to be cancelled."""
        for upload in self._uploads.values():
            await upload.abort()
        whole, self._whole = self._whole, []
        if whole:
            await self._store.delete(whole)

    async def _answer(self, request: Any) -> Any:
        if type(request) is Begin:
            return _begun(request)
        if type(request) is Result:
            ticket = request.ticket
            return await asyncio.wrap_future(ticket) if isinstance(ticket, Future) else ticket[0]
        if type(request) is Write:
            await (await self._upload(request.beside)).write(request.buffers)
            return None
        assert type(request) is Complete
        self._whole.append(key_beside(self._key, request.beside))
        await self._uploads.pop(request.beside).close()
        return None

    async def _upload(self, beside: str | None) -> Upload:
        upload = self._uploads.get(beside)
        if upload is None:
            key = self._key if beside is None else key_beside(self._key, beside)
            upload = self._uploads[beside] = await self._store.open_upload(key, durability=self._durability)
        return upload
