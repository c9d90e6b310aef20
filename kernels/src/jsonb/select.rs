//! Selects values by paths in stored JSON values.

use super::to_text::{self, Trouble, ARRAY, CONTAINER, OBJECT, SCALAR};
use crate::buffer::{Input, OwnedBuffer};
use crate::error::{invalid, no_memory, too_large, Checked, Damaged, Fault};
use crate::gil;
use crate::room::{vec_with_capacity, Grow, NoMemory, Roomy};
use crate::sink::Strings;
use crate::text::arguments::{checked_present, is_present, Arguments, Given, Held, Patience, BYTES_PER_STEP};
use pyo3::prelude::*;

const NULL: u32 = 0;
const STRING: u32 = 1;
const NUMBER: u32 = 2;
const FALSE: u32 = 3;
const TRUE: u32 = 4;
/// Maximum number of digits of an item's index.
const PLACE_DIGITS_MAX: usize = 11;

/// States of a row: no value, a value, or a value that is left to Python.
const NOTHING: u8 = 0;
const FOUND: u8 = 1;
const LEFT: u8 = 2;

/// `from_end, index` of the first and of the last item of a span.
type Span = (bool, i64, bool, i64);

/// A step of a path: a member, items, all members (`*`), all items (`[*]`), or a member or item (`key`).
#[derive(FromPyObject)]
pub enum Step {
    Items(Vec<Span>),
    Named(String, String),
}

/// A value: its type, and its bytes.
#[derive(Clone, Copy)]
struct Value<'a> {
    kind: u32,
    content: &'a [u8],
}

impl<'a> Value<'a> {
    fn root(document: &'a [u8]) -> Checked<Self> {
        if document.is_empty() {
            return Ok(Value { kind: NULL, content: &[] });
        }
        let (kind, _) = to_text::header(document, 0, document.len())?;
        if kind != SCALAR {
            return Ok(Value { kind: CONTAINER, content: document });
        }
        if document.len() < 8 {
            return Err(Damaged(format!("a scalar of {} bytes", document.len())));
        }
        let (kind, length) = to_text::entry(document, 4);
        if kind == CONTAINER || length != document.len() - 8 {
            return Err(Damaged(format!("a scalar of type {kind} and {length} bytes in {}", document.len())));
        }
        Ok(Value { kind, content: &document[8..] })
    }

    /// Whether it is an array or an object, and its number of values.
    fn count(self) -> Checked<(u32, usize)> {
        if self.kind != CONTAINER {
            return Ok((SCALAR, 0));
        }
        let (kind, count) = to_text::header(self.content, 0, self.content.len())?;
        let num_entries = if kind == OBJECT { 2 * count } else { count };
        if (kind != OBJECT && kind != ARRAY) || num_entries > (self.content.len() - 4) / 4 {
            return Err(Damaged(format!("a value of kind {kind} with {count} entries")));
        }
        Ok((kind, count))
    }

    fn is(self, wanted: u32) -> Checked<bool> {
        Ok(self.count()?.0 == wanted)
    }

