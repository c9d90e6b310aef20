//! Concatenates leaves of several pages of one column.

use crate::buffer::OwnedBuffer;
use crate::decode::codec::Codec;
use crate::decode::dictionary::Kind;
use crate::decode::shapes::ListShape;
use crate::error::{invalid, Checked};
use crate::levels::layers::LayerOut;
use crate::levels::leaf::LeafParts;
use crate::miniblock::page::Page;
use crate::room::{copied, filled, vec_with_capacity, zeros, Gather, GatherResults, Grow};
use crate::sink::{Bits, Bytes, Offsets};
use pyo3::PyResult;

/// The content of a value buffer.
#[derive(Clone, Copy, PartialEq, Eq)]
pub enum Part {
    Bytes,
    /// This many bits per item; None if a page has no bitmap of this level.
    Bits(usize),
    Narrow,
    Wide,
}

/// The value buffers of a page, in order.
pub fn parts_of(page: &Page) -> PyResult<Vec<Part>> {
    Ok(match page.dictionary {
        Some(Kind::Fixed { .. }) => vec![Part::Bytes],
        Some(Kind::Narrow) => vec![Part::Narrow, Part::Bytes],
        Some(Kind::Wide) => vec![Part::Wide, Part::Bytes],
        None => parts_of_codec(&page.values)?,
    })
}

fn parts_of_codec(codec: &Codec) -> PyResult<Vec<Part>> {
    Ok(match codec {
        Codec::General { values, .. } => parts_of_codec(values)?,
        Codec::Fsst { wide: false, .. } => vec![Part::Narrow, Part::Bytes],
        Codec::Fsst { wide: true, .. } => vec![Part::Wide, Part::Bytes],
        Codec::Variable { wide: false } => vec![Part::Narrow, Part::Bytes],
        Codec::Variable { wide: true } => vec![Part::Wide, Part::Bytes],
        Codec::FixedSizeList { .. } => {
            let shape = ListShape::new(codec)?;
            let items = match shape.item_bits % 8 {
                0 => Part::Bytes,
                _ => Part::Bits(shape.items_per_row() * shape.item_bits),
            };
            shape.levels.iter().map(|&(items, _)| Part::Bits(items)).chain([items]).try_vec()?
        }
        Codec::PackedStruct { bits, .. } => filled(Part::Bytes, bits.len())?,
        _ => match codec.bits() {
            Some(bits) if bits % 8 != 0 => vec![Part::Bits(bits)],
            Some(_) => vec![Part::Bytes],
            None => return Err(invalid("values of this codec cannot be joined")),
        },
    })
}

/// Join the leaves of several pages, whose value buffers have the kinds in `parts`.
pub fn join_leaves(mut leaves: Vec<LeafParts>, parts: impl FnOnce() -> PyResult<Vec<Part>>) -> PyResult<LeafParts> {
    if leaves.len() == 1 {
        return Ok(leaves.remove(0));
    }
    let parts = parts()?;
    let layers = leaves[0].2.len();
    if leaves.iter().any(|leaf| leaf.1.len() != parts.len() || leaf.2.len() != layers) {
        return Err(invalid("pages of different kinds in one call"));
    }
    let num_items = leaves.iter().map(|leaf| leaf.0).sum();
    let values = parts.iter().enumerate().map(|(at, part)| join_values(&leaves, at, *part)).try_vec_of()?;
    let layers = (0..layers).map(|at| join_layer(&leaves, at)).try_vec_of()?;
    Ok((num_items, values, layers))
}

fn join_values(leaves: &[LeafParts], at: usize, part: Part) -> PyResult<Option<OwnedBuffer>> {
    let buffers = || leaves.iter().map(|leaf| leaf.1[at].as_ref());
    if buffers().any(|buffer| buffer.is_none()) {
        return match buffers().all(|buffer| buffer.is_none()) {
            true => Ok(None),
            false => Err(invalid("pages with and without bitmaps in one call")),
        };
    }
    let slices = buffers().flatten().map(OwnedBuffer::bytes).try_vec()?;
    let total: usize = slices.iter().map(|slice| slice.len()).sum();
    Ok(Some(match part {
        Part::Bytes => {
            let mut out = Bytes::with_room(total);
            for slice in slices {
                out.grow(slice.len())?.copy_from_slice(slice);
            }
            out.into_buffer()
        }
        Part::Bits(per_item) => {
            let mut out = Bits::with_room(total * 8);
            for (slice, leaf) in slices.iter().zip(leaves) {
                out.append(slice, 0, leaf.0 * per_item)?;
            }
            out.into_bytes().into()
        }
        Part::Narrow => {
            let vectors = slices.iter().map(|slice| copied::<i32>(slice)).try_vec_of()?;
            join_offsets(vectors.iter().map(Vec::as_slice), total / 4)?.into()
        }
        Part::Wide => {
            let vectors = slices.iter().map(|slice| copied::<i64>(slice)).try_vec_of()?;
            join_offsets(vectors.iter().map(Vec::as_slice), total / 8)?.into()
        }
    }))
}

/// An integer that counts bytes or items.
trait Count: Copy + Default {
    fn after(self, base: Self) -> Option<Self>;
}
impl Count for i32 {
    fn after(self, base: i32) -> Option<i32> {
        self.checked_add(base)
    }
}
impl Count for i64 {
    fn after(self, base: i64) -> Option<i64> {
        self.checked_add(base)
    }
}

fn join_offsets<'a, O: Count + 'a>(vectors: impl Iterator<Item = &'a [O]>, count: usize) -> Checked<Vec<O>> {
    let mut out = vec_with_capacity(count + 1)?;
    out.push(O::default()); // room: reserved
    for offsets in vectors {
        let base = *out.last().unwrap_or(&O::default());
        for offset in offsets.iter().skip(1) {
            match offset.after(base) {
                Some(offset) => out.try_push(offset)?,
                None => return crate::damaged!("the values wanted exceed what 32-bit offsets can address"),
            }
        }
    }
    Ok(out)
}

fn join_layer(leaves: &[LeafParts], at: usize) -> Checked<LayerOut> {
    let layers = || leaves.iter().map(|leaf| &leaf.2[at]);
    let length = layers().map(|layer| layer.length).sum();
    let null_count = layers().map(|layer| layer.null_count).sum();
    let validity = match layers().any(|layer| layer.validity.is_some()) {
        false => None,
        true => {
            let mut bits = Bits::with_room(length);
            for layer in layers() {
                match &layer.validity {
                    Some(validity) => bits.append(validity, 0, layer.length)?,
                    None => {
                        let mut ones = zeros::<u8>(layer.length.div_ceil(8))?;
                        ones.fill(0xff);
                        bits.append(&ones, 0, layer.length)?;
                    }
                }
            }
            Some(bits.into_bytes())
        }
    };
    let mut narrow = Vec::new();
    let mut wide = Vec::new();
    for layer in layers() {
        match &layer.offsets {
            Some(Offsets::Narrow(offsets)) => narrow.try_push(offsets.as_slice())?,
            Some(Offsets::Wide(offsets)) => wide.try_push(offsets.as_slice())?,
            None => {}
        }
    }
    let offsets = match (narrow.is_empty(), wide.is_empty()) {
        (true, true) => None,
        (false, _) => Some(Offsets::Narrow(join_offsets(narrow.into_iter(), length)?)),
        (true, false) => Some(Offsets::Wide(join_offsets(wide.into_iter(), length)?)),
    };
    Ok(LayerOut { length, validity, null_count, offsets })
}
