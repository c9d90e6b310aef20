//! Summarises a manifest for a list of versions: its time and sums over its fragments, without a message object for
//! each (spec: table, 2, 2.4 and 10).
//!
//! ```text
//! Manifest      0x12 DataFragment, ...    0x18 version    0x3a time    then fields of higher numbers
//! Timestamp     0x08 seconds    0x10 nanoseconds
//! DataFragment  0x08 id    0x12 DataFile, ...    0x1a DeletionFile    0x20 physical rows
//! DataFile      0x30 size in bytes
//! DeletionFile  0x20 deleted rows
//! ```
//!
//! As in `columns.rs`, unusual forms fall back to the general parser.

use crate::buffer::Input;
use crate::container::columns::Wire;
use crate::container::fragments::{field, Value};
use pyo3::prelude::*;

const ID_MAX: u64 = u32::MAX as u64;
const ROWS_MAX: u64 = 1 << 32;
const NANOS_MAX: u64 = 999_999_999;
const LAST_KNOWN: u64 = 26; // fields above may be of any kind

#[derive(Clone, Copy, Default, PartialEq)]
struct Time {
    seconds: u64,
    nanos: u64,
}

impl Time {
    fn read(message: &[u8]) -> Option<Self> {
        let (mut time, mut last, mut wire) = (Time::default(), 0, Wire(message));
        while !wire.0.is_empty() {
            let (number, value) = field(&mut wire)?;
            let Value::Number(value) = value else { return None };
            match number {
                _ if number <= last => return None,
                1 => time.seconds = value,
                2 if value <= NANOS_MAX => time.nanos = value,
                _ => return None,
            }
            last = number;
        }
        Some(time)
    }
}

/// Set a value that may be set only once.
fn set<T>(slot: &mut Option<T>, value: T) -> Option<()> {
    slot.replace(value).is_none().then_some(())
}

#[derive(Default)]
struct Sums {
    fragments: u64,
    files: u64,
    file_bytes: u64,
    deletion_files: u64,
    rows: u64,
    deleted_rows: u64,
    rows_left: u64,
}

impl Sums {
    fn add_fragment(&mut self, fragment: &[u8]) -> Option<()> {
        let (mut id, mut rows, mut deleted, mut wire) = (None, None, None, Wire(fragment));
        while !wire.0.is_empty() {
            match field(&mut wire)? {
                (1, Value::Number(value)) if value <= ID_MAX => set(&mut id, value)?,
                (2, Value::Bytes(file)) => {
                    self.files += 1;
                    self.file_bytes = self.file_bytes.checked_add(number_of(file, 6)?)?;
                }
                (3, Value::Bytes(file)) => set(&mut deleted, number_of(file, 4)?)?,
                (4, Value::Number(value)) if value <= ROWS_MAX => set(&mut rows, value)?,
                (5 | 7 | 9 | 12..=14 | 16, Value::Bytes(_)) | (15, Value::Number(_)) => {}
                _ => return None,
            }
        }
        self.add_rows(rows.unwrap_or(0), deleted)
    }

    /// Add rows; an unknown count is 0, and remaining rows are 0 if the number of deleted rows is unknown.
    fn add_rows(&mut self, rows: u64, deleted: Option<u64>) -> Option<()> {
        let num_deleted = deleted.unwrap_or(0);
        if num_deleted > if rows == 0 { ROWS_MAX } else { rows } {
            return None;
        }
        self.fragments += 1;
        self.deletion_files += u64::from(deleted.is_some());
        self.rows += rows;
        self.deleted_rows += num_deleted;
        if deleted != Some(0) {
            self.rows_left += rows.saturating_sub(num_deleted);
        }
        Some(())
    }
}

/// A number in a message, 0 if it is missing.
fn number_of(message: &[u8], wanted: u64) -> Option<u64> {
    let (mut found, mut wire) = (None, Wire(message));
    while !wire.0.is_empty() {
        match field(&mut wire)? {
            (number, Value::Number(value)) if number == wanted => set(&mut found, value)?,
            (number, _) if number == wanted => return None,
            _ => {}
        }
    }
    Some(found.unwrap_or(0))
}

/// Version, time and sums of a manifest.
fn survey(manifest: &[u8]) -> Option<(u64, Time, Sums)> {
    let (mut version, mut time, mut sums, mut wire) = (None, None, Sums::default(), Wire(manifest));
    while !wire.0.is_empty() {
        match field(&mut wire)? {
            (2, Value::Bytes(fragment)) => sums.add_fragment(fragment)?,
            (3, Value::Number(value)) => set(&mut version, value)?,
            (7, Value::Bytes(message)) => set(&mut time, Time::read(message)?)?,
            (2 | 3 | 7, _) => return None,
            _ => {}
        }
    }
    Some((version?, time?, sums))
}

type Surveyed = (u64, u64, u64, [u64; 7]);

/// `sum_manifest` of `_kernels.pyi`.
#[pyfunction]
#[pyo3(signature = (manifest, /))]
pub fn sum_manifest(manifest: &Bound<'_, PyAny>) -> PyResult<Option<Surveyed>> {
    let input = Input::new(manifest)?;
    Ok(survey(input.bytes()).map(|(version, time, of)| {
        let sums = [of.fragments, of.files, of.file_bytes, of.deletion_files, of.rows, of.deleted_rows, of.rows_left];
        (version, time.seconds, time.nanos, sums)
    }))
}

/// Whether a field after the time has the kind that belongs to its number.
fn is_of_kind(number: u64, value: &Value<'_>) -> bool {
    match value {
        Value::Number(_) => matches!(number, 9..=11 | 14 | 21 | 23 | 24 | 26) || number > LAST_KNOWN,
        Value::Bytes(_) => matches!(number, 8 | 12 | 13 | 15..=20 | 22 | 25) || number > LAST_KNOWN,
        Value::Other => number > LAST_KNOWN,
    }
}

/// The time at the start of `bytes`, if these are manifest fields in ascending order up to the end.
fn time_in_front(bytes: &[u8]) -> Option<Time> {
    let mut wire = Wire(bytes);
    let (7, Value::Bytes(message)) = field(&mut wire)? else { return None };
    let time = Time::read(message).filter(|_| !message.is_empty())?;
    let mut last = (7, false); // a field's number, and whether it may repeat
    while !wire.0.is_empty() {
        let (number, value) = field(&mut wire)?;
        let follows = number > last.0 || number == last.0 && last.1;
        if !follows || !is_of_kind(number, &value) {
            return None;
        }
        last = (number, matches!(number, 16 | 18 | 19 | 25) || number > LAST_KNOWN);
    }
    Some(time)
}

/// The time in the end of a manifest, if it is unambiguous.
fn time_in(end: &[u8]) -> Option<Time> {
    let mut found = None;
    for start in (0..end.len()).filter(|&at| end[at] == 0x3a) {
        let Some(time) = time_in_front(&end[start..]) else { continue };
        if found.is_some_and(|one| one != time) {
            return None;
        }
        found = Some(time);
    }
    found
}

/// `find_manifest_time` of `_kernels.pyi`.
#[pyfunction]
#[pyo3(signature = (end, /))]
pub fn find_manifest_time(end: &Bound<'_, PyAny>) -> PyResult<Option<(u64, u64)>> {
    let input = Input::new(end)?;
    Ok(time_in(input.bytes()).map(|time| (time.seconds, time.nanos)))
}
