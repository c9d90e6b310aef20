//! FastLanes bit packing (spec: encodings, 8.1): groups of 1024 values of T bits, packed to W bits each.
//!
//! A group has `1024 / T` lanes. Lane `l` is a stream of T values of W bits, LSB first, cut into words of T bits;
//! word k of all lanes is contiguous. The value at `index` lies in lane `index % lanes`, at the row that `row_of`
//! inverts from `index(row, lane) = O[row / 8] * 16 + (row % 8) * 128 + lane`.

use crate::damaged;
use crate::error::Checked;
use crate::levels::planes::{Planes, GROUP_WORDS};
use crate::room::copied;
use crate::sink::Pick;
use bytemuck::Pod;
use fastlanes::{BitPacking, FL_ORDER};

pub const GROUP: usize = 1024;

/// An unsigned machine word that groups are packed from.
pub trait Word: BitPacking + Pod {
    const BITS: usize;
    /// Unpack a group; `packed` holds `1024 * width / T` words, `width` is 1..=T.
    fn unpack_group(width: usize, packed: &[Self], values: &mut [Self; GROUP]) -> Checked<()>;
    fn from_u64(value: u64) -> Self;
    fn read(bytes: &[u8], word: usize) -> u64;
}

macro_rules! word {
    ($word:ty, $bits:literal, $($width:literal)*) => {
        impl Word for $word {
            const BITS: usize = $bits;

            fn unpack_group(width: usize, packed: &[Self], values: &mut [Self; GROUP]) -> Checked<()> {
                match width {
                    $($width => {
                        const WORDS: usize = GROUP * $width / $bits;
                        if let Ok(packed) = <&[Self; WORDS]>::try_from(packed) {
                            <Self as BitPacking>::unpack::<$width, WORDS>(packed, values);
                            return Ok(());
                        }
                    })*
                    _ => {}
                }
                damaged!("{} words of {} bits do not make a group of width {width}", packed.len(), $bits)
            }

            #[inline(always)]
            fn from_u64(value: u64) -> Self {
                value as $word
            }

            #[inline(always)]
            fn read(bytes: &[u8], word: usize) -> u64 {
                const BYTES: usize = $bits / 8;
                let mut raw = [0; BYTES];
                raw.copy_from_slice(&bytes[word * BYTES..word * BYTES + BYTES]);
                <$word>::from_le_bytes(raw) as u64
            }
        }
    };
}

word!(u8, 8, 1 2 3 4 5 6 7 8);
word!(u16, 16, 1 2 3 4 5 6 7 8 9 10 11 12 13 14 15 16);
word!(u32, 32, 1 2 3 4 5 6 7 8 9 10 11 12 13 14 15 16 17 18 19 20 21 22 23 24 25 26 27 28 29 30 31 32);
word!(u64, 64, 1 2 3 4 5 6 7 8 9 10 11 12 13 14 15 16 17 18 19 20 21 22 23 24 25 26 27 28 29 30 31 32
    33 34 35 36 37 38 39 40 41 42 43 44 45 46 47 48 49 50 51 52 53 54 55 56 57 58 59 60 61 62 63 64);

/// Unpacking a whole group costs about as much as extracting this share of its values individually.
const DENSE_SHARE: usize = 16;

/// Packed groups back to back, the last one possibly replaced by plain words.
pub struct Groups<'a> {
    packed: &'a [u8],
    width: usize,
    /// Values in packed groups; the values after them are plain words in `tail`.
    num_packed: usize,
    tail: &'a [u8],
}

impl<'a> Groups<'a> {
    /// A single group with its width in a leading word; at most 1024 values.
    pub fn inline<T: Word>(bytes: &'a [u8], num_values: usize) -> Checked<Self> {
        let word_bytes = T::BITS / 8;
        if num_values > GROUP {
            return damaged!("{num_values} values in one bit-packed group of {GROUP}");
        }
        if bytes.len() < word_bytes {
            return damaged!("a bit-packed group of {} bytes has no width word", bytes.len());
        }
        let (head, packed) = bytes.split_at(word_bytes);
        let width = T::read(head, 0);
        if width > T::BITS as u64 {
            return damaged!("{}-bit values packed to {width} bits", T::BITS);
        }
        let width = width as usize;
        if packed.len() != GROUP / 8 * width {
            return damaged!("a group of width {width} takes {} bytes, found {}", GROUP / 8 * width, packed.len());
        }
        Ok(Groups { packed, width, num_packed: num_values, tail: &[] })
    }

