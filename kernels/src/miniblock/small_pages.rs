//! Encodes many small pages of plain columns in one call: from Arrow buffers to the bytes of a file and of its
//! metadata.
//!
//! Encoding a page of a few rows is cheap, but choosing its encoding column by column in Python is expensive. This
//! module makes the same choices as `encodings/write_pages.py` for columns without options, for the most common pages:
//! plain mini-blocks, constants of fixed width, all null. Everything else is left to the caller.
//!
//! ```text
//! data    chunks of the pages, each padded to 64 bytes
//! index   chunk words of the pages, in the same way
//! entry   a page's part of its column's message (`container/columns.rs`)
//! ```

use crate::buffer::{Input, OwnedBuffer};
use crate::decode::codec::Codec;
use crate::encode::bitpack::{words, PackWord};
use crate::encode::chunk_values::{Source, Values};
use crate::encode::dictionary;
use crate::encode::fixed::put_bits;
use crate::encode::level_blocks::{encode_blocks, Blocks};
use crate::encode::stats::numbers;
use crate::encode::values::{values, Job};
use crate::encode::variable::{offsets, Offset};
use crate::error::{invalid, Refused};
use crate::gil;
use crate::levels::items::repeat_under_nulls;
use crate::levels::shred::Bitmap;
use crate::miniblock::encode::{plan_flat, put_chunks, Bounds};
use crate::room::{py_bytes, vec_with_capacity, zeros, Copied, Gather, GatherResults, Grow, NoMemory, Roomy};
use pyo3::exceptions::PyMemoryError;
use pyo3::prelude::*;
use pyo3::types::PyBytes;
use std::borrow::Cow;

/// Buffers in a file begin at multiples of this; they are padded with `PAD`.
const ALIGNMENT_BYTES: usize = 64;
const PAD: u8 = b'H';
/// Number of values in the first probe, and the number of distinct ones below which a dictionary is likely.
const PROBE_VALUES: usize = 32;
const PROBE_DISTINCT_MAX: usize = 8;
const RUN_LENGTH_BYTES: usize = 1;

const ALL_VALID_ITEM: u8 = 1;
const NULLABLE_ITEM: u8 = 3;

/// Thresholds of the general writer; `PageRules` of `_kernels.pyi`.
#[pyclass(frozen, module = "lance_io._kernels")]
pub struct PageRules {
    wide_chunks: bool,
    chunk_target_bytes: usize,
    chunk_levels_max: usize,
    large_value_bytes: usize,
    coded_value_bytes_min: usize,
    coded_page_bytes_min: usize,
    dictionary: DictionaryRules,
}

struct DictionaryRules {
    values_min: usize,
    items_max: usize,
    divisor: usize,
    size_ratio: f64,
    index_bytes: usize,
}

#[pymethods]
impl PageRules {
    #[new]
    #[pyo3(signature = (
        *, wide_chunks, chunk_target_bytes, chunk_levels_max, large_value_bytes, coded_value_bytes_min,
        coded_page_bytes_min, dictionary_values_min, dictionary_items_max, dictionary_divisor, dictionary_size_ratio,
        index_bits
    ))]
    #[allow(clippy::too_many_arguments)]
    fn new(
        wide_chunks: bool,
        chunk_target_bytes: usize,
        chunk_levels_max: usize,
        large_value_bytes: usize,
        coded_value_bytes_min: usize,
        coded_page_bytes_min: usize,
        dictionary_values_min: usize,
        dictionary_items_max: usize,
        dictionary_divisor: usize,
        dictionary_size_ratio: f64,
        index_bits: usize,
    ) -> PyResult<Self> {
        if dictionary_divisor == 0 || !matches!(index_bits, 8 | 16 | 32) {
            return Err(invalid(format!("a divisor of {dictionary_divisor}, indices of {index_bits} bits")));
        }
        let dictionary = DictionaryRules {
            values_min: dictionary_values_min,
            items_max: dictionary_items_max,
            divisor: dictionary_divisor,
            size_ratio: dictionary_size_ratio,
            index_bytes: index_bits / 8,
        };
        Ok(PageRules {
            wide_chunks,
            chunk_target_bytes,
            chunk_levels_max,
            large_value_bytes,
            coded_value_bytes_min,
            coded_page_bytes_min,
            dictionary,
        })
    }
}

