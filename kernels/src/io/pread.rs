//! Many ranges of local files in one call: plan, allocate once for each file, `pread` into place.

use crate::buffer::{
    borrow_fd, bytes_to_skip, filled_buffer, Filled, Input, Output, OwnedBuffer, ReadFailure, Slot, LINE_BYTES,
};
use crate::io::once::{open_regular, system_error};
use crate::io::plan::{check_ranges, Order};
use crate::room::{vec_with_capacity, zeros, Gather, GatherResults, Grow, Roomy};
use crate::threads::side_by_side;
use pyo3::exceptions::{PyEOFError, PyMemoryError, PyValueError};
use pyo3::prelude::*;
use pyo3::types::PyInt;
use rustix::fd::{AsFd, BorrowedFd};
use std::path::PathBuf;
use std::sync::Mutex;
use std::thread::Builder;

/// Starting a thread takes some 20 us, which does not pay off for fewer reads.
const THREAD_READS_MIN: usize = 128;
const THREAD_BYTES_MIN: usize = 1 << 20;
/// Cost of another read, in bytes that could be copied in the same time.
const READ_COST_BYTES: usize = 8 << 10;

/// `read_ranges` of `_kernels.pyi`. A negative gap keeps even touching and overlapping ranges apart.
#[pyfunction]
#[pyo3(signature = (fd, starts, ends, gap_bytes_max, threads_max, scratch, /))]
pub fn read_ranges(
    py: Python<'_>,
    fd: i32,
    starts: &Bound<'_, PyAny>,
    ends: &Bound<'_, PyAny>,
    gap_bytes_max: i64,
    threads_max: usize,
    scratch: Option<&Bound<'_, PyAny>>,
) -> PyResult<(Option<OwnedBuffer>, OwnedBuffer, usize, usize)> {
    let (starts, ends) = (Input::new(starts)?, Input::new(ends)?);
    let (starts, ends) = (starts.i64s()?, ends.i64s()?);
    let fd = borrow_fd(&fd)?;
    let mut scratch = scratch.map(Output::new).transpose()?;
    let mut scratch = scratch.as_mut().map(Output::bytes_mut);
    let (buffer, placed) = py.detach(|| -> PyResult<_> {
        check_ranges(&starts, &ends)?;
        let mut placed = place(&starts, &ends, gap_bytes_max)?;
        if let Some(memory) = scratch.as_mut().and_then(|memory| placed.move_into(memory)) {
            read_all(fd, &placed.reads, Slot::over(memory), threads_max)?;
            return Ok((None, placed));
        }
        let buffer = read_placed(fd, &placed, threads_max)?;
        Ok((Some(buffer), placed))
    })?;
    Ok((buffer, placed.offsets.into(), placed.reads.len(), placed.num_bytes))
}

/// `read_files` of `_kernels.pyi`.
#[pyfunction]
#[pyo3(signature = (files, gap_bytes_max, threads_max, scratch, /))]
#[allow(clippy::type_complexity)]
pub fn read_files(
    py: Python<'_>,
    files: Vec<(AnyFile, Bound<'_, PyAny>, Bound<'_, PyAny>)>,
    gap_bytes_max: i64,
    threads_max: usize,
    scratch: Option<&Bound<'_, PyAny>>,
) -> PyResult<Vec<(Option<OwnedBuffer>, OwnedBuffer, usize, usize)>> {
    let inputs = files.iter().map(|(file, starts, ends)| PyResult::Ok((file, Input::new(starts)?, Input::new(ends)?)));
    let inputs = inputs.try_vec_of()?;
    let mut scratch = scratch.map(Output::new).transpose()?;
    let scratch = scratch.as_mut().map(Output::bytes_mut);
    let found = py.detach(|| -> PyResult<_> {
        let mut work = vec_with_capacity(inputs.len())?;
        for (file, starts, ends) in &inputs {
            let (starts, ends) = (starts.i64s()?, ends.i64s()?);
            check_ranges(&starts, &ends)?;
            work.try_push(FileReads { file, placed: place(&starts, &ends, gap_bytes_max)?, memory: Mutex::new(None) })?;
        }
        if let Some(memory) = scratch {
            share_memory(&mut work, memory);
        }
        let buffers = read_each(&work, threads_max)?;
        Ok(buffers.into_iter().zip(work).try_vec()?)
    })?;
    let parts = |(buffer, FileReads { placed, .. }): (_, FileReads)| {
        (buffer, placed.offsets.into(), placed.reads.len(), placed.num_bytes)
    };
    Ok(found.into_iter().map(parts).try_vec()?)
}

