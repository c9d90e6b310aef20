//! General-purpose compression of a whole buffer (spec: encodings, 8.5).
//!
//!     LZ4    u32 uncompressed size, then one LZ4 block
//!     ZSTD   u64 uncompressed size, then one zstd frame; or a bare frame
//!
//! The announced size is untrusted, so memory is allocated only as far as the input size justifies it.

use crate::damaged;
use crate::decode::codec::{Scheme, VALUE_BYTES_MAX};
use crate::error::{Checked, Damaged, Fault};
use std::io::Read;
use zstd::zstd_safe::{get_error_name, DCtx};

/// An LZ4 block grows at most 255-fold.
const LZ4_RATIO_MAX: usize = 255;
/// Up to this many bytes (or this multiple of the input) a zstd size is trusted; beyond, memory grows with the output.
const ZSTD_BELIEVED_BYTES: usize = 1 << 20;
const ZSTD_BELIEVED_RATIO: usize = 64;
/// Initial size, and minimum growth, of such memory.
const STREAMED_BYTES_MIN: usize = 64 << 10;
pub const ZSTD_MAGIC: [u8; 4] = [0x28, 0xb5, 0x2f, 0xfd];

/// Limits for the decompressed size of a buffer.
#[derive(Clone, Copy)]
pub struct Limit {
    /// According to the page; a larger size is damage.
    pub expected: usize,
    /// According to the caller; a larger size is too large.
    pub allowed: usize,
}

impl Limit {
    /// The limit of a frame of several values with at most `value_bytes_max` bytes each.
    pub fn of_several(expected: usize, value_bytes_max: usize) -> Self {
        Limit { expected, allowed: value_bytes_max.max(VALUE_BYTES_MAX) }
    }

    /// Check the size that a buffer announces.
    fn check(self, size: u64) -> Checked<usize> {
        let expected = self.expected;
        match usize::try_from(size) {
            Ok(size) if size <= expected.min(self.allowed) => Ok(size),
            Ok(size) if size <= expected => Err(Fault::TooLarge { bytes: size as u64, bytes_max: self.allowed }),
            _ => damaged!("a compressed buffer announces {size} bytes, expected at most {expected}"),
        }
    }
}

/// Decompresses several buffers, reusing the zstd context.
#[derive(Default)]
pub struct Inflater {
    zstd: Option<DCtx<'static>>,
}

impl Inflater {
    /// Replace the content of `out` by the decompressed `input`.
    pub fn inflate(&mut self, scheme: Scheme, input: &[u8], limit: Limit, out: &mut Vec<u8>) -> Checked<()> {
        out.clear();
        if input.is_empty() {
            return Ok(());
        }
        match scheme {
            Scheme::Lz4 => inflate_lz4(input, limit, out),
            Scheme::Zstd if is_bare_frame(input) => stream_zstd(input, limit, out),
            Scheme::Zstd => self.inflate_zstd(input, limit, out),
        }
    }

    fn context(&mut self) -> Checked<&mut DCtx<'static>> {
        let context = match self.zstd.take() {
            Some(context) => context,
            None => DCtx::try_create().ok_or(Fault::NoMemory(0))?,
        };
        Ok(self.zstd.insert(context)) // room: an option
    }

    fn inflate_zstd(&mut self, input: &[u8], limit: Limit, out: &mut Vec<u8>) -> Checked<()> {
        let Some((head, frame)) = input.split_first_chunk::<8>() else {
            return damaged!("a zstd buffer of {} bytes has no size", input.len());
        };
        let size = limit.check(u64::from_le_bytes(*head))?;
        if size <= frame.len().saturating_mul(ZSTD_BELIEVED_RATIO).max(ZSTD_BELIEVED_BYTES) {
            reserve(out, size)?;
            // The vector's capacity may be larger than `size`; the length is checked below.
            self.context()?.decompress(out, frame).map_err(|code| bad_frame_text(get_error_name(code)))?;
        } else {
            stream_zstd(frame, Limit { expected: size, allowed: size }, out)?;
        }
        if out.len() != size {
            return damaged!("a zstd frame holds {} bytes, announced {size}", out.len());
        }
        Ok(())
    }
}

