//! A scan on several cores: each compares some of the pieces.

use super::real::{num_compared, Pair};
use crate::error::invalid;
use crate::room::{vec_with_capacity, Grow, Roomy};
use crate::threads::side_by_side;
use pyo3::PyResult;
use std::sync::Mutex;

/// Bytes of rows that are worth a thread: its start takes some ten microseconds, and they some hundred.
const SHARE_BYTES: usize = 1 << 21;

/// Pairs that follow one another, and the memory of their distances.
pub struct Share<'a> {
    pub pairs: &'a [Pair],
    out: &'a mut [f32],
    /// The number of the first distance in `out`.
    first: usize,
}

impl Share<'_> {
    /// The memory of the `count` distances from `start` on.
    pub fn distances(&mut self, start: usize, count: usize) -> &mut [f32] {
        &mut self.out[start - self.first..][..count]
    }
}

/// Whether the distances of each pair come after those of the pair before.
fn is_ascending(pairs: &[Pair], counts: &[usize]) -> bool {
    let ends = pairs.iter().map(|pair| pair.start + counts[pair.piece]);
    ends.zip(pairs.iter().skip(1)).all(|(end, pair)| end <= pair.start)
}

/// Pairs in shares of about as many rows. There is one where distances are in another order than pairs.
fn shares<'a>(pairs: &'a [Pair], counts: &[usize], out: &'a mut [f32], most: usize) -> Roomy<Vec<Mutex<Share<'a>>>> {
    let most = if most > 1 && is_ascending(pairs, counts) { most } else { 1 };
    let num_rows = num_compared(pairs, counts).div_ceil(most);
    let mut shares = vec_with_capacity(most)?;
    let (mut pairs, mut out, mut first) = (pairs, out, 0);
    for left in (1..most).rev() {
        let (mut count, mut rows) = (0, 0);
        while count + left < pairs.len() && rows < num_rows {
            rows += counts[pairs[count].piece];
            count += 1;
        }
        let (its, rest) = pairs.split_at(count);
        let end = rest.first().map_or(first, |pair| pair.start);
        let (memory, behind) = out.split_at_mut(end - first);
        shares.try_push(Mutex::new(Share { pairs: its, out: memory, first }))?;
        (pairs, out, first) = (rest, behind, end);
    }
    shares.try_push(Mutex::new(Share { pairs, out, first }))?;
    Ok(shares)
}

/// Call `scan` for shares of the pairs, on at most `threads` threads.
///
/// num_bytes  of rows that are compared, or as many as take that long
pub fn scan_shares(
    pairs: &[Pair],
    counts: &[usize],
    out: &mut [f32],
    threads: usize,
    num_bytes: usize,
    scan: impl Fn(&mut Share<'_>) -> Roomy<()> + Sync,
) -> PyResult<()> {
    let most = threads.min(num_bytes / SHARE_BYTES).min(pairs.len()).max(1);
    let shares = shares(pairs, counts, out, most)?;
    side_by_side(&shares, shares.len(), |share| match share.lock() {
        Ok(mut share) => Ok(scan(&mut share)?),
        Err(_) => Err(invalid("a scan was given up")),
    })?;
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;

    fn pairs(starts: &[(usize, usize)]) -> Vec<Pair> {
        starts.iter().map(|&(piece, start)| Pair { piece, query: 0, start }).collect()
    }

    fn sizes(pairs: &[Pair], counts: &[usize], most: usize) -> Vec<(usize, usize, usize)> {
        let mut out = [0f32; 100];
        let shares = shares(pairs, counts, &mut out, most).unwrap();
        let shares = shares.into_iter().map(|share| share.into_inner().unwrap());
        shares.map(|share| (share.pairs.len(), share.first, share.out.len())).collect()
    }

    #[test]
    fn shares_have_about_as_many_rows_and_all_pairs() {
        let counts = [10, 20, 30, 0];
        let ordered = pairs(&[(0, 0), (1, 10), (2, 30), (3, 60)]);
        assert_eq!(sizes(&ordered, &counts, 1), [(4, 0, 100)]);
        assert_eq!(sizes(&ordered, &counts, 2), [(2, 0, 30), (2, 30, 70)]);
        assert_eq!(sizes(&ordered, &counts, 4), [(1, 0, 10), (1, 10, 20), (1, 30, 30), (1, 60, 40)]);
        assert_eq!(sizes(&[], &counts, 2), [(0, 0, 0), (0, 0, 100)]);
    }

    #[test]
    fn distances_in_another_order_stay_together() {
        let counts = [10, 20];
        assert_eq!(sizes(&pairs(&[(1, 10), (0, 0)]), &counts, 2), [(2, 0, 100)]);
        assert_eq!(sizes(&pairs(&[(1, 0), (0, 19)]), &counts, 2), [(2, 0, 100)]);
        // in the same memory
    }
}
