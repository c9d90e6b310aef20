"""The error tree: second bases, text, pickling, groups."""

from __future__ import annotations

import inspect
import pickle

import pyarrow as pa
import pytest

from lance_io import errors
from lance_io.errors import FormatError, LanceError, NotFound

CLASSES = [c for _, c in inspect.getmembers(errors, inspect.isclass) if issubclass(c, LanceError)]


@pytest.mark.parametrize("cls", CLASSES)
def test_errors_survive_pickling(cls: type[LanceError]) -> None:
    error = cls("something is wrong", path="s3://b/t.lance", retryable=True)
    again = pickle.loads(pickle.dumps(error))
    assert type(again) is cls
    assert (str(again), again.path, again.retryable) == (str(error), "s3://b/t.lance", True)


def test_places_are_told_outermost_first() -> None:
    error = FormatError("3 levels for 2 items", where="chunk 4").within('column 1 ("emb"), page 0')
    error.path = "t.lance/data/7f.lance"
    assert str(error) == 't.lance/data/7f.lance: column 1 ("emb"), page 0, chunk 4: 3 levels for 2 items'
    assert str(pickle.loads(pickle.dumps(error))) == str(error)


def test_second_bases_are_those_that_users_of_pylance_catch() -> None:
    assert issubclass(FormatError, (ValueError, OSError)) and issubclass(NotFound, ValueError)
    for cls, bases in {
        "FormatError": (ValueError, OSError),
        "UnsupportedError": (NotImplementedError, ValueError),
        "NotFound": (FileNotFoundError, ValueError),
        "BindError": (ValueError, OSError),
        "AccessDenied": (PermissionError, ValueError),
        "StoreError": (OSError, ValueError),
        "PrimaryKeyError": (ValueError, OSError, RuntimeError),
        "EvaluationError": (pa.ArrowInvalid, ValueError, OSError),
        "CommitConflictError": (OSError,),
    }.items():
        assert all(issubclass(getattr(errors, cls), base) for base in bases)
