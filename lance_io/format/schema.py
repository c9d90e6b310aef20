"""The tree of fields that files and tables share (spec: file container, section 2; table, section 2.5).

A schema is a list of trees. Every node has an id, unique in the table for its whole life; data files refer to columns
by it. From file version 2.1 on only some nodes own a column (section 2.2), here called column fields:

    - leaves: primitives, dictionaries, fixed-size lists of primitives, and structs without members
    - packed structs, as a whole
    - blobs, as a whole

Column fields in pre-order are the columns of a file written with that schema. `schema_messages.py` reads and writes
the protobuf form, `schema_arrow.py` converts from Arrow.
"""

from __future__ import annotations

from contextlib import nullcontext
from dataclasses import field, replace
from functools import cached_property
from typing import TYPE_CHECKING, Any, Final, TypeAlias, TypeVar, cast

import pyarrow as pa

from lance_io.errors import BindError, FormatError
from lance_io.format.extensions import EXTENSION_NAMES, known_extensions
from lance_io.format.logical_types import (
    BFLOAT16,
    EXTENSION_NAME,
    LISTS,
    fixed_size_list_dimension,
    is_nested,
    primitive_type,
)
from lance_io.records import dataclass

if TYPE_CHECKING:
    from collections.abc import Collection, Iterable, Iterator, Mapping, Sequence

    from lance_io.format.flat_fields import FlatFields

BLOB_KEY: Final = "lance-encoding:blob"
PACKED_KEYS: Final = ("lance-encoding:packed", "packed")
PACKED_MARKS: Final = frozenset({b"true", b"1", b"yes", b"on", b"y"})  # case-insensitive; pylance packs for each
BLOB_FOLDER: Final = "_blobs"  # prefix of blob paths in tables that manage their blobs
BLOB_V2_EXTENSION: Final = "lance.blob.v2"
_EXTENSION_NAME: Final = EXTENSION_NAME.decode()


