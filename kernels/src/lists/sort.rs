//! Sorts the items within a list.

use crate::buffer::Input;
use crate::error::invalid;
use crate::text::arguments::{Argument, Arguments, Held, Texts};
use pyo3::prelude::*;
use std::cmp::Ordering;

enum Values<'a> {
    Numbers(&'a [i64]),
    Texts(&'a Texts<'a>),
}

/// The sort keys of items: numbers, or byte strings.
pub struct Keys<'a> {
    values: Argument<'a>,
    valid: Option<&'a [u8]>,
    descending: bool,
    nulls_first: bool,
}

impl<'a> Keys<'a> {
    pub fn new(
        held: &'a [Held; 1],
        valid: Option<&'a Input>,
        pool: usize,
        descending: bool,
        nulls_first: bool,
    ) -> PyResult<Self> {
        let values = Arguments::new(held, pool)?.into_only()?;
        let valid = valid.map(Input::bytes);
        if valid.is_some_and(|flags| flags.len() != pool) {
            return Err(invalid(format!("expected {pool} flags of items")));
        }
        let enough = match &values {
            Argument::Numbers(numbers) => numbers.len() == pool,
            Argument::Texts(texts) => pool == 0 || texts.covers(pool),
        };
        if !enough {
            return Err(invalid(format!("there is no key for each of {pool} items")));
        }
        Ok(Keys { values, valid, descending, nulls_first })
    }

    fn values(&self) -> Values<'_> {
        match &self.values {
            Argument::Numbers(numbers) => Values::Numbers(numbers),
            Argument::Texts(texts) => Values::Texts(texts),
        }
    }

    pub fn is_valid(&self, place: i64) -> bool {
        self.valid.is_none_or(|flags| flags[place as usize] != 0)
    }

    pub fn compare(&self, a: i64, b: i64) -> Ordering {
        if self.valid.is_some() {
            let (a, b) = (self.is_valid(a), self.is_valid(b));
            if !a || !b {
                return if self.nulls_first { a.cmp(&b) } else { b.cmp(&a) };
            }
        }
        let (a, b) = (a as usize, b as usize);
        let found = match self.values() {
            Values::Numbers(numbers) => numbers[a].cmp(&numbers[b]),
            Values::Texts(texts) => texts.bytes(a).unwrap_or_default().cmp(texts.bytes(b).unwrap_or_default()),
        };
        if self.descending {
            found.reverse()
        } else {
            found
        }
    }

    pub fn order(&self, places: &mut [i64]) {
        places.sort_unstable_by(|a, b| self.compare(*a, *b).then(a.cmp(b))); // a stable sort needs memory
    }
}
