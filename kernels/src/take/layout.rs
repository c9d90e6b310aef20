//! Exports leaves as columns of an Arrow batch, if their buffers match Arrow's types.
//!
//! A layout describes the buffers that these types need; a leaf with smaller buffers is not exported.

use crate::buffer::{ArrowBatch, ArrowNode, OwnedBuffer};
use crate::decode::codec::Program;
use crate::error::invalid;
use crate::levels::layers::LayerOut;
use crate::levels::leaf::LeafParts;
use crate::room::{Gather, GatherResults, Grow, Roomy};
use crate::sink::Offsets;
use pyo3::PyResult;

/// A node around the leaf of a column.
#[derive(Clone, Copy, PartialEq)]
enum Around {
    Struct,
    List { wide: bool },
}

/// The memory layout of a leaf's values.
#[derive(Clone, Copy)]
enum Values {
    Fixed { bits: usize },
    Variable { wide: bool },
}

/// The layout of a column's Arrow type; see `PagesPlan.decode` in `_kernels.pyi`.
pub struct Layout {
    /// Outermost first.
    around: Vec<Around>,
    /// Sizes of the fixed-size lists in the leaf, outermost first.
    lists: Vec<usize>,
    values: Values,
}

impl Layout {
    pub fn parse(program: &[u8]) -> PyResult<Self> {
        let mut program = Program::new(program);
        let (mut around, mut lists) = (Vec::new(), Vec::new());
        let values = loop {
            match program.u8()? {
                b's' if lists.is_empty() => around.try_push(Around::Struct)?,
                b'l' if lists.is_empty() => around.try_push(Around::List { wide: false })?,
                b'L' if lists.is_empty() => around.try_push(Around::List { wide: true })?,
                b'i' => lists.try_push(program.u32()? as usize)?,
                b'f' => break Values::Fixed { bits: program.u32()? as usize },
                b'v' => break Values::Variable { wide: false },
                b'V' => break Values::Variable { wide: true },
                op => return Err(invalid(format!("a layout with the part {op}"))),
            }
        };
        program.finish()?;
        Ok(Layout { around, lists, values })
    }

    /// Whether a leaf has exactly the buffers of the layout, each long enough.
    pub fn fits(&self, (num_items, values, layers): &LeafParts) -> bool {
        let Some((leaf, outer)) = layers.split_first() else { return false };
        if leaf.length != *num_items || leaf.offsets.is_some() || !has_bits(leaf) || values.len() < self.lists.len() {
            return false;
        }
        let (bitmaps, values) = values.split_at(self.lists.len());
        let mut length = *num_items;
        for (items, bitmap) in self.lists.iter().zip(bitmaps) {
            length = length.saturating_mul(*items);
            if bitmap.as_ref().is_some_and(|bitmap| bitmap.bytes().len() < length.div_ceil(8)) {
                return false;
            }
        }
        let has_values = match (self.values, values) {
            (Values::Fixed { bits }, [Some(values)]) => {
                bits > 0 && length.checked_mul(bits).is_some_and(|bits| values.bytes().len() >= bits.div_ceil(8))
            }
            (Values::Variable { wide }, [Some(offsets), Some(data)]) => {
                let offsets = offsets.bytes();
                let last = match wide {
                    false => offsets.as_chunks::<4>().0.get(length).map(|&last| i64::from(i32::from_le_bytes(last))),
                    true => offsets.as_chunks::<8>().0.get(length).map(|&last| i64::from_le_bytes(last)),
                };
                last.is_some_and(|last| usize::try_from(last).is_ok_and(|last| last <= data.bytes().len()))
            }
            _ => false,
        };
        has_values && self.has_layers(outer, *num_items)
    }

