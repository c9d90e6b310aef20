//! Finds the distinct values of a page in the order of appearance, and the index of every value (spec: encodings, 3.5).
//!
//! Most pages do not benefit from a dictionary. A sample of values across the page rules out those with many distinct
//! values, and building stops as soon as the dictionary exceeds its possible savings.

use crate::buffer::{Input, OwnedBuffer};
use crate::encode::bitpack::words;
use crate::encode::variable::{offsets, Offset};
use crate::error::invalid;
use crate::gil;
use crate::room::{filled, vec_with_capacity, Gather, Grow, Roomy};
use pyo3::prelude::*;

/// Size of the sample: blocks of neighbours, spread evenly.
const PROBE_VALUES: usize = 4096;
const PROBE_BLOCKS: usize = 32;
/// Below this number of values, sampling would be most of the work.
const PROBE_VALUES_MIN: usize = 1024;
/// Above this share of distinct values in the sample, all values count as distinct.
const DISTINCT_SHARE_MAX: f64 = 0.98;

/// Limits of a dictionary.
#[derive(Clone, Copy)]
struct Budget {
    items: usize,
    bytes: usize,
}

/// `distinct_variable` of `_kernels.pyi`.
#[pyfunction]
#[pyo3(signature = (raw_offsets, data, wide, num_values, items_max, bytes_max, /))]
pub fn distinct_variable(
    py: Python<'_>,
    raw_offsets: &Bound<'_, PyAny>,
    data: &Bound<'_, PyAny>,
    wide: bool,
    num_values: usize,
    items_max: usize,
    bytes_max: usize,
) -> PyResult<Option<(OwnedBuffer, OwnedBuffer, OwnedBuffer)>> {
    let (raw_offsets, data) = (Input::new(raw_offsets)?, Input::new(data)?);
    let (raw_offsets, data) = (raw_offsets.bytes(), data.bytes());
    let budget = Budget { items: items_max, bytes: bytes_max };
    Ok(match wide {
        false => {
            let keys = Strings { offsets: &offsets::<u32>(raw_offsets, data, num_values)?, data };
            let found = gil::release(py, num_values, || copied(&keys, num_values, budget))?;
            let found = found.map(|(indices, ends, bytes)| {
                let ends: Vec<i32> = ends.into_iter().map(|end| end as i32).try_vec()?;
                Roomy::Ok((indices.into(), ends.into(), bytes.into()))
            });
            found.transpose()?
        }
        true => {
            let keys = Strings { offsets: &offsets::<u64>(raw_offsets, data, num_values)?, data };
            let found = gil::release(py, num_values, || copied(&keys, num_values, budget))?;
            found.map(|(indices, ends, bytes)| (indices.into(), ends.into(), bytes.into()))
        }
    })
}

/// `distinct_fixed` of `_kernels.pyi`.
#[pyfunction]
#[pyo3(signature = (data, bits, num_values, items_max, bytes_max, /))]
pub fn distinct_fixed(
    py: Python<'_>,
    data: &Bound<'_, PyAny>,
    bits: usize,
    num_values: usize,
    items_max: usize,
    bytes_max: usize,
) -> PyResult<Option<(OwnedBuffer, OwnedBuffer)>> {
    let input = Input::new(data)?;
    let budget = Budget { items: items_max, bytes: bytes_max };
    let found = match bits {
        64 => {
            let keys = Words(&words::<u64>(input.bytes(), num_values)?);
            gil::release(py, num_values, || copied(&keys, num_values, budget))?
        }
        128 => {
            let halves = words::<u64>(input.bytes(), 2 * num_values)?;
            let keys = Pairs(bytemuck::cast_slice(&halves));
            gil::release(py, num_values, || copied(&keys, num_values, budget))?
        }
        bits => return Err(invalid(format!("dictionaries of {bits}-bit values are not made"))),
    };
    Ok(found.map(|(indices, _, bytes)| (indices.into(), bytes.into())))
}

/// Whether values of variable width have a dictionary within these limits, as in `distinct_variable`.
pub fn has_variable<T: Offset>(offsets: &[T], data: &[u8], items: usize, bytes: usize) -> Roomy<bool> {
    let num_values = offsets.len().saturating_sub(1);
    Ok(distinct(&Strings { offsets, data }, num_values, Budget { items, bytes })?.is_some())
}

/// As `has_variable`, for words of 64 bits.
pub fn has_words(values: &[u64], items: usize, bytes: usize) -> Roomy<bool> {
    Ok(distinct(&Words(values), values.len(), Budget { items, bytes })?.is_some())
}

