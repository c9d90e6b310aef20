//! Joins offsets of lists, relative to the item page of their batch, into one array (spec: legacy 0.1, section 5.5).

use crate::buffer::{Input, OwnedBuffer};
use crate::damaged;
use crate::error::{at_page, invalid, Checked, Damaged, Fault};
use crate::gil;
use crate::room::vec_with_capacity;
use crate::sink::{too_long, Offset, Offsets};
use pyo3::prelude::*;

/// Runs of lists: the start of each run's offsets in the buffer, its number of lists, and the items of its batch.
struct Runs<'a> {
    bytes: &'a [u8],
    places: &'a [i64],
    counts: &'a [i64],
    items: &'a [i64],
}

type Joined = (Offsets, Vec<i64>, Vec<i64>);
type Failure = (Fault, usize);

/// `join_lists` of `_kernels.pyi`.
#[pyfunction]
#[pyo3(signature = (buffer, places, counts, items, wide, /))]
pub fn join_lists(
    py: Python<'_>,
    buffer: &Bound<'_, PyAny>,
    places: &Bound<'_, PyAny>,
    counts: &Bound<'_, PyAny>,
    items: &Bound<'_, PyAny>,
    wide: bool,
) -> PyResult<(OwnedBuffer, OwnedBuffer, OwnedBuffer)> {
    let (buffer, places, counts, items) =
        (Input::new(buffer)?, Input::new(places)?, Input::new(counts)?, Input::new(items)?);
    let (places, counts, items) = (places.i64s()?, counts.i64s()?, items.i64s()?);
    if places.len() != counts.len() || places.len() != items.len() {
        return Err(invalid(format!("{} places, {} counts, {} items", places.len(), counts.len(), items.len())));
    }
    let runs = Runs { bytes: buffer.bytes(), places: &places, counts: &counts, items: &items };
    let num_steps = runs.places.len() + runs.bytes.len() / 8;
    let joined = gil::release(py, num_steps, || match wide {
        true => join::<i64>(&runs),
        false => join::<i32>(&runs),
    });
    let (offsets, firsts, ends) = joined.map_err(|(damaged, run)| at_page(damaged.into(), run))?;
    let offsets = match offsets {
        Offsets::Narrow(offsets) => offsets.into(),
        Offsets::Wide(offsets) => offsets.into(),
    };
    Ok((offsets, firsts.into(), ends.into()))
}

/// `count + 1` integers of `width` bytes at `place`, which are unchecked input of the caller.
pub fn table(bytes: &[u8], place: i64, count: i64, width: usize) -> Checked<&[u8]> {
    let (start, count) = (usize::try_from(place).ok(), usize::try_from(count).ok());
    let length = count.and_then(|count| count.checked_add(1)?.checked_mul(width));
    match start.zip(length).and_then(|(start, length)| bytes.get(start..)?.get(..length)) {
        Some(found) => Ok(found),
        None => damaged!("offsets at {place} are not within {} bytes", bytes.len()),
    }
}

fn join<O: Offset>(runs: &Runs<'_>) -> Result<Joined, Failure> {
    let total = runs.counts.iter().fold(0usize, |sum, &count| sum.saturating_add(count.max(0) as usize));
    let begin = |total: usize| -> Checked<_> {
        Ok((
            vec_with_capacity(total.saturating_add(1))?,
            vec_with_capacity(runs.places.len())?,
            vec_with_capacity(runs.places.len())?,
        ))
    };
    let (mut offsets, mut firsts, mut ends): (Vec<O>, Vec<i64>, Vec<i64>) = begin(total).map_err(|error| (error, 0))?;
    offsets.push(O::wrap(0)); // room: reserved
    let mut base = 0usize;
    for (run, ((&place, &count), &items)) in runs.places.iter().zip(runs.counts).zip(runs.items).enumerate() {
        let raw = table(runs.bytes, place, count, O::BYTES).map_err(|error| (error, run))?;
        let first = O::read(raw);
        let mut last = first;
        let mut ascends = true;
        for word in raw[O::BYTES..].chunks_exact(O::BYTES) {
            let offset = O::read(word);
            ascends &= offset >= last;
            last = offset;
            let end = base.wrapping_add(offset.wrapping_sub(first));
            offsets.push(O::wrap(end)); // room: reserved
        }
        if !ascends || last > items.max(0) as usize {
            let text = format!("offsets of lists {first}..{last} do not ascend to the {items} items of their batch");
            return Err((Damaged(text), run));
        }
        base = base.saturating_add(last - first);
        if base > O::MAX {
            return Err((too_long::<O>(base), run));
        }
        firsts.push(first as i64); // room: reserved
        ends.push(last as i64); // room: reserved
    }
    Ok((O::into_offsets(offsets), firsts, ends))
}
