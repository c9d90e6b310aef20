//! Trains the symbol table that makes the values of a page shortest (spec: encodings, 8.3), by repeatedly coding a
//! sample.
//!
//! Generations come first, as in the paper on FSST (Boncz, Neumann, Leis: "FSST: Fast Random Access String
//! Compression", PVLDB 13, 2020): a growing sample is coded with the symbols of the previous generation. The symbols,
//! and concatenated neighbours, that coded the most bytes are the next generation. A coded byte counts the same whether
//! it would be cheap or expensive without the symbol, therefore many nearly redundant symbols remain.
//!
//! Exchanges come next, and count savings in codes: a joined pair saves a code per occurrence; removing a symbol costs
//! the bytes that its occurrences take with the remaining symbols. The most expensive pairs replace the cheapest
//! symbols, some at a time. The best table of all rounds is kept.

use super::symbols::{slot, Symbol, SLOTS, SYMBOLS_MAX, SYMBOL_BYTES};
use crate::room::{boxed, Copied, Gather, Grow, Roomy};

/// Generations; each codes one more share of the sample than the one before.
const GENERATIONS: usize = 8;
/// Rounds of exchanges, and the number of symbols that the first may replace; each later round replaces fewer.
const EXCHANGES: usize = 2;
const EXCHANGED_MAX: usize = 64;
/// Weight of a byte that is not a symbol: it takes two bytes, and interrupts concatenation.
const BYTE_WEIGHT: u32 = 8;
/// Codes: a byte that is not a symbol is its own code; symbols start here.
const FIRST_SYMBOL: usize = 256;
const CODES: usize = FIRST_SYMBOL + SYMBOLS_MAX + 1;
/// Number of candidates that are sorted; the best are taken, except those whose slot is occupied.
const SORTED_MAX: usize = 1024;

/// Values, or pieces of them, concatenated.
pub struct Sample {
    /// The bytes, followed by `SYMBOL_BYTES` bytes of padding.
    bytes: Vec<u8>,
    ends: Vec<usize>,
}

impl Sample {
    pub fn new(pieces: impl Iterator<Item = impl AsRef<[u8]>>) -> Roomy<Self> {
        let (mut bytes, mut ends) = (Vec::new(), vec![0]);
        for piece in pieces {
            bytes.try_append(piece.as_ref())?;
            ends.try_push(bytes.len())?;
        }
        bytes.try_resize(bytes.len() + SYMBOL_BYTES, 0)?;
        Ok(Sample { bytes, ends })
    }
}

/// Symbols by their first bytes, and the frequencies of symbols and pairs.
struct Counter {
    /// Bytes and length of each code.
    symbols: [Symbol; CODES],
    ones: [u16; 256],
    twos: Box<[u16; 1 << 16]>,
    longs: Box<[Long; SLOTS]>,
    num_symbols: usize,
    counts: [u32; CODES],
    pair_counts: Box<[u16; CODES * CODES]>,
    /// The pairs that occurred.
    pairs: Vec<u32>,
}

#[derive(Clone, Copy)]
struct Long {
    word: u64,
    mask: u64,
    code: u16,
}

/// The pairs to count: none, neighbours, or also each code with the first byte of the next.
#[derive(Clone, Copy, PartialEq)]
enum Pairs {
    None,
    Neighbours,
    AndFirstBytes,
}

const NO_CODE: u16 = u16::MAX;
const NO_LONG: Long = Long { word: 1, mask: 0, code: NO_CODE };

impl Counter {
    fn new() -> Roomy<Self> {
        let byte = |code: usize| Symbol { word: code as u64 & 0xFF, length: 1 };
        Ok(Counter {
            symbols: std::array::from_fn(byte),
            ones: std::array::from_fn(|byte| byte as u16),
            twos: boxed(NO_CODE)?,
            longs: boxed(NO_LONG)?,
            num_symbols: 0,
            counts: [0; CODES],
            pair_counts: boxed(0)?,
            pairs: Vec::new(),
        })
    }

