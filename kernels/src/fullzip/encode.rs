//! Full-zip pages, the writing half of `page.rs` (spec: encodings, 5): control word, length and value of each entry,
//! and the start of each row.

use crate::buffer::{Input, OwnedBuffer};
use crate::decode::codec::{Child, Codec, Program};
use crate::encode::chunk_values::Source;
use crate::encode::fixed::put_bits;
use crate::encode::general::Deflater;
use crate::encode::variable::{offsets, Offset};
use crate::error::invalid;
use crate::gil;
use crate::levels::layers::{parse_layers, Layers};
use crate::room::{vec_with_capacity, Gather, GatherResults, Grow, Roomy};
use pyo3::prelude::*;
use std::borrow::Cow;

/// Widths of the repetition index, in bytes.
const INDEX_BYTES: [usize; 4] = [1, 2, 4, 8];

/// The values of a leaf, as separate rows.
enum Rows<'a> {
    /// Fixed width: bitmaps and values, each from a byte border.
    Planes(Vec<Plane<'a>>),
    Narrow(Cow<'a, [u32]>, &'a [u8]),
    Wide(Cow<'a, [u64]>, &'a [u8]),
    /// Members of a struct; those of variable width with the bytes of their length prefix.
    Packed(Vec<(Option<usize>, Rows<'a>)>),
}

/// Values of a fixed number of bits per row, rows back to back.
struct Plane<'a> {
    source: Source<'a>,
    bits: usize,
}

impl<'a> Plane<'a> {
    fn new(source: Source<'a>, bits: usize, num_values: usize) -> PyResult<Self> {
        let end = bits.checked_mul(num_values).and_then(|bits| bits.checked_add(source.bit_offset));
        match end {
            Some(end) if end <= source.bytes.len() * 8 => Ok(Plane { source, bits }),
            _ => Err(invalid(format!("{num_values} values of {bits} bits do not fit in {} bytes", source.bytes.len()))),
        }
    }
}

/// The buffers in the order of a codec, consumed one after the other.
struct Sources<'a, 's> {
    rest: std::slice::Iter<'s, Source<'a>>,
    num_values: usize,
}

impl<'a> Sources<'a, '_> {
    fn next(&mut self) -> PyResult<Source<'a>> {
        self.rest.next().copied().ok_or_else(|| invalid("fewer buffers than the codec has"))
    }

    fn plane(&mut self, bits: usize) -> PyResult<Plane<'a>> {
        Plane::new(self.next()?, bits, self.num_values)
    }

    fn rows(&mut self, codec: &Codec) -> PyResult<Rows<'a>> {
        Ok(match codec {
            Codec::Flat { bits } => Rows::Planes(vec![self.plane(*bits)?]),
            Codec::PackedStruct { bits } => Rows::Planes(vec![self.plane(bits.iter().sum())?]),
            Codec::FixedSizeList { .. } => Rows::Planes(self.lists(codec)?),
            Codec::Variable { wide } | Codec::Fsst { wide, .. } => self.strings(*wide)?,
            Codec::VariablePacked { children } => {
                Rows::Packed(children.iter().map(|child| self.member(child)).try_vec_of()?)
            }
            _ => return Err(invalid("not a codec of full-zip values")),
        })
    }

    fn lists(&mut self, codec: &Codec) -> PyResult<Vec<Plane<'a>>> {
        let (mut planes, mut codec, mut count) = (Vec::new(), codec, 1usize);
        let beyond = || invalid("a fixed-size list beyond memory");
        while let Codec::FixedSizeList { items, has_validity, values } = codec {
            count = count.checked_mul(*items).ok_or_else(beyond)?;
            if *has_validity {
                planes.try_push(self.plane(count)?)?;
            }
            codec = values;
        }
        let bits = codec.bits().and_then(|bits| bits.checked_mul(count)).ok_or_else(beyond)?;
        planes.try_push(self.plane(bits)?)?;
        Ok(planes)
    }

    fn strings(&mut self, wide: bool) -> PyResult<Rows<'a>> {
        let (table, data) = (self.next()?.bytes, self.next()?.bytes);
        Ok(match wide {
            false => Rows::Narrow(offsets(table, data, self.num_values)?, data),
            true => Rows::Wide(offsets(table, data, self.num_values)?, data),
        })
    }

    fn member(&mut self, child: &Child) -> PyResult<(Option<usize>, Rows<'a>)> {
        let rows = self.rows(&child.codec)?;
        match (&rows, child.prefix_bytes) {
            (Rows::Packed(_), _) => Err(invalid("a packed struct inside a packed struct")),
            (Rows::Planes(_), None) | (Rows::Narrow(..) | Rows::Wide(..), Some(4 | 8)) => {
                Ok((child.prefix_bytes, rows))
            }
            _ => Err(invalid("a length goes with members of variable width, and with no others")),
        }
    }
}