impl DictionaryRules {
    fn items_max(&self, num_values: usize) -> usize {
        (num_values / self.divisor).min(self.items_max)
    }

    fn bytes_max(&self, num_bytes: usize, num_values: usize) -> i64 {
        (num_bytes as f64 * self.size_ratio) as i64 - (num_values * self.index_bytes) as i64
    }
}

/// `(kind, offset, length, has_nulls, Arrow buffers)`.
type ColumnArgs<'py> = (u8, usize, usize, bool, Vec<Option<Bound<'py, PyAny>>>);

#[derive(Clone, Copy)]
enum Kind {
    /// Booleans, one bit each.
    Bits,
    /// Machine words of this many bytes.
    Words(usize),
    Variable {
        wide: bool,
        is_text: bool,
    },
}

impl Kind {
    fn new(kind: u8) -> PyResult<Self> {
        Ok(match kind {
            0 => Kind::Bits,
            1 | 2 | 4 | 8 => Kind::Words(kind as usize),
            16 => Kind::Variable { wide: false, is_text: true },
            17 => Kind::Variable { wide: true, is_text: true },
            18 => Kind::Variable { wide: false, is_text: false },
            19 => Kind::Variable { wide: true, is_text: false },
            other => return Err(invalid(format!("columns of kind {other} are unknown"))),
        })
    }
}

/// Rows of one column in Arrow's form.
struct Column<'a> {
    kind: Kind,
    offset: usize,
    length: usize,
    validity: Option<Bitmap<'a>>,
    first: &'a [u8],
    second: &'a [u8],
}

/// Visible values: complete, from the first one on, with nulls as in pages.
struct Plain<'a> {
    first: Cow<'a, [u8]>,
    second: Cow<'a, [u8]>,
    bit_offset: usize,
}

/// The parts of a page for its file; positions are relative to the start of `data` and `index`.
struct Page {
    num_rows: usize,
    layout: Vec<u8>,
    buffers: Option<Buffers>,
}

struct Buffers {
    data_at: usize,
    data_bytes: usize,
    index_at: usize,
    index_bytes: usize,
}

/// The result of encoding one column.
struct Made {
    layout: Vec<u8>,
    /// Words and chunks.
    chunks: Option<(Vec<u8>, Vec<u8>)>,
}

/// Reason why a column has no page here.
enum Left {
    /// The caller writes it, or reports its fault.
    ToCaller,
    NoMemory(PyErr),
}

type Encoded<T> = Result<T, Left>;

impl From<NoMemory> for Left {
    fn from(short: NoMemory) -> Self {
        Left::NoMemory(short.into())
    }
}

impl From<PyErr> for Left {
    fn from(error: PyErr) -> Self {
        match Python::attach(|py| error.is_instance_of::<PyMemoryError>(py)) {
            true => Left::NoMemory(error),
            false => Left::ToCaller,
        }
    }
}

impl From<Refused> for Left {
    fn from(refused: Refused) -> Self {
        match refused {
            Refused::NoMemory(_) => Left::NoMemory(refused.into()),
            _ => Left::ToCaller,
        }
    }
}

/// Pages of neighbouring columns; `SmallPages` of `_kernels.pyi`.
#[pyclass(frozen, module = "lance_io._kernels")]
pub struct SmallPages {
    pages: Vec<Page>,
    #[pyo3(get)]
    data: Py<OwnedBuffer>,
    #[pyo3(get)]
    index: Py<OwnedBuffer>,
}

#[pymethods]
impl SmallPages {
    fn __len__(&self) -> usize {
        self.pages.len()
    }

    /// `entries` of `_kernels.pyi`.
    #[pyo3(signature = (page_type, data_at, index_at, /))]
    fn entries<'py>(
        &self,
        py: Python<'py>,
        page_type: &str,
        data_at: u64,
        index_at: u64,
    ) -> PyResult<Vec<Bound<'py, PyBytes>>> {
        let name = format!("/{page_type}");
        self.pages.iter().map(|page| py_bytes(py, &page.entry(name.as_bytes(), data_at, index_at)?)).try_vec_of()
    }
}

