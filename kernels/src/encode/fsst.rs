//! FSST, the writing half of `decode/fsst.rs` (spec: encodings, 8.3): a table of symbols for a page, then every value
//! coded with it on its own.

use crate::buffer::{Input, OwnedBuffer};
use crate::decode::fsst::{SymbolTable, MAGIC};
use crate::encode::symbols::{self, Symbol};
use crate::encode::training::{train, Sample};
use crate::encode::variable::{offsets, Offset};
use crate::error::invalid;
use crate::gil;
use crate::room::{Gather, Grow, Roomy};
use pyo3::prelude::*;

/// Minimum size of the training sample; larger pages use more, in proportion to their coding time.
const SAMPLE_BYTES_MIN: usize = 12 << 10;
const SAMPLE_BYTES_MAX: usize = 64 << 10;
const SAMPLE_SHARE: usize = 128;
/// Size of the piece that is sampled from a long value.
const PIECE_BYTES: usize = 512;

/// `(symbol table, offsets, codes)`
type Coded = (OwnedBuffer, OwnedBuffer, OwnedBuffer);

/// `encode_fsst` of `_kernels.pyi`.
#[pyfunction]
#[pyo3(signature = (raw_offsets, data, wide, num_values, /))]
pub fn encode_fsst(
    py: Python<'_>,
    raw_offsets: &Bound<'_, PyAny>,
    data: &Bound<'_, PyAny>,
    wide: bool,
    num_values: usize,
) -> PyResult<Coded> {
    let (raw_offsets, data) = (Input::new(raw_offsets)?, Input::new(data)?);
    let data = data.bytes();
    let (table, ends, codes) = match wide {
        false => {
            let offsets = offsets::<u32>(raw_offsets.bytes(), data, num_values)?;
            let (table, ends, codes) = gil::release(py, num_values + data.len() / 8, || code(&offsets, data))?;
            if codes.len() > i32::MAX as usize {
                return Err(invalid("more than 2 GiB of codes for 32-bit offsets"));
            }
            (table, OwnedBuffer::from(bytemuck::cast_vec::<u32, i32>(ends)), codes)
        }
        true => {
            let offsets = offsets::<u64>(raw_offsets.bytes(), data, num_values)?;
            let (table, ends, codes) = gil::release(py, num_values + data.len() / 8, || code(&offsets, data))?;
            (table, OwnedBuffer::from(bytemuck::cast_vec::<u64, i64>(ends)), codes)
        }
    };
    Ok((table.into(), ends, codes.into()))
}

fn code<T: Offset>(offsets: &[T], data: &[u8]) -> Roomy<(Vec<u8>, Vec<T>, Vec<u8>)> {
    let symbols = train(&sample(offsets, data)?)?;
    let (ends, codes) = symbols::encode(&symbols, offsets, data)?;
    Ok((table(&symbols)?, ends, codes))
}

/// Sample values across the page, one from each stretch at a pseudo-random position: a fixed stride would, for numbered
/// values, always pick the same last digit. If few values have most of the bytes, positions are drawn in bytes instead.
fn sample<T: Offset>(offsets: &[T], data: &[u8]) -> Roomy<Sample> {
    let num_values = offsets.len() - 1;
    let value = |index: usize| &data[offsets[index].to_usize()..offsets[index + 1].to_usize()];
    let first = offsets[0].to_usize();
    let num_bytes = offsets[num_values].to_usize() - first;
    let wanted = (num_bytes / SAMPLE_SHARE).clamp(SAMPLE_BYTES_MIN, SAMPLE_BYTES_MAX);
    if num_bytes <= wanted {
        return Sample::new((0..num_values).map(value));
    }
    let mut dice = Dice(0);
    let value_bytes = (num_bytes / num_values).clamp(1, PIECE_BYTES);
    let mut pieces = Vec::new();
    for picked in dice.spread(num_values, (wanted / value_bytes).clamp(1, num_values))? {
        let found = value(picked);
        let start = dice.below(found.len().saturating_sub(PIECE_BYTES) + 1);
        pieces.try_push(&found[start..found.len().min(start + PIECE_BYTES)])?;
    }
    let missing = wanted.saturating_sub(pieces.iter().map(|piece| piece.len()).sum());
    if missing > wanted / 2 {
        for at in dice.spread(num_bytes, missing.div_ceil(PIECE_BYTES))? {
            let end = offsets.partition_point(|offset| offset.to_usize() <= first + at);
            let found = value(end - 1);
            let start = first + at - offsets[end - 1].to_usize();
            let start = start.min(found.len().saturating_sub(PIECE_BYTES));
            pieces.try_push(&found[start..found.len().min(start + PIECE_BYTES)])?;
        }
    }
    Sample::new(pieces.into_iter())
}

/// Pseudo-random numbers (SplitMix64), the same for every page.
struct Dice(u64);

impl Dice {
    fn below(&mut self, end: usize) -> usize {
        self.0 = self.0.wrapping_add(0x9E37_79B9_7F4A_7C15);
        let mixed = (self.0 ^ self.0 >> 30).wrapping_mul(0xBF58_476D_1CE4_E5B9);
        let mixed = (mixed ^ mixed >> 27).wrapping_mul(0x94D0_49BB_1331_11EB);
        ((mixed ^ mixed >> 31) >> 32) as usize % end
    }

    /// `count` ascending numbers below `end`, one from each of `count` stretches.
    fn spread(&mut self, end: usize, count: usize) -> Roomy<Vec<usize>> {
        let bound = |number: usize| (end as u128 * number as u128 / count as u128) as usize;
        (0..count).map(|number| bound(number) + self.below(bound(number + 1) - bound(number))).try_vec()
    }
}

/// The table in its stored form, see `decode/fsst.rs`.
fn table(symbols: &[Symbol]) -> Roomy<Vec<u8>> {
    let mut table = vec![symbols.len() as u8, 0, 0, 1];
    table.try_append(&MAGIC)?;
    table.try_extend(symbols.iter().flat_map(|symbol| symbol.word.to_le_bytes()))?;
    table.try_extend(symbols.iter().map(|symbol| symbol.length))?;
    table.try_resize(SymbolTable::BYTES, 0)?;
    Ok(table)
}
