//! The documents of one token in one partition: blocks of numbers and frequencies, checked once when they are loaded.

use super::positions::Positions;
use crate::buffer::{Input, OwnedBuffer};
use crate::damaged;
use crate::error::{invalid, Checked, Damaged};
use crate::gil;
use crate::room::{vec_with_capacity, zeros, Copied, Grow, Roomy};
use bitpacking::{BitPacker, BitPacker4x, BitPacker8x};
use pyo3::prelude::*;
use std::sync::{Arc, Mutex};

pub const BLOCK_MAX: usize = 256;
const WIDTH_MAX: u8 = 32;
const EXCEPTIONS_MAX: u8 = 31;

/// How the blocks of a partition are stored.
#[derive(Clone, Copy)]
pub struct Form {
    /// Documents of a full block: 128 or 256.
    pub size: usize,
    /// Whether the last, short block has numbers of 32 bits, not varints.
    pub is_fixed: bool,
}

/// A decoded block.
pub struct Block {
    pub docs: [u32; BLOCK_MAX],
    pub freqs: [u32; BLOCK_MAX],
    pub count: usize,
}

impl Block {
    pub fn empty() -> Self {
        Block { docs: [0; BLOCK_MAX], freqs: [0; BLOCK_MAX], count: 0 }
    }
}

/// Bytes that are read from the front.
pub struct Bytes<'a>(pub &'a [u8]);

impl<'a> Bytes<'a> {
    pub fn take(&mut self, count: usize) -> Checked<&'a [u8]> {
        match self.0.split_at_checked(count) {
            Some((head, tail)) => {
                self.0 = tail;
                Ok(head)
            }
            None => damaged!("{count} bytes wanted, {} are left", self.0.len()),
        }
    }

    pub fn byte(&mut self) -> Checked<u8> {
        Ok(self.take(1)?[0])
    }

    pub fn word(&mut self) -> Checked<u32> {
        let bytes = self.take(4)?;
        Ok(u32::from_le_bytes([bytes[0], bytes[1], bytes[2], bytes[3]]))
    }

    pub fn varint(&mut self) -> Checked<u32> {
        let mut value = 0u64;
        for shift in (0..35).step_by(7) {
            let byte = self.byte()?;
            value |= u64::from(byte & 127) << shift;
            if byte < 128 {
                return match u32::try_from(value) {
                    Ok(value) => Ok(value),
                    Err(_) => damaged!("a varint is {value}, beyond 32 bits"),
                };
            }
        }
        damaged!("a varint has more than five bytes")
    }

    /// 128 or 256 values of as many bits as a byte says that stands in front of them.
    fn packed(&mut self, width: u8, values: &mut [u32]) -> Checked<()> {
        if width > WIDTH_MAX {
            return damaged!("values of {width} bits");
        }
        let bytes = self.take(usize::from(width) * values.len() / 8)?;
        match values.len() {
            BitPacker4x::BLOCK_LEN => BitPacker4x::new().decompress(bytes, values, width),
            _ => BitPacker8x::new().decompress(bytes, values, width),
        };
        Ok(())
    }

    /// A byte with the width, and 128 values.
    pub fn group(&mut self, values: &mut [u32]) -> Checked<()> {
        let width = self.byte()?;
        self.packed(width, values)
    }
}

