//! The value side of a mini-block page: chunk after chunk of value buffers to the output buffers of a leaf.

use crate::buffer::OwnedBuffer;
use crate::codec::{invalid, Codec};
use crate::damaged;
use crate::error::Checked;
use crate::fixed;
use crate::fsst::{Decoder, SymbolTable};
use crate::general::Inflater;
use crate::sink::{bytes_of, count, Bits, Bytes, Offset, Pick, Strings};
use pyo3::PyResult;

/// Fixed-width values, of whole bytes or of bits.
pub enum Fixed {
    Bytes(Bytes, usize),
    Bits(Bits, usize),
}

impl Fixed {
    pub fn with_capacity(bits: usize, count: usize) -> Checked<Self> {
        let bytes = bytes_of(count, bits)?;
        Ok(match bits % 8 {
            0 => Fixed::Bytes(Bytes::with_capacity(bytes)?, bits / 8),
            _ => Fixed::Bits(Bits::with_capacity(bytes * 8)?, bits),
        })
    }

    /// Append values `start .. start + count` of plainly stored ones; the caller has checked that they are there.
    pub fn append(&mut self, source: &[u8], start: usize, count: usize) {
        match self {
            Fixed::Bytes(out, size) => {
                out.grow(count * *size).copy_from_slice(&source[start * *size..(start + count) * *size]);
            }
            Fixed::Bits(out, bits) => out.append(source, start * *bits, count * *bits),
        }
    }

    pub fn into_buffer(self) -> OwnedBuffer {
        match self {
            Fixed::Bytes(out, _) => out.into_buffer(),
            Fixed::Bits(out, _) => out.into_buffer(),
        }
    }
}

/// The lists of a FIXED_SIZE_LIST codec, outermost first, over flat items.
pub struct ListShape {
    /// Per list level: items in one row down to that level, and whether they have a validity bitmap.
    pub levels: Vec<(usize, bool)>,
    pub item_bits: usize,
}

impl ListShape {
    pub fn new(codec: &Codec) -> PyResult<Self> {
        let mut levels = Vec::new();
        let (mut codec, mut items_per_row) = (codec, 1usize);
        while let Codec::FixedSizeList { items, has_validity, values } = codec {
            items_per_row = match items_per_row.checked_mul(*items) {
                Some(product) if product <= u32::MAX as usize => product,
                _ => return Err(invalid("fixed-size lists hold more than 2^32 items per row")),
            };
            levels.push((items_per_row, *has_validity));
            codec = values;
        }
        match codec.bits() {
            Some(item_bits) => Ok(ListShape { levels, item_bits }),
            None => Err(invalid("a fixed-size list of variable-width items")),
        }
    }

    pub fn items_per_row(&self) -> usize {
        self.levels.last().map_or(1, |&(items, _)| items)
    }
}

/// Outputs of rows of fixed-size lists.
pub struct Lists {
    pub validity: Vec<Option<Bits>>,
    pub items: Fixed,
}

impl Lists {
    pub fn with_capacity(shape: &ListShape, rows: usize) -> Checked<Self> {
        let bitmap = |&(items, has_validity): &(usize, bool)| {
            has_validity.then(|| Bits::with_capacity(bytes_of(rows, items)?.saturating_mul(8))).transpose()
        };
        let validity = shape.levels.iter().map(bitmap).collect::<Checked<_>>()?;
        // `append` counts rows for the bitmaps and items here, so that bits restart nowhere.
        let items = Fixed::with_capacity(shape.item_bits, bytes_of(rows, shape.items_per_row() * 8)?)?;
        Ok(Lists { validity, items })
    }

    pub fn into_buffers(self) -> Vec<Option<OwnedBuffer>> {
        let validity = self.validity.into_iter().map(|bits| bits.map(Bits::into_buffer));
        validity.chain([Some(self.items.into_buffer())]).collect()
    }
}

/// Outputs of a packed struct, one per child.
pub struct Children {
    sizes: Vec<usize>,
    row_bytes: usize,
    outputs: Vec<Bytes>,
}