    fn part(self, place: usize, at: usize) -> Checked<Value<'a>> {
        let (kind, length) = to_text::entry(self.content, 4 + 4 * place);
        match at.checked_add(length).and_then(|end| self.content.get(at..end)) {
            Some(content) => Ok(Value { kind, content }),
            None => Err(Damaged(format!("a value of {length} bytes at {at} of {}", self.content.len()))),
        }
    }

    /// The items of an array, or the values of an object's members; none for other types.
    fn each(self, mut put: impl FnMut(usize, Value<'a>) -> Checked<bool>) -> Checked<()> {
        let (kind, count) = self.count()?;
        let (first, mut at) = match kind {
            ARRAY => (0, 4 + 4 * count),
            OBJECT => (count, 4 + 8 * count + self.key_bytes(count)),
            _ => return Ok(()),
        };
        for number in 0..count {
            let value = self.part(first + number, at)?;
            at += value.content.len();
            if !put(number, value)? {
                break;
            }
        }
        Ok(())
    }

    /// Total bytes of the keys; the entries are checked to exist.
    fn key_bytes(self, count: usize) -> usize {
        (0..count).map(|place| to_text::entry(self.content, 4 + 4 * place).1).sum()
    }

    fn member(self, name: &[u8]) -> Checked<Option<Value<'a>>> {
        let (kind, count) = self.count()?;
        if kind != OBJECT {
            return Ok(None);
        }
        let mut at = 4 + 8 * count;
        for number in 0..count {
            let key = self.part(number, at)?;
            at += key.content.len();
            if key.content == name {
                let rest: usize = (number + 1..count).map(|one| to_text::entry(self.content, 4 + 4 * one).1).sum();
                let before: usize =
                    (count..count + number).map(|one| to_text::entry(self.content, 4 + 4 * one).1).sum();
                return self.part(count + number, at + rest + before).map(Some);
            }
        }
        Ok(None)
    }

    fn items(self) -> Checked<Option<Vec<Value<'a>>>> {
        if !self.is(ARRAY)? {
            return Ok(None);
        }
        let mut found = Vec::new();
        self.each(|_, value| {
            found.try_push(value)?;
            Ok(true)
        })?;
        Ok(Some(found))
    }

    fn write(self, depth_max: usize, out: &mut Vec<u8>) -> Result<(), Trouble> {
        match self.kind {
            CONTAINER => to_text::document(self.content, depth_max, out),
            _ => to_text::scalar(self.kind, self.content, out),
        }
    }
}

/// Collect the values that a step selects from a value.
fn follow<'a>(step: &Step, value: Value<'a>, out: &mut Vec<Value<'a>>) -> Checked<()> {
    match step {
        Step::Items(spans) => {
            if let Some(found) = value.items()? {
                spans.iter().try_for_each(|span| span_of(*span, &found, out))?;
            }
        }
        Step::Named(kind, name) => match (kind.as_str(), value.is(OBJECT)?) {
            ("member", _) => out.try_extend(value.member(name.as_bytes())?)?,
            ("all members", true) => value.each(|_, one| {
                out.try_push(one)?;
                Ok(true)
            })?,
            ("all items", _) => match value.items()? {
                Some(found) => out.try_extend(found)?,
                None => out.try_push(value)?,
            },
            ("key", true) => out.try_extend(value.member(name.as_bytes())?)?,
            ("key", false) => {
                let is_place = name.len() <= PLACE_DIGITS_MAX && name.bytes().all(|digit| digit.is_ascii_digit());
                if let (true, Ok(wanted)) = (is_place, name.parse::<usize>()) {
                    if value.is(ARRAY)? {
                        value.each(|number, one| {
                            out.try_extend((number == wanted).then_some(one))?;
                            Ok(number < wanted)
                        })?;
                    }
                }
            }
            _ => (),
        },
    }
    Ok(())
}

fn span_of<'a>(span: Span, items: &[Value<'a>], out: &mut Vec<Value<'a>>) -> Roomy<()> {
    let last = items.len() as i64 - 1;
    let place = |from_end: bool, place: i64| if from_end { last.saturating_add(place) } else { place };
    let (start, stop) = (place(span.0, span.1), place(span.2, span.3));
    if start < 0 && (span.0, span.1) == (span.2, span.3) {
        return Ok(());
    }
    let first = start.max(0) as usize;
    let end = (stop.saturating_add(1).max(0) as usize).min(items.len());
    out.try_append(items.get(first..end).unwrap_or_default())
}

/// The values that a path selects.
struct Search<'s, 'a> {
    steps: &'s [Step],
    found: Vec<Value<'a>>,
    next: Vec<Value<'a>>,
    patience: Patience,
}

impl<'a> Search<'_, 'a> {
    fn run(&mut self, document: &'a [u8]) -> PyResult<&[Value<'a>]> {
        self.found.clear();
        self.found.try_push(Value::root(document)?)?;
        for step in self.steps {
            self.next.clear();
            for &value in &self.found {
                follow(step, value, &mut self.next)?;
            }
            self.patience.spend(self.next.len() + 1)?;
            std::mem::swap(&mut self.found, &mut self.next);
        }
        Ok(&self.found)
    }
}

