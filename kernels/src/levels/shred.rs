//! Shreds nested arrays into levels: the reverse of `layers.rs` (spec: encodings, 2.2 and 2.3).
//!
//! A chunk is one leaf of an Arrow array with its ancestors: nodes, outermost first, then the leaf. Levels are computed
//! node by node for all rows of a chunk at once. Between two lists, every level either owns one slot of the arrays
//! there, or its row has ended further out (a null or empty list). A list turns the levels that own a slot into one
//! level per item.
//!
//! Which layers are nullable, and thus the numbering of levels, is known only after all chunks. Until then a level is a
//! *code*: `2 * depth + 1` for a null, `2 * depth + 2` for an empty list, 0 for neither. Codes grow inwards.

use crate::buffer::{Input, OwnedBuffer};
use crate::error::{Refused, Taken};
use crate::gil;
use crate::levels::items::{gather, Items, Run, Stream, StreamArgs};
use crate::refused;
use crate::room::{filled, vec_with_capacity, zeros, Copied, Gather, GatherResults, Grow, Roomy};
use pyo3::exceptions::PyValueError;
use pyo3::prelude::*;

/// A bitmap of an Arrow array: bit `offset + i` belongs to slot i.
#[derive(Clone, Copy)]
pub struct Bitmap<'a> {
    pub bytes: &'a [u8],
    pub offset: usize,
}

impl Bitmap<'_> {
    #[inline(always)]
    fn is_set(&self, slot: usize) -> bool {
        let bit = self.offset + slot;
        self.bytes[bit / 8] >> (bit % 8) & 1 != 0
    }

    pub fn check(&self, slots: usize) -> Taken<()> {
        match self.offset.checked_add(slots) {
            Some(bits) if bits.div_ceil(8) <= self.bytes.len() => Ok(()),
            _ => refused!("a bitmap of {} bytes for {slots} slots from bit {} on", self.bytes.len(), self.offset),
        }
    }

    /// The 64 bits from `slot` on, missing ones as 1.
    fn word(&self, slot: usize, count: usize) -> u64 {
        let bit = self.offset + slot;
        let mut raw = [0; 16];
        let bytes = &self.bytes[bit / 8..(bit + count.min(64)).div_ceil(8)];
        raw[..bytes.len()].copy_from_slice(bytes);
        let word = (u128::from_le_bytes(raw) >> (bit % 8)) as u64;
        match count {
            0..64 => word | u64::MAX << count,
            _ => word,
        }
    }

    /// Call `visit` for each slot of a range whose bit is 0, with its distance from the start.
    pub fn zeros(&self, start: usize, count: usize, mut visit: impl FnMut(usize) -> Roomy<()>) -> Roomy<()> {
        for base in (0..count).step_by(64) {
            let mut zeros = !self.word(start + base, count - base);
            while zeros != 0 {
                visit(base + zeros.trailing_zeros() as usize)?;
                zeros &= zeros - 1;
            }
        }
        Ok(())
    }
}

/// The effect of a node on the levels.
enum Kind<'a> {
    /// A struct, or the leaf: one slot per slot of its parent.
    Item,
    /// A struct whose field is nullable.
    NullableStruct,
    /// A leaf of Arrow's null type: an item without a bitmap whose slots are all null.
    Null,
    /// A list: slot i holds the items `offsets[i] .. offsets[i + 1]`.
    List(Offsets<'a>),
    /// A fixed-size list of structs: a fixed number of slots per slot of its parent, all with the same levels (10.6).
    Repeated(usize),
}

/// The offsets of a list in Arrow's form.
#[derive(Clone, Copy)]
enum Offsets<'a> {
    Narrow(&'a [u8]),
    Wide(&'a [u8]),
}

impl Offsets<'_> {
    /// Start and length of the items in a slot, `None` if the offsets descend or end.
    #[inline(always)]
    fn items(&self, slot: usize) -> Option<(usize, usize)> {
        let (start, end) = match self {
            Offsets::Narrow(bytes) => {
                let pair: [i32; 2] = bytemuck::pod_read_unaligned(bytes.get(slot * 4..slot * 4 + 8)?);
                (i64::from(pair[0]), i64::from(pair[1]))
            }
            Offsets::Wide(bytes) => {
                let pair: [i64; 2] = bytemuck::pod_read_unaligned(bytes.get(slot * 8..slot * 8 + 16)?);
                (pair[0], pair[1])
            }
        };
        (0 <= start && start <= end).then(|| (start as usize, (end - start) as usize))
    }
}

