//! Dictionaries of mini-block pages (spec: encodings, 3.5): decodes the items, and replaces indices by values.
//!
//!     variable width   u32 32, u32 start of the bytes, n+1 u32 offsets from 0, bytes
//!                      u64 64, u64 start of the bytes, n+1 u64 offsets from 0, bytes
//!     before release   u8 32 or 64, u32/u64 count, u32/u64 start of the bytes, offsets, bytes

use crate::buffer::{Input, OwnedBuffer};
use crate::damaged;
use crate::decode::codec::{Codec, Program};
use crate::decode::general::{Inflater, Limit};
use crate::decode::{block, fixed};
use crate::error::{invalid, Checked};
use crate::gil;
use crate::room::{copied, vec_with_capacity, Grow};
use crate::sink::{bytes_of, too_long, Bytes, Offset, Pick, Strings};
use pyo3::prelude::*;
use std::borrow::Cow;

/// A block-compressed dictionary as `[data]` or `[offsets, data]`.
#[pyfunction]
#[pyo3(signature = (codec, buffer, num_items, /))]
pub fn decode_dictionary(
    py: Python<'_>,
    codec: &[u8],
    buffer: &Bound<'_, PyAny>,
    num_items: usize,
) -> PyResult<Vec<OwnedBuffer>> {
    let mut program = Program::new(codec);
    let codec = program.codec()?;
    program.finish()?;
    let input = Input::new(buffer)?;
    let block = input.bytes();
    let steps = block.len() / 64 + num_items;
    Ok(gil::release(py, steps, || decode_items(&codec, block, num_items, &mut Inflater::default()))?)
}

/// The items in `block`, as `[data]` or `[offsets, data]`.
pub fn decode_items(
    codec: &Codec,
    block: &[u8],
    num_items: usize,
    inflater: &mut Inflater,
) -> Checked<Vec<OwnedBuffer>> {
    match codec {
        Codec::General { scheme, values, bytes_max } if values.bits().is_none_or(|bits| bits == 1) => {
            let mut plain = Vec::new();
            let limit = Limit::of_several(fixed::first_buffer_bytes_max(values, num_items), *bytes_max);
            inflater.inflate(*scheme, block, limit, &mut plain)?;
            decode_items(values, &plain, num_items, inflater)
        }
        Codec::Variable { wide: false } => strings::<i32>(block, num_items),
        Codec::Variable { wide: true } => strings::<i64>(block, num_items),
        Codec::Flat { bits: 1 } => bitmap(block, num_items),
        _ => match codec.bits() {
            Some(bits) if bits % 8 == 0 => {
                let size = bytes_of(num_items, bits)?;
                let mut items = Bytes::with_room(size);
                let picks = [Pick { start: 0, end: num_items }];
                block::decode(codec, block, num_items, &picks, inflater, |_| items.grow(size))?;
                Ok(vec![items.into_buffer()])
            }
            _ => damaged!("a dictionary of neither variable-width values, whole bytes nor single bits"),
        },
    }
}

/// Booleans, from the first bit of the block on.
fn bitmap(block: &[u8], num_items: usize) -> Checked<Vec<OwnedBuffer>> {
    let size = bytes_of(num_items, 1)?;
    if block.len() != size {
        return damaged!("{num_items} dictionary items of a bit in {} bytes", block.len());
    }
    let mut items = Bytes::with_room(size);
    items.grow(size)?.copy_from_slice(block);
    Ok(vec![items.into_buffer()])
}

/// Items of variable width; their offsets must begin at 0 and end with the block.
fn strings<O: Offset>(block: &[u8], num_items: usize) -> Checked<Vec<OwnedBuffer>> {
    let (table_at, bytes_at) = header::<O>(block, num_items)?;
    let table = num_items.checked_add(1).and_then(|count| count.checked_mul(O::BYTES));
    let table = match table.and_then(|size| table_at.checked_add(size)) {
        Some(end) if end <= bytes_at && bytes_at <= block.len() => &block[table_at..end],
        _ => return damaged!("{num_items} dictionary offsets do not fit before byte {bytes_at} of {}", block.len()),
    };
    let bytes = &block[bytes_at..];
    let mut items = Strings::<O>::with_room(num_items, 0);
    items.offsets.clear();
    let first = O::read(table);
    let mut previous = first;
    for raw in table.chunks_exact(O::BYTES) {
        let offset = O::read(raw);
        if offset < previous || offset > bytes.len() {
            return damaged!("dictionary offset {offset} behind {previous}, with {} bytes of items", bytes.len());
        }
        items.offsets.try_push(O::wrap(offset))?;
        previous = offset;
    }
    if first != 0 || previous != bytes.len() {
        return damaged!("dictionary offsets run from {first} to {previous} over {} bytes of items", bytes.len());
    }
    items.push_bytes(bytes)?;
    Ok(items.into_buffers()?.into())
}