/// `select_json` of `_kernels.pyi`.
#[pyfunction]
#[pyo3(signature = (num_rows, documents, present, steps, answer, wanted, depth_max, /))]
#[allow(clippy::too_many_arguments)]
pub fn select_json(
    py: Python<'_>,
    num_rows: usize,
    documents: Given<'_>,
    present: Option<&Bound<'_, PyAny>>,
    steps: Vec<Step>,
    answer: &str,
    wanted: &str,
    depth_max: usize,
) -> PyResult<(OwnedBuffer, Vec<OwnedBuffer>)> {
    let held = [Held::new(&documents)?];
    let arguments = Arguments::new(&held, num_rows)?;
    let present = present.map(Input::new).transpose()?;
    let present = checked_present(present.as_ref(), num_rows)?;
    let num_steps = num_rows + arguments.num_bytes / BYTES_PER_STEP;
    gil::release(py, num_steps, || {
        let documents = arguments.texts(0)?;
        let mut search = Search { steps: &steps, found: Vec::new(), next: Vec::new(), patience: Patience::default() };
        let mut states: Vec<u8> = vec_with_capacity(num_rows)?;
        let mut answers = Answers::new(answer, wanted, num_rows, depth_max)?;
        for row in 0..num_rows {
            let state = match is_present(present, row) {
                true => {
                    let found = search.run(documents.bytes(row)?)?;
                    let begin = answers.length();
                    let state = answers.put(found);
                    if state == Ok(LEFT) {
                        answers.cut(begin);
                    }
                    state.map_err(|trouble| match trouble {
                        Told::Damaged(text) => PyErr::from(Damaged(format!("JSON value {row}: {text}"))),
                        Told::Unsupported(text) => pyo3::exceptions::PyNotImplementedError::new_err(text),
                        Told::NoMemory(bytes) => no_memory(bytes),
                    })?
                }
                false => NOTHING,
            };
            answers.end(state == FOUND)?;
            states.try_push(state)?;
        }
        Ok((states.into(), answers.into_buffers()?))
    })
}

/// Reason why a row has no answer.
#[derive(PartialEq)]
enum Told {
    Damaged(String),
    Unsupported(String),
    NoMemory(usize),
}

impl From<Fault> for Told {
    fn from(fault: Fault) -> Self {
        match fault {
            Damaged(text) => Told::Damaged(text),
            Fault::NoMemory(bytes) => Told::NoMemory(bytes),
            Fault::TooLarge { bytes, bytes_max } => Told::Damaged(too_large(bytes, bytes_max)),
        }
    }
}

impl From<NoMemory> for Told {
    fn from(NoMemory(bytes): NoMemory) -> Self {
        Told::NoMemory(bytes)
    }
}

impl From<Trouble> for Told {
    fn from(trouble: Trouble) -> Self {
        match trouble {
            Trouble::Damaged(damaged) => damaged.into(),
            Trouble::Unsupported(text) => Told::Unsupported(text),
        }
    }
}

/// Answers of all rows, by the kind of question.
enum Answers<'a> {
    Exists,
    Contains { wanted: &'a str, depth_max: usize, scratch: Vec<u8> },
    Length(Vec<i64>, i64),
    Integer(Vec<i64>, i64),
    Float(Vec<i64>, i64),
    Boolean(Vec<i64>, i64),
    Text { texts: Strings<i32>, depth_max: usize },
    Shown { texts: Strings<i32>, depth_max: usize },
    Stored(Strings<i64>),
}

