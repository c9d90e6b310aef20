//! A map from tokens to their documents, which grows while texts are read: each list is kept compressed.

use super::analyzer::{next_token, Analyzer};
use super::known_words::KnownWords;
use super::varints;
use crate::buffer::{Input, OwnedBuffer};
use crate::error::invalid;
use crate::gil;
use crate::room::{filled, vec_with_capacity, Gather, GatherResults, Grow, Roomy};
use crate::text::arguments::{checked_present, is_present, Arguments, Given, Held, Patience, Row, BYTES_PER_STEP};
use crate::threads::side_by_side;
use lance_tokenizer::TextAnalyzer;
use pyo3::prelude::*;
use std::sync::{Mutex, MutexGuard};

/// A token and its documents, in ascending order.
struct Term {
    /// Where its bytes end in the arena; they begin where those of the token before end.
    end: u32,
    hash: u32,
    /// The document that is counted at the moment, its frequency, and the last position in it.
    doc: u32,
    freq: u32,
    position: u32,
    /// The document before that, and the number of documents so far.
    before: u32,
    count: u32,
    docs: Vec<u8>,
    positions: Vec<u8>,
}

impl Term {
    /// End the document that is counted: its number as a difference, and its frequency unless that is 1.
    fn end_document(&mut self) -> Roomy<()> {
        if self.freq == 0 {
            return Ok(());
        }
        let gap = if self.count == 0 { self.doc } else { self.doc - self.before };
        varints::put(&mut self.docs, gap << 1 | u32::from(self.freq == 1))?;
        if self.freq > 1 {
            varints::put(&mut self.docs, self.freq)?;
        }
        (self.before, self.count, self.freq) = (self.doc, self.count + 1, 0);
        Ok(())
    }
}

/// Documents of one map: differences are stored with one bit more, and others are added to them.
const DOCUMENTS_MAX: usize = 1 << 30;
const SLOTS_MIN: usize = 1 << 10;
/// Beside its lists.
const TERM_BYTES: usize = size_of::<Term>() + 2 * size_of::<u32>();

const DOCUMENT_BYTES: usize = 12;

#[derive(Default)]
struct State {
    slots: Vec<u32>,
    terms: Vec<Term>,
    arena: Vec<u8>,
    rows: Vec<i64>,
    lengths: Vec<i32>,
    /// Of all lists.
    list_bytes: usize,
    known: KnownWords,
    /// Terms in order, from when they are taken out, and how many were.
    order: Vec<u32>,
    num_taken: usize,
}

/// `TermLists` of `_kernels.pyi`.
#[pyclass(frozen, module = "lance_io._kernels")]
pub struct TermLists {
    /// Of each worker.
    states: Vec<Mutex<State>>,
    seed: u64,
    has_positions: bool,
    keeps_empty: bool,
}

#[pymethods]
impl TermLists {
    #[new]
    #[pyo3(signature = (seed, num_workers, *, with_positions, keep_empty))]
    fn new(seed: u64, num_workers: usize, with_positions: bool, keep_empty: bool) -> PyResult<Self> {
        let states = (0..num_workers.max(1)).map(|_| Mutex::default()).try_vec()?;
        Ok(TermLists { states, seed, has_positions: with_positions, keeps_empty: keep_empty })
    }

    /// `TermLists.add` of `_kernels.pyi`.
    #[pyo3(signature = (analyzer, num_rows, texts, present, row_numbers, /))]
    fn add(
        &self,
        py: Python<'_>,
        analyzer: &Bound<'_, Analyzer>,
        num_rows: usize,
        texts: Given<'_>,
        present: Option<&Bound<'_, PyAny>>,
        row_numbers: &Bound<'_, PyAny>,
    ) -> PyResult<()> {
        let held = [Held::new(&texts)?];
        let arguments = Arguments::new(&held, num_rows)?;
        let present = present.map(Input::new).transpose()?;
        let present = checked_present(present.as_ref(), num_rows)?;
        let row_numbers = Input::new(row_numbers)?;
        let row_numbers = row_numbers.i64s()?;
        if row_numbers.len() != num_rows {
            return Err(invalid(format!("{} row numbers for {num_rows} rows", row_numbers.len())));
        }
        let analyzer = analyzer.get();
        let share = num_rows.div_ceil(self.states.len());
        let num_steps = num_rows + arguments.num_bytes / BYTES_PER_STEP;
        gil::release(py, num_steps, || {
            let workers = (0..self.states.len()).try_vec()?;
            side_by_side(&workers, workers.len(), |&worker| {
                let mut state = self.lock(worker)?;
                let mut chain = analyzer.chain();
                let mut patience = Patience::default();
                for row in (worker * share).min(num_rows)..((worker + 1) * share).min(num_rows) {
                    if is_present(present, row) {
                        let text = arguments.row(row);
                        patience.spend(text.bytes(0)?.len() / BYTES_PER_STEP)?;
                        self.add_text(&mut state, analyzer, &mut chain, text, row_numbers[row])?;
                    }
                }
                Ok(())
            })
        })?;
        Ok(())
    }