/// Decode one block of `count` documents.
fn decode(bytes: &[u8], form: Form, count: usize, block: &mut Block) -> Checked<()> {
    let mut bytes = Bytes(bytes);
    if form.size == BitPacker4x::BLOCK_LEN {
        bytes.take(4)?; // the largest score, by the statistics of the time
    }
    let (docs, freqs) = (&mut block.docs[..count], &mut block.freqs[..count]);
    if count == form.size {
        let first = bytes.word()?;
        let width = bytes.byte()?;
        bytes.packed(width, docs)?;
        sum_up(docs, first)?;
        let width = bytes.byte()?;
        if form.size == BitPacker4x::BLOCK_LEN {
            bytes.packed(width, freqs)?;
        } else {
            patched(&mut bytes, width, freqs)?;
        }
    } else if form.is_fixed {
        docs.iter_mut().chain(freqs.iter_mut()).try_for_each(|value| bytes.word().map(|word| *value = word))?;
    } else {
        docs.iter_mut().try_for_each(|value| bytes.varint().map(|word| *value = word))?;
        sum_up(docs, 0)?;
        freqs.iter_mut().try_for_each(|value| bytes.varint().map(|word| *value = word))?;
    }
    block.count = count;
    match bytes.0.len() {
        0 => Ok(()),
        left => damaged!("{left} bytes follow the block"),
    }
}

/// Differences to numbers.
pub fn sum_up(values: &mut [u32], first: u32) -> Checked<()> {
    let mut total = u64::from(first);
    for value in values {
        total += u64::from(*value);
        *value = total as u32;
    }
    match total >> 32 {
        0 => Ok(()),
        _ => damaged!("a number of {total}, beyond 32 bits"),
    }
}

/// Low bits, and the high bits of the few values that have more.
fn patched(bytes: &mut Bytes<'_>, width: u8, values: &mut [u32]) -> Checked<()> {
    let exceptions = bytes.byte()?;
    if exceptions > EXCEPTIONS_MAX {
        return damaged!("a block of frequencies with {exceptions} exceptions");
    }
    bytes.packed(width, values)?;
    for _ in 0..exceptions {
        let index = usize::from(bytes.byte()?);
        let high = u64::from(bytes.varint()?) << width;
        match u32::try_from(high) {
            Ok(high) => values[index] |= high,
            Err(_) => return damaged!("a frequency beyond 32 bits"),
        }
    }
    Ok(())
}

/// The largest weights of the blocks, for one average length.
pub struct Bounds {
    average: u32,
    /// Of each block.
    pub blocks: Vec<f32>,
    /// Of all.
    pub most: f32,
}

/// `TermPostings` of `_kernels.pyi`.
#[pyclass(frozen, module = "lance_io._kernels")]
pub struct TermPostings {
    bytes: Vec<u8>,
    /// Ends of the blocks, with a 0 in front.
    ends: Vec<usize>,
    pub num_docs: usize,
    pub form: Form,
    /// First and last document of each block.
    pub firsts: Vec<u32>,
    pub lasts: Vec<u32>,
    pub positions: Option<Positions>,
    bounds: Mutex<Option<Arc<Bounds>>>,
}

impl TermPostings {
    pub fn num_blocks(&self) -> usize {
        self.lasts.len()
    }

    /// Documents of a block.
    fn count(&self, number: usize) -> usize {
        self.form.size.min(self.num_docs - number * self.form.size)
    }

    pub fn block(&self, number: usize, block: &mut Block) -> Checked<()> {
        let bytes = &self.bytes[self.ends[number]..self.ends[number + 1]];
        decode(bytes, self.form, self.count(number), block).map_err(|fault| fault.within(&format!("block {number}")))
    }

    /// Decode every block once, and check what later reads rely on.
    fn check(&mut self, end: u32) -> Checked<()> {
        let mut block = Block::empty();
        let mut next = 0u32;
        for number in 0..self.ends.len() - 1 {
            self.block(number, &mut block)?;
            let (docs, freqs) = (&block.docs[..block.count], &block.freqs[..block.count]);
            if docs[0] < next || docs.windows(2).any(|pair| pair[0] >= pair[1]) {
                return damaged!("block {number}: documents do not ascend");
            }
            if docs[docs.len() - 1] >= end {
                return damaged!("block {number}: document {} of {end}", docs[docs.len() - 1]);
            }
            if freqs.contains(&0) {
                return damaged!("block {number}: a frequency of 0");
            }
            next = docs[docs.len() - 1] + 1;
            self.firsts.try_push(docs[0])?;
            self.lasts.try_push(docs[docs.len() - 1])?;
        }
        Ok(())
    }

