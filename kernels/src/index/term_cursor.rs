//! A token's documents one after another, decoding a block when one of its documents is wanted.

use super::positions::BlockPositions;
use super::postings::{Block, Bounds, Norms, TermPostings, BLOCK_MAX};
use crate::error::Checked;
use std::sync::Arc;

pub struct TermCursor<'a> {
    pub postings: &'a TermPostings,
    pub bounds: Arc<Bounds>,
    /// The token's factor: its inverse document frequency, times how often the query says it.
    pub factor: f32,
    block: Block,
    /// Number of the decoded block; that of none at first.
    decoded: usize,
    /// The block of the current document, and the document's place in it.
    number: usize,
    place: usize,
    positions: BlockPositions,
    positions_of: usize,
    /// Of documents of the block, while they are scored together.
    weights: [f32; BLOCK_MAX],
}

impl<'a> TermCursor<'a> {
    pub fn new(postings: &'a TermPostings, factor: f32, norms: &Norms<'_>) -> Checked<Self> {
        let bounds = postings.bounds(norms)?;
        Ok(TermCursor {
            postings,
            bounds,
            factor,
            block: Block::empty(),
            decoded: usize::MAX,
            number: 0,
            place: 0,
            positions: BlockPositions::default(),
            positions_of: usize::MAX,
            weights: [0.0; BLOCK_MAX],
        })
    }

    /// Upper bound of the scores of all documents.
    pub fn most(&self) -> f32 {
        self.factor * self.bounds.most
    }

    /// Upper bound of the scores of the documents from `first` to before `end`; documents ascend from call to call.
    pub fn most_between(&mut self, first: u32, end: u32) -> f32 {
        let postings = self.postings;
        while self.number < postings.num_blocks() && postings.lasts[self.number] < first {
            (self.number, self.place) = (self.number + 1, 0);
        }
        let mut most = 0f32;
        for number in self.number..postings.num_blocks() {
            if postings.firsts[number] >= end {
                break;
            }
            most = most.max(self.bounds.blocks[number]);
        }
        self.factor * most
    }

    /// The first document from `first` on as far as blocks say it without being decoded; None behind the last one.
    pub fn next_from(&self, first: u32) -> Option<u32> {
        let lasts = &self.postings.lasts[self.number..];
        let number = self.number + lasts.partition_point(|&last| last < first);
        (number < self.postings.num_blocks()).then(|| self.postings.firsts[number].max(first))
    }

    fn load(&mut self) -> Checked<()> {
        if self.decoded != self.number {
            self.postings.block(self.number, &mut self.block)?;
            self.decoded = self.number;
        }
        Ok(())
    }

    /// Go to the first document from `doc` on; documents ascend from call to call. None behind the last one.
    pub fn seek(&mut self, doc: u32) -> Checked<Option<u32>> {
        let postings = self.postings;
        if self.number >= postings.num_blocks() {
            return Ok(None);
        }
        if postings.lasts[self.number] < doc {
            self.number += postings.lasts[self.number..].partition_point(|&last| last < doc);
            self.place = 0;
            if self.number == postings.num_blocks() {
                return Ok(None);
            }
        }
        self.load()?;
        let docs = &self.block.docs[self.place..self.block.count];
        self.place += docs.partition_point(|&other| other < doc);
        Ok(Some(self.block.docs[self.place]))
    }

    /// Last document of the current block.
    pub fn last_of_block(&self) -> u32 {
        self.postings.lasts[self.number]
    }

    /// Frequency at the current document.
    pub fn freq(&self) -> u32 {
        self.block.freqs[self.place]
    }

    /// Score at the current document.
    pub fn score(&self, norms: &Norms<'_>) -> f32 {
        self.factor * norms.weight(self.block.docs[self.place], self.freq())
    }

    /// Call `use_document` with the number and score of each document from the current one to before `end`.
    pub fn each_before(
        &mut self,
        first: u32,
        end: u32,
        norms: &Norms<'_>,
        mut use_document: impl FnMut(u32, f32),
    ) -> Checked<()> {
        let mut next = self.seek(first)?;
        while let Some(doc) = next {
            if doc >= end {
                break;
            }
            let docs = &self.block.docs[self.place..self.block.count];
            let here = docs.partition_point(|&other| other < end);
            let freqs = &self.block.freqs[self.place..self.place + here];
            norms.weights(&docs[..here], freqs, &mut self.weights);
            for (&doc, &weight) in docs[..here].iter().zip(&self.weights) {
                use_document(doc, self.factor * weight);
            }
            self.place += here;
            if self.place < self.block.count {
                break;
            }
            (self.number, self.place) = (self.number + 1, 0);
            next = if self.number < self.postings.num_blocks() { self.seek(0)? } else { None };
        }
        Ok(())
    }

    /// Positions at the current document; empty if they are not stored.
    pub fn positions(&mut self) -> Checked<&[u32]> {
        let Some(positions) = &self.postings.positions else { return Ok(&[]) };
        if self.positions_of != self.number {
            self.load()?;
            positions.decode(self.number, &self.block, &mut self.positions)?;
            self.positions_of = self.number;
        }
        Ok(self.positions.of(self.place))
    }
}