@dataclass(frozen=True)
class Field:
    """One node of a schema.

    id            field id; -1 for the members of a blob descriptor, which have none
    name          its own name, not a path
    logical_type  the text that names its type, see `logical_types.py`
    nullable      whether it may hold nulls
    children      member fields, in order
    metadata      Arrow field metadata as stored, `ARROW:extension:*` included
    primary_key_position     position in the declared primary key, 0 for a part without position, None for no part
    clustering_key_position  position in the declared clustering key, None for no part (see `keys.py` for both)
    dictionary    for a dictionary field of file version 0.1: the values that all its rows share, as an Arrow IPC
                  stream; else None
    is_apart      True for a struct marked as packed in a table of file version 0.1, which stores its members separately
    """

    id: int
    name: str
    logical_type: str
    nullable: bool = True
    children: tuple[Field, ...] = ()
    metadata: Mapping[str, bytes] = field(default_factory=dict, hash=False)
    primary_key_position: int | None = None
    clustering_key_position: int | None = None
    dictionary: bytes | None = field(default=None, repr=False)
    is_apart: bool = field(default=False, repr=False)

    @property
    def extension_name(self) -> str | None:
        """Name of its Arrow extension type, registered or not."""
        name = self.metadata.get(_EXTENSION_NAME)
        return None if name is None else name.decode("utf-8", "replace")

    @property
    def is_json_text(self) -> bool:
        """True for JSON that is stored as text, as pylance does for string views inside nested types."""
        return self.logical_type in ("string", "large_string") and self.extension_name == "arrow.json"

    @property
    def is_packed(self) -> bool:
        """True for a struct whose members are stored together in one column."""
        return self.logical_type == "struct" and self.is_marked_packed and not self.is_apart

    @property
    def is_marked_packed(self) -> bool:
        """Whether its metadata ask for packing, independent of its type."""
        return any(self.metadata.get(key, b"").lower() in PACKED_MARKS for key in PACKED_KEYS)

    @property
    def is_blob(self) -> bool:
        """True for a blob column of the first kind: large binary values stored outside the pages."""
        return BLOB_KEY in self.metadata and self.logical_type in ("large_binary", "binary")

    @property
    def is_blob_v2(self) -> bool:
        """True for a blob column of the second kind (file version 2.2), in a table's schema or in a file's."""
        if self.logical_type != "struct":
            return False
        return BLOB_KEY in self.metadata or self.extension_name == BLOB_V2_EXTENSION

    @property
    def holds_blobs(self) -> bool:
        """True for a blob column of either kind."""
        return self.is_blob or self.is_blob_v2

    @property
    def has_column(self) -> bool:
        """True when this node owns a column in files of version 2.1 and later."""
        return not self.children or self.is_packed or self.is_blob_v2

    @cached_property
    def arrow_type(self) -> pa.DataType:
        """Arrow type of the values as stored, nested members included: extension types appear as their storage."""
        return self._type(stored=True, with_metadata=False)

    @cached_property
    def depth(self) -> int:
        """Levels of nesting, 1 for a leaf."""
        return 1 + max((child.depth for child in self.children), default=0)

    def walk(self) -> Iterator[Field]:
        """This field and all its descendants, in pre-order."""
        yield self
        for child in self.children:
            yield from child.walk()

    def column_fields(self) -> Iterator[Field]:
        """This field and its descendants, as far as they own a column, in pre-order."""
        if self.has_column:
            yield self
        else:
            for child in self.children:
                yield from child.column_fields()

    @property
    def members(self) -> tuple[Field, ...]:
        """The fields that a column list may name below this one: a struct's members, or those of a blob descriptor.

        Lists and maps have none: their items are not columns.
        """
        if self.holds_blobs:
            return self.describe_blobs().children
        return self.children if self.logical_type == "struct" else ()

    def child(self, name: str) -> Field | None:
        """The member called `name`."""
        return next((each for each in self.children if each.name == name), None)

    def prune(self, ids: Collection[int]) -> Field | None:
        """This field with only the members whose id, or a descendant's id, is in `ids`; None if nothing is left.

        A field named by its own id comes whole.
        """
        if self.id in ids:
            return self
        kept = tuple(pruned for child in self.children if (pruned := child.prune(ids)) is not None)
        return replace(self, children=kept) if kept else None

    def describe_blobs(self) -> Field:
        """This field with every blob in it replaced by its descriptor, which is the content of its column.

        A descriptor is position and size, for 2.2 also kind and location. Fields without blobs are returned unchanged.
        """
        if self.is_blob:
            return replace(self, logical_type="struct", children=_BLOB_DESCRIPTION, metadata={BLOB_KEY: b"true"})
        if self.is_blob_v2 and self.children != _BLOB_DESCRIPTION:
            metadata = {BLOB_KEY: b"true", PACKED_KEYS[0]: b"true"}
            return replace(self, children=_BLOB_V2_DESCRIPTION, metadata=metadata)
        if self.has_column:
            return self
        children = tuple(child.describe_blobs() for child in self.children)
        changed = any(new is not old for new, old in zip(children, self.children, strict=True))
        return replace(self, children=children) if changed else self

    def to_storage(self) -> pa.Field[Any]:
        """The Arrow field as stored: extension types stay in the metadata, JSON is large binary (JSONB)."""
        return self._field(stored=True)

    def to_arrow(self) -> pa.Field[Any]:
        """The Arrow field as users see it: registered extension types resolved at every level, JSON as `arrow.json`.

        Raises `FormatError` when an extension type does not accept its storage or its metadata.
        """
        return Schema((self,)).to_arrow().field(0)

    def _field(self, *, stored: bool) -> pa.Field[Any]:
        metadata: dict[str | bytes, str | bytes] = {key: self.metadata[key] for key in sorted(self.metadata)}
        if self.logical_type == "json" and not stored:
            metadata[_EXTENSION_NAME] = b"arrow.json"
        arrow = self._type(stored=stored, with_metadata=True)
        return self.arrow_field(arrow, metadata or None)

    def arrow_field(self, arrow: pa.DataType, metadata: dict[str | bytes, str | bytes] | None = None) -> pa.Field[Any]:
        """An Arrow field of this name. `pyarrow.field` rejects non-nullable nulls, which keys of empty maps may be."""
        return pa.field(self.name, arrow, metadata=metadata).with_nullable(self.nullable)

    def _type(self, *, stored: bool, with_metadata: bool) -> pa.DataType:
        if self.logical_type == "json" and not stored:
            return pa.string()
        if not is_nested(self.logical_type):
            return primitive_type(self.logical_type)
        children: list[pa.Field[Any]] = [
            child._field(stored=stored) if with_metadata else child.arrow_field(child.arrow_type)
            for child in self.children
        ]
        return _nested_type(self.logical_type, children)


