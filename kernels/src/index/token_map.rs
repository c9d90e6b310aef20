//! Look-ups in a token map: a finite state transducer of crate `fst`, version 3, from bytes to numbers.
//!
//! A node is read backwards from its address, and leads to nodes at smaller addresses only; with that rule, which is
//! checked, no walk is endless, whatever the bytes are.

use crate::buffer::Input;
use crate::damaged;
use crate::error::Checked;
use crate::room::{Copied, Grow, Roomy};
use pyo3::prelude::*;
use pyo3::types::{PyBytes, PyList};

const HEAD_BYTES: usize = 16;
const TAIL_BYTES: usize = 20;
const VERSION: u64 = 3;
/// Transitions with one of these bytes store its number, from 1, in six bits.
const COMMON: &[u8; 63] = b"te/oasripcnw.hlm-du012g=:bf3y5&_4v9678k%?xCDASFIBEjPTzRNM+LOqHG";
/// More transitions have a table of 256 positions besides.
const TABLE_MIN: usize = 33;
/// Nodes that one look-up of similar tokens may visit.
const VISITS_MAX: usize = 1 << 24;

fn little_endian(bytes: &[u8]) -> u64 {
    bytes.iter().rev().fold(0, |value, &byte| value << 8 | u64::from(byte))
}

pub struct TokenMap<'a> {
    bytes: &'a [u8],
    root: usize,
}

/// A node; `inputs`, `targets` and `outputs` stand backwards, that of transition 0 last.
struct Node<'a> {
    address: usize,
    final_output: Option<u64>,
    count: usize,
    inputs: &'a [u8],
    targets: &'a [u8],
    outputs: &'a [u8],
    /// Input of a node with one transition.
    single: u8,
    /// Its target, if it is the node in front.
    next: Option<usize>,
    /// End of the node's bytes, from which targets are counted.
    end: usize,
}

impl<'a> TokenMap<'a> {
    pub fn open(bytes: &'a [u8]) -> Checked<Self> {
        let too_short = bytes.len() < HEAD_BYTES + TAIL_BYTES;
        if too_short || little_endian(&bytes[..8]) != VERSION {
            return damaged!("{} bytes are no token map of version {VERSION}", bytes.len());
        }
        let tail = bytes.len() - TAIL_BYTES;
        let root = little_endian(&bytes[tail + 8..tail + 16]);
        match usize::try_from(root) {
            Ok(root) if root < tail => Ok(TokenMap { bytes: &bytes[..tail], root }),
            _ => damaged!("the root of the token map is at {root} of {tail} bytes"),
        }
    }

    /// `count` bytes that end in front of `at`.
    fn before(&self, at: usize, count: usize) -> Checked<(&'a [u8], usize)> {
        match at.checked_sub(count) {
            Some(start) if start >= HEAD_BYTES => Ok((&self.bytes[start..at], start)),
            _ => damaged!("a node of the token map begins before the map"),
        }
    }

    fn node(&self, address: usize) -> Checked<Node<'a>> {
        if address == 0 {
            return Ok(Node {
                address,
                final_output: Some(0),
                count: 0,
                inputs: &[],
                targets: &[],
                outputs: &[],
                single: 0,
                next: None,
                end: 0,
            });
        }
        let (state, at) = self.before(address + 1, 1)?;
        let state = state[0];
        if state >> 7 == 1 {
            return self.single(address, state, at);
        }
        let (mut count, mut at) = (usize::from(state & 0x3f), at);
        if count == 0 {
            let (byte, start) = self.before(at, 1)?;
            (count, at) = (usize::from(byte[0]), start);
            count = if count == 1 { 256 } else { count };
        }
        let (sizes, start) = self.before(at, 1)?;
        let (to, out) = self.widths(sizes[0])?;
        at = start;
        if count >= TABLE_MIN {
            at = self.before(at, 256)?.1;
        }
        let (inputs, at) = self.before(at, count)?;
        let (targets, at) = self.before(at, count * to)?;
        let (outputs, mut end) = self.before(at, count * out)?;
        let mut final_output = None;
        if state & 0x40 != 0 {
            let (bytes, start) = self.before(end, out)?;
            (final_output, end) = (Some(little_endian(bytes)), start);
        }
        Ok(Node { address, final_output, count, inputs, targets, outputs, single: 0, next: None, end })
    }

    /// A node with one transition.
    fn single(&self, address: usize, state: u8, at: usize) -> Checked<Node<'a>> {
        let common = usize::from(state & 0x3f);
        let (single, mut at) = match common {
            0 => {
                let (byte, start) = self.before(at, 1)?;
                (byte[0], start)
            }
            common => (COMMON[common - 1], at),
        };
        let mut node = Node {
            address,
            final_output: None,
            count: 1,
            inputs: &[],
            targets: &[],
            outputs: &[],
            single,
            next: None,
            end: at,
        };
        if state & 0x40 != 0 {
            let Some(next) = at.checked_sub(1).filter(|&next| next > HEAD_BYTES) else {
                return damaged!("a node of the token map leads to one before the map");
            };
            node.next = Some(next);
            return Ok(node);
        }
        let (sizes, start) = self.before(at, 1)?;
        let (to, out) = self.widths(sizes[0])?;
        (node.targets, at) = self.before(start, to)?;
        (node.outputs, node.end) = self.before(at, out)?;
        Ok(node)
    }

    fn widths(&self, sizes: u8) -> Checked<(usize, usize)> {
        let (to, out) = (usize::from(sizes >> 4), usize::from(sizes & 15));
        if to > 8 || out > 8 {
            return damaged!("a node of the token map has numbers of {to} and {out} bytes");
        }
        Ok((to, out))
    }

    /// The number of a token.
    pub fn get(&self, token: &[u8]) -> Checked<Option<u64>> {
        let (mut address, mut total) = (self.root, 0u64);
        for &byte in token {
            let node = self.node(address)?;
            let Some(number) = (0..node.count).find(|&number| node.input(number) == byte) else { return Ok(None) };
            let (output, target) = node.transition(number)?;
            (total, address) = (total.wrapping_add(output), target);
        }
        Ok(self.node(address)?.final_output.map(|last| total.wrapping_add(last)))
    }
}

