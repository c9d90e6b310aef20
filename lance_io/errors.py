"""Every exception that `lance_io` raises on purpose.

    LanceError                                      path, retryable, attempts, request_id
    ├── FormatError (ValueError, OSError)           bytes that contradict the specification, with their location
    ├── ResourceLimitError (MemoryError)            a value that decodes to more than `max_decoded_bytes`
    ├── UnsupportedError (NotImplementedError, ValueError)   well formed, but a version, flag or encoding we do not read
    ├── NotFound (FileNotFoundError, ValueError)    an object, dataset, version or tag that does not exist
    ├── AlreadyExists (FileExistsError)
    ├── AccessDenied (PermissionError, ValueError)
    ├── StoreError (OSError, ValueError)            the store failed; `retryable`: trying again may help
    ├── BindError (ValueError, OSError)             a filter or projection that does not fit the schema
    ├── EvaluationError (pa.ArrowInvalid, OSError)  a filter or column that cannot be computed for a row
    ├── SchemaError (ValueError, OSError)           data that cannot be stored, or does not fit the table's schema
    │   ├── UnsupportedDataError (UnsupportedError)     data of a type that the format, or this version of it, lacks
    │   └── PrimaryKeyError (RuntimeError)              a primary key of fields that cannot be one
    ├── CommitConflictError (OSError)               another writer committed first and the changes conflict
    ├── CommitUnknownError (OSError)                the answer to the deciding write was lost, read-back failed too
    ├── CommitHandlerError (OSError)                a user's commit lock raised an error
    ├── DeadlineExceeded (TimeoutError)             the call did not end within its `timeout=`
    ├── ForkedRuntimeError (RuntimeError)           used after a fork that it cannot survive
    ├── InternalError (RuntimeError)                a check of our own failed, before anything was changed
    └── UsageError (ValueError)                     invalid arguments or an invalid call
        └── OperationError (OSError)                an operation that does not fit its table

The second bases exist because pylance raises `ValueError` in one place and `OSError` (or `RuntimeError`) in another
for the same fault, and its users catch either. If a row cannot be computed (a failing cast, a division by zero), its
scans raise `pyarrow.ArrowInvalid` (a `ValueError`), its counts and takes `OSError`.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from lance_io.redaction import hide_secrets

if TYPE_CHECKING:
    from typing import Self


class LanceError(Exception):
    """Base class of all errors of `lance_io`; never raised itself.

    Credentials in URLs are removed from all texts and notes when they are set, so that no copy of an error has any.

    Args:
        message: The error text.
        path: The object concerned, a URI or a key, or None.
        retryable: Whether the same call may succeed later.

    Attributes:
        message: The error text.
        path: The object concerned, a URI or a key, or None.
        retryable: Whether the same call may succeed later.
        attempts: How often the failed request was sent to the store.
        request_id: The server's id of the last of these requests, for the operators of the store; None if there was no
            answer, no id in it, or no server.
    """

    path: str | None
    retryable: bool
    attempts: int = 1
    request_id: str | None = None

    def __init__(self, message: str = "", *, path: str | None = None, retryable: bool = False) -> None:
        self.message = message
        super().__init__(self.message)
        self.path = path
        self.retryable = retryable

    def __setattr__(self, name: str, value: object) -> None:
        if isinstance(value, str):
            value = hide_secrets(value)
            if name == "message" and not value.isascii():  # half of a surrogate pair could not be written anywhere
                value = value.encode(errors="backslashreplace").decode()
        super().__setattr__(name, value)

    def add_note(self, note: str) -> None:
        """See `BaseException.add_note`; removes credentials.

        Args:
            note: The text of the note.
        """
        super().add_note(hide_secrets(note))

    def __str__(self) -> str:
        is_named = self.path is None or self.path in self.message
        return f"{self.message if is_named else f'{self.path}: {self.message}'}{self.request_suffix}"

    @property
    def request_suffix(self) -> str:
        """The end of the error text for requests to a store.

        Returns:
            ` [request id R, 3 attempts]`, or parts of it, or an empty text.
        """
        parts = [] if self.request_id is None else [f"request id {self.request_id}"]
        if self.attempts > 1:
            parts.append(f"{self.attempts} attempts")
        return f" [{', '.join(parts)}]" if parts else ""

    def copy_request_info(self, other: LanceError) -> Self:
        """Copy the request details of the error that this one replaces.

        Args:
            other: The replaced error.

        Returns:
            This error, with `attempts` and `request_id` of `other`.
        """
        self.attempts, self.request_id = other.attempts, other.request_id
        return self

    def __reduce__(self) -> tuple[Any, ...]:
        return _rebuild, (type(self), self.message, dict(self.__dict__))


def _rebuild(cls: type[LanceError], message: str, state: dict[str, Any]) -> LanceError:
    error = cls(message)
    error.__dict__.update(state)
    return error


class FormatError(LanceError, OSError, ValueError):
    """Bytes that contradict the format: the file is damaged, or its writer violates the specification.

    Args:
        message: See `LanceError`.
        path: See `LanceError`.
        where: Location inside the file, outermost first, such as `column 3 ("emb"), page 0, chunk 17`.
        retryable: See `LanceError`.
    """

    def __init__(
        self, message: str = "", *, path: str | None = None, where: str | None = None, retryable: bool = False
    ) -> None:
        super().__init__(message, path=path, retryable=retryable)
        self.where = where

    def __str__(self) -> str:
        parts = [part for part in (self.path, self.where) if part]
        return ": ".join([*parts, self.message]) + self.request_suffix

    def within(self, where: str) -> FormatError:
        """Prepend an outer location to `where`.

        Args:
            where: The outer location.

        Returns:
            This error.
        """
        self.where = f"{where}, {self.where}" if self.where else where
        return self


class ResourceLimitError(LanceError, MemoryError):
    """A value that decodes to more bytes than `max_decoded_bytes`: a guard against decompression bombs.

    The file may be valid: to read the value, pass a larger `max_decoded_bytes` to the session or to the call that opens
    the file.

    Args:
        message: See `LanceError`.
        path: See `LanceError`.
        where: Location inside the file, outermost first, such as `column 3 ("text"), page 0, row 17`.
        retryable: See `LanceError`.
    """

    def __init__(
        self, message: str = "", *, path: str | None = None, where: str | None = None, retryable: bool = False
    ) -> None:
        super().__init__(message, path=path, retryable=retryable)
        self.where = where

    def __str__(self) -> str:
        parts = [part for part in (self.path, self.where) if part]
        return ": ".join([*parts, self.message]) + self.request_suffix

    def within(self, where: str) -> ResourceLimitError:
        """See `FormatError.within`."""
        self.where = f"{where}, {self.where}" if self.where else where
        return self


class UnsupportedError(LanceError, NotImplementedError, ValueError):
    """Well-formed input that needs a version, feature flag or encoding that this release does not implement."""


class NotFound(LanceError, FileNotFoundError, ValueError):
    """An object, dataset, version, tag or branch that does not exist."""


class ManifestMissing(LanceError, OSError, ValueError):
    """The manifest of a table's newest version does not exist, although a database has a row for it.

    The table's files were removed without its rows, or the manifest was lost. Not a `NotFound`: before you can create a
    table at this location, `LanceDataset.drop` has to remove the rows.
    """


class AlreadyExists(LanceError, FileExistsError):
    """The object to create exists already."""


class AccessDenied(LanceError, PermissionError, ValueError):
    """The store refused the credentials, or they do not allow the operation."""


class StoreError(LanceError, OSError, ValueError):
    """The store failed. Subclasses that name the failure are private to `lance_io.store`."""


class BindError(LanceError, ValueError, OSError):
    """A column list or filter that does not fit the schema; its text starts with `Invalid user input: `."""

    def __str__(self) -> str:
        return f"Invalid user input: {super().__str__()}"


if TYPE_CHECKING:

    class EvaluationError(LanceError, ValueError, OSError):
        """See below."""

else:

    def __getattr__(name: str) -> Any:
        """Create `EvaluationError` on first use: its base class is pyarrow's, which may not be loaded."""
        if name != "EvaluationError":
            raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
        from pyarrow import ArrowInvalid

        class EvaluationError(LanceError, ArrowInvalid, OSError):
            """A filter or computed column that fits the schema but not a row: a division by zero, a failing cast."""

            __qualname__ = name

        return globals().setdefault(name, EvaluationError)


