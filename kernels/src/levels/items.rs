//! Gathers the values of a page from their arrays: visible items only, without the values under nulls.
//!
//! A leaf is one or more *streams*, buffers with a fixed number of units per slot: a fixed-size list of 4 floats is a
//! stream of floats with 4 units per slot and one of validity bits; a packed struct has a stream per member.

use crate::buffer::{Input, OwnedBuffer};
use crate::error::{too_large, Checked, Damaged, Fault, Refused, Taken};
use crate::refused;
use crate::room::{Gather, Grow};
use crate::sink::{Bits, Bytes, Offset, Strings};
use pyo3::exceptions::PyValueError;
use pyo3::prelude::*;

/// `(kind, unit bytes, units per slot, first unit, buffer, second buffer)`.
pub type StreamArgs<'py> = (u8, usize, usize, usize, Option<Bound<'py, PyAny>>, Option<Bound<'py, PyAny>>);

/// Consecutive slots of an array.
#[derive(Clone, Copy)]
pub struct Run {
    pub start: usize,
    pub count: usize,
}

/// The visible items of a page.
pub struct Items {
    /// Per chunk, the slots of the leaf array, in order.
    pub chunks: Vec<Vec<Run>>,
    /// Numbers of the null items, ascending.
    pub nulls: Vec<usize>,
}

impl Items {
    pub fn count(&self) -> usize {
        self.chunks.iter().flatten().map(|run| run.count).sum()
    }

    /// Chunk and slot of the first item.
    pub fn first(&self) -> (usize, usize) {
        let starts = self.chunks.iter().enumerate().find_map(|(chunk, runs)| Some((chunk, runs.first()?.start)));
        starts.unwrap_or_default()
    }

    /// Whether the items are a slice of one array, with nothing to clear in it.
    pub fn is_one_run(&self) -> bool {
        self.nulls.is_empty() && self.chunks.iter().flatten().count() <= 1
    }
}

enum Kind {
    Bytes(usize),
    Bits,
    Narrow,
    Wide,
    Validity,
}

/// One buffer of a leaf array (two for values of variable width).
pub struct Stream<'a> {
    kind: Kind,
    units_per_slot: usize,
    /// The unit of slot 0 of the leaf array.
    first: usize,
    /// `None` for a bitmap that is all ones.
    data: Option<&'a [u8]>,
    /// The bytes of values of variable width; `data` has their offsets.
    bytes: &'a [u8],
}

impl<'a> Stream<'a> {
    pub fn new(args: &StreamArgs<'_>, held: &'a (Option<Input>, Option<Input>)) -> PyResult<Self> {
        let (kind, unit_bytes, units_per_slot, first, _, _) = args;
        let kind = match kind {
            0 => Kind::Bytes(*unit_bytes),
            1 => Kind::Bits,
            2 => Kind::Narrow,
            3 => Kind::Wide,
            4 => Kind::Validity,
            kind => return Err(PyValueError::new_err(format!("streams of kind {kind} are unknown"))),
        };
        let data = held.0.as_ref().map(Input::bytes);
        let bytes = held.1.as_ref().map_or(&[][..], Input::bytes);
        Ok(Stream { kind, units_per_slot: *units_per_slot, first: *first, data, bytes })
    }

    /// First unit and number of units of a run of slots.
    fn units(&self, run: &Run) -> Taken<(usize, usize)> {
        let start = run.start.checked_mul(self.units_per_slot).and_then(|start| start.checked_add(self.first));
        match (start, run.count.checked_mul(self.units_per_slot)) {
            (Some(start), Some(count)) if start.checked_add(count).is_some() => Ok((start, count)),
            _ => refused!("slots {}.. of {} units do not fit in memory", run.start, self.units_per_slot),
        }
    }
}

