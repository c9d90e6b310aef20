//! The blocks of one token's documents: differences, frequencies, positions, and bounds of scores (spec: indices, 7.3).

use super::varints;
use crate::room::{filled, Grow, Roomy};
use bitpacking::{BitPacker, BitPacker4x, BitPacker8x};

pub const SMALL_BLOCK: usize = BitPacker4x::BLOCK_LEN;
pub const LARGE_BLOCK: usize = BitPacker8x::BLOCK_LEN;
/// Blocks under one impact of the second level.
const BLOCKS_PER_IMPACT: usize = 32;
const EXCEPTIONS_MAX: usize = 31;

/// The documents of a token; `positions` are empty, or as many as all frequencies together, as differences.
#[derive(Default)]
pub struct Documents {
    pub docs: Vec<u32>,
    pub freqs: Vec<u32>,
    pub positions: Vec<u32>,
}

impl Documents {
    pub fn clear(&mut self) {
        self.docs.clear();
        self.freqs.clear();
        self.positions.clear();
    }
}

/// Scores of documents, by BM25.
pub struct Scores<'a> {
    pub lengths: &'a [u32],
    pub average: f32,
}

impl Scores<'_> {
    /// Factor of a token that `count` of the documents have.
    pub fn scale(&self, count: usize) -> f32 {
        let (all, count) = (self.lengths.len() as f32, count as f32);
        ((all - count + 0.5) / (count + 0.5) + 1.0).ln() * 2.2
    }

    fn length(&self, doc: u32) -> u32 {
        self.lengths[doc as usize]
    }

    /// The largest score of some documents.
    pub fn largest(&self, scale: f32, docs: &[u32], freqs: &[u32]) -> f32 {
        let scores = docs.iter().zip(freqs).map(|(&doc, &freq)| {
            let freq = freq as f32;
            scale * freq / (freq + 1.2 * (0.25 + 0.75 * self.length(doc) as f32 / self.average))
        });
        scores.fold(0.0, f32::max)
    }
}

/// Values of `width` bits in the order of BitPacker4x or 8x, by their number.
fn pack(values: &[u32], width: u8, out: &mut Vec<u8>) -> Roomy<()> {
    let start = out.len();
    out.try_resize(start + values.len() * usize::from(width) / 8, 0)?;
    match values.len() {
        SMALL_BLOCK => BitPacker4x::new().compress(values, &mut out[start..], width),
        _ => BitPacker8x::new().compress(values, &mut out[start..], width),
    };
    Ok(())
}

fn width_of(values: &[u32]) -> u8 {
    (32 - values.iter().fold(0, |bits, value| bits | value).leading_zeros()) as u8
}

/// How the blocks of a partition are stored.
#[derive(Clone, Copy)]
pub struct BlockForm {
    /// Documents of a full block.
    pub size: usize,
    /// Whether the last block has numbers of 32 bits, and positions stand by document: format 1.
    pub is_first: bool,
}

/// Append a block. score: the largest score in it.
pub fn put_block(docs: &[u32], freqs: &[u32], form: BlockForm, score: f32, out: &mut Vec<u8>) -> Roomy<()> {
    let BlockForm { size, is_first } = form;
    if size == SMALL_BLOCK {
        out.try_append(&score.to_le_bytes())?;
    }
    if docs.len() < size && is_first {
        return docs.iter().chain(freqs).try_for_each(|value| out.try_append(&value.to_le_bytes()));
    }
    if docs.len() < size {
        let mut before = 0;
        for &doc in docs {
            varints::put(out, doc - before)?;
            before = doc;
        }
        return freqs.iter().try_for_each(|&freq| varints::put(out, freq));
    }
    let mut gaps = [0; LARGE_BLOCK];
    let gaps = &mut gaps[..size];
    for (gap, pair) in gaps[1..].iter_mut().zip(docs.windows(2)) {
        *gap = pair[1] - pair[0];
    }
    out.try_append(&docs[0].to_le_bytes())?;
    let width = width_of(gaps);
    out.try_push(width)?;
    pack(gaps, width, out)?;
    match size {
        SMALL_BLOCK => {
            let width = width_of(freqs);
            out.try_push(width)?;
            pack(freqs, width, out)
        }
        _ => put_patched(freqs, out),
    }
}

