//! Decodes pages without parsing their messages, if these have the same meaning as another page's message.
//!
//! Messages that one writer produces for pages of one column differ in numbers of items, and in the symbols or the
//! value that they contain. All other bytes are compared.
//!
//! ```text
//! mini-block   0x0a length { ... 0x28 dictionary items ... 0x48 items ... }    numbers and symbols of strings left out
//! constant     anything, with a value of one length left out
//! ```

use crate::buffer::OwnedBuffer;
use crate::container::columns::Wire;
use crate::decode::codec::{Codec, Program, Scheme};
use crate::decode::dictionary::decode_items;
use crate::decode::general::{Inflater, ZSTD_MAGIC};
use crate::error::invalid;
use crate::levels::layers::LayerOut;
use crate::levels::leaf::LeafParts;
use crate::miniblock::page::Page;
use crate::miniblock::whole::Whole;
use crate::room::{vec_with_capacity, Copied, GatherResults, Grow, Roomy};
use crate::sink::{bytes_of, Offsets};
use crate::take::join::{parts_of, Part};
use pyo3::prelude::*;
use std::ops::Range;
use std::sync::Arc;

/// Limit for the decoded size of a page with a compressed dictionary, as a multiple of its file's size.
const GROWTH_MAX: u64 = 64;
const NUM_DICTIONARY_ITEMS: u8 = 0x28;
const NUM_ITEMS: u8 = 0x48;

/// Limits for a page of a known file.
#[derive(Clone, Copy)]
pub struct Limits {
    /// Of rows and of items.
    pub rows_max: u64,
    /// Of decoded values.
    pub bytes_max: u64,
}

impl Limits {
    /// Whether values of this size stay small.
    pub fn allow(self, value_bytes: u64, num_values: u64) -> bool {
        value_bytes.saturating_mul(num_values) <= self.bytes_max
    }

    fn allow_bits(self, bits: u64, num_values: u64) -> bool {
        bits.saturating_mul(num_values) / 8 <= self.bytes_max
    }
}

type MiniBlockIn = (Vec<u8>, Vec<u8>, bool, bool, Option<Vec<u8>>);

/// A known page as described by Python: its message, which bytes of it may differ, its number of buffers, and the
/// parameters for decoding.
///
/// mini-block  the program before and after those bytes, whether chunks are wide, whether there are lists, dictionary
/// constant    the kind of the values: their bits, 0 and -1 for strings with narrow and wide offsets; whether all are
///             null
#[derive(FromPyObject)]
pub struct PageIn<'py>(
    Bound<'py, pyo3::types::PyBytes>,
    Option<(usize, usize)>,
    usize,
    Option<MiniBlockIn>,
    Option<(i64, bool)>,
);

pub struct KnownPage {
    around: Around,
    num_buffers: usize,
    /// The parts of its value buffers.
    pub parts: Vec<Part>,
    content: Content,
}

enum Content {
    MiniBlock(Box<MiniBlock>),
    Constant { kind: ConstantKind, is_null: bool },
}

struct MiniBlock {
    program: (Vec<u8>, Vec<u8>),
    /// The parsed program, if no part of it is in the message.
    page: Option<Page>,
    wide: bool,
    has_lists: bool,
    dictionary: Option<Arc<Codec>>,
}

#[derive(Clone, Copy)]
enum ConstantKind {
    Bit,
    Bytes(usize),
    Narrow,
    Wide,
}

/// The fixed parts of a page's message.
struct Around {
    segments: Vec<Vec<u8>>,
    /// The part in which bytes may differ, and their position and length.
    hole: Option<(usize, usize, usize)>,
    is_mini_block: bool,
}

/// The variable parts of a message that matches a known message.
struct Found<'a> {
    hole: &'a [u8],
    num_items: u64,
    num_dictionary_items: u64,
}

/// A message split at its numbers of items.
struct Segments<'a> {
    /// Each with its position in the message.
    parts: Vec<(usize, &'a [u8])>,
    num_items: u64,
    num_dictionary_items: u64,
}

impl<'a> Segments<'a> {
    fn of_mini_block(layout: &'a [u8]) -> Option<Self> {
        let fields = Wire(layout).only(0x0a)?;
        let (mut wire, mut start) = (Wire(fields), layout.len() - fields.len());
        let mut found = Segments { parts: Vec::with_capacity(3), num_items: 0, num_dictionary_items: 0 };
        let mut seen = 0u64;
        while !wire.0.is_empty() {
            let tag = wire.tag()?;
            if tag >= 0x80 || (seen & 1 << (tag >> 3) != 0 && matches!(tag, NUM_ITEMS | NUM_DICTIONARY_ITEMS)) {
                return None;
            }
            seen |= 1 << (tag >> 3);
            let value_at = layout.len() - wire.0.len();
            match tag {
                NUM_ITEMS | NUM_DICTIONARY_ITEMS => {
                    let number = wire.varint()?;
                    *(if tag == NUM_ITEMS { &mut found.num_items } else { &mut found.num_dictionary_items }) = number;
                    found.parts.try_push((start, &layout[start..value_at])).ok()?;
                    start = layout.len() - wire.0.len();
                }
                tag if tag & 7 == 0 => drop(wire.varint()?),
                tag if tag & 7 == 2 => drop(wire.bytes()?),
                _ => return None,
            }
        }
        found.parts.try_push((start, &layout[start..])).ok()?;
        Some(found)
    }

