"""Writes blob pages: the reverse of `blob.py`.

The payloads are already in the file. The page holds descriptors as packed rows of position and size in one mini-block
page, which also encode the nulls. Specification: structural encodings 2.1, section 7.
"""

from __future__ import annotations

from dataclasses import replace
from typing import TYPE_CHECKING, cast

import numpy as np
import pyarrow as pa

from lance_io.codecs import tree
from lance_io.encodings.leafvalues import leaf_values
from lance_io.encodings.v2_1.write_miniblock import MiniBlock, encode_miniblock
from lance_io.encodings.written import EncodedPage
from lance_io.errors import UnsupportedError
from lance_io.levels.leafpage import LeafPage
from lance_io.proto import encodings21_pb2 as pb

if TYPE_CHECKING:
    from collections.abc import Sequence

    from lance_io.encodings.options import ColumnOptions
    from lance_io.encodings.v2_1.page import VersionRules
    from lance_io.levels.path import LeafPath

ALL_VALID_ITEM = 1
DESCRIPTOR_CODEC = tree.PackedStruct((64, 64))


def encode_blob_page(path: LeafPath, page: LeafPage, options: ColumnOptions, rules: VersionRules) -> EncodedPage:
    """Encode descriptors of blobs.

    page  values are `struct<position: uint64, size: uint64>` with absolute file offsets; positions of nulls and empty
          values are ignored
    Raises UnsupportedError for blobs inside lists: descriptors cannot store repetition levels of valid rows.
    """
    if page.repetition is not None:
        raise UnsupportedError(f"column {path.name}: blobs inside lists are not supported")
    inner = LeafPage(page.num_rows, (ALL_VALID_ITEM,), None, None, _descriptors(page))
    plan = MiniBlock(leaf_values(inner.values), DESCRIPTOR_CODEC)
    encoded = encode_miniblock(inner, plan, replace(options, compression="none"), rules)
    assert encoded is not None, "16 bytes a row fit into any chunk"
    layout = pb.PageLayout()
    layout.blob_layout.inner_layout.ParseFromString(encoded.layout)
    layout.blob_layout.layers.extend(cast("Sequence[pb.RepDefLayer.ValueType]", page.layers))
    return EncodedPage(page.num_rows, layout.SerializeToString(deterministic=True), encoded.buffers)


def _descriptors(page: LeafPage) -> pa.Array:
    """Positions and sizes; size 0 means a null of level `position >> 16`, or an empty value at position 0."""
    position, size = (page.values.field(i).to_numpy(zero_copy_only=False) for i in range(2))
    levels = np.zeros(len(size), np.uint64) if page.definition is None else page.definition.astype(np.uint64)
    is_empty = (size == 0) | (levels > 0)
    position = np.where(is_empty, levels << np.uint64(16), position)
    size = np.where(is_empty, np.uint64(0), size)
    return pa.StructArray.from_arrays([pa.array(position), pa.array(size)], ["position", "size"])
