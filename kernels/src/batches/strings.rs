//! Values of variable width, whose offsets are positions in the file (spec: legacy 0.1, section 5.2).

use crate::batches::lists::table;
use crate::buffer::{Input, OwnedBuffer};
use crate::error::{at_page, invalid, Checked, Damaged, Fault};
use crate::gil;
use crate::room::{zeros, Grow};
use crate::sink::{Offset, Strings};
use pyo3::prelude::*;

/// Runs of values.
///
/// `tables` holds their offsets, those of run i at `places[i]`; `bytes` holds bytes `starts[i]` to `ends[i]` of the
/// file at `data_places[i]`.
pub struct Runs<'a> {
    pub tables: &'a [u8],
    pub places: &'a [i64],
    pub counts: &'a [i64],
    pub bytes: &'a [u8],
    pub data_places: &'a [i64],
    pub starts: &'a [i64],
    pub ends: &'a [i64],
}

/// Offsets and bytes, validity unless all values are valid, and the number of nulls.
pub type Joined = ([OwnedBuffer; 2], Option<Vec<u8>>, usize);

/// `join_strings` of `_kernels.pyi`.
#[pyfunction]
#[pyo3(signature = (tables, places, counts, buffer, data_places, starts, ends, wide, nullable, /))]
#[allow(clippy::too_many_arguments)]
pub fn join_strings(
    py: Python<'_>,
    tables: &Bound<'_, PyAny>,
    places: &Bound<'_, PyAny>,
    counts: &Bound<'_, PyAny>,
    buffer: &Bound<'_, PyAny>,
    data_places: &Bound<'_, PyAny>,
    starts: &Bound<'_, PyAny>,
    ends: &Bound<'_, PyAny>,
    wide: bool,
    nullable: bool,
) -> PyResult<(OwnedBuffer, OwnedBuffer, Option<OwnedBuffer>, usize)> {
    let (tables, buffer) = (Input::new(tables)?, Input::new(buffer)?);
    let (places, counts, data_places) = (Input::new(places)?, Input::new(counts)?, Input::new(data_places)?);
    let (starts, ends) = (Input::new(starts)?, Input::new(ends)?);
    let (places, counts, data_places) = (places.i64s()?, counts.i64s()?, data_places.i64s()?);
    let (starts, ends) = (starts.i64s()?, ends.i64s()?);
    let lengths = [counts.len(), data_places.len(), starts.len(), ends.len()];
    if lengths != [places.len(); 4] {
        return Err(invalid(format!("{} places, but {lengths:?} of the others", places.len())));
    }
    let runs = Runs {
        tables: tables.bytes(),
        places: &places,
        counts: &counts,
        bytes: buffer.bytes(),
        data_places: &data_places,
        starts: &starts,
        ends: &ends,
    };
    let num_steps = runs.places.len() + runs.tables.len() / 8 + runs.bytes.len() / 64;
    let joined = gil::release(py, num_steps, || runs.join(wide, nullable));
    let ([offsets, data], validity, null_count) = joined.map_err(|(damaged, run)| at_page(damaged.into(), run))?;
    Ok((offsets, data, validity.map(Into::into), null_count))
}

impl Runs<'_> {
    /// Join all runs into one array; an error carries the index of its run.
    pub fn join(&self, wide: bool, nullable: bool) -> Result<Joined, (Fault, usize)> {
        match wide {
            true => join::<i64>(self, nullable),
            false => join::<i32>(self, nullable),
        }
    }
}

fn join<O: Offset>(runs: &Runs<'_>, nullable: bool) -> Result<Joined, (Fault, usize)> {
    let total = runs.counts.iter().fold(0usize, |sum, &count| sum.saturating_add(count.max(0) as usize));
    let num_bytes = runs
        .starts
        .iter()
        .zip(runs.ends)
        .fold(0usize, |sum, (&start, &end)| sum.saturating_add(end.saturating_sub(start).max(0) as usize));
    let mut out = Strings::<O>::with_room(total, num_bytes.min(runs.bytes.len()));
    for run in 0..runs.places.len() {
        append(runs, run, &mut out).map_err(|error| (error, run))?;
    }
    let (validity, null_count) = if nullable { nulls(&out.offsets).map_err(|error| (error, 0))? } else { (None, 0) };
    let last = runs.places.len().saturating_sub(1);
    Ok((out.into_buffers().map_err(|error| (error, last))?, validity, null_count))
}

fn append<O: Offset>(runs: &Runs<'_>, run: usize, out: &mut Strings<O>) -> Checked<()> {
    let raw = table(runs.tables, runs.places[run], runs.counts[run], 8)?;
    let (start, end) = (runs.starts[run] as u64, runs.ends[run] as u64);
    let read = |word: &[u8]| bytemuck::pod_read_unaligned::<u64>(word);
    let first = read(&raw[..8]);
    let last = read(&raw[raw.len() - 8..]);
    let pairs = raw.chunks_exact(8).zip(raw[8..].chunks_exact(8));
    let ascends = pairs.fold(true, |so_far, (a, b)| so_far & (read(a) <= read(b)));
    if !ascends || first < start || last > end {
        return Err(Damaged(format!("offsets of values {first}..{last} do not ascend within bytes {start} to {end}")));
    }
    let place = runs.data_places[run] as u64;
    let from = place.checked_add(first - start).and_then(|at| usize::try_from(at).ok());
    let found = from.and_then(|from| runs.bytes.get(from..)?.get(..(last - first) as usize));
    let Some(bytes) = found else {
        return Err(Damaged(format!("bytes {first} to {last} of the file are not within the bytes read")));
    };
    let base = out.data.len();
    out.offsets.try_extend(raw[8..].chunks_exact(8).map(|word| O::wrap(base + (read(word) - first) as usize)))?;
    out.push_bytes(bytes)
}

/// Values without bytes are null: validity unless all are valid, and the number of nulls.
fn nulls<O: Offset>(offsets: &[O]) -> Checked<(Option<Vec<u8>>, usize)> {
    let is_null = |pair: &[O]| pair[0].position() == pair[1].position();
    let count = offsets.windows(2).filter(|pair| is_null(pair)).count();
    if count == 0 {
        return Ok((None, 0));
    }
    let mut bits = zeros::<u8>((offsets.len() - 1).div_ceil(8))?;
    for (at, pair) in offsets.windows(2).enumerate() {
        bits[at / 8] |= u8::from(!is_null(pair)) << (at % 8);
    }
    Ok((Some(bits), count))
}