/// `read_joined` of `_kernels.pyi`.
#[pyfunction]
#[pyo3(signature = (files, starts, ends, bounds, gap_bytes_max, threads_max, memory, /))]
#[allow(clippy::too_many_arguments)]
pub fn read_joined(
    py: Python<'_>,
    files: Vec<AnyFile>,
    starts: &Bound<'_, PyAny>,
    ends: &Bound<'_, PyAny>,
    bounds: Vec<usize>,
    gap_bytes_max: i64,
    threads_max: usize,
    memory: &Bound<'_, PyAny>,
) -> PyResult<(OwnedBuffer, usize, usize)> {
    let (starts, ends) = (Input::new(starts)?, Input::new(ends)?);
    let (starts, ends) = (starts.i64s()?, ends.i64s()?);
    let mut memory = Output::new(memory)?;
    let memory = memory.bytes_mut();
    let is_split = bounds.len() == files.len() + 1 && bounds.first() == Some(&0) && bounds.is_sorted();
    if !is_split || bounds.last() != Some(&starts.len()) {
        return Err(PyValueError::new_err("bounds do not go together with files and ranges"));
    }
    let (offsets, num_reads, num_bytes) = py.detach(|| -> PyResult<_> {
        check_ranges(&starts, &ends)?;
        let mut work = vec_with_capacity(files.len())?;
        for (file, own) in files.iter().zip(bounds.windows(2)) {
            let placed = place(&starts[own[0]..own[1]], &ends[own[0]..own[1]], gap_bytes_max)?;
            work.try_push(FileReads { file, placed, memory: Mutex::new(None) })?;
        }
        if !share_memory(&mut work, memory) {
            return Err(PyValueError::new_err("too little memory for the ranges"));
        }
        read_each(&work, threads_max)?;
        let num_bytes = work.iter().map(|one| one.placed.num_bytes).sum();
        let mut offsets = Vec::new();
        work.iter().try_for_each(|one| offsets.try_append(&one.placed.offsets))?;
        Ok((offsets, work.iter().map(|one| one.placed.reads.len()).sum(), num_bytes))
    })?;
    Ok((offsets.into(), num_reads, num_bytes))
}

/// A file descriptor, or the path of a file that is opened for this call only.
pub enum AnyFile {
    Open(i32),
    Named(PathBuf),
}

impl<'a, 'py> FromPyObject<'a, 'py> for AnyFile {
    type Error = PyErr;

    fn extract(file: Borrowed<'a, 'py, PyAny>) -> PyResult<Self> {
        match file.is_instance_of::<PyInt>() {
            true => Ok(AnyFile::Open(file.extract()?)),
            false => Ok(AnyFile::Named(file.extract()?)),
        }
    }
}

impl AnyFile {
    /// System calls in addition to those that read, in units of reads.
    fn num_calls(&self) -> usize {
        match self {
            AnyFile::Open(_) => 0,
            AnyFile::Named(_) => 3,
        }
    }
}

/// The reads of one of several files, and their destination; without one, memory is allocated.
struct FileReads<'a> {
    file: &'a AnyFile,
    placed: Placed,
    memory: Mutex<Option<&'a mut [u8]>>,
}

impl FileReads<'_> {
    fn read(&self) -> PyResult<Option<OwnedBuffer>> {
        let memory = self.memory.lock().ok().and_then(|mut memory| memory.take());
        match self.file {
            _ if memory.is_some() && self.placed.reads.is_empty() => Ok(None),
            AnyFile::Open(fd) => self.read_from(borrow_fd(fd)?, memory),
            AnyFile::Named(path) => self.read_from(open_regular(path)?.0.as_fd(), memory),
        }
    }

    fn read_from(&self, fd: BorrowedFd, memory: Option<&mut [u8]>) -> PyResult<Option<OwnedBuffer>> {
        match memory {
            None => read_placed(fd, &self.placed, 1).map(Some),
            Some(memory) => read_list(fd, &self.placed.reads, Slot::over(memory)).map(|_| None),
        }
    }
}

/// Read all of them. With shared memory, files without ranges are not opened.
fn read_each(files: &[FileReads], threads_max: usize) -> PyResult<Vec<Option<OwnedBuffer>>> {
    let num_calls = |one: &FileReads| one.placed.reads.len() + one.file.num_calls();
    let num_bytes = files.iter().fold(0usize, |sum, one| sum.saturating_add(one.placed.num_bytes));
    let threads = threads_max.min(threads_worthwhile(files.iter().map(num_calls).sum(), num_bytes));
    side_by_side(files, threads, FileReads::read)
}