impl Page {
    fn entry(&self, type_name: &[u8], data_at: u64, index_at: u64) -> Roomy<Vec<u8>> {
        let mut any = Message::default();
        any.bytes(1, type_name)?;
        any.bytes(2, &self.layout)?;
        let mut page = Message::default();
        if let Some(buffers) = &self.buffers {
            let offsets = [index_at + buffers.index_at as u64, data_at + buffers.data_at as u64];
            page.packed(1, &offsets)?;
            page.packed(2, &[buffers.index_bytes as u64, buffers.data_bytes as u64])?;
        }
        page.number(3, self.num_rows as u64)?;
        page.bytes(4, &wrapped(2, &wrapped(1, &any.0)?)?)?;
        wrapped(2, &page.0)
    }
}

/// A protobuf message being written: fields in the order of their numbers; zeros are omitted.
#[derive(Default)]
struct Message(Vec<u8>);

impl Message {
    fn varint(&mut self, mut value: u64) -> Roomy<()> {
        while value >= 0x80 {
            self.0.try_push(value as u8 | 0x80)?;
            value >>= 7;
        }
        self.0.try_push(value as u8)
    }

    fn number(&mut self, field: u8, value: u64) -> Roomy<()> {
        if value != 0 {
            self.0.try_push(field << 3)?;
            self.varint(value)?;
        }
        Ok(())
    }

    fn bytes(&mut self, field: u8, bytes: &[u8]) -> Roomy<()> {
        self.0.try_push(field << 3 | 2)?;
        self.varint(bytes.len() as u64)?;
        self.0.try_append(bytes)
    }

    fn packed(&mut self, field: u8, values: &[u64]) -> Roomy<()> {
        let mut inner = Message::default();
        values.iter().try_for_each(|&value| inner.varint(value))?;
        self.bytes(field, &inner.0)
    }
}

/// A message with a single field, which is a message, too.
fn wrapped(field: u8, inner: &[u8]) -> Roomy<Vec<u8>> {
    let mut message = Message::default();
    message.bytes(field, inner)?;
    Ok(message.0)
}

fn flat_message(bits: usize) -> Roomy<Vec<u8>> {
    let mut flat = Message::default();
    flat.number(1, bits as u64)?;
    wrapped(1, &flat.0)
}

/// The message of a codec of values, for the codecs that are chosen here.
fn codec_message(codec: &Codec) -> Roomy<Vec<u8>> {
    match codec {
        Codec::Variable { wide } => wrapped(2, &wrapped(1, &flat_message(if *wide { 64 } else { 32 })?)?),
        Codec::Inline { bits } => inline_message(*bits),
        Codec::Rle { bits } => rle_message(*bits),
        codec => flat_message(codec.bits().unwrap_or(0)),
    }
}

fn inline_message(bits: usize) -> Roomy<Vec<u8>> {
    let mut inline = Message::default();
    inline.number(1, bits as u64)?;
    wrapped(5, &inline.0)
}

fn rle_message(bits: usize) -> Roomy<Vec<u8>> {
    let mut rle = Message::default();
    rle.bytes(1, &flat_message(bits)?)?;
    rle.bytes(2, &flat_message(8)?)?;
    wrapped(8, &rle.0)
}

/// The message of a codec of levels.
fn levels_message(blocks: &Blocks) -> Roomy<Vec<u8>> {
    const LEVEL_BITS: usize = 16;
    match blocks.op {
        4 => {
            let mut packed = Message::default();
            packed.number(1, LEVEL_BITS as u64)?;
            packed.bytes(3, &flat_message(blocks.width)?)?;
            wrapped(4, &packed.0)
        }
        5 => inline_message(LEVEL_BITS),
        8 => rle_message(LEVEL_BITS),
        _ => flat_message(blocks.width),
    }
}

fn constant_layout(layer: u8, value: Option<&[u8]>) -> Roomy<Vec<u8>> {
    let mut constant = Message::default();
    constant.bytes(5, &[layer])?;
    if let Some(value) = value {
        constant.bytes(6, value)?;
    }
    wrapped(2, &constant.0)
}

