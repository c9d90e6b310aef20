//! Levels as bit planes: plane `b` holds bit `b` of every level, 64 levels to a word, the first one lowest.
//!
//! Levels are small numbers, mostly of one or two bits, and all levels are tested in the same way: is it above a limit,
//! is it this one? Such a test is a few operations on whole words, and its result is a `Mask`, which already is a
//! validity bitmap. Files store levels packed; they are never expanded in between.

use crate::error::Checked;
use crate::room::{filled, reserve, vec_with_capacity, zeros, Copied, GatherResults, Grow, Roomy};

/// Words of one plane of a packed group, which holds 1024 levels.
pub const GROUP_WORDS: usize = 16;

/// A bit for each of `length` levels; padding bits are 0.
#[derive(Default)]
pub struct Mask {
    words: Vec<u64>,
    length: usize,
}

impl Mask {
    pub fn ones(length: usize) -> Checked<Self> {
        let mut mask = Mask { words: filled(u64::MAX, length.div_ceil(64))?, length };
        mask.clear_rest();
        Ok(mask)
    }

    /// Copy the mask.
    pub fn copy(&self) -> Checked<Self> {
        Ok(Mask { words: self.words.try_to_vec()?, length: self.length })
    }

    pub fn len(&self) -> usize {
        self.length
    }

    pub fn words(&self) -> &[u64] {
        &self.words
    }

    pub fn any(&self) -> bool {
        self.words.iter().any(|&word| word != 0)
    }

    pub fn count_ones(&self) -> usize {
        self.words.iter().map(|word| word.count_ones() as usize).sum()
    }

    /// Ones from bit `start` to bit `end`.
    pub fn count_ones_between(&self, start: usize, end: usize) -> usize {
        runs(start, end).map(|(at, count)| self.read(at, count).count_ones() as usize).sum()
    }

    /// Looks up ones by their number, in ascending order.
    pub fn ones_by_number(&self) -> OnesByNumber<'_> {
        OnesByNumber { words: &self.words, index: 0, before: 0 }
    }

    /// Combine with another mask of the same length, word by word; `word` makes 0 of zeros.
    pub fn zip(mut self, other: &Mask, word: impl Fn(u64, u64) -> u64) -> Self {
        self.words.iter_mut().zip(&other.words).for_each(|(mine, &others)| *mine = word(*mine, others));
        self
    }

    /// Invert the mask.
    pub fn not(mut self) -> Self {
        self.words.iter_mut().for_each(|word| *word = !*word);
        self.clear_rest();
        self
    }

    /// The bits at the ones of `by`, concatenated.
    pub fn compact(&self, by: &Mask) -> Checked<Self> {
        let mut kept = Mask { words: vec_with_capacity(by.count_ones().div_ceil(64))?, length: 0 };
        for (&word, &by) in self.words.iter().zip(&by.words) {
            match by {
                u64::MAX => kept.add(word, 64),
                _ => kept.add(Compress::new(by).apply(word), by.count_ones() as usize),
            }
        }
        Ok(kept)
    }

    /// As bytes, the first bit lowest.
    pub fn to_bytes(&self) -> Checked<Vec<u8>> {
        let mut out = vec_with_capacity(self.words.len() * 8)?;
        out.try_extend(self.words.iter().flat_map(|word| word.to_le_bytes()))?;
        out.truncate(self.length.div_ceil(8));
        Ok(out)
    }

    /// Reserve memory for `count` more bits.
    fn make_room(&mut self, count: usize) -> Roomy<()> {
        let words = self.length.saturating_add(count).div_ceil(64);
        let missing = words - self.words.len();
        reserve(&mut self.words, missing)
    }

    /// Append the lowest `count` bits of a word, whose other bits are 0. The memory is reserved.
    fn add(&mut self, word: u64, count: usize) {
        let used = self.length % 64;
        self.length += count;
        match self.words.last_mut().filter(|_| used > 0) {
            Some(last) => {
                *last |= word << used;
                if used + count > 64 {
                    self.words.push(word >> (64 - used)); // room: reserved
                }
            }
            None if count > 0 => self.words.push(word), // room: reserved
            None => {}
        }
    }

    fn clear(&mut self) {
        self.words.clear();
        self.length = 0;
    }

    fn push_zeros(&mut self, count: usize) -> Checked<()> {
        self.make_room(count)?;
        self.length += count;
        self.words.try_resize(self.length.div_ceil(64), 0)?;
        Ok(())
    }

    fn append(&mut self, other: &Mask, start: usize, end: usize) -> Checked<()> {
        self.make_room(end - start)?;
        runs(start, end).for_each(|(at, count)| self.add(other.read(at, count), count));
        Ok(())
    }

    /// Up to 64 bits from bit `at` on.
    fn read(&self, at: usize, count: usize) -> u64 {
        let (index, shift) = (at / 64, at % 64);
        let mut word = self.words[index] >> shift;
        if shift + count > 64 {
            word |= self.words[index + 1] << (64 - shift);
        }
        word & lowest(count)
    }

    fn clear_rest(&mut self) {
        if let Some(last) = self.words.last_mut() {
            *last &= lowest((self.length + 63) % 64 + 1);
        }
    }
}