LINEAGE_NAMES: Final = {-3: "_rowid", -4: "_row_created_at_version", -5: "_row_last_updated_at_version"}
"""Columns of data files that are not fields of a table's schema, by field id (spec: table, section 6.6)."""

_BLOB_DESCRIPTION: Final = (Field(-1, "position", "uint64"), Field(-1, "size", "uint64"))
_BLOB_V2_DESCRIPTION: Final = (
    Field(-1, "kind", "uint8", nullable=False),
    Field(-1, "position", "uint64", nullable=False),
    Field(-1, "size", "uint64", nullable=False),
    Field(-1, "blob_id", "uint32", nullable=False),
    Field(-1, "blob_uri", "string", nullable=False),
)


def _nested_type(logical_type: str, children: list[pa.Field[Any]]) -> pa.DataType:
    """Arrow type of a nested text and its members; their number was checked when the schema was read."""
    if logical_type == "struct":
        return pa.struct(children)
    if logical_type == "map":
        entries = children[0].type
        return pa.map_(entries.field(0), entries.field(1))
    if logical_type in LISTS:
        return pa.list_(children[0]) if logical_type.startswith("list") else pa.large_list(children[0])
    return pa.list_(children[0], fixed_size_list_dimension(logical_type))


@dataclass(frozen=True)
class Schema:
    """Top-level fields and schema metadata, of a table or of a data file.

    fields  a tuple; or `FlatFields` for a wide schema, which builds each field on access: fetch few, with `top`
    """

    fields: Sequence[Field]
    metadata: Mapping[str, bytes] = field(default_factory=dict, hash=False)

    def __len__(self) -> int:
        return len(self.fields)

    @property
    def names(self) -> list[str]:
        """Names of the top-level fields, in order."""
        flat = self._flat
        return [each.name for each in self.fields] if flat is None else list(flat.names)

    @property
    def _flat(self) -> FlatFields | None:
        return None if type(self.fields) is tuple else self.fields  # type: ignore[return-value]  # the only other type

    def top(self, name: str) -> Field | None:
        """The top-level field with exactly this name; None if there is none."""
        index = self._index_of(name)
        return None if index is None else self.fields[index]

    def tops(self, names: Iterable[str]) -> list[Field]:
        """The top-level fields of these names, in the order of the schema."""
        indexes = (self._index_of(name) for name in names)
        return [self.fields[index] for index in sorted({index for index in indexes if index is not None})]

    @property
    def is_of_file(self) -> bool:
        """Whether a top-level field has an id below 0, which only columns of files have."""
        return self._flat is None and any(each.id < 0 for each in self.fields)

    def walk(self) -> Iterator[Field]:
        """All fields, in pre-order."""
        for each in self.fields:
            if each.children:
                yield from each.walk()
            else:
                yield each

    def leaves(self) -> Iterator[Field]:
        """The fields that own a column, in pre-order: the columns of a file of version 2.1 or later."""
        for each in self.fields:
            yield from each.column_fields()

    def __reduce__(self) -> tuple[Any, ...]:
        return Schema, (tuple(self.fields), self.metadata)

    def without_packing(self) -> Schema:
        """This schema for files of version 0.1, which pack no structs; itself if none is marked as packed."""
        if not any(each.is_packed for each in self.walk()):
            return self
        return Schema(tuple(_unpack(each) for each in self.fields), self.metadata)

    @cached_property
    def has_blobs(self) -> bool:
        """Whether any field, at any depth, is a blob column."""
        flat = self._flat
        fields = self.walk() if flat is None else (flat[index] for index in flat.with_metadata)
        return any(field.holds_blobs for field in fields)

    @cached_property
    def by_id(self) -> Mapping[int, Field]:
        """Every field with an id, by id."""
        return {each.id: each for each in self.walk() if each.id >= 0}

    @cached_property
    def described(self) -> Schema:
        """This schema with every blob in it replaced by its descriptor; itself if there are none."""
        fields = tuple(each.describe_blobs() for each in self.fields)
        changed = any(new is not old for new, old in zip(fields, self.fields, strict=True))
        return replace(self, fields=fields) if changed else self

    @property
    def max_field_id(self) -> int:
        """The largest id in use, -1 in an empty schema."""
        return max(self.by_id, default=-1)

    def field(self, name: str) -> Field:
        """The top-level field with exactly this name; raises `BindError` if there is none."""
        match = self.top(name)
        if match is None:
            raise BindError(f"No field named {name}. Fields are {', '.join(self.names[:20])}")
        return match

    def _index_of(self, name: str) -> int | None:
        flat = self._flat
        return self._index_by_name.get(name) if flat is None else flat.index_of(name)

    @cached_property
    def _index_by_name(self) -> Mapping[str, int]:
        return {name: index for index, name in enumerate(self.names)}

    def find(self, path: str) -> Field:
        """The field at a dotted path such as `` s.`odd.name`.x ``; names are case-sensitive.

        Raises `BindError` when a step does not exist.
        """
        return self.resolve(path)[-1]

    def resolve(self, path: str) -> tuple[Field, ...]:
        """The fields along a dotted path, from the top level down. Raises as `find` does."""
        first, *rest = split_path(path)
        steps = [self.field(first)]
        for name in rest:
            child = steps[-1].child(name)
            if child is None:
                raise BindError(f"No field named {path}: {steps[-1].name} has no member {name!r}")
            steps.append(child)
        return tuple(steps)

    def project(self, paths: Sequence[str]) -> Schema:
        """The schema of only these dotted paths. A path to a nested field includes all its descendants.

        Fields and members of structs come in the order of their first mention. Members of maps and of packed structs,
        whose position in the column matters, and the descendants of a path come in the order of the schema.
        Raises `BindError` for a path that does not exist, for keys without values (or values without keys), and for
        some members of a packed struct.
        """
        chosen: _Chosen = {}
        for path in paths:
            steps = self.resolve(path)
            below = chosen
            for step in steps:
                below = below.setdefault(step.name, {})
            _choose_members(steps[-1], below)
        return replace(self, fields=tuple(_keep(self.field(name), below) for name, below in chosen.items()))

    def prune(self, ids: Collection[int]) -> Schema:
        """The schema of only the fields with these ids and their ancestors, in the order of the schema."""
        kept = (each.prune(ids) for each in self.fields)
        return replace(self, fields=tuple(each for each in kept if each is not None))

    def to_storage(self) -> pa.Schema:
        """The Arrow schema as stored, see `Field.to_storage`."""
        return pa.schema([each.to_storage() for each in self.fields], metadata=self._arrow_metadata)

    def to_arrow(self, *, json_as_text: bool = True) -> pa.Schema:
        """The Arrow schema as users see it, see `Field.to_arrow`.

        json_as_text  False returns JSON as stored, as readers of single files do
        """
        if json_as_text and not self._has_extensions:
            return self._plain
        plain = pa.schema([each._field(stored=not json_as_text) for each in self.fields], metadata=self._arrow_metadata)
        with known_extensions() if self._names_extensions else nullcontext():
            return _resolve_extensions(plain)

    @cached_property
    def _has_extensions(self) -> bool:
        """Whether the Arrow form depends on the extension types that are registered at the time of the call."""
        return any(
            _EXTENSION_NAME in each.metadata or each.logical_type == "json" or BFLOAT16 in each.logical_type
            for each in self.walk()
        )

    @cached_property
    def _plain(self) -> pa.Schema:
        return _resolve_extensions(
            pa.schema([each._field(stored=False) for each in self.fields], metadata=self._arrow_metadata)
        )

    @property
    def _names_extensions(self) -> bool:
        """Whether a type is named that pyarrow cannot resolve itself (lists of bfloat16 name it in their text)."""
        return any(each.extension_name in EXTENSION_NAMES or BFLOAT16 in each.logical_type for each in self.walk())

    @property
    def _arrow_metadata(self) -> dict[str | bytes, str | bytes] | None:
        return {key: self.metadata[key] for key in sorted(self.metadata)} or None


