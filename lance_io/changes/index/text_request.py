"""The arguments of a full text index, and the parameters of an existing one; names, defaults, errors are pylance's."""

from __future__ import annotations

import operator
import os
from dataclasses import replace
from typing import TYPE_CHECKING, Any, Final

import pyarrow as pa
import pyarrow.types as pt

from lance_io.errors import FormatError, UsageError
from lance_io.index.text.text_parameters import (
    LIST_ELEMENT,
    ROW,
    is_of_elements,
    parameters_of_arguments,
    parameters_of_json,
)
from lance_io.index.text.text_partition import FIRST_PARAMETERS
from lance_io.records import dataclass

if TYPE_CHECKING:
    from collections.abc import Mapping

    from lance_io.format.schema import Field
    from lance_io.index.text.text_parameters import TextParameters
    from lance_io.reads.metadata.index_statistics import IndexFileInfo

_WORKERS_MAX: Final = 8
_ELEMENTS_VERSION: Final = 3
_VERSIONS: Final = {1: 1, 2: 2, 3: 3, "1": 1, "2": 2, "3": 3, "v1": 1, "v2": 2, "v3": 3}
_NOT_STORED: Final = ("memory_limit", "num_workers", "document_granularity", "format_version")


@dataclass(frozen=True, slots=True)
class TextRequest:
    """How to build a full text index.

    parameters      that its files name
    format_version  2, or 3 for blocks of 256 documents and for source code; 1 if it is asked for
    num_workers     threads of the build
    of_elements     whether each element of a list is a document, not each row
    """

    parameters: TextParameters
    format_version: int
    num_workers: int
    of_elements: bool = False

    @property
    def index_version(self) -> int:
        """The version of a segment."""
        return _ELEMENTS_VERSION if self.of_elements else self.format_version

    def details(self) -> bytes:
        """The details message."""
        return self.parameters.to_message(self.format_version, LIST_ELEMENT if self.of_elements else ROW)


def text_request(given: Mapping[str, Any], field: Field, *, is_in_list: bool = False) -> TextRequest:
    """Check arguments of `create_scalar_index`. Raises `UsageError`, and `TypeError` for values of a wrong type.

    is_in_list  whether the field is a member of the structs in a list
    """
    of_elements = asks_for_elements(given)
    if of_elements and not (is_in_list or _is_list(field.arrow_type)):
        raise UsageError(
            f"FTS field path '{field.name}' has no List layer and cannot use ListElement document granularity"
        )
    parameters = parameters_of_arguments({name: value for name, value in given.items() if name not in _NOT_STORED})
    if is_json(field):
        parameters = replace(parameters, lance_tokenizer="json")
    version, num_workers = _format_version(given, parameters), _num_workers(given.get("num_workers"))
    return TextRequest(parameters, version, num_workers, of_elements)


def asks_for_elements(given: Mapping[str, Any]) -> bool:
    """Whether arguments of an index say that documents are elements of lists. Raises `TypeError`, `UsageError`."""
    granularity = given.get("document_granularity")
    granularity = ROW if granularity is None else getattr(granularity, "value", granularity)
    if not isinstance(granularity, str):
        raise TypeError("document_granularity must be a lance_io.query.DocumentGranularity")
    if granularity not in (ROW, LIST_ELEMENT):
        raise UsageError(f"unknown FTS document granularity '{granularity}'; expected '{ROW}' or '{LIST_ELEMENT}'")
    return granularity == LIST_ELEMENT


def _is_list(dtype: pa.DataType) -> bool:
    return bool(pt.is_list(dtype) or pt.is_large_list(dtype))


def _format_version(given: Mapping[str, Any], parameters: TextParameters) -> int:
    asked = given.get("format_version")
    default = 3 if parameters.block_size == 256 or parameters.base_tokenizer == "code" else 2
    if asked is None:
        return default
    version = _VERSIONS.get(asked) if isinstance(asked, (int, str)) else None
    if version is None:
        raise UsageError(f"format_version must be 1, 2 or 3, got {asked!r}")
    if version < default == 3:
        reason = "block_size=256" if parameters.block_size == 256 else "analyzer='code'"
        raise UsageError(f"FTS format_version={version} is incompatible with {reason}; use format_version=3")
    return version


def _num_workers(asked: Any) -> int:
    available = len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count() or 1
    available = min(available, _WORKERS_MAX)
    return available if asked is None else max(1, min(operator.index(asked), available))


def text_request_of(file: IndexFileInfo, where: str, details: bytes) -> TextRequest:
    """The request for another segment like one that exists.

    file     its `metadata.lance`, or the tokens of a segment of the first releases
    details  its message
    """
    params = file.metadata.get("params") or file.metadata.get(FIRST_PARAMETERS) or "{}"
    parameters = parameters_of_json(params, where)
    version = file.metadata.get("format_version", "2")
    if version not in ("1", "2", "3"):
        raise FormatError(f"{where}: format_version {version!r}, expected 1, 2 or 3")
    default = 3 if parameters.block_size == 256 or parameters.base_tokenizer == "code" else 1
    return TextRequest(parameters, max(int(version), default), _num_workers(None), is_of_elements(details))


def is_json(field: Field) -> bool:
    """Whether a column holds JSON documents."""
    return field.extension_name in ("lance.json", "arrow.json")


def is_indexable(dtype: pa.DataType) -> bool:
    """Whether a full text index can be built over a type: texts, and lists of texts."""
    if _is_list(dtype):
        dtype = dtype.value_type
    return bool(pt.is_string(dtype) or pt.is_large_string(dtype))
