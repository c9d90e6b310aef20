//! Codec programs: parses the bytes that `lance_io.codecs.tree` compiles an encoding message to into a tree.
//!
//! The grammar is in `lance_io/_kernels.pyi`. A program comes from the caller, not from a file's data, so a parse error
//! is a `ValueError`; the numbers in it do come from the file and are checked when they are used.

use crate::decode::fsst::SymbolTable;
use crate::error::invalid;
use crate::room::{Copied, Grow};
use pyo3::PyResult;

/// Fixed-size lists nest up to 32 deep, other messages a handful; anything more is an attack on the stack.
const DEPTH_MAX: usize = 40;
/// Widest fixed-width value: 2^31 bits are 256 MiB.
const BITS_MAX: u32 = 1 << 31;
/// Limit of a value's decoded size, unless the program has another.
pub const VALUE_BYTES_MAX: usize = 1 << 31;

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Scheme {
    Lz4,
    Zstd,
}

/// A codec; a frame of `General` decodes to at most `bytes_max` bytes.
pub enum Codec {
    Flat { bits: usize },
    Variable { wide: bool },
    Constant(Vec<u8>),
    OutOfLine { bits: usize, packed: usize },
    Inline { bits: usize },
    Fsst { table: Box<SymbolTable>, wide: bool },
    Rle { bits: usize },
    ByteSplit { bits: usize },
    General { scheme: Scheme, values: Box<Codec>, bytes_max: usize },
    FixedSizeList { items: usize, has_validity: bool, values: Box<Codec> },
    PackedStruct { bits: Vec<usize> },
    VariablePacked { children: Vec<Child> },
}

/// One child of a variable packed struct; variable-width children carry a length prefix of `prefix_bytes`.
pub struct Child {
    pub prefix_bytes: Option<usize>,
    pub bits: usize,
    pub codec: Codec,
}

impl Codec {
    /// Width of one value if the codec decodes to fixed-width values.
    pub fn bits(&self) -> Option<usize> {
        match self {
            Codec::Flat { bits } | Codec::OutOfLine { bits, .. } | Codec::Inline { bits } => Some(*bits),
            Codec::Rle { bits } | Codec::ByteSplit { bits } => Some(*bits),
            Codec::Constant(value) => Some(value.len() * 8),
            Codec::General { values, .. } => values.bits(),
            Codec::PackedStruct { bits } => Some(bits.iter().sum()),
            Codec::Variable { .. } | Codec::Fsst { .. } => None,
            Codec::FixedSizeList { .. } | Codec::VariablePacked { .. } => None,
        }
    }
}

/// A cursor over a program.
pub struct Program<'a> {
    rest: &'a [u8],
    bytes_max: usize,
}

impl<'a> Program<'a> {
    pub fn new(bytes: &'a [u8]) -> Self {
        Program { rest: bytes, bytes_max: VALUE_BYTES_MAX }
    }

