//! The best documents of partitions for some tokens, without scoring those that cannot be among them.
//!
//! Partitions share the score that a document has to exceed. Documents are looked at in windows. In each, the tokens
//! whose upper bounds together cannot reach the worst of the best documents are left aside: a document that has only
//! these is never scored, and one that has others looks them up.

use super::postings::{words, Norms, TermPostings};
use super::term_cursor::TermCursor;
use crate::buffer::{Input, OwnedBuffer};
use crate::error::{invalid, Checked};
use crate::gil;
use crate::room::{reserve, zeros, Grow, Roomy};
use pyo3::prelude::*;
use std::borrow::Cow;
use std::cmp::Reverse;
use std::collections::BinaryHeap;

const WINDOW: u32 = 4096;
/// Upper bounds are sums in another order than scores. Those of a few tokens differ by less than scores that count as
/// equal: without slack, documents are left aside whose best possible score is that of the worst of the best.
const SLACK: f32 = 1.00001;
const FEW: usize = 8;

/// A score, and its document in a partition; the worst is the least.
#[derive(PartialEq)]
struct Scored {
    score: f32,
    part: u32,
    doc: u32,
}

impl Eq for Scored {}

impl PartialOrd for Scored {
    fn partial_cmp(&self, other: &Self) -> Option<std::cmp::Ordering> {
        Some(self.cmp(other))
    }
}

impl Ord for Scored {
    fn cmp(&self, other: &Self) -> std::cmp::Ordering {
        self.score.total_cmp(&other.score).then((other.part, other.doc).cmp(&(self.part, self.doc)))
    }
}

/// Where the documents of each partition end, the documents, their scores, and the bytes of the scores.
type Parts = (Vec<usize>, Vec<i64>, Vec<u64>, usize);

/// The best documents so far; all of them without a bound of their number.
struct Best {
    heap: BinaryHeap<Reverse<Scored>>,
    all: Vec<Scored>,
    most: Option<usize>,
    /// A document has to exceed this score.
    threshold: f32,
    /// The partition that is searched.
    part: u32,
    slack: f32,
}

impl Best {
    fn new(most: Option<usize>, num_docs: usize, threshold: f32) -> Roomy<Self> {
        let mut items = Vec::new();
        if let Some(most) = most {
            reserve(&mut items, most.min(num_docs) + 1)?;
        }
        Ok(Best { heap: BinaryHeap::from(items), all: Vec::new(), most, threshold, part: 0, slack: SLACK })
    }

    fn add(&mut self, doc: u32, score: f32) -> Roomy<()> {
        let part = self.part;
        let Some(most) = self.most else { return self.all.try_push(Scored { score, part, doc }) };
        if score <= self.threshold || most == 0 {
            return Ok(());
        }
        if self.heap.len() == most {
            self.heap.pop();
        }
        self.heap.push(Reverse(Scored { score, part, doc })); // room: reserved
        if self.heap.len() == most {
            if let Some(Reverse(worst)) = self.heap.peek() {
                self.threshold = self.threshold.max(worst.score);
            }
        }
        Ok(())
    }

    /// Whether no document with this upper bound is among the best.
    fn excludes(&self, bound: f32) -> bool {
        self.most.is_some() && bound * self.slack <= self.threshold
    }

    /// The documents of each partition, ascending.
    fn parts(self, num_parts: usize) -> Roomy<Parts> {
        let mut items = self.all;
        items.try_extend(self.heap.into_vec().into_iter().map(|Reverse(item)| item))?;
        items.sort_unstable_by_key(|item| (item.part, item.doc));
        let mut ends = zeros::<usize>(num_parts)?;
        items.iter().for_each(|item| ends[item.part as usize] += 1);
        for part in 1..num_parts {
            ends[part] += ends[part - 1];
        }
        let mut docs = Vec::new();
        docs.try_extend(items.iter().map(|item| i64::from(item.doc)))?;
        let mut scores = zeros::<u64>(items.len().div_ceil(2))?;
        let floats: &mut [f32] = bytemuck::cast_slice_mut(&mut scores);
        floats.iter_mut().zip(&items).for_each(|(score, item)| *score = item.score);
        Ok((ends, docs, scores, items.len() * 4))
    }
}

/// A phrase: the numbers of its tokens, where each stands, and how much later the next may stand than exactly.
struct Phrase {
    parts: Vec<(usize, u32)>,
    slop: u32,
}

