//! Stored JSON values to JSON text. `lance_io/levels/jsonb.py` has the layout of the bytes.

use crate::buffer::{Input, OwnedBuffer};
use crate::damaged;
use crate::error::{Checked, Damaged, Fault};
use crate::gil;
use crate::room::{reserve, vec_with_capacity, Gather, Grow, NoMemory, Roomy};
use pyo3::exceptions::{PyNotImplementedError, PyValueError};
use pyo3::prelude::*;
use std::io::Write;

pub const ARRAY: u32 = 8;
pub const OBJECT: u32 = 4;
pub const SCALAR: u32 = 2;
pub const CONTAINER: u32 = 5;
const COUNT_MASK: u32 = (1 << 28) - 1;
/// Approximate work of one step of other kernels.
const BYTES_PER_STEP: usize = 8;

/// Reason why there is no text.
pub enum Trouble {
    Damaged(Fault),
    Unsupported(String),
}

impl From<Fault> for Trouble {
    fn from(fault: Fault) -> Self {
        Trouble::Damaged(fault)
    }
}

impl From<NoMemory> for Trouble {
    fn from(short: NoMemory) -> Self {
        Trouble::Damaged(short.into())
    }
}

/// `json_texts` of `_kernels.pyi`.
#[pyfunction]
#[pyo3(signature = (data, offsets, present, depth_max, /))]
pub fn json_texts(
    py: Python<'_>,
    data: &Bound<'_, PyAny>,
    offsets: &Bound<'_, PyAny>,
    present: Option<&Bound<'_, PyAny>>,
    depth_max: usize,
) -> PyResult<(OwnedBuffer, OwnedBuffer)> {
    let (data, offsets) = (Input::new(data)?, Input::new(offsets)?);
    let (bytes, offsets) = (data.bytes(), offsets.i64s()?);
    let present = present.map(Input::new).transpose()?;
    let present = present.as_ref().map(|one| one.bytes());
    let num_rows = offsets.len().saturating_sub(1);
    if offsets.is_empty() || present.is_some_and(|one| one.len() != num_rows) {
        return Err(PyValueError::new_err("expected one offset more than rows, and one byte per row"));
    }
    let num_bytes = (offsets[num_rows] - offsets[0]).max(0) as usize;
    let texts = gil::release(py, num_bytes / BYTES_PER_STEP, || texts(bytes, &offsets, present, depth_max));
    match texts {
        Ok((ends, text)) => Ok((ends.into(), text.into())),
        Err(Trouble::Damaged(damaged)) => Err(damaged.into()),
        Err(Trouble::Unsupported(what)) => Err(PyNotImplementedError::new_err(what)),
    }
}

fn texts(
    bytes: &[u8],
    offsets: &[i64],
    present: Option<&[u8]>,
    depth_max: usize,
) -> Result<(Vec<i32>, Vec<u8>), Trouble> {
    let mut ends = vec_with_capacity(offsets.len())?;
    let mut out = Vec::new();
    ends.try_push(0)?;
    for (row, bounds) in offsets.windows(2).enumerate() {
        if present.is_none_or(|one| one[row] != 0) {
            let place = || format!("JSON value {row}");
            let value = usize::try_from(bounds[0])
                .ok()
                .zip(usize::try_from(bounds[1]).ok())
                .and_then(|(start, end)| bytes.get(start..end))
                .ok_or_else(|| Damaged(format!("{}: lies outside of its buffer", place())))?;
            document(value, depth_max, &mut out).map_err(|trouble| match trouble {
                Trouble::Damaged(damaged) => Trouble::Damaged(damaged.within(&place())),
                Trouble::Unsupported(what) => Trouble::Unsupported(format!("{}: {what}", place())),
            })?;
        }
        let end = i32::try_from(out.len());
        ends.try_push(end.map_err(|_| Trouble::Unsupported("more than 2 GiB of JSON text in one batch".into()))?)?;
    }
    Ok((ends, out))
}

/// An array or object, some members of which have been written.
struct Open {
    is_object: bool,
    count: usize,
    written: usize,
    entries_at: usize,
    key_at: usize,
    value_at: usize,
    end: usize,
}

