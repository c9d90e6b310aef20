//! Run-length encoding (spec: encodings, 4.4): values of b bits, and as many lengths of one byte, 1..=255.
//!
//! The lengths sum to the number of values. Early writers could produce a last run that is too long; the excess is
//! dropped. A zero length or a shortfall is damage.

use crate::damaged;
use crate::error::Checked;
use crate::sink::Pick;
use bytemuck::Pod;

/// Decode the picked values of `num_values`; `out` is exactly as long as the picks, `size` bytes each.
pub fn decode(
    values: &[u8],
    lengths: &[u8],
    size: usize,
    num_values: usize,
    picks: &[Pick],
    out: &mut [u8],
) -> Checked<()> {
    if values.len() != lengths.len().saturating_mul(size) {
        return damaged!("{} RLE lengths, but {} bytes of {size}-byte values", lengths.len(), values.len());
    }
    check_lengths(lengths, num_values)?;
    let whole = matches!(picks, [pick] if pick.start == 0 && pick.end == num_values);
    match size {
        1 if whole => expand::<u8>(values, lengths, out),
        2 if whole => expand::<u16>(values, lengths, out),
        4 if whole => expand::<u32>(values, lengths, out),
        8 if whole => expand::<u64>(values, lengths, out),
        _ => select(values, lengths, size, picks, out),
    }
    Ok(())
}

fn check_lengths(lengths: &[u8], num_values: usize) -> Checked<()> {
    if lengths.contains(&0) {
        return damaged!("an RLE run has length 0");
    }
    let total: usize = lengths.iter().map(|&length| length as usize).sum();
    let before_last = total - lengths.last().map_or(0, |&length| length as usize);
    if total < num_values || (before_last >= num_values && num_values > 0) {
        return damaged!("RLE runs hold {total} values, expected {num_values}");
    }
    Ok(())
}

/// Runs up to this long are written with stores of a fixed size.
const SHORT_RUN: usize = 8;

/// All values. Lengths were checked: none is 0, and their sum reaches the end of `out`.
fn expand<T: Pod>(values: &[u8], lengths: &[u8], out: &mut [u8]) {
    let out = bytemuck::cast_slice_mut::<u8, T>(out);
    let mut at = 0;
    for (raw, &length) in values.chunks_exact(std::mem::size_of::<T>()).zip(lengths) {
        let value: T = bytemuck::pod_read_unaligned(raw);
        let length = length as usize;
        match out.get_mut(at..at + SHORT_RUN) {
            // The excess is overwritten by the following runs.
            Some(block) if length <= SHORT_RUN => block.fill(value),
            _ => {
                let end = (at + length).min(out.len());
                out[at..end].fill(value);
            }
        }
        at += length;
    }
}

/// Some values, of any width: walks runs and picks side by side.
fn select(values: &[u8], lengths: &[u8], size: usize, picks: &[Pick], out: &mut [u8]) {
    let mut runs = values.chunks_exact(size).zip(lengths);
    let (mut value, mut run_end) = (&[][..], 0);
    let mut rest = out;
    for pick in picks {
        let mut at = pick.start;
        while at < pick.end {
            while run_end <= at {
                let Some((next, &length)) = runs.next() else { return };
                (value, run_end) = (next, run_end + length as usize);
            }
            let end = run_end.min(pick.end);
            let (piece, behind) = rest.split_at_mut((end - at) * size);
            piece.chunks_exact_mut(size).for_each(|slot| slot.copy_from_slice(value));
            (rest, at) = (behind, end);
        }
    }
}