impl Rows<'_> {
    /// Append row `index`.
    fn put(&self, index: usize, out: &mut Vec<u8>) -> PyResult<()> {
        match self {
            Rows::Planes(planes) => {
                for Plane { source, bits } in planes {
                    match (bits % 8, source.bit_offset) {
                        (0, 0) => out.try_append(&source.bytes[bits / 8 * index..bits / 8 * (index + 1)])?,
                        _ => put_bits(source.bytes, source.bit_offset + bits * index, *bits, out)?,
                    }
                }
            }
            Rows::Narrow(offsets, data) => out.try_append(value(offsets, data, index))?,
            Rows::Wide(offsets, data) => out.try_append(value(offsets, data, index))?,
            Rows::Packed(members) => {
                for (prefix, rows) in members {
                    put_prefixed(prefix.unwrap_or(0), out, |out| rows.put(index, out))?;
                }
            }
        }
        Ok(())
    }

    /// Approximate bytes of all rows.
    fn num_bytes(&self, num_values: usize) -> usize {
        match self {
            Rows::Planes(planes) => planes.iter().map(|plane| plane.bits.div_ceil(8) * num_values).sum(),
            Rows::Narrow(_, data) | Rows::Wide(_, data) => data.len(),
            Rows::Packed(members) => members.iter().map(|(_, rows)| 8 * num_values + rows.num_bytes(num_values)).sum(),
        }
    }
}

fn value<'a, T: Offset>(offsets: &[T], data: &'a [u8], index: usize) -> &'a [u8] {
    &data[offsets[index].to_usize()..offsets[index + 1].to_usize()]
}

/// Append the output of `put`, after its length as an integer of `prefix_bytes` (no length if that is 0).
fn put_prefixed(
    prefix_bytes: usize,
    out: &mut Vec<u8>,
    put: impl FnOnce(&mut Vec<u8>) -> PyResult<()>,
) -> PyResult<()> {
    let start = out.len() + prefix_bytes;
    out.try_resize(start, 0)?;
    put(out)?;
    let length = (out.len() - start) as u64;
    if prefix_bytes == 4 && length > u64::from(u32::MAX) {
        return Err(invalid(format!("a value of {length} bytes with a length of 32 bits")));
    }
    out[start - prefix_bytes..start].copy_from_slice(&length.to_le_bytes()[..prefix_bytes]);
    Ok(())
}

/// A page to be encoded.
struct Page<'a> {
    bits_def: u32,
    control_bytes: usize,
    /// Bytes of a length; `None` for values of fixed width.
    prefix_bytes: Option<usize>,
    layers: Layers,
    rows: Rows<'a>,
    deflater: Option<Deflater>,
}

/// `(bits_rep, bits_def, length bits if variable)` and the rest of a full-zip page's program.
struct Head {
    bits_rep: u32,
    bits_def: u32,
    prefix_bytes: Option<usize>,
    layers: Layers,
    codec: Codec,
}

fn parse(program: &[u8]) -> PyResult<Head> {
    let mut program = Program::new(program);
    let (bits_rep, bits_def) = (u32::from(program.u8()?), u32::from(program.u8()?));
    let variable = program.u8()? != 0;
    let bits = program.bits()?;
    let (layers, used) = parse_layers(program.rest())?;
    program.take(used)?;
    let codec = program.codec()?;
    program.finish()?;
    if bits_rep > 16 || bits_def > 16 || (variable && bits != 32 && bits != 64) {
        return Err(invalid(format!("levels of {bits_rep} and {bits_def} bits, lengths of {bits}")));
    }
    Ok(Head { bits_rep, bits_def, prefix_bytes: variable.then_some(bits / 8), layers, codec })
}

impl Page<'_> {
    /// The entries, and the start of each row, including the end of the last.
    fn encode(&mut self, levels: &Levels, num_values: usize) -> PyResult<(Vec<u8>, Vec<u64>)> {
        let prefix_bytes = self.prefix_bytes.unwrap_or(0);
        let most = self.rows.num_bytes(num_values) + levels.count * (self.control_bytes + prefix_bytes);
        let mut out = vec_with_capacity(if self.deflater.is_some() { most / 4 } else { most })?;
        let mut starts = Vec::new();
        let (max_rep, max_visible) = (self.layers.max_rep(), self.layers.max_visible());
        let mut item = 0;
        for index in 0..levels.count {
            let rep = levels.rep.as_ref().map_or(0, |rep| rep[index]);
            let def = levels.def.as_ref().map_or(0, |def| def[index]);
            if rep == max_rep || levels.rep.is_none() {
                starts.try_push(out.len() as u64)?;
            }
            let word = u32::from(rep) << self.bits_def | u32::from(def);
            out.try_append(&word.to_le_bytes()[..self.control_bytes])?;
            if def > max_visible {
                continue;
            }
            if item == num_values {
                return Err(invalid(format!("more visible levels than the {num_values} values")));
            }
            if def == 0 || self.prefix_bytes.is_none() {
                self.value(item, prefix_bytes, &mut out)?;
            }
            item += 1;
        }
        starts.try_push(out.len() as u64)?;
        match item == num_values {
            true => Ok((out, starts)),
            false => Err(invalid(format!("{item} visible levels for {num_values} values"))),
        }
    }

    fn value(&mut self, item: usize, prefix_bytes: usize, out: &mut Vec<u8>) -> PyResult<()> {
        let Page { rows, deflater, .. } = self;
        put_prefixed(prefix_bytes, out, |out| match (deflater, rows) {
            (None, rows) => rows.put(item, out),
            (Some(deflater), Rows::Narrow(offsets, data)) => Ok(deflater.deflate(value(offsets, data, item), out)?),
            (Some(deflater), Rows::Wide(offsets, data)) => Ok(deflater.deflate(value(offsets, data, item), out)?),
            _ => Err(invalid("general compression of values that are not of variable width")),
        })
    }
}

