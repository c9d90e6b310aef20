//! Words, and edit distances of texts.

use super::arguments::{Patience, Row};
use crate::room::{Gather, Grow, NoMemory};
use pyo3::prelude::*;
use std::collections::HashSet;

/// Up to this number of words, a linear search is used.
const FEW_WORDS: usize = 4;

/// Each run of letters and digits with a capital first letter, the others in lower case.
pub fn capitalize(row: Row<'_, '_>, out: &mut Vec<u8>) -> PyResult<()> {
    let text = row.text(0)?;
    let mut is_inside = false;
    if row.is_ascii(0) {
        for &byte in text.as_bytes() {
            out.try_push(if is_inside { byte.to_ascii_lowercase() } else { byte.to_ascii_uppercase() })?;
            is_inside = byte.is_ascii_alphanumeric();
        }
        return Ok(());
    }
    let mut encoded = [0; 4];
    for one in text.chars() {
        match is_inside {
            true => one.to_lowercase().try_for_each(|c| out.try_append(c.encode_utf8(&mut encoded).as_bytes()))?,
            false => one.to_uppercase().try_for_each(|c| out.try_append(c.encode_utf8(&mut encoded).as_bytes()))?,
        }
        is_inside = one.is_alphanumeric();
    }
    Ok(())
}

fn words(text: &str) -> impl Iterator<Item = &str> {
    text.split(|one: char| !one.is_alphanumeric()).filter(|word| !word.is_empty())
}

/// Whether all words of the second text are words of the first.
pub fn has_words(row: Row<'_, '_>, _: &mut Patience) -> PyResult<i64> {
    let (text, wanted) = (row.text(0)?, row.text(1)?);
    let has_all = match words(wanted).nth(FEW_WORDS) {
        None => words(wanted).all(|one| words(text).any(|word| word == one)),
        Some(_) => {
            let mut known: HashSet<&str> = HashSet::new();
            for word in words(text) {
                let size = (known.len() + 1) * size_of::<&str>();
                known.try_reserve(1).map_err(|_| NoMemory(size))?;
                known.insert(word); // room: reserved
            }
            words(wanted).all(|one| known.contains(one))
        }
    };
    Ok(has_all.into())
}

/// Number of characters to insert, drop or replace to turn one text into the other.
pub fn edit_distance(row: Row<'_, '_>, patience: &mut Patience) -> PyResult<i64> {
    let (before, after) = (row.text(0)?, row.text(1)?);
    if row.is_ascii(0) && row.is_ascii(1) {
        return distance(before.as_bytes(), after.as_bytes(), patience);
    }
    let (before, after) = (before.chars().try_vec()?, after.chars().try_vec()?);
    distance(&before, &after, patience)
}

fn distance<T: Copy + PartialEq>(before: &[T], after: &[T], patience: &mut Patience) -> PyResult<i64> {
    let mut costs = (1..=after.len() as u32).try_vec()?;
    let mut last = after.len() as u32;
    for (number, &old) in before.iter().enumerate() {
        let mut diagonal = number as u32;
        let mut left = diagonal + 1;
        for (cost, &new) in costs.iter_mut().zip(after) {
            let changed = diagonal + u32::from(old != new);
            diagonal = *cost;
            left = changed.min(diagonal + 1).min(left + 1);
            *cost = left;
        }
        last = left;
        patience.spend(after.len())?;
    }
    Ok(last.into())
}