/// Give each file its part of the memory, if the memory is large enough for all of them.
fn share_memory<'a>(files: &mut [FileReads<'a>], mut memory: &'a mut [u8]) -> bool {
    let wanted = |file: &FileReads| file.placed.num_bytes.saturating_add(LINE_BYTES);
    if files.iter().map(wanted).fold(0, usize::saturating_add) > memory.len() {
        return false;
    }
    let mut before = 0;
    for file in files {
        let (own, rest) = memory.split_at_mut(wanted(file));
        memory = rest;
        file.memory = Mutex::new(file.placed.move_into(own));
        file.placed.offsets.iter_mut().for_each(|offset| *offset += before);
        before += wanted(file) as i64;
    }
    true
}

/// Allocate memory for all reads and fill it.
fn read_placed(fd: BorrowedFd, placed: &Placed, threads_max: usize) -> PyResult<OwnedBuffer> {
    filled_buffer(placed.num_bytes, placed.first_byte(), |slot| read_all(fd, &placed.reads, slot, threads_max))
        .unwrap_or_else(|| Err(PyMemoryError::new_err(format!("no memory for {} bytes", placed.num_bytes))))
}

/// One `pread`: file bytes `start..end`.
#[derive(Clone, Copy)]
struct Read {
    start: u64,
    length: usize,
}

/// Reads in the order of their memory, back to back, and the start of each range in it.
struct Placed {
    reads: Vec<Read>,
    offsets: Vec<i64>,
    num_bytes: usize,
}

impl Placed {
    fn new(num_ranges: usize) -> Roomy<Self> {
        Ok(Placed { reads: vec_with_capacity(num_ranges)?, offsets: zeros(num_ranges)?, num_bytes: 0 })
    }

    fn first_byte(&self) -> u64 {
        self.reads.first().map_or(0, |read| read.start)
    }

    /// The part of `memory` to read into, if it is large enough; offsets become those within `memory`.
    fn move_into<'a>(&mut self, memory: &'a mut [u8]) -> Option<&'a mut [u8]> {
        let spare = memory.len().checked_sub(self.num_bytes)?;
        let skip = bytes_to_skip(memory.as_ptr(), self.first_byte());
        let skip = if skip <= spare { skip } else { 0 };
        self.offsets.iter_mut().for_each(|offset| *offset += skip as i64);
        memory.get_mut(skip..skip + self.num_bytes)
    }

    fn add(&mut self, start: i64, end: i64) -> PyResult<()> {
        let length = (end - start) as usize;
        self.reads.try_push(Read { start: start as u64, length })?;
        let sum = self.num_bytes.checked_add(length).filter(|&sum| isize::try_from(sum).is_ok());
        self.num_bytes = sum.ok_or_else(|| PyValueError::new_err("the ranges add up to more than 2^63 bytes"))?;
        Ok(())
    }
}

fn place(starts: &[i64], ends: &[i64], gap: i64) -> PyResult<Placed> {
    if gap >= 0 {
        let order = Order::of(starts)?;
        let merged = place_merged(starts, ends, gap, &order)?;
        let num_ranges = starts.iter().zip(ends).filter(|(start, end)| start < end).count();
        if matches!(order, Order::AsGiven(_)) || merged.reads.len() < num_ranges {
            return Ok(merged);
        }
    }
    place_apart(starts, ends)
}

/// In the order of the file; ranges closer than the gap, and overlapping ranges, share a read.
fn place_merged(starts: &[i64], ends: &[i64], gap: i64, order: &Order) -> PyResult<Placed> {
    let mut placed = Placed::new(starts.len())?;
    let mut current: Option<(i64, i64)> = None;
    for index in order.iter() {
        let (start, end) = (starts[index], ends[index]);
        if start == end {
            continue; // empty: any offset is valid, so it stays 0
        }
        current = match current {
            Some((read_start, read_end)) if start.saturating_sub(read_end) <= gap => {
                Some((read_start, read_end.max(end)))
            }
            Some((read_start, read_end)) => {
                placed.add(read_start, read_end)?;
                Some((start, end))
            }
            None => Some((start, end)),
        };
        let read_start = current.map_or(start, |(read_start, _)| read_start);
        placed.offsets[index] = placed.num_bytes as i64 + (start - read_start);
    }
    if let Some((read_start, read_end)) = current {
        placed.add(read_start, read_end)?;
    }
    Ok(placed)
}