    /// Replace the symbols.
    fn load(&mut self, symbols: &[Symbol]) {
        for symbol in &self.symbols[FIRST_SYMBOL..FIRST_SYMBOL + self.num_symbols] {
            match symbol.length {
                1 => self.ones[symbol.word as u8 as usize] = symbol.word as u16,
                2 => self.twos[symbol.word as u16 as usize] = NO_CODE,
                _ => self.longs[slot(symbol.word)] = NO_LONG,
            }
        }
        self.num_symbols = symbols.len();
        for (code, &symbol) in (FIRST_SYMBOL..).zip(symbols) {
            self.symbols[code] = symbol;
            match symbol.length {
                1 => self.ones[symbol.word as u8 as usize] = code as u16,
                2 => self.twos[symbol.word as u16 as usize] = code as u16,
                _ => self.longs[slot(symbol.word)] = Long { word: symbol.word, mask: symbol.mask(), code: code as u16 },
            }
        }
    }

    /// The code of the longest symbol at this position with at most `left` bytes, other than `but`.
    #[inline(always)]
    fn find(&self, word: u64, left: usize, but: usize) -> usize {
        let long = &self.longs[slot(word)];
        let fits = |code: u16| code as usize != but && self.symbols[code as usize].length as usize <= left;
        if word & long.mask == long.word && fits(long.code) {
            return long.code as usize;
        }
        let two = self.twos[word as u16 as usize];
        if two != NO_CODE && fits(two) {
            return two as usize;
        }
        self.ones[word as u8 as usize] as usize
    }

    /// Code `shares` of every `GENERATIONS` values; returns the bytes of the codes.
    fn count(&mut self, sample: &Sample, shares: usize, pairs: Pairs) -> Roomy<usize> {
        self.pairs.iter().for_each(|&pair| self.pair_counts[pair as usize] = 0);
        self.pairs.clear();
        self.counts.fill(0);
        let mut num_bytes = 0;
        for (number, bounds) in sample.ends.windows(2).enumerate() {
            if number % GENERATIONS >= shares {
                continue;
            }
            let (mut at, end) = (bounds[0], bounds[1]);
            let mut before = None;
            while at < end {
                let code = self.find(word_at(&sample.bytes, at), end - at, CODES);
                let symbol = self.symbols[code];
                num_bytes += code_bytes(code);
                self.counts[code] += 1;
                let first = symbol.word as u8 as usize;
                let is_long = pairs == Pairs::AndFirstBytes && symbol.length > 1;
                if let Some(before) = before {
                    self.count_pair(before, code)?;
                    if is_long {
                        self.count_pair(before, first)?;
                    }
                }
                self.counts[first] += u32::from(is_long);
                before = (pairs != Pairs::None).then_some(code);
                at += symbol.length as usize;
            }
        }
        Ok(num_bytes)
    }

    #[inline(always)]
    fn count_pair(&mut self, before: usize, code: usize) -> Roomy<()> {
        let pair = before * CODES + code;
        if self.pair_counts[pair] == 0 {
            self.pairs.try_push(pair as u32)?;
        }
        self.pair_counts[pair] = self.pair_counts[pair].saturating_add(1);
        Ok(())
    }

    /// Pairs that occurred at least twice, and how often.
    fn frequent_pairs(&self) -> impl Iterator<Item = (usize, usize, u32)> + '_ {
        let count =
            |&pair: &u32| (pair as usize / CODES, pair as usize % CODES, self.pair_counts[pair as usize] as u32);
        self.pairs.iter().map(count).filter(|&(_, _, count)| count > 1)
    }

    /// Bytes that coding a symbol takes without this symbol.
    fn bytes_without(&self, code: usize) -> usize {
        let Symbol { mut word, length } = self.symbols[code];
        let (mut left, mut num_bytes) = (length as usize, 0);
        if left == 1 {
            return 2;
        }
        while left > 0 {
            let next = self.find(word, left, code);
            num_bytes += code_bytes(next);
            let length = self.symbols[next].length as usize;
            left -= length;
            word = word.checked_shr(8 * length as u32).unwrap_or(0);
        }
        num_bytes
    }
}

fn word_at(bytes: &[u8], at: usize) -> u64 {
    let mut word = [0; SYMBOL_BYTES];
    word.copy_from_slice(&bytes[at..at + SYMBOL_BYTES]);
    u64::from_le_bytes(word)
}

