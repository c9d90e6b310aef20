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

use crate::codec::invalid;
use crate::damaged;
use crate::error::Checked;
use pyo3::PyResult;

const ESCAPE: u8 = 255;
const MAGIC: [u8; 4] = [0x54, 0x53, 0x53, 0x46];
/// Codes that are decoded without a look at each other.
const RUN: usize = 8;
/// A bit that no length has.
const MISSING: u8 = 0x80;
/// Longest symbol; also how far one store reaches.
const SYMBOL_BYTES: usize = 8;

/// Codes as symbols.
pub struct SymbolTable {
    symbols: [u64; 256],
    /// Length minus 1; `MISSING` for codes without a symbol.
    lengths: [u8; 256],
    pub coded: bool,
}

impl SymbolTable {
    pub const BYTES: usize = 8 + 256 * 8 + 256;

    pub fn parse(bytes: &[u8]) -> PyResult<Self> {
        if bytes.len() != Self::BYTES || bytes[4..8] != MAGIC || bytes[3] > 1 {
            return Err(invalid("not an FSST symbol table: 2312 bytes with 'TSSF' at 4 and a switch of 0 or 1 at 3"));
        }
        let count = bytes[0] as usize;
        let (symbols_raw, rest) = bytes[8..].split_at(8 * count);
        let mut table = SymbolTable { symbols: [0; 256], lengths: [MISSING; 256], coded: bytes[3] == 1 };
        for (symbol, raw) in table.symbols.iter_mut().zip(symbols_raw.chunks_exact(8)) {
            *symbol = u64::from_le_bytes(raw.try_into().unwrap_or_default());
        }
        if table.coded && rest[..count].iter().any(|length| !(1..=8).contains(length)) {
            return Err(invalid("an FSST symbol has a length outside 1..=8"));
        }
        for (length, raw) in table.lengths.iter_mut().zip(&rest[..count]) {
            *length = raw.wrapping_sub(1);
        }
        Ok(table)
    }

    /// The answer of a block, unless one of its codes was `MISSING`.
    fn check(&self, missing: u8, used: usize, made: usize) -> Checked<(usize, usize)> {
        match missing & MISSING {
            0 => Ok((used, made)),
            _ => damaged!("an FSST value holds a code without a symbol"),
        }
    }
}

/// Decodes values into a small window and moves it to the output when it is full.
pub struct Decoder<'a> {
    table: &'a SymbolTable,
    window: &'a mut Vec<u8>,
    filled: usize,
}

/// Codes decoded between two looks at the window.
const BLOCK_CODES: usize = 4096;
const WINDOW_BYTES: usize = 2 * BLOCK_CODES * SYMBOL_BYTES;

impl<'a> Decoder<'a> {
    /// `window` is working memory, kept by the caller from chunk to chunk.
    pub fn new(table: &'a SymbolTable, window: &'a mut Vec<u8>) -> Self {
        Decoder { table, window, filled: 0 }
    }

    /// Append one value to what has been decoded; `data` receives full windows. Returns the length of everything.
    #[inline]
    pub fn value(&mut self, mut codes: &[u8], data: &mut Vec<u8>) -> Checked<usize> {
        loop {
            let block = &codes[..codes.len().min(BLOCK_CODES)];
            let reach = block.len() * SYMBOL_BYTES;
            if self.window.len() - self.filled < reach {
                self.flush(data);
                if self.window.len() < reach {
                    self.window.resize(reach.next_power_of_two().min(WINDOW_BYTES), 0);
                }
            }
            let (used, made) = self.block(block, block.len() == codes.len())?;
            self.filled += made;
            codes = &codes[used..];
            if codes.is_empty() {
                return Ok(data.len() + self.filled);
            }
        }
    }

    /// Move what is in the window to the output.
    pub fn flush(&mut self, data: &mut Vec<u8>) {
        data.extend_from_slice(&self.window[..self.filled]);
        self.filled = 0;
    }

    /// Decode a block; an escape in its last place is left to the next block. Returns codes used and bytes made.
    #[inline]
    fn block(&mut self, codes: &[u8], last: bool) -> Checked<(usize, usize)> {
        let out = &mut self.window[self.filled..];
        let (mut at, mut made) = (0, 0);
        let mut missing = 0u8;
        loop {
            while let Some(run) = codes[at..].first_chunk::<RUN>() {
                let Some(slots) = out.get_mut(made..made + RUN * SYMBOL_BYTES) else { break };
                if run.contains(&ESCAPE) {
                    break;
                }
                let mut filled = 0;
                for &code in run {
                    let length = self.table.lengths[code as usize];
                    missing |= length;
                    let symbol = self.table.symbols[code as usize].to_le_bytes();
                    slots[filled..filled + SYMBOL_BYTES].copy_from_slice(&symbol);
                    filled += (length & 7) as usize + 1;
                }
                (at, made) = (at + RUN, made + filled);
            }
            // One by one: the rest of the block, or as far as the escape that ended the fast loop.
            let until = codes.len().min(at + RUN);
            if at == until {
                break;
            }
            while at < until {
                let code = codes[at];
                if code != ESCAPE {
                    let symbol = self.table.symbols[code as usize].to_le_bytes();
                    out[made..made + SYMBOL_BYTES].copy_from_slice(&symbol);
                    let length = self.table.lengths[code as usize];
                    missing |= length;
                    (at, made) = (at + 1, made + (length & 7) as usize + 1);
                } else if at + 1 < codes.len() {
                    out[made] = codes[at + 1];
                    (at, made) = (at + 2, made + 1);
                } else if last {
                    return damaged!("an FSST value ends in an escape");
                } else {
                    return self.table.check(missing, at, made);
                }
            }
        }
        self.table.check(missing, at, made)
    }
}
