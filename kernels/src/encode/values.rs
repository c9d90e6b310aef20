//! Creates the encoder of a codec for the input of a page.

use crate::decode::codec::Codec;
use crate::encode::bitpack::Packed;
use crate::encode::bytesplit::Split;
use crate::encode::chunk_values::{Source, Values};
use crate::encode::fixed::{Fixed, Plane};
use crate::encode::general::Compressed;
use crate::encode::rle::Runs;
use crate::encode::variable::Variable;
use crate::error::invalid;
use crate::room::Grow;
use pyo3::PyResult;

/// The input of a page's encoder.
pub struct Job<'a> {
    pub sources: &'a [Source<'a>],
    pub num_values: usize,
    /// Target size of chunks of variable-width values.
    pub target_bytes: usize,
    /// Of zstd; `None` is the library's default.
    pub level: Option<i32>,
}

impl<'a> Job<'a> {
    fn only(&self) -> PyResult<Source<'a>> {
        match self.sources {
            [only] => Ok(*only),
            others => Err(invalid(format!("{} buffers for a codec that takes one", others.len()))),
        }
    }
}

/// The encoder of a codec.
pub fn values<'a>(codec: &Codec, job: &Job<'a>) -> PyResult<Box<dyn Values + 'a>> {
    let num_values = job.num_values;
    Ok(match codec {
        Codec::Flat { bits } => Box::new(Fixed::new(vec![Plane::new(job.only()?, *bits, num_values)?], num_values)?),
        Codec::PackedStruct { bits } => {
            Box::new(Fixed::new(vec![Plane::new(job.only()?, bits.iter().sum(), num_values)?], num_values)?)
        }
        Codec::FixedSizeList { .. } => Box::new(Fixed::new(list_planes(codec, job)?, num_values)?),
        Codec::Variable { wide } | Codec::Fsst { wide, .. } => match job.sources {
            [offsets, data] => Variable::boxed(*wide, offsets.bytes, data.bytes, num_values, job.target_bytes)?,
            others => return Err(invalid(format!("{} buffers for variable-width values", others.len()))),
        },
        Codec::Inline { bits } => match bits {
            8 => Box::new(Packed::<u8>::new(job.only()?.bytes, num_values)?),
            16 => Box::new(Packed::<u16>::new(job.only()?.bytes, num_values)?),
            32 => Box::new(Packed::<u32>::new(job.only()?.bytes, num_values)?),
            _ => Box::new(Packed::<u64>::new(job.only()?.bytes, num_values)?),
        },
        Codec::Rle { bits } => match bits {
            8 => Box::new(Runs::<u8>::new(job.only()?.bytes, num_values)?),
            16 => Box::new(Runs::<u16>::new(job.only()?.bytes, num_values)?),
            32 => Box::new(Runs::<u32>::new(job.only()?.bytes, num_values)?),
            64 => Box::new(Runs::<u64>::new(job.only()?.bytes, num_values)?),
            bits => return Err(invalid(format!("runs of {bits}-bit values"))),
        },
        Codec::ByteSplit { bits: 32 } => Box::new(Split::<u32>::new(job.only()?.bytes, num_values)?),
        Codec::ByteSplit { .. } => Box::new(Split::<u64>::new(job.only()?.bytes, num_values)?),
        Codec::General { scheme, values: inner, .. } => {
            Box::new(Compressed::new(*scheme, job.level, values(inner, job)?)?)
        }
        Codec::Constant(_) | Codec::OutOfLine { .. } | Codec::VariablePacked { .. } => {
            return Err(invalid("not a codec of mini-block chunks"))
        }
    })
}

/// The bitmaps of fixed-size lists, outermost first, then their items.
fn list_planes<'a>(codec: &Codec, job: &Job<'a>) -> PyResult<Vec<Plane<'a>>> {
    let mut planes = Vec::new();
    let mut sources = job.sources.iter();
    let mut next = || sources.next().copied().ok_or_else(|| invalid("a fixed-size list without its buffers"));
    let (mut codec, mut count) = (codec, 1usize);
    while let Codec::FixedSizeList { items, has_validity, values } = codec {
        count = count.checked_mul(*items).ok_or_else(|| invalid("a fixed-size list beyond memory"))?;
        if *has_validity {
            planes.try_push(Plane::new(next()?, count, job.num_values)?)?;
        }
        codec = values;
    }
    let bits = codec.bits().and_then(|bits| bits.checked_mul(count));
    let bits = bits.ok_or_else(|| invalid("items of a fixed-size list that are not fixed-width values"))?;
    planes.try_push(Plane::new(next()?, bits, job.num_values)?)?;
    match sources.len() {
        0 => Ok(planes),
        left => Err(invalid(format!("{left} buffers too many for a fixed-size list"))),
    }
}
