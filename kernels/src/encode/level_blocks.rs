//! Encodes level vectors as blocks (spec: encodings, 3.3 and 8.0): one codec for all blocks of a page, chosen by size.
//!
//! ```text
//! FLAT          the levels, two bytes each
//! INLINE        u16 width, then one group packed to it; blocks of at most 1024 levels
//! OUT_OF_LINE   full groups packed to the width of the page, then the rest plain, or as one more group if smaller
//! RLE           u64 size of the values, u16 value per run, u8 length per run; file version 2.2 only
//! ```

use crate::buffer::{Input, OwnedBuffer};
use crate::decode::bitpack::GROUP;
use crate::encode::rle::{count_runs, runs};
use crate::encode::stats::count_changes;
use crate::gil;
use crate::room::{Gather, Grow, Roomy};
use fastlanes::BitPacking;
use pyo3::exceptions::PyValueError;
use pyo3::prelude::*;

const WORD_BITS: usize = 16;
const WORD_BYTES: usize = 2;
const PAD_BYTES: usize = 8;
const RLE_HEAD_BYTES: usize = 8;
const RUN_BYTES: usize = WORD_BYTES + 1;

/// Compression of a page's blocks. The numbers are those of codec programs.
#[derive(Clone, Copy, PartialEq, Debug)]
enum Codec {
    Flat,
    OutOfLine { width: usize },
    Inline,
    Rle,
}

impl Codec {
    fn op(self) -> u8 {
        match self {
            Codec::Flat => 1,
            Codec::OutOfLine { .. } => 4,
            Codec::Inline => 5,
            Codec::Rle => 8,
        }
    }

    fn encode(self, block: &[u16], out: &mut Vec<u8>) -> Roomy<()> {
        match self {
            Codec::Flat => put_words(block, out),
            Codec::Inline => {
                let width = bit_width(block);
                out.try_append(&(width as u16).to_le_bytes())?;
                put_group(width, block, out)
            }
            Codec::OutOfLine { width } => {
                let (full, tail) = block.split_at(block.len() / GROUP * GROUP);
                full.chunks(GROUP).try_for_each(|group| put_group(width, group, out))?;
                match tail_is_packed(width, tail.len()) {
                    true => put_group(width, tail, out),
                    false => put_words(tail, out),
                }
            }
            Codec::Rle => put_runs(block, out),
        }
    }
}

/// Total size of all blocks by codec, each block padded as in chunks.
struct Sizes {
    flat: usize,
    inline: Option<usize>,
    out_of_line: usize,
    rle: Option<usize>,
    width: usize,
}

impl Sizes {
    fn measure(blocks: &[&[u16]], with_rle: bool) -> Self {
        let sum =
            |size: &dyn Fn(&[u16]) -> usize| blocks.iter().map(|block| size(block).next_multiple_of(PAD_BYTES)).sum();
        let width = blocks.iter().map(|block| bit_width(block)).max().unwrap_or(0);
        let fits = blocks.iter().all(|block| block.len() <= GROUP);
        let out_of_line = |block: &[u16]| {
            let (groups, rest) = (block.len() / GROUP, block.len() % GROUP);
            match tail_is_packed(width, rest) {
                true => (groups + 1) * packed_bytes(width),
                false => groups * packed_bytes(width) + rest * WORD_BYTES,
            }
        };
        let mut sizes = Sizes {
            flat: sum(&|block| block.len() * WORD_BYTES),
            inline: fits.then(|| sum(&|block| WORD_BYTES + packed_bytes(bit_width(block)))),
            out_of_line: sum(&out_of_line),
            rle: None,
            width,
        };
        // Long runs are split; counting them needs a pass, which pays off only if runs could win at all.
        let run_bytes = |count: usize| RLE_HEAD_BYTES + count * RUN_BYTES;
        if with_rle && sum(&|block| run_bytes(count_changes(block))) < sizes.smallest() {
            sizes.rle = Some(sum(&|block| run_bytes(count_runs(block))));
        }
        sizes
    }

    /// The smallest codec; on a tie, the cheapest to read.
    fn best(&self) -> Codec {
        self.candidates().min_by_key(|&(size, _)| size).map_or(Codec::Flat, |(_, codec)| codec)
    }

    fn smallest(&self) -> usize {
        self.candidates().map(|(size, _)| size).min().unwrap_or(0)
    }

