//! Announced decompressed sizes of compressed values in full-zip pages.

use crate::arrays::gather::slice_of;
use crate::buffer::{Input, OwnedBuffer};
use crate::decode::codec::Scheme;
use crate::decode::general::announced_bytes;
use crate::error::invalid;
use crate::fullzip::entries::read_word;
use crate::gil;
use crate::room::{vec_with_capacity, Grow};
use pyo3::prelude::*;

/// The layout of the start of entries.
struct Heads {
    control_bytes: usize,
    definition: u64,
    length_bytes: usize,
    /// Assumed for a frame that does not announce its size.
    unsaid_bytes: u64,
}

impl Heads {
    /// The sum of the announced sizes of whole entries; damaged entries are reported by decoding.
    fn announced(&self, scheme: Scheme, mut entries: &[u8]) -> u64 {
        let mut total: u64 = 0;
        while let Some((word, behind)) = entries.split_at_checked(self.control_bytes) {
            if read_word(word) & self.definition != 0 {
                entries = behind; // no length and no value
                continue;
            }
            let Some((length, behind)) = behind.split_at_checked(self.length_bytes) else { break };
            let length = usize::try_from(read_word(length)).unwrap_or(usize::MAX);
            let (frame, behind) = behind.split_at_checked(length).unwrap_or((behind, &[]));
            total = total.saturating_add(announced_bytes(scheme, frame).unwrap_or(self.unsaid_bytes));
            entries = behind;
        }
        total
    }
}

/// `announced_entries` of `_kernels.pyi`.
#[pyfunction]
#[pyo3(signature = (scheme, heads, unsaid_bytes, buffer, offsets, lengths, /))]
pub fn announced_entries(
    py: Python<'_>,
    scheme: &str,
    heads: (usize, u32, usize),
    unsaid_bytes: u64,
    buffer: &Bound<'_, PyAny>,
    offsets: &Bound<'_, PyAny>,
    lengths: &Bound<'_, PyAny>,
) -> PyResult<OwnedBuffer> {
    let scheme = match scheme {
        "lz4" => Scheme::Lz4,
        "zstd" => Scheme::Zstd,
        other => return Err(invalid(format!("unknown compression scheme {other}"))),
    };
    let (control_bytes, bits_def, length_bytes) = heads;
    if control_bytes > 4 || bits_def > 16 || !matches!(length_bytes, 4 | 8) {
        return Err(invalid(format!("entries with heads of {heads:?}")));
    }
    let heads = Heads { control_bytes, definition: (1 << bits_def) - 1, length_bytes, unsaid_bytes };
    let (buffer, offsets, lengths) = (Input::new(buffer)?, Input::new(offsets)?, Input::new(lengths)?);
    let (bytes, offsets, lengths) = (buffer.bytes(), offsets.i64s()?, lengths.i64s()?);
    if offsets.len() != lengths.len() {
        return Err(invalid("offsets and lengths differ in number"));
    }
    gil::release(py, offsets.len(), || {
        let mut found: Vec<i64> = vec_with_capacity(offsets.len())?;
        for (&offset, &length) in offsets.iter().zip(&lengths[..]) {
            let announced = heads.announced(scheme, slice_of(bytes, offset, length)?);
            found.try_push(i64::try_from(announced).unwrap_or(i64::MAX))?;
        }
        Ok(found.into())
    })
}
