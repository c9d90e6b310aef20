//! Full-zip pages (spec: encodings, 5): level, length and value of each entry are adjacent.
//!
//!     control word   0, 1, 2 or 4 bytes: rep << bits_def | def
//!     length         u32 or u64, variable-width values only, where def is 0
//!     value          fixed width: of every visible entry; variable width: where def is 0

use crate::buffer::Input;
use crate::damaged;
use crate::decode::codec::{Codec, Program};
use crate::error::{invalid, Checked};
use crate::fullzip::entries::{read_word, RowSink};
use crate::gil;
use crate::levels::layers::{parse_layers, unravel, Layers};
use crate::levels::leaf::{leaf_to_python, Leaf, LeafParts};
use crate::levels::planes::Planes;
use crate::room::{vec_with_capacity, GatherResults, Grow};
use pyo3::prelude::*;

/// A page's description.
struct Page {
    bits_rep: u32,
    bits_def: u32,
    control_bytes: usize,
    width: Width,
    layers: Layers,
    codec: Codec,
}

/// The data after a control word.
enum Width {
    /// A value of this many bytes.
    Fixed(usize),
    /// A length of this many bytes, then that many bytes.
    Prefixed(usize),
}

impl Page {
    fn parse(program: &[u8]) -> PyResult<Self> {
        let mut program = Program::new(program);
        let (bits_rep, bits_def) = (u32::from(program.u8()?), u32::from(program.u8()?));
        let variable = program.u8()? != 0;
        let bits = program.bits()?;
        let (layers, used) = parse_layers(program.rest())?;
        program.take(used)?;
        let codec = program.codec()?;
        program.finish()?;
        if bits_rep > 16 || bits_def > 16 {
            return Err(invalid(format!("levels of {bits_rep} and {bits_def} bits, expected at most 16")));
        }
        if (bits_rep > 0) != (layers.max_rep() > 0) {
            return Err(invalid("repetition levels go with list layers"));
        }
        let width = match (variable, bits) {
            (true, 32 | 64) => Width::Prefixed(bits / 8),
            (false, bits) if bits % 8 == 0 => Width::Fixed(bits / 8),
            _ => return Err(invalid(format!("full-zip values (or lengths) of {bits} bits"))),
        };
        let control_bytes = match bits_rep + bits_def {
            0 => 0,
            1..=8 => 1,
            9..=16 => 2,
            _ => 4,
        };
        Ok(Page { bits_rep, bits_def, control_bytes, width, layers, codec })
    }

    fn decode(&self, bytes: &[u8], pieces: &[Piece]) -> PyResult<LeafParts> {
        let num_rows: usize = pieces.iter().map(|piece| piece.num_rows).sum();
        let num_bytes = pieces.iter().map(|piece| piece.length).sum::<usize>().min(bytes.len());
        let prefixed = matches!(self.width, Width::Prefixed(_));
        // With repetition, rows hold any number of values, so the output grows with them.
        let expected = if self.bits_rep > 0 { 0 } else { num_rows.min(bytes.len()) };
        let mut sink = RowSink::new(&self.codec, prefixed, expected, num_bytes)?;
        if let Width::Fixed(size) = self.width {
            if sink.row_bytes() != Some(size) {
                return Err(invalid(format!("the codec does not hold values of {size} bytes")));
            }
        }
        let mut levels = Levels {
            rep: (self.bits_rep > 0).then(Vec::new),
            def: (self.bits_def > 0).then(|| vec_with_capacity(expected)).transpose()?,
            num_items: 0,
        };
        for (index, piece) in pieces.iter().enumerate() {
            let Some(entries) = bytes.get(piece.offset..piece.offset.saturating_add(piece.length)) else {
                return Err(invalid(format!("piece {index} is not in the bytes given")));
            };
            let decoded = match (self.control_bytes, &self.width) {
                (0, Width::Fixed(size)) => plain_rows(entries, *size, piece.num_rows, &mut sink, &mut levels),
                _ => self.entries(entries, piece.num_rows, &mut sink, &mut levels),
            };
            decoded.map_err(|damage| damage.within(&format!("piece {index}")))?;
        }
        let [rep, def] = [levels.rep, levels.def].map(|levels| levels.map(|levels| Planes::from_levels(&levels)));
        let (rep, def) = (rep.transpose()?, def.transpose()?);
        let layers = unravel(&self.layers, rep, def, levels.num_items, num_rows)?;
        Ok((levels.num_items, sink.into_buffers()?, layers))
    }