    fn of_constant(layout: &'a [u8]) -> Self {
        Segments { parts: vec![(0, layout)], num_items: 0, num_dictionary_items: 0 }
    }
}

impl Around {
    fn new(layout: &[u8], hole: Option<(usize, usize)>, is_mini_block: bool) -> Option<Self> {
        let found = if is_mini_block { Segments::of_mini_block(layout)? } else { Segments::of_constant(layout) };
        let hole = match hole {
            None => None,
            Some((start, end)) => {
                let inside = |&(at, part): &(usize, &[u8])| at <= start && start <= end && end <= at + part.len();
                let segment = found.parts.iter().position(inside)?;
                Some((segment, start - found.parts[segment].0, end - start))
            }
        };
        let segments = found.parts.iter().map(|(_, part)| part.try_to_vec()).try_vec_of().ok()?;
        Some(Around { segments, hole, is_mini_block })
    }

    fn find<'a>(&self, layout: &'a [u8]) -> Option<Found<'a>> {
        let found = if self.is_mini_block { Segments::of_mini_block(layout)? } else { Segments::of_constant(layout) };
        if found.parts.len() != self.segments.len() {
            return None;
        }
        let mut hole: &[u8] = &[];
        for (at, ((_, part), known)) in found.parts.iter().zip(&self.segments).enumerate() {
            match self.hole {
                Some((segment, start, length)) if segment == at => {
                    let end = start + length;
                    if part.len() != known.len() || part[..start] != known[..start] || part[end..] != known[end..] {
                        return None;
                    }
                    hole = &part[start..end];
                }
                _ if *part != &known[..] => return None,
                _ => {}
            }
        }
        Some(Found { hole, num_items: found.num_items, num_dictionary_items: found.num_dictionary_items })
    }
}

fn codec_of(program: &[u8]) -> PyResult<Codec> {
    let mut program = Program::new(program);
    let codec = program.codec()?;
    program.finish()?;
    Ok(codec)
}

impl KnownPage {
    pub fn new(page: PageIn<'_>) -> PyResult<Self> {
        let PageIn(layout, hole, num_buffers, mini_block, constant) = page;
        let layout = layout.as_bytes();
        let (content, parts) = match (mini_block, constant) {
            (Some((before, behind, wide, has_lists, dictionary)), None) => {
                let (start, end) = hole.unwrap_or((0, 0));
                let own = layout.get(start..end).ok_or_else(|| invalid("symbols outside of the message"))?;
                let page = Page::parse(&joined([&before[..], own, &behind])?)?;
                let dictionary = dictionary.map(|program| codec_of(&program)).transpose()?.map(Arc::new);
                let expected = 2 + usize::from(dictionary.is_some()) + usize::from(has_lists);
                if num_buffers != expected || page.rep.is_some() != has_lists {
                    return Err(invalid(format!("a mini-block page with {num_buffers} buffers")));
                }
                let parts = parts_of(&page)?;
                let page = hole.is_none().then_some(page);
                let page = MiniBlock { program: (before, behind), page, wide, has_lists, dictionary };
                (Content::MiniBlock(Box::new(page)), parts)
            }
            (None, Some((kind, is_null))) => {
                let (kind, parts) = match kind {
                    -1 => (ConstantKind::Wide, vec![Part::Wide, Part::Bytes]),
                    0 => (ConstantKind::Narrow, vec![Part::Narrow, Part::Bytes]),
                    1 => (ConstantKind::Bit, vec![Part::Bits(1)]),
                    bits if bits > 0 && bits % 8 == 0 => (ConstantKind::Bytes(bits as usize / 8), vec![Part::Bytes]),
                    bits => return Err(invalid(format!("constants of {bits} bits"))),
                };
                (Content::Constant { kind, is_null }, parts)
            }
            _ => return Err(invalid("a page is a mini-block or a constant")),
        };
        let around = Around::new(layout, hole, matches!(content, Content::MiniBlock(_)));
        let around = around.ok_or_else(|| invalid("a message that is not in the form of writers"))?;
        Ok(KnownPage { around, num_buffers, parts, content })
    }