    /// Upper bounds of the weights, computed the first time, and when the average changes.
    pub fn bounds(&self, norms: &Norms<'_>) -> Checked<Arc<Bounds>> {
        let mut kept = match self.bounds.lock() {
            Ok(kept) => kept,
            Err(poisoned) => poisoned.into_inner(),
        };
        let average = norms.average.to_bits();
        if let Some(bounds) = kept.as_ref().filter(|bounds| bounds.average == average) {
            return Ok(Arc::clone(bounds));
        }
        let (mut block, mut weights) = (Block::empty(), [0f32; BLOCK_MAX]);
        let mut bounds = Bounds { average, blocks: Vec::new(), most: 0.0 };
        for number in 0..self.num_blocks() {
            self.block(number, &mut block)?;
            norms.weights(&block.docs[..block.count], &block.freqs[..block.count], &mut weights);
            weights[block.count..].fill(0.0);
            let most = largest(&weights);
            bounds.blocks.try_push(most)?;
            bounds.most = bounds.most.max(most);
        }
        let bounds = Arc::new(bounds);
        *kept = Some(Arc::clone(&bounds));
        Ok(bounds)
    }
}

/// The largest weight, in lanes, because one comparison does not wait for another then.
fn largest(weights: &[f32; BLOCK_MAX]) -> f32 {
    let mut lanes = [0f32; 8];
    for chunk in weights.as_chunks::<8>().0 {
        for (most, &weight) in lanes.iter_mut().zip(chunk) {
            *most = if weight > *most { weight } else { *most };
        }
    }
    lanes.into_iter().fold(0.0, f32::max)
}

/// Lengths of a partition's documents, for weights.
pub struct Norms<'a> {
    pub lengths: &'a [u32],
    pub average: f32,
    /// Whether lengths are rounded down to four significant bits.
    pub is_floored: bool,
}

impl Norms<'_> {
    /// Weight of a token in a document, without the token's own factor.
    #[inline]
    pub fn weight(&self, doc: u32, freq: u32) -> f32 {
        self.weight_by_length(freq as f32, self.length(doc))
    }

    /// The same of some documents, which takes less time than one by one.
    #[inline]
    pub fn weights(&self, docs: &[u32], freqs: &[u32], weights: &mut [f32]) {
        for (weight, &doc) in weights.iter_mut().zip(docs) {
            *weight = self.length(doc);
        }
        for (weight, &freq) in weights.iter_mut().zip(freqs) {
            *weight = self.weight_by_length(freq as f32, *weight);
        }
    }

    #[inline]
    fn length(&self, doc: u32) -> f32 {
        let mut length = self.lengths[doc as usize];
        if self.is_floored {
            let bits = 32 - length.leading_zeros();
            length &= !0u32 << bits.saturating_sub(4);
        }
        length as f32
    }

    #[inline]
    fn weight_by_length(&self, freq: f32, length: f32) -> f32 {
        let norm = 1.2f32 * (0.25f32 + 0.75f32 * length / self.average);
        2.2f32 * freq / (freq + norm)
    }
}

/// Values of little-endian bytes of any alignment.
pub fn words(bytes: &[u8]) -> Roomy<std::borrow::Cow<'_, [u32]>> {
    match bytemuck::try_cast_slice::<u8, u32>(bytes) {
        Ok(values) => Ok(std::borrow::Cow::Borrowed(values)),
        Err(_) => Ok(std::borrow::Cow::Owned(crate::room::copied(bytes)?)),
    }
}