impl<'a> Column<'a> {
    fn new(args: &ColumnArgs<'_>, held: &'a [Option<Input>]) -> PyResult<Self> {
        let (kind, offset, length, has_nulls, _) = args;
        let buffer = |at: usize| held.get(at).and_then(Option::as_ref).map(Input::bytes);
        let validity = if *has_nulls { buffer(0) } else { None };
        let validity = validity.map(|bytes| Bitmap { bytes, offset: *offset });
        let (first, second) = (buffer(1).unwrap_or_default(), buffer(2).unwrap_or_default());
        Ok(Column { kind: Kind::new(*kind)?, offset: *offset, length: *length, validity, first, second })
    }

    /// Columns with short buffers are left to the caller, which has the error messages for them.
    fn encode(&self, rules: &PageRules) -> Encoded<Made> {
        let nulls = self.nulls()?;
        if self.length == 0 {
            return Err(Left::ToCaller);
        }
        if nulls.len() == self.length {
            return Ok(Made { layout: constant_layout(NULLABLE_ITEM, None)?, chunks: None });
        }
        let plain = self.plain(&nulls)?;
        if rules.wide_chunks && self.is_constant(&plain, &nulls)? {
            return match self.kind {
                _ if !nulls.is_empty() => Err(Left::ToCaller),
                Kind::Words(size) => self.constant(&plain.first[..size]),
                Kind::Bits => self.constant(&[plain.first[0] >> plain.bit_offset & 1]),
                Kind::Variable { .. } => Err(Left::ToCaller),
            };
        }
        let codec = self.codec(&plain, rules)?;
        self.miniblock(&plain, &codec, &nulls, rules)
    }

    fn constant(&self, value: &[u8]) -> Encoded<Made> {
        Ok(Made { layout: constant_layout(ALL_VALID_ITEM, Some(value))?, chunks: None })
    }

    /// Null rows, ascending.
    fn nulls(&self) -> Encoded<Vec<usize>> {
        let mut nulls = Vec::new();
        if let Some(validity) = &self.validity {
            validity.check(self.length)?;
            validity.zeros(0, self.length, |row| nulls.try_push(row))?;
        }
        Ok(nulls)
    }

