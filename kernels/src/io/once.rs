//! Small files that are opened for a single read and closed again: three system calls per file, all without the GIL.

use crate::buffer::{filled_buffer, OwnedBuffer};
use crate::threads::side_by_side;
use pyo3::exceptions::PyOSError;
use pyo3::prelude::*;
use rustix::fd::{AsFd, OwnedFd};
use rustix::fs::{fstat, open, FileType, Mode, OFlags};
use rustix::io::Errno;
use rustix::path::Arg;

/// Below this number of files, another thread is not worth its start.
const THREAD_FILES_MIN: usize = 32;

/// `read_once` of `_kernels.pyi`.
#[pyfunction]
#[pyo3(signature = (files, threads_max, /))]
#[allow(clippy::type_complexity)]
pub fn read_once(
    py: Python<'_>,
    files: Vec<(Vec<u8>, i64, i64)>,
    threads_max: usize,
) -> PyResult<Vec<Option<(OwnedBuffer, u64)>>> {
    let threads = threads_max.min(files.len() / THREAD_FILES_MIN);
    py.detach(|| side_by_side(&files, threads, |(path, start, end)| Ok(read_file(path, *start, *end))))
}

/// The bytes and the file's size; `None` on any failure.
fn read_file(path: &[u8], start: i64, end: i64) -> Option<(OwnedBuffer, u64)> {
    let (fd, file_bytes) = open_regular(path).ok()?;
    let (start, end) = match u64::try_from(start) {
        Ok(start) => (start, u64::try_from(end).ok()?),
        Err(_) => (file_bytes.saturating_sub(start.unsigned_abs()), file_bytes),
    };
    if end > file_bytes {
        return None;
    }
    let length = usize::try_from(end.checked_sub(start)?).ok()?;
    let buffer = filled_buffer(length, start, |slot| slot.read_at(fd.as_fd(), start))?.ok()?;
    Some((buffer, file_bytes))
}

/// Open a file and return its size. Anything but a regular file fails like a folder.
pub fn open_regular(path: impl Arg) -> PyResult<(OwnedFd, u64)> {
    // Non-blocking: a named pipe must not hang the opener.
    let fd = open(path, OFlags::RDONLY | OFlags::CLOEXEC | OFlags::NONBLOCK, Mode::empty()).map_err(system_error)?;
    let status = fstat(&fd).map_err(system_error)?;
    match FileType::from_raw_mode(status.st_mode) {
        FileType::RegularFile => Ok((fd, u64::try_from(status.st_size).unwrap_or(0))),
        _ => Err(system_error(Errno::ISDIR)),
    }
}

/// The Python error of a failed system call.
pub fn system_error(errno: Errno) -> PyErr {
    let text = std::io::Error::from(errno).to_string();
    PyOSError::new_err((errno.raw_os_error(), text))
}
