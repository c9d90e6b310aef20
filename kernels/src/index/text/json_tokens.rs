//! Stored JSON documents to tokens: a path, the type of a value, and a token of its text or the value itself.

use super::analyzer::next_token;
use crate::damaged;
use crate::error::{invalid, Checked, Fault};
use crate::jsonb::to_text::{entry, header, scalar, Trouble, ARRAY, CONTAINER, OBJECT, SCALAR};
use crate::room::Grow;
use lance_tokenizer::TextAnalyzer;
use pyo3::exceptions::PyNotImplementedError;
use pyo3::prelude::*;

const NULL: u32 = 0;
const TEXT: u32 = 1;
const NUMBER: u32 = 2;
const DEPTH_MAX: usize = 4096;

/// An array or object, some members of which were visited.
struct Level {
    is_object: bool,
    count: usize,
    done: usize,
    entries_at: usize,
    key_at: usize,
    value_at: usize,
    end: usize,
    /// Bytes of the path above it.
    path_bytes: usize,
}

impl Level {
    fn open(data: &[u8], start: usize, end: usize, path_bytes: usize) -> Checked<Level> {
        let (kind, count) = header(data, start, end)?;
        if kind != OBJECT && kind != ARRAY {
            return damaged!("expected an array or object at {start}, found the kind {kind}");
        }
        let is_object = kind == OBJECT;
        let entries_at = start + 4;
        let num_entries = if is_object { 2 * count } else { count };
        if num_entries > (end - entries_at) / 4 {
            return damaged!("{num_entries} entries at {entries_at} run past the end at {end}");
        }
        let key_at = entries_at + 4 * num_entries;
        let keys = if is_object { count } else { 0 };
        let key_bytes: usize = (0..keys).map(|at| entry(data, entries_at + 4 * at).1).sum();
        if key_bytes > end - key_at {
            return damaged!("keys of {key_bytes} bytes at {key_at} run past the end at {end}");
        }
        Ok(Level { is_object, count, done: 0, entries_at, key_at, value_at: key_at + key_bytes, end, path_bytes })
    }
}

/// Calls `each` with the tokens of a document and their positions, which are counted after filters.
pub struct Walk<'a, F> {
    chain: &'a mut TextAnalyzer,
    each: F,
    position: usize,
    /// A path, and the token after it.
    path: Vec<u8>,
}

impl<'a, F: FnMut(&[u8], usize) -> PyResult<()>> Walk<'a, F> {
    pub fn new(chain: &'a mut TextAnalyzer, each: F) -> Self {
        Walk { chain, each, position: 0, path: Vec::new() }
    }

    pub fn document(&mut self, data: &[u8]) -> PyResult<()> {
        if data.is_empty() {
            return Ok(());
        }
        let (kind, _) = header(data, 0, data.len())?;
        if kind == SCALAR {
            if data.len() < 8 {
                return Err(Fault::Damaged("a scalar of less than 8 bytes".into()).into());
            }
            return self.value(entry(data, 4).0, &data[8..]);
        }
        let mut stack = Vec::new();
        stack.try_push(Level::open(data, 0, data.len(), 0)?)?;
        while let Some(top) = stack.last_mut() {
            self.path.truncate(top.path_bytes);
            if top.done == top.count {
                stack.pop();
                continue;
            }
            if top.is_object {
                let (_, length) = entry(data, top.entries_at + 4 * top.done);
                if !self.path.is_empty() {
                    self.path.try_push(b'.')?;
                }
                self.path.try_append(&data[top.key_at..top.key_at + length])?;
                top.key_at += length;
            }
            let slot = top.done + if top.is_object { top.count } else { 0 };
            let (kind, length) = entry(data, top.entries_at + 4 * slot);
            let start = top.value_at;
            if length > top.end - start {
                return Err(Fault::Damaged(format!("a value of {length} bytes at {start} runs past the end")).into());
            }
            top.value_at += length;
            top.done += 1;
            if kind != CONTAINER {
                self.value(kind, &data[start..start + length])?;
            } else if stack.len() >= DEPTH_MAX {
                return Err(PyNotImplementedError::new_err(format!("JSON nested more than {DEPTH_MAX} deep")));
            } else {
                let path_bytes = self.path.len();
                stack.try_push(Level::open(data, start, start + length, path_bytes)?)?;
            }
        }
        Ok(())
    }

    fn value(&mut self, kind: u32, content: &[u8]) -> PyResult<()> {
        let path_bytes = self.path.len();
        if kind == TEXT {
            let text =
                std::str::from_utf8(content).map_err(|error| invalid(format!("a string is not UTF-8: {error}")))?;
            self.path.try_append(b",str,")?;
            let start = self.path.len();
            let mut stream = self.chain.token_stream(text);
            while let Some((token, _)) = next_token(&mut stream)? {
                self.path.truncate(start);
                self.path.try_append(token.as_bytes())?;
                (self.each)(&self.path, self.position)?;
                self.position += 1;
            }
        } else {
            self.path.try_append(match kind {
                NULL => b",null,".as_slice(),
                NUMBER => b",number,",
                _ => b",bool,",
            })?;
            scalar(kind, content, &mut self.path).map_err(|trouble| match trouble {
                Trouble::Damaged(fault) => fault.into(),
                Trouble::Unsupported(text) => PyNotImplementedError::new_err(text),
            })?;
            (self.each)(&self.path, self.position)?;
            self.position += 1;
        }
        self.path.truncate(path_bytes);
        Ok(())
    }
}