impl<'a> Answers<'a> {
    fn new(answer: &str, wanted: &'a str, num_rows: usize, depth_max: usize) -> PyResult<Self> {
        Ok(match answer {
            "exists" => Answers::Exists,
            "contains" => Answers::Contains { wanted, depth_max, scratch: Vec::new() },
            "length" => Answers::Length(vec_with_capacity(num_rows)?, 0),
            "integer" => Answers::Integer(vec_with_capacity(num_rows)?, 0),
            "float" => Answers::Float(vec_with_capacity(num_rows)?, 0),
            "boolean" => Answers::Boolean(vec_with_capacity(num_rows)?, 0),
            "text" => Answers::Text { texts: Strings::with_room(num_rows, 0), depth_max },
            "string" => Answers::Shown { texts: Strings::with_room(num_rows, 0), depth_max },
            "stored" => Answers::Stored(Strings::with_room(num_rows, 0)),
            _ => return Err(invalid(format!("no answer is named {answer}"))),
        })
    }

    fn length(&self) -> usize {
        match self {
            Answers::Text { texts, .. } | Answers::Shown { texts, .. } => texts.data.len(),
            Answers::Stored(values) => values.data.len(),
            _ => 0,
        }
    }

    fn cut(&mut self, length: usize) {
        match self {
            Answers::Text { texts, .. } | Answers::Shown { texts, .. } => texts.data.truncate(length),
            Answers::Stored(values) => values.data.truncate(length),
            _ => (),
        }
    }