    /// Groups of a given width; the tail is plain words or one more, zero-filled group.
    pub fn out_of_line<T: Word>(bytes: &'a [u8], width: usize, num_values: usize) -> Checked<Self> {
        let group_bytes = GROUP / 8 * width;
        let (full, rest) = (num_values / GROUP, num_values % GROUP);
        let tail_bytes = rest * (T::BITS / 8);
        let Some(full_bytes) = full.checked_mul(group_bytes) else {
            return damaged!("{num_values} packed values do not fit in memory");
        };
        let found = bytes.len();
        if found == full_bytes + tail_bytes {
            let (packed, tail) = bytes.split_at(full_bytes);
            return Ok(Groups { packed, width, num_packed: full * GROUP, tail });
        }
        if found == full_bytes + group_bytes {
            return Ok(Groups { packed: bytes, width, num_packed: num_values, tail: &[] });
        }
        damaged!(
            "{num_values} values packed to {width} bits take {} bytes (plain tail) or {} (packed tail), found {found}",
            full_bytes + tail_bytes,
            full_bytes + group_bytes
        )
    }

    /// Unpack the picked values; `values` is exactly as long as the picks.
    pub fn unpack<T: Word>(&self, picks: &[Pick], values: &mut [T]) -> Checked<()> {
        let num_values = self.num_packed + self.tail.len() / (T::BITS / 8);
        let dense = values.len() * DENSE_SHARE >= num_values.min(GROUP);
        let mut cache = None;
        let mut rest = values;
        for pick in picks {
            let mut start = pick.start;
            while start < pick.end {
                let end = match start < self.num_packed {
                    true => pick.end.min(self.num_packed).min((start / GROUP + 1) * GROUP),
                    false => pick.end,
                };
                let (piece, behind) = rest.split_at_mut(end - start);
                rest = behind;
                if start >= self.num_packed {
                    self.copy_tail(start - self.num_packed, piece);
                } else if self.width == 0 {
                    piece.fill(T::from_u64(0));
                } else if dense {
                    self.unpack_piece(start, piece, &mut cache)?;
                } else {
                    for (index, value) in (start..end).zip(piece) {
                        *value = T::from_u64(self.single::<T>(index));
                    }
                }
                start = end;
            }
        }
        Ok(())
    }

    /// Append all values, which are 16-bit levels, as bit planes.
    pub fn append_planes(&self, planes: &mut Planes) -> Checked<()> {
        match self.width {
            0 => planes.push_zeros(self.num_packed),
            1 => self.append_packed::<1>(planes),
            2..=4 => self.append_packed::<4>(planes),
            _ => self.append_packed::<LEVEL_BITS>(planes),
        }?;
        planes.push_levels(&copied::<u16>(self.tail)?)
    }

    fn append_packed<const PLANES: usize>(&self, planes: &mut Planes) -> Checked<()> {
        for (group, start) in (0..self.num_packed).step_by(GROUP).enumerate() {
            let words = planes_of_group::<PLANES>(self.group_bytes(group), self.width);
            planes.push_group(&words[..self.width], (self.num_packed - start).min(GROUP))?;
        }
        Ok(())
    }

    fn copy_tail<T: Word>(&self, start: usize, piece: &mut [T]) {
        let size = T::BITS / 8;
        let bytes = &self.tail[start * size..(start + piece.len()) * size];
        bytemuck::cast_slice_mut::<T, u8>(piece).copy_from_slice(bytes);
    }