    /// All rows of a page, if its message matches and all checks pass; `buffers` are ranges of `file`.
    pub fn decode(
        &self,
        layout: &[u8],
        num_rows: u64,
        buffers: &[Range<usize>],
        file: &[u8],
        limits: Limits,
    ) -> Option<LeafParts> {
        if buffers.len() != self.num_buffers {
            return None;
        }
        let found = self.around.find(layout)?;
        match &self.content {
            Content::MiniBlock(page) => page.decode(&found, num_rows, buffers, file, limits),
            Content::Constant { kind, is_null } => {
                let num_rows = usize::try_from(num_rows).ok()?;
                if *is_null {
                    return nulls(*kind, num_rows);
                }
                match buffers.first() {
                    None => repeat(*kind, found.hole, num_rows),
                    Some(place) => repeat_scalar(*kind, file.get(place.start..place.end)?, num_rows, limits),
                }
            }
        }
    }
}

impl MiniBlock {
    fn decode(
        &self,
        found: &Found<'_>,
        num_rows: u64,
        buffers: &[Range<usize>],
        file: &[u8],
        limits: Limits,
    ) -> Option<LeafParts> {
        let fits = found.num_items <= limits.rows_max
            && found.num_dictionary_items <= limits.rows_max
            && (self.has_lists || found.num_items == num_rows);
        if !fits {
            return None;
        }
        let own;
        let page = match &self.page {
            Some(page) => page,
            None => {
                own = Page::parse(&joined([&self.program.0[..], found.hole, &self.program.1]).ok()?).ok()?;
                &own
            }
        };
        let mut places = buffers.iter();
        let mut next = || places.next().and_then(|place| file.get(place.start..place.end));
        let (words, chunks) = (next()?, next()?);
        let items = if self.dictionary.is_some() { next()? } else { &[] };
        if !self.fits(page, items, found, file.len(), limits) {
            return None;
        }
        let repetition = if self.has_lists { next()? } else { &[] };
        let dictionary = self.dictionary.clone(); // room: a reference
        let whole = Whole {
            wide: self.wide,
            num_items: found.num_items as i64,
            num_rows: self.has_lists.then_some(num_rows),
            dictionary: dictionary.map(|codec| (codec, found.num_dictionary_items as usize)),
            chunks_bytes: chunks.len() as i64,
            words,
            chunks,
            items,
            repetition,
        };
        whole.decode(page).ok()
    }

    /// Whether the values stay small; large ones are left to callers that decode in pieces.
    ///
    /// A compressed dictionary is measured by the size in its frame, another one by its longest item.
    fn fits(&self, page: &Page, items: &[u8], found: &Found<'_>, file_bytes: usize, limits: Limits) -> bool {
        let num_items = found.num_items;
        match self.dictionary.as_deref() {
            Some(Codec::General { scheme, .. }) => {
                let announced = match scheme {
                    Scheme::Lz4 => items.first_chunk().map(|head| u64::from(u32::from_le_bytes(*head))),
                    Scheme::Zstd if items.starts_with(&ZSTD_MAGIC) => None,
                    Scheme::Zstd => items.first_chunk().map(|head| u64::from_le_bytes(*head)),
                };
                let bytes_max = (file_bytes as u64).saturating_mul(GROWTH_MAX);
                announced.is_some_and(|bytes| bytes.saturating_mul(num_items) <= bytes_max)
            }
            Some(Codec::Variable { wide }) if !limits.allow(items.len() as u64, num_items) => {
                let longest = longest(items, found.num_dictionary_items, *wide);
                longest.is_some_and(|bytes| limits.allow(bytes, num_items))
            }
            Some(codec) => codec.bits().is_none_or(|bits| limits.allow(bits.div_ceil(8) as u64, num_items)),
            None => fixed_bits(&page.values).is_none_or(|bits| limits.allow_bits(bits, num_items)),
        }
    }
}

/// Bits of each value; None where values differ.
fn fixed_bits(codec: &Codec) -> Option<u64> {
    match codec {
        Codec::FixedSizeList { items, values, .. } => Some(fixed_bits(values)?.saturating_mul(*items as u64)),
        Codec::General { values, .. } => fixed_bits(values),
        _ => codec.bits().map(|bits| bits as u64),
    }
}

/// The bytes of the longest item of a dictionary of variable width; None if it is damaged.
fn longest(items: &[u8], num_items: u64, wide: bool) -> Option<u64> {
    let num_items = usize::try_from(num_items).ok()?;
    let parts = decode_items(&Codec::Variable { wide }, items, num_items, &mut Inflater::default()).ok()?;
    let offsets = parts.first()?.bytes();
    let width = if wide { 8 } else { 4 };
    let number = |bytes: &[u8]| bytes.iter().rev().fold(0u64, |value, byte| value << 8 | u64::from(*byte));
    let ends = || offsets.chunks_exact(width).map(number);
    ends().zip(ends().skip(1)).map(|(start, end)| end.saturating_sub(start)).max()
}

