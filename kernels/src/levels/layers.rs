//! Repetition and definition levels: the layers of a page, and the conversion of levels to validity and offsets.
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
//! slots. Lists lead from one group to the next: they turn the entries of the inner group into fewer, outer entries
//! (one per list, null list or missing list).

use crate::buffer::OwnedBuffer;
use crate::damaged;
use crate::error::Checked;
use crate::levels::planes::{Mask, Planes};
use crate::room::{vec_with_capacity, zeros, GatherResults};
use crate::sink::Offsets;
use pyo3::prelude::*;
use pyo3::types::PyList;

/// Added to a layer's byte when the Arrow list has 64-bit offsets.
const WIDE_OFFSETS: u8 = 128;

/// One layer with the definition levels it owns.
#[derive(Clone, Copy)]
enum Layer {
    /// `null` is false if every slot is valid in this page.
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
    /// Number of list layers, which is the repetition level at the start of every row.
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

    /// The last level with a slot in a group whose layers from `index` on are still to come.
    fn group_limit(&self, index: usize, consumed: u16) -> u16 {
        let items = self.layers[index..].iter().take_while(|layer| matches!(layer, Layer::Item { .. }));
        consumed + items.map(|layer| layer.own_levels()).sum::<u16>()
    }
}

/// Parse `layers` from the front of a program; also returns their size in bytes.
pub fn parse_layers(bytes: &[u8]) -> Checked<(Layers, usize)> {
    let Some((&count, rest)) = bytes.split_first() else {
        return damaged!("expected a count of layers, found the end of the program");
    };
    let Some(kinds) = rest.get(..count as usize) else {
        return damaged!("expected {count} layers, found {} bytes", rest.len());
    };
    let layers = kinds.iter().map(|&byte| Layer::parse(byte)).try_vec_of()?;
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

/// One rebuilt layer: `length` slots, a bitmap (LSB first) if any slot is null, offsets if it is a list.
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
/// items and `num_rows` rows. The result is in the order of `layers`, innermost first.
pub fn unravel(
    layers: &Layers,
    rep: Option<Planes>,
    def: Option<Planes>,
    num_items: usize,
    num_rows: usize,
) -> Checked<Vec<LayerOut>> {
    let all_valid = check_levels(layers, rep.as_ref(), def.as_ref(), num_items, num_rows)?;
    let def = if all_valid { None } else { def };
    let mut state = Unravelling { rep: rep.unwrap_or_default(), def, length: num_items, consumed: 0 };
    let mut lists_left = layers.max_rep;
    let mut out = vec_with_capacity(layers.layers.len())?;
    for (index, &layer) in layers.layers.iter().enumerate() {
        let top = state.consumed + layer.own_levels();
        // room: reserved
        out.push(match layer {
            Layer::Item { null } => state.item(null, layers.group_limit(index, state.consumed))?,
            Layer::List { empty, wide, .. } => {
                lists_left -= 1;
                let limit = layers.group_limit(index + 1, top);
                let list = ListLevels {
                    empty: empty.then_some(top),
                    limit,
                    is_outermost: lists_left == 0,
                    is_last: limit == top && lists_left == 0,
                };
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

/// Compare the levels with the numbers of their page. True if no definition level is above 0.
fn check_levels(
    layers: &Layers,
    rep: Option<&Planes>,
    def: Option<&Planes>,
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
    let highest_rep = rep.map_or(Ok(0), Planes::highest)?;
    if highest_rep > layers.max_rep {
        return damaged!("repetition level {highest_rep} is above {}, the number of lists", layers.max_rep);
    }
    let highest_def = def.map_or(Ok(0), Planes::highest)?;
    if highest_def > layers.max_def {
        return damaged!("definition level {highest_def} is above {}, the last of the layers", layers.max_def);
    }
    let rows = match rep {
        Some(rep) if lists => {
            if let Some(first) = rep.first().filter(|&first| first != layers.max_rep) {
                return damaged!("the first level does not begin a row (repetition level {first})");
            }
            rep.above(layers.max_rep - 1)?.count_ones()
        }
        _ => num_levels,
    };
    if rows != num_rows {
        return damaged!("levels hold {rows} rows, expected {num_rows}");
    }
    let items = match def {
        Some(def) if highest_def > layers.max_visible => num_levels - def.above(layers.max_visible)?.count_ones(),
        _ => num_levels,
    };
    if items != num_items {
        return damaged!("levels hold {items} items, expected {num_items}");
    }
    Ok(highest_def == 0)
}

/// The numbering of one list layer's levels.
struct ListLevels {
    /// The level of an empty list, if there are any.
    empty: Option<u16>,
    /// The last level with a slot in this layer, see `Layers::group_limit`.
    limit: u16,
    /// No list encloses this one.
    is_outermost: bool,
    /// No layer with levels encloses this one.
    is_last: bool,
}

/// The state between two layers, after the inner layers.
struct Unravelling {
    /// Remaining entries: repetition levels, already lowered by the finished lists; empty without lists.
    rep: Planes,
    /// Definition levels of the remaining entries; `None` if all of them are 0.
    def: Option<Planes>,
    /// Slots of the current group.
    length: usize,
    /// Definition levels used up by the finished layers.
    consumed: u16,
}

impl Unravelling {
    fn item(&self, null: bool, limit: u16) -> Checked<LayerOut> {
        let all_valid = LayerOut { length: self.length, validity: None, null_count: 0, offsets: None };
        let Some(def) = self.def.as_ref().filter(|_| null) else {
            return Ok(all_valid);
        };
        let nulls = def.above(self.consumed)?;
        let nulls = if def.len() == self.length { nulls } else { nulls.compact(&def.above(limit)?.not())? };
        let null_count = nulls.count_ones();
        let validity = (null_count > 0).then(|| nulls.not().to_bytes()).transpose()?;
        Ok(LayerOut { validity, null_count, ..all_valid })
    }

    /// Entries with a repetition level of 0 continue a list; all others begin a list, or represent a list that is null,
    /// empty or, above `limit`, missing altogether. The latter are all passed on to the outer layers.
    fn list<T: Offset>(&mut self, list: &ListLevels, wrap: fn(Vec<T>) -> Offsets) -> Checked<LayerOut> {
        if self.length > T::LAST {
            return damaged!("{} list items do not fit into 32-bit offsets", self.length);
        }
        let begins = self.rep.above(0)?;
        let lists = match &self.def {
            None => Lists { slots: begins.copy()?, childless: None },
            Some(def) => {
                let childless = def.above(self.consumed)?;
                if list_goes_on(&childless, &begins)? {
                    return damaged!("a list that is null, empty or missing goes on with another item");
                }
                let slots = begins.copy()?.zip(&def.above(list.limit)?, |begins, missing| begins & !missing);
                Lists { slots, childless: Some(childless.zip(&begins, |childless, begins| childless & begins)) }
            }
        };
        let num_children = begins.len() - lists.childless.as_ref().map_or(0, Mask::count_ones);
        if num_children != self.length {
            return damaged!("lists claim {num_children} items, their layer below has {}", self.length);
        }
        let (validity, null_count) = match (&self.def, &lists.childless) {
            (Some(def), Some(childless)) => lists.validity(def, childless, list.empty)?,
            _ => (None, 0),
        };
        let offsets = lists.offsets(self.length, &begins)?;
        if list.is_outermost {
            self.def = self.def.take().filter(|_| !list.is_last).map(|def| def.compact(&lists.slots)).transpose()?;
        } else {
            self.rep = self.rep.compact(&begins)?.less_one()?;
            self.def = self.def.take().map(|def| def.compact(&begins)).transpose()?;
        }
        self.length = offsets.len() - 1;
        Ok(LayerOut { length: self.length, validity, null_count, offsets: Some(wrap(offsets)) })
    }
}

/// Whether an entry without children is followed by one that continues it.
fn list_goes_on(childless: &Mask, begins: &Mask) -> Checked<bool> {
    let continues = begins.copy()?.not();
    let (mut found, mut before) = (0, 0);
    for (&childless, &continues) in childless.words().iter().zip(continues.words()) {
        found |= (childless << 1 | before) & continues;
        before = childless >> 63;
    }
    Ok(found != 0)
}

/// The lists of one layer.
struct Lists {
    /// Entries that begin a list of this layer, or represent a null or empty list.
    slots: Mask,
    /// Entries without a child: those of null, empty and missing lists.
    childless: Option<Mask>,
}

impl Lists {
    /// Validity of the lists, if some are null, and the number of nulls.
    fn validity(&self, def: &Planes, childless: &Mask, empty: Option<u16>) -> Checked<(Option<Vec<u8>>, usize)> {
        let mut nulls = childless.copy()?.zip(&self.slots, |childless, slots| childless & slots);
        if let Some(empty) = empty {
            let is_empty = def.above(empty - 1)?.zip(&def.above(empty)?, |from, above| from & !above);
            nulls = nulls.zip(&is_empty, |nulls, empty| nulls & !empty);
        }
        let null_count = nulls.count_ones();
        Ok(match null_count {
            0 => (None, 0),
            _ => (Some(nulls.not().compact(&self.slots)?.to_bytes()?), null_count),
        })
    }

    /// Start of each list's children, and end of the last list's.
    fn offsets<T: Offset>(&self, num_children: usize, begins: &Mask) -> Checked<Vec<T>> {
        let mut offsets = zeros::<T>(self.slots.count_ones() + 1)?;
        let mut slot = 0;
        let mut num_childless = 0;
        for (index, &slots) in self.slots.words().iter().enumerate() {
            let childless = self.childless.as_ref().map_or(0, |childless| childless.words()[index]);
            let mut begins = begins.words()[index];
            while begins != 0 {
                let bit = begins.trailing_zeros();
                offsets[slot] = T::of(index * 64 + bit as usize - num_childless); // overwritten until `slot` moves on
                slot += (slots >> bit & 1) as usize;
                num_childless += (childless >> bit & 1) as usize;
                begins &= begins - 1;
            }
        }
        offsets[slot] = T::of(num_children);
        Ok(offsets)
    }
}

/// List offsets of 32 or 64 bits.
trait Offset: Copy + Default + bytemuck::Zeroable {
    const LAST: usize;
    /// `position` is at most `LAST`.
    fn of(position: usize) -> Self;
}

impl Offset for i32 {
    const LAST: usize = i32::MAX as usize;
    #[inline(always)]
    fn of(position: usize) -> Self {
        position as i32
    }
}

impl Offset for i64 {
    const LAST: usize = i64::MAX as usize;
    #[inline(always)]
    fn of(position: usize) -> Self {
        position as i64
    }
}

/// The layers for Python: `[(length, validity or None, null_count, offsets or None)]`.
pub fn layers_to_python(py: Python<'_>, layers: Vec<LayerOut>) -> PyResult<Bound<'_, PyList>> {
    let rows = layers.into_iter().map(|layer| {
        let offsets = layer.offsets.map(|offsets| match offsets {
            Offsets::Narrow(values) => OwnedBuffer::from(values),
            Offsets::Wide(values) => OwnedBuffer::from(values),
        });
        (layer.length, layer.validity.map(OwnedBuffer::from), layer.null_count, offsets)
    });
    PyList::new(py, rows.collect::<Vec<_>>()) // room: at most 255 layers
}