#[pymethods]
impl TermPostings {
    #[new]
    #[pyo3(signature = (data, offsets, num_docs, num_docs_of_partition, size, is_fixed, positions, position_offsets,
        position_documents, /))]
    #[allow(clippy::too_many_arguments)]
    fn new(
        py: Python<'_>,
        data: &Bound<'_, PyAny>,
        offsets: &Bound<'_, PyAny>,
        num_docs: usize,
        num_docs_of_partition: u32,
        size: usize,
        is_fixed: bool,
        positions: Option<&Bound<'_, PyAny>>,
        position_offsets: Option<&Bound<'_, PyAny>>,
        position_documents: Option<&Bound<'_, PyAny>>,
    ) -> PyResult<Self> {
        if size != BitPacker4x::BLOCK_LEN && size != BitPacker8x::BLOCK_LEN {
            return Err(invalid(format!("blocks of {size} documents")));
        }
        let (data, offsets) = (Input::new(data)?, Input::new(offsets)?);
        let (ends, start) = relative(&offsets.i64s()?, data.bytes().len())?;
        if ends.len() - 1 != num_docs.div_ceil(size) {
            let text = format!("{num_docs} documents in {} blocks of {size}", ends.len() - 1);
            return Err(Damaged(text).into());
        }
        let bytes = data.bytes()[start..start + ends[ends.len() - 1]].try_to_vec()?;
        let mut postings = TermPostings {
            bytes,
            ends,
            num_docs,
            form: Form { size, is_fixed },
            firsts: Vec::new(),
            lasts: Vec::new(),
            positions: None,
            bounds: Mutex::new(None),
        };
        gil::release(py, num_docs, || postings.check(num_docs_of_partition))?;
        if let (Some(stream), Some(offsets)) = (positions, position_offsets) {
            let (stream, offsets) = (Input::new(stream)?, Input::new(offsets)?);
            let offsets = offsets.i64s()?;
            postings.positions = Some(match position_documents {
                None => Positions::streams(stream.bytes(), &offsets, &postings)?,
                Some(documents) => {
                    let documents = Input::new(documents)?;
                    Positions::listed(stream.bytes(), &offsets, &documents.i64s()?, &postings)?
                }
            });
        }
        Ok(postings)
    }

    /// `TermPostings.documents` of `_kernels.pyi`.
    fn documents(&self, py: Python<'_>) -> PyResult<(OwnedBuffer, OwnedBuffer)> {
        let (docs, freqs) = gil::release(py, self.num_docs, || {
            let (mut docs, mut freqs) = (vec_with_capacity(self.num_docs)?, vec_with_capacity(self.num_docs)?);
            let mut block = Block::empty();
            for number in 0..self.num_blocks() {
                self.block(number, &mut block)?;
                docs.try_extend(block.docs[..block.count].iter().map(|&doc| i64::from(doc)))?;
                freqs.try_extend(block.freqs[..block.count].iter().map(|&freq| freq as i32))?;
            }
            Checked::Ok((docs, freqs))
        })?;
        Ok((docs.into(), freqs.into()))
    }

    /// Number of documents.
    #[getter]
    fn num_docs(&self) -> usize {
        self.num_docs
    }

    /// Memory, in bytes.
    #[getter]
    fn nbytes(&self) -> usize {
        let positions = self.positions.as_ref().map_or(0, Positions::nbytes);
        256 + self.bytes.len() + self.lasts.len() * 24 + positions
    }
}

/// Ends of the pieces that offsets name, from the first of them on, and where that is.
pub fn relative(offsets: &[i64], num_bytes: usize) -> PyResult<(Vec<usize>, usize)> {
    let Some(&first) = offsets.first() else { return Err(invalid("no offsets")) };
    let is_inside = first >= 0 && offsets[offsets.len() - 1] as usize <= num_bytes;
    if !is_inside || offsets.windows(2).any(|pair| pair[0] > pair[1]) {
        return Err(invalid("offsets outside of the bytes"));
    }
    let mut ends = zeros::<usize>(offsets.len())?;
    ends.iter_mut().zip(offsets).for_each(|(end, &offset)| *end = (offset - first) as usize);
    Ok((ends, first as usize))
}
