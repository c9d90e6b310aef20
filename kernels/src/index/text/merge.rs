//! Runs of sorted terms to the rows of a partition: the terms of all runs, each with all of its documents.

use super::blocks::{
    put_block, put_positions, BlockForm, Documents, Impacts, ListedPositions, Lists, Scores, LARGE_BLOCK, SMALL_BLOCK,
};
use super::varints;
use crate::buffer::{Input, OwnedBuffer};
use crate::damaged;
use crate::error::{invalid, Checked};
use crate::room::{copied, vec_with_capacity, Grow};
use fst::MapBuilder;
use pyo3::prelude::*;
use std::sync::{Mutex, MutexGuard};

/// A column of byte strings.
struct Strings {
    ends: Vec<i64>,
    data: Vec<u8>,
}

impl Strings {
    fn new(ends: &Input, data: &Input) -> PyResult<Self> {
        let strings = Strings { ends: copied(ends.bytes())?, data: copied(data.bytes())? };
        let is_ascending = strings.ends.windows(2).all(|pair| pair[0] <= pair[1]);
        let is_inside = strings.ends.first().is_some_and(|&first| first >= 0)
            && strings.ends.last().is_some_and(|&last| last as u64 <= strings.data.len() as u64);
        match is_ascending && is_inside {
            true => Ok(strings),
            false => Err(invalid("strings do not lie within their bytes")),
        }
    }

    fn len(&self) -> usize {
        self.ends.len() - 1
    }

    fn get(&self, at: usize) -> &[u8] {
        &self.data[self.ends[at] as usize..self.ends[at + 1] as usize]
    }
}

/// Some terms of a run.
struct Batch {
    tokens: Strings,
    counts: Vec<i32>,
    docs: Strings,
    positions: Strings,
}

/// A run: its next terms. Its documents are numbered from `base` on.
struct Run {
    base: u32,
    num_docs: u32,
    batch: Option<Batch>,
    next: usize,
    is_ended: bool,
}

impl Run {
    fn token(&self) -> Option<&[u8]> {
        self.batch.as_ref().filter(|batch| self.next < batch.tokens.len()).map(|batch| batch.tokens.get(self.next))
    }

    /// Append the documents of the next term, and go on.
    fn take(&mut self, has_positions: bool, term: &mut Documents) -> Checked<()> {
        let Some(batch) = &self.batch else { return Ok(()) };
        let mut docs = batch.docs.get(self.next);
        let (mut doc, mut total) = (0u32, 0u64);
        for number in 0..batch.counts[self.next] {
            let packed = varints::take(&mut docs)?;
            let freq = if packed & 1 == 1 { 1 } else { varints::take(&mut docs)? };
            let gap = packed >> 1;
            if (number > 0 && gap == 0) || gap >= self.num_docs || doc + gap >= self.num_docs {
                return damaged!("a document of a run beyond its {} documents", self.num_docs);
            }
            doc += gap;
            total += u64::from(freq);
            term.docs.try_push(self.base + doc)?;
            term.freqs.try_push(freq)?;
        }
        if has_positions {
            let mut positions = batch.positions.get(self.next);
            for _ in 0..total {
                term.positions.try_push(varints::take(&mut positions)?)?;
            }
        }
        self.next += 1;
        Ok(())
    }
}

struct State {
    runs: Vec<Run>,
    map: Option<MapBuilder<Vec<u8>>>,
    num_terms: u64,
    token_bytes: u64,
}

/// `TermMerger` of `_kernels.pyi`.
#[pyclass(frozen, module = "lance_io._kernels")]
pub struct TermMerger {
    state: Mutex<State>,
    lengths: Vec<u32>,
    average: f32,
    form: BlockForm,
    has_positions: bool,
}

/// The columns of some rows.
struct Rows {
    postings: Lists,
    scores: Vec<i32>,
    counts: Vec<i32>,
    impacts: Lists,
    position_ends: Vec<i64>,
    positions: Vec<u8>,
    start_lists: Vec<i32>,
    starts: Vec<i32>,
    listed: ListedPositions,
}

type Buffers = Vec<OwnedBuffer>;

