//! FSST: strings as codes of a page-wide table of up to 255 symbols (spec: encodings, 8.3).
//!
//!     bytes          meaning
//!     0              n, the number of symbols
//!     1, 2           hints for the encoder
//!     3              1 = values are coded, 0 = they are stored uncoded
//!     4-7            54 53 53 46
//!     8 .. 8+8n      symbols, 8 bytes each, of which the first `length` count
//!     8+8n .. 8+9n   lengths, 1..=8
//!     .. 2312        0
//!
//! Decoding a code is one 8-byte store and an advance by the symbol's length; code 255 marks the next byte as a
//! literal. Codes never cross values.
//!
//! Values are short, so a loop per value would mispredict its end once for each. Therefore the codes of a run of values
//! are decoded as one stream, which records the start of each code's bytes; the ends of the values are looked up there.
//! A single value is decoded in the same way, together with the following codes that complete its last run.

use crate::damaged;
use crate::error::{invalid, Checked};
use crate::room::Grow;
use crate::sink::{Offset, Strings};
use pyo3::PyResult;

const ESCAPE: u8 = 255;
pub const MAGIC: [u8; 4] = [0x54, 0x53, 0x53, 0x46];
/// Longest symbol; also the reach of one store.
const SYMBOL_BYTES: usize = 8;
/// Codes that are decoded independently of each other.
const RUN: usize = 8;
/// Codes decoded before their bytes move to the output: the decoded bytes stay in the L1 cache.
const BLOCK_CODES: usize = 2048;
/// Codes whose positions are written by one store, in lanes of 16 bits.
const GROUP: usize = 4;
const LANES: u64 = 0x0001_0001_0001_0001;
/// Mask for a length, for the sum of three, and of four: they give the compiler upper bounds.
const LENGTH: u64 = 15;
const LENGTHS: u64 = 31;
const LENGTHS_OF_GROUP: u64 = 63;
/// Reach of a run's stores if all masks were exhausted.
const RUN_REACH: usize = 128;
/// A 1 in each of eight bytes.
const EACH: u64 = 0x0101_0101_0101_0101;
/// Position of a byte after an escape, where no value can end. Other positions are at most 8 * `BLOCK_CODES`.
const INSIDE: u16 = u16::MAX;

/// Codes as symbols.
pub struct SymbolTable {
    /// Codes from here on are not symbols.
    count: u8,
    /// Symbols; the bytes after a symbol's length are 0.
    symbols: [u64; 256],
    /// The length in each of `GROUP` lanes of 16 bits.
    lengths: [u64; 256],
    /// Length of the longest symbol.
    longest: u8,
    /// Addend of `all_symbols`, and whether `count` is below 128, so that a byte with its upper bit set is not a
    /// symbol.
    carry: u64,
    upper: u64,
    pub coded: bool,
}

impl SymbolTable {
    pub const BYTES: usize = 8 + 256 * 8 + 256;

    pub fn parse(bytes: &[u8]) -> PyResult<Self> {
        if bytes.len() != Self::BYTES || bytes[4..8] != MAGIC || bytes[3] > 1 {
            return Err(invalid("not an FSST symbol table: 2312 bytes with 'TSSF' at 4 and a switch of 0 or 1 at 3"));
        }
        let count = bytes[0];
        let coded = bytes[3] == 1;
        let (symbols_raw, rest) = bytes[8..].split_at(8 * count as usize);
        let lengths_raw = &rest[..count as usize];
        if coded && lengths_raw.iter().any(|length| !(1..=8).contains(length)) {
            return Err(invalid("an FSST symbol has a length outside 1..=8"));
        }
        let (mut symbols, mut lengths, mut longest) = ([0; 256], [LANES; 256], 1);
        for (code, (raw, &length)) in symbols_raw.as_chunks().0.iter().zip(lengths_raw).enumerate() {
            let length = length.clamp(1, 8);
            symbols[code] = u64::from_le_bytes(*raw) & (u64::MAX >> (64 - 8 * u32::from(length)));
            lengths[code] = u64::from(length) * LANES;
            longest = longest.max(length);
        }
        let (carry, upper) = match count {
            0 => (EACH << 7, u64::MAX),
            1..=128 => (EACH * u64::from(128 - count), u64::MAX),
            129.. => (EACH * u64::from(256 - u16::from(count)), 0),
        };
        Ok(SymbolTable { count, symbols, lengths, longest, carry, upper, coded })
    }
}

/// Working memory, kept from call to call.
#[derive(Default)]
pub struct Scratch {
    window: Vec<u8>,
    /// Start of each code's bytes in the window, and the end of the last.
    places: Vec<u16>,
}

impl Scratch {
    /// Allocate memory for blocks of `num_codes` codes, and for the overhang of a run's stores.
    fn prepare(&mut self, num_codes: usize) -> Checked<()> {
        let places = num_codes.min(BLOCK_CODES) + 1;
        if self.places.len() < places {
            self.window.try_resize(places * SYMBOL_BYTES + RUN_REACH, 0)?;
            self.places.try_resize(places, 0)?;
        }
        Ok(())
    }
}

impl SymbolTable {
    /// Append adjacent values in `codes`; `ends` ascend up to its length.
    pub fn decode<O: Offset>(
        &self,
        codes: &[u8],
        ends: impl Iterator<Item = usize>,
        scratch: &mut Scratch,
        out: &mut Strings<O>,
    ) -> Checked<()> {
        scratch.prepare(codes.len())?;
        let mut ends = ends.peekable();
        let mut start = 0;
        loop {
            let block = &codes[start..codes.len().min(start + BLOCK_CODES)];
            let is_last = start + block.len() == codes.len();
            let (used, made) = self.block(block, is_last, &mut scratch.window, &mut scratch.places)?;
            let base = out.data.len();
            let mut split = false;
            while let Some(end) = ends.next_if(|&end| end <= start + used) {
                let place = scratch.places[end - start];
                split |= place == INSIDE;
                out.offsets.try_push(O::wrap(base + place as usize))?;
            }
            if split {
                return damaged!("an FSST value ends in an escape");
            }
            out.push_bytes(&scratch.window[..made])?;
            start += used;
            if is_last {
                return Ok(());
            }
        }
    }