    #[getter]
    fn num_documents(&self) -> PyResult<Vec<usize>> {
        (0..self.states.len()).map(|worker| Ok(self.lock(worker)?.rows.len())).try_vec_of()
    }

    #[getter]
    fn nbytes(&self) -> PyResult<usize> {
        let mut total = 0;
        for worker in 0..self.states.len() {
            total += self.lock(worker)?.num_bytes();
        }
        Ok(total)
    }

    /// `TermLists.documents` of `_kernels.pyi`.
    #[pyo3(signature = (worker, /))]
    fn documents(&self, worker: usize) -> PyResult<(OwnedBuffer, OwnedBuffer)> {
        let mut state = self.lock(worker)?;
        Ok((std::mem::take(&mut state.rows).into(), std::mem::take(&mut state.lengths).into()))
    }

    /// `TermLists.take` of `_kernels.pyi`.
    #[pyo3(signature = (worker, bytes_max, /))]
    fn take(&self, py: Python<'_>, worker: usize, bytes_max: usize) -> PyResult<Option<TermBatch>> {
        py.detach(|| {
            let mut state = self.lock(worker)?;
            if state.order.is_empty() && !state.terms.is_empty() {
                state.sort()?; // room: its own
            }
            if state.num_taken == state.order.len() {
                *state = State::default();
                return Ok(None);
            }
            Ok(Some(state.taken(bytes_max)?))
        })
    }
}

/// Tokens, the numbers of their documents, their lists and their positions, each with offsets (i64).
type TermBatch = (OwnedBuffer, OwnedBuffer, OwnedBuffer, OwnedBuffer, OwnedBuffer, OwnedBuffer, OwnedBuffer);

impl TermLists {
    fn lock(&self, worker: usize) -> PyResult<MutexGuard<'_, State>> {
        let state = self.states.get(worker).ok_or_else(|| invalid("there is no such worker"))?;
        state.lock().map_err(|_| invalid("a build failed before"))
    }

    fn add_text(
        &self,
        state: &mut State,
        analyzer: &Analyzer,
        chain: &mut TextAnalyzer,
        text: Row<'_, '_>,
        row: i64,
    ) -> PyResult<()> {
        let doc = state.rows.len();
        if doc >= DOCUMENTS_MAX {
            return Err(invalid(format!("more than {DOCUMENTS_MAX} documents in one map")));
        }
        let mut length = 0i32;
        let mut count = |state: &mut State, term: usize, position: usize| {
            let position = u32::try_from(position).map_err(|_| invalid("a text has more than 2^32 tokens"))?;
            state.count(term, doc as u32, position, self.has_positions)?;
            length = length.checked_add(1).ok_or_else(|| invalid("a text has more than 2^31 tokens"))?;
            PyResult::Ok(())
        };
        if let Some(is_of_word) = analyzer.words() {
            let words = text.text(0)?.split(|letter| !is_of_word(letter)).filter(|word| !word.is_empty());
            for (position, word) in words.enumerate() {
                if let Some(term) = state.term_of_word(self.seed, chain, word)? {
                    count(state, term, position)?;
                }
            }
        } else {
            analyzer.each_token(chain, text, |token, position| {
                let term = state.term(self.seed, token)?;
                count(state, term, position)
            })?;
        }
        if length > 0 || self.keeps_empty {
            state.rows.try_push(row)?;
            state.lengths.try_push(length)?;
        }
        Ok(())
    }
}

impl State {
    fn num_bytes(&self) -> usize {
        let fixed = self.terms.capacity() * TERM_BYTES + self.slots.len() * 4 + self.arena.capacity();
        fixed + self.known.num_bytes() + self.list_bytes + DOCUMENT_BYTES * self.rows.capacity()
    }

    fn bytes_of(&self, term: usize) -> &[u8] {
        let start = if term == 0 { 0 } else { self.terms[term - 1].end as usize };
        &self.arena[start..self.terms[term].end as usize]
    }

    /// The number of the term that the filters make of a word; None if they drop it.
    #[inline]
    fn term_of_word(&mut self, seed: u64, chain: &mut TextAnalyzer, word: &str) -> PyResult<Option<usize>> {
        let hash = hash(seed, word.as_bytes());
        if let Some(known) = self.known.find(hash, word.as_bytes()) {
            return Ok(known);
        }
        let mut stream = chain.token_stream(word);
        let term = match next_token(&mut stream)? {
            Some((token, _)) => Some(self.term(seed, token.as_bytes())?),
            None => None,
        };
        self.known.learn(hash, word.as_bytes(), term)?;
        Ok(term)
    }

