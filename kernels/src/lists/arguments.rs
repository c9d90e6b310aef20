//! Arguments of list functions.

use crate::buffer::Input;
use crate::error::invalid;
use crate::room::{vec_with_capacity, GatherResults, Grow};
use pyo3::prelude::*;
use std::borrow::Cow;

/// As passed by Python: `(offsets, present)` of lists, `(first index, is_literal)` of items, or numbers (i64).
#[derive(FromPyObject)]
pub enum Given<'py> {
    Items(usize, bool),
    Lists(Bound<'py, PyAny>, Option<Bound<'py, PyAny>>),
    Numbers(Bound<'py, PyAny>),
}

/// The memory of an argument.
pub enum Held {
    Lists(Input, Option<Input>),
    Items(usize, bool),
    Numbers(Input),
}

impl Held {
    pub fn new(given: &Given<'_>) -> PyResult<Self> {
        Ok(match given {
            Given::Lists(offsets, present) => {
                Held::Lists(Input::new(offsets)?, present.as_ref().map(Input::new).transpose()?)
            }
            Given::Items(first, is_literal) => Held::Items(*first, *is_literal),
            Given::Numbers(numbers) => Held::Numbers(Input::new(numbers)?),
        })
    }

    pub fn all(given: &[Given<'_>]) -> PyResult<Vec<Self>> {
        given.iter().map(Held::new).try_vec_of()
    }
}

enum Argument<'a> {
    Lists { offsets: Cow<'a, [i64]>, present: Option<&'a [u8]> },
    Items { first: usize, is_literal: bool },
    Numbers(Cow<'a, [i64]>),
}

/// The arguments of a function; all their indexes are checked to be within the pool.
pub struct Arguments<'a> {
    columns: Vec<Argument<'a>>,
    pub num_rows: usize,
    pub num_items: usize,
}

impl<'a> Arguments<'a> {
    /// `pool` is the number of items.
    pub fn new(held: &'a [Held], num_rows: usize, pool: usize) -> PyResult<Self> {
        let mut columns = vec_with_capacity(held.len())?;
        let mut num_items = 0;
        for one in held {
            columns.try_push(match one {
                Held::Lists(offsets, present) => {
                    let offsets = offsets.i64s()?;
                    let present = present.as_ref().map(Input::bytes);
                    let num_lists = offsets.len().checked_sub(1);
                    if num_lists.is_none_or(|found| found != 1 && found != num_rows)
                        || present.is_some_and(|flags| Some(flags.len()) != num_lists)
                    {
                        return Err(invalid(format!("{} offsets of lists for {num_rows} rows", offsets.len())));
                    }
                    let last = offsets[offsets.len() - 1];
                    if offsets[0] < 0 || last as usize > pool || offsets.windows(2).any(|pair| pair[0] > pair[1]) {
                        return Err(invalid(format!("lists do not ascend within {pool} items")));
                    }
                    num_items += (last - offsets[0]) as usize;
                    Argument::Lists { offsets, present }
                }
                Held::Items(first, is_literal) => {
                    let count = if *is_literal { 1 } else { num_rows };
                    if first.checked_add(count).is_none_or(|end| end > pool) {
                        return Err(invalid(format!("{count} items from {first} on, of {pool}")));
                    }
                    num_items += num_rows;
                    Argument::Items { first: *first, is_literal: *is_literal }
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
        Ok(Arguments { columns, num_rows, num_items })
    }

    pub fn len(&self) -> usize {
        self.columns.len()
    }

    /// The indexes of a row: those of its list, or that of its item; `None` for a null list.
    pub fn places(&self, argument: usize, row: usize) -> PyResult<Option<std::ops::Range<usize>>> {
        match self.columns.get(argument) {
            Some(Argument::Lists { offsets, present }) => {
                let at = if offsets.len() == 2 { 0 } else { row };
                let is_there = present.is_none_or(|flags| flags[at] != 0);
                Ok(is_there.then(|| offsets[at] as usize..offsets[at + 1] as usize))
            }
            Some(Argument::Items { first, is_literal }) => {
                let place = if *is_literal { *first } else { first + row };
                Ok(Some(place..place + 1))
            }
            _ => Err(invalid(format!("argument {argument} has no items"))),
        }
    }

    /// The index of a row's item.
    pub fn item(&self, argument: usize, row: usize) -> PyResult<usize> {
        match self.columns.get(argument) {
            Some(Argument::Items { first, is_literal: true }) => Ok(*first),
            Some(Argument::Items { first, is_literal: false }) => Ok(first + row),
            _ => Err(invalid(format!("argument {argument} is no item"))),
        }
    }

    pub fn number(&self, argument: usize, row: usize) -> PyResult<i64> {
        match self.columns.get(argument) {
            Some(Argument::Numbers(numbers)) if numbers.len() == 1 => Ok(numbers[0]),
            Some(Argument::Numbers(numbers)) => Ok(numbers[row]),
            _ => Err(invalid(format!("argument {argument} is no number"))),
        }
    }
}

/// The codes of the pool; none for functions without codes.
pub fn checked_codes<'a>(codes: Option<&'a Input>, pool: usize) -> PyResult<Cow<'a, [i64]>> {
    let codes = codes.map_or(Ok(Cow::Borrowed(&[][..])), Input::i64s)?;
    if !codes.is_empty() && codes.len() != pool {
        return Err(invalid(format!("{} codes for {pool} items", codes.len())));
    }
    Ok(codes)
}
