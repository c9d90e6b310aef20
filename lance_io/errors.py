"""Every exception that `lance_io` raises on purpose.

    LanceError                                      path, retryable, attempts, request_id
    ├── FormatError (ValueError, OSError)           these bytes are not what the specification says; carries where
    ├── ResourceLimitError (MemoryError)            a value that decodes to more than `max_decoded_bytes`
    ├── UnsupportedError (NotImplementedError, ValueError)   well formed, but a version, flag or encoding we do not read
    ├── NotFound (FileNotFoundError, ValueError)    an object, dataset, version or tag that does not exist
    ├── AlreadyExists (FileExistsError)
    ├── AccessDenied (PermissionError, ValueError)
    ├── StoreError (OSError, ValueError)            the store misbehaved; `retryable` says whether trying again helps
    ├── BindError (ValueError, OSError)             a filter or projection that does not fit the schema
    ├── EvaluationError (pa.ArrowInvalid, OSError)  a filter or column that cannot be computed for a row
    ├── SchemaError (ValueError, OSError)           data that cannot be stored, or does not fit the table's schema
    │   ├── UnsupportedDataError (UnsupportedError)     data of a type that the format, or this version of it, lacks
    │   └── PrimaryKeyError (RuntimeError)              a primary key of fields that cannot be one
    ├── CommitConflictError (OSError)               somebody else won and our change does not fit theirs
    ├── CommitUnknownError (OSError)                the answer to the deciding write was lost, read-back failed too
    ├── CommitHandlerError (OSError)                a commit lock of the user's raised something
    ├── DeadlineExceeded (TimeoutError)             the call did not end within its `timeout=`
    ├── ForkedRuntimeError (RuntimeError)           used after a fork that it cannot survive
    ├── InternalError (RuntimeError)                a check of our own failed, before anything was changed
    └── UsageError (ValueError)                     the caller asked for something that makes no sense
        └── OperationError (OSError)                an operation that does not fit the table it is committed to

The second bases exist because pylance raises `ValueError` in one place and `OSError` (or `RuntimeError`) in another
for the same fault, and its users catch either. Where a row cannot be computed (a failing cast, a division by zero) its
scans raise `pyarrow.ArrowInvalid` (a `ValueError`), its counts and takes `OSError`.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from lance_io.redaction import hide_secrets

if TYPE_CHECKING:
    from typing import Self


class LanceError(Exception):
    """Base of all errors raised by `lance_io`; never raised itself.

    message     what is wrong
    path        the object concerned, a URI or a key, or None
    retryable   True when the same call may succeed later
    attempts    how often a store was asked for what it did not serve
    request_id  what the server calls the last of these requests, which those who run it want to know; None: no answer,
                one without an id, or no server

    Credentials in URLs are taken out of all texts and notes as they are set, so that no copy of an error holds any.
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
        super().__setattr__(name, hide_secrets(value) if isinstance(value, str) else value)

    def add_note(self, note: str) -> None:
        """See `BaseException.add_note`."""
        super().add_note(hide_secrets(note))

    def __str__(self) -> str:
        is_named = self.path is None or self.path in self.message
        return f"{self.message if is_named else f'{self.path}: {self.message}'}{self.of_requests}"

    @property
    def of_requests(self) -> str:
        """What the text of the error ends with where a store was asked: ` [request id R, 3 attempts]`, or nothing."""
        told = [] if self.request_id is None else [f"request id {self.request_id}"]
        if self.attempts > 1:
            told.append(f"{self.attempts} attempts")
        return f" [{', '.join(told)}]" if told else ""

    def asked_as(self, other: LanceError) -> Self:
        """The same error, which takes the place of another: about the same requests. Returns itself."""
        self.attempts, self.request_id = other.attempts, other.request_id
        return self

    def __reduce__(self) -> tuple[Any, ...]:
        return _rebuild, (type(self), self.message, dict(self.__dict__))


def _rebuild(cls: type[LanceError], message: str, state: dict[str, Any]) -> LanceError:
    error = cls(message)
    error.__dict__.update(state)
    return error


class FormatError(LanceError, OSError, ValueError):
    """Bytes that contradict the format: the file is damaged, or written by something that breaks the rules.

    where  the place inside the file, outermost first, such as `column 3 ("emb"), page 0, chunk 17`
    """

    def __init__(
        self, message: str = "", *, path: str | None = None, where: str | None = None, retryable: bool = False
    ) -> None:
        super().__init__(message, path=path, retryable=retryable)
        self.where = where

    def __str__(self) -> str:
        parts = [part for part in (self.path, self.where) if part]
        return ": ".join([*parts, self.message]) + self.of_requests

    def within(self, where: str) -> FormatError:
        """The same error, told that it happened inside `where` (outer places come first). Returns itself."""
        self.where = f"{where}, {self.where}" if self.where else where
        return self