#[pymethods]
impl TermMerger {
    #[new]
    #[pyo3(signature = (lengths, run_lengths, *, block_size, with_positions, is_first_format))]
    fn new(
        lengths: &Bound<'_, PyAny>,
        run_lengths: Vec<u32>,
        block_size: usize,
        with_positions: bool,
        is_first_format: bool,
    ) -> PyResult<Self> {
        let lengths: Vec<u32> = copied(Input::new(lengths)?.bytes())?;
        if block_size != SMALL_BLOCK && (block_size != LARGE_BLOCK || is_first_format) {
            return Err(invalid(format!("blocks of {block_size} documents")));
        }
        let (mut runs, mut base) = (vec_with_capacity(run_lengths.len())?, 0u64);
        for num_docs in run_lengths {
            let first = u32::try_from(base).map_err(|_| invalid("more than 2^32 documents"))?;
            runs.try_push(Run { base: first, num_docs, batch: None, next: 0, is_ended: false })?;
            base += u64::from(num_docs);
        }
        if base != lengths.len() as u64 || base > u64::from(u32::MAX) {
            return Err(invalid(format!("runs of {base} documents, and {} lengths", lengths.len())));
        }
        let total: u64 = lengths.iter().map(|&length| u64::from(length)).sum();
        let average = total as f32 / (lengths.len() as f32).max(1.0);
        let state = State { runs, map: Some(MapBuilder::memory()), num_terms: 0, token_bytes: 0 };
        let form = BlockForm { size: block_size, is_first: is_first_format };
        Ok(TermMerger { state: Mutex::new(state), lengths, average, form, has_positions: with_positions })
    }

    /// `TermMerger.feed` of `_kernels.pyi`.
    #[pyo3(signature = (run, columns, /))]
    #[allow(clippy::type_complexity)]
    fn feed(&self, run: usize, columns: Option<[Bound<'_, PyAny>; 7]>) -> PyResult<()> {
        let mut state = self.lock()?;
        let run = state.runs.get_mut(run).ok_or_else(|| invalid("there is no such run"))?;
        let Some(columns) = columns else {
            (run.is_ended, run.batch) = (true, None);
            return Ok(());
        };
        let [token_ends, tokens, counts, doc_ends, docs, position_ends, positions] = &columns;
        let strings =
            |ends: &Bound<'_, PyAny>, data: &Bound<'_, PyAny>| Strings::new(&Input::new(ends)?, &Input::new(data)?);
        let batch = Batch {
            tokens: strings(token_ends, tokens)?,
            counts: copied(Input::new(counts)?.bytes())?,
            docs: strings(doc_ends, docs)?,
            positions: strings(position_ends, positions)?,
        };
        let count = batch.tokens.len();
        if batch.counts.len() != count || batch.docs.len() != count || batch.positions.len() != count {
            return Err(invalid("columns of a run with different numbers of rows"));
        }
        (run.batch, run.next) = (Some(batch), 0);
        Ok(())
    }

    /// `TermMerger.merge` of `_kernels.pyi`.
    #[pyo3(signature = (bytes_max, /))]
    fn merge(&self, py: Python<'_>, bytes_max: usize) -> PyResult<(usize, Buffers, Option<usize>)> {
        py.detach(|| {
            let mut state = self.lock()?;
            let mut rows = Rows::new()?;
            let mut term = Documents::default();
            let mut impacts = Impacts::new();
            let wanting = loop {
                if let Some(run) = state.runs.iter().position(|run| !run.is_ended && run.token().is_none()) {
                    break Some(run);
                }
                if rows.num_bytes() >= bytes_max || !self.next_term(&mut state, &mut term)? {
                    break None;
                }
                self.put(&term, &mut impacts, &mut rows)?;
            };
            Ok((rows.counts.len(), rows.into_buffers()?, wanting))
        })
    }

    /// `TermMerger.token_map` of `_kernels.pyi`.
    fn token_map(&self, py: Python<'_>) -> PyResult<(OwnedBuffer, u64, u64)> {
        py.detach(|| {
            let mut state = self.lock()?;
            let map = state.map.take().ok_or_else(|| invalid("the token map was taken before"))?;
            let bytes = map.into_inner().map_err(|error| invalid(error.to_string()))?;
            Ok((bytes.into(), state.num_terms, state.token_bytes))
        })
    }
}

impl TermMerger {
    fn lock(&self) -> PyResult<MutexGuard<'_, State>> {
        self.state.lock().map_err(|_| invalid("a merge failed before"))
    }