class SchemaError(LanceError, ValueError, OSError):
    """Data that the format cannot store, or that does not fit the schema of its table."""


class UnsupportedDataError(SchemaError, UnsupportedError):
    """Data of a type that the format, or the version of it to write, does not have."""


class PrimaryKeyError(SchemaError, RuntimeError):
    """A primary key with a field that cannot be part of one: nullable, with child fields, or inside a list."""


class CommitConflictError(LanceError, OSError):
    """Another writer committed first and the two changes conflict."""


class CommitUnknownError(LanceError, OSError):
    """The deciding write got no answer and reading back failed: the commit may or may not have happened.

    Attributes:
        transaction: The transaction of the commit. Pass it to `LanceDataset.commit`, which applies it exactly once,
            even if this commit has happened. None for an operation that is no commit (creating a tag).
    """

    transaction: Any = None


class CommitHandlerError(LanceError, OSError):
    """A user's commit lock raised an error, the `__cause__`. The commit may or may not have happened."""


class DeadlineExceeded(LanceError, TimeoutError):
    """A call did not end within its `timeout=`; it was cancelled, and its resources are free."""


class ForkedRuntimeError(LanceError, RuntimeError):
    """An object that cannot survive `os.fork` was used in the child. Use the spawn start method."""


class InternalError(LanceError, RuntimeError):
    """A check failed because of a fault in this library. It runs before the change, so nothing has changed."""


class UsageError(LanceError, ValueError):
    """An invalid call or argument; the message describes valid ones."""


class OperationError(UsageError, OSError):
    """A change that does not fit its table."""