/// Frequencies of a large block: few large ones do not widen all the others.
fn put_patched(freqs: &[u32], out: &mut Vec<u8>) -> Roomy<()> {
    let widest = width_of(freqs);
    let cost = |width: u8| {
        let high = freqs.iter().map(|&freq| freq.checked_shr(width.into()).unwrap_or(0)).filter(|&high| high > 0);
        let (count, bytes) = high.fold((0, 0), |(count, bytes), high| (count + 1, bytes + 1 + varints::size(high)));
        (count <= EXCEPTIONS_MAX).then_some((usize::from(width) * freqs.len() / 8 + bytes, width))
    };
    let width = (0..=widest).filter_map(cost).min().map_or(widest, |(_, width)| width);
    let mut low = [0; LARGE_BLOCK];
    let mask = if width == 32 { u32::MAX } else { (1 << width) - 1 };
    for (low, freq) in low.iter_mut().zip(freqs) {
        *low = freq & mask;
    }
    let high = freqs.iter().enumerate().map(|(at, &freq)| (at, freq.checked_shr(width.into()).unwrap_or(0)));
    let high = high.filter(|(_, high)| *high > 0);
    out.try_append(&[width, high.clone().count() as u8])?; // room: the iterator is copied, no vector
    pack(&low[..freqs.len()], width, out)?;
    for (at, high) in high {
        out.try_push(at as u8)?;
        varints::put(out, high)?;
    }
    Ok(())
}

/// Append the positions of a block's documents.
pub fn put_positions(differences: &[u32], out: &mut Vec<u8>) -> Roomy<()> {
    let (groups, rest) = differences.as_chunks::<SMALL_BLOCK>();
    for group in groups {
        let width = width_of(group);
        out.try_push(width)?;
        pack(group, width, out)?;
    }
    rest.iter().try_for_each(|&value| varints::put(out, value))
}

/// The positions of documents, as format 1 has them: pieces of bytes for each document, documents for each token.
pub struct ListedPositions {
    pub tokens: Vec<i32>,
    pub documents: Vec<i32>,
    pub ends: Vec<i64>,
    pub data: Vec<u8>,
}

impl ListedPositions {
    pub fn new() -> Roomy<Self> {
        Ok(ListedPositions { tokens: filled(0, 1)?, documents: filled(0, 1)?, ends: filled(0, 1)?, data: Vec::new() })
    }

    pub fn num_bytes(&self) -> usize {
        self.data.len() + 8 * self.ends.len() + 4 * self.documents.len()
    }

    /// Append a document: a piece with the number of its positions, one for each 128, one with the others as they are.
    pub fn put(&mut self, differences: &[u32]) -> Roomy<()> {
        self.data.try_append(&(differences.len() as u32).to_le_bytes())?;
        self.end_piece()?;
        let (groups, rest) = differences.as_chunks::<SMALL_BLOCK>();
        let mut position = 0;
        for group in groups {
            let first = position + group[0];
            let mut gaps = *group;
            gaps[0] = 0;
            let width = width_of(&gaps);
            self.data.try_append(&first.to_le_bytes())?;
            self.data.try_push(width)?;
            pack(&gaps, width, &mut self.data)?;
            self.end_piece()?;
            position = first + gaps.iter().sum::<u32>();
        }
        if !rest.is_empty() {
            for gap in rest {
                position += gap;
                self.data.try_append(&position.to_le_bytes())?;
            }
            self.end_piece()?;
        }
        self.documents.try_push(self.ends.len() as i32 - 1)
    }

    fn end_piece(&mut self) -> Roomy<()> {
        self.ends.try_push(self.data.len() as i64)
    }

    pub fn end_token(&mut self) -> Roomy<()> {
        self.tokens.try_push(self.documents.len() as i32 - 1)
    }
}

/// Code of a length: its four highest bits, and how many follow.
fn length_code(length: u32) -> u8 {
    let bits = 32 - length.leading_zeros();
    if bits < 4 {
        return length as u8;
    }
    (length >> (bits - 4) & 7 | (bits - 3) << 3) as u8
}

const CODES: usize = 256;

/// Of some documents: the last one, and for each code of a length the largest frequency.
struct Frontier {
    last: u32,
    best: [u32; CODES],
    /// Codes from `low` to before `high` may have frequencies.
    low: usize,
    high: usize,
}

impl Frontier {
    fn new() -> Self {
        Frontier { last: 0, best: [0; CODES], low: CODES, high: 0 }
    }

