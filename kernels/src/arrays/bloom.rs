//! Split block Bloom filters of Parquet's form: blocks of 8 words of 32 bits, one bit in each word for a value.

use crate::buffer::{Input, Output};
use crate::encode::variable::{offsets, Offset};
use crate::error::invalid;
use crate::gil;
use pyo3::prelude::*;

const BLOCK_BYTES: usize = 32;
const SALTS: [u32; 8] =
    [0x47b6_137b, 0x4497_4d91, 0x8824_ad5b, 0xa2b7_289d, 0x7054_95c7, 0x2df1_424b, 0x9efc_4947, 0x5c6b_fb31];

/// `add_to_bloom` of `_kernels.pyi`.
#[pyfunction]
#[pyo3(signature = (bitmap, raw_offsets, data, wide, num_values, /))]
pub fn add_to_bloom(
    py: Python<'_>,
    bitmap: &Bound<'_, PyAny>,
    raw_offsets: &Bound<'_, PyAny>,
    data: &Bound<'_, PyAny>,
    wide: bool,
    num_values: usize,
) -> PyResult<()> {
    let (raw_offsets, data) = (Input::new(raw_offsets)?, Input::new(data)?);
    let mut output = Output::new(bitmap)?;
    let bits = output.bytes_mut();
    if bits.is_empty() || !bits.len().is_multiple_of(BLOCK_BYTES) {
        return Err(invalid(format!("{} bytes are no blocks of {BLOCK_BYTES} bytes", bits.len())));
    }
    let bytes = data.bytes();
    match wide {
        false => {
            let ends = offsets::<u32>(raw_offsets.bytes(), bytes, num_values)?;
            gil::release(py, num_values, || add_all(bits, &ends, bytes));
        }
        true => {
            let ends = offsets::<u64>(raw_offsets.bytes(), bytes, num_values)?;
            gil::release(py, num_values, || add_all(bits, &ends, bytes));
        }
    }
    Ok(())
}

fn add_all<T: Offset>(bits: &mut [u8], ends: &[T], bytes: &[u8]) {
    let num_blocks = (bits.len() / BLOCK_BYTES) as u64;
    for pair in ends.windows(2) {
        let hash = xxh64(&bytes[pair[0].to_usize()..pair[1].to_usize()]);
        let block = (((hash >> 32) * num_blocks) >> 32) as usize * BLOCK_BYTES;
        for (word, salt) in SALTS.iter().enumerate() {
            let bit = (hash as u32).wrapping_mul(*salt) >> 27;
            bits[block + 4 * word + bit as usize / 8] |= 1 << (bit % 8);
        }
    }
}

const P1: u64 = 0x9E37_79B1_85EB_CA87;
const P2: u64 = 0xC2B2_AE3D_27D4_EB4F;
const P3: u64 = 0x1656_67B1_9E37_79F9;
const P4: u64 = 0x85EB_CA77_C2B2_AE63;
const P5: u64 = 0x27D4_EB2F_1656_67C5;

/// XXH64 with seed 0.
fn xxh64(bytes: &[u8]) -> u64 {
    let (stripes, rest) = bytes.as_chunks::<32>();
    let mut hash = if stripes.is_empty() {
        P5
    } else {
        let mut lanes = [P1.wrapping_add(P2), P2, 0, P1.wrapping_neg()];
        for stripe in stripes {
            for (lane, word) in lanes.iter_mut().zip(stripe.as_chunks::<8>().0) {
                *lane = round(*lane, u64::from_le_bytes(*word));
            }
        }
        let mixed = [1, 7, 12, 18].iter().zip(lanes).map(|(&turn, lane)| lane.rotate_left(turn));
        let joined = mixed.fold(0u64, |sum, lane| sum.wrapping_add(lane));
        lanes.iter().fold(joined, |hash, &lane| (hash ^ round(0, lane)).wrapping_mul(P1).wrapping_add(P4))
    };
    hash = hash.wrapping_add(bytes.len() as u64);
    let (words, rest) = rest.as_chunks::<8>();
    for word in words {
        hash = (hash ^ round(0, u64::from_le_bytes(*word))).rotate_left(27).wrapping_mul(P1).wrapping_add(P4);
    }
    let (halves, rest) = rest.as_chunks::<4>();
    for half in halves {
        let word = u64::from(u32::from_le_bytes(*half)).wrapping_mul(P1);
        hash = (hash ^ word).rotate_left(23).wrapping_mul(P2).wrapping_add(P3);
    }
    for &byte in rest {
        hash = (hash ^ u64::from(byte).wrapping_mul(P5)).rotate_left(11).wrapping_mul(P1);
    }
    hash = (hash ^ hash >> 33).wrapping_mul(P2);
    hash = (hash ^ hash >> 29).wrapping_mul(P3);
    hash ^ hash >> 32
}

fn round(lane: u64, word: u64) -> u64 {
    lane.wrapping_add(word.wrapping_mul(P2)).rotate_left(31).wrapping_mul(P1)
}