/// Decompressed size that a buffer announces, at most 2 GiB; None if a frame announces none. 0 for damaged buffers.
pub fn announced_bytes(scheme: Scheme, input: &[u8]) -> Option<u64> {
    let announced = match scheme {
        Scheme::Lz4 => input.split_first_chunk::<4>().map_or(0, |(head, block)| {
            u64::from(u32::from_le_bytes(*head)).min(block.len().saturating_mul(LZ4_RATIO_MAX) as u64)
        }),
        Scheme::Zstd if input.len() < 8 => 0,
        Scheme::Zstd if is_bare_frame(input) => zstd::zstd_safe::get_frame_content_size(input).unwrap_or(Some(0))?,
        Scheme::Zstd => input.split_first_chunk::<8>().map_or(0, |(head, _)| u64::from_le_bytes(*head)),
    };
    Some(announced.min(VALUE_BYTES_MAX as u64))
}

fn is_bare_frame(input: &[u8]) -> bool {
    input.len() < 8 || (input[..4] == ZSTD_MAGIC && input[4] & 0x10 == 0)
}

/// Classify a zstd error: out of memory, or a damaged frame. The library distinguishes them only by text.
fn bad_frame(error: std::io::Error) -> Fault {
    match error.kind() == std::io::ErrorKind::OutOfMemory {
        true => Fault::NoMemory(0),
        false => bad_frame_text(&error.to_string()),
    }
}

fn bad_frame_text(text: &str) -> Fault {
    match text.contains("Allocation error") {
        true => Fault::NoMemory(0),
        false => Damaged(format!("zstd frame: {text}")),
    }
}

fn reserve(out: &mut Vec<u8>, size: usize) -> Checked<()> {
    out.try_reserve_exact(size).map_err(|_| Fault::NoMemory(size))
}

fn inflate_lz4(input: &[u8], limit: Limit, out: &mut Vec<u8>) -> Checked<()> {
    let Some((head, block)) = input.split_first_chunk::<4>() else {
        return damaged!("an LZ4 buffer of {} bytes has no size", input.len());
    };
    let expected = limit.expected.min(block.len().saturating_mul(LZ4_RATIO_MAX));
    let size = Limit { expected, ..limit }.check(u64::from(u32::from_le_bytes(*head)))?;
    reserve(out, size)?;
    out.resize(size, 0); // room: reserved
    match lz4_flex::block::decompress_into(block, out) {
        Ok(made) if made == size => Ok(()),
        Ok(made) => damaged!("an LZ4 block holds {made} bytes, announced {size}"),
        Err(error) => damaged!("LZ4 block: {error}"),
    }
}

/// Decompress a frame without trusting its size: memory grows with the actual output, up to the announced size, so that
/// there is no excess.
fn stream_zstd(frame: &[u8], limit: Limit, out: &mut Vec<u8>) -> Checked<()> {
    let bytes_max = limit.expected.min(limit.allowed);
    let announced = match zstd::zstd_safe::get_frame_content_size(frame) {
        Ok(Some(size)) => limit.check(size)?.min(bytes_max),
        _ => bytes_max,
    };
    // A separate context: a reused one would keep a window of up to 128 MiB.
    let mut context = DCtx::try_create().ok_or(Fault::NoMemory(0))?;
    let mut decoder = zstd::stream::read::Decoder::with_context(frame, &mut context).single_frame();
    while out.len() < announced {
        if out.len() == out.capacity() {
            reserve(out, (announced - out.len()).min(out.len().max(STREAMED_BYTES_MIN)))?;
        }
        let room = out.capacity().min(announced) - out.len();
        if decoder.by_ref().take(room as u64).read_to_end(out).map_err(bad_frame)? < room {
            return Ok(());
        }
    }
    match decoder.read(&mut [0]).map_err(bad_frame)? {
        0 => Ok(()),
        _ if announced == limit.allowed && limit.allowed < limit.expected => {
            Err(Fault::TooLarge { bytes: u64::MAX, bytes_max })
        }
        _ => damaged!("a zstd frame holds more than {announced} bytes"),
    }
}
