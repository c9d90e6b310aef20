//! Decodes pages of version 2.0 without parsing their messages, as in `known_page.rs`.
//!
//! Messages of arrays nest. Messages of one kind differ in these numbers, and in the lengths of the enclosing messages:
//!
//! ```text
//! binary       0x32 { indices, bytes, 0x18 null adjustment }
//! dictionary   0x3a { indices, 0x12 items: binary, 0x18 number of items }
//! list         0x22 { offsets, 0x10 null adjustment, 0x18 number of items }
//! ```

use crate::container::columns::{PageEntry, Wire};
use crate::error::invalid;
use crate::files::known_page::Limits;
use crate::levels::leaf::LeafParts;
use crate::room::{vec_with_capacity, Copied, Gather, Grow};
use crate::sink::bytes_of;
use crate::take::array_page::Around;
use crate::take::join::Part;
use crate::v2_0::ends::Coding;
use crate::v2_0::whole::{ArrayRows, Values};
use pyo3::prelude::*;
use pyo3::types::PyBytes;

const LIST: u8 = 0x22;
const BINARY: u8 = 0x32;
const DICTIONARY: u8 = 0x3a;
const ITEMS: u8 = 0x12;
const END: u8 = 0x07; // no field has this tag
const END_BITS: usize = 64;
const DICTIONARY_ITEMS_MAX: u64 = 255;

/// A known page as described by Python: its message, its number of buffers, and which of them are the bitmap and the
/// parts of the values; bits of a value, whether there is a bitmap, the number of absent bitmaps of a leaf, the kind of
/// the values, and the nodes around them. For lists, the message of their ends, the number of buffers of that page,
/// which of them has the ends, and whether Arrow's offsets are wide.
#[derive(FromPyObject)]
pub struct ArrayIn<'py>(
    Bound<'py, PyBytes>,
    usize,
    Vec<usize>,
    (usize, bool, usize),
    u8,
    Bound<'py, PyBytes>,
    Option<(Bound<'py, PyBytes>, usize, usize, bool)>,
);

#[derive(Clone, Copy)]
enum Kind {
    Fixed(usize),
    Strings { wide: bool },
    Codes,
}

pub struct KnownArray {
    message: Outline,
    num_buffers: usize,
    places: Vec<usize>,
    kind: Kind,
    has_bitmap: bool,
    num_bitmaps: usize,
    around: Vec<Around>,
    lists: Option<Lists>,
    /// The parts of its value buffers.
    pub parts: Vec<Part>,
}

struct Lists {
    message: Outline,
    num_buffers: usize,
    place: usize,
    wide: bool,
}

/// A message without the numbers that may differ, and without the lengths that depend on them.
struct Outline(Vec<u8>);

#[derive(Default)]
struct Numbers {
    adjustment: u64,
    num_items: u64,
}

impl Outline {
    fn of(message: &[u8]) -> Option<(Vec<u8>, Numbers)> {
        let (mut out, mut numbers) = (vec_with_capacity(message.len() + 2).ok()?, Numbers::default());
        add(message, false, &mut numbers, &mut out)?;
        Some((out, numbers))
    }

    /// The numbers of a message, if the rest of it is equal.
    fn numbers_of(&self, message: &[u8]) -> Option<Numbers> {
        let (found, numbers) = Outline::of(message)?;
        (found == self.0).then_some(numbers)
    }
}