    /// The possible codecs, in ascending order of their cost to readers.
    fn candidates(&self) -> impl Iterator<Item = (usize, Codec)> {
        let packs = (1..WORD_BITS).contains(&self.width); // a page's message cannot express a width of 0
        let candidates = [
            (Some(self.flat), Codec::Flat),
            (self.inline, Codec::Inline),
            (packs.then_some(self.out_of_line), Codec::OutOfLine { width: self.width }),
            (self.rle, Codec::Rle),
        ];
        candidates.into_iter().filter_map(|(size, codec)| Some((size?, codec)))
    }
}

fn bit_width(levels: &[u16]) -> usize {
    WORD_BITS - levels.iter().fold(0, |bits, &level| bits | level).leading_zeros() as usize
}

/// Bytes of a group of 1024 levels.
fn packed_bytes(width: usize) -> usize {
    GROUP / 8 * width
}

/// Whether `count` levels after the last full group are packed as one more group (spec: 8.0).
fn tail_is_packed(width: usize, count: usize) -> bool {
    width * (GROUP - count) < (WORD_BITS - width) * count
}

fn put_words(levels: &[u16], out: &mut Vec<u8>) -> Roomy<()> {
    out.try_append(bytemuck::cast_slice(levels))
}

/// Append up to 1024 levels as a group, padded with 0.
fn put_group(width: usize, levels: &[u16], out: &mut Vec<u8>) -> Roomy<()> {
    let mut padded = [0; GROUP];
    let group = match <&[u16; GROUP]>::try_from(levels) {
        Ok(group) => group,
        Err(_) => {
            padded[..levels.len()].copy_from_slice(levels);
            &padded
        }
    };
    macro_rules! pack {
        ($($width:literal)*) => {
            match width {
                $($width => {
                    let mut words = [0u16; GROUP * $width / WORD_BITS];
                    BitPacking::pack::<$width, { GROUP * $width / WORD_BITS }>(group, &mut words);
                    put_words(&words, out)
                })*
                _ => Ok(()),
            }
        };
    }
    pack!(1 2 3 4 5 6 7 8 9 10 11 12 13 14 15 16)
}

fn put_runs(levels: &[u16], out: &mut Vec<u8>) -> Roomy<()> {
    let count = count_runs(levels);
    out.try_append(&((count * WORD_BYTES) as u64).to_le_bytes())?;
    runs(levels).try_for_each(|(level, _)| out.try_append(&level.to_le_bytes()))?;
    out.try_extend(runs(levels).map(|(_, length)| length as u8))
}

/// Compress the levels between bounds, block by block, with one codec for all.
#[pyfunction]
#[pyo3(signature = (levels, bounds, with_rle, /))]
pub fn encode_levels(
    py: Python<'_>,
    levels: &Bound<'_, PyAny>,
    bounds: &Bound<'_, PyAny>,
    with_rle: bool,
) -> PyResult<(u8, usize, OwnedBuffer, OwnedBuffer)> {
    let (levels, bounds) = (Input::new(levels)?, Input::new(bounds)?);
    let (levels, bounds) = (levels.u16s()?, bounds.i64s()?);
    let blocks = cut(&levels, &bounds)?;
    let made = gil::release(py, levels.len(), || encode_blocks(&blocks, with_rle))?;
    Ok((made.op, made.width, made.data.into(), made.offsets.into()))
}

/// The levels of a page in blocks; `op` and `width` are those of codec programs.
pub struct Blocks {
    pub op: u8,
    pub width: usize,
    pub data: Vec<u8>,
    pub offsets: Vec<i64>,
}

/// Compress blocks with the codec that minimises their total size.
pub fn encode_blocks(blocks: &[&[u16]], with_rle: bool) -> Roomy<Blocks> {
    let codec = Sizes::measure(blocks, with_rle).best();
    let mut data = Vec::new();
    let mut offsets = vec![0];
    for block in blocks {
        codec.encode(block, &mut data)?;
        offsets.try_push(data.len() as i64)?;
    }
    let width = match codec {
        Codec::OutOfLine { width } => width,
        _ => WORD_BITS,
    };
    Ok(Blocks { op: codec.op(), width, data, offsets })
}

/// The blocks between bounds, which ascend from 0 to the number of levels.
fn cut<'a>(levels: &'a [u16], bounds: &[i64]) -> PyResult<Vec<&'a [u16]>> {
    let ends = (bounds.first().copied(), bounds.last().copied());
    let ascends = bounds.windows(2).all(|pair| pair[0] <= pair[1]);
    if ends != (Some(0), Some(levels.len() as i64)) || !ascends {
        let text = format!("bounds of blocks do not ascend from 0 to {} levels", levels.len());
        return Err(PyValueError::new_err(text));
    }
    Ok(bounds.windows(2).map(|pair| &levels[pair[0] as usize..pair[1] as usize]).try_vec()?)
}
