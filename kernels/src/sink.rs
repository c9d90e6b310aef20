//! Outputs for decoded values: append-only, with memory that is passed to Python zero-copy.
//!
//! Each `grow` zeroes only the memory of one chunk, while it is in the cache, so a page's output is written to main
//! memory once.

use crate::buffer::OwnedBuffer;
use crate::damaged;
use crate::error::{Checked, Damaged, Fault};
use crate::room::{reserve, with_room, Grow};

/// A range of selected values inside one chunk, `start < end`.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Pick {
    pub start: usize,
    pub end: usize,
}

impl Pick {
    pub fn len(self) -> usize {
        self.end - self.start
    }

    /// All of `count` values; `None` for no values.
    pub fn all(count: usize) -> Option<Self> {
        (count > 0).then_some(Pick { start: 0, end: count })
    }
}

/// Total number of values in the picks.
pub fn count(picks: &[Pick]) -> usize {
    picks.iter().map(|pick| pick.len()).sum()
}

/// `count * bits` in bytes, rounded up; an overflow is damage, because no input justifies it.
pub fn bytes_of(count: usize, bits: usize) -> Checked<usize> {
    match count.checked_mul(bits) {
        Some(total) => Ok(total.div_ceil(8)),
        None => damaged!("{count} values of {bits} bits do not fit in memory"),
    }
}

/// Bytes aligned to 8: fixed-width values of any width.
pub struct Bytes {
    words: Vec<u64>,
    length: usize,
}

impl Bytes {
    /// With capacity for this many bytes, as in `with_room`.
    pub fn with_room(bytes: usize) -> Self {
        Bytes { words: with_room(bytes.div_ceil(8)), length: 0 }
    }

    /// `bytes` more bytes at the end, which the caller overwrites.
    pub fn grow(&mut self, bytes: usize) -> Checked<&mut [u8]> {
        let start = self.length;
        let Some(length) = start.checked_add(bytes) else { return Err(Fault::NoMemory(usize::MAX)) };
        let words = length.div_ceil(8);
        if words > self.words.len() {
            let missing = words - self.words.len();
            reserve(&mut self.words, missing)?;
            self.words.resize(words, 0); // room: reserved
        }
        self.length = length;
        Ok(&mut bytemuck::cast_slice_mut(&mut self.words)[start..length])
    }

    pub fn as_slice(&self) -> &[u8] {
        &bytemuck::cast_slice(&self.words)[..self.length]
    }

    pub fn as_mut_slice(&mut self) -> &mut [u8] {
        &mut bytemuck::cast_slice_mut(&mut self.words)[..self.length]
    }

    pub fn into_buffer(self) -> OwnedBuffer {
        OwnedBuffer::aligned(self.words, self.length)
    }
}

/// Bits, LSB first, packed without gaps; padding bits are 0.
pub struct Bits {
    bytes: Vec<u8>,
    length: usize,
}

impl Bits {
    /// With capacity for this many bits, as in `with_room`.
    pub fn with_room(bits: usize) -> Self {
        Bits { bytes: with_room(bits.div_ceil(8)), length: 0 }
    }

    /// Append `count` bits of `source` from bit `start` on. The caller has checked that they exist.
    pub fn append(&mut self, source: &[u8], mut start: usize, mut count: usize) -> Checked<()> {
        reserve(&mut self.bytes, count.div_ceil(8))?;
        while count > 0 && !self.length.is_multiple_of(8) {
            let bit = (source[start / 8] >> (start % 8)) & 1;
            if let Some(last) = self.bytes.last_mut() {
                *last |= bit << (self.length % 8);
            }
            (self.length, start, count) = (self.length + 1, start + 1, count - 1);
        }
        if count == 0 {
            return Ok(());
        }
        let source = &source[start / 8..(start + count).div_ceil(8)];
        let shift = start % 8;
        let whole = count.div_ceil(8);
        if shift == 0 {
            self.bytes.try_append(&source[..whole])?;
        } else {
            let pairs = source.windows(2).map(|pair| (pair[0] >> shift) | (pair[1] << (8 - shift)));
            self.bytes.try_extend(pairs.take(whole))?;
            if whole == source.len() {
                self.bytes.try_push(source[whole - 1] >> shift)?;
            }
        }
        self.length += count;
        if !self.length.is_multiple_of(8) {
            if let Some(last) = self.bytes.last_mut() {
                *last &= (1 << (self.length % 8)) - 1;
            }
        }
        Ok(())
    }