struct Search<'a> {
    norms: Norms<'a>,
    allowed: Option<&'a [u8]>,
    cursors: Vec<TermCursor<'a>>,
    best: &'a mut Best,
}

impl Search<'_> {
    fn is_allowed(&self, doc: u32) -> bool {
        self.allowed.is_none_or(|allowed| allowed[doc as usize] != 0)
    }

    fn num_docs(&self) -> u32 {
        self.norms.lengths.len() as u32
    }

    /// Documents with any of the tokens.
    fn any(&mut self) -> Checked<()> {
        let mut sums = zeros::<f32>(WINDOW as usize)?;
        let mut order = Vec::new();
        order.try_extend((0..self.cursors.len()).map(|number| (0f32, number)))?;
        let mut hits = zeros::<u64>(WINDOW as usize / 64)?;
        let mut first = 0;
        while let Some(next) = self.cursors.iter().filter_map(|cursor| cursor.next_from(first)).min() {
            first = next;
            let end = first.saturating_add(WINDOW).min(self.num_docs());
            for (bound, number) in &mut order {
                *bound = self.cursors[*number].most_between(first, end);
            }
            order.sort_unstable_by(|a, b| a.0.total_cmp(&b.0));
            let total: f32 = order.iter().map(|(bound, _)| bound).sum();
            if !self.best.excludes(total) {
                self.window(&order, first, end, &mut sums, &mut hits)?;
            }
            if end == self.num_docs() {
                break;
            }
            first = end;
        }
        Ok(())
    }

    /// One window. order: upper bounds and numbers of the tokens, the least first
    fn window(
        &mut self,
        order: &[(f32, usize)],
        first: u32,
        end: u32,
        sums: &mut [f32],
        hits: &mut [u64],
    ) -> Checked<()> {
        let (mut num_aside, mut aside) = (0, 0f32);
        while num_aside < order.len() && self.best.excludes(aside + order[num_aside].0) {
            aside += order[num_aside].0;
            num_aside += 1;
        }
        for &(_, number) in &order[num_aside..] {
            if self.cursors[number].next_from(first).is_none_or(|next| next >= end) {
                continue;
            }
            self.cursors[number].each_before(first, end, &self.norms, |doc, score| {
                let at = (doc - first) as usize;
                sums[at] += score;
                hits[at / 64] |= 1 << (at % 64);
            })?;
        }
        for (word_number, word) in hits.iter_mut().enumerate() {
            while *word != 0 {
                let at = word_number * 64 + word.trailing_zeros() as usize;
                *word &= *word - 1;
                let doc = first + at as u32;
                let sum = std::mem::take(&mut sums[at]);
                if self.best.excludes(sum + aside) || !self.is_allowed(doc) {
                    continue;
                }
                let score = self.with_aside(&order[..num_aside], doc, sum, aside)?;
                self.best.add(doc, score)?;
            }
        }
        Ok(())
    }

    /// The score of a document, looked up in the tokens that were left aside while it can be among the best.
    fn with_aside(&mut self, aside: &[(f32, usize)], doc: u32, sum: f32, bound: f32) -> Checked<f32> {
        let (mut sum, mut bound) = (sum, bound);
        for &(its_bound, number) in aside.iter().rev() {
            if self.best.excludes(sum + bound) {
                return Ok(f32::NEG_INFINITY);
            }
            bound -= its_bound;
            let cursor = &mut self.cursors[number];
            if cursor.seek(doc)? == Some(doc) {
                sum += cursor.score(&self.norms);
            }
        }
        Ok(sum)
    }

    /// Documents with all of the tokens, and the phrase if there is one.
    fn all(&mut self, phrase: Option<&Phrase>) -> Checked<()> {
        let mut order = Vec::new();
        order.try_extend(0..self.cursors.len())?;
        order.sort_unstable_by_key(|&number| self.cursors[number].postings.num_docs);
        let lead = order[0];
        let others: f32 = order[1..].iter().map(|&number| self.cursors[number].most()).sum();
        let mut next = self.cursors[lead].seek(0)?;
        while let Some(doc) = next {
            let bound = self.cursors[lead].most_between(doc, doc + 1);
            if self.best.excludes(bound + others) {
                let last = self.cursors[lead].last_of_block();
                next = self.cursors[lead].seek(last + 1)?;
                continue;
            }
            next = match self.behind(&order[1..], doc)? {
                Some(other) => self.cursors[lead].seek(other)?,
                None => return Ok(()),
            };
            if next != Some(doc) {
                continue;
            }
            if self.is_allowed(doc) {
                let score = order.iter().map(|&number| self.cursors[number].score(&self.norms)).sum::<f32>();
                let is_hit = self.best.most.is_none() || score > self.best.threshold;
                if is_hit && phrase.map_or(Ok(true), |phrase| self.has_phrase(phrase))? {
                    self.best.add(doc, score)?;
                }
            }
            next = self.cursors[lead].seek(doc + 1)?;
        }
        Ok(())
    }

    /// The document if all of these tokens have it, else a later one before which none is common to all.
    fn behind(&mut self, numbers: &[usize], doc: u32) -> Checked<Option<u32>> {
        for &number in numbers {
            match self.cursors[number].seek(doc)? {
                None => return Ok(None),
                Some(other) if other > doc => return Ok(Some(other)),
                Some(_) => {}
            }
        }
        Ok(Some(doc))
    }

    /// Whether the current document of all tokens has the phrase.
    fn has_phrase(&mut self, phrase: &Phrase) -> Checked<bool> {
        let mut reached = Vec::new();
        reached.try_append(self.cursors[phrase.parts[0].0].positions()?)?;
        for pair in phrase.parts.windows(2) {
            let gap = pair[1].1 - pair[0].1;
            let positions = self.cursors[pair[1].0].positions()?;
            let mut next = Vec::new();
            let mut start = 0;
            for &position in positions {
                let exact = u64::from(gap);
                let is_late = |from: u32| u64::from(from) + exact + u64::from(phrase.slop) < u64::from(position);
                while start < reached.len() && is_late(reached[start]) {
                    start += 1;
                }
                if start < reached.len() && u64::from(reached[start]) + exact <= u64::from(position) {
                    next.try_push(position)?;
                }
            }
            if next.is_empty() {
                return Ok(false);
            }
            reached = next;
        }
        Ok(!reached.is_empty())
    }

    /// Documents with at least one token of each group.
    fn all_groups(&mut self, groups: &[usize]) -> Checked<()> {
        let num_groups = groups.iter().max().map_or(0, |&last| last + 1);
        let mut sums = zeros::<f32>(WINDOW as usize)?;
        let (mut common, mut hits) = (zeros::<u64>(WINDOW as usize / 64)?, zeros::<u64>(WINDOW as usize / 64)?);
        let mut first = 0;
        while let Some(next) = self.cursors.iter().filter_map(|cursor| cursor.next_from(first)).min() {
            first = next;
            let end = first.saturating_add(WINDOW).min(self.num_docs());
            common.fill(u64::MAX);
            for group in 0..num_groups {
                hits.fill(0);
                for (cursor, _) in self.cursors.iter_mut().zip(groups).filter(|(_, &its)| its == group) {
                    cursor.each_before(first, end, &self.norms, |doc, score| {
                        let at = (doc - first) as usize;
                        sums[at] += score;
                        hits[at / 64] |= 1 << (at % 64);
                    })?;
                }
                common.iter_mut().zip(&hits).for_each(|(word, hit)| *word &= hit);
            }
            for (at, sum) in sums.iter_mut().enumerate().take((end - first) as usize) {
                let (score, doc) = (std::mem::take(sum), first + at as u32);
                let is_common = common[at / 64] >> (at % 64) & 1 == 1;
                if is_common && self.allowed.is_none_or(|allowed| allowed[doc as usize] != 0) {
                    self.best.add(doc, score)?;
                }
            }
            if end == self.num_docs() {
                break;
            }
            first = end;
        }
        Ok(())
    }
}

