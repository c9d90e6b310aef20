//! JSON text to stored values, the reverse of `to_text.rs`. `lance_io/levels/jsonb.py` has the layout of the bytes.
//!
//! The content of an array or object is written first, value after value; at its end the number of values is known, and
//! header and entries are inserted in front of it, members in the order of their keys.

use crate::buffer::{Input, OwnedBuffer};
use crate::gil;
use crate::room::{vec_with_capacity, Copied, Grow, NoMemory, Roomy};
use pyo3::exceptions::PyValueError;
use pyo3::prelude::*;
use std::ops::Range;

const ARRAY: u32 = 8 << 28;
const OBJECT: u32 = 4 << 28;
const SCALAR: u32 = 2 << 28;
const NULL: u32 = 0;
const STRING: u32 = 1 << 28;
const NUMBER: u32 = 2 << 28;
const FALSE: u32 = 3 << 28;
const TRUE: u32 = 4 << 28;
const CONTAINER: u32 = 5 << 28;
const COUNT_MAX: usize = (1 << 28) - 1;
const ZERO: u8 = 0x00;
const NOT_A_NUMBER: u8 = 0x10;
const INFINITY: u8 = 0x20;
const MINUS_INFINITY: u8 = 0x30;
const SIGNED: u8 = 0x40;
const UNSIGNED: u8 = 0x50;
const FLOAT: u8 = 0x60;
/// Approximate work of one step of other kernels.
const BYTES_PER_STEP: usize = 8;

/// Reason why a text is rejected.
enum Refusal {
    /// The fault, and its byte position.
    Wrong(&'static str, usize),
    NoMemory(NoMemory),
}

type Parsed<T> = Result<T, Refusal>;

impl From<NoMemory> for Refusal {
    fn from(short: NoMemory) -> Self {
        Refusal::NoMemory(short)
    }
}

/// `encode_jsonb` of `_kernels.pyi`.
#[pyfunction]
#[pyo3(signature = (data, offsets, depth_max, /))]
pub fn encode_jsonb(
    py: Python<'_>,
    data: &Bound<'_, PyAny>,
    offsets: &Bound<'_, PyAny>,
    depth_max: usize,
) -> PyResult<(OwnedBuffer, OwnedBuffer)> {
    let (data, offsets) = (Input::new(data)?, Input::new(offsets)?);
    let (bytes, offsets) = (data.bytes(), offsets.i64s()?);
    let num_bytes = match (offsets.first(), offsets.last()) {
        (Some(first), Some(last)) => (last - first).max(0) as usize,
        _ => return Err(PyValueError::new_err("expected one offset more than rows")),
    };
    let made = gil::release(py, num_bytes / BYTES_PER_STEP, || {
        let mut ends = vec_with_capacity(offsets.len())?;
        let mut out = vec_with_capacity(num_bytes + num_bytes / 4)?;
        ends.try_push(0)?;
        for (row, bounds) in offsets.windows(2).enumerate() {
            let text = bytes.get(bounds[0].max(0) as usize..bounds[1].max(0) as usize);
            let text =
                text.ok_or(Refusal::Wrong("a text outside of its buffer", 0)).and_then(
                    |text| match std::str::from_utf8(text) {
                        Ok(_) => Ok(text),
                        Err(error) => Err(Refusal::Wrong("no UTF-8", error.valid_up_to())),
                    },
                );
            let done = text.and_then(|text| Encoder { text, at: 0, out: &mut out, depth: 0, depth_max }.document());
            done.map_err(|refusal| match refusal {
                Refusal::Wrong(what, at) => PyValueError::new_err(format!("row {row}: {what} at byte {at}")),
                Refusal::NoMemory(short) => short.into(),
            })?;
            ends.try_push(out.len() as i64)?;
        }
        PyResult::Ok((ends, out))
    });
    let (ends, out): (Vec<i64>, Vec<u8>) = made?;
    Ok((ends.into(), out.into()))
}

/// A text that is being encoded to `out`.
struct Encoder<'a> {
    text: &'a [u8],
    at: usize,
    out: &'a mut Vec<u8>,
    depth: usize,
    depth_max: usize,
}

/// A member of an object: positions of its key and its value in `out`, and the entry of the value.
struct Member {
    key: Range<usize>,
    value: Range<usize>,
    entry: u32,
}

