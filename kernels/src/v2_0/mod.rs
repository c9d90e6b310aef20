//! Array encodings of file version 2.0 (spec: encodings 2.0, 5): converts ranges of a page's buffers to Arrow buffers.

pub mod bits;
pub mod codes;
pub mod ends;
pub mod groups;
pub mod inflate;
pub mod symbols;
pub mod whole;

use crate::error::invalid;
use pyo3::prelude::*;

/// Number of values in each of `num_ranges` ranges (a single number applies to all), and their sum.
fn counts_of(counts: &[i64], num_ranges: usize) -> PyResult<(impl Fn(usize) -> usize + '_, usize)> {
    let total = match *counts {
        _ if counts.iter().any(|&count| count < 0) => None,
        [count] => usize::try_from(count).ok().and_then(|count| count.checked_mul(num_ranges)),
        _ if counts.len() == num_ranges => {
            counts.iter().try_fold(0usize, |sum, &count| sum.checked_add(count as usize))
        }
        _ => None,
    };
    let Some(total) = total else {
        return Err(invalid(format!("{} counts do not fit {num_ranges} ranges", counts.len())));
    };
    Ok((move |at: usize| counts[if counts.len() == 1 { 0 } else { at }] as usize, total))
}
