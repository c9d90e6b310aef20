//! Variable-width values of one chunk (spec: encodings, 4.2): n+1 offsets from the start of the buffer, then bytes.
//!
//! Offsets are u32 or u64. With FSST (8.3) the bytes of each value are codes.

use crate::damaged;
use crate::decode::codec::Codec;
use crate::decode::fsst::{Scratch, SymbolTable};
use crate::error::Checked;
use crate::room::Grow;
use crate::sink::{Offset, Pick, Strings};

/// Append the picked values of a chunk that holds `num_values`. `scratch` is working memory for FSST.
pub fn decode<O: Offset>(
    codec: &Codec,
    buffers: &[&[u8]],
    num_values: usize,
    picks: &[Pick],
    scratch: &mut Scratch,
    out: &mut Strings<O>,
) -> Checked<()> {
    let [buffer] = buffers else { return damaged!("{} buffers of variable-width values, expected 1", buffers.len()) };
    let table_bytes = (num_values + 1) * O::BYTES;
    let Some(table) = buffer.get(..table_bytes) else {
        return damaged!("{num_values} values have {table_bytes} bytes of offsets, the buffer {}", buffer.len());
    };
    let table = match codec {
        Codec::Fsst { table: symbols, .. } if symbols.coded => {
            return coded_strings(symbols, table, buffer, picks, scratch, out);
        }
        _ => table,
    };
    for pick in picks {
        let offsets = &table[pick.start * O::BYTES..(pick.end + 1) * O::BYTES];
        let (first, last) = bounds::<O>(offsets, table_bytes, buffer.len())?;
        let base = out.data.len();
        let rebased = offsets[O::BYTES..].chunks_exact(O::BYTES).map(|raw| O::wrap(base + (O::read(raw) - first)));
        out.offsets.try_extend(rebased)?;
        out.push_bytes(&buffer[first..last])?;
    }
    Ok(())
}

/// First and last of a run of offsets, which must ascend between the end of the table and the end of the buffer.
fn bounds<O: Offset>(offsets: &[u8], table_bytes: usize, buffer_bytes: usize) -> Checked<(usize, usize)> {
    let (first, last) = (O::read(offsets), O::read(&offsets[offsets.len() - O::BYTES..]));
    let pairs = offsets.chunks_exact(O::BYTES).zip(offsets[O::BYTES..].chunks_exact(O::BYTES));
    let descending = pairs.fold(false, |found, (a, b)| found | (O::read(a) > O::read(b)));
    if descending || first < table_bytes || last > buffer_bytes {
        return damaged!("value offsets {first}..{last} do not ascend from {table_bytes} to {buffer_bytes}");
    }
    Ok((first, last))
}

fn coded_strings<O: Offset>(
    symbols: &SymbolTable,
    table: &[u8],
    buffer: &[u8],
    picks: &[Pick],
    scratch: &mut Scratch,
    out: &mut Strings<O>,
) -> Checked<()> {
    for pick in picks {
        let offsets = &table[pick.start * O::BYTES..(pick.end + 1) * O::BYTES];
        let (first, last) = bounds::<O>(offsets, table.len(), buffer.len())?;
        if pick.len() == 1 {
            symbols.decode_one(&buffer[first..], last - first, scratch, out)?;
            continue;
        }
        let ends = offsets[O::BYTES..].chunks_exact(O::BYTES).map(|raw| O::read(raw) - first);
        symbols.decode(&buffer[first..last], ends, scratch, out)?;
    }
    Ok(())
}