impl Encoder<'_> {
    fn document(&mut self) -> Parsed<()> {
        if self.text.is_empty() {
            self.put_words(&[SCALAR, NULL])?;
            return Ok(());
        }
        let start = self.out.len();
        let entry = self.value()?;
        if self.at < self.text.len() {
            return self.wrong("more than one value");
        }
        if entry & !(COUNT_MAX as u32) != CONTAINER {
            let value = self.cut(start)?;
            self.put_words(&[SCALAR, entry])?;
            self.out.try_append(&value)?;
        }
        Ok(())
    }

    fn wrong<T>(&self, what: &'static str) -> Parsed<T> {
        Err(Refusal::Wrong(what, self.at))
    }

    fn skip_space(&mut self) {
        while matches!(self.text.get(self.at), Some(b' ' | b'\t' | b'\n' | b'\r')) {
            self.at += 1;
        }
    }

    /// Skip a byte if it comes next.
    fn take(&mut self, byte: u8) -> bool {
        let found = self.text.get(self.at) == Some(&byte);
        self.at += found as usize;
        found
    }

    fn take_word(&mut self, word: &[u8]) -> bool {
        let found = self.text[self.at..].starts_with(word);
        self.at += if found { word.len() } else { 0 };
        found
    }

    fn put_words(&mut self, words: &[u32]) -> Roomy<()> {
        words.iter().try_for_each(|word| self.out.try_append(&word.to_be_bytes()))
    }

    /// Remove and return the output from `start` on.
    fn cut(&mut self, start: usize) -> Roomy<Vec<u8>> {
        let written = self.out[start..].try_to_vec()?;
        self.out.truncate(start);
        Ok(written)
    }

    /// The entry of the output from `start` on.
    fn entry(&self, kind: u32, start: usize) -> Parsed<u32> {
        match self.out.len() - start {
            count if count > COUNT_MAX => self.wrong("a value of 256 MiB or more"),
            count => Ok(kind | count as u32),
        }
    }

    /// Encode the next value, with surrounding whitespace; returns its entry.
    fn value(&mut self) -> Parsed<u32> {
        self.skip_space();
        let start = self.out.len();
        let kind = match self.text.get(self.at) {
            Some(b'{') => self.nested(Self::object)?,
            Some(b'[') => self.nested(Self::array)?,
            Some(b'"') => {
                self.at += 1;
                self.string()?;
                STRING
            }
            _ if self.take_word(b"null") => NULL,
            _ if self.take_word(b"true") => TRUE,
            _ if self.take_word(b"false") => FALSE,
            _ => {
                self.number()?;
                NUMBER
            }
        };
        self.skip_space();
        self.entry(kind, start)
    }

    fn nested(&mut self, put: fn(&mut Self) -> Parsed<()>) -> Parsed<u32> {
        if self.depth == self.depth_max {
            return self.wrong("arrays and objects nested too deep");
        }
        self.at += 1;
        self.depth += 1;
        put(self)?;
        self.depth -= 1;
        Ok(CONTAINER)
    }

    fn array(&mut self) -> Parsed<()> {
        let start = self.out.len();
        let mut entries = vec![ARRAY];
        self.skip_space();
        while !(entries.len() == 1 && self.take(b']')) {
            entries.try_push(self.value()?)?;
            if self.take(b']') {
                break;
            }
            if !self.take(b',') {
                return self.wrong("expected , or ]");
            }
        }
        entries[0] |= self.count(entries.len() - 1)?;
        let values = self.cut(start)?;
        self.put_words(&entries)?;
        self.out.try_append(&values)?;
        Ok(())
    }

    fn count(&self, count: usize) -> Parsed<u32> {
        match count > COUNT_MAX {
            true => self.wrong("too many values in one place"),
            false => Ok(count as u32),
        }
    }

    fn object(&mut self) -> Parsed<()> {
        let start = self.out.len();
        let mut members: Vec<Member> = Vec::new();
        self.skip_space();
        while !(members.is_empty() && self.take(b'}')) {
            members.try_push(self.member(start)?)?;
            if self.take(b'}') {
                break;
            }
            if !self.take(b',') {
                return self.wrong("expected , or }");
            }
        }
        let made = self.cut(start)?;
        let bytes = |range: &Range<usize>| &made[range.start..range.end];
        members.sort_unstable_by(|a, b| bytes(&a.key).cmp(bytes(&b.key)));
        if members.windows(2).any(|pair| bytes(&pair[0].key) == bytes(&pair[1].key)) {
            return self.wrong("an object has one key twice");
        }
        let head = OBJECT | self.count(members.len())?;
        self.put_words(&[head])?;
        members.iter().try_for_each(|member| self.put_words(&[STRING | member.key.len() as u32]))?;
        members.iter().try_for_each(|member| self.put_words(&[member.entry]))?;
        members.iter().try_for_each(|member| self.out.try_append(bytes(&member.key)))?;
        Ok(members.iter().try_for_each(|member| self.out.try_append(bytes(&member.value)))?)
    }

    /// A key and its value, at positions relative to `start`.
    fn member(&mut self, start: usize) -> Parsed<Member> {
        self.skip_space();
        if !self.take(b'"') {
            return self.wrong("expected a key");
        }
        let key = self.out.len();
        self.string()?;
        self.entry(STRING, key)?;
        self.skip_space();
        if !self.take(b':') {
            return self.wrong("expected :");
        }
        let value = self.out.len();
        let entry = self.value()?;
        Ok(Member { key: key - start..value - start, value: value - start..self.out.len() - start, entry })
    }

    /// A string, after its opening quote.
    fn string(&mut self) -> Parsed<()> {
        loop {
            let rest = &self.text[self.at..];
            let plain =
                rest.iter().position(|&byte| byte < 0x20 || byte == b'"' || byte == b'\\').unwrap_or(rest.len());
            self.out.try_append(&rest[..plain])?;
            self.at += plain;
            match rest.get(plain) {
                Some(b'"') => {
                    self.at += 1;
                    return Ok(());
                }
                Some(b'\\') => self.escape()?,
                Some(_) => return self.wrong("a control character in a string"),
                None => return self.wrong("a string without an end"),
            }
        }
    }

    fn escape(&mut self) -> Parsed<()> {
        let byte = match self.text.get(self.at + 1) {
            Some(&byte @ (b'"' | b'\\' | b'/')) => byte,
            Some(b'b') => 0x08,
            Some(b'f') => 0x0C,
            Some(b'n') => b'\n',
            Some(b'r') => b'\r',
            Some(b't') => b'\t',
            Some(b'u') => return self.unicode(),
            _ => return self.wrong("an unknown escape"),
        };
        self.out.try_push(byte)?;
        self.at += 2;
        Ok(())
    }

    /// `\u0000`, or a pair of them that is one character.
    fn unicode(&mut self) -> Parsed<()> {
        let first = self.code_unit()?;
        let units = match first {
            0xD800..0xDC00 => [first, self.code_unit()?],
            _ => [first, 0],
        };
        let used = if matches!(first, 0xD800..0xDC00) { 2 } else { 1 };
        match char::decode_utf16(units[..used].iter().copied()).next() {
            Some(Ok(character)) => {
                self.out.try_append(character.encode_utf8(&mut [0; 4]).as_bytes())?;
                Ok(())
            }
            _ => self.wrong("half a surrogate pair"),
        }
    }

    fn code_unit(&mut self) -> Parsed<u16> {
        let digits = self.text.get(self.at..self.at + 6).filter(|escape| escape.starts_with(b"\\u"));
        let digits = digits.map(|escape| &escape[2..]).filter(|digits| digits.iter().all(u8::is_ascii_hexdigit));
        let unit =
            digits.and_then(|digits| std::str::from_utf8(digits).ok()).and_then(|d| u16::from_str_radix(d, 16).ok());
        match unit {
            Some(unit) => {
                self.at += 6;
                Ok(unit)
            }
            None => self.wrong("expected \\u and four digits"),
        }
    }

    fn digits(&mut self) -> usize {
        let count = self.text[self.at..].iter().take_while(|byte| byte.is_ascii_digit()).count();
        self.at += count;
        count
    }

    fn number(&mut self) -> Parsed<()> {
        let start = self.at;
        if self.take_word(b"NaN") {
            self.out.try_push(NOT_A_NUMBER)?;
            return Ok(());
        }
        let negative = self.take(b'-');
        if self.take_word(b"Infinity") {
            self.put_infinity(negative)?;
            return Ok(());
        }
        if !self.take(b'0') && self.digits() == 0 {
            return self.wrong("expected a value");
        }
        let mut whole = true;
        if self.take(b'.') {
            whole = false;
            if self.digits() == 0 {
                return self.wrong("expected digits");
            }
        }
        if self.take(b'e') || self.take(b'E') {
            whole = false;
            let _ = self.take(b'+') || self.take(b'-');
            if self.digits() == 0 {
                return self.wrong("expected digits");
            }
        }
        let text = std::str::from_utf8(&self.text[start..self.at]).unwrap_or_default();
        match (whole, text.parse::<u64>(), text.parse::<i64>()) {
            (true, Ok(0), _) | (true, _, Ok(0)) => self.out.try_push(ZERO)?,
            (true, Ok(number), _) => self.put_unsigned(number)?,
            (true, _, Ok(number)) => self.put_signed(number)?,
            _ => match text.parse::<f64>() {
                Ok(number) if number.is_finite() => {
                    self.out.try_push(FLOAT)?;
                    self.out.try_append(&number.to_be_bytes())?;
                }
                _ => self.put_infinity(negative)?,
            },
        }
        Ok(())
    }

    fn put_infinity(&mut self, negative: bool) -> Roomy<()> {
        self.out.try_push(if negative { MINUS_INFINITY } else { INFINITY })
    }

    fn put_unsigned(&mut self, number: u64) -> Roomy<()> {
        self.out.try_push(UNSIGNED)?;
        let width = (64 - number.leading_zeros()).div_ceil(8).next_power_of_two() as usize;
        self.out.try_append(&number.to_be_bytes()[8 - width..])
    }

    fn put_signed(&mut self, number: i64) -> Roomy<()> {
        self.out.try_push(SIGNED)?;
        let width = (65 - (!number).leading_zeros()).div_ceil(8).next_power_of_two() as usize;
        self.out.try_append(&number.to_be_bytes()[8 - width..])
    }
}
