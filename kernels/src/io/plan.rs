//! Merges the byte ranges of many requests on one file into few reads, and distributes the reads to the requests.
//!
//! Sorted ranges become *stretches* (overlaps joined), stretches closer than the gap become *runs*, and a run is one
//! read. A run beyond the largest read is cut into about equal pieces of whole MiB; a cut moves to the nearest border
//! between two stretches, within a quarter of a piece, so that most ranges lie in one read and no gap is read there.
//!
//! The part of a read that a request needs is a *segment*, from the first to the last byte that it wants there.
//! Segments of a request are back to back in its answer, so that a range across two reads is contiguous there.

use crate::buffer::{Input, OwnedBuffer};
use crate::gil;
use crate::room::{vec_with_capacity, zeros, Gather, Grow, Roomy};
use pyo3::exceptions::PyValueError;
use pyo3::prelude::*;
use std::ops::Range;

/// Pieces of a long run are rounded up to this, the preferred unit of object stores.
const PIECE_UNIT_BYTES: i64 = 1 << 20;
/// Plans with more pieces per run are rejected: such sizes do not fit together.
const PIECES_MAX: i64 = 1 << 24;

/// `(owner, starts, ends)` of a request.
type Asking<'py> = (Bound<'py, PyAny>, Bound<'py, PyAny>, Bound<'py, PyAny>);
/// `(start, end, segments)` of a read; a segment is `(owner, start in the read, end in the read, place in the answer)`.
type PlannedRead<'py> = (i64, i64, Vec<(Bound<'py, PyAny>, i64, i64, i64)>);

/// `plan_reads` of `_kernels.pyi`.
#[pyfunction]
#[pyo3(signature = (requests, gap_bytes_max, read_bytes_max, /))]
pub fn plan_reads<'py>(
    py: Python<'py>,
    requests: Vec<Asking<'py>>,
    gap_bytes_max: i64,
    read_bytes_max: i64,
) -> PyResult<(Vec<PlannedRead<'py>>, Vec<i64>, OwnedBuffer)> {
    if gap_bytes_max < 0 || read_bytes_max < 1 {
        let text = format!("a gap of {gap_bytes_max} and reads of {read_bytes_max} bytes make no plan");
        return Err(PyValueError::new_err(text));
    }
    let mut asked = Asked { num_requests: requests.len(), ..Asked::default() };
    for (number, (_, starts, ends)) in requests.iter().enumerate() {
        let (starts, ends) = (Input::new(starts)?, Input::new(ends)?);
        asked.add(number, &starts.i64s()?, &ends.i64s()?)?;
    }
    let (reads, answers, offsets) = gil::release(py, asked.starts.len(), || asked.plan(gap_bytes_max, read_bytes_max))?;
    let mut planned: Vec<PlannedRead> =
        reads.starts.iter().zip(&reads.ends).map(|(&start, &end)| (start, end, Vec::new())).try_vec()?;
    for ((owner, _, _), answer) in requests.iter().zip(&answers) {
        for segment in &answer.segments {
            let (start, _, segments) = &mut planned[segment.read];
            let owner = owner.clone(); // room: a reference
            segments.try_push((owner, segment.start - *start, segment.end - *start, segment.place))?;
        }
    }
    Ok((planned, answers.iter().map(|answer| answer.num_bytes).try_vec()?, offsets.into()))
}

/// `measure_ranges` of `_kernels.pyi`.
#[pyfunction]
#[pyo3(signature = (starts, ends, size_bytes, /))]
pub fn measure_ranges(
    py: Python<'_>,
    starts: &Bound<'_, PyAny>,
    ends: &Bound<'_, PyAny>,
    size_bytes: Option<u64>,
) -> PyResult<(i64, i64, i64, Option<usize>)> {
    let (starts, ends) = (Input::new(starts)?, Input::new(ends)?);
    let (starts, ends) = (starts.i64s()?, ends.i64s()?);
    check_lengths(&starts, &ends)?;
    Ok(gil::release(py, starts.len(), || {
        let first = starts.iter().copied().min().unwrap_or(0);
        let last = ends.iter().copied().max().unwrap_or(0);
        let lengths = starts.iter().zip(ends.iter()).map(|(&start, &end)| i128::from(end) - i128::from(start));
        let num_bytes = lengths.sum::<i128>().clamp(i64::MIN.into(), i64::MAX.into()) as i64;
        let behind = || ends.iter().position(|&end| size_bytes.is_some_and(|size| end.max(0) as u64 > size));
        (num_bytes, first, last, impossible(&starts, &ends).or_else(behind))
    }))
}

