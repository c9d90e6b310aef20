//! Converts bytes and numbers to digits and back.

use super::arguments::Row;
use crate::buffer::OwnedBuffer;
use crate::error::invalid;
use crate::gil;
use crate::room::{reserve, vec_with_capacity, Grow};
use crate::sink::bytes_of;
use pyo3::prelude::*;

const HEX: &[u8; 16] = b"0123456789abcdef";
const BASE64: &[u8; 64] = b"ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789+/";

/// The character with a code point.
pub fn character(row: Row<'_, '_>, out: &mut Vec<u8>) -> PyResult<()> {
    let code = row.number(0)?;
    let found = u32::try_from(code).ok().and_then(char::from_u32);
    let one = found.ok_or_else(|| invalid(format!("invalid Unicode scalar value: {code}")))?;
    out.try_append(one.encode_utf8(&mut [0; 4]).as_bytes())?;
    Ok(())
}

/// The 64 bits of an integer in base 16, without leading zeros.
pub fn hexadecimal(row: Row<'_, '_>, out: &mut Vec<u8>) -> PyResult<()> {
    let number = row.number(0)? as u64;
    let num_digits = (16 - number.leading_zeros() as usize / 4).max(1);
    out.try_extend((0..num_digits).rev().map(|place| HEX[(number >> (4 * place)) as usize & 15]))?;
    Ok(())
}

pub fn to_hex(row: Row<'_, '_>, out: &mut Vec<u8>) -> PyResult<()> {
    let bytes = row.bytes(0)?;
    reserve(out, 2 * bytes.len())?;
    out.try_extend(bytes.iter().flat_map(|byte| [HEX[usize::from(byte >> 4)], HEX[usize::from(byte & 15)]]))?;
    Ok(())
}

/// Without `=` at the end.
pub fn to_base64(row: Row<'_, '_>, out: &mut Vec<u8>) -> PyResult<()> {
    let bytes = row.bytes(0)?;
    reserve(out, bytes.len().div_ceil(3) * 4)?;
    for three in bytes.chunks(3) {
        let [a, b, c] = [three[0], three.get(1).copied().unwrap_or(0), three.get(2).copied().unwrap_or(0)];
        let bits = u32::from(a) << 16 | u32::from(b) << 8 | u32::from(c);
        let digits = [18, 12, 6, 0].map(|shift| BASE64[(bits >> shift) as usize & 63]);
        out.try_append(&digits[..three.len() + 1])?;
    }
    Ok(())
}

const UUID_BYTES: usize = 16;
const UUID_CHARS: usize = 36;
/// Start of each byte's digits.
const UUID_DIGITS: [usize; UUID_BYTES] = [0, 2, 4, 6, 9, 11, 14, 16, 19, 21, 24, 26, 28, 30, 32, 34];
/// UUIDs that are generated per call of the stream.
const UUIDS_AT_ONCE: usize = 64;
/// Below this, a kernel keeps the GIL.
const STEPS_PER_UUID: usize = 8;

/// `random_uuids` of `_kernels.pyi`.
#[pyfunction]
#[pyo3(signature = (num_rows, seed, /))]
pub fn random_uuids(py: Python<'_>, num_rows: usize, seed: [u8; 32]) -> PyResult<OwnedBuffer> {
    let mut out: Vec<u8> = vec_with_capacity(bytes_of(num_rows, 8 * UUID_CHARS)?)?;
    gil::release(py, num_rows.saturating_mul(STEPS_PER_UUID), || {
        let mut random = blake3::Hasher::new_keyed(&seed).finalize_xof();
        let mut drawn = [[0; UUID_BYTES]; UUIDS_AT_ONCE];
        for start in (0..num_rows).step_by(UUIDS_AT_ONCE) {
            random.fill(drawn.as_flattened_mut());
            for uuid in drawn.iter_mut().take(num_rows - start) {
                uuid[6] = uuid[6] & 0x0F | 0x40; // the version
                uuid[8] = uuid[8] & 0x3F | 0x80; // the variant
                let mut text = [b'-'; UUID_CHARS];
                for (byte, place) in uuid.iter().zip(UUID_DIGITS) {
                    text[place] = HEX[usize::from(byte >> 4)];
                    text[place + 1] = HEX[usize::from(byte & 15)];
                }
                out.extend_from_slice(&text); // room: reserved
            }
        }
    });
    Ok(out.into())
}

fn failed(form: &str, why: impl std::fmt::Display) -> PyErr {
    invalid(format!("Failed to decode value using {form}: {why}"))
}

fn hex_digit(digit: u8) -> PyResult<u8> {
    match digit {
        b'0'..=b'9' => Ok(digit - b'0'),
        b'a'..=b'f' => Ok(digit - b'a' + 10),
        b'A'..=b'F' => Ok(digit - b'A' + 10),
        _ => Err(failed("hex", format_args!("{:?} is no digit", char::from(digit)))),
    }
}

pub fn from_hex(row: Row<'_, '_>, out: &mut Vec<u8>) -> PyResult<()> {
    let digits = row.bytes(0)?;
    if !digits.len().is_multiple_of(2) {
        return Err(failed("hex", format_args!("{} digits", digits.len())));
    }
    for pair in digits.chunks_exact(2) {
        out.try_push(hex_digit(pair[0])? << 4 | hex_digit(pair[1])?)?;
    }
    Ok(())
}

fn base64_digit(digit: u8) -> PyResult<u32> {
    Ok(u32::from(match digit {
        b'A'..=b'Z' => digit - b'A',
        b'a'..=b'z' => digit - b'a' + 26,
        b'0'..=b'9' => digit - b'0' + 52,
        b'+' => 62,
        b'/' => 63,
        _ => return Err(failed("base64", format_args!("{:?} is no digit", char::from(digit)))),
    }))
}

/// With `=` at the end or without.
pub fn from_base64(row: Row<'_, '_>, out: &mut Vec<u8>) -> PyResult<()> {
    let digits = row.bytes(0)?;
    let padding = digits.iter().rev().take(2).take_while(|&&digit| digit == b'=').count();
    let padding = if digits.len().is_multiple_of(4) { padding } else { 0 };
    for four in digits[..digits.len() - padding].chunks(4) {
        let mut bits = 0;
        for (&digit, shift) in four.iter().zip([18, 12, 6, 0]) {
            bits |= base64_digit(digit)? << shift;
        }
        let num_bytes = four.len() * 6 / 8;
        if num_bytes == 0 || bits & ((1 << (24 - 8 * num_bytes)) - 1) != 0 {
            return Err(failed("base64", "the last digit tells of no byte, or of more than one"));
        }
        out.try_append(&bits.to_be_bytes()[1..=num_bytes])?;
    }
    Ok(())
}