/// In the given order, each range separately.
fn place_apart(starts: &[i64], ends: &[i64]) -> PyResult<Placed> {
    let mut placed = Placed::new(starts.len())?;
    for (index, (&start, &end)) in starts.iter().zip(ends).enumerate() {
        placed.offsets[index] = placed.num_bytes as i64;
        if start < end {
            placed.add(start, end)?;
        }
    }
    Ok(placed)
}

/// The Python error for a read that failed.
fn failed(read: Read, failure: ReadFailure) -> PyErr {
    match failure {
        ReadFailure::EndsAt(at) => {
            let Read { start, length } = read;
            PyEOFError::new_err(format!("file ends at byte {at}, expected {length} bytes from {start} on"))
        }
        ReadFailure::System(errno) => system_error(errno),
    }
}

pub fn threads_worthwhile(num_reads: usize, num_bytes: usize) -> usize {
    (num_reads / THREAD_READS_MIN).max(num_bytes / THREAD_BYTES_MIN)
}

fn read_all<'a>(fd: BorrowedFd, reads: &[Read], slot: Slot<'a>, threads_max: usize) -> PyResult<Filled<'a>> {
    match threads_max.min(threads_worthwhile(reads.len(), slot.len())) {
        0 | 1 => read_list(fd, reads, slot),
        num_threads => read_threaded(fd, &share(reads, num_threads)?, slot),
    }
}

/// Perform the reads one after the other.
fn read_list<'a>(fd: BorrowedFd, reads: &[Read], slot: Slot<'a>) -> PyResult<Filled<'a>> {
    let (mut filled, mut free) = slot.begin();
    for &read in reads {
        let (target, rest) = free.split_at(read.length);
        filled = filled.join(target.read_at(fd, read.start).map_err(|failure| failed(read, failure))?);
        free = rest;
    }
    Ok(filled)
}

/// Read each share in a thread of this call (a pool would not survive a fork), the first share in the caller's thread.
fn read_threaded<'a>(fd: BorrowedFd, shares: &[Vec<Read>], slot: Slot<'a>) -> PyResult<Filled<'a>> {
    let Some((first, others)) = shares.split_first() else {
        return read_list(fd, &[], slot);
    };
    let num_bytes = |share: &[Read]| share.iter().map(|read| read.length).sum();
    let (own, mut free) = slot.split_at(num_bytes(first));
    let mut targets = vec_with_capacity(others.len())?;
    for share in others {
        let (target, rest) = free.split_at(num_bytes(share));
        targets.push(Mutex::new(Some(target))); // room: reserved
        free = rest;
    }
    let read = &|at: usize| {
        let target = targets[at].lock().expect("no thread panics while it holds this").take();
        read_list(fd, &others[at], target.expect("each is read once"))
    };
    std::thread::scope(|scope| {
        // The caller's thread reads shares whose thread could not start, because there is no memory for its stack.
        let threads =
            (0..others.len()).map(|at| Builder::new().spawn_scoped(scope, move || read(at)).ok()).try_vec()?;
        let mut filled = read_list(fd, first, own)?;
        for (at, thread) in threads.into_iter().enumerate() {
            let found = thread.map_or_else(|| read(at), |thread| thread.join().expect("reading does not panic"));
            filled = filled.join(found?);
        }
        Ok(filled)
    })
}

/// Split the list into parts of about equal cost; reads that are much longer than a part are cut.
fn share(reads: &[Read], num_shares: usize) -> Roomy<Vec<Vec<Read>>> {
    let cost: usize =
        reads.iter().map(|read| read.length.saturating_add(READ_COST_BYTES)).fold(0, usize::saturating_add);
    let quota = cost.div_ceil(num_shares).max(1);
    let (mut shares, mut current, mut room) = (vec_with_capacity(num_shares + 1)?, Vec::new(), quota);
    for &read in reads {
        let mut left = read;
        while left.length > room.saturating_add(THREAD_BYTES_MIN) {
            current.try_push(Read { length: room, ..left })?;
            left = Read { start: left.start + room as u64, length: left.length - room };
            shares.try_push(std::mem::take(&mut current))?;
            room = quota;
        }
        current.try_push(left)?;
        room = room.saturating_sub(left.length.saturating_add(READ_COST_BYTES));
        if room == 0 {
            shares.try_push(std::mem::take(&mut current))?;
            room = quota;
        }
    }
    if !current.is_empty() {
        shares.try_push(current)?;
    }
    Ok(shares)
}