/// Values that can be compared.
trait Keys {
    type Key<'a>: PartialEq
    where
        Self: 'a;
    fn get(&self, index: usize) -> Self::Key<'_>;
    fn hash(key: &Self::Key<'_>) -> u64;
    /// Bytes that a key adds to a dictionary, including its offset.
    fn num_bytes(key: &Self::Key<'_>) -> usize;
    fn put(key: &Self::Key<'_>, out: &mut Vec<u8>) -> Roomy<()>;
}

struct Strings<'a, T> {
    offsets: &'a [T],
    data: &'a [u8],
}

/// A value with its first 8 bytes as a word: the word decides most comparisons without a look at the bytes.
struct Text<'a> {
    bytes: &'a [u8],
    head: u64,
}

impl PartialEq for Text<'_> {
    #[inline(always)]
    fn eq(&self, other: &Self) -> bool {
        let (length, same_head) = (self.bytes.len(), self.head == other.head);
        length == other.bytes.len() && same_head && (length <= 8 || self.bytes[8..] == other.bytes[8..])
    }
}

impl<T: Offset> Keys for Strings<'_, T> {
    type Key<'a>
        = Text<'a>
    where
        Self: 'a;

    #[inline(always)]
    fn get(&self, index: usize) -> Text<'_> {
        let (start, end) = (self.offsets[index].to_usize(), self.offsets[index + 1].to_usize());
        let head = match self.data.get(start..start + 8) {
            // The bytes after a short value are masked.
            Some(head) => word(head) & prefix_mask(end - start),
            None => tail_word(&self.data[start..end]),
        };
        Text { bytes: &self.data[start..end], head }
    }

    #[inline(always)]
    fn hash(key: &Text<'_>) -> u64 {
        let hash = mix(key.bytes.len() as u64, key.head);
        match key.bytes.get(8..) {
            None | Some([]) => hash,
            Some(rest) => hash_rest(hash, rest),
        }
    }

    fn num_bytes(key: &Text<'_>) -> usize {
        key.bytes.len() + size_of::<T>()
    }

    fn put(key: &Text<'_>, out: &mut Vec<u8>) -> Roomy<()> {
        out.try_append(key.bytes)
    }
}

#[inline(always)]
fn word(bytes: &[u8]) -> u64 {
    u64::from_le_bytes(bytes.try_into().unwrap_or_default())
}

/// A mask of the first `length` bytes of a word, of all 8 for larger lengths.
#[inline(always)]
fn prefix_mask(length: usize) -> u64 {
    match length {
        0 => 0,
        _ => u64::MAX >> (64 - 8 * length.min(8)),
    }
}

/// Up to 8 bytes as a word, the missing ones 0.
fn tail_word(bytes: &[u8]) -> u64 {
    let mut word = [0; 8];
    let count = bytes.len().min(8);
    word[..count].copy_from_slice(&bytes[..count]);
    u64::from_le_bytes(word)
}

fn hash_rest(hash: u64, bytes: &[u8]) -> u64 {
    let (words, rest) = bytes.as_chunks::<8>();
    let hash = words.iter().fold(hash, |hash, word| mix(hash, u64::from_le_bytes(*word)));
    mix(hash, tail_word(rest))
}

struct Words<'a>(&'a [u64]);

impl Keys for Words<'_> {
    type Key<'a>
        = u64
    where
        Self: 'a;

    #[inline(always)]
    fn get(&self, index: usize) -> u64 {
        self.0[index]
    }

    fn hash(key: &u64) -> u64 {
        mix(0, *key)
    }

    fn num_bytes(_: &u64) -> usize {
        8
    }

    fn put(key: &u64, out: &mut Vec<u8>) -> Roomy<()> {
        out.try_append(&key.to_le_bytes())
    }
}

struct Pairs<'a>(&'a [[u64; 2]]);

impl Keys for Pairs<'_> {
    type Key<'a>
        = [u64; 2]
    where
        Self: 'a;

    #[inline(always)]
    fn get(&self, index: usize) -> [u64; 2] {
        self.0[index]
    }

    fn hash(key: &[u64; 2]) -> u64 {
        mix(mix(0, key[0]), key[1])
    }

    fn num_bytes(_: &[u64; 2]) -> usize {
        16
    }

    fn put(key: &[u64; 2], out: &mut Vec<u8>) -> Roomy<()> {
        out.try_append(bytemuck::cast_slice(key))
    }
}

/// Multiply to twice the width and fold: every bit of the word affects many bits of the hash.
#[inline(always)]
fn mix(hash: u64, word: u64) -> u64 {
    const ODD: u64 = 0x9E37_79B9_7F4A_7C15;
    let product = ((hash ^ word).wrapping_add(ODD) as u128) * (ODD ^ 0x6A09_E667_F3BC_C909) as u128;
    product as u64 ^ (product >> 64) as u64
}

/// Indices, ends of the items and their bytes.
type Copied = (Vec<i32>, Vec<i64>, Vec<u8>);

/// The first value with each item of the dictionary, and the item of every value.
struct Distinct {
    firsts: Vec<u32>,
    indices: Vec<i32>,
    num_bytes: usize,
}