impl Node<'_> {
    fn input(&self, number: usize) -> u8 {
        match self.inputs {
            [] => self.single,
            inputs => inputs[self.count - 1 - number],
        }
    }

    /// Output and target of a transition.
    fn transition(&self, number: usize) -> Checked<(u64, usize)> {
        if let Some(next) = self.next {
            return Ok((0, next));
        }
        let place = self.count - 1 - number;
        let value = |bytes: &[u8]| {
            let width = bytes.len() / self.count;
            little_endian(&bytes[place * width..(place + 1) * width])
        };
        let delta = value(self.targets);
        if delta == 0 {
            return Ok((value(self.outputs), 0));
        }
        match usize::try_from(delta).ok().and_then(|delta| self.end.checked_sub(delta)) {
            Some(target) if target > HEAD_BYTES && target < self.address => Ok((value(self.outputs), target)),
            _ => damaged!("a node of the token map leads outside of the map"),
        }
    }
}

/// `find_tokens` of `_kernels.pyi`.
#[pyfunction]
#[pyo3(signature = (token_map, tokens, /))]
pub fn find_tokens<'py>(
    py: Python<'py>,
    token_map: &Bound<'py, PyAny>,
    tokens: Vec<PyBackedBytes>,
) -> PyResult<Bound<'py, PyList>> {
    let input = Input::new(token_map)?;
    let map = TokenMap::open(input.bytes())?;
    let ids = PyList::empty(py);
    for token in &tokens {
        ids.append(map.get(token)?)?;
    }
    Ok(ids)
}

type PyBackedBytes = pyo3::pybacked::PyBackedBytes;

/// A similar token and its number.
type Near = (Vec<u8>, u64);

/// A distance beyond every bound.
const FAR: u32 = u32::MAX / 2;

/// Edit distances of a path from the beginnings of a word, of `first` characters and of each more. Beginnings whose
/// length differs too much from that of the path are left out, so that a long word costs no more than a short one.
struct Row {
    first: usize,
    distances: Vec<u32>,
}

impl Row {
    /// Those of the empty path.
    fn start(num_letters: usize, distance: usize) -> Roomy<Self> {
        let mut distances = Vec::new();
        distances.try_extend(0..=num_letters.min(distance) as u32)?;
        Ok(Row { first: 0, distances })
    }

    fn get(&self, count: usize) -> u32 {
        let place = count.checked_sub(self.first);
        place.and_then(|place| self.distances.get(place)).map_or(FAR, |&distance| distance)
    }

    /// The row of the path with one more letter.
    fn after(&self, word: &[char], next: char, depth: usize, distance: usize) -> Roomy<Self> {
        let first = depth.saturating_sub(distance);
        let end = word.len().min(depth.saturating_add(distance)) + 1;
        let mut distances = Vec::new();
        let mut before = FAR;
        for count in first..end.max(first) {
            let changed = match count.checked_sub(1) {
                Some(at) => self.get(at) + u32::from(word[at] != next),
                None => depth as u32,
            };
            before = changed.min(self.get(count) + 1).min(before + 1);
            distances.try_push(before)?;
        }
        Ok(Row { first, distances })
    }
}

