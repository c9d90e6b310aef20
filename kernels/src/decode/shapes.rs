//! Outputs with a shape: values of bytes or bits, rows of fixed-size lists, members of packed structs.

use crate::buffer::OwnedBuffer;
use crate::decode::codec::Codec;
use crate::error::{invalid, Checked};
use crate::room::{Gather, GatherResults, Grow};
use crate::sink::{bytes_of, Bits, Bytes};
use pyo3::PyResult;

/// Fixed-width values, of whole bytes or of bits.
pub enum Fixed {
    Bytes(Bytes, usize),
    Bits(Bits, usize),
}

impl Fixed {
    pub fn with_capacity(bits: usize, count: usize) -> Checked<Self> {
        let bytes = bytes_of(count, bits)?;
        Ok(match bits % 8 {
            0 => Fixed::Bytes(Bytes::with_room(bytes), bits / 8),
            _ => Fixed::Bits(Bits::with_room(bytes * 8), bits),
        })
    }

    /// Append the plainly stored values `start .. start + count`; the caller has checked that they exist.
    pub fn append(&mut self, source: &[u8], start: usize, count: usize) -> Checked<()> {
        match self {
            Fixed::Bytes(out, size) => {
                out.grow(count * *size)?.copy_from_slice(&source[start * *size..(start + count) * *size]);
            }
            Fixed::Bits(out, bits) => out.append(source, start * *bits, count * *bits)?,
        }
        Ok(())
    }

    pub fn into_buffer(self) -> OwnedBuffer {
        match self {
            Fixed::Bytes(out, _) => out.into_buffer(),
            Fixed::Bits(out, _) => out.into_bytes().into(),
        }
    }
}

/// The lists of a FIXED_SIZE_LIST codec, outermost first, over flat items.
pub struct ListShape {
    /// Per list level: items in one row down to that level, and whether they have a validity bitmap.
    pub levels: Vec<(usize, bool)>,
    pub item_bits: usize,
}

impl ListShape {
    pub fn new(codec: &Codec) -> PyResult<Self> {
        let mut levels = Vec::new();
        let (mut codec, mut items_per_row) = (codec, 1usize);
        while let Codec::FixedSizeList { items, has_validity, values } = codec {
            items_per_row = match items_per_row.checked_mul(*items) {
                Some(product) if product <= u32::MAX as usize => product,
                _ => return Err(invalid("fixed-size lists hold more than 2^32 items per row")),
            };
            levels.try_push((items_per_row, *has_validity))?;
            codec = values;
        }
        match codec.bits() {
            Some(item_bits) => Ok(ListShape { levels, item_bits }),
            None => Err(invalid("a fixed-size list of variable-width items")),
        }
    }

    pub fn items_per_row(&self) -> usize {
        self.levels.last().map_or(1, |&(items, _)| items)
    }

    /// Whether a separate row has the layout of a row in a chunk: no bitmaps in between, no padding bits.
    pub fn is_plain(&self) -> bool {
        self.levels.iter().all(|(_, has_validity)| !has_validity)
            && self.items_per_row().saturating_mul(self.item_bits).is_multiple_of(8)
    }

    /// Bytes of a separate row: bitmaps, then items, each from a byte boundary.
    pub fn row_bytes(&self) -> usize {
        let bitmaps = self.levels.iter().filter(|(_, has_validity)| *has_validity);
        let items = self.items_per_row().saturating_mul(self.item_bits).div_ceil(8);
        bitmaps.map(|(items, _)| items.div_ceil(8)).sum::<usize>().saturating_add(items)
    }
}

/// Outputs of rows of fixed-size lists.
pub struct Lists {
    pub validity: Vec<Option<Bits>>,
    pub items: Fixed,
}

impl Lists {
    pub fn with_capacity(shape: &ListShape, rows: usize) -> Checked<Self> {
        let bitmap = |&(items, has_validity): &(usize, bool)| {
            has_validity.then(|| Checked::Ok(Bits::with_room(bytes_of(rows, items)?.saturating_mul(8)))).transpose()
        };
        let validity = shape.levels.iter().map(bitmap).try_vec_of()?;
        // `append` counts rows for the bitmaps and items here, so that bits never restart.
        let items = Fixed::with_capacity(shape.item_bits, bytes_of(rows, shape.items_per_row() * 8)?)?;
        Ok(Lists { validity, items })
    }

    /// Append a separate row of `ListShape::row_bytes` bytes.
    pub fn append_row(&mut self, shape: &ListShape, row: &[u8]) -> Checked<()> {
        let mut rest = row;
        for (&(items, _), bitmap) in shape.levels.iter().zip(&mut self.validity) {
            if let Some(bitmap) = bitmap {
                let (bits, behind) = rest.split_at(items.div_ceil(8));
                bitmap.append(bits, 0, items)?;
                rest = behind;
            }
        }
        self.items.append(rest, 0, shape.items_per_row())
    }

    pub fn into_buffers(self) -> Checked<Vec<Option<OwnedBuffer>>> {
        let validity = self.validity.into_iter().map(|bits| bits.map(|bits| bits.into_bytes().into()));
        Ok(validity.chain([Some(self.items.into_buffer())]).try_vec()?)
    }
}

/// Outputs of a packed struct, one per child.
pub struct Children {
    sizes: Vec<usize>,
    row_bytes: usize,
    outputs: Vec<Bytes>,
}

impl Children {
    pub fn with_capacity(bits: &[usize], rows: usize) -> Checked<Self> {
        let outputs = bits.iter().map(|&bits| Checked::Ok(Bytes::with_room(bytes_of(rows, bits)?))).try_vec_of()?;
        let sizes = bits.iter().map(|bits| bits / 8).try_vec()?;
        Ok(Children { row_bytes: sizes.iter().sum(), sizes, outputs })
    }

    pub fn row_bytes(&self) -> usize {
        self.row_bytes
    }

    /// Append rows `start .. end` of `source`.
    pub fn append(&mut self, source: &[u8], start: usize, end: usize) -> Checked<()> {
        let rows = &source[start * self.row_bytes..end * self.row_bytes];
        let mut at = 0;
        for (&size, output) in self.sizes.iter().zip(&mut self.outputs) {
            let out = output.grow((end - start) * size)?;
            match size {
                1 => column::<1>(rows, self.row_bytes, at, out),
                2 => column::<2>(rows, self.row_bytes, at, out),
                4 => column::<4>(rows, self.row_bytes, at, out),
                8 => column::<8>(rows, self.row_bytes, at, out),
                _ => {
                    for (slot, row) in out.chunks_exact_mut(size).zip(rows.chunks_exact(self.row_bytes)) {
                        slot.copy_from_slice(&row[at..at + size]);
                    }
                }
            }
            at += size;
        }
        Ok(())
    }

    pub fn into_buffers(self) -> Checked<Vec<Option<OwnedBuffer>>> {
        Ok(self.outputs.into_iter().map(|output| Some(output.into_buffer())).try_vec()?)
    }
}

fn column<const SIZE: usize>(rows: &[u8], row_bytes: usize, at: usize, out: &mut [u8]) {
    for (slot, row) in out.chunks_exact_mut(SIZE).zip(rows.chunks_exact(row_bytes)) {
        slot.copy_from_slice(&row[at..at + SIZE]);
    }
}
