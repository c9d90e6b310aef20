//! Repetition and definition levels: what the layers of a page mean, and how levels become validity and offsets.
//!
//! ```text
//! layers    count u8, then per layer, innermost first: RepDefLayer u8, plus 128 where offsets have 64 bits
//!
//!           1 ALL_VALID_ITEM   no level          4 NULLABLE_LIST        null
//!           2 ALL_VALID_LIST   no level          5 EMPTYABLE_LIST       empty
//!           3 NULLABLE_ITEM    null              6 NULL_AND_EMPTY_LIST  null, empty
//! ```
//!
//! Definition levels are numbered from 1 in this order; 0 is a valid item. The layers fall into *groups*: the item
//! layers before the first list, then each list with the item layers that follow it. An entry owns a slot in a group
//! exactly when its definition level is not above the group's limit, so within a group every layer has equally many
//! slots. Lists are what leads from one group to the next: they turn the entries of the inner group into fewer, outer
//! entries (one per list, null list or missing list).

use crate::buffer::OwnedBuffer;
use crate::damaged;
use crate::error::Checked;
use pyo3::prelude::*;
use pyo3::types::PyList;

/// Added to a layer's byte when the Arrow list has 64-bit offsets.
const WIDE_OFFSETS: u8 = 128;

/// One layer with the definition levels it owns.
#[derive(Clone, Copy)]
enum Layer {
    /// `null` is false where every slot is valid in this page.
    Item {
        null: bool,
    },
    List {
        null: bool,
        empty: bool,
        wide: bool,
    },
}

impl Layer {
    fn parse(byte: u8) -> Checked<Self> {
        let wide = byte & WIDE_OFFSETS != 0;
        Ok(match byte & !WIDE_OFFSETS {
            1 => Layer::Item { null: false },
            3 => Layer::Item { null: true },
            2 => Layer::List { null: false, empty: false, wide },
            4 => Layer::List { null: true, empty: false, wide },
            5 => Layer::List { null: false, empty: true, wide },
            6 => Layer::List { null: true, empty: true, wide },
            other => return damaged!("expected a layer kind of 1 to 6, found {other}"),
        })
    }

    fn own_levels(self) -> u16 {
        match self {
            Layer::Item { null } => null as u16,
            Layer::List { null, empty, .. } => null as u16 + empty as u16,
        }
    }
}

/// The layers of a page, innermost first.
pub struct Layers {
    layers: Vec<Layer>,
    max_rep: u16,
    max_def: u16,
    max_visible: u16,
}

impl Layers {
    /// Number of list layers: the repetition level with which every row begins.
    pub fn max_rep(&self) -> u16 {
        self.max_rep
    }

    /// The outermost definition level.
    pub fn max_def(&self) -> u16 {
        self.max_def
    }

    /// The last definition level that owns an item.
    pub fn max_visible(&self) -> u16 {
        self.max_visible
    }

    /// The last level with a slot in a group of which the layers from `index` on are still to come.
    fn group_limit(&self, index: usize, consumed: u16) -> u16 {
        let items = self.layers[index..].iter().take_while(|layer| matches!(layer, Layer::Item { .. }));
        consumed + items.map(|layer| layer.own_levels()).sum::<u16>()
    }
}

/// Read `layers` from the front of a program; returns also how many bytes they take.
pub fn parse_layers(bytes: &[u8]) -> Checked<(Layers, usize)> {
    let Some((&count, rest)) = bytes.split_first() else {
        return damaged!("expected a count of layers, found the end of the program");
    };
    let Some(kinds) = rest.get(..count as usize) else {
        return damaged!("expected {count} layers, found {} bytes", rest.len());
    };
    let layers = kinds.iter().map(|&byte| Layer::parse(byte)).collect::<Checked<Vec<_>>>()?;
    let (mut max_rep, mut max_def, mut max_visible) = (0, 0, 0);
    for layer in &layers {
        max_rep += matches!(layer, Layer::List { .. }) as u16;
        max_def += layer.own_levels();
        if max_rep == 0 {
            max_visible = max_def;
        }
    }
    Ok((Layers { layers, max_rep, max_def, max_visible }, 1 + kinds.len()))
}

