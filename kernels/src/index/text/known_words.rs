//! Words that a map has met before, and what the filters of its tokenizer make of each: a term, or nothing.
//!
//! Filters look at one word at a time, so that a word has the same token wherever it stands.

use crate::room::{filled, Grow, Roomy};

/// Then the words are forgotten, and learned again.
const WORDS_MAX: usize = 1 << 15;
const ARENA_BYTES_MAX: usize = 1 << 19;
/// Longer words are rare, and looked at each time.
const WORD_BYTES_MAX: usize = 64;
const SLOTS_MIN: usize = 1 << 10;
const DROPPED: u32 = u32::MAX;

struct Word {
    /// Where its bytes end in the arena; they begin where those of the word before end.
    end: u32,
    hash: u32,
    term: u32,
}

#[derive(Default)]
pub struct KnownWords {
    slots: Vec<u32>,
    words: Vec<Word>,
    arena: Vec<u8>,
}

impl KnownWords {
    pub fn num_bytes(&self) -> usize {
        4 * self.slots.len() + size_of::<Word>() * self.words.capacity() + self.arena.capacity()
    }

    fn bytes_of(&self, number: usize) -> &[u8] {
        let start = if number == 0 { 0 } else { self.words[number - 1].end as usize };
        &self.arena[start..self.words[number].end as usize]
    }

    /// The term of a word; None within for a word that is dropped, None for an unknown one.
    #[inline]
    pub fn find(&self, hash: u32, word: &[u8]) -> Option<Option<usize>> {
        let mask = self.slots.len().checked_sub(1)?;
        let mut at = hash as usize & mask;
        loop {
            let number = (self.slots[at] as usize).checked_sub(1)?;
            let known = &self.words[number];
            if known.hash == hash && self.bytes_of(number) == word {
                return Some((known.term != DROPPED).then_some(known.term as usize));
            }
            at = (at + 1) & mask;
        }
    }

    /// Learn a word that is unknown. term: None if it is dropped
    pub fn learn(&mut self, hash: u32, word: &[u8], term: Option<usize>) -> Roomy<()> {
        if word.len() > WORD_BYTES_MAX {
            return Ok(());
        }
        if self.words.len() == WORDS_MAX || self.arena.len() + word.len() > ARENA_BYTES_MAX {
            self.words.clear();
            self.arena.clear();
            self.slots.fill(0);
        }
        if self.words.len() * 2 >= self.slots.len() {
            self.grow()?;
        }
        self.arena.try_append(word)?;
        let term = term.map_or(DROPPED, |term| term as u32);
        self.words.try_push(Word { end: self.arena.len() as u32, hash, term })?;
        self.fill_slot(hash, self.words.len() as u32);
        Ok(())
    }

    fn grow(&mut self) -> Roomy<()> {
        self.slots = filled(0, (self.slots.len() * 2).max(SLOTS_MIN))?;
        for number in 0..self.words.len() {
            self.fill_slot(self.words[number].hash, number as u32 + 1);
        }
        Ok(())
    }

    /// number: of a word, from 1
    fn fill_slot(&mut self, hash: u32, number: u32) {
        let mask = self.slots.len() - 1;
        let mut at = hash as usize & mask;
        while self.slots[at] != 0 {
            at = (at + 1) & mask;
        }
        self.slots[at] = number;
    }
}