    pub fn into_bytes(self) -> Vec<u8> {
        self.bytes
    }
}

/// Offsets of the width that the Arrow type needs.
#[derive(Debug, PartialEq)]
pub enum Offsets {
    Narrow(Vec<i32>),
    Wide(Vec<i64>),
}

impl From<Offsets> for OwnedBuffer {
    fn from(offsets: Offsets) -> Self {
        match offsets {
            Offsets::Narrow(offsets) => offsets.into(),
            Offsets::Wide(offsets) => offsets.into(),
        }
    }
}

/// An offset of variable-width values: i32 or i64 in memory, u32 or u64 on disk.
pub trait Offset: bytemuck::Pod {
    const BYTES: usize;
    const MAX: usize;
    fn wrap(position: usize) -> Self;
    fn position(self) -> usize;
    /// The unsigned little-endian integer in `bytes` (of `BYTES` length).
    fn read(bytes: &[u8]) -> usize;
    fn into_offsets(offsets: Vec<Self>) -> Offsets
    where
        Self: Sized;
}

impl Offset for i32 {
    const BYTES: usize = 4;
    const MAX: usize = i32::MAX as usize;
    #[inline(always)]
    fn wrap(position: usize) -> Self {
        position as i32
    }
    #[inline(always)]
    fn position(self) -> usize {
        self as u32 as usize
    }
    #[inline(always)]
    fn read(bytes: &[u8]) -> usize {
        bytemuck::pod_read_unaligned::<u32>(&bytes[..4]) as usize
    }
    fn into_offsets(offsets: Vec<Self>) -> Offsets {
        Offsets::Narrow(offsets)
    }
}

impl Offset for i64 {
    const BYTES: usize = 8;
    const MAX: usize = isize::MAX as usize;
    #[inline(always)]
    fn wrap(position: usize) -> Self {
        position as i64
    }
    #[inline(always)]
    fn position(self) -> usize {
        self as usize
    }
    #[inline(always)]
    fn read(bytes: &[u8]) -> usize {
        bytemuck::pod_read_unaligned::<u64>(&bytes[..8]) as usize
    }
    fn into_offsets(offsets: Vec<Self>) -> Offsets {
        Offsets::Wide(offsets)
    }
}

/// Variable-width values: offsets that begin at 0, and bytes.
pub struct Strings<O> {
    pub offsets: Vec<O>,
    pub data: Vec<u8>,
}

impl<O: Offset> Strings<O> {
    /// With capacity for this many values and bytes, as in `with_room`.
    pub fn with_room(count: usize, bytes: usize) -> Self {
        let mut offsets = with_room(count.saturating_add(1));
        offsets.push(O::wrap(0)); // room: for one
        Strings { offsets, data: with_room(bytes) }
    }

    /// End a value at the current end of the data (checked once, by `into_buffers`).
    #[inline(always)]
    pub fn end_value(&mut self) -> Checked<()> {
        reserve(&mut self.offsets, 1)?;
        self.offsets.try_push(O::wrap(self.data.len()))?;
        Ok(())
    }

    /// Append bytes to the current value.
    #[inline(always)]
    pub fn push_bytes(&mut self, bytes: &[u8]) -> Checked<()> {
        reserve(&mut self.data, bytes.len())?;
        self.data.try_append(bytes)?;
        Ok(())
    }

    pub fn into_buffers(self) -> Checked<[OwnedBuffer; 2]> {
        if self.data.len() > O::MAX {
            return Err(too_long::<O>(self.data.len()));
        }
        Ok([O::into_offsets(self.offsets).into(), self.data.into()])
    }
}

/// The error for values of one page that exceed their offsets.
pub fn too_long<O: Offset>(bytes: usize) -> Fault {
    Damaged(format!("{bytes} bytes of values exceed what {}-bit offsets reach ({})", O::BYTES * 8, O::MAX))
}