/// The buffers of all streams, in their order; offsets before bytes, `None` for validity without a null.
pub fn gather(items: &Items, chunks: &[&[Stream]]) -> Taken<Vec<Option<OwnedBuffer>>> {
    let Some((head, rest)) = chunks.split_first() else { return Ok(Vec::new()) };
    let mut out = Vec::new();
    for (index, stream) in head.iter().enumerate() {
        let same = |chunk: &&&[Stream]| chunk.len() == head.len() && chunk[index].is_like(stream);
        if !rest.iter().all(|chunk| same(&chunk)) {
            return refused!("chunks of one page differ in the type of their leaf");
        }
        let parts = chunks.iter().map(|chunk| &chunk[index]).zip(&items.chunks).try_vec()?;
        match stream.kind {
            Kind::Bytes(size) => out.try_push(Some(bytes(&parts, items, size)?.into_buffer()))?,
            Kind::Bits => out.try_push(Some(bits(&parts, items)?.into()))?,
            Kind::Validity => out.try_push(validity(&parts, items)?.map(OwnedBuffer::from))?,
            Kind::Narrow => out.try_extend(strings::<i32>(&parts, items)?.map(Some))?,
            Kind::Wide => out.try_extend(strings::<i64>(&parts, items)?.map(Some))?,
        }
    }
    Ok(out)
}

