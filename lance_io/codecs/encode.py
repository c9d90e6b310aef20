"""Encodes codec nodes as `CompressiveEncoding` messages: the reverse of `decode_codec` in `tree.py`."""

from __future__ import annotations

from functools import lru_cache
from typing import Any, Final

from lance_io.codecs import tree
from lance_io.errors import UsageError
from lance_io.proto import encodings21_pb2 as pb

SCHEMES: Final = {"lz4": pb.COMPRESSION_LZ4, "zstd": pb.COMPRESSION_ZSTD}
RUN_LENGTH_BITS: Final = 8
SMALL_MAX: Final = 128  # cached messages


def encode_codec(codec: tree.Codec, *, level: int | None = None) -> pb.CompressiveEncoding:
    """The message of a codec tree. Do not change it: the messages of small codecs are cached.

    level  compression level to record with general compression; readers ignore it

    Raises UsageError for codecs that exist in memory only.
    """
    if isinstance(codec, (tree.Flat, tree.Variable, tree.InlineBitpacking)):
        return _small(codec)
    return _encode_at(codec, level)


@lru_cache(maxsize=SMALL_MAX)
def _small(codec: tree.Codec) -> pb.CompressiveEncoding:
    return _encode_at(codec, None)


def _encode_at(codec: tree.Codec, level: int | None) -> pb.CompressiveEncoding:
    match codec:
        case tree.Flat(bits):
            return _flat(bits)
        case tree.Variable(offset_bits):
            return _message(variable=pb.Variable(offsets=_flat(offset_bits)))
        case tree.Constant(value):
            return _message(constant=pb.Constant(value=value))
        case tree.NoValue():
            return _message(constant=pb.Constant())
        case tree.OutOfLineBitpacking(bits, packed_bits):
            packed = pb.OutOfLineBitpacking(uncompressed_bits_per_value=bits, values=_flat(packed_bits))
            return _message(out_of_line_bitpacking=packed)
        case tree.InlineBitpacking(bits):
            return _message(inline_bitpacking=pb.InlineBitpacking(uncompressed_bits_per_value=bits))
        case tree.Fsst(symbol_table, values):
            return _message(fsst=pb.Fsst(symbol_table=symbol_table, values=encode_codec(values)))
        case tree.Rle(values):
            return _message(rle=pb.Rle(values=encode_codec(values), run_lengths=_flat(RUN_LENGTH_BITS)))
        case tree.ByteStreamSplit(values):
            return _message(byte_stream_split=pb.ByteStreamSplit(values=encode_codec(values)))
        case tree.General(scheme, values):
            compression = pb.BufferCompression(scheme=SCHEMES[scheme], level=level)
            return _message(general=pb.General(compression=compression, values=encode_codec(values)))
        case tree.FixedSizeList(items, has_validity, values):
            lists = pb.FixedSizeList(items_per_value=items, has_validity=has_validity, values=encode_codec(values))
            return _message(fixed_size_list=lists)
        case tree.PackedStruct(bits):
            return _message(packed_struct=pb.PackedStruct(bits_per_value=bits, values=_flat(sum(bits))))
        case tree.VariablePackedStruct(members):
            fields = [_member(member) for member in members]
            return _message(variable_packed_struct=pb.VariablePackedStruct(fields=fields))
        case _:
            raise UsageError(f"{codec} has no message that this release writes")


def _member(member: tree.PackedMember) -> pb.VariablePackedStruct.FieldEncoding:
    value = encode_codec(member.values)
    if member.is_variable:
        return pb.VariablePackedStruct.FieldEncoding(value=value, bits_per_length=member.bits)
    return pb.VariablePackedStruct.FieldEncoding(value=value, bits_per_value=member.bits)


def _flat(bits: int) -> pb.CompressiveEncoding:
    return _message(flat=pb.Flat(bits_per_value=bits))


def _message(**codec: Any) -> pb.CompressiveEncoding:
    return pb.CompressiveEncoding(**codec)
