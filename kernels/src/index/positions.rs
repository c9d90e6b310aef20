//! Where a token stands in its documents: positions as differences, block by block.

use super::postings::{relative, sum_up, Block, Bytes, TermPostings};
use crate::damaged;
use crate::error::{Checked, Damaged};
use crate::room::{zeros, Copied, Grow};
use pyo3::prelude::*;

const GROUP: usize = 128;

/// Positions in a token's documents.
pub enum Positions {
    /// A stream for each block; `ends` has a 0 in front.
    Streams { bytes: Vec<u8>, ends: Vec<usize> },
    /// Those of each document, decoded; blocks have `size` documents, and `ends` has a 0 in front.
    Listed { values: Vec<u32>, ends: Vec<usize>, size: usize },
}

impl Positions {
    /// Streams of a token's blocks; each is decoded once, to check it.
    pub fn streams(bytes: &[u8], offsets: &[i64], postings: &TermPostings) -> PyResult<Self> {
        if offsets.len() != postings.num_blocks() + 1 {
            let text =
                format!("position streams of {} blocks, of {}", offsets.len().wrapping_sub(1), postings.num_blocks());
            return Err(Damaged(text).into());
        }
        let is_inside = offsets[0] == 0 && offsets[offsets.len() - 1] as usize == bytes.len();
        if !is_inside || offsets.windows(2).any(|pair| pair[0] > pair[1]) {
            return Err(Damaged("position streams outside of their bytes".into()).into());
        }
        let mut ends = zeros::<usize>(offsets.len())?;
        ends.iter_mut().zip(offsets).for_each(|(end, &offset)| *end = offset as usize);
        let positions = Positions::Streams { bytes: bytes.try_to_vec()?, ends };
        let (mut block, mut decoded) = (Block::empty(), BlockPositions::default());
        for number in 0..postings.num_blocks() {
            postings.block(number, &mut block)?;
            positions.decode(number, &block, &mut decoded)?;
        }
        Ok(positions)
    }

    /// Pieces of each document: the number of positions, groups of 128, the others as 32 bits.
    pub fn listed(bytes: &[u8], offsets: &[i64], documents: &[i64], postings: &TermPostings) -> PyResult<Self> {
        let (pieces, start) = relative(offsets, bytes.len())?;
        let (of_documents, first) = relative(documents, pieces.len() - 1)?;
        if of_documents.len() != postings.num_docs + 1 {
            let text = format!("positions of {} documents, of {}", of_documents.len() - 1, postings.num_docs);
            return Err(Damaged(text).into());
        }
        let bytes = &bytes[start..];
        let (mut values, mut ends) = (Vec::new(), Vec::new());
        ends.try_push(0)?;
        let mut block = Block::empty();
        for number in 0..postings.num_blocks() {
            postings.block(number, &mut block)?;
            for (at, &freq) in block.freqs[..block.count].iter().enumerate() {
                let document = number * postings.form.size + at;
                let pieces = &pieces[first + of_documents[document]..=first + of_documents[document + 1]];
                list(bytes, pieces, freq, &mut values)
                    .map_err(|fault| fault.within(&format!("positions of document {document}")))?;
                ends.try_push(values.len())?;
            }
        }
        Ok(Positions::Listed { values, ends, size: postings.form.size })
    }

    pub fn nbytes(&self) -> usize {
        match self {
            Positions::Streams { bytes, ends } => bytes.len() + ends.len() * 8,
            Positions::Listed { values, ends, .. } => values.len() * 4 + ends.len() * 8,
        }
    }

    /// The positions of the documents of a block.
    pub fn decode(&self, number: usize, block: &Block, decoded: &mut BlockPositions) -> Checked<()> {
        match self {
            Positions::Streams { bytes, ends } => {
                stream(&bytes[ends[number]..ends[number + 1]], &block.freqs[..block.count], decoded)
                    .map_err(|fault| fault.within(&format!("positions of block {number}")))
            }
            Positions::Listed { values, ends, size } => {
                let ends = &ends[number * size..=number * size + block.count];
                decoded.values.clear();
                decoded.values.try_append(&values[ends[0]..ends[block.count]])?;
                decoded.ends.clear();
                decoded.ends.try_extend(ends.iter().map(|end| end - ends[0]))?;
                Ok(())
            }
        }
    }
}

/// Decode the stream of a block whose documents have these frequencies.
fn stream(bytes: &[u8], freqs: &[u32], decoded: &mut BlockPositions) -> Checked<()> {
    let mut bytes = Bytes(bytes);
    let total: u64 = freqs.iter().map(|&freq| u64::from(freq)).sum();
    if total > GROUP as u64 * (bytes.0.len() as u64 + 1) {
        return damaged!("{total} positions in {} bytes", bytes.0.len());
    }
    let total = total as usize;
    decoded.values.clear();
    decoded.values.try_resize(total, 0)?;
    let (groups, rest) = decoded.values.split_at_mut(total / GROUP * GROUP);
    groups.chunks_exact_mut(GROUP).try_for_each(|group| bytes.group(group))?;
    rest.iter_mut().try_for_each(|value| bytes.varint().map(|read| *value = read))?;
    if !bytes.0.is_empty() {
        return damaged!("{} bytes are left", bytes.0.len());
    }
    decoded.ends.clear();
    decoded.ends.try_push(0)?;
    let mut start = 0;
    for &freq in freqs {
        let end = start + freq as usize;
        sum_up(&mut decoded.values[start..end], 0)?;
        decoded.ends.try_push(end)?;
        start = end;
    }
    Ok(())
}

/// The `freq` positions of a document, from pieces with these ends.
fn list(bytes: &[u8], pieces: &[usize], freq: u32, values: &mut Vec<u32>) -> Checked<()> {
    let [head, mid, ..] = *pieces else { return damaged!("no pieces") };
    let count = Bytes(&bytes[head..mid]).word()?;
    let mut rest = Bytes(&bytes[mid..pieces[pieces.len() - 1]]);
    if count != freq || freq as usize > GROUP * (rest.0.len() + 1) {
        return damaged!("{count} positions in {} bytes, of a token that stands there {freq} times", rest.0.len());
    }
    let start = values.len();
    values.try_resize(start + count as usize, 0)?;
    let (groups, others) = values[start..].split_at_mut(count as usize / GROUP * GROUP);
    for group in groups.chunks_exact_mut(GROUP) {
        let first = rest.word()?;
        rest.group(group)?;
        sum_up(group, first)?;
    }
    others.iter_mut().try_for_each(|value| rest.word().map(|read| *value = read))?;
    match rest.0.is_empty() && values[start..].windows(2).all(|pair| pair[0] <= pair[1]) {
        true => Ok(()),
        false => damaged!("positions that do not ascend, or {} bytes too many", rest.0.len()),
    }
}

/// Decoded positions of the documents of a block.
#[derive(Default)]
pub struct BlockPositions {
    values: Vec<u32>,
    ends: Vec<usize>,
}

impl BlockPositions {
    /// Those of one of its documents, ascending.
    pub fn of(&self, document: usize) -> &[u32] {
        &self.values[self.ends[document]..self.ends[document + 1]]
    }
}