/// Reject invalid ranges.
pub fn check_ranges(starts: &[i64], ends: &[i64]) -> PyResult<()> {
    check_lengths(starts, ends)?;
    match impossible(starts, ends) {
        None => Ok(()),
        Some(at) => Err(PyValueError::new_err(format!("range {at} is {}..{}", starts[at], ends[at]))),
    }
}

fn check_lengths(starts: &[i64], ends: &[i64]) -> PyResult<()> {
    match starts.len() == ends.len() {
        true => Ok(()),
        false => Err(PyValueError::new_err(format!("{} starts but {} ends", starts.len(), ends.len()))),
    }
}

/// The first invalid range.
fn impossible(starts: &[i64], ends: &[i64]) -> Option<usize> {
    starts.iter().zip(ends).position(|(&start, &end)| start < 0 || end < start)
}

/// The order of ranges by their start; input that is sorted already needs no index.
pub enum Order {
    AsGiven(usize),
    By(Vec<usize>),
}

impl Order {
    pub fn of(starts: &[i64]) -> Roomy<Self> {
        if starts.is_sorted() {
            return Ok(Order::AsGiven(starts.len()));
        }
        let mut order = (0..starts.len()).try_vec()?;
        order.sort_unstable_by_key(|&index| starts[index]);
        Ok(Order::By(order))
    }

    pub fn iter(&self) -> impl Iterator<Item = usize> + '_ {
        let (length, order) = match self {
            Order::AsGiven(length) => (*length, None),
            Order::By(order) => (order.len(), Some(order)),
        };
        (0..length).map(move |position| order.map_or(position, |order| order[position]))
    }
}

/// Ascending, disjoint, not empty: the requested bytes. Neighbours may touch.
struct Stretches {
    starts: Vec<i64>,
    ends: Vec<i64>,
}

impl Stretches {
    fn of(starts: &[i64], ends: &[i64], order: &Order) -> Roomy<Self> {
        let mut stretches =
            Stretches { starts: vec_with_capacity(starts.len())?, ends: vec_with_capacity(starts.len())? };
        for index in order.iter().filter(|&index| starts[index] < ends[index]) {
            match stretches.ends.last_mut().filter(|end| starts[index] < **end) {
                Some(end) => *end = ends[index].max(*end),
                None => {
                    stretches.starts.push(starts[index]); // room: reserved
                    stretches.ends.push(ends[index]); // room: reserved
                }
            }
        }
        Ok(stretches)
    }

    fn reads(&self, gap: i64, read_bytes_max: i64) -> PyResult<Reads> {
        let mut reads = Reads::default();
        let mut first = 0;
        for next in 1..=self.starts.len() {
            if next == self.starts.len() || self.starts[next] - self.ends[next - 1] > gap {
                self.cut(first..next, read_bytes_max, &mut reads)?;
                first = next;
            }
        }
        Ok(reads)
    }

    /// Append the reads for one run of stretches.
    fn cut(&self, run: Range<usize>, read_bytes_max: i64, reads: &mut Reads) -> PyResult<()> {
        let end = self.ends[run.end - 1];
        let mut start = self.starts[run.start];
        if (end - start) / read_bytes_max > PIECES_MAX {
            let text = format!("bytes {start}..{end} in reads of {read_bytes_max} bytes are too many reads");
            return Err(PyValueError::new_err(text));
        }
        while end - start > read_bytes_max {
            let (read_end, next_start) = self.border(&run, start, end, read_bytes_max);
            reads.add(start, read_end)?;
            start = next_start;
        }
        Ok(reads.add(start, end)?)
    }

    /// End of the read that begins at `start`, and start of the next read: the same byte unless there is a gap.
    fn border(&self, run: &Range<usize>, start: i64, end: i64, read_bytes_max: i64) -> (i64, i64) {
        let pieces = (end - start - 1) / read_bytes_max + 1;
        let equal = (end - start - 1) / pieces + 1;
        let rounded = ((equal - 1) / PIECE_UNIT_BYTES + 1).saturating_mul(PIECE_UNIT_BYTES);
        let piece = rounded.min(read_bytes_max);
        let target = start + piece;
        // The borders on both sides of the target: before the first stretch that begins after it, and one earlier.
        let behind = run.start + self.starts[run.start..run.end].partition_point(|&start| start <= target);
        let near = [behind, behind - 1].into_iter().filter(|&stretch| stretch > run.start && stretch < run.end);
        let borders = near.map(|stretch| (self.ends[stretch - 1], self.starts[stretch]));
        borders
            .map(|(before, after)| ((before - target).max(target - after).max(0), before, after))
            .filter(|&(distance, before, _)| {
                distance <= piece / 4 && before > start && before - start <= read_bytes_max
            })
            .min()
            .map_or((target, target), |(_, before, after)| (before, after))
    }
}