    pub fn take(&mut self, count: usize) -> PyResult<&'a [u8]> {
        if count > self.rest.len() {
            return Err(invalid(format!("program ends early: {count} bytes wanted, {} left", self.rest.len())));
        }
        let (taken, rest) = self.rest.split_at(count);
        self.rest = rest;
        Ok(taken)
    }

    pub fn u8(&mut self) -> PyResult<u8> {
        Ok(self.take(1)?[0])
    }

    pub fn u32(&mut self) -> PyResult<u32> {
        let bytes = self.take(4)?;
        Ok(u32::from_le_bytes([bytes[0], bytes[1], bytes[2], bytes[3]]))
    }

    pub fn rest(&self) -> &'a [u8] {
        self.rest
    }

    pub fn finish(&self) -> PyResult<()> {
        match self.rest.len() {
            0 => Ok(()),
            left => Err(invalid(format!("{left} bytes left over at the end of the program"))),
        }
    }

    /// A width in bits, above 0.
    pub fn bits(&mut self) -> PyResult<usize> {
        match self.u32()? {
            bits @ 1..=BITS_MAX => Ok(bits as usize),
            bits => Err(invalid(format!("a value of {bits} bits is out of range"))),
        }
    }

    /// The width of a machine word.
    fn word_bits(&mut self) -> PyResult<usize> {
        match self.u8()? {
            bits @ (8 | 16 | 32 | 64) => Ok(bits as usize),
            bits => Err(invalid(format!("words have 8, 16, 32 or 64 bits, not {bits}"))),
        }
    }

    /// Offsets or lengths: true for 64 bits, false for 32.
    pub fn wide(&mut self) -> PyResult<bool> {
        match self.u8()? {
            32 => Ok(false),
            64 => Ok(true),
            bits => Err(invalid(format!("offsets have 32 or 64 bits, not {bits}"))),
        }
    }

    pub fn codec(&mut self) -> PyResult<Codec> {
        self.codec_at(0)
    }

    fn codec_at(&mut self, depth: usize) -> PyResult<Codec> {
        if depth > DEPTH_MAX {
            return Err(invalid(format!("codecs nest deeper than {DEPTH_MAX}")));
        }
        Ok(match self.u8()? {
            1 => Codec::Flat { bits: self.bits()? },
            2 => Codec::Variable { wide: self.wide()? },
            3 => {
                let length = self.u32()? as usize;
                Codec::Constant(self.take(length)?.try_to_vec()?)
            }
            4 => self.out_of_line()?,
            5 => Codec::Inline { bits: self.word_bits()? },
            6 => self.fsst(depth)?,
            8 => self.rle(depth)?,
            9 => match self.flat(depth, "byte stream split")? {
                bits @ (32 | 64) => Codec::ByteSplit { bits },
                bits => return Err(invalid(format!("byte stream split of {bits}-bit values"))),
            },
            10 => self.general(depth)?,
            11 => self.fixed_size_list(depth)?,
            12 => self.packed_struct(depth)?,
            13 => self.variable_packed(depth)?,
            14 if depth == 0 => {
                let number = self.take(8)?.iter().rev().fold(0, |all, &byte| all << 8 | u64::from(byte));
                self.bytes_max = usize::try_from(number).unwrap_or(usize::MAX);
                self.codec_at(depth + 1)?
            }
            op => return Err(invalid(format!("unknown codec op {op}"))),
        })
    }

    fn flat(&mut self, depth: usize, place: &str) -> PyResult<usize> {
        match self.codec_at(depth + 1)? {
            Codec::Flat { bits } => Ok(bits),
            _ => Err(invalid(format!("{place} holds something else than flat values"))),
        }
    }

    fn out_of_line(&mut self) -> PyResult<Codec> {
        let bits = self.word_bits()?;
        // Not `flat()`: packed words, unlike values, may have a width of 0.
        match (self.u8()?, self.u32()? as usize) {
            (1, packed) if packed <= bits => Ok(Codec::OutOfLine { bits, packed }),
            (op, packed) => Err(invalid(format!("{bits}-bit values packed to {packed} bits by codec op {op}"))),
        }
    }

    fn fsst(&mut self, depth: usize) -> PyResult<Codec> {
        let table = SymbolTable::parse(self.take(SymbolTable::BYTES)?)?;
        match self.codec_at(depth + 1)? {
            Codec::Variable { wide } => Ok(Codec::Fsst { table: Box::new(table), wide }),
            _ => Err(invalid("FSST holds something else than variable-width values")),
        }
    }

    fn rle(&mut self, depth: usize) -> PyResult<Codec> {
        let bits = self.flat(depth, "RLE values")?;
        match self.flat(depth, "RLE lengths")? {
            // Wider values would allow few bytes to request much memory: a run is repeated up to 255 times.
            8 if matches!(bits, 8 | 16 | 32 | 64) => Ok(Codec::Rle { bits }),
            lengths => Err(invalid(format!("RLE of {bits}-bit values with {lengths}-bit lengths"))),
        }
    }

    fn general(&mut self, depth: usize) -> PyResult<Codec> {
        let scheme = match self.u8()? {
            1 => Scheme::Lz4,
            2 => Scheme::Zstd,
            scheme => return Err(invalid(format!("unknown compression scheme {scheme}"))),
        };
        let bytes_max = self.bytes_max;
        Ok(Codec::General { scheme, values: Box::new(self.codec_at(depth + 1)?), bytes_max })
    }

    fn fixed_size_list(&mut self, depth: usize) -> PyResult<Codec> {
        let items = self.u32()? as usize;
        let has_validity = self.u8()? != 0;
        match self.codec_at(depth + 1)? {
            values @ (Codec::Flat { .. } | Codec::FixedSizeList { .. }) => {
                Ok(Codec::FixedSizeList { items, has_validity, values: Box::new(values) })
            }
            // No values: every item is null and takes no bytes.
            Codec::Constant(value) if value.is_empty() && has_validity => {
                Ok(Codec::FixedSizeList { items, has_validity, values: Box::new(Codec::Constant(value)) })
            }
            _ => Err(invalid("a fixed-size list holds something else than flat values or fixed-size lists")),
        }
    }

    fn packed_struct(&mut self, depth: usize) -> PyResult<Codec> {
        let count = self.u32()? as usize;
        let mut bits = Vec::new();
        for _ in 0..count {
            let child = self.bits()?;
            if child % 8 != 0 {
                return Err(invalid(format!("a packed struct child of {child} bits is not made of bytes")));
            }
            bits.try_push(child)?;
        }
        let sum: usize = bits.iter().sum();
        match self.flat(depth, "a packed struct")? {
            flat if flat == sum => Ok(Codec::PackedStruct { bits }),
            flat => Err(invalid(format!("packed struct children have {sum} bits, its rows {flat}"))),
        }
    }

    fn variable_packed(&mut self, depth: usize) -> PyResult<Codec> {
        let count = self.u32()? as usize;
        let mut children = Vec::new();
        for _ in 0..count {
            let variable = self.u8()? != 0;
            let bits = self.bits()?;
            let codec = self.codec_at(depth + 1)?;
            if bits % 8 != 0 || (variable && bits > 64) {
                return Err(invalid(format!("a packed child with {bits} bits per value or length")));
            }
            children.try_push(Child { prefix_bytes: variable.then_some(bits / 8), bits, codec })?;
        }
        Ok(Codec::VariablePacked { children })
    }
}