/// Tokens of one partition, as they are passed: posting lists, factors, groups, lengths, and which documents count.
type PartArguments<'py> =
    (Vec<PyRef<'py, TermPostings>>, Vec<f32>, Option<Vec<usize>>, Bound<'py, PyAny>, bool, Option<Bound<'py, PyAny>>);

/// The tokens of one partition, and its documents.
struct Part<'a> {
    terms: Vec<&'a TermPostings>,
    factors: &'a [f32],
    groups: Option<&'a [usize]>,
    lengths: Cow<'a, [u32]>,
    is_floored: bool,
    allowed: Option<&'a [u8]>,
}

impl Part<'_> {
    fn check(&self) -> PyResult<()> {
        let num_terms = self.terms.len();
        let is_fitting = self.factors.len() == num_terms
            && self.groups.is_none_or(|its| its.len() == num_terms && its.iter().all(|&group| group < num_terms))
            && self.allowed.is_none_or(|allowed| allowed.len() == self.lengths.len())
            && num_terms > 0;
        if !is_fitting {
            return Err(invalid("the arguments of a search have different lengths"));
        }
        let is_inside = |its: &&TermPostings| its.lasts.last().is_none_or(|&last| (last as usize) < self.lengths.len());
        match self.terms.iter().all(is_inside) {
            true => Ok(()),
            false => Err(invalid("documents without a length")),
        }
    }

    /// Add its best documents.
    fn search(&self, average: f32, phrase: Option<&Phrase>, best: &mut Best) -> Checked<()> {
        let norms = Norms { lengths: &self.lengths, average, is_floored: self.is_floored };
        let mut cursors = Vec::new();
        for (its, &factor) in self.terms.iter().zip(self.factors) {
            cursors.try_push(TermCursor::new(its, factor, &norms)?)?;
        }
        best.slack = if cursors.len() > FEW { SLACK } else { 1.0 };
        let mut search = Search { norms, allowed: self.allowed, cursors, best };
        match self.groups {
            None => search.any(),
            Some(groups) if groups.iter().enumerate().any(|(number, &group)| number != group) => {
                search.all_groups(groups)
            }
            Some(_) => search.all(phrase),
        }
    }
}

