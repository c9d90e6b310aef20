//! Codes values with a given FSST table (spec: encodings, 8.3).
//!
//! Coding value after value is limited by latency: the position of the next symbol depends on the current lookup, and
//! the end of a value is a mispredicted branch. Therefore values are concatenated with a separator after each, a byte
//! that occurs in none of them: its lookup works like a symbol's, and ends a value by an addition. In addition, several
//! stretches of values are coded in an interleaved loop, so that their lookups overlap. Stretches have equal lengths,
//! because the longest one finishes alone: a long value continues in the next stretch. The concatenated codes of its
//! pieces are codes of the value.

use crate::encode::variable::Offset;
use crate::room::{boxed, vec_with_capacity, Grow, Roomy};

const ESCAPE: u8 = 255;
pub const SYMBOL_BYTES: usize = 8;
pub const SYMBOLS_MAX: usize = 255;
const STRETCHES: usize = 4;
/// Size of a block of values and separators: its positions, and up to two bytes of code for each, fit into 16 bits.
const BLOCK_BYTES: usize = 1 << 15;
/// Values up to this size are not cut, and no piece is shorter: no symbol crosses a cut.
const WHOLE_BYTES: usize = 256;
const PIECE_BYTES: usize = 64;
const PLACES: usize = 1 << 16;
/// Number of hash slots for longer symbols, by their first three bytes: training uses the same slots, so that no two
/// symbols of a table share one.
pub const SLOTS: usize = 1 << 11;
const HASH_FACTOR: u64 = 2_971_215_073;
const HASH_BYTES: u64 = 0xFF_FFFF;

/// A symbol: its `length` lower bytes; the others are 0.
#[derive(Clone, Copy, PartialEq, Eq)]
pub struct Symbol {
    pub word: u64,
    pub length: u8,
}

impl Symbol {
    /// Mask of the symbol's bytes in a word.
    pub fn mask(self) -> u64 {
        u64::MAX >> (64 - 8 * u32::from(self.length))
    }

    /// Concatenate this symbol, shorter than the longest, with the first bytes of another.
    pub fn join(self, other: Symbol) -> Symbol {
        let length = (self.length + other.length).min(SYMBOL_BYTES as u8);
        Symbol { word: self.word | other.word << (8 * u32::from(self.length)), length }
    }
}

/// Result of a lookup: bits 0..4 length of the symbol, 8..16 code, 16..18 bytes of the code, 24 the separator.
type Found = u32;

const LENGTH: Found = 0xF;
const LENGTHS: Found = 0x3_0000 | LENGTH;
const SEPARATOR: Found = 1 | 1 << 24;

fn symbol(code: usize, length: u8) -> Found {
    length as u32 | (code as u32) << 8 | 1 << 16
}

fn escaped() -> Found {
    1 | (ESCAPE as u32) << 8 | 2 << 16
}

/// A symbol of three or more bytes, in the upper bytes of a word.
#[derive(Clone, Copy)]
struct Long {
    word: u64,
    shift: u32,
    found: Found,
}

/// Matches nothing: its lowest byte cannot result from a shift.
const NO_SYMBOL: Long = Long { word: 1, shift: 8, found: 0 };

#[inline(always)]
pub fn slot(word: u64) -> usize {
    let first = word & HASH_BYTES;
    (first.wrapping_mul(HASH_FACTOR) ^ first >> 15) as usize & (SLOTS - 1)
}

/// Lookup tables for a trained table.
struct Coder {
    /// Indexed by the first two bytes: a symbol of two bytes, else of one, else the first byte escaped.
    short: Box<[Found; 1 << 16]>,
    /// Indexed by the first byte: a symbol of one byte, else the byte escaped.
    ones: [Found; 256],
    long: Box<[Long; SLOTS]>,
}

