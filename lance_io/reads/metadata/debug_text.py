"""Schemas, manifests, fragments and transactions as text, formatted like pylance's.

The format is that of Rust's `{:?}`, in one line or, with four spaces for each level, in several:

    Field { name: "a", id: 0, encoding: Some(Plain), children: [] }
"""

from __future__ import annotations

from dataclasses import fields, is_dataclass
from enum import Enum
from typing import TYPE_CHECKING, Any, NamedTuple

if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping

    from lance_io.format.schema import Field, Schema
    from lance_io.table.manifest.fragment import DataFile, DeletionFile, Fragment
    from lance_io.table.manifest.manifest import Manifest
    from lance_io.table.transaction.transaction import Transaction

_ESCAPES = {"\\": "\\\\", '"': '\\"', "\n": "\\n", "\r": "\\r", "\t": "\\t", "\0": "\\0"}
_NO_ENCODING = ("null", "struct")
_VARIABLE = ("string", "large_string", "binary", "large_binary", "json")


class _Record(NamedTuple):
    """A value with named parts."""

    name: str
    parts: Mapping[str, Any]


class _Wrapped(NamedTuple):
    """A name around a value, or alone."""

    name: str
    value: Any = None


def _some(value: Any) -> _Wrapped | None:
    return None if value is None else _Wrapped("Some", value)


def write_debug(value: Any, *, pretty: bool) -> str:
    """A value as text; in several lines if `pretty`."""
    return _write(value, "\n" if pretty else "")


def _write(value: Any, line: str) -> str:
    """A value whose lines start with `line`; an empty `line` means a single line."""
    inner = line + "    " if line else ""
    if isinstance(value, _Record):
        return f"{value.name} " + _enclose("{", [f"{k}: {_write(v, inner)}" for k, v in value.parts.items()], "}", line)
    if isinstance(value, _Wrapped):
        if value.value is None:
            return value.name
        return value.name + _enclose("(", [_write(value.value, inner)], ")", line)
    if isinstance(value, dict):
        entries = [f"{_write(k, inner)}: {_write(v, inner)}" for k, v in sorted(value.items())]
        return _enclose("{", entries, "}", line, pad="")
    if isinstance(value, (list, tuple)):
        return _enclose("[", [_write(item, inner) for item in value], "]", line)
    if isinstance(value, bool):
        return str(value).lower()
    if isinstance(value, (str, bytes)):
        text = value if isinstance(value, str) else value.decode("utf-8", "replace")
        shown = (_ESCAPES.get(c, c if c.isprintable() else f"\\u{{{ord(c):x}}}") for c in text)
        return f'"{"".join(shown)}"'
    return str(value)


def _enclose(opening: str, parts: Iterable[str], closing: str, line: str, pad: str = " ") -> str:
    texts = list(parts)
    if not texts:
        return opening + closing
    if line:
        inner = line + "    "
        return opening + inner + f",{inner}".join(texts) + "," + line + closing
    pad = pad if opening == "{" else ""
    return opening + pad + ", ".join(texts) + pad + closing


# -- the values --------------------------------------------------------------------------------------------------------


def show_schema(schema: Schema) -> _Record:
    """A schema."""
    return _Record(
        "Schema", {"fields": [show_field(field) for field in schema.fields], "metadata": dict(schema.metadata)}
    )


def show_field(field: Field, parent_id: int = -1) -> _Record:
    """A field with its children."""
    encoding = None
    if field.logical_type not in _NO_ENCODING:
        kind = "VarBinary" if field.logical_type in _VARIABLE else "Plain"
        encoding = _Wrapped("Dictionary" if field.logical_type.startswith("dict:") else kind)
    parts = {
        "name": field.name,
        "id": field.id,
        "parent_id": parent_id,
        "logical_type": _Wrapped("LogicalType", field.logical_type),
        "metadata": dict(field.metadata),
        "encoding": _some(encoding),
        "nullable": field.nullable,
        "children": [show_field(child, field.id) for child in field.children],
        "dictionary": None,
        "unenforced_primary_key_position": _some(field.primary_key_position),
        "unenforced_clustering_key_position": _some(field.clustering_key_position),
    }
    return _Record("Field", parts)