    fn has_layers(&self, layers: &[LayerOut], num_items: usize) -> bool {
        let mut below = num_items;
        let fits = |(layer, around): (&LayerOut, &Around)| {
            let last = match (&layer.offsets, around) {
                (None, Around::Struct) => Some(layer.length),
                (Some(Offsets::Narrow(offsets)), Around::List { wide: false }) => {
                    offsets.get(layer.length).and_then(|&last| usize::try_from(last).ok())
                }
                (Some(Offsets::Wide(offsets)), Around::List { wide: true }) => {
                    offsets.get(layer.length).and_then(|&last| usize::try_from(last).ok())
                }
                _ => None,
            };
            let fits = last.is_some_and(|last| last <= below) && has_bits(layer);
            below = layer.length;
            fits
        };
        layers.len() == self.around.len() && layers.iter().zip(self.around.iter().rev()).all(fits)
    }

    /// Convert a leaf that fits to a column.
    fn node(&self, (length, values, layers): LeafParts) -> Roomy<ArrowNode> {
        let mut layers = layers.into_iter();
        let leaf = layers.next();
        let null_count = leaf.as_ref().map_or(0, |leaf| leaf.null_count as i64);
        let validity = leaf.and_then(|leaf| leaf.validity).map(OwnedBuffer::from);
        let column = values_node(&self.lists, length, validity, null_count, values.into_iter())?;
        Ok(layers.fold(column, |child, layer| {
            let offsets = layer.offsets.map(OwnedBuffer::from);
            let validity = layer.validity.map(OwnedBuffer::from);
            let buffers = match offsets {
                None => vec![validity],
                offsets => vec![validity, offsets],
            };
            let null_count = layer.null_count as i64;
            ArrowNode { length: layer.length, null_count, buffers, children: vec![child] }
        }))
    }
}

fn has_bits(layer: &LayerOut) -> bool {
    layer.validity.as_ref().is_none_or(|validity| validity.len() >= layer.length.div_ceil(8))
}

fn values_node(
    lists: &[usize],
    length: usize,
    validity: Option<OwnedBuffer>,
    null_count: i64,
    mut values: impl Iterator<Item = Option<OwnedBuffer>>,
) -> Roomy<ArrowNode> {
    let Some((items, inner)) = lists.split_first() else {
        let buffers = std::iter::once(validity).chain(values).try_vec()?;
        return Ok(ArrowNode { length, null_count, buffers, children: Vec::new() });
    };
    let bitmap = values.next().flatten();
    let unknown = if bitmap.is_some() { -1 } else { 0 };
    let boxed: Box<dyn Iterator<Item = Option<OwnedBuffer>>> = Box::new(values);
    let child = values_node(inner, length * items, bitmap, unknown, boxed)?;
    Ok(ArrowNode { length, null_count, buffers: vec![validity], children: vec![child] })
}

/// Size limit of a batch: a consumer that keeps one column of it keeps the memory of all.
const SHARED_BYTES_MAX: usize = 1 << 16;

/// Convert leaves to one batch; returns the leaves if they are too large to share memory, or do not fit their layout.
pub fn batch_of(leaves: Vec<LeafParts>, layouts: &[Layout]) -> PyResult<Result<ArrowBatch, Vec<LeafParts>>> {
    if leaves.len() != layouts.len() {
        return Err(invalid(format!("{} layouts for {} columns", layouts.len(), leaves.len())));
    }
    let buffers = leaves.iter().flat_map(|(_, values, _)| values.iter().flatten());
    let num_bytes: usize = buffers.map(|buffer| buffer.bytes().len()).sum();
    if num_bytes > SHARED_BYTES_MAX || !leaves.iter().zip(layouts).all(|(leaf, layout)| layout.fits(leaf)) {
        return Ok(Err(leaves));
    }
    let columns = leaves.into_iter().zip(layouts).map(|(leaf, layout)| layout.node(leaf)).try_vec_of()?;
    let length = columns.first().map_or(0, |column| column.length);
    match columns.iter().all(|column| column.length == length) {
        true => Ok(Ok(ArrowNode { length, null_count: 0, buffers: vec![None], children: columns }.into())),
        false => Err(invalid("columns of different lengths make no batch")),
    }
}