    /// The number of a token's term, which is new the first time.
    fn term(&mut self, seed: u64, token: &[u8]) -> PyResult<usize> {
        if self.terms.len() * 2 >= self.slots.len() {
            self.grow()?;
        }
        let hash = hash(seed, token);
        let mask = self.slots.len() - 1;
        let mut at = hash as usize & mask;
        loop {
            let slot = self.slots[at] as usize;
            if slot == 0 {
                break;
            }
            if self.terms[slot - 1].hash == hash && self.bytes_of(slot - 1) == token {
                return Ok(slot - 1);
            }
            at = (at + 1) & mask;
        }
        self.arena.try_append(token)?;
        let end = u32::try_from(self.arena.len()).map_err(|_| invalid("the tokens have more than 4 GiB"))?;
        self.terms.try_push(Term {
            end,
            hash,
            doc: 0,
            freq: 0,
            position: 0,
            before: 0,
            count: 0,
            docs: Vec::new(),
            positions: Vec::new(),
        })?;
        self.slots[at] = self.terms.len() as u32;
        Ok(self.terms.len() - 1)
    }

    fn grow(&mut self) -> Roomy<()> {
        let count = (self.slots.len() * 2).max(SLOTS_MIN);
        self.slots = filled(0, count)?;
        for (number, term) in self.terms.iter().enumerate() {
            let mut at = term.hash as usize & (count - 1);
            while self.slots[at] != 0 {
                at = (at + 1) & (count - 1);
            }
            self.slots[at] = number as u32 + 1;
        }
        Ok(())
    }

    /// Count a token of a document.
    #[inline]
    fn count(&mut self, number: usize, doc: u32, position: u32, has_positions: bool) -> PyResult<()> {
        let term = &mut self.terms[number];
        let before = term.docs.capacity() + term.positions.capacity();
        if term.freq > 0 && term.doc != doc {
            term.end_document()?;
        }
        if term.freq == 0 {
            (term.doc, term.position) = (doc, 0);
        }
        term.freq += 1;
        if has_positions {
            let gap = position.checked_sub(term.position).ok_or_else(|| invalid("positions of a text descend"))?;
            varints::put(&mut term.positions, gap)?;
            term.position = position;
        }
        self.list_bytes += term.docs.capacity() + term.positions.capacity() - before;
        Ok(())
    }

    fn sort(&mut self) -> PyResult<()> {
        self.terms.iter_mut().try_for_each(Term::end_document)?;
        let mut order: Vec<u32> = vec_with_capacity(self.terms.len())?;
        order.try_extend(0..self.terms.len() as u32)?;
        order.sort_unstable_by(|&a, &b| self.bytes_of(a as usize).cmp(self.bytes_of(b as usize)));
        self.order = order;
        self.slots = Vec::new();
        Ok(())
    }

    /// The next terms in order; their lists leave the map.
    fn taken(&mut self, bytes_max: usize) -> PyResult<TermBatch> {
        let mut columns: [Vec<u8>; 3] = Default::default();
        let mut counts: Vec<i32> = Vec::new();
        let mut ends: [Vec<i64>; 3] = Default::default();
        ends.iter_mut().try_for_each(|ends| ends.try_push(0))?;
        let mut num_bytes = 0;
        while self.num_taken < self.order.len() && (num_bytes < bytes_max || counts.is_empty()) {
            let number = self.order[self.num_taken] as usize;
            columns[0].try_append(self.bytes_of(number))?;
            let term = &mut self.terms[number];
            let (docs, positions) = (std::mem::take(&mut term.docs), std::mem::take(&mut term.positions));
            counts.try_push(term.count as i32)?;
            columns[1].try_append(&docs)?;
            columns[2].try_append(&positions)?;
            for (ends, data) in ends.iter_mut().zip(&columns) {
                ends.try_push(data.len() as i64)?;
            }
            num_bytes = columns.iter().map(Vec::len).sum();
            self.num_taken += 1;
        }
        let [tokens, docs, positions] = columns;
        let [token_ends, doc_ends, position_ends] = ends;
        Ok((
            token_ends.into(),
            tokens.into(),
            counts.into(),
            doc_ends.into(),
            docs.into(),
            position_ends.into(),
            positions.into(),
        ))
    }
}

/// Seeded, against tokens that are chosen to collide.
fn hash(seed: u64, bytes: &[u8]) -> u32 {
    let fold = |hash: u64, word: u64| {
        let product = u128::from(hash ^ word) * u128::from(seed | 1 | 1 << 63);
        product as u64 ^ (product >> 64) as u64
    };
    let (chunks, rest) = bytes.as_chunks::<8>();
    let start = seed.rotate_left(32) ^ bytes.len() as u64;
    let hash = chunks.iter().fold(start, |hash, chunk| fold(hash, u64::from_le_bytes(*chunk)));
    let mut last = [0; 8];
    last[..rest.len()].copy_from_slice(rest);
    (fold(hash, u64::from_le_bytes(last)) >> 16) as u32
}