Named = TypeVar("Named", "Field", pa.Field)


def number_names(fields: Iterable[Named]) -> dict[tuple[str, int], Named]:
    """Fields, ours or Arrow's, by name and number of earlier fields of that name: members of a struct may share one."""
    numbered: dict[tuple[str, int], Named] = {}
    counts: dict[str, int] = {}
    for each in fields:
        number = counts[each.name] = counts.get(each.name, -1) + 1
        numbered[each.name, number] = each
    return numbered


def first_member(dtype: pa.DataType, name: str) -> int:
    """Index of a struct's first field with this name; -1 for none. `get_field_index` rejects ambiguous names."""
    return next((number for number in range(dtype.num_fields) if dtype.field(number).name == name), -1)


_Chosen: TypeAlias = "dict[str, _Chosen]"  # selected members in order, each with its own selection


def _unpack(node: Field) -> Field:
    is_apart = node.is_apart or node.is_packed
    return replace(node, children=tuple(_unpack(child) for child in node.children), is_apart=is_apart)


def _choose_members(node: Field, chosen: _Chosen) -> None:
    for child in node.children:
        _choose_members(child, chosen.setdefault(child.name, {}))


def _keep(node: Field, chosen: _Chosen, *, is_entry: bool = False) -> Field:
    """`node` with only the selected members; the entries of a map are a key and its value."""
    if node.logical_type == "struct" and not node.has_column and not is_entry:
        wanted = [child for name in chosen for child in node.children if child.name == name]
    else:
        wanted = [child for child in node.children if child.name in chosen]
    is_map = node.logical_type == "map"
    kept = tuple(_keep(child, chosen[child.name], is_entry=is_map) for child in wanted)
    whole = len(kept) == len(node.children)
    if not whole and is_entry:
        raise BindError(f"No part of a map named {kept[0].name}: its keys and values are read together")
    if not whole and node.is_packed:
        raise BindError(f"No column named {node.name}.{kept[0].name}: {node.name} is packed and read as a whole")
    same = whole and all(new is old for new, old in zip(kept, node.children, strict=True))
    return node if same else replace(node, children=kept)


