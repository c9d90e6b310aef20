"""The streaming sink without a JVM: marks, replays, deaths, and who may use a stream_id."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import lance
import pytest
from hypothesis import given as draws
from hypothesis import settings
from hypothesis import strategies as st
from pyspark.sql import types as spark

from lance_io.errors import CommitConflictError, FormatError, UsageError
from lance_io.spark.stream import stream_sink as streamsink
from lance_io.spark.stream.stream_sink import StreamMark, is_committed
from tests.spark.jobs import ID, Job, Stream, files, ids, referenced, struct

if TYPE_CHECKING:
    from pathlib import Path

KEY = "lance_io.stream.s"


@pytest.fixture
def path(tmp_path: Path) -> str:
    return str(tmp_path / "t.lance")


def mark(path: str) -> str | None:
    return lance.dataset(path).config().get(KEY)


# -- marks -----------------------------------------------------------------------------------------------------------


@draws(st.integers(0, 2**40), st.integers(0, 2**40), st.sampled_from(["-", "0123456789abcdef"]))
def test_a_mark_is_read_as_it_was_written(batch_id: int, num_rows: int, checkpoint: str) -> None:
    found = StreamMark(batch_id, num_rows, checkpoint)
    assert StreamMark.parse(found.text) == found


@draws(st.text(max_size=30))
@settings(max_examples=200)
def test_a_damaged_mark_is_an_error_or_a_mark(text: str) -> None:
    try:
        assert StreamMark.parse(text).text.split(" ")[2] == text.split(" ")[2]
    except FormatError as error:
        assert "mark of a stream" in str(error)


DONE, NEW, REFUSED = "done", "new", "refused"
CASES = [  # mark (batch, rows, checkpoint), batch that comes, reset, outcome
    (None, (0, 5, "a"), False, NEW),
    (None, (7, 5, "-"), False, NEW),
    ((3, 5, "a"), (4, 9, "a"), False, NEW),
    ((3, 5, "a"), (9, 9, "a"), False, NEW),
    ((3, 5, "a"), (3, 5, "a"), False, DONE),
    ((3, 5, "a"), (3, 5, "-"), False, DONE),
    ((3, 5, "a"), (3, 6, "a"), False, REFUSED),
    ((3, 5, "a"), (3, 0, "a"), False, REFUSED),
    ((3, 5, "a"), (2, 77, "a"), False, DONE),
    ((0, 5, "a"), (0, 5, "a"), False, DONE),
    ((0, 5, "a"), (0, 5, "a"), True, DONE),
    ((0, 5, "a"), (0, 5, "b"), False, REFUSED),
    ((0, 5, "a"), (0, 5, "b"), True, NEW),
    ((1, 5, "a"), (0, 5, "a"), False, REFUSED),
    ((1, 5, "-"), (0, 5, "-"), False, REFUSED),
    ((1, 5, "a"), (0, 5, "a"), True, NEW),
    ((3, 5, "a"), (4, 5, "b"), False, REFUSED),
    ((3, 5, "a"), (4, 5, "b"), True, NEW),
    ((3, 5, "a"), (3, 5, "b"), True, REFUSED),
]


@pytest.mark.parametrize(("found", "new", "reset", "outcome"), CASES)
def test_which_batches_are_committed(found: Any, new: Any, reset: bool, outcome: str) -> None:
    seen = None if found is None else StreamMark(*found)
    if outcome == REFUSED:
        with pytest.raises(UsageError, match="stream_id 's'"):
            is_committed(seen, StreamMark(*new), "s", reset=reset)
    else:
        assert is_committed(seen, StreamMark(*new), "s", reset=reset) == (outcome == DONE)


# -- batches ---------------------------------------------------------------------------------------------------------


def test_a_batch_is_one_version_with_its_mark(path: str) -> None:
    stream = Stream(path, checkpointLocation="/ck")
    stream.run(0, [1], [2, 3])
    stream.run(1, [])
    stream.run(2, [4])
    table = lance.dataset(path)
    assert ids(path) == [1, 2, 3, 4] and table.version == 2
    assert mark(path) == f"2 1 {streamsink.checkpoint_digest('/ck/')}"
    properties = table.read_transaction(2).transaction_properties
    assert (properties["lance_io.stream_id"], properties["lance_io.batch_id"]) == ("s", "2")


def test_a_replay_is_recognised_and_its_files_removed(path: str) -> None:
    stream = Stream(path)
    stream.run(0, [1])
    stream.run(1, [2])
    stream.run(1, [2])
    assert ids(path) == [1, 2] and files(path) == referenced(path)
    with pytest.raises(UsageError, match="committed with 1 rows and has 2 now"):
        stream.run(1, [2, 3])
    assert ids(path) == [1, 2] and files(path) == referenced(path)


def test_another_checkpoint_needs_a_reset(path: str) -> None:
    """Its place is told where the query sets it; a place that is not told is taken for the same."""
    Stream(path, checkpointLocation="/ck").run(0, [1])
    Stream(path).run(1, [2])
    Stream(path, checkpointLocation="/ck").run(2, [3])
    with pytest.raises(UsageError, match="in use by a query with another checkpoint"):
        Stream(path, checkpointLocation="/other").run(3, [4])
    with pytest.raises(UsageError, match="stream_reset=true"):
        Stream(path, checkpointLocation="/other").run(0, [4])
    assert ids(path) == [1, 2, 3] and files(path) == referenced(path)
    again = Stream(path, checkpointLocation="/other", stream_reset=True)
    for _ in range(2):
        again.run(0, [4])
    assert ids(path) == [1, 2, 3, 4] and mark(path) == f"0 1 {streamsink.checkpoint_digest('/other')}"


def test_an_abort_after_the_commit_keeps_the_batch(path: str) -> None:
    """The process that committed died: Spark aborts, and sends the batch again."""
    stream = Stream(path)
    messages = stream.write([1], [2])
    stream.writer().commit(messages, 0)
    stream.writer().abort(messages, 0)
    assert ids(path) == [1, 2]
    stream.run(0, [1], [2])
    assert ids(path) == [1, 2] and lance.dataset(path).version == 1


def test_a_batch_that_died_before_it_was_visible(path: str) -> None:
    stream = Stream(path)
    messages = stream.write([1])
    stream.writer().abort([*messages, None], 0)
    assert not files(path)
    stream.run(0, [1])
    assert ids(path) == [1]


def test_one_writer_for_two_batches(path: str) -> None:
    """Should a writer be used again, the second batch is not taken for the first."""
    stream = Stream(path)
    writer = stream.writer()
    from tests.spark.jobs import batch

    for number in range(2):
        writer.commit([writer.write(iter([batch(ID, [number])]))], number)
    assert ids(path) == [0, 1]


def test_the_mark_survives_what_others_commit(path: str) -> None:
    stream = Stream(path)
    stream.run(0, [1])
    messages = stream.write([2])
    Job(path).run([3])
    lance.dataset(path).update_config({"other": "x"})
    stream.writer().commit(messages, 1)
    Job(path, overwrite=True).run([4])
    lance.dataset(path).optimize.compact_files()
    assert mark(path) == "1 1 -" and lance.dataset(path).config()["other"] == "x"
    stream.run(1, [2])
    assert ids(path) == [4]


def test_a_restore_takes_the_mark_back(path: str) -> None:
    stream = Stream(path)
    stream.run(0, [1])
    stream.run(1, [2])
    lance.dataset(path, version=1).restore()
    assert ids(path) == [1] and mark(path) == "0 1 -"
    stream.run(1, [2])
    assert ids(path) == [1, 2]


def test_a_commit_of_the_same_batch_in_between(path: str, monkeypatch: pytest.MonkeyPatch) -> None:
    """A process that was thought dead commits while its successor is about to."""
    stream = Stream(path)
    stream.run(0, [0])
    slow, fast = stream.write([1]), stream.write([1])
    _commit_before(monkeypatch, lambda: stream.writer().commit(fast, 1))
    stream.writer().commit(slow, 1)
    assert ids(path) == [0, 1] and files(path) == referenced(path)


def test_another_query_in_between(path: str, monkeypatch: pytest.MonkeyPatch) -> None:
    stream = Stream(path)
    stream.run(0, [0])
    mine, other = stream.write([1]), stream.write([2])
    _commit_before(monkeypatch, lambda: stream.writer().commit(other, 7))
    with pytest.raises(CommitConflictError, match="another writer set it"):
        stream.writer().commit(mine, 1)
    stream.writer().abort(mine, 1)
    assert ids(path) == [0, 2] and files(path) == referenced(path)


def _commit_before(monkeypatch: pytest.MonkeyPatch, other: Any) -> None:
    """Let `other` commit after the mark was read and before the batch is committed."""
    inner = streamsink.commit_messages  # type: ignore[attr-defined]

    def commit_messages(*args: Any, **options: Any) -> Any:
        monkeypatch.setattr(streamsink, "commit_messages", inner)
        other()
        return inner(*args, **options)

    monkeypatch.setattr(streamsink, "commit_messages", commit_messages)


def test_complete_mode_replaces_the_rows(path: str) -> None:
    stream = Stream(path, overwrite=True)
    stream.run(0, [1, 2])
    stream.run(1, [3])
    stream.run(1, [3])
    assert ids(path) == [3] and lance.dataset(path).version == 2
    stream.run(2, [])
    assert ids(path) == [] and mark(path) == "2 0 -"


def test_new_columns_in_a_stream(path: str, monkeypatch: pytest.MonkeyPatch) -> None:
    Stream(path).run(0, [1])
    given = struct(id=spark.LongType(), text=spark.StringType())
    stream = Stream(path, given, mergeSchema="true")
    for _ in range(2):
        stream.run(1, [(2, "b")])
    table = lance.dataset(path)
    assert table.to_table().to_pylist() == [{"id": 1, "text": None}, {"id": 2, "text": "b"}]
    assert table.version == 2 and mark(path) == "1 1 -"


def test_two_streams_in_one_table(path: str) -> None:
    one, two = Stream(path), Stream(path, stream_id="other")
    one.run(0, [1])
    two.run(0, [2])
    one.run(0, [1])
    two.run(1, [3])
    assert ids(path) == [1, 2, 3]
    assert set(lance.dataset(path).config()) == {KEY, "lance_io.stream.other"}