class ResourceLimitError(LanceError, MemoryError):
    """A value that takes more memory than `max_decoded_bytes` allows: the guard against small files that become large.

    The file may be right: a larger number, of the session or of the call that opens it, lets the value pass.

    where  the place inside the file, outermost first, such as `column 3 ("text"), page 0, row 17`
    """

    def __init__(
        self, message: str = "", *, path: str | None = None, where: str | None = None, retryable: bool = False
    ) -> None:
        super().__init__(message, path=path, retryable=retryable)
        self.where = where

    def __str__(self) -> str:
        parts = [part for part in (self.path, self.where) if part]
        return ": ".join([*parts, self.message]) + self.of_requests

    def within(self, where: str) -> ResourceLimitError:
        """The same error, told that it happened inside `where` (outer places come first). Returns itself."""
        self.where = f"{where}, {self.where}" if self.where else where
        return self


class UnsupportedError(LanceError, NotImplementedError, ValueError):
    """Well-formed input that needs a version, feature flag or encoding this release does not implement."""


class NotFound(LanceError, FileNotFoundError, ValueError):
    """An object, dataset, version, tag or branch that does not exist."""


class ManifestMissing(LanceError, OSError, ValueError):
    """A database says where the manifest of a table's newest version is, and there is none.

    The table's files were removed without its rows, or the manifest was lost. Not a `NotFound`: no table can be made in
    this place before `LanceDataset.drop` has removed the rows.
    """


class AlreadyExists(LanceError, FileExistsError):
    """The thing to be created is there already."""


class AccessDenied(LanceError, PermissionError, ValueError):
    """The store refused the credentials, or they do not allow the operation."""


class StoreError(LanceError, OSError, ValueError):
    """The store failed. Subclasses that name the failure are private to `lance_io.store`."""


class BindError(LanceError, ValueError, OSError):
    """A column list or filter that does not fit the schema; its text begins with `Invalid user input: `."""

    def __str__(self) -> str:
        return f"Invalid user input: {super().__str__()}"


if TYPE_CHECKING:

    class EvaluationError(LanceError, ValueError, OSError):
        """See below."""

else:

    def __getattr__(name: str) -> Any:
        """`EvaluationError`, made when first asked for: its base is pyarrow's, which not everybody has loaded."""
        if name != "EvaluationError":
            raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
        from pyarrow import ArrowInvalid

        class EvaluationError(LanceError, ArrowInvalid, OSError):
            """A filter or computed column that fits the schema but not a row: a division by zero, a failing cast."""

            __qualname__ = name

        return globals().setdefault(name, EvaluationError)


class SchemaError(LanceError, ValueError, OSError):
    """Data that the format cannot store as it is, or that does not fit the schema of the table it is written to."""


class UnsupportedDataError(SchemaError, UnsupportedError):
    """Data of a type that the format, or the version of it that is to be written, does not have."""


class PrimaryKeyError(SchemaError, RuntimeError):
    """A primary key is declared of a field that cannot be part of one: nullable, with members, or inside of a list."""


class CommitConflictError(LanceError, OSError):
    """Another writer committed first and the two changes do not go together."""


class CommitUnknownError(LanceError, OSError):
    """The deciding write got no answer and reading back failed: the commit may or may not have happened.

    transaction  what was to be committed: give it to `LanceDataset.commit`, which applies it once, whether it happened
                 or not. None where it was no commit (the making of a tag).
    """

    transaction: Any = None


class CommitHandlerError(LanceError, OSError):
    """A user's commit lock raised something, which is the `__cause__`: nobody knows whether the commit has happened."""


class DeadlineExceeded(LanceError, TimeoutError):
    """A call did not end within the time that its `timeout=` allowed; it was cancelled, and what it held is free."""


class ForkedRuntimeError(LanceError, RuntimeError):
    """An object that cannot survive `os.fork` was used in the child. Use the spawn start method."""


class InternalError(LanceError, RuntimeError):
    """A check that can only fail by a fault of this library. It comes before the change, so nothing has happened."""


class UsageError(LanceError, ValueError):
    """A call that makes no sense as written; the message says what to write instead."""


class OperationError(UsageError, OSError):
    """A change that does not fit the table that it is committed to."""