    /// Add the answer for the values that were selected in a row.
    fn put(&mut self, found: &[Value<'_>]) -> Result<u8, Told> {
        let Some(&first) = found.first() else {
            return Ok(NOTHING);
        };
        match self {
            Answers::Exists => (),
            Answers::Contains { wanted, depth_max, scratch } => {
                for value in found {
                    if has_item(*value, wanted, *depth_max, scratch)? {
                        return Ok(FOUND);
                    }
                }
                return Ok(NOTHING);
            }
            Answers::Length(_, length) => {
                let (kind, count) = first.count()?;
                *length = if kind == ARRAY { count as i64 } else { 0 };
            }
            Answers::Integer(_, number) => return integer(first, number),
            Answers::Float(_, number) => return float(first, number),
            Answers::Boolean(_, truth) => return boolean(first, truth),
            Answers::Text { texts, depth_max } => match found {
                [one] => one.write(*depth_max, &mut texts.data)?,
                _ => {
                    for (number, one) in found.iter().enumerate() {
                        texts.data.try_push(if number == 0 { b'[' } else { b',' })?;
                        one.write(*depth_max, &mut texts.data)?;
                    }
                    texts.data.try_push(b']')?;
                }
            },
            Answers::Shown { texts, depth_max } => match first.kind {
                NULL => return Ok(NOTHING),
                STRING => texts.data.try_append(as_text(first.content)?.as_bytes())?,
                NUMBER if is_no_number(first.content) => return Ok(NOTHING),
                NUMBER | FALSE | TRUE => first.write(*depth_max, &mut texts.data)?,
                _ => return Ok(LEFT),
            },
            Answers::Stored(values) => match first.kind {
                CONTAINER => values.data.try_append(first.content)?,
                kind => {
                    values.data.try_append(&(SCALAR << 28).to_be_bytes())?;
                    values.data.try_append(&(kind << 28 | first.content.len() as u32).to_be_bytes())?;
                    values.data.try_append(first.content)?;
                }
            },
        }
        Ok(FOUND)
    }

    fn end(&mut self, is_found: bool) -> Checked<()> {
        match self {
            Answers::Length(all, one)
            | Answers::Integer(all, one)
            | Answers::Float(all, one)
            | Answers::Boolean(all, one) => all.try_push(if is_found { *one } else { 0 })?,
            Answers::Text { texts, .. } | Answers::Shown { texts, .. } => texts.end_value()?,
            Answers::Stored(values) => values.end_value()?,
            _ => (),
        }
        Ok(())
    }

    fn into_buffers(self) -> PyResult<Vec<OwnedBuffer>> {
        Ok(match self {
            Answers::Exists | Answers::Contains { .. } => vec![],
            Answers::Length(all, _) | Answers::Integer(all, _) | Answers::Float(all, _) | Answers::Boolean(all, _) => {
                vec![all.into()]
            }
            Answers::Text { texts, .. } | Answers::Shown { texts, .. } => texts.into_buffers()?.into(),
            Answers::Stored(values) => values.into_buffers()?.into(),
        })
    }
}

fn as_text(content: &[u8]) -> Checked<&str> {
    std::str::from_utf8(content).map_err(|error| Damaged(format!("a string is not UTF-8: {error}")))
}

/// Whether an array has an item that equals this string, or whose JSON text does.
fn has_item(value: Value<'_>, wanted: &str, depth_max: usize, scratch: &mut Vec<u8>) -> Result<bool, Told> {
    for item in value.items()?.unwrap_or_default() {
        if item.kind == STRING && item.content == wanted.as_bytes() {
            return Ok(true);
        }
        scratch.clear();
        item.write(depth_max, scratch)?;
        if scratch == wanted.as_bytes() {
            return Ok(true);
        }
    }
    Ok(false)
}

/// Whether it is NaN or infinite, which is null in JSON.
fn is_no_number(content: &[u8]) -> bool {
    match content {
        [0x10 | 0x20 | 0x30, ..] => true,
        [0x60, digits @ ..] if digits.len() == 8 => !f64::from_bits(to_text::widened(digits, false)).is_finite(),
        _ => false,
    }
}

enum Number {
    Whole(i128),
    Fraction(f64),
}

fn number(content: &[u8]) -> Option<Number> {
    match content {
        [0x00] => Some(Number::Whole(0)),
        [0x40, digits @ ..] if matches!(digits.len(), 1 | 2 | 4 | 8) => {
            Some(Number::Whole((to_text::widened(digits, true) as i64).into()))
        }
        [0x50, digits @ ..] if matches!(digits.len(), 1 | 2 | 4 | 8) => {
            Some(Number::Whole(to_text::widened(digits, false).into()))
        }
        [0x60, digits @ ..] if digits.len() == 8 => {
            Some(Number::Fraction(f64::from_bits(to_text::widened(digits, false))))
        }
        _ => None,
    }
}

fn integer(value: Value<'_>, out: &mut i64) -> Result<u8, Told> {
    let found = match value.kind {
        NULL => return Ok(NOTHING),
        FALSE => Some(0),
        TRUE => Some(1),
        NUMBER if is_no_number(value.content) => return Ok(NOTHING),
        NUMBER => match number(value.content) {
            Some(Number::Whole(whole)) => i64::try_from(whole).ok(),
            // halves away from zero; below 2^53, so that the sum is exact
            Some(Number::Fraction(one)) if one.abs() < 9e15 => Some(((one.abs() + 0.5).floor() * one.signum()) as i64),
            _ => None,
        },
        _ => None,
    };
    let Some(found) = found else {
        return Ok(LEFT);
    };
    *out = found;
    Ok(FOUND)
}

fn float(value: Value<'_>, out: &mut i64) -> Result<u8, Told> {
    let found = match value.kind {
        NULL => return Ok(NOTHING),
        FALSE => 0.0,
        TRUE => 1.0,
        NUMBER if is_no_number(value.content) => return Ok(NOTHING),
        NUMBER => match number(value.content) {
            Some(Number::Whole(whole)) => whole as f64,
            Some(Number::Fraction(one)) => one,
            None => return Ok(LEFT),
        },
        _ => return Ok(LEFT),
    };
    *out = found.to_bits() as i64;
    Ok(FOUND)
}

fn boolean(value: Value<'_>, out: &mut i64) -> Result<u8, Told> {
    *out = match value.kind {
        NULL => return Ok(NOTHING),
        NUMBER if is_no_number(value.content) => return Ok(NOTHING),
        FALSE => 0,
        TRUE => 1,
        STRING if value.content.eq_ignore_ascii_case(b"true") => 1,
        STRING if value.content.eq_ignore_ascii_case(b"false") => 0,
        _ => return Ok(LEFT),
    };
    Ok(FOUND)
}