pub fn document(data: &[u8], depth_max: usize, out: &mut Vec<u8>) -> Result<(), Trouble> {
    if data.is_empty() {
        out.try_append(b"null")?;
        return Ok(());
    }
    let (kind, count) = header(data, 0, data.len())?;
    if kind == SCALAR {
        return root_scalar(data, count, out);
    }
    let mut stack = vec![open(data, 0, data.len(), out)?];
    while let Some(top) = stack.last_mut() {
        if top.written == top.count {
            if top.value_at != top.end {
                damaged!("expected the last value to end at {}, found {}", top.end, top.value_at)?;
            }
            out.try_push(if top.is_object { b'}' } else { b']' })?;
            stack.pop();
            continue;
        }
        if top.written > 0 {
            out.try_push(b',')?;
        }
        if top.is_object {
            write_key(data, top, out)?;
        }
        let slot = top.written + if top.is_object { top.count } else { 0 };
        let (kind, length) = entry(data, top.entries_at + 4 * slot);
        let start = top.value_at;
        if length > top.end - start {
            damaged!("a value of {length} bytes at {start} runs past the end at {}", top.end)?;
        }
        top.value_at += length;
        top.written += 1;
        if kind != CONTAINER {
            scalar(kind, &data[start..start + length], out)?;
        } else if stack.len() >= depth_max {
            return Err(Trouble::Unsupported(format!("JSON nested more than {depth_max} deep")));
        } else {
            stack.try_push(open(data, start, start + length, out)?)?;
        }
    }
    Ok(())
}

fn root_scalar(data: &[u8], count: usize, out: &mut Vec<u8>) -> Result<(), Trouble> {
    if count != 0 || data.len() < 8 {
        damaged!("expected a scalar's header with the count 0 and an entry, found {count} and {} bytes", data.len())?;
    }
    let (kind, length) = entry(data, 4);
    if kind == CONTAINER || length != data.len() - 8 {
        damaged!("expected a scalar of {} bytes, found the type {kind} and {length} bytes", data.len() - 8)?;
    }
    scalar(kind, &data[8..], out)
}

/// Kind and count at `start`; the four bytes are checked to exist.
pub fn header(data: &[u8], start: usize, end: usize) -> Checked<(u32, usize)> {
    if end - start < 4 {
        return damaged!("expected a header of 4 bytes at {start}, found {} bytes", end - start);
    }
    let word = u32_at(data, start);
    Ok((word >> 28, (word & COUNT_MASK) as usize))
}

/// Type and length of the entry at `at`, which the caller has checked to exist.
pub fn entry(data: &[u8], at: usize) -> (u32, usize) {
    let word = u32_at(data, at);
    (word >> 28, (word & COUNT_MASK) as usize)
}

fn u32_at(data: &[u8], at: usize) -> u32 {
    u32::from_be_bytes([data[at], data[at + 1], data[at + 2], data[at + 3]])
}

fn open(data: &[u8], start: usize, end: usize, out: &mut Vec<u8>) -> Checked<Open> {
    let (kind, count) = header(data, start, end)?;
    let is_object = kind == OBJECT;
    if !is_object && kind != ARRAY {
        return damaged!("expected the header of an array or object at {start}, found the kind {kind}");
    }
    let entries_at = start + 4;
    let num_entries = if is_object { 2 * count } else { count };
    if num_entries > (end - entries_at) / 4 {
        return damaged!("{num_entries} entries at {entries_at} run past the end at {end}");
    }
    let key_at = entries_at + 4 * num_entries;
    let key_bytes: usize = match is_object {
        true => (0..count).map(|i| entry(data, entries_at + 4 * i).1).sum(),
        false => 0,
    };
    if key_bytes > end - key_at {
        return damaged!("keys of {key_bytes} bytes at {key_at} run past the end at {end}");
    }
    out.try_push(if is_object { b'{' } else { b'[' })?;
    Ok(Open { is_object, count, written: 0, entries_at, key_at, value_at: key_at + key_bytes, end })
}

/// The next key, which is inside the object because all keys together are.
fn write_key(data: &[u8], object: &mut Open, out: &mut Vec<u8>) -> Checked<()> {
    let (kind, length) = entry(data, object.entries_at + 4 * object.written);
    if kind != 1 {
        return damaged!("the object with entries at {} has a key that is no string", object.entries_at);
    }
    string(&data[object.key_at..object.key_at + length], out)?;
    object.key_at += length;
    out.try_push(b':')?;
    Ok(())
}

pub fn scalar(kind: u32, content: &[u8], out: &mut Vec<u8>) -> Result<(), Trouble> {
    match (kind, content) {
        (0, []) => out.try_append(b"null")?,
        (1, text) => string(text, out)?,
        (2, [kind, digits @ ..]) => number(*kind, digits, out)?,
        (3, []) => out.try_append(b"false")?,
        (4, []) => out.try_append(b"true")?,
        (6, [0, binary @ ..]) => {
            out.try_push(b'"')?;
            binary.iter().try_for_each(|byte| print(out, format_args!("{byte:02x}")))?;
            out.try_push(b'"')?;
        }
        (6, [kind, ..]) => return Err(Trouble::Unsupported(format!("JSON holds an extension of kind {kind:#04x}"))),
        _ => damaged!("an entry of type {kind} and {} bytes", content.len())?,
    }
    Ok(())
}

/// Upper bound for the size of a number or escape.
const PRINTED_BYTES_MAX: usize = 64;