/// The ranges of all requests, request by request.
#[derive(Default)]
struct Asked {
    starts: Vec<i64>,
    ends: Vec<i64>,
    /// The request of each range.
    owners: Vec<usize>,
    num_requests: usize,
}

/// Ascending, disjoint, none empty.
#[derive(Default)]
struct Reads {
    starts: Vec<i64>,
    ends: Vec<i64>,
}

impl Reads {
    fn add(&mut self, start: i64, end: i64) -> Roomy<()> {
        self.starts.try_push(start)?;
        self.ends.try_push(end)
    }
}

/// The part of one read that one request needs, as file offsets, and its position in the answer.
struct Segment {
    read: usize,
    start: i64,
    end: i64,
    place: i64,
}

/// The answer of one request: segments in the order of the file, back to back.
#[derive(Default)]
struct RequestAnswer {
    segments: Vec<Segment>,
    num_bytes: i64,
}

impl Asked {
    fn add(&mut self, number: usize, starts: &[i64], ends: &[i64]) -> PyResult<()> {
        check_ranges(starts, ends)?;
        self.starts.try_append(starts)?;
        self.ends.try_append(ends)?;
        self.owners.try_resize(self.starts.len(), number)?;
        Ok(())
    }

    /// The reads, the segments of each request, and the start of each range in its answer.
    fn plan(&self, gap: i64, read_bytes_max: i64) -> PyResult<(Reads, Vec<RequestAnswer>, Vec<i64>)> {
        let order = Order::of(&self.starts)?;
        let reads = Stretches::of(&self.starts, &self.ends, &order)?.reads(gap, read_bytes_max)?;
        let answers = self.answers(&order, &reads)?;
        let offsets = self.offsets(&order, &answers)?;
        Ok((reads, answers, offsets))
    }

    /// The non-empty ranges by their start: `(number, start, end)`.
    fn in_order<'a>(&'a self, order: &'a Order) -> impl Iterator<Item = (usize, i64, i64)> + 'a {
        let ranges = order.iter().map(|number| (number, self.starts[number], self.ends[number]));
        ranges.filter(|&(_, start, end)| start < end)
    }

    fn answers(&self, order: &Order, reads: &Reads) -> Roomy<Vec<RequestAnswer>> {
        let mut answers = (0..self.num_requests).map(|_| RequestAnswer::default()).try_vec()?;
        let mut first = 0; // the read in which the range begins
        for (number, start, end) in self.in_order(order) {
            while reads.ends[first] <= start {
                first += 1;
            }
            answers[self.owners[number]].add(start, end, first, reads)?;
        }
        for answer in &mut answers {
            for segment in &mut answer.segments {
                segment.place = answer.num_bytes;
                answer.num_bytes += segment.end - segment.start;
            }
        }
        Ok(answers)
    }

    /// 0 for an empty range.
    fn offsets(&self, order: &Order, answers: &[RequestAnswer]) -> Roomy<Vec<i64>> {
        let mut offsets = zeros(self.starts.len())?;
        let mut nearest: Vec<usize> = zeros(answers.len())?; // segment of the last range's start, per request
        for (number, start, _) in self.in_order(order) {
            let owner = self.owners[number];
            let (segments, at) = (&answers[owner].segments, &mut nearest[owner]);
            while segments[*at].end <= start {
                *at += 1;
            }
            offsets[number] = segments[*at].place + start - segments[*at].start;
        }
        Ok(offsets)
    }
}

impl RequestAnswer {
    /// Add a range, which starts no earlier than the ranges before it; `first` is the read that it begins in. Reads
    /// contain all bytes of a range, so a read that ends inside the range is directly followed by the next.
    fn add(&mut self, start: i64, end: i64, first: usize, reads: &Reads) -> Roomy<()> {
        let (mut read, mut from) = match self.segments.last() {
            Some(last) if last.end > start => (last.read, last.end), // segments exist up to there
            _ => (first, start),
        };
        while from < end {
            let to = end.min(reads.ends[read]);
            match self.segments.last_mut().filter(|last| last.read == read) {
                Some(last) => last.end = to,
                None => self.segments.try_push(Segment { read, start: from, end: to, place: 0 })?,
            }
            (read, from) = (read + 1, to);
        }
        Ok(())
    }
}