    fn plain(&self, nulls: &[usize]) -> Encoded<Plain<'a>> {
        let end = self.offset.checked_add(self.length).ok_or(Left::ToCaller)?;
        match self.kind {
            Kind::Bits => {
                let bytes = self.first.get(self.offset / 8..end.div_ceil(8)).ok_or(Left::ToCaller)?;
                let bit_offset = self.offset % 8;
                if nulls.is_empty() {
                    return Ok(Plain { first: Cow::Borrowed(bytes), second: Cow::default(), bit_offset });
                }
                let mut bits = Vec::new();
                put_bits(bytes, bit_offset, self.length, &mut bits)?;
                nulls.iter().for_each(|null| bits[null / 8] &= !(1 << (null % 8)));
                Ok(Plain { first: Cow::Owned(bits), second: Cow::default(), bit_offset: 0 })
            }
            Kind::Words(size) => {
                let bytes = slice(self.first, self.offset, end, size)?;
                let first = match nulls.is_empty() {
                    true => Cow::Borrowed(bytes),
                    false => {
                        let mut values = bytes.try_to_vec()?;
                        repeat_under_nulls(&mut values, size, nulls);
                        Cow::Owned(values)
                    }
                };
                Ok(Plain { first, second: Cow::default(), bit_offset: 0 })
            }
            Kind::Variable { wide, .. } => {
                let size = if wide { 8 } else { 4 };
                let table = slice(self.first, self.offset, end.saturating_add(1), size)?;
                let (first, second) = match (nulls.is_empty(), wide) {
                    (true, _) => (Cow::Borrowed(table), Cow::Borrowed(self.second)),
                    (false, false) => without_nulls::<u32>(table, self.second, self.length, nulls)?,
                    (false, true) => without_nulls::<u64>(table, self.second, self.length, nulls)?,
                };
                Ok(Plain { first, second, bit_offset: 0 })
            }
        }
    }

    /// Whether all non-null values are equal.
    fn is_constant(&self, plain: &Plain<'_>, nulls: &[usize]) -> Encoded<bool> {
        Ok(match self.kind {
            Kind::Words(size) => {
                let mut words = plain.first.chunks_exact(size);
                let first = words.next();
                words.all(|word| Some(word) == first)
            }
            Kind::Bits => {
                let bit = |row: usize| {
                    let at = plain.bit_offset + row;
                    plain.first[at / 8] >> (at % 8) & 1
                };
                let ones: usize = (0..self.length).map(|row| bit(row) as usize).sum();
                ones == 0 || ones == self.length - nulls.len()
            }
            Kind::Variable { wide: false, .. } => strings_alike::<u32>(plain, self.length, nulls)?,
            Kind::Variable { wide: true, .. } => strings_alike::<u64>(plain, self.length, nulls)?,
        })
    }

    /// The codec for chunks of these values; left to the caller if they need something else.
    fn codec(&self, plain: &Plain<'_>, rules: &PageRules) -> Encoded<Codec> {
        match self.kind {
            Kind::Bits => Ok(Codec::Flat { bits: 1 }),
            Kind::Words(1) => word_codec::<u8>(&plain.first, self.length),
            Kind::Words(2) => word_codec::<u16>(&plain.first, self.length),
            Kind::Words(4) => word_codec::<u32>(&plain.first, self.length),
            Kind::Words(_) => {
                let values = words::<u64>(&plain.first, self.length)?;
                match rules.wide_chunks && words_want_dictionary(&values, &rules.dictionary)? {
                    true => Err(Left::ToCaller),
                    false => word_codec::<u64>(&plain.first, self.length),
                }
            }
            Kind::Variable { wide: false, is_text } => string_codec::<u32>(plain, self.length, is_text, rules),
            Kind::Variable { wide: true, is_text } => string_codec::<u64>(plain, self.length, is_text, rules),
        }
    }

    fn miniblock(&self, plain: &Plain<'_>, codec: &Codec, nulls: &[usize], rules: &PageRules) -> Encoded<Made> {
        let wide = rules.wide_chunks;
        let first = Source { bytes: &plain.first, bit_offset: plain.bit_offset };
        let second = Source { bytes: &plain.second, bit_offset: 0 };
        let sources = [first, second];
        let sources = if matches!(self.kind, Kind::Variable { .. }) { &sources[..] } else { &sources[..1] };
        let num_values = self.length;
        let job = Job { sources, num_values, target_bytes: rules.chunk_target_bytes, level: None };
        let mut values: Box<dyn Values + '_> = values(codec, &job)?;
        let bounds = plan_flat(&*values, num_values, rules.chunk_levels_max)?.ok_or(Left::ToCaller)?;
        let levels = (!nulls.is_empty()).then(|| self.levels(nulls, &bounds, wide)).transpose()?;
        let blocks = levels.iter().map(|blocks| (&blocks.data[..], Cow::Borrowed(&blocks.offsets[..]))).try_vec()?;
        let room = plain.first.len() + 64;
        let chunks = put_chunks(wide, &mut *values, Bounds { items: &bounds, levels: &bounds }, &blocks, room)?;
        let chunks = chunks.ok_or(Left::ToCaller)?;
        let mut layout = Message::default();
        if let Some(blocks) = &levels {
            layout.bytes(2, &levels_message(blocks)?)?;
        }
        layout.bytes(3, &codec_message(codec)?)?;
        layout.bytes(6, &[if nulls.is_empty() { ALL_VALID_ITEM } else { NULLABLE_ITEM }])?;
        layout.number(7, values.num_buffers() as u64)?;
        layout.number(9, num_values as u64)?;
        layout.number(10, wide as u64)?;
        Ok(Made { layout: wrapped(1, &layout.0)?, chunks: Some(chunks) })
    }

    /// Definition levels: 1 for a null.
    fn levels(&self, nulls: &[usize], bounds: &[i64], with_rle: bool) -> Roomy<Blocks> {
        let mut levels: Vec<u16> = zeros(self.length)?;
        nulls.iter().for_each(|&null| levels[null] = 1);
        let blocks = bounds.windows(2).map(|pair| &levels[pair[0] as usize..pair[1] as usize]).try_vec()?;
        encode_blocks(&blocks, with_rle)
    }
}

/// Items of this many bytes.
fn slice(bytes: &[u8], start: usize, end: usize, size: usize) -> Encoded<&[u8]> {
    let range = start.checked_mul(size).zip(end.checked_mul(size));
    range.and_then(|(start, end)| bytes.get(start..end)).ok_or(Left::ToCaller)
}

/// Offsets and bytes.
type Strings = (Cow<'static, [u8]>, Cow<'static, [u8]>);