impl Coder {
    fn new(symbols: &[Symbol], separator: Option<u8>) -> Roomy<Self> {
        let mut ones = [escaped(); 256];
        if let Some(separator) = separator {
            ones[separator as usize] = SEPARATOR;
        }
        let all = || symbols.iter().enumerate().map(|(code, each)| (code, each.word, each.length));
        all().filter(|each| each.2 == 1).for_each(|(code, word, _)| ones[word as u8 as usize] = symbol(code, 1));
        let mut coder = Coder { short: boxed(0)?, ones, long: boxed(NO_SYMBOL)? };
        coder.short.chunks_exact_mut(ones.len()).for_each(|row| row.copy_from_slice(&ones));
        for (code, word, length) in all() {
            match length {
                0 | 1 => {}
                2 => coder.short[word as u16 as usize] = symbol(code, 2),
                _ => {
                    let shift = 64 - 8 * length as u32;
                    coder.long[slot(word)] = Long { word: word << shift, shift, found: symbol(code, length) };
                }
            }
        }
        Ok(coder)
    }

    #[inline(always)]
    fn find(&self, word: u64) -> Found {
        let long = &self.long[slot(word)];
        match word << (long.shift & 63) == long.word {
            true => long.found,
            false => self.short[word as u16 as usize],
        }
    }

    /// `find` with fewer bytes left than the longest symbol: the match may be too long, with zeros at its end.
    fn find_last(&self, rest: &[u8]) -> Found {
        let mut bytes = [0; SYMBOL_BYTES];
        bytes[..rest.len()].copy_from_slice(rest);
        let word = u64::from_le_bytes(bytes);
        let fits = |found: &Found| (found & LENGTH) as usize <= rest.len();
        let found = [self.find(word), self.short[word as u16 as usize]];
        found.into_iter().find(fits).unwrap_or(self.ones[rest[0] as usize])
    }

    /// Code one symbol, or end a value.
    #[inline(always)]
    fn step(&self, stretch: &mut Stretch, block: &mut Block) {
        let (from, to) = (stretch.from(), stretch.to());
        let mut bytes = [0; SYMBOL_BYTES];
        bytes.copy_from_slice(&block.source[from..from + SYMBOL_BYTES]);
        let word = u64::from_le_bytes(bytes);
        let found = self.find(word);
        block.codes[to] = (found >> 8) as u8;
        block.codes[to + 1] = word as u8;
        block.ends[stretch.value as u16 as usize] = to as u16;
        stretch.places = stretch.places.wrapping_add(found & LENGTHS);
        stretch.value += found >> 24;
    }

    fn run(&self, block: &mut Block) {
        let mut stretches = block.stretches;
        let steps = |stretches: &[Stretch; STRETCHES]| {
            let left = stretches.iter().map(|each| each.stop.saturating_sub(each.from()));
            left.min().unwrap_or(0) / SYMBOL_BYTES
        };
        loop {
            let count = steps(&stretches);
            if count == 0 {
                break;
            }
            for _ in 0..count {
                stretches.iter_mut().for_each(|stretch| self.step(stretch, block));
            }
        }
        for stretch in &mut stretches {
            while stretch.from() < stretch.stop {
                self.step(stretch, block);
            }
        }
        block.stretches = stretches;
    }
}

/// Values of a block that are coded sequentially.
#[derive(Clone, Copy, Default)]
struct Stretch {
    /// Position of the next symbol in the source, and, in the upper half, of its code in the codes.
    places: u32,
    /// The value, or piece of a value, that the symbol belongs to, counted within the block.
    value: u32,
    /// End of the stretch in the source.
    stop: usize,
    /// Whether its last value continues after the stretch.
    goes_on: bool,
}

impl Stretch {
    fn new(from: usize, value: usize) -> Self {
        Stretch { places: (from | from << 17) as u32, value: value as u32, stop: from, goes_on: false }
    }

    #[inline(always)]
    fn from(&self) -> usize {
        self.places as u16 as usize
    }

    #[inline(always)]
    fn to(&self) -> usize {
        (self.places >> 16) as usize
    }
}

/// Some values, their codes, and the end of each value's codes. Any 16-bit position is within its buffers.
struct Block {
    source: Box<[u8; PLACES + SYMBOL_BYTES]>,
    codes: Box<[u8; PLACES + 1]>,
    ends: Box<[u16; PLACES]>,
    stretches: [Stretch; STRETCHES],
}

/// The first unread byte: index of its value, and the number of bytes read of that value.
#[derive(Clone, Copy, Default)]
struct Place {
    value: usize,
    taken: usize,
}