/// One node of a chunk.
struct Node<'a> {
    kind: Kind<'a>,
    validity: Option<Bitmap<'a>>,
    /// Slots of its arrays.
    length: usize,
}

/// The levels of one chunk, up to the current node.
struct Levels {
    rep: Vec<u16>,
    /// Codes; `None` as long as all of them are 0.
    def: Option<Vec<u16>>,
    count: usize,
    /// The slots of the current node, in the order of the levels that own them.
    runs: Vec<Run>,
    /// The level that owns each slot; `None` if every level owns one.
    owners: Option<Vec<usize>>,
}

/// The codes that occur, by depth.
struct Found {
    null: Vec<bool>,
    empty: Vec<bool>,
}

fn null_code(depth: usize) -> u16 {
    2 * depth as u16 + 1
}

fn empty_code(depth: usize) -> u16 {
    2 * depth as u16 + 2
}

impl Levels {
    fn new(start: usize, num_rows: usize, max_rep: u16) -> Roomy<Self> {
        let rep = if max_rep > 0 { filled(max_rep, num_rows)? } else { Vec::new() };
        let mut runs = Vec::new();
        if num_rows > 0 {
            runs.try_push(Run { start, count: num_rows })?;
        }
        Ok(Levels { rep, def: None, count: num_rows, runs, owners: None })
    }

    fn num_slots(&self) -> usize {
        self.runs.iter().map(|run| run.count).sum()
    }

    /// Check that the runs are within the node's arrays.
    fn check(&self, node: &Node) -> Taken<()> {
        if let Some(bitmap) = &node.validity {
            bitmap.check(node.length)?;
        }
        match self.runs.iter().all(|run| run.start.checked_add(run.count).is_some_and(|end| end <= node.length)) {
            true => Ok(()),
            false => refused!("slots beyond the {} of an array", node.length),
        }
    }

    /// Mark the levels whose slot is null here, and not already further out. Returns whether there is any.
    fn item(&mut self, node: &Node, code: u16) -> Roomy<bool> {
        let (runs, owners, count) = (&self.runs, &self.owners, self.count);
        let (def, mut found) = (&mut self.def, false);
        let mut mark = |slot: usize| {
            let level = owners.as_ref().map_or(slot, |owners| owners[slot]);
            let def = match def.as_mut() {
                Some(def) => def,
                None => def.insert(zeros(count)?), // room: an option
            };
            if def[level] == 0 {
                (def[level], found) = (code, true);
            }
            Roomy::Ok(())
        };
        let mut first = 0;
        for run in runs {
            match (&node.kind, &node.validity) {
                (Kind::Null, _) => (first..first + run.count).try_for_each(&mut mark)?,
                (_, Some(bitmap)) => bitmap.zeros(run.start, run.count, |index| mark(first + index))?,
                (_, None) => {}
            }
            first += run.count;
        }
        Ok(found)
    }

    /// Turn each level that owns a list into one level per item. `rank` is 1 for the innermost list.
    fn list(&mut self, offsets: Offsets, node: &Node, depth: usize, rank: u16, found: &mut Found) -> Taken<()> {
        let mut next =
            Levels { rep: vec_with_capacity(self.count)?, def: None, count: 0, runs: Vec::new(), owners: None };
        let mut def = vec_with_capacity(self.count)?;
        let mut owners = self.owners.as_deref().unwrap_or_default().iter().copied().peekable();
        let mut slots = self.runs.iter().flat_map(|run| run.start..run.start + run.count);
        let mut childless = false;
        for level in 0..self.count {
            let (rep, code) = (self.rep[level], self.def.as_ref().map_or(0, |def| def[level]));
            let owns = self.owners.is_none() || owners.next_if_eq(&level).is_some();
            let slot = if owns { slots.next() } else { None };
            let end = match slot {
                Some(slot) if code == 0 => match node.validity {
                    Some(bitmap) if !bitmap.is_set(slot) => null_code(depth),
                    _ => match offsets.items(slot) {
                        Some((_, 0)) => empty_code(depth),
                        Some((start, count)) => {
                            next.rep.try_push(rep)?;
                            next.rep.try_resize(next.rep.len() + count - 1, rank - 1)?;
                            def.try_resize(def.len() + count, 0)?;
                            append_run(&mut next.runs, start, count)?;
                            continue;
                        }
                        None => return refused!("list offsets of slot {slot} descend or end"),
                    },
                },
                _ => code,
            };
            found.null[depth] |= end == null_code(depth);
            found.empty[depth] |= end == empty_code(depth);
            childless = true;
            next.rep.try_push(rep)?;
            def.try_push(end)?;
        }
        next.count = def.len();
        if childless {
            let owners = def.iter().enumerate().filter(|(_, &code)| code == 0).map(|(level, _)| level);
            next.owners = Some(owners.try_vec()?);
            next.def = Some(def);
        }
        *self = next;
        Ok(())
    }

