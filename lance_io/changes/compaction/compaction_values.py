"""Plans, tasks and results of a compaction as values for other processes; names and JSON are pylance's."""

from __future__ import annotations

import json
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any, Self

from lance_io.changes.compaction.compaction_options import CompactionSettings
from lance_io.errors import UsageError
from lance_io.reads.metadata.fragment_metadata import FragmentMetadata

if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping


class ReducesToJson:
    """A value that is pickled as its JSON."""

    def json(self) -> str:
        """The value as JSON, which pylance can read, too."""
        return json.dumps(self._to_json(), separators=(",", ":"))

    @classmethod
    def from_json(cls, text: str) -> Self:
        """The inverse of `json`.

        Args:
            text: JSON of a value of this class.

        Returns:
            The value.

        Raises:
            ValueError: The text is not the JSON of such a value.
        """
        try:
            values = json.loads(text)
            return cls._of_json(values)
        except (KeyError, TypeError, AttributeError, json.JSONDecodeError) as error:
            raise UsageError(f"not the JSON of a {cls.__name__}: {error!r}") from error

    def __reduce__(self) -> tuple[Any, ...]:
        return type(self).from_json, (self.json(),)

    def _to_json(self) -> dict[str, Any]:
        raise NotImplementedError

    @classmethod
    def _of_json(cls, values: Mapping[str, Any]) -> Self:
        raise NotImplementedError


@dataclass(frozen=True)
class CompactionMetrics:
    """Effects of a compaction.

    Attributes:
        fragments_removed: Number of removed fragments.
        fragments_added: Number of new fragments.
        files_removed: Number of removed data files and deletion files.
        files_added: Number of new data files.
    """

    fragments_removed: int = 0
    fragments_added: int = 0
    files_removed: int = 0
    files_added: int = 0

    def __add__(self, other: CompactionMetrics) -> CompactionMetrics:
        return CompactionMetrics(
            self.fragments_removed + other.fragments_removed,
            self.fragments_added + other.fragments_added,
            self.files_removed + other.files_removed,
            self.files_added + other.files_added,
        )


@dataclass(frozen=True)
class RewriteResult(ReducesToJson):
    """Result of a task: rows in new files, which no version refers to before `Compaction.commit`.

    Attributes:
        read_version: Version that the task read.
        metrics: Effects of this task.
        new_fragments: New fragments, with id 0.
        original_fragments: Fragments whose rows they hold, in this order.
        row_addrs: Old addresses of the rows, in their order, as a Roaring treemap. None if no index needs them.
    """

    read_version: int
    metrics: CompactionMetrics
    new_fragments: list[FragmentMetadata]
    original_fragments: list[FragmentMetadata]
    row_addrs: bytes | None = field(default=None, repr=False)

    def _to_json(self) -> dict[str, Any]:
        return {
            "metrics": vars(self.metrics),
            "new_fragments": _fragments_json(self.new_fragments),
            "read_version": self.read_version,
            "original_fragments": _fragments_json(self.original_fragments),
            "row_addrs": None if self.row_addrs is None else list(self.row_addrs),
        }

    @classmethod
    def _of_json(cls, values: Mapping[str, Any]) -> Self:
        addresses = values.get("row_addrs")
        return cls(
            values["read_version"],
            CompactionMetrics(**values["metrics"]),
            _fragments_of(values["new_fragments"]),
            _fragments_of(values["original_fragments"]),
            None if addresses is None else bytes(addresses),
        )


@dataclass(frozen=True)
class TaskValues(ReducesToJson):
    """Fragments that are rewritten together.

    Attributes:
        read_version: Version of the table.
        fragments: The fragments of this version.
        options: Options of the compaction.
    """

    read_version: int
    fragments: list[FragmentMetadata]
    options: CompactionSettings = field(repr=False)

    def _to_json(self) -> dict[str, Any]:
        return {
            "task": {"fragments": _fragments_json(self.fragments)},
            "read_version": self.read_version,
            "options": self.options.to_json(),
        }

    @classmethod
    def _of_json(cls, values: Mapping[str, Any]) -> Self:
        fragments = _fragments_of(values["task"]["fragments"])
        return cls(values["read_version"], fragments, CompactionSettings.from_json(values["options"]))


def tasks_json(read_version: int, tasks: Iterable[TaskValues], options: CompactionSettings) -> dict[str, Any]:
    """The JSON of a plan."""
    return {
        "tasks": [{"fragments": _fragments_json(task.fragments)} for task in tasks],
        "read_version": read_version,
        "options": options.to_json(),
    }


def _fragments_json(fragments: Iterable[FragmentMetadata]) -> list[dict[str, Any]]:
    return [
        {name: value for name, value in fragment.to_json().items() if value is not None and value != []}
        for fragment in fragments
    ]


def _fragments_of(values: Iterable[Any]) -> list[FragmentMetadata]:
    return [FragmentMetadata.from_json(json.dumps(each)) for each in values]
