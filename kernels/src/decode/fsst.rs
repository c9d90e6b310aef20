//! FSST: strings as codes of a page-wide table of up to 255 symbols (spec: encodings, 8.3).
//!
//!     bytes          meaning
//!     0              n, the number of symbols
//!     1, 2           hints for the encoder
//!     3              1 = values are coded, 0 = they are stored as they are
//!     4-7            54 53 53 46
//!     8 .. 8+8n      symbols, 8 bytes each, of which the first `length` count
//!     8+8n .. 8+9n   lengths, 1..=8
//!     .. 2312        0
//!
//! Decoding a code is one 8-byte store and an advance by the symbol's length; code 255 says that the next byte stands
//! for itself. Codes never cross values.
//!
//! Values are short, so a loop per value would guess its end wrong once for each. The codes of a run of values are
//! decoded as one stream, which notes where each code's bytes begin; the values' ends are looked up there. A value by
//! itself is decoded the same way, with the codes behind it that fill up its last run.

use crate::damaged;
use crate::error::{invalid, Checked};
use crate::room::Grow;
use crate::sink::{Offset, Strings};
use pyo3::PyResult;

const ESCAPE: u8 = 255;
pub const MAGIC: [u8; 4] = [0x54, 0x53, 0x53, 0x46];
/// Longest symbol; also how far one store reaches.
const SYMBOL_BYTES: usize = 8;
/// Codes that are decoded without a look at each other.
const RUN: usize = 8;
/// Codes decoded before their bytes are moved to the output: what they become stays in the nearest cache.
const BLOCK_CODES: usize = 2048;
/// Codes whose places are written by one store, in lanes of 16 bits.
const GROUP: usize = 4;
const LANES: u64 = 0x0001_0001_0001_0001;
/// Bits that hold a length, three of them together, and four: the masks tell the compiler what cannot be exceeded.
const LENGTH: u64 = 15;
const LENGTHS: u64 = 31;
const LENGTHS_OF_GROUP: u64 = 63;
/// As far as a run could store if all masks were exhausted.
const RUN_REACH: usize = 128;
/// A 1 in each of eight bytes.
const EACH: u64 = 0x0101_0101_0101_0101;
/// The place of a byte behind an escape, where no value can end. Other places are at most 8 * `BLOCK_CODES`.
const INSIDE: u16 = u16::MAX;

/// Codes as symbols.
pub struct SymbolTable {
    /// Codes from here on are no symbols.
    count: u8,
    /// The bytes behind a symbol's length are 0.
    symbols: [u64; 256],
    /// The length in each of `GROUP` lanes of 16 bits.
    lengths: [u64; 256],
    /// Length of the longest symbol.
    longest: u8,
    /// What `all_symbols` adds, and whether `count` is that small that an upper bit is beyond it.
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
    /// Where in the window the bytes of each code begin, and where those of the last one end.
    places: Vec<u16>,
}

impl Scratch {
    /// Make room for blocks of so many codes, and for what a run stores behind them.
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
    /// Append values that lie back to back in `codes`; they end at `ends`, which ascend up to its length.
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

    /// Append one value: the first `num_codes` codes of `codes`, of which some more may be looked at.
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

    /// Decode a block; an escape in its last place is left to the next block. Returns codes used and bytes made.
    #[inline]
    fn block(&self, codes: &[u8], is_last: bool, out: &mut [u8], places: &mut [u16]) -> Checked<(usize, usize)> {
        let (mut at, mut made) = (0, 0);
        loop {
            (at, made) = self.all_runs(codes, at, made, out, places);
            // One by one: the rest of the block, or as far as the code that ended the runs.
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

    /// `runs` in the way that is fastest for the table: stores are what decoding waits for, so short symbols share one.
    #[inline(always)]
    fn all_runs(&self, codes: &[u8], at: usize, made: usize, out: &mut [u8], places: &mut [u16]) -> (usize, usize) {
        match self.longest {
            1..=2 => self.runs::<4>(codes, at, made, out, places),
            3..=4 => self.runs::<2>(codes, at, made, out, places),
            _ => self.runs::<1>(codes, at, made, out, places),
        }
    }

    /// Decode runs of symbols from code `at` on, of which `SHARE` fit into one store; stops before the first run that is
    /// not all symbols.
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

    /// Whether each of eight codes is below `count`: a byte's upper bit and its other seven are compared apart.
    #[inline(always)]
    fn all_symbols(&self, codes: u64) -> bool {
        const UPPER: u64 = EACH << 7;
        let beyond = (codes & !UPPER) + self.carry;
        ((beyond & codes) | ((beyond | codes) & self.upper)) & UPPER == 0
    }
}