    /// Repeat every level once per slot of a fixed-size list.
    fn repeat(&mut self, size: usize) -> Taken<()> {
        if self.owners.is_some() {
            return Err(Refused::Unsupported("fixed-size lists of structs inside lists".into()));
        }
        let Some(count) = self.count.checked_mul(size) else {
            return refused!("{} lists of {size} slots", self.count);
        };
        self.rep = repeat_each(&self.rep, size)?;
        self.def = self.def.as_deref().map(|def| repeat_each(def, size)).transpose()?;
        self.count = count;
        self.runs.iter_mut().for_each(|run| *run = Run { start: run.start * size, count: run.count * size });
        Ok(())
    }
}

fn repeat_each(levels: &[u16], times: usize) -> Roomy<Vec<u16>> {
    let mut repeated = vec_with_capacity(levels.len().saturating_mul(times))?;
    levels.iter().for_each(|&level| repeated.extend(std::iter::repeat_n(level, times))); // room: reserved
    Ok(repeated)
}

/// Append items to runs, merged with the last run if they are adjacent.
fn append_run(runs: &mut Vec<Run>, start: usize, count: usize) -> Roomy<()> {
    match runs.last_mut() {
        Some(last) if last.start + last.count == start => last.count += count,
        _ => runs.try_push(Run { start, count })?,
    }
    Ok(())
}

/// The path to the leaf, the same for all chunks: the kind of each node, outermost first, the leaf last.
#[derive(PartialEq)]
struct Way {
    is_list: Vec<bool>,
    is_struct: Vec<bool>,
    /// Nullable structs around the outermost list. They are nullable in every page, because pylance fails to join pages
    /// in which such a struct is all valid with others in which it is not. (Inside lists it fails in the opposite
    /// case.)
    may_be_null: Vec<bool>,
}

impl Way {
    fn max_rep(&self) -> u16 {
        self.is_list.iter().filter(|&&is_list| is_list).count() as u16
    }

    /// Everything below a null struct is null, too, so the member of a struct with nulls may not be marked all valid.
    fn push_down(&self, found: &mut Found) {
        found.null.iter_mut().zip(&self.may_be_null).for_each(|(null, may_be_null)| *null |= may_be_null);
        for (depth, _) in self.is_struct.iter().enumerate().filter(|(_, &is_struct)| is_struct) {
            found.null[depth + 1] |= found.null[depth];
        }
    }

    /// Layer numbers, innermost first, and the level of every code.
    fn number(&self, found: &Found) -> Roomy<(Vec<u8>, Vec<u16>)> {
        let mut layers = Vec::new();
        let mut levels = filled(0, 2 * self.is_list.len() + 1)?;
        let mut next = 1;
        for (depth, &is_list) in self.is_list.iter().enumerate().rev() {
            let (null, empty) = (found.null[depth], found.empty[depth]);
            layers.try_push(match (is_list, null, empty) {
                (false, false, _) => 1,
                (false, true, _) => 3,
                (true, false, false) => 2,
                (true, true, false) => 4,
                (true, false, true) => 5,
                (true, true, true) => 6,
            })?;
            for (occurs, code) in [(null, null_code(depth)), (empty, empty_code(depth))] {
                if occurs {
                    levels[code as usize] = next;
                    next += 1;
                }
            }
        }
        Ok((layers, levels))
    }
}

/// A chunk: some rows of arrays.
struct Chunk<'a> {
    start: usize,
    num_rows: usize,
    nodes: Vec<Node<'a>>,
    streams: Vec<Stream<'a>>,
}