fn code_bytes(code: usize) -> usize {
    1 + usize::from(code < FIRST_SYMBOL)
}

/// Candidate symbols without duplicates, with the sum of their gains.
struct Candidates {
    found: Vec<(Symbol, u32)>,
    /// Hash table of positions in `found`, plus one; 0 for an empty slot.
    places: Vec<u32>,
    /// Gains and positions in `found`, for sorting.
    ranks: Vec<u64>,
}

impl Candidates {
    /// Remove all candidates, and reserve memory for the expected number.
    fn start(&mut self, expected: usize) -> Roomy<()> {
        self.found.clear();
        self.places.clear();
        self.places.try_resize((2 * expected).next_power_of_two(), 0)
    }

    fn add(&mut self, symbol: Symbol, gain: u32) -> Roomy<()> {
        let key = symbol.word.wrapping_add(symbol.length as u64).wrapping_mul(0x9E37_79B9_7F4A_7C15) >> 32;
        let mask = self.places.len() - 1;
        let mut place = key as usize & mask;
        loop {
            match self.places[place] {
                0 => break,
                other if self.found[other as usize - 1].0 == symbol => {
                    self.found[other as usize - 1].1 += gain;
                    return Ok(());
                }
                _ => place = (place + 1) & mask,
            }
        }
        self.found.try_push((symbol, gain))?;
        self.places[place] = self.found.len() as u32;
        Ok(())
    }

    /// The best candidates, best first; ties keep the order of discovery.
    fn best(&mut self) -> Roomy<impl Iterator<Item = (Symbol, u32)> + '_> {
        self.ranks.clear();
        let ranks = (0u32..).zip(&self.found).map(|(place, &(_, gain))| u64::from(!gain) << 32 | u64::from(place));
        self.ranks.try_extend(ranks)?;
        if self.ranks.len() > SORTED_MAX {
            self.ranks.select_nth_unstable(SORTED_MAX);
            self.ranks.truncate(SORTED_MAX);
        }
        self.ranks.sort_unstable();
        Ok(self.ranks.iter().map(|&rank| self.found[rank as u32 as usize]))
    }
}

/// Train the symbols of a table for the sample.
pub fn train(sample: &Sample) -> Roomy<Vec<Symbol>> {
    let mut counter = Counter::new()?;
    let mut candidates = Candidates { found: Vec::new(), places: Vec::new(), ranks: Vec::new() };
    let mut symbols = Vec::new();
    for generation in 1..=GENERATIONS {
        counter.load(&symbols);
        let is_last = generation == GENERATIONS;
        counter.count(sample, generation, if is_last { Pairs::None } else { Pairs::AndFirstBytes })?;
        symbols = next_generation(&counter, &mut candidates, generation)?;
    }
    exchange(&mut counter, &mut candidates, sample, symbols)
}

fn next_generation(counter: &Counter, candidates: &mut Candidates, generation: usize) -> Roomy<Vec<Symbol>> {
    candidates.start(CODES + counter.pairs.len())?;
    let is_last = generation == GENERATIONS;
    let count_min = if is_last { 1 } else { (generation * 5).div_ceil(GENERATIONS) as u32 };
    for (symbol, &count) in counter.symbols.iter().zip(&counter.counts).take(FIRST_SYMBOL + counter.num_symbols) {
        if count >= count_min {
            let weight = if symbol.length == 1 { BYTE_WEIGHT } else { symbol.length as u32 };
            candidates.add(*symbol, count * weight)?;
        }
    }
    if !is_last {
        for (before, code, count) in counter.frequent_pairs() {
            let before = counter.symbols[before];
            if (before.length as usize) < SYMBOL_BYTES {
                let joined = before.join(counter.symbols[code]);
                candidates.add(joined, count * joined.length as u32)?;
            }
        }
    }
    let mut is_taken = [false; SLOTS];
    let best = candidates.best()?.map(|(symbol, _)| symbol);
    best.filter(|symbol| symbol.length < 3 || !std::mem::replace(&mut is_taken[slot(symbol.word)], true))
        .take(SYMBOLS_MAX)
        .try_vec()
}