/// Start of the offsets and of the bytes.
fn header<O: Offset>(block: &[u8], num_items: usize) -> Checked<(usize, usize)> {
    let width = O::BYTES;
    if block.len() < 4 {
        return damaged!("a dictionary of {} bytes has no header", block.len());
    }
    if block[0] as usize != width * 8 {
        return damaged!("dictionary offsets of {} bits, expected {}", block[0], width * 8);
    }
    let before_release = block[1..4] != [0, 0, 0];
    let head_at = usize::from(before_release);
    let head_end = head_at + 2 * width;
    let Some(numbers) = block.get(head_at..head_end) else {
        return damaged!("a dictionary of {} bytes has no header", block.len());
    };
    let (first, bytes_at) = (O::read(numbers), O::read(&numbers[width..]));
    let expected = if before_release { num_items } else { width * 8 };
    if first != expected {
        return damaged!("a dictionary header says {first}, expected {expected}");
    }
    Ok((head_end, bytes_at))
}

/// Items up to this long are copied with one store of this size.
const SHORT_ITEM: usize = 16;
/// Values between two extensions of the output.
const BATCH: usize = 512;

/// The item type of a page's dictionary, from its program.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Kind {
    Fixed { size: usize },
    Narrow,
    Wide,
}

impl Kind {
    pub fn parse(program: &mut Program<'_>) -> PyResult<Option<Self>> {
        Ok(match program.u8()? {
            0 => None,
            1 => match program.bits()? {
                bits if bits % 8 == 0 => Some(Kind::Fixed { size: bits / 8 }),
                bits => return Err(invalid(format!("dictionary items of {bits} bits are not made of bytes"))),
            },
            2 => Some(Kind::Narrow),
            3 => Some(Kind::Wide),
            kind => return Err(invalid(format!("unknown dictionary kind {kind}"))),
        })
    }
}

/// A decoded dictionary, from `decode_dictionary`.
#[derive(Clone, Copy)]
pub struct Items<'a> {
    pub kind: Kind,
    pub offsets: &'a [u8],
    pub data: &'a [u8],
}

impl Items<'_> {
    fn count(&self) -> usize {
        match self.kind {
            Kind::Fixed { size } => self.data.len() / size,
            Kind::Narrow => (self.offsets.len() / 4).saturating_sub(1),
            Kind::Wide => (self.offsets.len() / 8).saturating_sub(1),
        }
    }

    /// Replace indices of `size` bytes by their items.
    pub fn look_up(&self, indices: &[u8], size: usize) -> Checked<Vec<OwnedBuffer>> {
        match size {
            1 => self.look_up_ints(indices.iter().map(|&index| index as usize)),
            2 => self.look_up_ints(ints::<u16>(indices).iter().map(|&index| index as usize)),
            4 => self.look_up_ints(ints::<u32>(indices).iter().map(|&index| index as usize)),
            8 => self.look_up_ints(ints::<u64>(indices).iter().map(|&index| index as usize)),
            _ => damaged!("dictionary indices of {size} bytes"),
        }
    }

    fn look_up_ints(&self, indices: impl ExactSizeIterator<Item = usize> + Clone) -> Checked<Vec<OwnedBuffer>> {
        let count = self.count();
        let largest = indices.clone().fold(0, usize::max); // room: an iterator
        if largest >= count && indices.len() > 0 {
            return damaged!("index {largest} into a dictionary of {count} items");
        }
        match self.kind {
            Kind::Fixed { size } => self.fixed(indices, size),
            Kind::Narrow => self.variable::<i32>(indices),
            Kind::Wide => self.variable::<i64>(indices),
        }
    }

    fn fixed(&self, indices: impl ExactSizeIterator<Item = usize>, size: usize) -> Checked<Vec<OwnedBuffer>> {
        let total = bytes_of(indices.len(), size * 8)?;
        let mut values = Bytes::with_room(total);
        let out = values.grow(total)?;
        match size {
            8 => gather::<8>(self.data, indices, out),
            16 => gather::<16>(self.data, indices, out),
            _ => {
                for (slot, index) in out.chunks_exact_mut(size).zip(indices) {
                    slot.copy_from_slice(&self.data[index * size..(index + 1) * size]);
                }
            }
        }
        Ok(vec![values.into_buffer()])
    }

    fn variable<O: Offset>(&self, indices: impl ExactSizeIterator<Item = usize> + Clone) -> Checked<Vec<OwnedBuffer>> {
        let table: Cow<'_, [O]> = match bytemuck::try_cast_slice(self.offsets) {
            Ok(table) => Cow::Borrowed(table),
            Err(_) => Cow::Owned(copied(self.offsets)?),
        };
        // The lengths come first, so that the bytes are written once, to memory of the exact size.
        let mut values = Strings::<O>::with_room(indices.len(), 0);
        let short = (indices.len() >= self.count()).then(|| ShortItems::new(&table, self.data)).transpose()?.flatten();
        if let Some(items) = short {
            let mut total = 0usize;
            // room: the iterator is copied, no vector
            let ends = indices.clone().map(|index| {
                total += items.lengths[index] as usize;
                O::wrap(total)
            });
            values.offsets.try_extend(ends)?;
            values.reserve_data(total)?;
            items.copy(indices, &mut values);
            return Ok(values.into_buffers()?.into());
        }
        let (mut total, mut inside) = (0usize, true);
        // room: the iterator is copied, no vector
        let ends = indices.clone().map(|index| {
            let (start, end) = (table[index].position(), table[index + 1].position());
            inside &= start <= end && end <= self.data.len();
            total = total.saturating_add(end.saturating_sub(start));
            O::wrap(total)
        });
        values.offsets.try_extend(ends)?;
        if !inside {
            return damaged!("dictionary offsets do not ascend within {} bytes of items", self.data.len());
        }
        values.reserve_data(total)?;
        for index in indices {
            values.data.try_append(&self.data[table[index].position()..table[index + 1].position()])?;
        }
        Ok(values.into_buffers()?.into())
    }
}