    /// Walk the entries of one piece, which is whole rows.
    fn entries(&self, bytes: &[u8], num_rows: usize, sink: &mut RowSink<'_>, levels: &mut Levels) -> Checked<()> {
        let (max_rep, max_visible) = (self.layers.max_rep(), self.layers.max_visible());
        let def_mask = (1u32 << self.bits_def) - 1;
        let (mut rest, mut rows) = (bytes, 0);
        let mut at_end = bytes.is_empty();
        // Entries without control words and lengths take no bytes, so the number of rows ends the walk there.
        while !at_end {
            let word = read_word(take(&mut rest, self.control_bytes)?) as u32;
            let (rep, def) = (word >> self.bits_def, (word & def_mask) as u16);
            if let Some(reps) = &mut levels.rep {
                if rep > u32::from(max_rep) {
                    return damaged!("repetition level {rep} is above {max_rep}, the number of lists");
                }
                reps.try_push(rep as u16)?;
                rows += usize::from(rep as u16 == max_rep);
            } else if rep != 0 {
                return damaged!("a control word of {word} has bits beyond its levels");
            } else {
                rows += 1;
            }
            if rows == 0 {
                return damaged!("the first entry does not begin a row");
            }
            if let Some(defs) = &mut levels.def {
                defs.try_push(def)?;
            }
            if def <= max_visible {
                levels.num_items += 1;
            }
            match self.width {
                Width::Fixed(size) if def <= max_visible => sink.value(take(&mut rest, size)?)?,
                Width::Prefixed(size) if def == 0 => {
                    let length = read_word(take(&mut rest, size)?);
                    sink.value(take(&mut rest, usize::try_from(length).unwrap_or(usize::MAX))?)?;
                }
                Width::Prefixed(_) if def <= max_visible => sink.null()?,
                _ => {}
            }
            at_end = rest.is_empty();
        }
        match rows == num_rows {
            true => Ok(()),
            false => damaged!("{} bytes hold {rows} rows, expected {num_rows}", bytes.len()),
        }
    }
}

/// Rows without levels: the values, back to back.
fn plain_rows(bytes: &[u8], size: usize, num_rows: usize, sink: &mut RowSink<'_>, levels: &mut Levels) -> Checked<()> {
    if num_rows.checked_mul(size) != Some(bytes.len()) {
        return damaged!("{} bytes do not hold {num_rows} values of {size} bytes", bytes.len());
    }
    levels.num_items += num_rows;
    sink.values(bytes, num_rows)
}

/// The levels in the control words of all pieces.
struct Levels {
    rep: Option<Vec<u16>>,
    def: Option<Vec<u16>>,
    num_items: usize,
}

struct Piece {
    offset: usize,
    length: usize,
    num_rows: usize,
}

/// Cut `count` bytes off the front.
#[inline(always)]
fn take<'a>(rest: &mut &'a [u8], count: usize) -> Checked<&'a [u8]> {
    match rest.split_at_checked(count) {
        Some((taken, behind)) => {
            *rest = behind;
            Ok(taken)
        }
        None => damaged!("an entry ends early: {count} bytes wanted, {} left", rest.len()),
    }
}

/// Decode whole rows of a full-zip page.
#[pyfunction]
#[pyo3(signature = (program, buffer, piece_offsets, piece_lengths, piece_rows, /))]
pub fn decode_fullzip<'py>(
    py: Python<'py>,
    program: &[u8],
    buffer: &Bound<'py, PyAny>,
    piece_offsets: &Bound<'py, PyAny>,
    piece_lengths: &Bound<'py, PyAny>,
    piece_rows: &Bound<'py, PyAny>,
) -> PyResult<Leaf<'py>> {
    let page = Page::parse(program)?;
    let buffer = Input::new(buffer)?;
    let bytes = buffer.bytes();
    let pieces = parse_pieces(&Input::new(piece_offsets)?, &Input::new(piece_lengths)?, &Input::new(piece_rows)?)?;
    let steps = bytes.len() / 64 + pieces.iter().map(|piece| piece.num_rows).sum::<usize>();
    let parts = gil::release(py, steps, || page.decode(bytes, &pieces))?;
    leaf_to_python(py, parts)
}

fn parse_pieces(offsets: &Input, lengths: &Input, rows: &Input) -> PyResult<Vec<Piece>> {
    let (offsets, lengths, rows) = (offsets.i64s()?, lengths.i64s()?, rows.i64s()?);
    if offsets.len() != lengths.len() || offsets.len() != rows.len() {
        return Err(invalid("piece offsets, lengths and rows differ in number"));
    }
    let size = |number: i64| match number {
        0..=0xffff_ffff_ffff => Ok(number as usize),
        _ => Err(invalid(format!("{number} is not a size of a piece"))),
    };
    let triples = offsets.iter().zip(&lengths[..]).zip(&rows[..]);
    triples
        .map(|((&offset, &length), &num_rows)| {
            Ok(Piece { offset: size(offset)?, length: size(length)?, num_rows: size(num_rows)? })
        })
        .try_vec_of()
}