def show_manifest(manifest: Manifest) -> _Record:
    """All entries of a manifest."""
    library, _, version = manifest.writer.partition(" ")
    message = manifest.message
    offsets = [0]
    for fragment in manifest.fragments:
        deleted = fragment.deletion_file.num_deleted_rows or 0 if fragment.deletion_file else 0
        offsets.append(offsets[-1] + (fragment.physical_rows or 0) - deleted)
    writer = {"library": library, "version": version, "prerelease": None, "build_metadata": None}
    file_format = {"file_format": "lance", "version": _Wrapped(_version_name(manifest.data_version.name))}
    parts = {
        "schema": show_schema(manifest.schema),
        "version": manifest.version,
        "branch": _some(manifest.branch),
        "writer_version": _some(_Record("WriterVersion", writer)) if library else None,
        "fragments": [show_fragment(fragment) for fragment in manifest.fragments],
        "version_aux_data": message.version_aux_data,
        "index_section": _some(manifest.index_offset),
        "timestamp_nanos": manifest.timestamp_ns,
        "tag": _some(message.tag or None),
        "reader_feature_flags": manifest.reader_flags,
        "writer_feature_flags": manifest.writer_flags,
        "max_fragment_id": _some(manifest.max_fragment_id),
        "max_allocated_field_id": _some(message.max_allocated_field_id)
        if message.HasField("max_allocated_field_id")
        else None,
        "transaction_file": _some(manifest.transaction_file or None),
        "transaction_section": _some(manifest.transaction_offset),
        "fragment_offsets": offsets,
        "next_row_id": manifest.next_row_id,
        "data_storage_format": _Record("DataStorageFormat", file_format),
        "config": dict(manifest.config),
        "table_metadata": dict(manifest.table_metadata),
        "base_paths": {number: _generic(base) for number, base in manifest.base_paths.items()},
    }
    return _Record("Manifest", parts)


def _version_name(name: str) -> str:
    return "Legacy" if name == "0.1" else "V" + name.replace(".", "_")


def show_fragment(fragment: Fragment) -> _Record:
    """A fragment as stored in the manifest."""
    parts = {
        "id": fragment.id,
        "files": [_show_file(file) for file in fragment.files],
        "overlays": [],
        "deletion_file": _some(_show_deletions(fragment.deletion_file)),
        "row_id_meta": _sequence(fragment.row_ids),
        "physical_rows": _some(fragment.physical_rows),
        "last_updated_at_version_meta": _sequence(fragment.last_updated_at_versions),
        "created_at_version_meta": _sequence(fragment.created_at_versions),
    }
    return _Record("Fragment", parts)


def _sequence(data: bytes | None) -> _Wrapped | None:
    return None if data is None else _Wrapped("Some", _Wrapped("Inline", list(data)))


def _show_file(file: DataFile) -> _Record:
    parts = {
        "path": file.path,
        "fields": list(file.fields),
        "column_indices": list(file.column_indices),
        "file_major_version": file.version.major,
        "file_minor_version": file.version.minor,
        "file_size_bytes": _Wrapped("CachedFileSize", file.size_bytes or 0),
        "base_id": _some(file.base_id),
    }
    return _Record("DataFile", parts)


def _show_deletions(file: DeletionFile | None) -> _Record | None:
    if file is None:
        return None
    parts = {
        "read_version": file.read_version,
        "id": file.id,
        "file_type": _Wrapped("Array" if file.kind == "arrow" else "Bitmap"),
        "num_deleted_rows": _some(file.num_deleted_rows),
        "base_id": _some(file.base_id),
    }
    return _Record("DeletionFile", parts)


def show_fragment_files(fragment: Fragment, schema: Schema) -> _Record:
    """A fragment, and the fields that its files hold."""

    def shown(file: DataFile) -> _Record:
        parts = {
            "path": file.path,
            "fields": list(file.fields),
            "column_indices": list(file.column_indices),
            "schema": show_schema(schema.prune(file.fields)),
            "major_version": file.version.major,
            "minor_version": file.version.minor,
        }
        return _Record("PrettyPrintableDataFile", parts)

    parts = {
        "id": fragment.id,
        "files": [shown(file) for file in fragment.files],
        "deletion_file": _some(_show_deletions(fragment.deletion_file)),
        "physical_rows": _some(fragment.physical_rows),
    }
    return _Record("PrettyPrintableFragment", parts)


def show_transaction(transaction: Transaction) -> _Record:
    """A transaction with its operation."""
    parts = {
        "read_version": transaction.read_version,
        "uuid": transaction.uuid,
        "operation": _generic(transaction.operation),
        "tag": None,
        "transaction_properties": _some(dict(transaction.properties) or None),
    }
    return _Record("Transaction", parts)


def _generic(value: Any) -> Any:
    """The fields of one of our dataclasses, by name."""
    from lance_io.format.schema import Schema
    from lance_io.table.manifest.fragment import Fragment

    if isinstance(value, Fragment):
        return show_fragment(value)
    if isinstance(value, Schema):
        return show_schema(value)
    if isinstance(value, Enum):
        return _Wrapped(value.name)
    if isinstance(value, (list, tuple)):
        return [_generic(item) for item in value]
    if isinstance(value, dict):
        return {key: _generic(item) for key, item in value.items()}
    if is_dataclass(value) and not isinstance(value, type):
        parts = {field.name: _generic(getattr(value, field.name)) for field in fields(value) if field.repr}
        return _Record(type(value).__name__, parts)
    return value