/// List offsets as wide as the Arrow type wants them.
#[derive(Debug, PartialEq)]
pub enum Offsets {
    Narrow(Vec<i32>),
    Wide(Vec<i64>),
}

/// One rebuilt layer: `length` slots, a bitmap (LSB first) when any of them is null, offsets when it is a list.
#[derive(Debug, PartialEq)]
pub struct LayerOut {
    pub length: usize,
    pub validity: Option<Vec<u8>>,
    pub null_count: usize,
    pub offsets: Option<Offsets>,
}

/// Rebuild every layer from the levels of whole rows.
///
/// `rep` and `def` have one entry per level; either may be missing. The levels must hold exactly `num_items` visible
/// items and `num_rows` rows. The answer is in the order of `layers`, innermost first.
pub fn unravel(
    layers: &Layers,
    rep: Option<Vec<u16>>,
    def: Option<Vec<u16>>,
    num_items: usize,
    num_rows: usize,
) -> Checked<Vec<LayerOut>> {
    let all_valid = check_levels(layers, rep.as_deref(), def.as_deref(), num_items, num_rows)?;
    let def = if all_valid { None } else { def };
    let mut state = Unravelling { rep: rep.unwrap_or_default(), def, members: None, length: num_items, consumed: 0 };
    let mut lists_left = layers.max_rep;
    let mut out = Vec::with_capacity(layers.layers.len());
    for (index, &layer) in layers.layers.iter().enumerate() {
        let top = state.consumed + layer.own_levels();
        out.push(match layer {
            Layer::Item { null } => state.item(null, layers.group_limit(index, state.consumed)),
            Layer::List { empty, wide, .. } => {
                lists_left -= 1;
                let limit = layers.group_limit(index + 1, top);
                let list = ListLevels { empty: if empty { top } else { 0 }, limit, outermost: lists_left == 0 };
                if wide {
                    state.list(&list, Offsets::Wide)?
                } else {
                    state.list(&list, Offsets::Narrow)?
                }
            }
        });
        state.consumed = top;
    }
    Ok(out)
}

/// Compare the levels with the numbers of their page. True when no definition level is above 0.
fn check_levels(
    layers: &Layers,
    rep: Option<&[u16]>,
    def: Option<&[u16]>,
    num_items: usize,
    num_rows: usize,
) -> Checked<bool> {
    let lists = layers.max_rep > 0;
    let num_levels = match (rep, def) {
        (Some(rep), Some(def)) if rep.len() != def.len() => {
            return damaged!("{} repetition levels but {} definition levels", rep.len(), def.len());
        }
        (Some(levels), _) | (None, Some(levels)) => levels.len(),
        (None, None) => num_items,
    };
    if lists && rep.is_none() && (num_levels > 0 || num_rows > 0) {
        return damaged!("lists without repetition levels ({num_levels} levels, {num_rows} rows)");
    }
    let highest_rep = rep.map_or(0, highest);
    if highest_rep > layers.max_rep {
        return damaged!("repetition level {highest_rep} is above {}, the number of lists", layers.max_rep);
    }
    let highest_def = def.map_or(0, highest);
    if highest_def > layers.max_def {
        return damaged!("definition level {highest_def} is above {}, the last of the layers", layers.max_def);
    }
    let rows = match rep {
        Some(rep) if lists => {
            if rep.first().is_some_and(|&first| first != layers.max_rep) {
                return damaged!("the first level does not begin a row (repetition level {})", rep[0]);
            }
            rep.iter().filter(|&&level| level == layers.max_rep).count()
        }
        _ => num_levels,
    };
    if rows != num_rows {
        return damaged!("levels hold {rows} rows, expected {num_rows}");
    }
    let items = match def {
        Some(def) if layers.max_visible < layers.max_def => count_visible(def, layers.max_visible),
        _ => num_levels,
    };
    if items != num_items {
        return damaged!("levels hold {items} items, expected {num_items}");
    }
    Ok(highest_def == 0)
}

fn highest(levels: &[u16]) -> u16 {
    levels.iter().copied().max().unwrap_or(0)
}

fn count_visible(def: &[u16], max_visible: u16) -> usize {
    def.iter().filter(|&&level| level <= max_visible).count()
}

