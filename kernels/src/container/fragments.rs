//! Surveys the fragments of a manifest, without a message object for each (spec: table, 2.4).
//!
//! ```text
//! Manifest      0x12 DataFragment, ...
//! DataFragment  0x08 id    0x12 DataFile, ...    0x1a DeletionFile    0x20 physical rows
//! DataFile      0x20 major version    0x28 minor version
//! DeletionFile  0x20 deleted rows
//! ```
//!
//! As in `columns.rs`, unusual forms fall back to the general parser.

use crate::buffer::Input;
use crate::container::columns::Wire;
use crate::room::Grow;
use pyo3::prelude::*;
use std::collections::HashSet;

pub enum Value<'a> {
    Number(u64),
    Bytes(&'a [u8]),
    Other,
}

/// The next field of a message: its number and its value.
pub fn field<'a>(wire: &mut Wire<'a>) -> Option<(u64, Value<'a>)> {
    let tag = wire.varint()?;
    let value = match tag & 7 {
        0 => Value::Number(wire.varint()?),
        1 => skipped(wire, 8)?,
        2 => Value::Bytes(wire.bytes()?),
        5 => skipped(wire, 4)?,
        _ => return None,
    };
    Some((tag >> 3, value))
}

fn skipped<'a>(wire: &mut Wire<'a>, num_bytes: usize) -> Option<Value<'a>> {
    wire.0 = wire.0.get(num_bytes..)?;
    Some(Value::Other)
}

#[derive(Default)]
struct Survey {
    ids: Vec<u64>,
    physical_rows: Vec<u64>,
    deleted_rows: Vec<(usize, u64)>,
    versions: HashSet<(u32, u32)>,
}

impl Survey {
    fn of(manifest: &[u8]) -> Option<Self> {
        let (mut survey, mut wire) = (Survey::default(), Wire(manifest));
        while !wire.0.is_empty() {
            match field(&mut wire)? {
                (2, Value::Bytes(fragment)) => survey.add(fragment)?,
                (2, _) => return None,
                _ => {}
            }
        }
        Some(survey)
    }

    fn add(&mut self, fragment: &[u8]) -> Option<()> {
        let (mut id, mut rows, mut deleted, mut wire) = (0, 0, None, Wire(fragment));
        while !wire.0.is_empty() {
            match field(&mut wire)? {
                (1, Value::Number(value)) => id = value,
                (2, Value::Bytes(file)) => {
                    self.versions.try_reserve(1).ok()?;
                    self.versions.insert(version(file)?); // room: reserved
                }
                (3, Value::Bytes(file)) if deleted.is_none() => deleted = Some(number_four(file)?),
                (4, Value::Number(value)) => rows = value,
                (1..=4, _) => return None,
                _ => {}
            }
        }
        if let Some(count) = deleted {
            self.deleted_rows.try_push((self.ids.len(), count)).ok()?;
        }
        self.ids.try_push(id).ok()?;
        self.physical_rows.try_push(rows).ok()?;
        Some(())
    }
}

fn version(file: &[u8]) -> Option<(u32, u32)> {
    let (mut major, mut minor, mut wire) = (0, 0, Wire(file));
    while !wire.0.is_empty() {
        match field(&mut wire)? {
            (4, Value::Number(value)) => major = u32::try_from(value).ok()?,
            (5, Value::Number(value)) => minor = u32::try_from(value).ok()?,
            (4 | 5, _) => return None,
            _ => {}
        }
    }
    Some((major, minor))
}

fn number_four(message: &[u8]) -> Option<u64> {
    let (mut found, mut wire) = (0, Wire(message));
    while !wire.0.is_empty() {
        match field(&mut wire)? {
            (4, Value::Number(value)) => found = value,
            (4, _) => return None,
            _ => {}
        }
    }
    Some(found)
}

type Surveyed = (Vec<u64>, Vec<u64>, Vec<(usize, u64)>, HashSet<(u32, u32)>);

/// `survey_fragments` of `_kernels.pyi`.
#[pyfunction]
#[pyo3(signature = (manifest, /))]
pub fn survey_fragments(manifest: &Bound<'_, PyAny>) -> PyResult<Option<Surveyed>> {
    let input = Input::new(manifest)?;
    let survey = Survey::of(input.bytes());
    Ok(survey.map(|found| (found.ids, found.physical_rows, found.deleted_rows, found.versions)))
}
