"""What `hide_secrets` takes out of texts, and what it leaves."""

from __future__ import annotations

import logging
import pickle
import re
import traceback
from pathlib import Path

import pytest

import lance_io
from lance_io.errors import FormatError, LanceError, NotFound
from lance_io.redaction import get_logger, hide_secrets, url_secrets
from lance_io.store.failures import Transient, note_bucket

PACKAGE = Path(lance_io.__file__).parent


@pytest.mark.parametrize(
    ("text", "shown"),
    [
        ("http://user:hidden@127.0.0.1:9/x.lance", "http://***@127.0.0.1:9/x.lance"),
        ("ssh://me@host/x", "ssh://***@host/x"),
        ("http://u:p@ss@h/x", "http://***@h/x"),
        ("ftp://u:pa/ss@h/x", "ftp://***@h/x"),
        ("ftp://u:pa?ss#@h/x", "ftp://***@h/x"),
        ("http://u:my words@h/x: no", "http://***@h/x: no"),
        ("http://u:p%40w@h:80/x", "http://***@h:80/x"),
        ("http://u:123456@h:80/x", "http://***@h:80/x"),
        (r"'http://u:it\'s@h'", "'http://***@h'"),
        ("http://u:a@h http://v:b@g", "http://***@h http://***@g"),
        ("zip://x::https://u:secret@h/y", "zip://x::https://***@h/y"),
        ("az://container:key@account/x", "az://***@account/x"),
        ("https://h/x?sig=abc: gone", "https://h/x?***: gone"),
        ("('https://h/x?X-Amz-Signature=abc&a=b')", "('https://h/x?***')"),
        ("GET /b/k?X-Amz-Credential=AK%2F&b=1 failed", "GET /b/k?*** failed"),
        ("https://h/x#access_token=abc", "https://h/x#***"),
        ("AccountName=a;AccountKey=abcd==;x", "AccountName=a;AccountKey=***;x"),
        ("{'Authorization': 'Bearer abc.def'}", "{'Authorization': '***'}"),
        ("x-amz-security-token: ab/c+d; accept: e", "x-amz-security-token: ***; accept: e"),
        (
            "{'X-Amz-Server-Side-Encryption-Customer-Key': b'abc='}",
            "{'X-Amz-Server-Side-Encryption-Customer-Key': b'***'}",
        ),
    ],
)
def test_credentials_are_taken_out(text: str, shown: str) -> None:
    assert hide_secrets(text) == shown
    assert hide_secrets(shown) == shown


@pytest.mark.parametrize(
    "text",
    [
        "http://host:9000/b/a@b",
        "http://host:9000: refused, says x@y",
        "http://[::1]:9000/a@b",
        "s3://bucket/a@b.lance",
        "az://container@account.dfs.core.windows.net/x",
        "s3://bucket@http://127.0.0.1:9000 cannot promise",
        "s3+ddb://b/t?ddbTableName=rows: no such table",
        "filter token = 'x' and a ? 1",
        "/data/what?.lance",
        "memory://, shared-memory://name/x",
        "authorization failed",
    ],
)
def test_all_else_is_left(text: str) -> None:
    assert hide_secrets(text) == text


def test_what_is_known_goes_in_every_form() -> None:
    text = "a p/w+1 is p%2Fw%2B1, or p/w%2B1"
    assert hide_secrets(text, ["p/w+1", ""]) == "a *** is ***, or ***"
    assert url_secrets("zip://x::https://user:se%2Fcret@h/y?sig=signature&a=b") == [
        "se%2Fcret",
        "se/cret",
        *["signature"] * 2,
    ]


@pytest.mark.parametrize("piece", ["a", ":", "a:", "://", "a://a", "?a=", "&a=", "@", "http://a?:", "'", "a?b=)", "#="])
def test_long_texts_of_a_server_take_no_time(piece: str) -> None:
    """Searches that went over the rest of the text for each of its characters would not end here."""
    text = f"http://user:hidden@host/?{piece * (200_000 // len(piece))} https://u:hidden@h"
    assert "hidden" not in hide_secrets(text)


def test_errors_hold_none_however_they_are_set() -> None:
    uri = "http://user:hidden@host/t.lance"
    made: list[LanceError] = [
        NotFound(f"{uri} is not there", path=uri),
        FormatError(f"{uri} is damaged", path=uri, where=uri),
        Transient(uri, path=uri, operation="get"),
    ]
    later = Transient("x")
    later.path, later.message = uri, f"about {uri}"
    note_bucket(later, uri)
    for error in (*made, later):
        error.add_note(f"also {uri}")
        copy = pickle.loads(pickle.dumps(error))
        assert (str(copy), vars(copy)) == (str(error), vars(error))
        shown = "".join(traceback.format_exception(error)) + repr(error) + str(error.args) + str(vars(error))
        assert "hidden" not in shown + str(pickle.dumps(error))
        assert "host/t.lance" in str(error)


def test_logs_show_none(caplog: pytest.LogCaptureFixture) -> None:
    """In the text of a formatter, and in the record itself: formatters of other packages read the exception in it."""
    logger = get_logger("lance_io.test")
    with caplog.at_level(logging.INFO):
        logger.info("%s and %s", "http://user:hidden@h", 7)
        try:
            raise OSError("https://h/x?sig=hidden")
        except OSError:
            logger.exception("failed")
    text = "\n".join(logging.Formatter().format(record) for record in caplog.records)
    assert "http://***@h and 7" in text and "https://h/x?***" in text
    assert "hidden" not in text + caplog.text
    assert [record.exc_info for record in caplog.records] == [None, None]


def test_an_exception_without_secrets_stays_in_its_record(caplog: pytest.LogCaptureFixture) -> None:
    """Structured logs, as PySpark's, write `exc_info` and omit `exc_text`."""
    failure = OSError("disk full")
    try:
        raise failure
    except OSError:
        get_logger("lance_io.test").exception("failed")
    (record,) = caplog.records
    assert record.exc_info is not None and record.exc_info[1] is failure


def test_every_module_logs_through_it() -> None:
    found = {
        path.relative_to(PACKAGE).as_posix()
        for path in PACKAGE.rglob("*.py")
        if re.search(r"\bgetLogger\(|logging\.(debug|info|warning|error|exception)\(", path.read_text())
    }
    assert found == {"log.py", "redaction.py"}  # the first one makes what users write to