struct Levels<'a> {
    rep: Option<Cow<'a, [u16]>>,
    def: Option<Cow<'a, [u16]>>,
    count: usize,
}

/// Encode a full-zip page, see `lance_io/_kernels.pyi`.
#[pyfunction]
#[pyo3(signature = (program, sources, num_values, rep, def_, level, /))]
pub fn encode_fullzip<'py>(
    py: Python<'py>,
    program: &[u8],
    sources: Vec<(Bound<'py, PyAny>, usize)>,
    num_values: usize,
    rep: Option<Bound<'py, PyAny>>,
    def_: Option<Bound<'py, PyAny>>,
    level: Option<i32>,
) -> PyResult<(OwnedBuffer, OwnedBuffer)> {
    let head = parse(program)?;
    let inputs: Vec<(Input, usize)> =
        sources.iter().map(|(buffer, bit)| PyResult::Ok((Input::new(buffer)?, *bit))).try_vec_of()?;
    let sources: Vec<Source> =
        inputs.iter().map(|(input, bit)| Source { bytes: input.bytes(), bit_offset: *bit }).try_vec()?;
    let (rep, def) = (rep.as_ref().map(Input::new).transpose()?, def_.as_ref().map(Input::new).transpose()?);
    let rep = rep.as_ref().map(Input::u16s).transpose()?;
    let def = def.as_ref().map(Input::u16s).transpose()?;
    let count = rep.as_ref().or(def.as_ref()).map_or(num_values, |levels| levels.len());
    let levels = Levels { rep, def, count };
    check_levels(&levels, &head)?;
    let (codec, deflater) = match &head.codec {
        Codec::General { scheme, values, .. } => (&**values, Some(Deflater::new(*scheme, level)?)),
        codec => (codec, None),
    };
    let mut rest = Sources { rest: sources.iter(), num_values };
    let rows = rest.rows(codec)?;
    if rest.rest.len() > 0 {
        return Err(invalid("more buffers than the codec has"));
    }
    let is_variable = !matches!(rows, Rows::Planes(_));
    if is_variable != head.prefix_bytes.is_some() {
        return Err(invalid("lengths go with values of variable width, and with no others"));
    }
    let control_bytes = match head.bits_rep + head.bits_def {
        0 => 0,
        1..=8 => 1,
        9..=16 => 2,
        _ => 4,
    };
    let Head { bits_def, prefix_bytes, layers, .. } = head;
    let mut page = Page { bits_def, control_bytes, prefix_bytes, layers, rows, deflater };
    let num_bytes: usize = sources.iter().map(|source| source.bytes.len()).sum();
    let (data, starts) = gil::release(py, count + num_bytes / 64, || page.encode(&levels, num_values))?;
    Ok((data.into(), index_bytes(&starts)?.into()))
}

/// Check that the levels fit into their bits, and that both vectors have the same length.
fn check_levels(levels: &Levels, head: &Head) -> PyResult<()> {
    for (vector, bits) in [(&levels.rep, head.bits_rep), (&levels.def, head.bits_def)] {
        if let Some(vector) = vector {
            let highest = vector.iter().copied().max().unwrap_or(0);
            if vector.len() != levels.count || u32::from(highest) >> bits != 0 {
                return Err(invalid(format!("{} levels up to {highest} in {bits} bits", vector.len())));
            }
        }
    }
    Ok(())
}

/// The repetition index, as narrow as its last entry permits.
fn index_bytes(starts: &[u64]) -> Roomy<Vec<u8>> {
    let last = starts.last().copied().unwrap_or(0);
    let fits = |&&width: &&usize| width == 8 || last >> (8 * width) == 0;
    let width = INDEX_BYTES.iter().find(fits).copied().unwrap_or(8);
    let mut index = vec_with_capacity(starts.len().saturating_mul(width))?;
    starts.iter().for_each(|start| index.extend_from_slice(&start.to_le_bytes()[..width])); // room: reserved
    Ok(index)
}
