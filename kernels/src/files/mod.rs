//! Small data files, each decoded as a whole in one pass.

pub mod known_array;
pub mod known_batches;
pub mod known_files;
pub mod known_page;

use crate::buffer::Input;
use crate::error::invalid;
use crate::levels::leaf::{leaf_to_python, Leaf, LeafParts};
use crate::room::{vec_with_capacity, GatherResults, Grow};
use crate::take::join::{join_leaves, Part};
use pyo3::prelude::*;

/// Decodes small files that resemble known files.
trait Known: Sync {
    /// Decoded bytes after which no further file is decoded in the same call.
    fn bytes_max(&self) -> usize;

    fn num_leaves(&self) -> usize;

    /// The parts of a leaf's value buffers; None for an unknown leaf.
    fn parts(&self, leaf: usize) -> Option<Vec<Part>>;

    /// The leaves of a file, if it is known and passes all checks.
    fn read(&self, file: &[u8], num_rows: u64) -> Option<Vec<LeafParts>>;

    /// The leaves of the longest prefix of known files, up to `bytes_max`, and its length.
    fn leaves(&self, files: &[(Input, u64)]) -> PyResult<(usize, Vec<LeafParts>)> {
        let mut found = (0..self.num_leaves()).map(|_| vec_with_capacity(files.len())).try_vec_of()?;
        let (mut count, mut num_bytes) = (0, 0usize);
        for (input, rows) in files {
            if num_bytes >= self.bytes_max() {
                break;
            }
            let Some(leaves) = self.read(input.bytes(), *rows) else { break };
            num_bytes = leaves.iter().map(decoded_bytes).fold(num_bytes, usize::saturating_add);
            found.iter_mut().zip(leaves).try_for_each(|(of_files, leaf): (&mut Vec<_>, _)| of_files.try_push(leaf))?;
            count += 1;
        }
        if count == 0 {
            return Ok((0, Vec::new()));
        }
        let parts = |at| self.parts(at).ok_or_else(|| invalid("a leaf that is not known"));
        let joined = found.into_iter().enumerate().map(|(at, leaves)| join_leaves(leaves, || parts(at)));
        match joined.try_vec_of() {
            Ok(leaves) => Ok((count, leaves)),
            Err(error) if count < 2 => Err(error),
            Err(_) => self.leaves(&files[..count / 2]), // exceeds the offsets of one array
        }
    }

    /// `scan` of `_kernels.pyi`.
    fn scan_files<'py>(
        &self,
        py: Python<'py>,
        files: Vec<(Bound<'py, PyAny>, u64)>,
    ) -> PyResult<(usize, Vec<Leaf<'py>>)> {
        let inputs = files.iter().map(|(buffer, rows)| PyResult::Ok((Input::new(buffer)?, *rows))).try_vec_of()?;
        let (count, leaves) = py.detach(|| self.leaves(&inputs))?;
        Ok((count, leaves.into_iter().map(|leaf| leaf_to_python(py, leaf)).try_vec_of()?))
    }
}

/// The memory of a leaf's values, about.
fn decoded_bytes(leaf: &LeafParts) -> usize {
    leaf.1.iter().flatten().map(|buffer| buffer.bytes().len()).sum()
}