/// What one list layer needs to know of its numbering.
struct ListLevels {
    /// The level of an empty list, 0 where there is none (0 never means empty: it is a valid item).
    empty: u16,
    /// The last level with a slot in this layer, see `Layers::group_limit`.
    limit: u16,
    /// No list lies around this one, so its entries need not be kept.
    outermost: bool,
}

/// The state between two layers, innermost layers done.
struct Unravelling {
    /// Remaining entries: repetition levels already lowered by the lists done; empty without lists.
    rep: Vec<u16>,
    /// Definition levels of the remaining entries; `None` when all of them are 0.
    def: Option<Vec<u16>>,
    /// Those of `def` that own a slot in the current group, once known.
    members: Option<Vec<u16>>,
    /// Slots of the current group.
    length: usize,
    /// Definition levels used up by the layers done.
    consumed: u16,
}

impl Unravelling {
    fn item(&mut self, null: bool, limit: u16) -> LayerOut {
        let all_valid = LayerOut { length: self.length, validity: None, null_count: 0, offsets: None };
        let Some(def) = self.def.as_deref().filter(|_| null) else {
            return all_valid;
        };
        let members = if def.len() == self.length {
            def
        } else {
            self.members.get_or_insert_with(|| slots_of(def, limit, self.length))
        };
        let consumed = self.consumed;
        let (validity, null_count) = bitmap(members, |level| level <= consumed);
        LayerOut { validity, null_count, ..all_valid }
    }

    /// Entries with a repetition level of 0 continue a list; all others begin one, or stand for a list that is null,
    /// empty or, above `limit`, missing altogether. The latter all go on to the outer layers.
    fn list<T: Offset>(&mut self, list: &ListLevels, wrap: fn(Vec<T>) -> Offsets) -> Checked<LayerOut> {
        if self.length > T::LAST {
            return damaged!("{} list items do not fit into 32-bit offsets", self.length);
        }
        let (offsets, validity, null_count) = match self.def.take() {
            None => (self.starts_all_valid(list)?, None, 0),
            Some(def) => {
                let offsets = self.starts(list, def)?;
                let members = self.members.as_deref().or(self.def.as_deref()).unwrap_or_default();
                let (consumed, empty) = (self.consumed, list.empty);
                let (validity, null_count) = bitmap(members, |level| level <= consumed || level == empty);
                (offsets, validity, null_count)
            }
        };
        self.length = offsets.len() - 1;
        Ok(LayerOut { length: self.length, validity, null_count, offsets: Some(wrap(offsets)) })
    }

    /// Offsets of lists none of which is null or empty: wherever an entry begins one.
    fn starts_all_valid<T: Offset>(&mut self, list: &ListLevels) -> Checked<Vec<T>> {
        if self.rep.len() != self.length {
            return damaged!("lists claim {} items, their layer below has {}", self.rep.len(), self.length);
        }
        let begins = positions(&self.rep, |rep| rep != 0);
        if !list.outermost {
            self.rep = begins.iter().map(|&entry| self.rep[entry] - 1).collect();
        }
        Ok(begins.into_iter().chain([self.length]).map(T::of).collect())
    }

    /// The same with definition levels; leaves those of the slots in `members` (or `def`, where nothing else is kept).
    fn starts<T: Offset>(&mut self, list: &ListLevels, def: Vec<u16>) -> Checked<Vec<T>> {
        let num_levels = def.len();
        let begins = positions(&self.rep, |rep| rep != 0);
        let nexts = begins.iter().skip(1).copied().chain([num_levels]);
        let mut offsets = vec![T::default(); begins.len() + 1];
        let mut members = vec![0; begins.len() + 1];
        let (mut slot, mut childless, mut goes_on) = (0, 0, false);
        for (&entry, next) in begins.iter().zip(nexts) {
            let level = def[entry];
            offsets[slot] = T::of(entry - childless); // without a branch: overwritten until `slot` moves on
            members[slot] = level;
            slot += (level <= list.limit) as usize;
            let has_items = level <= self.consumed;
            childless += !has_items as usize;
            goes_on |= !has_items & (next != entry + 1);
        }
        if goes_on {
            return damaged!("a list that is null, empty or missing goes on with another item");
        }
        if num_levels - childless != self.length {
            return damaged!("lists claim {} items, their layer below has {}", num_levels - childless, self.length);
        }
        offsets[slot] = T::of(self.length);
        offsets.truncate(slot + 1);
        members.truncate(slot);
        if list.outermost {
            (self.def, self.members) = (Some(members), None);
        } else {
            self.rep = begins.iter().map(|&entry| self.rep[entry] - 1).collect();
            self.def = Some(begins.iter().map(|&entry| def[entry]).collect());
            self.members = Some(members);
        }
        Ok(offsets)
    }
}