/// Positions of selected ones of a mask, without a look at each of the others.
pub struct OnesByNumber<'a> {
    words: &'a [u64],
    /// Current word, and the number of ones before it.
    index: usize,
    before: usize,
}

impl OnesByNumber<'_> {
    /// Position of the one with this number, counted from 0; numbers must not descend.
    pub fn position(&mut self, number: usize) -> Option<usize> {
        loop {
            let word = *self.words.get(self.index)?;
            let count = word.count_ones() as usize;
            if number < self.before + count {
                let bits = (self.before..number).fold(word, |bits, _| bits & (bits - 1));
                return Some(self.index * 64 + bits.trailing_zeros() as usize);
            }
            (self.index, self.before) = (self.index + 1, self.before + count);
        }
    }
}

/// A range of bits as runs of up to 64: `(start, count)`.
fn runs(start: usize, end: usize) -> impl Iterator<Item = (usize, usize)> {
    (start..end).step_by(64).map(move |at| (at, (end - at).min(64)))
}

/// The `count` lowest bits, 1 to 64.
fn lowest(count: usize) -> u64 {
    u64::MAX >> (64 - count)
}

/// Moves the bits of a word that a mask selects to its low end, in steps: by 1, 2, 4 .. 32 positions.
struct Compress {
    mask: u64,
    moves: [u64; 6],
}

impl Compress {
    fn new(mask: u64) -> Self {
        let (mut left, mut moves) = (mask, [0; 6]);
        let mut zeros_below = !mask << 1;
        for (step, moved) in moves.iter_mut().enumerate() {
            // For each bit, the lowest bit of the number of zeros below it: the parity of `zeros_below` up to there.
            let odd = [1, 2, 4, 8, 16, 32].iter().fold(zeros_below, |parity, shift| parity ^ (parity << shift));
            *moved = odd & left;
            left = (left ^ *moved) | (*moved >> (1 << step));
            zeros_below &= !odd;
        }
        Compress { mask, moves }
    }

    fn apply(&self, word: u64) -> u64 {
        self.moves.iter().enumerate().fold(word & self.mask, |word, (step, moved)| {
            let moving = word & moved;
            (word ^ moving) | (moving >> (1 << step))
        })
    }
}

/// Levels; as many planes as the highest of them needs.
#[derive(Default)]
pub struct Planes {
    planes: Vec<Mask>,
    length: usize,
}

impl Planes {
    pub fn len(&self) -> usize {
        self.length
    }

    /// Remove all levels; keeps the memory.
    pub fn clear(&mut self) {
        self.planes.iter_mut().for_each(Mask::clear);
        self.length = 0;
    }

    pub fn from_levels(levels: &[u16]) -> Checked<Self> {
        let mut planes = Planes::default();
        planes.push_levels(levels)?;
        Ok(planes)
    }

    /// Append plain levels.
    pub fn push_levels(&mut self, levels: &[u16]) -> Checked<()> {
        let any = levels.iter().fold(0, |any, level| any | level);
        let width = (u16::BITS - any.leading_zeros()) as usize;
        self.widen(width)?;
        self.make_room(levels.len())?;
        for levels in levels.chunks(64) {
            self.push_words(levels.len(), |plane| if plane < width { bit_of(levels, plane) } else { 0 });
        }
        Ok(())
    }

    /// Reserve memory for `count` more levels.
    fn make_room(&mut self, count: usize) -> Checked<()> {
        Ok(self.planes.iter_mut().try_for_each(|plane| plane.make_room(count))?)
    }

    /// Append the first `count` levels of a group, passed as the words of their planes, lowest plane first.
    pub fn push_group(&mut self, planes: &[[u64; GROUP_WORDS]], count: usize) -> Checked<()> {
        let sizes = || (0..count).step_by(64).map(|at| (count - at).min(64));
        let is_used =
            |plane: &[u64; GROUP_WORDS]| plane.iter().zip(sizes()).any(|(word, size)| word & lowest(size) != 0);
        self.widen(planes.iter().rposition(is_used).map_or(0, |highest| highest + 1))?;
        self.make_room(count)?;
        for (index, size) in sizes().enumerate() {
            self.push_words(size, |plane| planes.get(plane).map_or(0, |words| words[index] & lowest(size)));
        }
        Ok(())
    }

