//! Surveys the fields of a schema without nesting, without a message object for each (spec: file container, 2).
//!
//! ```text
//! Schema     0x0a Field, ...    0x2a metadata, ...
//! Field      0x12 name    0x18 id    0x20 parent id    0x2a logical type    0x52 metadata, ...    and others
//! metadata   0x0a key    0x12 value
//! Manifest   a Schema, and others
//! ```
//!
//! As in `columns.rs`, unusual forms fall back to the general parser, and so does a schema that it rejects. Fields with
//! unknown numbers are skipped.

use crate::buffer::Input;
use crate::container::columns::Wire;
use crate::container::fragments::{self, Value};
use crate::room::{py_bytes, Copied, GatherResults, Grow};
use pyo3::exceptions::PyValueError;
use pyo3::prelude::*;
use pyo3::types::PyBytes;
use std::collections::HashSet;
use std::hash::Hash;

const PARENT_OF_TOP: &[u8] = b"\xff\xff\xff\xff\xff\xff\xff\xff\xff\x01"; // -1

/// Number and kind of the next field. Writers never produce tags with more bytes than necessary, so these are rejected.
fn tag(wire: &mut Wire<'_>) -> Option<(u32, u8)> {
    let length = wire.0.len();
    let tag = u32::try_from(wire.varint()?).ok()?;
    let needed = (32 - tag.leading_zeros()).div_ceil(7) as usize;
    (tag >= 8 && length - wire.0.len() == needed).then_some((tag >> 3, (tag & 7) as u8))
}

fn skip(wire: &mut Wire<'_>, kind: u8) -> Option<()> {
    match kind {
        0 => drop(wire.varint()?),
        1 => wire.0 = wire.0.get(8..)?,
        2 => drop(wire.bytes()?),
        5 => wire.0 = wire.0.get(4..)?,
        _ => return None,
    }
    Some(())
}

fn text<'a>(wire: &mut Wire<'a>) -> Option<&'a str> {
    std::str::from_utf8(wire.bytes()?).ok()
}

/// A non-empty text without NUL characters.
fn name<'a>(wire: &mut Wire<'a>) -> Option<&'a str> {
    text(wire).filter(|text| !text.contains('\0'))
}

/// Whether a metadata entry has only its known fields, each valid.
fn is_entry(entry: &[u8], key: fn(&mut Wire<'_>) -> Option<()>) -> bool {
    let (mut wire, mut seen) = (Wire(entry), 0u8);
    while !wire.0.is_empty() {
        let bit = match wire.tag() {
            Some(0x0a) if key(&mut wire).is_some() => 1,
            Some(0x12) if wire.bytes().is_some() => 2,
            _ => return false,
        };
        if seen & bit != 0 {
            return false;
        }
        seen |= bit;
    }
    true
}

/// Whether a message is a version 0.1 `Dictionary`, which locates the values of a dictionary column.
fn is_dictionary(message: &[u8]) -> bool {
    let mut wire = Wire(message);
    while !wire.0.is_empty() {
        let is_known = match tag(&mut wire) {
            Some((1 | 2, kind)) => kind == 0 && skip(&mut wire, kind).is_some(),
            Some((1000, kind)) => kind == 2 && skip(&mut wire, kind).is_some(),
            Some((_, kind)) => skip(&mut wire, kind).is_some(),
            None => false,
        };
        if !is_known {
            return false;
        }
    }
    true
}

struct Field<'a> {
    name: &'a str,
    id: i32,
    logical_type: &'a str,
    is_marked: bool,
}

impl<'a> Field<'a> {
    fn read(message: &'a [u8]) -> Option<Self> {
        let mut found = Field { name: "", id: 0, logical_type: "", is_marked: false };
        let (mut wire, mut seen) = (Wire(message), 0u32);
        while !wire.0.is_empty() {
            let (number, kind) = tag(&mut wire)?;
            let bit = 1u32.checked_shl(number).unwrap_or(0);
            if seen & bit != 0 && number != 10 {
                return None;
            }
            match (number, kind) {
                (2, 2) => found.name = name(&mut wire)?,
                (3, 0) => found.id = i32::try_from(wire.varint()?).ok()?,
                (4, 0) => wire.0 = wire.0.strip_prefix(PARENT_OF_TOP)?,
                (5, 2) => found.logical_type = name(&mut wire)?,
                (8, 2) if is_dictionary(wire.bytes()?) => {}
                (9, 2) => drop(text(&mut wire)?),
                (10, 2) if is_entry(wire.bytes()?, |wire| name(wire).map(drop)) => found.is_marked = true,
                (1 | 6 | 7 | 12..=15, 0) => drop(wire.varint()?),
                (11 | 16.., kind) => skip(&mut wire, kind)?,
                _ => return None,
            }
            if !matches!(number, 11 | 16..) {
                seen |= bit;
            }
        }
        (seen & 1 << 4 != 0).then_some(found)
    }
}

fn are_different<T: Eq + Hash>(items: impl ExactSizeIterator<Item = T>) -> bool {
    let mut seen = HashSet::new();
    let has_room = seen.try_reserve(items.len()).is_ok();
    has_room && items.into_iter().all(|item| seen.insert(item)) // room: reserved
}

/// Start and end of a part of a whole.
fn place(whole: &[u8], part: &[u8]) -> Option<[u32; 2]> {
    let start = (part.as_ptr() as usize).checked_sub(whole.as_ptr() as usize)?;
    Some([u32::try_from(start).ok()?, u32::try_from(start + part.len()).ok()?])
}

