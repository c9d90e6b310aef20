//! Arguments of text functions: columns of texts or numbers, and literals as columns of one row.

use crate::buffer::Input;
use crate::error::invalid;
use crate::room::{vec_with_capacity, GatherResults, Grow};
use pyo3::prelude::*;
use std::borrow::Cow;

/// Bytes that a kernel processes in about the time of one step of `gil::release`.
pub const BYTES_PER_STEP: usize = 16;
/// After this much work a kernel checks whether the user interrupts it.
const STEPS_PER_LOOK: usize = 1 << 26;

/// As passed by Python: `(data, offsets, is_wide)` of texts, or only the numbers (i64).
#[derive(FromPyObject)]
pub enum Given<'py> {
    Texts(Bound<'py, PyAny>, Bound<'py, PyAny>, bool),
    Numbers(Bound<'py, PyAny>),
}

/// The memory of an argument.
pub enum Held {
    Texts { data: Input, offsets: Input, is_wide: bool },
    Numbers(Input),
}

impl Held {
    pub fn new(given: &Given<'_>) -> PyResult<Self> {
        Ok(match given {
            Given::Texts(data, offsets, is_wide) => {
                Held::Texts { data: Input::new(data)?, offsets: Input::new(offsets)?, is_wide: *is_wide }
            }
            Given::Numbers(numbers) => Held::Numbers(Input::new(numbers)?),
        })
    }

    pub fn all(given: &[Given<'_>]) -> PyResult<Vec<Self>> {
        given.iter().map(Held::new).try_vec_of()
    }
}

/// A column of byte strings.
pub struct Texts<'a> {
    bytes: &'a [u8],
    /// The bytes as text, if all of them are valid.
    text: Option<&'a str>,
    offsets: &'a [u8],
    width: usize,
    is_literal: bool,
    pub is_ascii: bool,
}

impl<'a> Texts<'a> {
    fn new(bytes: &'a [u8], offsets: &'a [u8], is_wide: bool, num_rows: usize) -> PyResult<Self> {
        let width = if is_wide { 8 } else { 4 };
        let num_texts = (offsets.len() / width).checked_sub(1);
        if !offsets.len().is_multiple_of(width) || num_texts.is_none_or(|found| found != 1 && found != num_rows) {
            return Err(invalid(format!("{} bytes of offsets for {num_rows} rows", offsets.len())));
        }
        let is_literal = num_texts == Some(1);
        let mut texts = Texts { bytes, text: None, offsets, width, is_literal, is_ascii: false };
        let last = num_texts.unwrap_or(0);
        let span = bytes.get(texts.bound(0)..texts.bound(last));
        let span = span.ok_or_else(|| invalid("the texts do not lie within their bytes"))?;
        texts.is_ascii = span.is_ascii();
        let whole = if span.len() == bytes.len() { std::str::from_utf8(bytes) } else { std::str::from_utf8(span) };
        if let Ok(text) = whole {
            // the same bytes, relative to the first text
            texts.text = Some(text);
        }
        Ok(texts)
    }

    fn bound(&self, place: usize) -> usize {
        let at = place * self.width;
        match self.width {
            4 => bytemuck::pod_read_unaligned::<u32>(&self.offsets[at..at + 4]) as usize,
            _ => bytemuck::pod_read_unaligned::<u64>(&self.offsets[at..at + 8]) as usize,
        }
    }

    fn span(&self, row: usize) -> (usize, usize) {
        let place = if self.is_literal { 0 } else { row };
        (self.bound(place), self.bound(place + 1))
    }

    /// Whether there is a text for each of `num_rows` rows.
    pub fn covers(&self, num_rows: usize) -> bool {
        self.offsets.len() / self.width > num_rows
    }

    pub fn bytes(&self, row: usize) -> PyResult<&'a [u8]> {
        let (start, end) = self.span(row);
        self.bytes.get(start..end).ok_or_else(|| invalid(format!("text {row} lies at {start} to {end}")))
    }

    pub fn text(&self, row: usize) -> PyResult<&'a str> {
        if let Some(text) = self.text {
            let (start, end) = self.span(row);
            let first = self.bound(0);
            if let Some(found) = start.checked_sub(first).zip(end.checked_sub(first)).and_then(|(a, b)| text.get(a..b))
            {
                return Ok(found);
            }
        }
        std::str::from_utf8(self.bytes(row)?).map_err(|error| invalid(format!("text {row} is not UTF-8: {error}")))
    }
}

