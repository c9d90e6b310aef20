//! Mini-block pages (spec: encodings, 3): small chunks of levels and values, each decoded separately.
//!
//!     u16 num_levels
//!     u16 rep_size                where the page has repetition
//!     u16 def_size                where the page has definition levels
//!     u16 value_size[num_buffers] u32 in file version 2.2
//!     (pad to 8) rep (pad to 8) def (pad to 8) value buffers, each padded to 8

use crate::damaged;
use crate::decode::block;
use crate::decode::codec::{Codec, Program};
use crate::decode::dictionary::Kind;
use crate::error::{invalid, Checked};
use crate::levels::layers::{parse_layers, Layers};
use crate::room::Grow;
use pyo3::PyResult;

/// A page's description.
pub struct Page {
    wide: bool,
    pub num_buffers: usize,
    pub layers: Layers,
    pub rep: Option<Codec>,
    pub def: Option<Codec>,
    pub values: Codec,
    pub dictionary: Option<Kind>,
}

impl Page {
    pub fn parse(program: &[u8]) -> PyResult<Self> {
        let mut program = Program::new(program);
        let flags = program.u8()?;
        let num_buffers = program.u8()? as usize;
        let (layers, used) = parse_layers(program.rest())?;
        program.take(used)?;
        let rep = (flags & 2 != 0).then(|| block::level_codec(&mut program)).transpose()?;
        let def = (flags & 4 != 0).then(|| block::level_codec(&mut program)).transpose()?;
        let values = program.codec()?;
        let dictionary = Kind::parse(&mut program)?;
        program.finish()?;
        if rep.is_some() != (layers.max_rep() > 0) {
            return Err(invalid("repetition levels go with list layers"));
        }
        Ok(Page { wide: flags & 1 != 0, num_buffers, layers, rep, def, values, dictionary })
    }
}

/// The parts of a chunk.
pub struct Header<'a> {
    pub num_levels: usize,
    pub rep: &'a [u8],
    pub def: &'a [u8],
    /// Position of the sizes of the value buffers, and of the buffers.
    sizes_at: usize,
    values_at: usize,
}

/// Takes consecutive parts of a chunk, each padded to 8.
fn take_padded<'a>(bytes: &'a [u8], at: &mut usize, size: usize) -> Checked<&'a [u8]> {
    let end = at.saturating_add(size);
    let Some(run) = bytes.get(*at..end) else {
        return damaged!("a buffer of {size} bytes at {at} runs over the end of a chunk of {} bytes", bytes.len());
    };
    *at = end.next_multiple_of(8);
    Ok(run)
}

fn read_u16(bytes: &[u8], at: usize) -> Checked<usize> {
    match bytes.get(at..at + 2) {
        Some(raw) => Ok(u16::from_le_bytes([raw[0], raw[1]]) as usize),
        None => damaged!("a chunk of {} bytes ends inside its header", bytes.len()),
    }
}

fn read_size(bytes: &[u8], at: usize, wide: bool) -> Checked<usize> {
    Ok(match wide {
        false => read_u16(bytes, at)?,
        true => read_u16(bytes, at)? | read_u16(bytes, at + 2)? << 16,
    })
}

impl Page {
    pub fn header<'a>(&self, bytes: &'a [u8]) -> Checked<Header<'a>> {
        let num_levels = read_u16(bytes, 0)?;
        let mut at = 2;
        let mut level_size = |codec: &Option<Codec>| match codec {
            Some(_) => {
                at += 2;
                read_u16(bytes, at - 2)
            }
            None => Ok(0),
        };
        let (rep_size, def_size) = (level_size(&self.rep)?, level_size(&self.def)?);
        let sizes_at = at;
        at += self.num_buffers * if self.wide { 4 } else { 2 };
        at = at.next_multiple_of(8);
        let rep = take_padded(bytes, &mut at, rep_size)?;
        let def = take_padded(bytes, &mut at, def_size)?;
        Ok(Header { num_levels, rep, def, sizes_at, values_at: at })
    }

    pub fn value_buffers<'a>(&self, bytes: &'a [u8], header: &Header<'a>, buffers: &mut Vec<&'a [u8]>) -> Checked<()> {
        buffers.clear();
        let mut at = header.values_at;
        let step = if self.wide { 4 } else { 2 };
        for index in 0..self.num_buffers {
            let size = read_size(bytes, header.sizes_at + index * step, self.wide)?;
            buffers.try_push(take_padded(bytes, &mut at, size)?)?;
        }
        Ok(())
    }
}