fn add(message: &[u8], are_items: bool, numbers: &mut Numbers, out: &mut Vec<u8>) -> Option<()> {
    let mut wire = Wire(message);
    let kind = (wire.tag()? & 0x87 == 2).then_some(message[0])?;
    let fields = wire.bytes()?;
    out.try_push(kind).ok()?;
    let (mut rest, mut seen) = (Wire(fields), 0u16);
    while !rest.0.is_empty() {
        let start = rest.0;
        let tag = rest.tag().filter(|tag| *tag < 0x80)?;
        out.try_push(tag).ok()?;
        let number = match (kind, tag) {
            (BINARY, 0x18) | (LIST, 0x10) => Some(&mut numbers.adjustment),
            (DICTIONARY, 0x18) | (LIST, 0x18) => Some(&mut numbers.num_items),
            _ => None,
        };
        let has_items = (kind, tag) == (DICTIONARY, ITEMS);
        let bit = 1 << (tag >> 3);
        if (number.is_some() || has_items) && seen & bit != 0 {
            return None;
        }
        seen |= bit;
        match (number, tag & 7) {
            (Some(number), 0) => *number = rest.varint()?,
            _ if has_items && are_items => return None,
            _ if has_items => add(rest.bytes()?, true, numbers, out)?,
            (None, 0 | 2) => {
                match tag & 7 {
                    0 => drop(rest.varint()?),
                    _ => drop(rest.bytes()?),
                }
                out.try_append(&start[1..start.len() - rest.0.len()]).ok()?;
            }
            _ => return None,
        }
    }
    out.try_push(END).ok()?;
    wire.0.is_empty().then_some(())
}

impl KnownArray {
    pub fn new(page: ArrayIn<'_>) -> PyResult<Self> {
        let ArrayIn(message, num_buffers, places, (row_bits, has_bitmap, num_bitmaps), kind, around, lists) = page;
        let (kind, values) = match kind {
            0 if row_bits == 1 => (Kind::Fixed(1), vec![Part::Bits(1)]),
            0 if row_bits > 0 && row_bits.is_multiple_of(8) => (Kind::Fixed(row_bits), vec![Part::Bytes]),
            1 => (Kind::Strings { wide: false }, vec![Part::Narrow, Part::Bytes]),
            2 => (Kind::Strings { wide: true }, vec![Part::Wide, Part::Bytes]),
            3 => (Kind::Codes, vec![Part::Narrow, Part::Bytes]),
            _ => return Err(invalid(format!("values of kind {kind}, of {row_bits} bits"))),
        };
        let num_places = match kind {
            Kind::Fixed(_) => 1,
            Kind::Strings { .. } => 2,
            Kind::Codes => 3,
        };
        let around = Around::parse(around.as_bytes())?;
        let num_lists = around.iter().filter(|around| **around != Around::Struct).count();
        if places.len() != num_places + usize::from(has_bitmap) || num_lists != usize::from(lists.is_some()) {
            return Err(invalid("parts of a page that do not fit together"));
        }
        let outline = |message: &Bound<'_, PyBytes>| match Outline::of(message.as_bytes()) {
            Some((outline, _)) => Ok(Outline(outline)),
            None => Err(invalid("a message that is not in the form of writers")),
        };
        let lists = match lists {
            None => None,
            Some((message, num_buffers, place, wide)) => {
                Some(Lists { message: outline(&message)?, num_buffers, place, wide })
            }
        };
        let message = outline(&message)?;
        let parts = (0..num_bitmaps).map(|_| Part::Bytes).chain(values).try_vec()?; // there are no bitmaps
        Ok(KnownArray { message, num_buffers, places, kind, has_bitmap, num_bitmaps, around, lists, parts })
    }

    /// All rows of a column with these pages; for lists, the page of the ends comes first.
    pub fn decode(&self, pages: &[PageEntry<'_>], file: &[u8], limits: Limits) -> Option<LeafParts> {
        let mut parts = Vec::with_capacity(4);
        let (page, num_rows, lists) = match (&self.lists, pages) {
            (None, [page]) => (page, page.num_rows, None),
            (Some(lists), [above, page]) => {
                let coding = lists.read(above, page.num_rows, file, &mut parts)?;
                (page, above.num_rows, Some((coding, 0)))
            }
            _ => return None,
        };
        let numbers = self.message.numbers_of(page.layout)?;
        if page.sizes.len() != self.num_buffers {
            return None;
        }
        let num_items = usize::try_from(page.num_rows).ok()?;
        let mut places = self.places.iter();
        let mut next = |count: usize, bits: usize| part(page, *places.next()?, count, bits, file);
        if self.has_bitmap {
            parts.try_push(next(num_items, 1)?).ok()?;
        }
        let end_max = numbers.adjustment.saturating_sub(1);
        let values = match self.kind {
            Kind::Fixed(bits) => {
                parts.try_push(next(num_items, bits)?).ok()?;
                Values::Fixed { bits }
            }
            Kind::Strings { wide } => {
                if num_items > 0 && numbers.adjustment == 0 {
                    return None;
                }
                parts.try_push(next(num_items, END_BITS)?).ok()?;
                parts.try_push(next(usize::try_from(end_max).ok()?, 8)?).ok()?;
                Values::Strings { coding: Coding::new((numbers.adjustment, end_max, wide)) }
            }
            Kind::Codes => {
                let fits = numbers.num_items <= DICTIONARY_ITEMS_MAX;
                if !fits || (numbers.num_items > 0 && numbers.adjustment == 0) {
                    return None;
                }
                let in_dictionary = numbers.num_items as usize;
                parts.try_push(next(num_items, 8)?).ok()?;
                let ends = next(in_dictionary, END_BITS)?;
                let allowed = |bytes| limits.allow(bytes, page.num_rows);
                if !allowed(end_max) && !allowed(longest(ends, numbers.adjustment)) {
                    return None;
                }
                parts.try_push(ends).ok()?;
                parts.try_push(next(usize::try_from(end_max).ok()?, 8)?).ok()?;
                let coding = Coding::new((numbers.adjustment, end_max, false));
                Values::Codes { num_items: in_dictionary, coding }
            }
        };
        let rows = ArrayRows {
            num_rows: usize::try_from(num_rows).ok()?,
            around: self.around.try_to_vec().ok()?,
            lists,
            has_bitmap: self.has_bitmap,
            num_bitmaps: self.num_bitmaps,
            values,
        };
        rows.decode(&parts).ok().filter(|leaf| leaf.0 == num_items) // every item belongs to a list
    }
}