impl Chunk<'_> {
    fn levels(&self, way: &Way, found: &mut Found) -> Taken<Levels> {
        let mut rank = way.max_rep();
        let mut levels = Levels::new(self.start, self.num_rows, rank)?;
        for (depth, node) in self.nodes.iter().enumerate() {
            levels.check(node)?;
            match node.kind {
                Kind::Item | Kind::NullableStruct | Kind::Null => {
                    found.null[depth] |= levels.item(node, null_code(depth))?
                }
                Kind::Repeated(size) => {
                    if rank < way.max_rep() {
                        return Err(Refused::Unsupported("fixed-size lists of structs inside lists".into()));
                    }
                    found.null[depth] |= levels.item(node, null_code(depth))?;
                    levels.repeat(size)?;
                }
                Kind::List(offsets) => {
                    levels.list(offsets, node, depth, rank, found)?;
                    rank -= 1;
                }
            }
        }
        Ok(levels)
    }
}

/// A shredded page.
struct Page {
    num_slots: usize,
    num_items: usize,
    rep: Option<Vec<u16>>,
    def: Option<Vec<u16>>,
    layers: Vec<u8>,
    /// Chunk and slot of the first item.
    first: (usize, usize),
    values: Option<Vec<Option<OwnedBuffer>>>,
}

fn shred_chunks(way: &Way, chunks: &[Chunk]) -> Taken<Page> {
    let depth = way.is_list.len();
    let mut found = Found { null: filled(false, depth)?, empty: filled(false, depth)? };
    let parts = chunks.iter().map(|chunk| chunk.levels(way, &mut found)).try_vec_of()?;
    way.push_down(&mut found);
    let (layers, numbers) = way.number(&found)?;
    let runs = parts.iter().map(|part| part.runs.try_to_vec()).try_vec_of()?;
    let items = Items { chunks: runs, nulls: null_items(&parts)? };
    let num_levels = parts.iter().map(|part| part.count).sum();
    let num_slots = match way.max_rep() {
        0 => num_levels,
        max_rep => parts.iter().map(|part| part.rep.iter().filter(|&&rep| rep == max_rep).count()).sum(),
    };
    let has_def = layers.iter().any(|&layer| layer > 2);
    let mut parts = parts.into_iter();
    let mut joined = parts.next().map_or_else(|| Levels::new(0, 0, 0), Ok)?;
    let mut def = match has_def {
        true => Some(joined.def.take().map_or_else(|| zeros(joined.count), Ok)?),
        false => None,
    };
    for part in parts {
        joined.rep.try_append(&part.rep)?;
        match (&mut def, &part.def) {
            (Some(def), Some(more)) => def.try_append(more)?,
            (Some(def), None) => def.try_resize(def.len() + part.count, 0)?,
            (None, _) => {}
        }
    }
    if let Some(def) = &mut def {
        def.iter_mut().for_each(|level| *level = numbers[*level as usize]);
    }
    let streams = chunks.iter().map(|chunk| &chunk.streams[..]).try_vec()?;
    Ok(Page {
        num_slots,
        num_items: items.count(),
        rep: (way.max_rep() > 0).then_some(joined.rep),
        def,
        layers,
        first: items.first(),
        values: if items.is_one_run() { None } else { Some(gather(&items, &streams)?) },
    })
}

/// The null items, numbered from the first item of the page.
fn null_items(parts: &[Levels]) -> Roomy<Vec<usize>> {
    let (mut nulls, mut first) = (Vec::new(), 0);
    for part in parts {
        if let Some(def) = &part.def {
            match &part.owners {
                None => {
                    nulls.try_extend((0..part.count).filter(|&level| def[level] != 0).map(|level| first + level))?
                }
                Some(owners) => {
                    let null = owners.iter().enumerate().filter(|(_, &level)| def[level] != 0);
                    nulls.try_extend(null.map(|(item, _)| first + item))?;
                }
            }
        }
        first += part.num_slots();
    }
    Ok(nulls)
}

type NodeArgs<'py> = (u8, usize, Option<Bound<'py, PyAny>>, usize, Option<Bound<'py, PyAny>>, usize);
type ChunkArgs<'py> = (usize, usize, Vec<NodeArgs<'py>>, Vec<StreamArgs<'py>>);
type Buffers = Vec<Option<OwnedBuffer>>;
type Shredded = (usize, usize, Option<OwnedBuffer>, Option<OwnedBuffer>, Vec<u8>, (usize, usize), Option<Buffers>);

