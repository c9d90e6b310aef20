//! Few reads for many byte ranges of one file.
//!
//! Sorted ranges become *segments* (overlaps joined), segments closer than the gap become *runs*, and a run is one
//! read. A run beyond the largest read is cut into about equal pieces of whole MiB; a cut moves to the nearest border
//! between two segments, within a quarter of a piece, so that most ranges lie in one read and no gap is read there.

use crate::buffer::{Input, OwnedBuffer};
use crate::gil;
use pyo3::exceptions::PyValueError;
use pyo3::prelude::*;
use std::ops::Range;

/// Pieces of a long run are rounded up to this, the unit in which object stores like to serve.
const PIECE_UNIT_BYTES: i64 = 1 << 20;
/// Refuse plans with more pieces per run than this: the sizes make no sense together.
const PIECES_MAX: i64 = 1 << 24;

/// `plan_reads` of the contract.
#[pyfunction]
#[pyo3(signature = (starts, ends, gap_bytes_max, read_bytes_max, /))]
pub fn plan_reads(
    py: Python<'_>,
    starts: &Bound<'_, PyAny>,
    ends: &Bound<'_, PyAny>,
    gap_bytes_max: i64,
    read_bytes_max: i64,
) -> PyResult<(OwnedBuffer, OwnedBuffer, OwnedBuffer)> {
    let (starts, ends) = (Input::new(starts)?, Input::new(ends)?);
    let (starts, ends) = (starts.i64s()?, ends.i64s()?);
    check_ranges(&starts, &ends)?;
    if gap_bytes_max < 0 || read_bytes_max < 1 {
        let text = format!("a gap of {gap_bytes_max} and reads of {read_bytes_max} bytes make no plan");
        return Err(PyValueError::new_err(text));
    }
    let (read_starts, read_ends, first_read) = gil::release(py, starts.len(), || -> PyResult<_> {
        let order = Order::of(&starts);
        let segments = Segments::of(&starts, &ends, &order);
        let (read_starts, read_ends) = segments.reads(gap_bytes_max, read_bytes_max)?;
        let first_read = locate(&starts, &ends, &order, &read_ends);
        Ok((read_starts, read_ends, first_read))
    })?;
    Ok((read_starts.into(), read_ends.into(), first_read.into()))
}

/// Refuse ranges that are not ranges.
pub fn check_ranges(starts: &[i64], ends: &[i64]) -> PyResult<()> {
    if starts.len() != ends.len() {
        return Err(PyValueError::new_err(format!("{} starts but {} ends", starts.len(), ends.len())));
    }
    match starts.iter().zip(ends).position(|(&start, &end)| start < 0 || end < start) {
        None => Ok(()),
        Some(at) => Err(PyValueError::new_err(format!("range {at} is {}..{}", starts[at], ends[at]))),
    }
}

/// The order of ranges by their start; input that is sorted already needs no index.
pub enum Order {
    AsGiven(usize),
    By(Vec<usize>),
}

impl Order {
    pub fn of(starts: &[i64]) -> Self {
        if starts.is_sorted() {
            return Order::AsGiven(starts.len());
        }
        let mut order: Vec<usize> = (0..starts.len()).collect();
        order.sort_unstable_by_key(|&index| starts[index]);
        Order::By(order)
    }

    pub fn iter(&self) -> impl Iterator<Item = usize> + '_ {
        let (length, order) = match self {
            Order::AsGiven(length) => (*length, None),
            Order::By(order) => (order.len(), Some(order)),
        };
        (0..length).map(move |position| order.map_or(position, |order| order[position]))
    }
}

/// Ascending, disjoint, not empty: the bytes that are wanted. Neighbours may touch.
struct Segments {
    starts: Vec<i64>,
    ends: Vec<i64>,
}

impl Segments {
    fn of(starts: &[i64], ends: &[i64], order: &Order) -> Self {
        let mut segments =
            Segments { starts: Vec::with_capacity(starts.len()), ends: Vec::with_capacity(starts.len()) };
        for index in order.iter().filter(|&index| starts[index] < ends[index]) {
            match segments.ends.last_mut().filter(|end| starts[index] < **end) {
                Some(end) => *end = ends[index].max(*end),
                None => {
                    segments.starts.push(starts[index]);
                    segments.ends.push(ends[index]);
                }
            }
        }
        segments
    }

    fn reads(&self, gap: i64, read_bytes_max: i64) -> PyResult<(Vec<i64>, Vec<i64>)> {
        let mut reads = (Vec::new(), Vec::new());
        let mut first = 0;
        for next in 1..=self.starts.len() {
            if next == self.starts.len() || self.starts[next] - self.ends[next - 1] > gap {
                self.cut(first..next, read_bytes_max, &mut reads)?;
                first = next;
            }
        }
        Ok(reads)
    }

    /// Append the reads for one run of segments.
    fn cut(&self, run: Range<usize>, read_bytes_max: i64, reads: &mut (Vec<i64>, Vec<i64>)) -> PyResult<()> {
        let end = self.ends[run.end - 1];
        let mut start = self.starts[run.start];
        if (end - start) / read_bytes_max > PIECES_MAX {
            let text = format!("bytes {start}..{end} in reads of {read_bytes_max} bytes are too many reads");
            return Err(PyValueError::new_err(text));
        }
        while end - start > read_bytes_max {
            let (read_end, next_start) = self.border(&run, start, end, read_bytes_max);
            reads.0.push(start);
            reads.1.push(read_end);
            start = next_start;
        }
        reads.0.push(start);
        reads.1.push(end);
        Ok(())
    }

    /// Where the read that begins at `start` ends and the next one begins: the same byte unless a gap lies there.
    fn border(&self, run: &Range<usize>, start: i64, end: i64, read_bytes_max: i64) -> (i64, i64) {
        let pieces = (end - start - 1) / read_bytes_max + 1;
        let equal = (end - start - 1) / pieces + 1;
        let rounded = ((equal - 1) / PIECE_UNIT_BYTES + 1).saturating_mul(PIECE_UNIT_BYTES);
        let piece = rounded.min(read_bytes_max);
        let target = start + piece;
        // The borders on both sides of the target: before the first segment that begins behind it, and one earlier.
        let behind = run.start + self.starts[run.clone()].partition_point(|&start| start <= target);
        let near = [behind, behind - 1].into_iter().filter(|&segment| segment > run.start && segment < run.end);
        let borders = near.map(|segment| (self.ends[segment - 1], self.starts[segment]));
        borders
            .map(|(before, after)| ((before - target).max(target - after).max(0), before, after))
            .filter(|&(distance, before, _)| {
                distance <= piece / 4 && before > start && before - start <= read_bytes_max
            })
            .min()
            .map_or((target, target), |(_, before, after)| (before, after))
    }
}

/// The read in which each range begins, -1 for an empty one.
fn locate(starts: &[i64], ends: &[i64], order: &Order, read_ends: &[i64]) -> Vec<i64> {
    let mut first_read = vec![-1; starts.len()];
    let mut read = 0;
    for index in order.iter().filter(|&index| starts[index] < ends[index]) {
        while read_ends[read] <= starts[index] {
            read += 1;
        }
        first_read[index] = read as i64;
    }
    first_read
}