/// Replace symbols by joined pairs that save more.
fn exchange(
    counter: &mut Counter,
    candidates: &mut Candidates,
    sample: &Sample,
    mut symbols: Vec<Symbol>,
) -> Roomy<Vec<Symbol>> {
    let (mut best, mut best_bytes) = (Vec::new(), usize::MAX);
    for round in 0..=EXCHANGES {
        counter.load(&symbols);
        let pairs = if round == EXCHANGES { Pairs::None } else { Pairs::Neighbours };
        let num_bytes = counter.count(sample, GENERATIONS, pairs)?;
        if num_bytes < best_bytes {
            (best, best_bytes) = (symbols.try_to_vec()?, num_bytes);
        }
        let exchanged_max = EXCHANGED_MAX * (EXCHANGES - round) / EXCHANGES;
        if exchanged_max == 0 || !exchange_some(counter, candidates, &mut symbols, exchanged_max)? {
            break;
        }
    }
    Ok(best)
}

/// Replace up to `exchanged_max` symbols; returns whether any was replaced.
fn exchange_some(
    counter: &Counter,
    candidates: &mut Candidates,
    symbols: &mut Vec<Symbol>,
    exchanged_max: usize,
) -> Roomy<bool> {
    let costs: Vec<u32> = (0..symbols.len()).map(|place| cost(counter, FIRST_SYMBOL + place)).try_vec()?;
    let mut cheapest: Vec<usize> = (0..symbols.len()).try_vec()?;
    cheapest.sort_unstable_by_key(|&place| (costs[place], place));
    let mut cheapest = cheapest.into_iter().peekable();
    find_joined(counter, candidates)?;
    // A new symbol stays for this round, and so does its slot.
    let (mut is_new, mut has_new) = ([false; SYMBOLS_MAX], [false; SLOTS]);
    let mut num_exchanged = 0;
    for (symbol, gain) in candidates.best()? {
        if num_exchanged == exchanged_max {
            break;
        }
        let slot = (symbol.length > 2).then(|| slot(symbol.word));
        if slot.is_some_and(|slot| has_new[slot]) || symbols.contains(&symbol) {
            continue;
        }
        let holder = slot.map(|slot| counter.longs[slot].code as usize).filter(|&code| code != NO_CODE as usize);
        let place = match holder.map(|code| code - FIRST_SYMBOL).filter(|&place| !is_new[place]) {
            Some(place) if costs[place] < gain => place,
            Some(_) => continue,
            None if symbols.len() < SYMBOLS_MAX => {
                symbols.try_push(symbol)?;
                symbols.len() - 1
            }
            None => {
                while cheapest.next_if(|&place| is_new[place]).is_some() {}
                match cheapest.peek() {
                    Some(&place) if costs[place] < gain => place,
                    _ => break,
                }
            }
        };
        symbols[place] = symbol;
        is_new[place] = true;
        slot.into_iter().for_each(|slot| has_new[slot] = true);
        num_exchanged += 1;
    }
    Ok(num_exchanged > 0)
}

/// Bytes by which the sample would grow without a symbol.
fn cost(counter: &Counter, code: usize) -> u32 {
    match counter.counts[code] {
        0 => 0,
        count => count * (counter.bytes_without(code) - 1) as u32,
    }
}

/// Add pairs as symbols, and bytes that are not symbols yet, with the bytes that each would save in the sample.
fn find_joined(counter: &Counter, candidates: &mut Candidates) -> Roomy<()> {
    candidates.start(CODES + counter.pairs.len())?;
    for byte in (0..FIRST_SYMBOL).filter(|&byte| counter.counts[byte] > 1) {
        candidates.add(counter.symbols[byte], counter.counts[byte])?;
    }
    for (before, code, count) in counter.frequent_pairs() {
        let (first, second) = (counter.symbols[before], counter.symbols[code]);
        if (first.length + second.length) as usize <= SYMBOL_BYTES {
            candidates.add(first.join(second), count * (code_bytes(before) + code_bytes(code) - 1) as u32)?;
        }
    }
    Ok(())
}