impl Distinct {
    /// Indices, ends of the items and their bytes.
    fn copy<K: Keys>(self, keys: &K) -> Roomy<Copied> {
        let mut bytes = vec_with_capacity(self.num_bytes)?;
        let mut ends = vec_with_capacity(self.firsts.len() + 1)?;
        ends.try_push(0)?;
        for first in self.firsts {
            K::put(&keys.get(first as usize), &mut bytes)?;
            ends.try_push(bytes.len() as i64)?;
        }
        Ok((self.indices, ends, bytes))
    }
}

/// The dictionary of a page, copied from its values.
fn copied<K: Keys>(keys: &K, num_values: usize, budget: Budget) -> Roomy<Option<Copied>> {
    distinct(keys, num_values, budget)?.map(|found| found.copy(keys)).transpose()
}

fn distinct<K: Keys>(keys: &K, num_values: usize, budget: Budget) -> Roomy<Option<Distinct>> {
    if !probe(keys, num_values, budget)? {
        return Ok(None);
    }
    let mut table = Table::new(keys, budget.items.min(num_values))?;
    let mut indices = vec_with_capacity(num_values)?;
    for index in 0..num_values {
        indices.push(table.item(index)? as i32); // room: reserved
        if table.firsts.len() > budget.items || table.num_bytes > budget.bytes {
            return Ok(None);
        }
    }
    Ok(Some(Distinct { firsts: table.firsts, indices, num_bytes: table.num_bytes }))
}

/// Estimate from a sample whether a dictionary is within its budget.
fn probe<K: Keys>(keys: &K, num_values: usize, budget: Budget) -> Roomy<bool> {
    let sampled = num_values.min(PROBE_VALUES);
    if sampled < PROBE_VALUES_MIN {
        return Ok(true);
    }
    let mut table = Table::new(keys, sampled)?;
    let block = sampled / PROBE_BLOCKS;
    for number in 0..PROBE_BLOCKS {
        let start = number * (num_values - block) / (PROBE_BLOCKS - 1);
        (start..start + block).try_for_each(|index| table.item(index).map(drop))?;
    }
    let (seen, probed) = (table.firsts.len() as f64, (block * PROBE_BLOCKS) as f64);
    Ok(seen / probed < DISTINCT_SHARE_MAX && estimate(seen, probed) <= budget.items as f64)
}

/// Estimate the number of distinct, equally frequent values, of which `seen` appeared in `probed` draws.
///
/// Of `n` values, `n * (1 - exp(-probed / n))` are expected. That grows with `n`, so bisection solves it.
fn estimate(seen: f64, probed: f64) -> f64 {
    let (mut low, mut high) = (seen, seen * 1e6);
    for _ in 0..60 {
        let middle = (low + high) / 2.0;
        match middle * (1.0 - (-probed / middle).exp()) < seen {
            true => low = middle,
            false => high = middle,
        }
    }
    low
}

/// An open-addressing hash table of items: a slot holds the item's number plus 1, and half of its hash.
struct Table<'k, K> {
    keys: &'k K,
    slots: Vec<(u32, u32)>,
    firsts: Vec<u32>,
    num_bytes: usize,
}

impl<'k, K: Keys> Table<'k, K> {
    /// Start with room for a few items and grow on demand.
    fn new(keys: &'k K, items_max: usize) -> Roomy<Self> {
        let slots = (2 * items_max.clamp(8, 512)).next_power_of_two();
        Ok(Table { keys, slots: filled((0, 0), slots)?, firsts: Vec::new(), num_bytes: 0 })
    }

    /// The item of value `index`; adds a new item for an unseen value.
    #[inline(always)]
    fn item(&mut self, index: usize) -> Roomy<u32> {
        let key = self.keys.get(index);
        let hash = K::hash(&key);
        let (tag, mask) = ((hash >> 32) as u32, self.slots.len() - 1);
        let mut at = hash as usize & mask;
        loop {
            let (number, found) = self.slots[at];
            if number == 0 {
                return self.add(index, at, tag);
            }
            if found == tag && self.keys.get(self.firsts[number as usize - 1] as usize) == key {
                return Ok(number - 1);
            }
            at = (at + 1) & mask;
        }
    }

    /// Separate from `item`, whose common case is an existing item.
    #[inline(never)]
    fn add(&mut self, index: usize, at: usize, tag: u32) -> Roomy<u32> {
        self.num_bytes += K::num_bytes(&self.keys.get(index));
        self.firsts.try_push(index as u32)?;
        self.slots[at] = (self.firsts.len() as u32, tag);
        if self.firsts.len() * 2 > self.slots.len() {
            self.grow()?;
        }
        Ok(self.firsts.len() as u32 - 1)
    }

    fn grow(&mut self) -> Roomy<()> {
        let mask = self.slots.len() * 4 - 1;
        let mut slots = filled((0, 0), mask + 1)?;
        for (number, &first) in self.firsts.iter().enumerate() {
            let hash = K::hash(&self.keys.get(first as usize));
            let mut at = hash as usize & mask;
            while slots[at].0 != 0 {
                at = (at + 1) & mask;
            }
            slots[at] = (number as u32 + 1, (hash >> 32) as u32);
        }
        self.slots = slots;
        Ok(())
    }
}