    /// Take the smallest token of all runs with its documents; `false` if there is none.
    fn next_term(&self, state: &mut State, term: &mut Documents) -> PyResult<bool> {
        term.clear();
        let State { runs, map, num_terms, token_bytes } = state;
        let Some(token) = runs.iter().filter_map(Run::token).min() else { return Ok(false) };
        let map = map.as_mut().ok_or_else(|| invalid("the token map was taken before"))?;
        map.insert(token, *num_terms).map_err(|error| invalid(error.to_string()))?; // room: the crate's own
        *num_terms += 1;
        *token_bytes += token.len() as u64;
        let mut key: Vec<u8> = Vec::new();
        key.try_append(token)?;
        for run in runs.iter_mut().filter(|run| run.token() == Some(&key)) {
            run.take(self.has_positions, term)?;
        }
        Ok(true)
    }

    fn put(&self, term: &Documents, impacts: &mut Impacts, rows: &mut Rows) -> PyResult<()> {
        let scores = Scores { lengths: &self.lengths, average: self.average };
        let scale = scores.scale(term.docs.len());
        let (mut largest, mut done) = (0f32, 0);
        let first_position = rows.positions.len();
        for (docs, freqs) in term.docs.chunks(self.form.size).zip(term.freqs.chunks(self.form.size)) {
            let score = scores.largest(scale, docs, freqs);
            largest = largest.max(score);
            put_block(docs, freqs, self.form, score, &mut rows.postings.data)?;
            rows.postings.end_item()?;
            if self.has_positions && self.form.is_first {
                for &freq in freqs {
                    rows.listed.put(&term.positions[done..done + freq as usize])?;
                    done += freq as usize;
                }
            } else if self.has_positions {
                let start = i32::try_from(rows.positions.len() - first_position);
                rows.starts.try_push(start.map_err(|_| invalid("positions of a token have more than 2 GiB"))?)?;
                let count: usize = freqs.iter().map(|&freq| freq as usize).sum();
                put_positions(&term.positions[done..done + count], &mut rows.positions)?;
                done += count;
            }
        }
        rows.postings.end_list()?;
        rows.scores.try_push(largest.to_bits() as i32)?;
        rows.counts.try_push(term.docs.len() as i32)?;
        rows.position_ends.try_push(rows.positions.len() as i64)?;
        rows.start_lists.try_push(rows.starts.len() as i32)?;
        rows.listed.end_token()?;
        impacts.put(&scores, term, self.form.size, &mut rows.impacts)?;
        Ok(())
    }
}

impl Rows {
    fn new() -> PyResult<Self> {
        let (mut position_ends, mut start_lists) = (Vec::new(), Vec::new());
        position_ends.try_push(0)?;
        start_lists.try_push(0)?;
        Ok(Rows {
            postings: Lists::new()?,
            scores: Vec::new(),
            counts: Vec::new(),
            impacts: Lists::new()?,
            position_ends,
            positions: Vec::new(),
            start_lists,
            starts: Vec::new(),
            listed: ListedPositions::new()?,
        })
    }

    fn num_bytes(&self) -> usize {
        let lists = [&self.postings, &self.impacts].map(|lists| lists.data.len() + 8 * lists.ends.len());
        let positions = self.positions.len() + 4 * self.starts.len() + self.listed.num_bytes();
        lists.iter().sum::<usize>() + positions + 24 * self.counts.len()
    }

    fn into_buffers(self) -> PyResult<Buffers> {
        let (postings, impacts, listed) = (self.postings, self.impacts, self.listed);
        let all: [OwnedBuffer; 16] = [
            postings.lists.into(),
            postings.ends.into(),
            postings.data.into(),
            self.scores.into(),
            self.counts.into(),
            impacts.lists.into(),
            impacts.ends.into(),
            impacts.data.into(),
            self.position_ends.into(),
            self.positions.into(),
            self.start_lists.into(),
            self.starts.into(),
            listed.tokens.into(),
            listed.documents.into(),
            listed.ends.into(),
            listed.data.into(),
        ];
        let mut buffers = Vec::new();
        buffers.try_extend(all)?;
        Ok(buffers)
    }
}