/// Offsets and bytes, without bytes under nulls.
fn without_nulls<T: Offset>(table: &[u8], data: &[u8], num_values: usize, nulls: &[usize]) -> Encoded<Strings> {
    let offsets = offsets::<T>(table, data, num_values)?;
    let (mut ends, mut bytes) = (vec![T::from_usize(0)], Vec::new());
    let mut nulls = nulls.iter().copied().peekable();
    for (row, pair) in offsets.windows(2).enumerate() {
        if nulls.next_if_eq(&row).is_none() {
            bytes.try_append(&data[pair[0].to_usize()..pair[1].to_usize()])?;
        }
        ends.try_push(T::from_usize(bytes.len()))?;
    }
    Ok((Cow::Owned(bytemuck::cast_slice(&ends).try_to_vec()?), Cow::Owned(bytes)))
}

fn strings_alike<T: Offset>(plain: &Plain<'_>, num_values: usize, nulls: &[usize]) -> Encoded<bool> {
    let offsets = offsets::<T>(&plain.first, &plain.second, num_values)?;
    let mut nulls = nulls.iter().copied().peekable();
    let mut known: Option<&[u8]> = None;
    for (row, pair) in offsets.windows(2).enumerate() {
        if nulls.next_if_eq(&row).is_some() {
            continue;
        }
        let value = &plain.second[pair[0].to_usize()..pair[1].to_usize()];
        if *known.get_or_insert(value) != value {
            return Ok(false);
        }
    }
    Ok(true)
}

fn word_codec<T: PackWord>(bytes: &[u8], num_values: usize) -> Encoded<Codec> {
    let values = words::<T>(bytes, num_values)?;
    let (runs, packed_bytes, _) = numbers(&values);
    let plain_bytes = num_values * T::BITS / 8;
    let run_bytes = runs * (T::BITS / 8 + RUN_LENGTH_BYTES);
    let bits = T::BITS;
    Ok(if run_bytes < plain_bytes && run_bytes <= packed_bytes {
        Codec::Rle { bits }
    } else if packed_bytes < plain_bytes {
        Codec::Inline { bits }
    } else {
        Codec::Flat { bits }
    })
}

/// Whether words have few distinct values; the caller decides whether a dictionary pays off.
fn words_want_dictionary(values: &[u64], rules: &DictionaryRules) -> Roomy<bool> {
    let num_values = values.len();
    if num_values < rules.values_min {
        return Ok(false);
    }
    let (runs, packed_bytes, _) = numbers(values);
    let plain_bytes = num_values * 8;
    let run_bytes = runs * (8 + RUN_LENGTH_BYTES);
    let index_run_bytes = runs * (rules.index_bytes + RUN_LENGTH_BYTES);
    let direct_bytes = plain_bytes.min(packed_bytes).min(run_bytes);
    let mut items_max = rules.items_max(num_values);
    if index_run_bytes >= direct_bytes {
        let index_bits = ((direct_bytes * 8 - 1) / num_values).min(rules.index_bytes * 8);
        let left_bytes = direct_bytes - num_values * index_bits / 8;
        items_max = items_max.min((1 << index_bits).min(left_bytes.max((1 << index_bits) >> 1)));
    }
    let saved_max = direct_bytes as i64 - index_run_bytes.min(num_values / 8) as i64;
    let bytes_max = rules.bytes_max(plain_bytes, num_values).min(saved_max);
    if items_max == 0 || bytes_max <= 0 {
        return Ok(false);
    }
    Ok(repeats(values.iter())? || dictionary::has_words(values, items_max, bytes_max as usize)?)
}

/// Whether the first values have so few distinct ones that a dictionary is likely. Then the page is left to the caller,
/// which builds the dictionary: doing so here would be wasted.
fn repeats<V: PartialEq>(values: impl Iterator<Item = V>) -> Roomy<bool> {
    let mut seen = vec_with_capacity(PROBE_DISTINCT_MAX)?;
    for value in values.take(PROBE_VALUES) {
        if !seen.contains(&value) {
            if seen.len() == PROBE_DISTINCT_MAX {
                return Ok(false);
            }
            seen.try_push(value)?;
        }
    }
    Ok(true)
}

