"""Plans, tasks and results of a compaction as values that travel between processes; names and JSON are pylance's."""

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
        """As JSON text, which pylance understands, too."""
        return json.dumps(self._to_json(), separators=(",", ":"))

    @classmethod
    def from_json(cls, text: str) -> Self:
        """The inverse of `json`. Raises `UsageError` for text that is none of these."""
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
    """What a compaction did.

    fragments_removed, fragments_added  fragments
    files_removed, files_added          data files, and deletion files
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
    """What executing a task gave: rows in new files, which no version refers to before `Compaction.commit`.

    read_version        the version that was read
    metrics             of this task
    new_fragments       of id 0
    original_fragments  whose rows they hold, in this order
    row_addrs           addresses of the rows that were read, in their order, as a Roaring treemap; None where no index
                        needs them
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

    read_version  the version that they are of
    fragments     as they are there
    options       of the compaction
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