    pub fn push_zeros(&mut self, count: usize) -> Checked<()> {
        self.planes.iter_mut().try_for_each(|plane| plane.push_zeros(count))?;
        self.length += count;
        Ok(())
    }

    /// Append levels `start .. end` of `other`.
    pub fn append(&mut self, other: &Planes, start: usize, end: usize) -> Checked<()> {
        self.widen(other.planes.len())?;
        for (index, plane) in self.planes.iter_mut().enumerate() {
            match other.planes.get(index) {
                Some(source) => plane.append(source, start, end)?,
                None => plane.push_zeros(end - start)?,
            }
        }
        self.length += end - start;
        Ok(())
    }

    fn widen(&mut self, width: usize) -> Checked<()> {
        while self.planes.len() < width {
            let mut plane = Mask::default();
            plane.push_zeros(self.length)?;
            self.planes.try_push(plane)?;
        }
        Ok(())
    }

    fn push_words(&mut self, count: usize, word: impl Fn(usize) -> u64) {
        self.planes.iter_mut().enumerate().for_each(|(index, plane)| plane.add(word(index), count));
        self.length += count;
    }

    /// The first level.
    pub fn first(&self) -> Option<u16> {
        let bit = |(index, plane): (usize, &Mask)| ((plane.words[0] & 1) as u16) << index;
        (self.length > 0).then(|| self.planes.iter().enumerate().map(bit).sum())
    }

    /// The highest level; 0 for no levels.
    pub fn highest(&self) -> Checked<u16> {
        let mut candidates = Mask::ones(self.length)?;
        let mut highest = 0;
        for (index, plane) in self.planes.iter().enumerate().rev() {
            let higher = candidates.copy()?.zip(plane, |mask, plane| mask & plane);
            if higher.any() {
                highest |= 1 << index;
                candidates = higher;
            }
        }
        Ok(highest)
    }

    /// A mask of the levels above `limit`.
    pub fn above(&self, limit: u16) -> Checked<Mask> {
        let mut above = Mask { words: zeros(self.length.div_ceil(64))?, length: self.length };
        if limit == 0 {
            return Ok(self.planes.iter().fold(above, |above, plane| above.zip(plane, |above, plane| above | plane)));
        }
        if self.planes.len() < 16 && limit >> self.planes.len() != 0 {
            return Ok(above);
        }
        // From the highest bit down: levels that equal `limit` so far, and levels that exceed it.
        let mut same = Mask::ones(self.length)?;
        for (index, plane) in self.planes.iter().enumerate().rev() {
            let is_set = limit >> index & 1 == 1;
            for ((above, same), plane) in above.words.iter_mut().zip(&mut same.words).zip(&plane.words) {
                *above |= if is_set { 0 } else { *same & plane };
                *same &= if is_set { *plane } else { !plane };
            }
        }
        Ok(above)
    }

    /// The levels at the ones of `by`.
    pub fn compact(&self, by: &Mask) -> Checked<Self> {
        let planes = self.planes.iter().map(|plane| plane.compact(by)).try_vec_of()?;
        Ok(Planes { planes, length: by.count_ones() })
    }

    /// Decrement all levels, which must be above 0.
    pub fn less_one(mut self) -> Checked<Self> {
        let mut borrow = Mask::ones(self.length)?;
        for plane in &mut self.planes {
            let lowered = plane.copy()?.zip(&borrow, |plane, borrow| plane ^ borrow);
            borrow = borrow.zip(plane, |borrow, plane| borrow & !plane);
            *plane = lowered;
        }
        Ok(self)
    }
}

/// Bit `plane` of up to 64 levels.
fn bit_of(levels: &[u16], plane: usize) -> u64 {
    /// Moves bit 0 of each of eight bytes into the top byte.
    const GATHER: u64 = 0x0102_0408_1020_4080;
    let mut flags = [0u8; 64];
    for (flag, &level) in flags.iter_mut().zip(levels) {
        *flag = (level >> plane & 1) as u8;
    }
    let mut bits = [0u8; 8];
    for (byte, &eight) in bits.iter_mut().zip(flags.as_chunks::<8>().0) {
        *byte = (u64::from_le_bytes(eight).wrapping_mul(GATHER) >> 56) as u8;
    }
    u64::from_le_bytes(bits)
}