struct NearWalk<'a> {
    map: TokenMap<'a>,
    word: Vec<char>,
    distance: usize,
    prefix: usize,
    limit: usize,
    /// Bytes on the way from the root.
    path: Vec<u8>,
    /// Bytes of the path before the last whole character.
    whole: usize,
    /// A row for each character of the path, and one in front.
    rows: Vec<Row>,
    near: Vec<Near>,
    num_visits: usize,
}

/// Steps of a walk that are still to do.
enum Step {
    Visit(usize, u64),
    /// A transition with this byte, then everything behind it.
    Enter(u8, usize, u64),
    /// Back to a path of this many bytes, whole characters and rows.
    Leave(usize, usize, usize),
}

impl NearWalk<'_> {
    fn run(mut self) -> Checked<Vec<Near>> {
        let mut steps = Vec::new();
        steps.try_push(Step::Visit(self.map.root, 0))?;
        while let Some(step) = steps.pop() {
            match step {
                Step::Leave(path, whole, rows) => {
                    self.path.truncate(path);
                    self.whole = whole;
                    self.rows.truncate(rows);
                }
                Step::Enter(byte, target, total) => {
                    steps.try_push(Step::Leave(self.path.len(), self.whole, self.rows.len()))?;
                    self.path.try_push(byte)?;
                    if self.advance()? {
                        steps.try_push(Step::Visit(target, total))?;
                    }
                }
                Step::Visit(address, total) => {
                    if self.near.len() >= self.limit {
                        break;
                    }
                    self.num_visits += 1;
                    if self.num_visits > VISITS_MAX {
                        return damaged!("more than {VISITS_MAX} nodes of the token map are similar to a word");
                    }
                    let node = self.map.node(address)?;
                    if let Some(last) = node.final_output {
                        if self.is_near() {
                            self.near.try_push((self.path.try_to_vec()?, total.wrapping_add(last)))?;
                        }
                    }
                    for number in (0..node.count).rev() {
                        let (output, target) = node.transition(number)?;
                        steps.try_push(Step::Enter(node.input(number), target, total.wrapping_add(output)))?;
                    }
                }
            }
        }
        Ok(self.near)
    }

    fn is_near(&self) -> bool {
        let row = &self.rows[self.rows.len() - 1];
        self.whole == self.path.len()
            && row.get(self.word.len()) as usize <= self.distance
            && self.rows.len() > self.prefix.min(self.word.len())
    }

    /// Add the last byte of the path; whether a similar token may begin with the path.
    fn advance(&mut self) -> Checked<bool> {
        let tail = &self.path[self.whole..];
        let next = match std::str::from_utf8(tail) {
            Ok(text) => text.chars().next(),
            Err(error) if error.error_len().is_some() => return damaged!("a token is no UTF-8"),
            Err(_) => return Ok(true),
        };
        let Some(next) = next else { return Ok(true) };
        self.whole = self.path.len();
        let depth = self.rows.len(); // characters of the path, the new one included
        if depth <= self.prefix && depth <= self.word.len() && self.word[depth - 1] != next {
            return Ok(false);
        }
        let row = self.rows[depth - 1].after(&self.word, next, depth, self.distance)?;
        let least = row.distances.iter().copied().min().unwrap_or(FAR);
        self.rows.try_push(row)?;
        Ok(least as usize <= self.distance)
    }
}

/// `near_tokens` of `_kernels.pyi`.
#[pyfunction]
#[pyo3(signature = (token_map, word, distance, prefix, limit, /))]
pub fn near_tokens<'py>(
    py: Python<'py>,
    token_map: &Bound<'py, PyAny>,
    word: &str,
    distance: usize,
    prefix: usize,
    limit: usize,
) -> PyResult<Bound<'py, PyList>> {
    let input = Input::new(token_map)?;
    let mut letters = Vec::new();
    letters.try_extend(word.chars())?;
    let mut rows = Vec::new();
    rows.try_push(Row::start(letters.len(), distance)?)?;
    let map = TokenMap::open(input.bytes())?;
    let walk = NearWalk {
        map,
        word: letters,
        distance,
        prefix,
        limit,
        path: Vec::new(),
        whole: 0,
        rows,
        near: Vec::new(),
        num_visits: 0,
    };
    let near = py.detach(|| walk.run())?;
    let answer = PyList::empty(py);
    for (token, id) in &near {
        answer.append((
            PyBytes::new_with(py, token.len(), |memory| {
                memory.copy_from_slice(token);
                Ok(())
            })?,
            id,
        ))?;
    }
    Ok(answer)
}
