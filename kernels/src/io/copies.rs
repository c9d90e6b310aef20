//! Reads copies of ranges from the file of a disk cache in one call, and verifies their checksums.

use crate::buffer::{borrow_fd, filled_buffer, Filled, Input, Output, OwnedBuffer, ReadFailure, Slot};
use crate::io::pread::threads_worthwhile;
use crate::room::{vec_with_capacity, GatherOptions, GatherResults, Grow, Roomy};
use crate::threads::side_by_side;
use pyo3::exceptions::{PyMemoryError, PyOSError};
use pyo3::prelude::*;
use rustix::fd::BorrowedFd;
use std::sync::Mutex;

/// One copy as passed by Python: the prefix of its checksum, the ranges of its bytes, the checksum, and memory.
type Given<'py> = (Bound<'py, PyAny>, Bound<'py, PyAny>, u32, Option<Bound<'py, PyAny>>);

/// The result of reading a copy.
#[derive(IntoPyObject)]
pub enum Found {
    /// Its bytes are in the given memory (true), or fail verification (false).
    Placed(bool),
    Own(OwnedBuffer),
}

/// `read_copies` of `_kernels.pyi`.
#[pyfunction]
#[pyo3(signature = (fd, copies, bytes_max, threads_max, /))]
pub fn read_copies(
    py: Python<'_>,
    fd: i32,
    copies: Vec<Given<'_>>,
    bytes_max: usize,
    threads_max: usize,
) -> PyResult<Vec<Found>> {
    let fd = borrow_fd(&fd)?;
    let inputs = copies.iter().map(|(name, places, checksum, memory)| {
        let memory = memory.as_ref().map(Output::new).transpose()?;
        PyResult::Ok((Input::new(name)?, Input::new(places)?, *checksum, memory))
    });
    let mut inputs = inputs.try_vec_of()?;
    py.detach(|| {
        let mut work = vec_with_capacity(inputs.len())?;
        let mut num_bytes = 0usize;
        for (name, places, checksum, memory) in &mut inputs {
            let runs = runs_of(&places.i64s()?, bytes_max)?;
            num_bytes = num_bytes.saturating_add(length_of(runs.as_deref().unwrap_or_default()));
            let memory = Mutex::new(memory.as_mut().map(Output::bytes_mut));
            work.try_push(Copy { name: name.bytes(), runs, checksum: *checksum, memory })?;
        }
        let threads = threads_max.min(threads_worthwhile(work.len(), num_bytes));
        side_by_side(&work, threads, |copy| copy.read(fd))
    })
}

/// A run of bytes of the file.
struct Run {
    start: u64,
    length: usize,
}

struct Copy<'a> {
    name: &'a [u8],
    runs: Option<Vec<Run>>,
    checksum: u32,
    memory: Mutex<Option<&'a mut [u8]>>,
}

impl Copy<'_> {
    fn read(&self, fd: BorrowedFd) -> PyResult<Found> {
        let Some(runs) = &self.runs else { return Ok(Found::Placed(false)) };
        let length = length_of(runs);
        if let Some(memory) = self.memory.lock().ok().and_then(|mut memory| memory.take()) {
            if memory.len() != length {
                return Ok(Found::Placed(false));
            }
            let is_read = whole(read_runs(fd, runs, Slot::over(memory)))?;
            return Ok(Found::Placed(is_read && self.is_right(memory)));
        }
        let buffer = filled_buffer(length, 0, |slot| read_runs(fd, runs, slot))
            .ok_or_else(|| PyMemoryError::new_err(format!("no memory for {length} bytes")))?;
        match buffer {
            Ok(buffer) if self.is_right(buffer.bytes()) => Ok(Found::Own(buffer)),
            Ok(_) => Ok(Found::Placed(false)),
            Err(failure) => whole(Err(failure)).map(Found::Placed),
        }
    }

    fn is_right(&self, bytes: &[u8]) -> bool {
        let mut hasher = crc32fast::Hasher::new();
        hasher.update(self.name);
        hasher.update(bytes);
        hasher.finalize() == self.checksum
    }
}

/// Runs from pairs of start and length; `None` for pairs that no writer produces.
fn runs_of(places: &[i64], bytes_max: usize) -> Roomy<Option<Vec<Run>>> {
    let mut left = bytes_max;
    let run = |pair: &[i64]| {
        let &[start, length] = pair else { return None };
        let (start, length) = (u64::try_from(start).ok()?, usize::try_from(length).ok()?);
        start.checked_add(length as u64).filter(|&end| i64::try_from(end).is_ok())?;
        left = left.checked_sub(length)?;
        Some(Run { start, length })
    };
    places.chunks(2).map(run).try_some()
}

fn length_of(runs: &[Run]) -> usize {
    runs.iter().map(|run| run.length).sum() // limited by `bytes_max`
}

fn read_runs<'a>(fd: BorrowedFd, runs: &[Run], slot: Slot<'a>) -> Result<Filled<'a>, ReadFailure> {
    let (mut filled, mut free) = slot.begin();
    for run in runs {
        let (target, rest) = free.split_at(run.length);
        filled = filled.join(target.read_at(fd, run.start)?);
        free = rest;
    }
    Ok(filled)
}

/// Whether all of it was read; a file that ends early is damaged, or was replaced.
fn whole(read: Result<Filled<'_>, ReadFailure>) -> PyResult<bool> {
    match read {
        Ok(_) => Ok(true),
        Err(ReadFailure::EndsAt(_)) => Ok(false),
        Err(ReadFailure::System(errno)) => {
            Err(PyOSError::new_err((errno.raw_os_error(), std::io::Error::from(errno).to_string())))
        }
    }
}
