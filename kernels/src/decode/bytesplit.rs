//! Byte stream split (spec: encodings, 4.5): byte 0 of all values, then byte 1 of all, and so on, for 4 or 8 bytes.

use crate::damaged;
use crate::error::Checked;
use crate::sink::Pick;

/// Decode the picked values of `num_values`; `out` is exactly as long as the picks.
pub fn decode(bytes: &[u8], size: usize, num_values: usize, picks: &[Pick], out: &mut [u8]) -> Checked<()> {
    if Some(bytes.len()) != num_values.checked_mul(size) {
        return damaged!("{num_values} split values of {size} bytes in {} bytes", bytes.len());
    }
    let mut rest = out;
    for pick in picks {
        let (piece, behind) = rest.split_at_mut(pick.len() * size);
        rest = behind;
        match size {
            4 => join::<4>(bytes, num_values, *pick, piece),
            _ => join::<8>(bytes, num_values, *pick, piece),
        }
    }
    Ok(())
}

fn join<const SIZE: usize>(bytes: &[u8], num_values: usize, pick: Pick, piece: &mut [u8]) {
    let planes: [&[u8]; SIZE] =
        std::array::from_fn(|plane| &bytes[plane * num_values + pick.start..plane * num_values + pick.end]);
    for (index, value) in piece.chunks_exact_mut(SIZE).enumerate() {
        for (byte, plane) in value.iter_mut().zip(&planes) {
            *byte = plane[index];
        }
    }
}
