//! Digests of byte strings.

use super::arguments::{checked_present, is_present, Arguments, Given, Held, Patience};
use crate::buffer::{Input, OwnedBuffer};
use crate::error::invalid;
use crate::gil;
use crate::room::{vec_with_capacity, Grow, Roomy};
use crate::sink::bytes_of;
use pyo3::prelude::*;
use sha2::Digest;

/// Steps per digest: the cost of a block of 64 bytes.
const STEPS_PER_VALUE: usize = 64;

type Put = fn(&[u8], &mut Vec<u8>) -> Roomy<()>;

fn put<D: Digest>(value: &[u8], out: &mut Vec<u8>) -> Roomy<()> {
    out.try_append(&D::digest(value))
}

fn find(name: &str) -> Option<(Put, usize)> {
    Some(match name {
        "md5" => (put::<md5::Md5>, 16),
        "sha224" => (put::<sha2::Sha224>, 28),
        "sha256" => (put::<sha2::Sha256>, 32),
        "sha384" => (put::<sha2::Sha384>, 48),
        "sha512" => (put::<sha2::Sha512>, 64),
        "blake2s" => (put::<blake2::Blake2s256>, 32),
        "blake2b" => (put::<blake2::Blake2b512>, 64),
        "blake3" => (|value, out| out.try_append(blake3::hash(value).as_bytes()), 32),
        _ => return None,
    })
}

/// `digest_texts` of `_kernels.pyi`.
#[pyfunction]
#[pyo3(signature = (algorithm, num_rows, values, present, /))]
pub fn digest_texts(
    py: Python<'_>,
    algorithm: &str,
    num_rows: usize,
    values: Given<'_>,
    present: Option<&Bound<'_, PyAny>>,
) -> PyResult<OwnedBuffer> {
    let (put, width) = find(algorithm).ok_or_else(|| invalid(format!("no digest is named {algorithm}")))?;
    let held = [Held::new(&values)?];
    let arguments = Arguments::new(&held, num_rows)?;
    let present = present.map(Input::new).transpose()?;
    let present = checked_present(present.as_ref(), num_rows)?;
    let found = gil::release(py, num_rows.saturating_mul(STEPS_PER_VALUE) + arguments.num_bytes, || {
        let values = arguments.texts(0)?;
        let mut out: Vec<u8> = vec_with_capacity(bytes_of(num_rows, 8 * width)?)?;
        let mut patience = Patience::default();
        for row in 0..num_rows {
            match is_present(present, row) {
                true => {
                    let value = values.bytes(row)?;
                    put(value, &mut out)?;
                    patience.spend(value.len())?;
                }
                false => out.try_resize(out.len() + width, 0)?,
            }
        }
        PyResult::Ok(out)
    })?;
    Ok(found.into())
}