fn print(out: &mut Vec<u8>, text: std::fmt::Arguments<'_>) -> Roomy<()> {
    reserve(out, PRINTED_BYTES_MAX)?;
    out.write_fmt(text).expect("writing to memory succeeds"); // room: reserved
    Ok(())
}

fn string(content: &[u8], out: &mut Vec<u8>) -> Checked<()> {
    if let Err(error) = std::str::from_utf8(content) {
        return damaged!("a string is not UTF-8 at byte {}", error.valid_up_to());
    }
    out.try_push(b'"')?;
    let mut copied = 0;
    for (at, &byte) in content.iter().enumerate() {
        if byte >= 0x20 && byte != b'"' && byte != b'\\' {
            continue;
        }
        out.try_append(&content[copied..at])?;
        copied = at + 1;
        match byte {
            b'"' | b'\\' => out.try_append(&[b'\\', byte])?,
            0x08 => out.try_append(b"\\b")?,
            0x09 => out.try_append(b"\\t")?,
            0x0a => out.try_append(b"\\n")?,
            0x0c => out.try_append(b"\\f")?,
            0x0d => out.try_append(b"\\r")?,
            _ => print(out, format_args!("\\u{byte:04x}"))?,
        }
    }
    out.try_append(&content[copied..])?;
    out.try_push(b'"')?;
    Ok(())
}

fn number(kind: u8, digits: &[u8], out: &mut Vec<u8>) -> Checked<()> {
    match (kind, digits.len()) {
        (0x00, 0) => out.try_push(b'0')?,
        (0x10 | 0x20 | 0x30, 0) => out.try_append(b"null")?,
        (0x40, 1 | 2 | 4 | 8) => print(out, format_args!("{}", widened(digits, true) as i64))?,
        (0x50, 1 | 2 | 4 | 8) => print(out, format_args!("{}", widened(digits, false)))?,
        (0x60, 8) => float(f64::from_bits(widened(digits, false)), out)?,
        (0x70, 9 | 17 | 33) => decimal(digits, out)?,
        _ => return damaged!("a number of kind {kind:#04x} with {} bytes", digits.len()),
    }
    Ok(())
}

/// A big-endian integer of up to 8 bytes, sign-extended or zero-extended.
pub fn widened(digits: &[u8], signed: bool) -> u64 {
    let fill = if signed && digits[0] >= 0x80 { u64::MAX } else { 0 };
    digits.iter().fold(fill, |value, &byte| value << 8 | byte as u64)
}

/// The shortest digits that read back as the same float.
fn float(value: f64, out: &mut Vec<u8>) -> Roomy<()> {
    if !value.is_finite() {
        return out.try_append(b"null");
    }
    if value.is_sign_negative() {
        out.try_push(b'-')?;
    }
    let shortest = format!("{:e}", value.abs()); // d.ddde-x
    let (mantissa, exponent) = shortest.split_once('e').expect("this format has an exponent");
    let exponent: i32 = exponent.parse().expect("an exponent is a number");
    let digits = mantissa.replace('.', "");
    let point = exponent + 1; // digits in front of the decimal point
    match point {
        -4..=0 => print(out, format_args!("0.{:0>1$}", digits, digits.len() + point.unsigned_abs() as usize)),
        1..=16 if digits.len() as i32 <= point => print(out, format_args!("{:0<1$}.0", digits, point as usize)),
        1..=16 => print(out, format_args!("{}.{}", &digits[..point as usize], &digits[point as usize..])),
        _ => print(out, format_args!("{mantissa}e{exponent:+}")),
    }
}

/// A signed big-endian integer of any size, followed by its scale.
fn decimal(content: &[u8], out: &mut Vec<u8>) -> Roomy<()> {
    let (scale, unscaled) = content.split_last().expect("checked by the caller");
    let is_negative = unscaled[0] >= 0x80;
    let mut magnitude = unscaled.iter().map(|byte| if is_negative { !byte } else { *byte }).try_vec()?;
    if is_negative {
        for byte in magnitude.iter_mut().rev() {
            *byte = byte.wrapping_add(1);
            if *byte != 0 {
                break;
            }
        }
        out.try_push(b'-')?;
    }
    let mut reversed = Vec::new(); // decimal digits, the last first
    while magnitude.iter().any(|&byte| byte != 0) || reversed.len() <= *scale as usize {
        let mut remainder = 0u32;
        for byte in &mut magnitude {
            let dividend = remainder << 8 | *byte as u32;
            *byte = (dividend / 10) as u8;
            remainder = dividend % 10;
        }
        reversed.try_push(b'0' + remainder as u8)?;
    }
    for (place, &digit) in reversed.iter().enumerate().rev() {
        out.try_push(digit)?;
        if place == *scale as usize && place > 0 {
            out.try_push(b'.')?;
        }
    }
    Ok(())
}
