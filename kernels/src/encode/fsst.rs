//! FSST, the writing half of `decode/fsst.rs` (spec: encodings, 8.3): a table of symbols for a page, then every value
//! coded with it on its own.

use crate::buffer::{Input, OwnedBuffer};
use crate::decode::fsst::{SymbolTable, MAGIC};
use crate::encode::symbols;
use crate::encode::variable::{offsets, Offset};
use crate::error::invalid;
use crate::gil;
use fsst::{Compressor, Symbol};
use pyo3::prelude::*;

/// The table is trained on values spread over the page; the trainer takes some 16 KiB of what it is shown.
const SAMPLE_VALUES_MAX: usize = 4096;
/// On large pages several tables are tried, one per this many bytes, and judged by every so many values of a sample.
const TABLES_MAX: usize = 4;
const TABLE_BYTES: usize = 1 << 20;
const JUDGED_SHARE: usize = 4;
const JUDGED_BYTES_MAX: usize = 256 << 10; // of long values only the middle
/// Values are handed over in batches, for their slices take more memory than short values do.
const BATCH_VALUES: usize = 1024;
const LANES: usize = Compressor::DEFAULT_BULK_LANES;

/// `(symbol table, offsets, codes)`
type Coded = (OwnedBuffer, OwnedBuffer, OwnedBuffer);

/// `encode_fsst` of the contract.
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
            let (table, ends, codes) = gil::release(py, num_values + data.len() / 8, || code(&offsets, data));
            if codes.len() > i32::MAX as usize {
                return Err(invalid("more than 2 GiB of codes for 32-bit offsets"));
            }
            (table, OwnedBuffer::from(bytemuck::cast_vec::<u32, i32>(ends)), codes)
        }
        true => {
            let offsets = offsets::<u64>(raw_offsets.bytes(), data, num_values)?;
            let (table, ends, codes) = gil::release(py, num_values + data.len() / 8, || code(&offsets, data));
            (table, OwnedBuffer::from(bytemuck::cast_vec::<u64, i64>(ends)), codes)
        }
    };
    Ok((table.into(), ends, codes.into()))
}

fn code<T: Offset>(offsets: &[T], data: &[u8]) -> (Vec<u8>, Vec<T>, Vec<u8>) {
    let num_values = offsets.len() - 1;
    let value = |index: usize| &data[offsets[index].to_usize()..offsets[index + 1].to_usize()];
    let num_bytes = offsets[num_values].to_usize() - offsets[0].to_usize();
    let compressor = train(num_values, (num_bytes / TABLE_BYTES).clamp(1, TABLES_MAX), value);
    let coded = symbols::encode(&compressor, offsets, data);
    let (ends, codes) = coded.unwrap_or_else(|| code_any(&compressor, num_values, value));
    (table(&compressor), ends, codes)
}

/// Codes of values of any bytes and length.
fn code_any<'a, T: Offset>(
    compressor: &Compressor,
    num_values: usize,
    value: impl Fn(usize) -> &'a [u8],
) -> (Vec<T>, Vec<u8>) {
    let (mut ends, mut codes) = (Vec::with_capacity(num_values + 1), Vec::new());
    let (mut batch, mut batch_ends) = (Vec::with_capacity(BATCH_VALUES), Vec::with_capacity(BATCH_VALUES));
    ends.push(T::from_usize(0));
    for start in (0..num_values).step_by(BATCH_VALUES) {
        batch.clear();
        batch_ends.clear();
        batch.extend((start..num_values.min(start + BATCH_VALUES)).map(&value));
        compressor.compress_bulk_into::<LANES>(&batch, &mut codes, &mut batch_ends);
        ends.extend(batch_ends.iter().map(|&end| T::from_usize(end as usize)));
    }
    (ends, codes)
}

/// The best of a few tables, each trained on other values.
fn train<'a>(num_values: usize, num_tables: usize, value: impl Fn(usize) -> &'a [u8]) -> Compressor {
    let step = num_values.div_ceil(SAMPLE_VALUES_MAX).max(1);
    let sample = |start: usize, step: usize| (start..num_values).step_by(step).map(&value).collect::<Vec<&[u8]>>();
    if num_tables == 1 {
        return Compressor::train(&sample(step / 2, step));
    }
    let mut judges = sample(step / 2, step * JUDGED_SHARE);
    let piece = JUDGED_BYTES_MAX / judges.len().max(1);
    for one in &mut judges {
        let start = one.len().saturating_sub(piece) / 2;
        *one = &one[start..one.len().min(start + piece)];
    }
    let num_codes = |compressor: &Compressor| {
        let (mut codes, mut ends) = (Vec::new(), Vec::new());
        compressor.compress_bulk_into::<LANES>(&judges, &mut codes, &mut ends);
        codes.len()
    };
    let tables = (0..num_tables).map(|number| Compressor::train(&sample(number * step / num_tables, step)));
    let tables = tables.map(|table| (num_codes(&table), table));
    tables.min_by_key(|(size, _)| *size).map_or_else(|| Compressor::train(&Vec::new()), |(_, table)| table)
}

/// The table as it is stored, see `decode/fsst.rs`.
fn table(compressor: &Compressor) -> Vec<u8> {
    let (symbols, lengths) = (compressor.symbol_table(), compressor.symbol_lengths());
    let mut table = vec![symbols.len() as u8, 0, 0, 1];
    table.extend_from_slice(&MAGIC);
    table.extend(symbols.iter().copied().flat_map(|symbol: Symbol| symbol.to_u64().to_le_bytes()));
    table.extend_from_slice(&lengths[..symbols.len()]);
    table.resize(SymbolTable::BYTES, 0);
    table
}
