//! Ends of values or lists (spec: encodings 2.0, 5.4 and 5.5): a u64 for each, plus an adjustment for nulls.

use super::counts_of;
use crate::buffer::{Input, OwnedBuffer};
use crate::damaged;
use crate::error::{invalid, Checked, Damaged};
use crate::gil;
use crate::room::{vec_with_capacity, Grow};
use crate::sink::{Offset, Offsets};
use pyo3::prelude::*;

/// Starts and ends of the ranges, offsets, validity, number of nulls.
type Decoded = (OwnedBuffer, OwnedBuffer, OwnedBuffer, Option<OwnedBuffer>, usize);

/// The encoding of ends: the adjustment for nulls, the upper limit, and whether Arrow's offsets are wide.
#[derive(Clone, Copy)]
pub struct Coding {
    pub adjustment: u64,
    pub end_max: u64,
    pub wide: bool,
}

impl Coding {
    pub fn new((adjustment, end_max, wide): (u64, u64, bool)) -> Self {
        Coding { adjustment, end_max: end_max.min(i64::MAX as u64), wide }
    }
}

/// The span of each range of values, and the offsets of the values in the concatenation of all spans.
pub struct Spans {
    pub starts: Vec<i64>,
    pub ends: Vec<i64>,
    pub offsets: Offsets,
    pub validity: Option<Vec<u8>>,
    pub null_count: usize,
}

impl Spans {
    /// End of the last range.
    pub fn last(&self) -> usize {
        self.ends.last().map_or(0, |&end| end as usize)
    }
}

/// `decode_ends` of `_kernels.pyi`.
#[pyfunction]
#[pyo3(signature = (buffer, offsets, firsts, counts, adjustment, end_max, wide, /))]
#[allow(clippy::too_many_arguments)]
pub fn decode_ends(
    py: Python<'_>,
    buffer: &Bound<'_, PyAny>,
    offsets: &Bound<'_, PyAny>,
    firsts: &Bound<'_, PyAny>,
    counts: &Bound<'_, PyAny>,
    adjustment: u64,
    end_max: u64,
    wide: bool,
) -> PyResult<Decoded> {
    let (buffer, offsets) = (Input::new(buffer)?, Input::new(offsets)?);
    let (firsts, counts) = (Input::new(firsts)?, Input::new(counts)?);
    let (offsets, firsts, counts) = (offsets.i64s()?, firsts.i64s()?, counts.i64s()?);
    let coding = Coding::new((adjustment, end_max, wide));
    let stored = Stored { bytes: buffer.bytes(), coding: &coding };
    let found = gil::release(
        py,
        offsets.len() + counts.iter().fold(0usize, |sum, &count| sum.saturating_add(count as usize)),
        || stored.decode(&offsets, &firsts, &counts),
    )?;
    let validity = found.validity.map(OwnedBuffer::from);
    Ok((found.starts.into(), found.ends.into(), found.offsets.into(), validity, found.null_count))
}

/// All ends of a page, which are `bytes`.
pub fn decode_all(bytes: &[u8], num_values: usize, coding: &Coding) -> PyResult<Spans> {
    Stored { bytes, coding }.decode(&[0], &[0], &[num_values as i64])
}

/// Number of ends that are processed together.
const BATCH: usize = 512;

/// Stored ends.
struct Stored<'a> {
    bytes: &'a [u8],
    coding: &'a Coding,
}

impl Stored<'_> {
    fn decode(&self, offsets: &[i64], firsts: &[i64], counts: &[i64]) -> PyResult<Spans> {
        match self.coding.wide {
            false => decode::<i32>(self, offsets, firsts, counts),
            true => decode::<i64>(self, offsets, firsts, counts),
        }
    }

    /// The entries of a range, and the entry before them unless they are the first.
    fn entries(&self, offset: i64, first: i64, count: usize) -> PyResult<(Option<u64>, &[[u8; 8]])> {
        let has_before = first > 0;
        let length = count.checked_add(usize::from(has_before)).and_then(|count| count.checked_mul(8));
        let slice =
            usize::try_from(offset).ok().zip(length).and_then(|(at, length)| self.bytes.get(at..)?.get(..length));
        let Some(slice) = slice else {
            return Err(invalid(format!("{count} ends at {offset} are not within {} bytes", self.bytes.len())));
        };
        let entries = slice.as_chunks().0;
        Ok(match entries.split_first().filter(|_| has_before) {
            Some((before, rest)) => (Some(u64::from_le_bytes(*before)), rest),
            None => (None, entries),
        })
    }

    /// End of the last value, if all of them are valid and all ends are legal.
    fn plain_last(&self, previous: u64, entries: &[[u8; 8]]) -> Option<u64> {
        let (mut before, mut ascends) = (previous, true);
        for entry in entries {
            let end = u64::from_le_bytes(*entry);
            ascends &= end >= before;
            before = end;
        }
        (ascends && before < self.coding.adjustment && before <= self.coding.end_max).then_some(before)
    }

    /// Whether the value is valid, and its end.
    #[inline(always)]
    fn end(&self, stored: u64) -> (bool, u64) {
        match stored < self.coding.adjustment {
            true => (true, stored),
            false => (false, stored - self.coding.adjustment),
        }
    }
}