/// List offsets of 32 or 64 bits.
trait Offset: Copy + Default {
    const LAST: usize;
    /// `position` is at most `LAST`.
    fn of(position: usize) -> Self;
}

impl Offset for i32 {
    const LAST: usize = i32::MAX as usize;
    fn of(position: usize) -> Self {
        position as i32
    }
}

impl Offset for i64 {
    const LAST: usize = i64::MAX as usize;
    fn of(position: usize) -> Self {
        position as i64
    }
}

/// The levels up to `limit`, of which there are `count`.
fn slots_of(def: &[u16], limit: u16, count: usize) -> Vec<u16> {
    let mut slots = vec![0; count + 1];
    let mut slot = 0;
    for &level in def {
        slots[slot] = level;
        slot += (level <= limit) as usize;
    }
    slots.truncate(slot);
    slots
}

/// A bitmap, least significant bit first, and its number of zeros; `None` when there are none.
fn bitmap(levels: &[u16], is_valid: impl Fn(u16) -> bool) -> (Option<Vec<u8>>, usize) {
    let mut bytes = Vec::with_capacity(levels.len().div_ceil(64) * 8);
    let mut num_valid = 0;
    for group in levels.chunks(64) {
        let bits = mask(group, &is_valid);
        num_valid += bits.count_ones() as usize;
        bytes.extend_from_slice(&bits.to_le_bytes());
    }
    bytes.truncate(levels.len().div_ceil(8));
    let null_count = levels.len() - num_valid;
    ((null_count > 0).then_some(bytes), null_count)
}

/// Where the levels are like that, ascending.
pub fn positions(levels: &[u16], is_hit: impl Fn(u16) -> bool) -> Vec<usize> {
    let mut hits = Vec::with_capacity(levels.iter().filter(|&&level| is_hit(level)).count());
    for (index, group) in levels.chunks(64).enumerate() {
        let mut bits = mask(group, &is_hit);
        while bits != 0 {
            hits.push(index * 64 + bits.trailing_zeros() as usize);
            bits &= bits - 1;
        }
    }
    hits
}

/// One bit for each of up to 64 levels, the first one lowest.
fn mask(levels: &[u16], is_set: impl Fn(u16) -> bool) -> u64 {
    /// Moves bit 0 of each of eight bytes side by side into the top byte.
    const GATHER: u64 = 0x0102_0408_1020_4080;
    let mut flags = [0u8; 64];
    for (flag, &level) in flags.iter_mut().zip(levels) {
        *flag = is_set(level) as u8;
    }
    let mut bits = [0u8; 8];
    for (byte, &eight) in bits.iter_mut().zip(flags.as_chunks::<8>().0) {
        *byte = (u64::from_le_bytes(eight).wrapping_mul(GATHER) >> 56) as u8;
    }
    u64::from_le_bytes(bits)
}

/// The layers as Python sees them: `[(length, validity or None, null_count, offsets or None)]`.
pub fn layers_to_python(py: Python<'_>, layers: Vec<LayerOut>) -> PyResult<Bound<'_, PyList>> {
    let rows = layers.into_iter().map(|layer| {
        let offsets = layer.offsets.map(|offsets| match offsets {
            Offsets::Narrow(values) => OwnedBuffer::from(values),
            Offsets::Wide(values) => OwnedBuffer::from(values),
        });
        (layer.length, layer.validity.map(OwnedBuffer::from), layer.null_count, offsets)
    });
    PyList::new(py, rows.collect::<Vec<_>>())
}