    /// Append one value: the first `num_codes` codes of `codes`, whose following codes may be read as well.
    pub fn decode_one<O: Offset>(
        &self,
        codes: &[u8],
        num_codes: usize,
        scratch: &mut Scratch,
        out: &mut Strings<O>,
    ) -> Checked<()> {
        let filled = num_codes.next_multiple_of(RUN);
        if let (..=BLOCK_CODES, Some(runs)) = (filled, codes.get(..filled)) {
            scratch.prepare(filled)?;
            let (at, made) = self.all_runs(runs, 0, 0, &mut scratch.window, &mut scratch.places);
            if at == filled {
                scratch.places[filled] = made as u16;
                let made = usize::from(scratch.places[num_codes]);
                out.push_bytes(&scratch.window[..made])?;
                return out.end_value();
            }
        }
        self.decode(&codes[..num_codes], std::iter::once(num_codes), scratch, out)
    }

    /// Decode a block; an escape in the last position is left to the next block. Returns codes read and bytes written.
    #[inline]
    fn block(&self, codes: &[u8], is_last: bool, out: &mut [u8], places: &mut [u16]) -> Checked<(usize, usize)> {
        let (mut at, mut made) = (0, 0);
        loop {
            (at, made) = self.all_runs(codes, at, made, out, places);
            // One code at a time: the rest of the block, or up to the code that ended the runs.
            let until = codes.len().min(at + RUN);
            let mut is_plain = true;
            while at < until && is_plain {
                let code = codes[at];
                is_plain = code < self.count;
                places[at] = made as u16;
                if is_plain {
                    out[made..made + SYMBOL_BYTES].copy_from_slice(&self.symbols[code as usize].to_le_bytes());
                    (at, made) = (at + 1, made + (self.lengths[code as usize] & LENGTH) as usize);
                } else if code != ESCAPE {
                    return damaged!("an FSST value holds a code without a symbol");
                } else if at + 1 < codes.len() {
                    places[at + 1] = INSIDE;
                    out[made] = codes[at + 1];
                    (at, made) = (at + 2, made + 1);
                } else if is_last {
                    return damaged!("an FSST value ends in an escape");
                } else {
                    return Ok((at, made));
                }
            }
            if at == codes.len() {
                places[at] = made as u16;
                return Ok((at, made));
            }
        }
    }

    /// Dispatch to the fastest `runs` for the table: decoding is limited by stores, so short symbols share one.
    #[inline(always)]
    fn all_runs(&self, codes: &[u8], at: usize, made: usize, out: &mut [u8], places: &mut [u16]) -> (usize, usize) {
        match self.longest {
            1..=2 => self.runs::<4>(codes, at, made, out, places),
            3..=4 => self.runs::<2>(codes, at, made, out, places),
            _ => self.runs::<1>(codes, at, made, out, places),
        }
    }

    /// Decode runs of symbols from code `at` on, `SHARE` of which fit into one store; stops before the first run with a
    /// code that is not a symbol.
    #[inline(always)]
    fn runs<const SHARE: usize>(
        &self,
        codes: &[u8],
        mut at: usize,
        mut made: usize,
        out: &mut [u8],
        places: &mut [u16],
    ) -> (usize, usize) {
        let (runs, _) = codes[at..].as_chunks::<RUN>();
        let (places, _) = places[at..].as_chunks_mut::<RUN>();
        for (run, places) in runs.iter().zip(places) {
            let Some(slots) = out.get_mut(made..made + RUN_REACH) else { break };
            if !self.all_symbols(u64::from_le_bytes(*run)) {
                break;
            }
            let mut filled = 0;
            for (group, places) in run.as_chunks::<GROUP>().0.iter().zip(places.as_chunks_mut::<GROUP>().0) {
                let symbols = group.map(|code| self.symbols[code as usize]);
                let [a, b, c, d] = group.map(|code| self.lengths[code as usize]);
                *places = bytemuck::cast((made + filled) as u64 * LANES + (a << 16) + (b << 32) + (c << 48));
                let starts = [0, a, a + b, a + b + c].map(|length| filled + (length & LENGTHS) as usize);
                for (symbols, starts) in symbols.as_chunks::<SHARE>().0.iter().zip(starts.as_chunks::<SHARE>().0) {
                    let shift = |start: usize| (8 * (start - starts[0])) & 63;
                    let bytes = symbols.iter().zip(starts).fold(0, |all, (symbol, &at)| all | symbol << shift(at));
                    slots[starts[0]..starts[0] + SYMBOL_BYTES].copy_from_slice(&bytes.to_le_bytes());
                }
                filled += ((a + b + c + d) & LENGTHS_OF_GROUP) as usize;
            }
            made += filled;
            at += RUN;
        }
        (at, made)
    }

    /// Whether each of eight codes is below `count`: the upper bit of a byte and the other seven are compared
    /// separately.
    #[inline(always)]
    fn all_symbols(&self, codes: u64) -> bool {
        const UPPER: u64 = EACH << 7;
        let beyond = (codes & !UPPER) + self.carry;
        ((beyond & codes) | ((beyond | codes) & self.upper)) & UPPER == 0
    }
}