/// Plain strings that are short, few and mostly distinct.
fn string_codec<T: Offset>(plain: &Plain<'_>, num_values: usize, is_text: bool, rules: &PageRules) -> Encoded<Codec> {
    let offsets = offsets::<T>(&plain.first, &plain.second, num_values)?;
    let longest = offsets.windows(2).map(|pair| pair[1].to_usize() - pair[0].to_usize()).max().unwrap_or(0);
    let num_bytes = plain.first.len() + plain.second.len();
    let is_coded = is_text && num_bytes >= rules.coded_page_bytes_min && longest >= rules.coded_value_bytes_min;
    if longest >= rules.large_value_bytes || is_coded {
        return Err(Left::ToCaller);
    }
    if num_values >= rules.dictionary.values_min {
        let items_max = rules.dictionary.items_max(num_values);
        let bytes_max = rules.dictionary.bytes_max(num_bytes, num_values);
        let texts = offsets.windows(2).map(|pair| &plain.second[pair[0].to_usize()..pair[1].to_usize()]);
        if bytes_max > 0
            && (repeats(texts)? || dictionary::has_variable(&offsets, &plain.second, items_max, bytes_max as usize)?)
        {
            return Err(Left::ToCaller);
        }
    }
    Ok(Codec::Variable { wide: size_of::<T>() == 8 })
}

/// Pages of neighbouring columns, under construction.
#[derive(Default)]
struct Run {
    first: usize,
    pages: Vec<Page>,
    data: Vec<u8>,
    index: Vec<u8>,
}

impl Run {
    fn add(&mut self, num_rows: usize, made: Made) -> Roomy<()> {
        let buffers = made.chunks.map(|(words, chunks)| {
            let (index_at, index_bytes) = append(&mut self.index, &words)?;
            let (data_at, data_bytes) = append(&mut self.data, &chunks)?;
            Roomy::Ok(Buffers { data_at, data_bytes, index_at, index_bytes })
        });
        self.pages.try_push(Page { num_rows, layout: made.layout, buffers: buffers.transpose()? })
    }

    fn into_python(self, py: Python<'_>) -> PyResult<(usize, SmallPages)> {
        let data = Py::new(py, OwnedBuffer::from(self.data))?;
        let index = Py::new(py, OwnedBuffer::from(self.index))?;
        Ok((self.first, SmallPages { pages: self.pages, data, index }))
    }
}

/// Append one buffer of a file; returns its start and size.
fn append(out: &mut Vec<u8>, bytes: &[u8]) -> Roomy<(usize, usize)> {
    let at = out.len();
    out.try_append(bytes)?;
    out.try_resize(out.len().next_multiple_of(ALIGNMENT_BYTES), PAD)?;
    Ok((at, bytes.len()))
}

/// `encode_small_pages` of `_kernels.pyi`.
#[pyfunction]
#[pyo3(signature = (columns, rules, /))]
pub fn encode_small_pages<'py>(
    py: Python<'py>,
    columns: Vec<ColumnArgs<'py>>,
    rules: &Bound<'py, PageRules>,
) -> PyResult<Vec<(usize, SmallPages)>> {
    let held: Vec<Vec<Option<Input>>> = columns
        .iter()
        .map(|(.., buffers)| buffers.iter().map(|one| one.as_ref().map(Input::new).transpose()).try_vec_of())
        .try_vec_of()?;
    let taken: Vec<Column<'_>> = columns.iter().zip(&held).map(|(args, held)| Column::new(args, held)).try_vec_of()?;
    let steps = taken.iter().fold(0usize, |steps, column| steps.saturating_add(column.length).saturating_add(64));
    let rules = rules.get();
    let runs = gil::release(py, steps, || {
        let mut runs: Vec<Run> = Vec::new();
        for (at, column) in taken.iter().enumerate() {
            let made = match column.encode(rules) {
                Ok(made) => made,
                Err(Left::ToCaller) => continue,
                Err(Left::NoMemory(error)) => return Err(error),
            };
            if runs.last().is_none_or(|run| run.first + run.pages.len() != at) {
                runs.try_push(Run { first: at, ..Run::default() })?;
            }
            if let Some(run) = runs.last_mut() {
                run.add(column.length, made)?;
            }
        }
        Ok(runs)
    })?;
    runs.into_iter().map(|run| run.into_python(py)).try_vec_of()
}