impl<O: Offset> Strings<O> {
    /// Reserve `total` bytes, plus the overhang of a last short item, which is copied with a fixed size.
    fn reserve_data(&mut self, total: usize) -> Checked<()> {
        if total > O::MAX {
            return Err(too_long::<O>(total));
        }
        self.data = vec_with_capacity(total.saturating_add(SHORT_ITEM))?;
        Ok(())
    }
}

/// Short items in slots of one size, so that copying does not depend on their lengths.
struct ShortItems {
    items: Vec<[u8; SHORT_ITEM]>,
    lengths: Vec<u8>,
}

impl ShortItems {
    /// None if an item is longer than `SHORT_ITEM`, or if the offsets are invalid.
    fn new<O: Offset>(table: &[O], data: &[u8]) -> Checked<Option<Self>> {
        let (mut items, mut lengths) = (vec_with_capacity(table.len())?, vec_with_capacity(table.len())?);
        for pair in table.windows(2) {
            let mut item = [0; SHORT_ITEM];
            let bytes = data.get(pair[0].position()..pair[1].position());
            let Some((bytes, slot)) = bytes.and_then(|bytes| Some((bytes, item.get_mut(..bytes.len())?))) else {
                return Ok(None);
            };
            slot.copy_from_slice(bytes);
            items.try_push(item)?;
            lengths.try_push(bytes.len() as u8)?;
        }
        Ok(Some(ShortItems { items, lengths }))
    }

    /// Copy the items' bytes to the offsets of `values`.
    fn copy<O: Offset>(&self, mut indices: impl Iterator<Item = usize>, values: &mut Strings<O>) {
        let mut at = 0;
        for batch in values.offsets[1..].chunks(BATCH) {
            let end = batch.last().map_or(at, |end| end.position());
            values.data.resize(end + SHORT_ITEM, 0); // room: of `reserve_data`
            for (stop, index) in batch.iter().zip(&mut indices) {
                if let Some(slot) = values.data[at..].first_chunk_mut() {
                    *slot = self.items[index];
                }
                at = stop.position();
            }
        }
        values.data.truncate(at);
    }
}

/// Indices are in `Bytes`, which is aligned.
fn ints<T: bytemuck::Pod>(bytes: &[u8]) -> &[T] {
    bytemuck::cast_slice(bytes)
}

fn gather<const SIZE: usize>(data: &[u8], indices: impl Iterator<Item = usize>, out: &mut [u8]) {
    let (items, _) = data.as_chunks::<SIZE>();
    let (slots, _) = out.as_chunks_mut::<SIZE>();
    for (slot, index) in slots.iter_mut().zip(indices) {
        *slot = items[index];
    }
}