/// The buffers of a chunk, held while the kernel runs.
struct Held {
    nodes: Vec<(Option<Input>, Option<Input>)>,
    streams: Vec<(Option<Input>, Option<Input>)>,
}

fn hold(object: &Option<Bound<'_, PyAny>>) -> PyResult<Option<Input>> {
    object.as_ref().map(Input::new).transpose()
}

fn node<'a>(args: &NodeArgs<'_>, held: &'a (Option<Input>, Option<Input>)) -> PyResult<Node<'a>> {
    let (kind, length, _, bit_offset, _, list_size) = args;
    let validity = held.0.as_ref().map(|input| Bitmap { bytes: input.bytes(), offset: *bit_offset });
    let offsets = held.1.as_ref().map_or(&[][..], Input::bytes);
    let kind = match kind {
        0 => Kind::Item,
        1 => Kind::List(Offsets::Narrow(offsets)),
        2 => Kind::List(Offsets::Wide(offsets)),
        3 => Kind::Repeated(*list_size),
        4 => Kind::Null,
        5 => Kind::NullableStruct,
        kind => return Err(PyValueError::new_err(format!("nodes of kind {kind} are unknown"))),
    };
    Ok(Node { kind, validity, length: *length })
}

/// Shred rows of nested arrays, see `lance_io/_kernels.pyi`.
#[pyfunction]
#[pyo3(signature = (chunks, /))]
pub fn shred<'py>(py: Python<'py>, chunks: Vec<ChunkArgs<'py>>) -> PyResult<Shredded> {
    let held = chunks
        .iter()
        .map(|(_, _, nodes, streams)| {
            let nodes = nodes.iter().map(|node| PyResult::Ok((hold(&node.2)?, hold(&node.4)?))).try_vec_of()?;
            let streams = streams.iter().map(|s| PyResult::Ok((hold(&s.4)?, hold(&s.5)?))).try_vec_of()?;
            PyResult::Ok(Held { nodes, streams })
        })
        .try_vec_of()?;
    let mut inputs = Vec::new();
    for ((start, num_rows, nodes, streams), held) in chunks.iter().zip(&held) {
        let nodes = nodes.iter().zip(&held.nodes).map(|(args, held)| node(args, held)).try_vec_of()?;
        let streams = streams.iter().zip(&held.streams).map(|(args, held)| Stream::new(args, held));
        let streams = streams.try_vec_of()?;
        inputs.try_push(Chunk { start: *start, num_rows: *num_rows, nodes, streams })?;
    }
    let way = way_of(&inputs)?;
    let steps = inputs.iter().map(|chunk| chunk.num_rows + chunk.nodes.last().map_or(0, |leaf| leaf.length)).sum();
    let page = gil::release(py, steps, || shred_chunks(&way, &inputs))?;
    let (rep, def) = (page.rep.map(OwnedBuffer::from), page.def.map(OwnedBuffer::from));
    Ok((page.num_slots, page.num_items, rep, def, page.layers, page.first, page.values))
}

/// The path that all chunks share.
fn way_of(chunks: &[Chunk]) -> PyResult<Way> {
    let kinds = |chunk: &Chunk, is: fn(&Kind) -> bool| chunk.nodes.iter().map(|node| is(&node.kind)).try_vec();
    let mut ways = chunks.iter().map(|chunk| {
        let is_list = kinds(chunk, |kind| matches!(kind, Kind::List(_)))?;
        let mut is_struct = kinds(chunk, |kind| matches!(kind, Kind::Item | Kind::NullableStruct))?;
        is_struct.pop(); // the leaf
        let first_list = is_list.iter().position(|&is_list| is_list).unwrap_or(0);
        let mut may_be_null = kinds(chunk, |kind| matches!(kind, Kind::NullableStruct))?;
        may_be_null.iter_mut().skip(first_list).for_each(|may_be_null| *may_be_null = false);
        Roomy::Ok(Way { is_list, is_struct, may_be_null })
    });
    let first = ways.next().ok_or_else(|| PyValueError::new_err("no chunks"))??;
    let mut is_same = true;
    for way in ways {
        is_same &= way? == first;
    }
    match is_same && (1..=1024).contains(&first.is_list.len()) {
        true => Ok(first),
        false => Err(PyValueError::new_err("chunks of one page differ in their nesting")),
    }
}