    fn clear(&mut self) {
        if self.low < self.high {
            self.best[self.low..self.high].fill(0);
        }
        (self.last, self.low, self.high) = (0, CODES, 0);
    }

    fn add(&mut self, scores: &Scores<'_>, docs: &[u32], freqs: &[u32]) {
        for (&doc, &freq) in docs.iter().zip(freqs) {
            let code = usize::from(length_code(scores.length(doc)));
            self.best[code] = freq.max(self.best[code]);
            (self.low, self.high) = (self.low.min(code), self.high.max(code + 1));
            self.last = doc;
        }
    }

    fn join(&mut self, other: &Frontier) {
        self.last = self.last.max(other.last);
        (self.low, self.high) = (self.low.min(other.low), self.high.max(other.high));
        for code in other.low..other.high {
            self.best[code] = self.best[code].max(other.best[code]);
        }
    }

    /// Frequencies that no shorter document has, and the codes of lengths, both ascending.
    fn pairs(&self) -> impl Iterator<Item = (u32, u8)> + '_ {
        let mut largest = 0;
        (self.low..self.high).filter_map(move |code| {
            let freq = self.best[code];
            let is_larger = freq > largest;
            largest = largest.max(freq);
            is_larger.then_some((freq, code as u8))
        })
    }

    /// Append the last document and the pairs.
    fn put(&self, out: &mut Vec<u8>) -> Roomy<()> {
        varints::put(out, self.last)?;
        varints::put(out, self.pairs().count() as u32)?;
        let (mut freq_before, mut code_before) = (0, 0);
        for (freq, code) in self.pairs() {
            let step = code - code_before;
            let is_long = step != 1;
            let packed = u64::from(freq - freq_before - 1) << 1 | u64::from(is_long);
            put_long(out, packed)?;
            if is_long {
                out.try_push(step)?;
            }
            (freq_before, code_before) = (freq, code);
        }
        Ok(())
    }
}

fn put_long(out: &mut Vec<u8>, mut value: u64) -> Roomy<()> {
    while value >= 128 {
        out.try_push(value as u8 | 128)?;
        value >>= 7;
    }
    out.try_push(value as u8)
}

/// A list of byte strings per token, back to back: the ends of the lists, of the strings, and the bytes.
pub struct Lists {
    pub lists: Vec<i32>,
    pub ends: Vec<i64>,
    pub data: Vec<u8>,
}

impl Lists {
    pub fn new() -> Roomy<Self> {
        Ok(Lists { lists: filled(0, 1)?, ends: filled(0, 1)?, data: Vec::new() })
    }

    pub fn end_item(&mut self) -> Roomy<()> {
        self.ends.try_push(self.data.len() as i64)
    }

    pub fn end_list(&mut self) -> Roomy<()> {
        self.lists.try_push(self.ends.len() as i32 - 1)
    }
}

/// Writes the impacts of tokens, in memory that is kept from token to token.
pub struct Impacts {
    block: Frontier,
    wide: Frontier,
    /// Those of the second level, back to back, and where each ends.
    above: Vec<u8>,
    ends: Vec<usize>,
}

impl Impacts {
    pub fn new() -> Self {
        Impacts { block: Frontier::new(), wide: Frontier::new(), above: Vec::new(), ends: Vec::new() }
    }

    /// Append those of a token: of each block, then of each 32 blocks.
    pub fn put(&mut self, scores: &Scores<'_>, term: &Documents, size: usize, out: &mut Lists) -> Roomy<()> {
        let num_blocks = term.docs.len().div_ceil(size);
        self.above.clear();
        self.ends.clear();
        for (number, (docs, freqs)) in term.docs.chunks(size).zip(term.freqs.chunks(size)).enumerate() {
            self.block.clear();
            self.block.add(scores, docs, freqs);
            self.block.put(&mut out.data)?;
            out.end_item()?;
            self.wide.join(&self.block);
            if (number + 1).is_multiple_of(BLOCKS_PER_IMPACT) || number + 1 == num_blocks {
                self.wide.put(&mut self.above)?;
                self.wide.clear();
                self.ends.try_push(self.above.len())?;
            }
        }
        let mut start = 0;
        for &end in &self.ends {
            out.data.try_append(&self.above[start..end])?;
            out.end_item()?;
            start = end;
        }
        out.end_list()
    }
}
