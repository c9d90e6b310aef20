//! LEB128 numbers.

use crate::damaged;
use crate::error::Checked;
use crate::room::{Grow, Roomy};

/// Append a number.
#[inline]
pub fn put(out: &mut Vec<u8>, mut value: u32) -> Roomy<()> {
    while value >= 128 {
        out.try_push(value as u8 | 128)?;
        value >>= 7;
    }
    out.try_push(value as u8)
}

/// Take a number from the front.
#[inline]
pub fn take(bytes: &mut &[u8]) -> Checked<u32> {
    let mut value = 0u64;
    for shift in (0..35).step_by(7) {
        let Some((&byte, rest)) = bytes.split_first() else { return damaged!("the bytes end within a number") };
        *bytes = rest;
        value |= u64::from(byte & 127) << shift;
        if byte < 128 {
            return match u32::try_from(value) {
                Ok(value) => Ok(value),
                Err(_) => damaged!("a number of {value}, beyond 32 bits"),
            };
        }
    }
    damaged!("a number of more than five bytes")
}

/// Bytes of a number.
pub fn size(value: u32) -> usize {
    (32 - (value | 1).leading_zeros() as usize).div_ceil(7)
}