fn checked_phrase(parts: Vec<(usize, u32)>, slop: u32, num_terms: usize) -> PyResult<Phrase> {
    let is_ordered = parts.windows(2).all(|pair| pair[0].1 < pair[1].1);
    if !is_ordered || parts.is_empty() || parts.iter().any(|part| part.0 >= num_terms) {
        return Err(invalid("a phrase with positions that do not ascend"));
    }
    Ok(Phrase { parts, slop })
}

/// `match_terms` of `_kernels.pyi`.
#[pyfunction]
#[pyo3(signature = (parts, average, most, threshold, phrase, /))]
pub fn match_terms(
    py: Python<'_>,
    parts: Vec<PartArguments<'_>>,
    average: f32,
    most: Option<usize>,
    threshold: f32,
    phrase: Option<(Vec<(usize, u32)>, u32)>,
) -> PyResult<(Vec<usize>, OwnedBuffer, OwnedBuffer)> {
    let mut inputs = Vec::new();
    for (_, _, _, lengths, _, allowed) in &parts {
        inputs.try_push((Input::new(lengths)?, allowed.as_ref().map(Input::new).transpose()?))?;
    }
    let mut checked: Vec<Part<'_>> = Vec::new();
    for ((terms, factors, groups, _, is_floored, _), (lengths, allowed)) in parts.iter().zip(&inputs) {
        let mut postings = Vec::new();
        postings.try_extend(terms.iter().map(|term| &**term))?;
        let part = Part {
            terms: postings,
            factors,
            groups: groups.as_deref(),
            lengths: words(lengths.bytes())?,
            is_floored: *is_floored,
            allowed: allowed.as_ref().map(Input::bytes),
        };
        part.check()?;
        checked.try_push(part)?;
    }
    let num_terms = checked.iter().map(|part| part.terms.len()).min().unwrap_or(0);
    let phrase = phrase.map(|(parts, slop)| checked_phrase(parts, slop, num_terms)).transpose()?;
    let num_steps = checked.iter().flat_map(|part| &part.terms).map(|its| its.num_docs).sum();
    let num_docs = checked.iter().map(|part| part.lengths.len()).sum();
    let (ends, docs, scores, score_bytes) = gil::release(py, num_steps, || {
        let mut best = Best::new(most, num_docs, threshold)?;
        for (number, part) in checked.iter().enumerate() {
            best.part = number as u32;
            part.search(average, phrase.as_ref(), &mut best)?;
        }
        Checked::Ok(best.parts(checked.len())?)
    })?;
    Ok((ends, OwnedBuffer::from(docs), OwnedBuffer::aligned(scores, score_bytes)))
}