type Parts<'p, 'a> = [(&'p Stream<'a>, &'p Vec<Run>)];

impl Stream<'_> {
    fn is_like(&self, other: &Self) -> bool {
        let same_size = match (&self.kind, &other.kind) {
            (Kind::Bytes(one), Kind::Bytes(two)) => one == two,
            (one, two) => std::mem::discriminant(one) == std::mem::discriminant(two),
        };
        same_size && self.units_per_slot == other.units_per_slot
    }
}

fn bytes(parts: &Parts, items: &Items, size: usize) -> Taken<Bytes> {
    let slot_bytes = parts.first().map_or(0, |(stream, _)| stream.units_per_slot) * size;
    let mut out = Bytes::with_room(items.count().saturating_mul(slot_bytes));
    for (stream, runs) in parts {
        let data = stream.data.unwrap_or_default();
        for run in *runs {
            let (start, count) = stream.units(run)?;
            let Some(source) = data.get(start.saturating_mul(size)..(start + count).saturating_mul(size)) else {
                return refused!("{count} values of {size} bytes from {start} on in {} bytes", data.len());
            };
            out.grow(source.len()).map_err(no_memory)?.copy_from_slice(source);
        }
    }
    repeat_under_nulls(out.as_mut_slice(), slot_bytes, &items.nulls);
    Ok(out)
}

/// Repeat the previous value under each null, and the first valid value under the first nulls: this continues runs and
/// adds nothing to a dictionary. Zeros if all are null.
pub fn repeat_under_nulls(values: &mut [u8], slot_bytes: usize, nulls: &[usize]) {
    if slot_bytes == 0 {
        return;
    }
    let leading = nulls.iter().enumerate().take_while(|&(index, &null)| index == null).count();
    let head = leading * slot_bytes;
    match values.split_at_mut(head) {
        (head, []) => head.fill(0),
        (head, rest) => head.chunks_exact_mut(slot_bytes).for_each(|slot| slot.copy_from_slice(&rest[..slot_bytes])),
    }
    let nulls = &nulls[leading..];
    match slot_bytes {
        4 => repeat_words(values.as_chunks_mut::<4>().0, nulls),
        8 => repeat_words(values.as_chunks_mut::<8>().0, nulls),
        _ => nulls.iter().for_each(|null| {
            values.copy_within((null - 1) * slot_bytes..null * slot_bytes, null * slot_bytes);
        }),
    }
}

fn repeat_words<const SIZE: usize>(values: &mut [[u8; SIZE]], nulls: &[usize]) {
    nulls.iter().for_each(|&null| values[null] = values[null - 1]);
}

fn bits(parts: &Parts, items: &Items) -> Taken<Vec<u8>> {
    let units = parts.first().map_or(0, |(stream, _)| stream.units_per_slot);
    let mut bytes = collect_bits(parts, items)?;
    items.nulls.iter().flat_map(|item| item * units..(item + 1) * units).for_each(|bit| set(&mut bytes, bit, false));
    Ok(bytes)
}

/// Validity of items within slots. Items of null slots count as valid, like their values: pylance writes no mini-block
/// for rows whose only items are nulls, so null slots must not add to these.
fn validity(parts: &Parts, items: &Items) -> Taken<Option<Vec<u8>>> {
    if parts.iter().all(|(stream, _)| stream.data.is_none()) {
        return Ok(None);
    }
    let units = parts.first().map_or(0, |(stream, _)| stream.units_per_slot);
    let hidden = items.nulls.iter().flat_map(|item| item * units..(item + 1) * units);
    let mut bytes = collect_bits(parts, items)?;
    hidden.for_each(|bit| set(&mut bytes, bit, true));
    let total = items.count() * units;
    let ones: usize = bytes.iter().map(|byte| byte.count_ones() as usize).sum();
    Ok((ones < total).then_some(bytes))
}

fn collect_bits(parts: &Parts, items: &Items) -> Taken<Vec<u8>> {
    let units = parts.first().map_or(0, |(stream, _)| stream.units_per_slot);
    let mut out = Bits::with_room(items.count().saturating_mul(units));
    for (stream, runs) in parts {
        for run in *runs {
            let (start, count) = stream.units(run)?;
            match stream.data {
                Some(data) if data.len() >= (start + count).div_ceil(8) => {
                    out.append(data, start, count).map_err(no_memory)?
                }
                Some(data) => return refused!("{count} bits from {start} on in {} bytes", data.len()),
                None => append_ones(&mut out, count).map_err(no_memory)?,
            }
        }
    }
    Ok(out.into_bytes())
}

fn append_ones(out: &mut Bits, mut count: usize) -> Checked<()> {
    const ONES: [u8; 64] = [0xff; 64];
    while count > 0 {
        let some = count.min(ONES.len() * 8);
        out.append(&ONES, 0, some)?;
        count -= some;
    }
    Ok(())
}

fn set(bytes: &mut [u8], bit: usize, value: bool) {
    let mask = 1 << (bit % 8);
    match value {
        true => bytes[bit / 8] |= mask,
        false => bytes[bit / 8] &= !mask,
    }
}

/// Values of variable width; nulls become empty.
fn strings<O: Offset>(parts: &Parts, items: &Items) -> Taken<[OwnedBuffer; 2]> {
    let mut out = Strings::<O>::with_room(items.count(), 0);
    let (mut first, mut nulls) = (0, items.nulls.iter().copied().peekable());
    for (stream, runs) in parts {
        for run in *runs {
            let (start, count) = stream.units(run)?;
            let mut at = start;
            while let Some(null) = nulls.next_if(|&item| item < first + count) {
                let slot = start + (null - first);
                append_values(stream, at, slot - at, &mut out)?;
                out.end_value().map_err(no_memory)?;
                at = slot + 1;
            }
            append_values(stream, at, start + count - at, &mut out)?;
            first += count;
        }
    }
    out.into_buffers().map_err(no_memory)
}

fn append_values<O: Offset>(stream: &Stream, start: usize, count: usize, out: &mut Strings<O>) -> Taken<()> {
    if count == 0 {
        return Ok(());
    }
    let table = stream.data.unwrap_or_default();
    let Some(offsets) = table.get(start * O::BYTES..(start + count + 1) * O::BYTES) else {
        return refused!("{count} values from {start} on with {} bytes of offsets", table.len());
    };
    let (first, last) = (O::read(offsets), O::read(&offsets[count * O::BYTES..]));
    let next = offsets[O::BYTES..].chunks_exact(O::BYTES).map(O::read);
    let mut pairs = offsets.chunks_exact(O::BYTES).map(O::read).zip(next.clone()); // room: an iterator
    let ascends = pairs.all(|(a, b)| a <= b);
    let Some(bytes) = stream.bytes.get(first..last).filter(|_| ascends) else {
        return refused!("value offsets {first}..{last} do not ascend within {} bytes", stream.bytes.len());
    };
    let base = out.data.len();
    out.offsets.try_extend(next.map(|offset| O::wrap(base + (offset - first))))?;
    out.push_bytes(bytes).map_err(no_memory)?;
    Ok(())
}

fn no_memory(fault: Fault) -> Refused {
    match fault {
        Damaged(text) => Refused::Sizes(text),
        Fault::NoMemory(bytes) => Refused::NoMemory(bytes),
        Fault::TooLarge { bytes, bytes_max } => Refused::Sizes(too_large(bytes, bytes_max)),
    }
}