impl Children {
    pub fn with_capacity(bits: &[usize], rows: usize) -> Checked<Self> {
        let outputs = bits.iter().map(|&bits| Bytes::with_capacity(bytes_of(rows, bits)?)).collect::<Checked<_>>()?;
        let sizes: Vec<usize> = bits.iter().map(|bits| bits / 8).collect();
        Ok(Children { row_bytes: sizes.iter().sum(), sizes, outputs })
    }

    /// Append rows `start .. end` of those in `source`.
    pub fn append(&mut self, source: &[u8], start: usize, end: usize) {
        let rows = &source[start * self.row_bytes..end * self.row_bytes];
        let mut at = 0;
        for (&size, output) in self.sizes.iter().zip(&mut self.outputs) {
            let out = output.grow((end - start) * size);
            match size {
                1 => column::<1>(rows, self.row_bytes, at, out),
                2 => column::<2>(rows, self.row_bytes, at, out),
                4 => column::<4>(rows, self.row_bytes, at, out),
                8 => column::<8>(rows, self.row_bytes, at, out),
                _ => {
                    for (slot, row) in out.chunks_exact_mut(size).zip(rows.chunks_exact(self.row_bytes)) {
                        slot.copy_from_slice(&row[at..at + size]);
                    }
                }
            }
            at += size;
        }
    }

    pub fn into_buffers(self) -> Vec<Option<OwnedBuffer>> {
        self.outputs.into_iter().map(|output| Some(output.into_buffer())).collect()
    }
}

fn column<const SIZE: usize>(rows: &[u8], row_bytes: usize, at: usize, out: &mut [u8]) {
    for (slot, row) in out.chunks_exact_mut(SIZE).zip(rows.chunks_exact(row_bytes)) {
        slot.copy_from_slice(&row[at..at + SIZE]);
    }
}

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
    window: Vec<u8>,
}