    fn group_bytes(&self, group: usize) -> &'a [u8] {
        let size = GROUP / 8 * self.width;
        &self.packed[group * size..(group + 1) * size]
    }

    fn unpack_piece<T: Word>(&self, start: usize, piece: &mut [T], cache: &mut Option<Cache<T>>) -> Checked<()> {
        let group = start / GROUP;
        if let Ok(values) = <&mut [T; GROUP]>::try_from(&mut *piece) {
            return unpack_bytes(self.width, self.group_bytes(group), values);
        }
        let cache = cache.get_or_insert_with(|| Cache { group: None, values: [T::from_u64(0); GROUP] });
        if cache.group != Some(group) {
            unpack_bytes(self.width, self.group_bytes(group), &mut cache.values)?;
            cache.group = Some(group);
        }
        let first = start % GROUP;
        piece.copy_from_slice(&cache.values[first..first + piece.len()]);
        Ok(())
    }

    /// A single value, without unpacking its group; the width is not 0.
    fn single<T: Word>(&self, index: usize) -> u64 {
        let packed = self.group_bytes(index / GROUP);
        let lanes = GROUP / T::BITS;
        let (row, lane) = (row_of(index % GROUP, lanes), index % lanes);
        let bit = row * self.width;
        let (word, shift) = (bit / T::BITS, bit % T::BITS);
        let mut value = T::read(packed, word * lanes + lane) >> shift;
        if shift + self.width > T::BITS {
            value |= T::read(packed, (word + 1) * lanes + lane) << (T::BITS - shift);
        }
        value & (u64::MAX >> (64 - self.width))
    }
}

/// The most recently unpacked group, for picks that do not cover whole groups; allocated on first use.
struct Cache<T> {
    group: Option<usize>,
    values: [T; GROUP],
}

/// Row of the value at `index` of a group (the order of eights is its own inverse).
fn row_of(index: usize, lanes: usize) -> usize {
    FL_ORDER[(index % 128 - index % lanes) / 16] * 8 + index / 128
}

fn unpack_bytes<T: Word>(width: usize, packed: &[u8], values: &mut [T; GROUP]) -> Checked<()> {
    match bytemuck::try_cast_slice::<u8, T>(packed) {
        Ok(words) => T::unpack_group(width, words, values),
        // Fetched bytes have the alignment of the read; unaligned words are copied once more.
        Err(_) => {
            let mut aligned = [T::from_u64(0); GROUP];
            let words = &mut aligned[..packed.len() / (T::BITS / 8)];
            bytemuck::cast_slice_mut::<T, u8>(words).copy_from_slice(packed);
            T::unpack_group(width, words, values)
        }
    }
}

const LEVEL_BITS: usize = 16;
const LEVEL_LANES: usize = GROUP / LEVEL_BITS;

/// The bit planes of a group of 16-bit values packed to `width` bits, 1 to `PLANES`.
///
/// Word `k` of the 64 lanes holds bits `16k .. 16k + 16` of each lane's stream. Transposed, it is sixteen words with
/// one bit of each lane: bit `row % width` of the values of one row, which are adjacent.
fn planes_of_group<const PLANES: usize>(packed: &[u8], width: usize) -> [[u64; GROUP_WORDS]; PLANES] {
    let mut planes = [[0; GROUP_WORDS]; PLANES];
    let (mut row, mut plane) = (0, 0);
    for lanes in packed.as_chunks::<{ 2 * LEVEL_LANES }>().0 {
        for word in turned(lanes) {
            planes[plane][(FL_ORDER[row / 8] * 16 + row % 8 * 128) / 64] = word;
            plane += 1;
            if plane == width {
                (row, plane) = (row + 1, 0);
            }
        }
    }
    planes
}

/// Transpose 64 words of 16 bits to 16 words of 64 bits: four adjacent 16 x 16 bit matrices, in which ever smaller
/// squares are swapped.
fn turned(lanes: &[u8; 2 * LEVEL_LANES]) -> [u64; LEVEL_BITS] {
    const STEPS: [(usize, u64); 4] = [
        (8, 0x00ff_00ff_00ff_00ff),
        (4, 0x0f0f_0f0f_0f0f_0f0f),
        (2, 0x3333_3333_3333_3333),
        (1, 0x5555_5555_5555_5555),
    ];
    let lane = |index: usize| u64::from(u16::from_le_bytes([lanes[2 * index], lanes[2 * index + 1]]));
    let mut rows: [u64; LEVEL_BITS] =
        std::array::from_fn(|row| lane(row) | lane(row + 16) << 16 | lane(row + 32) << 32 | lane(row + 48) << 48);
    for (distance, mask) in STEPS {
        for row in (0..LEVEL_BITS).filter(|row| row & distance == 0) {
            let change = (rows[row] >> distance ^ rows[row + distance]) & mask;
            rows[row + distance] ^= change;
            rows[row] ^= change << distance;
        }
    }
    rows
}