/// One argument of a function.
pub enum Argument<'a> {
    Texts(Texts<'a>),
    Numbers(Cow<'a, [i64]>),
}

/// The arguments of a function.
pub struct Arguments<'a> {
    columns: Vec<Argument<'a>>,
    pub num_bytes: usize,
    /// Limit of a text that a function produces.
    pub bytes_max: usize,
}

impl<'a> Arguments<'a> {
    pub fn new(held: &'a [Held], num_rows: usize) -> PyResult<Self> {
        let mut columns = vec_with_capacity(held.len())?;
        let mut num_bytes = 0;
        for one in held {
            columns.try_push(match one {
                Held::Texts { data, offsets, is_wide } => {
                    let texts = Texts::new(data.bytes(), offsets.bytes(), *is_wide, num_rows)?;
                    if !texts.is_literal {
                        num_bytes += texts.bound(num_rows) - texts.bound(0);
                    }
                    Argument::Texts(texts)
                }
                Held::Numbers(input) => {
                    let numbers = input.i64s()?;
                    if numbers.len() != 1 && numbers.len() != num_rows {
                        return Err(invalid(format!("{} numbers for {num_rows} rows", numbers.len())));
                    }
                    Argument::Numbers(numbers)
                }
            })?;
        }
        Ok(Arguments { columns, num_bytes, bytes_max: usize::MAX })
    }

    pub fn len(&self) -> usize {
        self.columns.len()
    }

    /// The only argument.
    pub fn into_only(self) -> PyResult<Argument<'a>> {
        self.columns.into_iter().next().ok_or_else(|| invalid("there is no argument"))
    }

    pub fn texts(&self, place: usize) -> PyResult<&Texts<'a>> {
        match self.columns.get(place) {
            Some(Argument::Texts(texts)) => Ok(texts),
            _ => Err(invalid(format!("argument {place} is no column of texts"))),
        }
    }

    pub fn row(&self, number: usize) -> Row<'_, 'a> {
        Row { arguments: self, number }
    }
}

/// One row of the arguments.
#[derive(Clone, Copy)]
pub struct Row<'b, 'a> {
    arguments: &'b Arguments<'a>,
    number: usize,
}

impl<'a> Row<'_, 'a> {
    pub fn text(self, place: usize) -> PyResult<&'a str> {
        self.arguments.texts(place)?.text(self.number)
    }

    pub fn bytes(self, place: usize) -> PyResult<&'a [u8]> {
        self.arguments.texts(place)?.bytes(self.number)
    }

    /// Whether every text of the column is ASCII, so that bytes are characters.
    pub fn is_ascii(self, place: usize) -> bool {
        self.arguments.texts(place).is_ok_and(|texts| texts.is_ascii)
    }

    pub fn number(self, place: usize) -> PyResult<i64> {
        match self.arguments.columns.get(place) {
            Some(Argument::Numbers(numbers)) if numbers.len() == 1 => Ok(numbers[0]),
            Some(Argument::Numbers(numbers)) => Ok(numbers[self.number]),
            _ => Err(invalid(format!("argument {place} is no column of numbers"))),
        }
    }

    /// Raises an error for a text longer than allowed.
    pub fn check_length(self, num_bytes: usize) -> PyResult<()> {
        let most = self.arguments.bytes_max;
        if num_bytes > most {
            return Err(invalid(format!("a text of {num_bytes} bytes, at most {most} are allowed")));
        }
        Ok(())
    }

    /// As `number`, for an optional argument.
    pub fn number_if_given(self, place: usize) -> PyResult<Option<i64>> {
        (place < self.arguments.len()).then(|| self.number(place)).transpose()
    }
}

/// The rows without null arguments; all if `present` is missing.
pub fn checked_present(present: Option<&Input>, num_rows: usize) -> PyResult<Option<&[u8]>> {
    match present.map(Input::bytes) {
        Some(flags) if flags.len() != num_rows => Err(invalid(format!("{} flags for {num_rows} rows", flags.len()))),
        flags => Ok(flags),
    }
}

pub fn is_present(present: Option<&[u8]>, row: usize) -> bool {
    present.is_none_or(|flags| flags[row] != 0)
}

/// Counts work, and regularly checks for Ctrl-C.
#[derive(Default)]
pub struct Patience(usize);

impl Patience {
    pub fn spend(&mut self, num_steps: usize) -> PyResult<()> {
        self.0 = self.0.saturating_add(num_steps);
        if self.0 < STEPS_PER_LOOK {
            return Ok(());
        }
        self.0 = 0;
        Python::attach(|py| py.check_signals())
    }
}