def _resolve_extensions(plain: pa.Schema) -> pa.Schema:
    """Replace extension types that metadata names by the types themselves."""
    try:
        return pa.schema(cast("Any", _Exported(plain)))
    except MemoryError:  # pyarrow's memory error is an ArrowException, too
        raise
    except (pa.ArrowException, TypeError, ValueError) as error:
        raise FormatError(f"schema: an extension type does not fit its storage or metadata: {error}") from error


class _Exported:
    """A schema exported through Arrow's C interface; its import resolves extension types."""

    def __init__(self, schema: pa.Schema) -> None:
        self._schema = schema

    def __arrow_c_schema__(self) -> object:
        return self._schema.__arrow_c_schema__()


def split_path(path: str) -> list[str]:
    """The names in a dotted path; a name in backticks may hold dots, and a backtick when doubled.

    Raises `BindError` for an empty name outside of backticks and for backticks that do not close.
    """
    if "`" in path:
        return list(_quoted_names(path))
    names = path.split(".")
    if len(names) > 1 and "" in names:
        raise BindError(f'No field named "{path}".')
    return names


def _quoted_names(path: str) -> Iterator[str]:
    position = 0
    while True:
        if path.startswith("`", position):
            name, position = _quoted_name(path, position + 1)
        else:
            end = path.find(".", position)
            end = len(path) if end < 0 else end
            name, position = path[position:end], end
            if not name:
                raise BindError(f'No field named "{path}".')
        yield name
        if position == len(path):
            return
        if path[position] != ".":
            raise BindError(f'No field named "{path}".')
        position += 1


def _quoted_name(path: str, position: int) -> tuple[str, int]:
    """The name whose opening backtick precedes `position`, and the position after its closing backtick."""
    pieces = []
    while True:
        end = path.find("`", position)
        if end < 0:
            raise BindError(f'No field named "{path}": a backtick does not close.')
        pieces.append(path[position:end])
        position = end + 1
        if not path.startswith("`", position):
            return "".join(pieces), position
        pieces.append("`")
        position += 1
