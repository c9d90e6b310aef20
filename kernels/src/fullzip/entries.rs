//! Output for values that arrive one by one, as in full-zip pages.

use crate::buffer::OwnedBuffer;
use crate::damaged;
use crate::decode::codec::{Child, Codec, Scheme};
use crate::decode::fsst::{Scratch, SymbolTable};
use crate::decode::general::{Inflater, Limit};
use crate::decode::shapes::{Children, ListShape, Lists};
use crate::error::{invalid, Checked};
use crate::room::{zeros, Gather, GatherResults};
use crate::sink::{Bytes, Offset, Strings};
use pyo3::PyResult;

/// Receives the values of one leaf and decodes each.
pub enum RowSink<'a> {
    Fixed(Bytes, usize),
    Lists(ListShape, Lists),
    Struct(Children),
    Narrow(Text<'a, i32>),
    Wide(Text<'a, i64>),
    Packed(Vec<Member<'a>>),
}

/// One member of a variable packed struct.
pub struct Member<'a> {
    prefix_bytes: Option<usize>,
    size: usize,
    sink: RowSink<'a>,
}

impl<'a> RowSink<'a> {
    /// `prefixed` values are of variable width. About `count` values with `bytes` in total are expected.
    pub fn new(codec: &'a Codec, prefixed: bool, count: usize, bytes: usize) -> PyResult<Self> {
        Ok(match (codec, prefixed) {
            (Codec::Flat { bits }, false) if bits % 8 == 0 => RowSink::Fixed(Bytes::with_room(0), bits / 8),
            (Codec::FixedSizeList { .. }, false) => {
                let shape = ListShape::new(codec)?;
                let lists = Lists::with_capacity(&shape, count.min(bytes))?;
                RowSink::Lists(shape, lists)
            }
            (Codec::PackedStruct { bits }, false) => RowSink::Struct(Children::with_capacity(bits, 0)?),
            (Codec::VariablePacked { children }, true) => {
                RowSink::Packed(children.iter().map(Member::new).try_vec_of()?)
            }
            (_, true) => match offsets_are_wide(codec) {
                Some(false) => RowSink::Narrow(Text::new(codec, count.min(bytes), bytes)?),
                Some(true) => RowSink::Wide(Text::new(codec, count.min(bytes), bytes)?),
                None => return Err(invalid("a length prefix goes with variable-width values")),
            },
            _ => return Err(invalid("a full-zip page cannot hold values of this codec")),
        })
    }

    /// Size of a value, if all have the same.
    pub fn row_bytes(&self) -> Option<usize> {
        match self {
            RowSink::Fixed(_, size) => Some(*size),
            RowSink::Lists(shape, _) => Some(shape.row_bytes()),
            RowSink::Struct(children) => Some(children.row_bytes()),
            RowSink::Narrow(_) | RowSink::Wide(_) | RowSink::Packed(_) => None,
        }
    }

    /// Append a value; at fixed width it has `row_bytes` bytes.
    #[inline]
    pub fn value(&mut self, value: &[u8]) -> Checked<()> {
        match self {
            RowSink::Fixed(out, size) => out.grow(*size)?.copy_from_slice(value),
            RowSink::Lists(shape, out) => out.append_row(shape, value)?,
            RowSink::Struct(out) => out.append(value, 0, 1)?,
            RowSink::Narrow(out) => out.value(value)?,
            RowSink::Wide(out) => out.value(value)?,
            RowSink::Packed(members) => packed_row(members, value)?,
        }
        Ok(())
    }

    /// Append `count` adjacent values of fixed width.
    pub fn values(&mut self, bytes: &[u8], count: usize) -> Checked<()> {
        match self {
            RowSink::Fixed(out, _) => out.grow(bytes.len())?.copy_from_slice(bytes),
            RowSink::Struct(out) => out.append(bytes, 0, count)?,
            RowSink::Lists(shape, out) if shape.is_plain() => {
                out.items.append(bytes, 0, count * shape.items_per_row())?
            }
            RowSink::Lists(shape, out) => {
                let size = shape.row_bytes().max(1);
                bytes.chunks_exact(size).try_for_each(|row| out.append_row(shape, row))?;
            }
            _ => return damaged!("values of variable width lie back to back without lengths"),
        }
        Ok(())
    }

    /// Append a null of variable width, which has no bytes.
    pub fn null(&mut self) -> Checked<()> {
        match self {
            RowSink::Narrow(out) => out.strings.end_value()?,
            RowSink::Wide(out) => out.strings.end_value()?,
            RowSink::Packed(members) => {
                for member in members {
                    match member.prefix_bytes {
                        Some(_) => member.sink.null()?,
                        None => member.sink.value(&zeros::<u8>(member.size)?)?,
                    }
                }
            }
            _ => return damaged!("a null of fixed width without bytes"),
        }
        Ok(())
    }

    pub fn into_buffers(self) -> Checked<Vec<Option<OwnedBuffer>>> {
        Ok(match self {
            RowSink::Fixed(out, _) => vec![Some(out.into_buffer())],
            RowSink::Lists(_, out) => out.into_buffers()?,
            RowSink::Struct(out) => out.into_buffers()?,
            RowSink::Narrow(out) => out.strings.into_buffers()?.map(Some).into(),
            RowSink::Wide(out) => out.strings.into_buffers()?.map(Some).into(),
            RowSink::Packed(members) => {
                let buffers = members.into_iter().map(|member| member.sink.into_buffers());
                buffers.try_vec_of()?.into_iter().flatten().try_vec()?
            }
        })
    }
}

impl<'a> Member<'a> {
    fn new(child: &'a Child) -> PyResult<Self> {
        let sink = RowSink::new(&child.codec, child.prefix_bytes.is_some(), 0, 0)?;
        let size = child.bits / 8;
        if child.prefix_bytes.is_none() && sink.row_bytes() != Some(size) {
            return Err(invalid(format!("a packed member of {size} bytes does not fit its codec")));
        }
        Ok(Member { prefix_bytes: child.prefix_bytes, size, sink })
    }
}

/// A row of a variable packed struct: members in order, those of variable width after their lengths. A nested packed
/// struct is a separate row, after its length.
fn packed_row(members: &mut [Member<'_>], row: &[u8]) -> Checked<()> {
    let mut rest = row;
    for member in members {
        let size = match member.prefix_bytes {
            None => member.size,
            Some(prefix) => {
                let Some((length, behind)) = rest.split_at_checked(prefix) else {
                    return damaged!("a packed row of {} bytes ends inside a length", row.len());
                };
                rest = behind;
                usize::try_from(read_word(length)).unwrap_or(usize::MAX)
            }
        };
        let Some((value, behind)) = rest.split_at_checked(size) else {
            return damaged!("a packed row of {} bytes ends inside a value of {size}", row.len());
        };
        member.sink.value(value)?;
        rest = behind;
    }
    match rest.len() {
        0 => Ok(()),
        left => damaged!("a packed row of {} bytes has {left} left over", row.len()),
    }
}

fn offsets_are_wide(codec: &Codec) -> Option<bool> {
    match codec {
        Codec::Variable { wide } | Codec::Fsst { wide, .. } => Some(*wide),
        Codec::General { values, .. } => offsets_are_wide(values),
        _ => None,
    }
}

/// Variable-width values, each compressed separately: with a general codec, with FSST, with both or not at all.
pub struct Text<'a, O> {
    strings: Strings<O>,
    scheme: Option<Scheme>,
    symbols: Option<&'a SymbolTable>,
    /// Limit of each frame; codes take at most two bytes per byte of the value.
    limit: Limit,
    inflater: Inflater,
    plain: Vec<u8>,
    scratch: Scratch,
}

impl<'a, O: Offset> Text<'a, O> {
    fn new(codec: &'a Codec, count: usize, bytes: usize) -> PyResult<Self> {
        let (scheme, codec, bytes_max) = match codec {
            Codec::General { scheme, values, bytes_max } => (Some(*scheme), &**values, *bytes_max),
            _ => (None, codec, usize::MAX),
        };
        let symbols = match codec {
            Codec::Variable { .. } => None,
            Codec::Fsst { table, .. } => table.coded.then_some(&**table),
            _ => return Err(invalid("values of a full-zip page are compressed generally more than once")),
        };
        Ok(Text {
            strings: Strings::with_room(count, bytes),
            scheme,
            symbols,
            limit: Limit {
                expected: usize::MAX,
                allowed: bytes_max.saturating_mul(1 + usize::from(symbols.is_some())),
            },
            inflater: Inflater::default(),
            plain: Vec::new(),
            scratch: Scratch::default(),
        })
    }

    #[inline]
    fn value(&mut self, value: &[u8]) -> Checked<()> {
        let bytes = match self.scheme {
            None => value,
            Some(scheme) => {
                self.inflater.inflate(scheme, value, self.limit, &mut self.plain)?;
                &self.plain
            }
        };
        match self.symbols {
            Some(symbols) => symbols.decode(bytes, std::iter::once(bytes.len()), &mut self.scratch, &mut self.strings),
            None => {
                self.strings.push_bytes(bytes)?;
                self.strings.end_value()
            }
        }
    }
}

/// A little-endian integer of up to 8 bytes.
#[inline(always)]
pub fn read_word(bytes: &[u8]) -> u64 {
    match *bytes {
        [] => 0,
        [a] => u64::from(a),
        [a, b] => u64::from(u16::from_le_bytes([a, b])),
        [a, b, c, d] => u64::from(u32::from_le_bytes([a, b, c, d])),
        _ => bytes.iter().rev().fold(0, |word, &byte| word << 8 | u64::from(byte)),
    }
}