/// Concatenate parts.
fn joined(parts: [&[u8]; 3]) -> Roomy<Vec<u8>> {
    let mut all = Vec::new();
    parts.iter().try_for_each(|part| all.try_append(part))?;
    Ok(all)
}

/// A leaf without enclosing layers.
fn plain_leaf(num_rows: usize, values: Vec<OwnedBuffer>) -> LeafParts {
    let layer = LayerOut { length: num_rows, validity: None, null_count: 0, offsets: None };
    (num_rows, values.into_iter().map(Some).collect(), vec![layer]) // room: one buffer or two
}

fn zeros(num_bytes: usize) -> Option<Vec<u8>> {
    crate::room::zeros(num_bytes).ok()
}

/// Rows without a value.
fn nulls(kind: ConstantKind, num_rows: usize) -> Option<LeafParts> {
    let values = match kind {
        ConstantKind::Bit => vec![zeros(num_rows.div_ceil(8))?.into()],
        ConstantKind::Bytes(width) => vec![zeros(bytes_of(num_rows, width * 8).ok()?)?.into()],
        ConstantKind::Narrow => vec![ends::<i32>(0, num_rows, Offsets::Narrow)?, Vec::<u8>::new().into()],
        ConstantKind::Wide => vec![ends::<i64>(0, num_rows, Offsets::Wide)?, Vec::<u8>::new().into()],
    };
    let mut leaf = plain_leaf(num_rows, values);
    leaf.2[0].validity = Some(zeros(num_rows.div_ceil(8))?);
    leaf.2[0].null_count = num_rows;
    Some(leaf)
}

/// Offsets of values of one length.
fn ends<O: TryFrom<usize> + Clone>(length: usize, count: usize, wrap: fn(Vec<O>) -> Offsets) -> Option<OwnedBuffer> {
    let mut offsets = vec_with_capacity(count + 1).ok()?;
    for at in 0..=count {
        offsets.push(O::try_from(at.checked_mul(length)?).ok()?); // room: reserved
    }
    Some(wrap(offsets).into())
}

fn copies(value: &[u8], count: usize) -> Option<Vec<u8>> {
    let mut bytes = vec_with_capacity(value.len().checked_mul(count)?).ok()?;
    for _ in 0..count {
        bytes.extend_from_slice(value); // room: reserved
    }
    Some(bytes)
}

/// Repeat a value from the message for each row.
fn repeat(kind: ConstantKind, value: &[u8], num_rows: usize) -> Option<LeafParts> {
    let values = match kind {
        ConstantKind::Bit if value.len() == 1 => {
            let fill = if value[0] != 0 { 0xff } else { 0 };
            copies(&[fill], num_rows.div_ceil(8))?
        }
        ConstantKind::Bytes(width) if value.len() == width => copies(value, num_rows)?,
        _ => return None,
    };
    Some(plain_leaf(num_rows, vec![values.into()]))
}

/// Repeat a value from a buffer: the number of its parts, the length of each (all u32), and the parts.
fn repeat_scalar(kind: ConstantKind, scalar: &[u8], num_rows: usize, limits: Limits) -> Option<LeafParts> {
    let number = |at: usize| Some(u32::from_le_bytes(scalar.get(at..at + 4)?.try_into().ok()?) as usize);
    match number(0)? {
        1 => {
            let (length, value) = (number(4)?, scalar.get(8..)?);
            (value.len() == length).then(|| repeat(kind, value, num_rows))?
        }
        2 => {
            let (first, second) = (number(4)?, number(8)?);
            let (offsets, data) = scalar[12..].split_at_checked(first)?;
            if data.len() != second {
                return None;
            }
            let place = |at: usize, width: usize| {
                let bytes = offsets.get(at * width..(at + 1) * width)?;
                let mut wide = [0; 8];
                wide[..width].copy_from_slice(bytes);
                usize::try_from(u64::from_le_bytes(wide)).ok()
            };
            let width = match kind {
                ConstantKind::Narrow => 4,
                ConstantKind::Wide => 8,
                _ => return None,
            };
            let value = data.get(place(0, width)?..place(1, width)?)?;
            if offsets.len() != 2 * width || !limits.allow(value.len() as u64, num_rows as u64) {
                return None;
            }
            let ends = match kind {
                ConstantKind::Narrow => ends::<i32>(value.len(), num_rows, Offsets::Narrow)?,
                _ => ends::<i64>(value.len(), num_rows, Offsets::Wide)?,
            };
            Some(plain_leaf(num_rows, vec![ends, copies(value, num_rows)?.into()]))
        }
        _ => None,
    }
}