impl Lists {
    /// Encoding of the ends of lists, which become the first of `parts`.
    fn read<'a>(
        &self,
        page: &PageEntry<'_>,
        num_items: u64,
        file: &'a [u8],
        parts: &mut Vec<&'a [u8]>,
    ) -> Option<Coding> {
        let numbers = self.message.numbers_of(page.layout)?;
        let fits = page.sizes.len() == self.num_buffers
            && numbers.num_items == num_items
            && num_items > 0
            && numbers.adjustment > num_items;
        if !fits {
            return None;
        }
        parts.try_push(part(page, self.place, usize::try_from(page.num_rows).ok()?, END_BITS, file)?).ok()?;
        Some(Coding::new((numbers.adjustment, num_items, self.wide)))
    }
}

/// The bytes of the longest item between ends; those of nulls are larger by the adjustment.
fn longest(ends: &[u8], adjustment: u64) -> u64 {
    let end = |stored: u64| stored.checked_sub(adjustment).unwrap_or(stored);
    let ends = || ends.as_chunks::<8>().0.iter().map(|bytes| end(u64::from_le_bytes(*bytes)));
    let starts = std::iter::once(0).chain(ends());
    starts.zip(ends()).map(|(start, end)| end.saturating_sub(start)).max().unwrap_or(0)
}

/// The first `count` values of a page's buffer.
fn part<'a>(page: &PageEntry<'_>, place: usize, count: usize, bits: usize, file: &'a [u8]) -> Option<&'a [u8]> {
    let offset = usize::try_from(*page.offsets.get(place)?).ok()?;
    let size = usize::try_from(*page.sizes.get(place)?).ok()?;
    file.get(offset..)?.get(..size)?.get(..bytes_of(count, bits).ok()?)
}