#[derive(Default)]
struct Survey<'a> {
    places: Vec<[u32; 4]>,
    names: Vec<&'a str>,
    ids: Vec<i32>,
    types: HashSet<&'a str>,
    marked: Vec<usize>,
    metadata: Vec<u8>,
}

impl<'a> Survey<'a> {
    fn of(schema: &'a [u8], fields_max: usize) -> Option<Self> {
        let (mut survey, mut wire) = (Survey::default(), Wire(schema));
        while !wire.0.is_empty() {
            let start = wire.0;
            match tag(&mut wire)? {
                (1, 2) => survey.add(schema, wire.bytes()?)?,
                (5, 2) if is_entry(wire.bytes()?, |wire| text(wire).map(drop)) => {
                    survey.metadata.try_append(&start[..start.len() - wire.0.len()]).ok()?;
                }
                _ => return None,
            }
        }
        let ascend = survey.ids.windows(2).all(|pair| pair[0] < pair[1]);
        let is_flat = survey.ids.len() <= fields_max
            && (ascend || are_different(survey.ids.iter()))
            && are_different(survey.names.iter());
        is_flat.then_some(survey)
    }

    fn add(&mut self, schema: &'a [u8], message: &'a [u8]) -> Option<()> {
        let field = Field::read(message)?;
        let [start, end] = place(schema, message)?;
        let [name_start, name_end] = if field.name.is_empty() { [0; 2] } else { place(schema, field.name.as_bytes())? };
        if field.is_marked {
            self.marked.try_push(self.ids.len()).ok()?;
        }
        self.places.try_push([start, end, name_start, name_end]).ok()?;
        self.names.try_push(field.name).ok()?;
        self.ids.try_push(field.id).ok()?;
        self.types.try_reserve(1).ok()?;
        self.types.insert(field.logical_type); // room: reserved
        Some(())
    }
}

type Surveyed<'a, 'py> = (Bound<'py, PyBytes>, HashSet<&'a str>, Vec<usize>, Bound<'py, PyBytes>);

/// `survey_flat_schema` of `_kernels.pyi`.
#[pyfunction]
#[pyo3(signature = (schema, fields_max, /))]
pub fn survey_flat_schema<'a, 'py>(
    py: Python<'py>,
    schema: &'a [u8],
    fields_max: usize,
) -> PyResult<Option<Surveyed<'a, 'py>>> {
    let Some(found) = Survey::of(schema, fields_max) else { return Ok(None) };
    let places = py_bytes(py, bytemuck::cast_slice(&found.places))?;
    Ok(Some((places, found.types, found.marked, py_bytes(py, &found.metadata)?)))
}

/// The name of a field at a place of the survey.
fn name_at<'a>(schema: &'a [u8], place: &[u8]) -> PyResult<&'a [u8]> {
    let at = |index: usize| u32::from_ne_bytes([0, 1, 2, 3].map(|byte| place[index + byte])) as usize;
    schema.get(at(8)..at(12)).ok_or_else(|| PyValueError::new_err("a name lies outside of the schema"))
}

/// `find_flat_field` of `_kernels.pyi`.
#[pyfunction]
#[pyo3(signature = (schema, places, name, /))]
pub fn find_flat_field(schema: &[u8], places: &[u8], name: &[u8]) -> PyResult<Option<usize>> {
    for (number, place) in places.chunks_exact(16).enumerate() {
        if name_at(schema, place)? == name {
            return Ok(Some(number));
        }
    }
    Ok(None)
}

/// `flat_field_names` of `_kernels.pyi`.
#[pyfunction]
#[pyo3(signature = (schema, places, /))]
pub fn flat_field_names<'a>(schema: &'a [u8], places: &[u8]) -> PyResult<Vec<&'a str>> {
    let one =
        |place| std::str::from_utf8(name_at(schema, place)?).map_err(|_| PyValueError::new_err("a name is not UTF-8"));
    places.chunks_exact(16).map(one).try_vec_of()
}

/// Split off the fields and metadata of a schema, if at least `fields_min` fields come first.
fn split(manifest: &[u8], fields_min: usize) -> Option<(Vec<u8>, Vec<u8>)> {
    let mut wire = Wire(manifest);
    for _ in 0..fields_min {
        (wire.tag()? == 0x0a).then(|| wire.bytes())??;
    }
    let mut schema = manifest[..manifest.len() - wire.0.len()].try_to_vec().ok()?;
    let mut rest = Vec::new();
    while !wire.0.is_empty() {
        let start = wire.0;
        let (number, value) = fragments::field(&mut wire)?;
        let part = &start[..start.len() - wire.0.len()];
        match (number, value) {
            (1 | 5, Value::Bytes(_)) => schema.try_append(part).ok()?,
            (1 | 5, _) => return None,
            _ => rest.try_append(part).ok()?,
        }
    }
    Some((schema, rest))
}

/// `split_manifest` of `_kernels.pyi`.
#[pyfunction]
#[pyo3(signature = (manifest, fields_min, /))]
pub fn split_manifest<'py>(
    py: Python<'py>,
    manifest: &Bound<'py, PyAny>,
    fields_min: usize,
) -> PyResult<Option<(Bound<'py, PyBytes>, Bound<'py, PyBytes>)>> {
    let input = Input::new(manifest)?;
    let Some((schema, rest)) = split(input.bytes(), fields_min) else { return Ok(None) };
    Ok(Some((py_bytes(py, &schema)?, py_bytes(py, &rest)?)))
}