impl Block {
    /// Read values from `next` on, at least a piece of one; returns the position after them.
    fn fill<T: Offset>(&mut self, offsets: &[T], data: &[u8], mut next: Place, separator: u8) -> Place {
        let (mut filled, mut num_values) = (0, 0);
        for (number, stretch) in self.stretches.iter_mut().enumerate() {
            *stretch = Stretch::new(filled, num_values);
            let stop = BLOCK_BYTES * (number + 1) / STRETCHES;
            while next.value + 1 < offsets.len() && filled < stop {
                let rest = &data[offsets[next.value].to_usize() + next.taken..offsets[next.value + 1].to_usize()];
                let room = stop - filled - 1;
                stretch.goes_on = rest.len() > room.max(WHOLE_BYTES);
                if (stretch.goes_on && room < PIECE_BYTES) || (!stretch.goes_on && filled + rest.len() >= BLOCK_BYTES) {
                    stretch.goes_on = false;
                    break;
                }
                let piece = &rest[..if stretch.goes_on { room } else { rest.len() }];
                let end = filled + piece.len();
                self.source[filled..end].copy_from_slice(piece);
                self.source[end] = separator;
                (filled, num_values) = (end + 1, num_values + 1);
                next = match stretch.goes_on {
                    true => Place { taken: next.taken + piece.len(), ..next },
                    false => Place { value: next.value + 1, taken: 0 },
                };
            }
            stretch.stop = filled;
        }
        next
    }
}

/// Codes of all values and the end of each.
pub fn encode<T: Offset>(symbols: &[Symbol], offsets: &[T], data: &[u8]) -> Roomy<(Vec<T>, Vec<u8>)> {
    let (first, last) = (offsets[0].to_usize(), offsets[offsets.len() - 1].to_usize());
    let Some(separator) = unused_byte(&data[first..last]) else {
        return encode_each(&Coder::new(symbols, None)?, offsets, data);
    };
    let coder = Coder::new(symbols, Some(separator))?;
    let mut block = Block { source: boxed(0)?, codes: boxed(0)?, ends: boxed(0)?, stretches: Default::default() };
    let mut ends = vec_with_capacity(offsets.len())?;
    let mut codes: Vec<u8> = vec_with_capacity(last - first)?;
    ends.try_push(T::from_usize(0))?;
    let mut next = Place::default();
    while next.value + 1 < offsets.len() {
        next = block.fill(offsets, data, next, separator);
        let begun = block.stretches;
        coder.run(&mut block);
        for (begun, done) in begun.iter().zip(&block.stretches) {
            let at = codes.len();
            codes.try_append(&block.codes[begun.to()..done.to()])?;
            let found = &block.ends[begun.value as usize..done.value as usize - usize::from(begun.goes_on)];
            ends.try_extend(found.iter().map(|&end| T::from_usize(at + end as usize - begun.to())))?;
        }
    }
    Ok((ends, codes))
}

/// As `encode`, for values in which all byte values occur, which is never the case for text.
fn encode_each<T: Offset>(coder: &Coder, offsets: &[T], data: &[u8]) -> Roomy<(Vec<T>, Vec<u8>)> {
    let (mut ends, mut codes) = (vec_with_capacity(offsets.len())?, Vec::new());
    ends.try_push(T::from_usize(0))?;
    for bounds in offsets.windows(2) {
        let mut rest = &data[bounds[0].to_usize()..bounds[1].to_usize()];
        while let Some(&first) = rest.first() {
            let found = match rest.first_chunk() {
                Some(&bytes) => coder.find(u64::from_le_bytes(bytes)),
                None => coder.find_last(rest),
            };
            codes.try_push((found >> 8) as u8)?;
            if found == escaped() {
                codes.try_push(first)?;
            }
            rest = &rest[(found & LENGTH) as usize..];
        }
        ends.try_push(T::from_usize(codes.len()))?;
    }
    Ok((ends, codes))
}

/// A byte that does not occur; UTF-8 always has one.
fn unused_byte(data: &[u8]) -> Option<u8> {
    (0..=u8::MAX)
        .rev()
        .find(|&byte| !data.chunks(4096).any(|part| part.iter().fold(false, |found, &b| found | (b == byte))))
}
