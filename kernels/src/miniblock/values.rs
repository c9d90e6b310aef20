//! The values of a mini-block page: decodes value buffers chunk by chunk to the output buffers of a leaf.

use crate::buffer::OwnedBuffer;
use crate::damaged;
use crate::decode::codec::Codec;
use crate::decode::fsst::Scratch;
use crate::decode::general::{Inflater, Limit};
use crate::decode::shapes::{Children, Fixed, ListShape, Lists};
use crate::decode::{fixed, variable};
use crate::error::{invalid, Checked};
use crate::room::Grow;
use crate::sink::{bytes_of, count, Pick, Strings};
use pyo3::PyResult;

enum Sink {
    Fixed(Fixed),
    Narrow(Strings<i32>),
    Wide(Strings<i64>),
    Lists(ListShape, Lists),
    Children(Children),
}

/// Decodes the values of a page.
pub struct Values<'a> {
    codec: &'a Codec,
    sink: Sink,
    inflater: Inflater,
    plain: Vec<u8>,
    scratch: Scratch,
}

impl<'a> Values<'a> {
    /// `count` values will be decoded, from chunks of about `bytes` bytes.
    pub fn new(codec: &'a Codec, count: usize, bytes: usize) -> PyResult<Self> {
        let mut plain = codec;
        while let Codec::General { values, .. } = plain {
            plain = values;
        }
        let sink = match plain {
            Codec::Variable { wide } | Codec::Fsst { wide, .. } => match wide {
                false => Sink::Narrow(Strings::with_room(count, bytes)),
                true => Sink::Wide(Strings::with_room(count, bytes)),
            },
            Codec::FixedSizeList { .. } => {
                let shape = ListShape::new(plain)?;
                let lists = Lists::with_capacity(&shape, count)?;
                Sink::Lists(shape, lists)
            }
            Codec::PackedStruct { bits } => Sink::Children(Children::with_capacity(bits, count)?),
            _ => match plain.bits() {
                Some(bits) if bits > 0 => Sink::Fixed(Fixed::with_capacity(bits, count)?),
                _ => return Err(invalid("a mini-block page cannot hold values of this codec")),
            },
        };
        Ok(Values { codec, sink, inflater: Inflater::default(), plain: Vec::new(), scratch: Scratch::default() })
    }

    /// Decode the picked values of one chunk that holds `num_values`.
    pub fn chunk(&mut self, buffers: &[&[u8]], num_values: usize, picks: &[Pick]) -> Checked<()> {
        self.decode(self.codec, buffers, num_values, picks)
    }

    fn decode(&mut self, codec: &Codec, buffers: &[&[u8]], num_values: usize, picks: &[Pick]) -> Checked<()> {
        if let Codec::General { scheme, values, bytes_max } = codec {
            let [first, others @ ..] = buffers else { return damaged!("a compressed chunk has no buffer") };
            let mut plain = std::mem::take(&mut self.plain);
            let limit = Limit::of_several(fixed::first_buffer_bytes_max(values, num_values), *bytes_max);
            self.inflater.inflate(*scheme, first, limit, &mut plain)?;
            let mut inner: Vec<&[u8]> = vec![&plain];
            inner.try_append(others)?;
            self.decode(values, &inner, num_values, picks)?;
            self.plain = plain;
            return Ok(());
        }
        match (&mut self.sink, codec) {
            (Sink::Narrow(out), _) => variable::decode(codec, buffers, num_values, picks, &mut self.scratch, out),
            (Sink::Wide(out), _) => variable::decode(codec, buffers, num_values, picks, &mut self.scratch, out),
            (Sink::Lists(shape, out), _) => lists(shape, buffers, num_values, picks, out),
            (Sink::Children(out), _) => {
                let values = plain_rows(buffers, num_values, out.row_bytes() * 8)?;
                picks.iter().try_for_each(|pick| out.append(values, pick.start, pick.end))
            }
            (Sink::Fixed(out @ Fixed::Bits(..)), Codec::Flat { bits }) => {
                let values = plain_rows(buffers, num_values, *bits)?;
                picks.iter().try_for_each(|pick| out.append(values, pick.start, pick.len()))
            }
            (Sink::Fixed(Fixed::Bytes(out, size)), _) => {
                fixed::check_count(codec, buffers, num_values)?;
                let bytes = bytes_of(count(picks), *size * 8)?;
                fixed::decode(codec, buffers, num_values, picks, out.grow(bytes)?)
            }
            (Sink::Fixed(Fixed::Bits(..)), _) => damaged!("values that are not made of bytes are stored plainly only"),
        }
    }

    /// The decoded bytes of fixed-width values, for look-ups.
    pub fn fixed_bytes(&self) -> Option<(&[u8], usize)> {
        match &self.sink {
            Sink::Fixed(Fixed::Bytes(out, size)) => Some((out.as_slice(), *size)),
            _ => None,
        }
    }

    pub fn into_buffers(self) -> Checked<Vec<Option<OwnedBuffer>>> {
        Ok(match self.sink {
            Sink::Fixed(out) => vec![Some(out.into_buffer())],
            Sink::Narrow(out) => out.into_buffers()?.map(Some).into(),
            Sink::Wide(out) => out.into_buffers()?.map(Some).into(),
            Sink::Lists(_, out) => out.into_buffers()?,
            Sink::Children(out) => out.into_buffers()?,
        })
    }
}

/// The only buffer of plainly stored values, its size checked.
fn plain_rows<'b>(buffers: &[&'b [u8]], num_values: usize, bits: usize) -> Checked<&'b [u8]> {
    let expected = bytes_of(num_values, bits)?;
    match buffers {
        [values] if values.len() == expected => Ok(values),
        [values] => damaged!("{num_values} values of {bits} bits in {} bytes", values.len()),
        _ => damaged!("{} buffers of plainly stored values, expected 1", buffers.len()),
    }
}

fn lists(shape: &ListShape, buffers: &[&[u8]], num_rows: usize, picks: &[Pick], out: &mut Lists) -> Checked<()> {
    let mut buffers = buffers.iter();
    let mut next = |items_per_row: usize, bits: usize| {
        let items = bytes_of(num_rows, items_per_row * 8)?;
        let expected = bytes_of(items, bits)?;
        match buffers.next() {
            Some(buffer) if buffer.len() == expected => Ok(*buffer),
            Some(buffer) => damaged!("{items} list items of {bits} bits in {} bytes", buffer.len()),
            None => damaged!("a chunk of fixed-size lists lacks a buffer"),
        }
    };
    for (&(items, _), bitmap) in shape.levels.iter().zip(&mut out.validity) {
        if let Some(bitmap) = bitmap {
            let source = next(items, 1)?;
            picks.iter().try_for_each(|pick| bitmap.append(source, pick.start * items, pick.len() * items))?;
        }
    }
    let items = shape.items_per_row();
    let source = next(items, shape.item_bits)?;
    picks.iter().try_for_each(|pick| out.items.append(source, pick.start * items, pick.len() * items))?;
    match buffers.next() {
        None => Ok(()),
        Some(_) => damaged!("a chunk of fixed-size lists has too many buffers"),
    }
}