impl<'a> Values<'a> {
    /// `count` values will be decoded, of chunks that hold about `bytes` bytes.
    pub fn new(codec: &'a Codec, count: usize, bytes: usize) -> PyResult<Self> {
        let mut plain = codec;
        while let Codec::General { values, .. } = plain {
            plain = values;
        }
        let sink = match plain {
            Codec::Variable { wide } | Codec::Fsst { wide, .. } => match wide {
                false => Sink::Narrow(Strings::with_capacity(count, bytes)?),
                true => Sink::Wide(Strings::with_capacity(count, bytes)?),
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
        Ok(Values { codec, sink, inflater: Inflater::default(), plain: Vec::new(), window: Vec::new() })
    }

    /// Decode the picked values of one chunk that holds `num_values`.
    pub fn chunk(&mut self, buffers: &[&[u8]], num_values: usize, picks: &[Pick]) -> Checked<()> {
        self.decode(self.codec, buffers, num_values, picks)
    }

    fn decode(&mut self, codec: &Codec, buffers: &[&[u8]], num_values: usize, picks: &[Pick]) -> Checked<()> {
        if let Codec::General { scheme, values } = codec {
            let [first, others @ ..] = buffers else { return damaged!("a compressed chunk has no buffer") };
            let mut plain = std::mem::take(&mut self.plain);
            self.inflater.inflate(*scheme, first, fixed::first_buffer_bytes_max(values, num_values), &mut plain)?;
            let mut inner: Vec<&[u8]> = vec![&plain];
            inner.extend_from_slice(others);
            self.decode(values, &inner, num_values, picks)?;
            self.plain = plain;
            return Ok(());
        }
        match (&mut self.sink, codec) {
            (Sink::Narrow(out), _) => strings(codec, buffers, num_values, picks, &mut self.window, out),
            (Sink::Wide(out), _) => strings(codec, buffers, num_values, picks, &mut self.window, out),
            (Sink::Lists(shape, out), _) => lists(shape, buffers, num_values, picks, out),
            (Sink::Children(out), _) => {
                let values = plain_rows(buffers, num_values, out.row_bytes * 8)?;
                picks.iter().for_each(|pick| out.append(values, pick.start, pick.end));
                Ok(())
            }
            (Sink::Fixed(out @ Fixed::Bits(..)), Codec::Flat { bits }) => {
                let values = plain_rows(buffers, num_values, *bits)?;
                picks.iter().for_each(|pick| out.append(values, pick.start, pick.len()));
                Ok(())
            }
            (Sink::Fixed(Fixed::Bytes(out, size)), _) => {
                let bytes = bytes_of(count(picks), *size * 8)?;
                fixed::decode(codec, buffers, num_values, picks, out.grow(bytes))
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
            Sink::Lists(_, out) => out.into_buffers(),
            Sink::Children(out) => out.into_buffers(),
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
            picks.iter().for_each(|pick| bitmap.append(source, pick.start * items, pick.len() * items));
        }
    }
    let items = shape.items_per_row();
    let source = next(items, shape.item_bits)?;
    picks.iter().for_each(|pick| out.items.append(source, pick.start * items, pick.len() * items));
    match buffers.next() {
        None => Ok(()),
        Some(_) => damaged!("a chunk of fixed-size lists has too many buffers"),
    }
}

/// Variable-width values of one chunk (spec: encodings, 4.2): n+1 offsets from the start of the buffer, then bytes.
fn strings<O: Offset>(
    codec: &Codec,
    buffers: &[&[u8]],
    num_values: usize,
    picks: &[Pick],
    window: &mut Vec<u8>,
    out: &mut Strings<O>,
) -> Checked<()> {
    let [buffer] = buffers else { return damaged!("{} buffers of variable-width values, expected 1", buffers.len()) };
    let table_bytes = (num_values + 1) * O::BYTES;
    let Some(table) = buffer.get(..table_bytes) else {
        return damaged!("{num_values} values have {table_bytes} bytes of offsets, the buffer {}", buffer.len());
    };
    let table = match codec {
        Codec::Fsst { table: symbols, .. } if symbols.coded => {
            return coded_strings(symbols, table, buffer, picks, window, out);
        }
        _ => table,
    };
    for pick in picks {
        let offsets = &table[pick.start * O::BYTES..(pick.end + 1) * O::BYTES];
        let (first, last) = bounds::<O>(offsets, table_bytes, buffer.len())?;
        let base = out.data.len();
        let rebased = offsets[O::BYTES..].chunks_exact(O::BYTES).map(|raw| O::wrap(base + (O::read(raw) - first)));
        out.offsets.extend(rebased);
        out.data.extend_from_slice(&buffer[first..last]);
    }
    Ok(())
}

/// First and last of a run of offsets, which ascend and lie between the table and the end of the buffer.
fn bounds<O: Offset>(offsets: &[u8], table_bytes: usize, buffer_bytes: usize) -> Checked<(usize, usize)> {
    let (first, last) = (O::read(offsets), O::read(&offsets[offsets.len() - O::BYTES..]));
    let pairs = offsets.chunks_exact(O::BYTES).zip(offsets[O::BYTES..].chunks_exact(O::BYTES));
    let descending = pairs.fold(false, |found, (a, b)| found | (O::read(a) > O::read(b)));
    if descending || first < table_bytes || last > buffer_bytes {
        return damaged!("value offsets {first}..{last} do not ascend from {table_bytes} to {buffer_bytes}");
    }
    Ok((first, last))
}

fn coded_strings<O: Offset>(
    symbols: &SymbolTable,
    table: &[u8],
    buffer: &[u8],
    picks: &[Pick],
    window: &mut Vec<u8>,
    out: &mut Strings<O>,
) -> Checked<()> {
    let mut decoder = Decoder::new(symbols, window);
    for pick in picks {
        let offsets = &table[pick.start * O::BYTES..(pick.end + 1) * O::BYTES];
        let (mut start, _) = bounds::<O>(offsets, table.len(), buffer.len())?;
        for raw in offsets[O::BYTES..].chunks_exact(O::BYTES) {
            let end = O::read(raw);
            let length = decoder.value(&buffer[start..end], &mut out.data)?;
            out.offsets.push(O::wrap(length));
            start = end;
        }
    }
    decoder.flush(&mut out.data);
    Ok(())
}