fn decode<O: Offset>(stored: &Stored<'_>, offsets: &[i64], firsts: &[i64], counts: &[i64]) -> PyResult<Spans> {
    if offsets.len() != firsts.len() {
        return Err(invalid(format!("{} offsets but {} first values", offsets.len(), firsts.len())));
    }
    let (count, total) = counts_of(counts, offsets.len())?;
    let (mut starts, mut ends) = (vec_with_capacity(offsets.len())?, vec_with_capacity(offsets.len())?);
    let mut made = vec_with_capacity(total + 1)?;
    made.try_push(O::wrap(0))?;
    let mut valid: Vec<u8> = Vec::new(); // filled from the first null on
    let (mut length, mut null_count) = (0u64, 0);
    for (at, (&offset, &first)) in offsets.iter().zip(firsts).enumerate() {
        let (before, entries) = stored.entries(offset, first, count(at))?;
        let mut previous = before.map_or(0, |before| stored.end(before).1);
        check(stored, 0, previous)?;
        starts.try_push(previous as i64)?;
        for entries in entries.chunks(BATCH) {
            if let Some(last) = stored.plain_last(previous, entries) {
                let added = length.saturating_add(last - previous);
                if added <= O::MAX as u64 {
                    let shift = length.wrapping_sub(previous);
                    let ends = entries.iter().map(|entry| u64::from_le_bytes(*entry).wrapping_add(shift));
                    made.try_extend(ends.map(|end| O::wrap(end as usize)))?;
                    (length, previous) = (added, last);
                    continue;
                }
            }
            if valid.is_empty() {
                valid = vec_with_capacity(total)?;
            }
            valid.try_resize(made.len() - 1, 1)?;
            for entry in entries {
                let (is_valid, end) = stored.end(u64::from_le_bytes(*entry));
                if end < previous || end > stored.coding.end_max {
                    check(stored, previous, end)?;
                }
                // Both fit into an i64, so only many such ranges could exceed 64 bits.
                length = length.saturating_add(end - previous);
                made.try_push(O::wrap(length.min(O::MAX as u64) as usize))?;
                valid.try_push(u8::from(is_valid))?;
                null_count += usize::from(!is_valid);
                previous = end;
            }
        }
        ends.try_push(previous as i64)?;
    }
    if length > O::MAX as u64 {
        let text = format!("{length} bytes or items wanted exceed what {}-bit offsets can address", O::BYTES * 8);
        return Err(Damaged(text).into());
    }
    valid.try_resize(if null_count > 0 { total } else { 0 }, 1)?;
    let validity = if null_count > 0 { Some(pack(&valid)?) } else { None };
    Ok(Spans { starts, ends, offsets: O::into_offsets(made), validity, null_count })
}

#[cold]
fn check(stored: &Stored<'_>, previous: u64, end: u64) -> Checked<()> {
    match previous <= end && end <= stored.coding.end_max {
        true => Ok(()),
        false => {
            damaged!("an end of {end} behind one of {previous}, where all there is ends at {}", stored.coding.end_max)
        }
    }
}

/// Pack bytes of 0 and 1 as bits.
pub fn pack(flags: &[u8]) -> Checked<Vec<u8>> {
    let mut bits = vec_with_capacity(flags.len().div_ceil(8))?;
    let (eights, rest) = flags.as_chunks::<8>();
    let packed = |eight: &[u8; 8]| (u64::from_le_bytes(*eight).wrapping_mul(0x0102_0408_1020_4080) >> 56) as u8;
    bits.try_extend(eights.iter().map(packed))?;
    if !rest.is_empty() {
        bits.try_push(rest.iter().enumerate().fold(0, |byte, (at, flag)| byte | flag << at))?;
    }
    Ok(bits)
}
