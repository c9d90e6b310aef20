//! Lists as sets: distinct items in order of appearance.

use super::arguments::Arguments;
use crate::room::{Grow, NoMemory, Roomy};
use pyo3::prelude::*;
use std::collections::HashSet;
use std::ops::Range;

/// Up to this number of items, a linear search is used.
const FEW_ITEMS: usize = 24;

/// Whether a code is among those of some indexes.
enum Members<'a> {
    Few(&'a [i64]),
    Many(HashSet<i64>),
}

impl<'a> Members<'a> {
    fn of(codes: &'a [i64], places: Range<usize>) -> Roomy<Self> {
        if places.len() <= FEW_ITEMS {
            return Ok(Members::Few(&codes[places]));
        }
        let mut members = HashSet::new();
        for &code in &codes[places] {
            add(&mut members, code)?;
        }
        Ok(Members::Many(members))
    }

    fn has(&self, code: i64) -> bool {
        match self {
            Members::Few(codes) => codes.contains(&code),
            Members::Many(codes) => codes.contains(&code),
        }
    }
}

/// Whether a code is new to a set.
fn add(seen: &mut HashSet<i64>, code: i64) -> Roomy<bool> {
    let size = (seen.len() + 1) * size_of::<i64>();
    seen.try_reserve(1).map_err(|_| NoMemory(size))?;
    Ok(seen.insert(code)) // room: reserved
}

/// Append the indexes whose codes are wanted, and are not yet in the output since `begin`.
fn put(
    codes: &[i64],
    places: impl Iterator<Item = usize>,
    most: usize,
    wanted: impl Fn(i64) -> bool,
    out: &mut Vec<i64>,
) -> PyResult<bool> {
    let begin = out.len();
    let mut seen = (most > FEW_ITEMS).then(HashSet::new);
    for place in places {
        let code = codes[place];
        if !wanted(code) {
            continue;
        }
        let is_new = match &mut seen {
            Some(seen) => add(seen, code)?,
            None => out[begin..].iter().all(|&other| codes[other as usize] != code),
        };
        if is_new {
            out.try_push(place as i64)?;
        }
    }
    Ok(true)
}

pub fn distinct(arguments: &Arguments<'_>, codes: &[i64], row: usize, out: &mut Vec<i64>) -> PyResult<bool> {
    match arguments.places(0, row)? {
        Some(places) => put(codes, places.start..places.end, places.len(), |_| true, out),
        None => Ok(false),
    }
}

fn both(arguments: &Arguments<'_>, row: usize) -> PyResult<Option<(Range<usize>, Range<usize>)>> {
    Ok(arguments.places(0, row)?.zip(arguments.places(1, row)?))
}

pub fn union(arguments: &Arguments<'_>, codes: &[i64], row: usize, out: &mut Vec<i64>) -> PyResult<bool> {
    let Some((ours, theirs)) = both(arguments, row)? else {
        return Ok(false);
    };
    let most = ours.len() + theirs.len();
    put(codes, ours.chain(theirs), most, |_| true, out)
}

/// In the order of the longer list; of the first if both are equally long.
pub fn intersect(arguments: &Arguments<'_>, codes: &[i64], row: usize, out: &mut Vec<i64>) -> PyResult<bool> {
    let Some((ours, theirs)) = both(arguments, row)? else {
        return Ok(false);
    };
    let (shorter, longer) = if ours.len() < theirs.len() { (ours, theirs) } else { (theirs, ours) };
    let (members, most) = (Members::of(codes, shorter.start..shorter.end)?, shorter.len());
    put(codes, longer, most, |code| members.has(code), out)
}

pub fn except(arguments: &Arguments<'_>, codes: &[i64], row: usize, out: &mut Vec<i64>) -> PyResult<bool> {
    let Some((ours, theirs)) = both(arguments, row)? else {
        return Ok(false);
    };
    let (members, most) = (Members::of(codes, theirs)?, ours.len());
    put(codes, ours, most, |code| !members.has(code), out)
}
