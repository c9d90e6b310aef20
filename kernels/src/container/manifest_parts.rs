//! Splits the fragments of a manifest from the rest, so that each is parsed on demand (spec: table, 2).
//!
//! As in `columns.rs`, unusual forms fall back to the general parser.

use crate::buffer::Input;
use crate::container::columns::Wire;
use crate::container::fragments::{field, Value};
use crate::room::{py_bytes, Grow};
use pyo3::prelude::*;
use pyo3::types::PyBytes;

const ROW_IDS: u64 = 5;
const SPILLED_ROW_IDS: u64 = 12;

#[derive(Default)]
struct Parts {
    /// The fragment fields, with their tags.
    fragments: Vec<u8>,
    /// Start and end of each message in `fragments`.
    bounds: Vec<[u32; 2]>,
    rest: Vec<u8>,
    /// The first fragment with row ids neither in the message nor in a data file.
    without_ids: Option<usize>,
}

impl Parts {
    fn of(manifest: &[u8]) -> Option<Self> {
        let (mut parts, mut wire) = (Parts::default(), Wire(manifest));
        while !wire.0.is_empty() {
            let start = wire.0;
            let (number, value) = field(&mut wire)?;
            let whole = &start[..start.len() - wire.0.len()];
            match (number, value) {
                (2, Value::Bytes(fragment)) => parts.add(whole, fragment)?,
                (2, _) => return None,
                _ => parts.rest.try_append(whole).ok()?,
            }
        }
        Some(parts)
    }

    fn add(&mut self, whole: &[u8], fragment: &[u8]) -> Option<()> {
        self.fragments.try_append(whole).ok()?;
        let end = u32::try_from(self.fragments.len()).ok()?;
        let start = end - u32::try_from(fragment.len()).ok()?;
        if self.without_ids.is_none() && !has_row_ids(fragment)? {
            self.without_ids = Some(self.bounds.len());
        }
        self.bounds.try_push([start, end]).ok()?;
        Some(())
    }
}

fn has_row_ids(fragment: &[u8]) -> Option<bool> {
    let (mut has, mut wire) = (false, Wire(fragment));
    while !wire.0.is_empty() {
        match field(&mut wire)? {
            (ROW_IDS | SPILLED_ROW_IDS, Value::Bytes(_)) => has = true,
            (ROW_IDS | SPILLED_ROW_IDS, _) => return None,
            _ => {}
        }
    }
    Some(has)
}

type PartsTuple<'py> = (Bound<'py, PyBytes>, Bound<'py, PyBytes>, Bound<'py, PyBytes>, Option<usize>);

/// `part_manifest` of `_kernels.pyi`.
#[pyfunction]
#[pyo3(signature = (manifest, /))]
pub fn part_manifest<'py>(py: Python<'py>, manifest: &Bound<'py, PyAny>) -> PyResult<Option<PartsTuple<'py>>> {
    let input = Input::new(manifest)?;
    let Some(parts) = Parts::of(input.bytes()) else { return Ok(None) };
    let bounds = py_bytes(py, bytemuck::cast_slice(&parts.bounds))?;
    Ok(Some((py_bytes(py, &parts.fragments)?, bounds, py_bytes(py, &parts.rest)?, parts.without_ids)))
}
