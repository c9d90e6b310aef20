//! Values of variable width (spec: encodings, 4.2): n + 1 offsets from the start of the buffer, bytes, padding 'H' to a
//! multiple of the offset width.

use crate::encode::chunk_values::{ChunkSink, Values};
use crate::error::invalid;
use crate::room::{copied, Grow, Roomy};
use bytemuck::Pod;
use pyo3::PyResult;
use std::borrow::Cow;

const PAD: u8 = b'H';
const CHUNK_VALUES_MAX: usize = 4096;

/// An offset of 32 or 64 bits.
pub trait Offset: Pod + Send + Sync {
    fn to_usize(self) -> usize;
    fn from_usize(value: usize) -> Self;
}

macro_rules! offset {
    ($word:ty, $signed:ty) => {
        impl Offset for $word {
            /// Arrow's offsets are signed: a negative one becomes larger than any buffer.
            #[inline(always)]
            fn to_usize(self) -> usize {
                self as $signed as i64 as usize
            }

            #[inline(always)]
            fn from_usize(value: usize) -> Self {
                value as $word
            }
        }
    };
}

offset!(u32, i32);
offset!(u64, i64);

/// Checked Arrow offsets: n + 1, ascending, within the data.
pub fn offsets<'a, T: Offset>(bytes: &'a [u8], data: &[u8], num_values: usize) -> PyResult<Cow<'a, [T]>> {
    let size = num_values.checked_add(1).and_then(|count| count.checked_mul(size_of::<T>()));
    let Some(bytes) = size.and_then(|size| bytes.get(..size)) else {
        return Err(invalid(format!("{} bytes of offsets for {num_values} values", bytes.len())));
    };
    let offsets: Cow<'a, [T]> = match bytemuck::try_cast_slice(bytes) {
        Ok(offsets) => Cow::Borrowed(offsets),
        Err(_) => Cow::Owned(copied(bytes)?),
    };
    let ascends = offsets.windows(2).fold(true, |ascends, pair| ascends & (pair[0].to_usize() <= pair[1].to_usize()));
    if !ascends || offsets[num_values].to_usize() > data.len() {
        return Err(invalid("offsets do not ascend within the data"));
    }
    Ok(offsets)
}

pub struct Variable<'a, T: Offset> {
    offsets: Cow<'a, [T]>,
    data: &'a [u8],
    target_bytes: usize,
}

impl<'a> Variable<'a, u32> {
    /// Values with offsets of 32 bits, or of 64 if `wide`.
    pub fn boxed(
        wide: bool,
        raw_offsets: &'a [u8],
        data: &'a [u8],
        num_values: usize,
        target_bytes: usize,
    ) -> PyResult<Box<dyn Values + 'a>> {
        Ok(match wide {
            false => {
                let offsets = offsets::<u32>(raw_offsets, data, num_values)?;
                Box::new(Variable { offsets, data, target_bytes })
            }
            true => {
                let offsets = offsets::<u64>(raw_offsets, data, num_values)?;
                Box::new(Variable { offsets, data, target_bytes })
            }
        })
    }
}

impl<T: Offset> Variable<'_, T> {
    fn bytes_of(&self, start: usize, count: usize) -> usize {
        self.offsets[start + count].to_usize() - self.offsets[start].to_usize() + (count + 1) * size_of::<T>()
    }
}

impl<T: Offset> Values for Variable<'_, T> {
    fn fit(&self, start: usize) -> usize {
        let left = self.offsets.len() - 1 - start;
        if left <= CHUNK_VALUES_MAX && self.bytes_of(start, left) <= self.target_bytes {
            return left;
        }
        let mut count = 2;
        while 2 * count <= left.min(CHUNK_VALUES_MAX) && self.bytes_of(start, 2 * count) <= self.target_bytes {
            count *= 2;
        }
        count.min(left)
    }

    fn put(&mut self, start: usize, end: usize, sink: &mut ChunkSink<'_>) -> Roomy<()> {
        let offsets = &self.offsets[start..=end];
        let (first, last) = (offsets[0].to_usize(), offsets[end - start].to_usize());
        let head = size_of_val(offsets);
        sink.buffer(|out| {
            let at = out.len();
            out.try_resize(at + head, 0)?;
            for (slot, offset) in out[at..].chunks_exact_mut(size_of::<T>()).zip(offsets) {
                slot.copy_from_slice(bytemuck::bytes_of(&T::from_usize(offset.to_usize() - first + head)));
            }
            out.try_append(&self.data[first..last])?;
            let size = (out.len() - at).next_multiple_of(size_of::<T>());
            out.try_resize(at + size, PAD)
        })
    }
}
