//! Borrowed input and owned output through Python's buffer protocol. With `memory.rs` and `wide.rs` the only file with
//! `unsafe`.
#![allow(unsafe_code)]

use crate::room::copied;
use pyo3::buffer::PyUntypedBuffer;
use pyo3::exceptions::{PyBufferError, PyValueError};
use pyo3::ffi;
use pyo3::prelude::*;
use rustix::fd::{BorrowedFd, RawFd};
use rustix::io::{pread, retry_on_intr, Errno};
use std::alloc::{alloc_zeroed, Layout};
use std::marker::PhantomData;
use std::mem::MaybeUninit;
use std::os::raw::{c_int, c_void};
use std::ptr;

/// Bytes that Python owns, keeps alive, and does not change while a kernel runs.
///
/// The contract is the same as numpy's and pyarrow's: callers do not write into a buffer that a kernel is using.
pub struct Input(PyUntypedBuffer);

impl Input {
    pub fn new(object: &Bound<'_, PyAny>) -> PyResult<Self> {
        let view = PyUntypedBuffer::get(object)?;
        if !view.is_c_contiguous() {
            return Err(PyValueError::new_err("buffer is not C-contiguous"));
        }
        Ok(Input(view))
    }

    pub fn bytes(&self) -> &[u8] {
        let length = self.0.len_bytes();
        if length == 0 {
            return &[];
        }
        // SAFETY: the view is C-contiguous and holds `length` bytes for as long as `self` lives.
        unsafe { std::slice::from_raw_parts(self.0.buf_ptr() as *const u8, length) }
    }

    /// The bytes as little-endian i64s; copies only when the memory is not aligned to 8 bytes.
    pub fn i64s(&self) -> PyResult<std::borrow::Cow<'_, [i64]>> {
        let bytes = self.bytes();
        if !bytes.len().is_multiple_of(8) {
            return Err(PyValueError::new_err("an i64 buffer needs a multiple of 8 bytes"));
        }
        Ok(match bytemuck::try_cast_slice::<u8, i64>(bytes) {
            Ok(values) => std::borrow::Cow::Borrowed(values),
            Err(_) => std::borrow::Cow::Owned(copied(bytes)?),
        })
    }

    /// The bytes as little-endian u16s, as above.
    pub fn u16s(&self) -> PyResult<std::borrow::Cow<'_, [u16]>> {
        let bytes = self.bytes();
        if !bytes.len().is_multiple_of(2) {
            return Err(PyValueError::new_err("a u16 buffer needs an even number of bytes"));
        }
        Ok(match bytemuck::try_cast_slice::<u8, u16>(bytes) {
            Ok(values) => std::borrow::Cow::Borrowed(values),
            Err(_) => std::borrow::Cow::Owned(copied(bytes)?),
        })
    }
}

/// Writable memory that Python owns; only the kernel accesses it while filling it.
pub struct Output(PyUntypedBuffer);

impl Output {
    pub fn new(object: &Bound<'_, PyAny>) -> PyResult<Self> {
        let view = PyUntypedBuffer::get(object)?;
        if !view.is_c_contiguous() || view.readonly() {
            return Err(PyValueError::new_err("buffer is not writable or not C-contiguous"));
        }
        Ok(Output(view))
    }

    pub fn bytes_mut(&mut self) -> &mut [u8] {
        let length = self.0.len_bytes();
        if length == 0 {
            return &mut [];
        }
        // SAFETY: contiguous and writable (checked in `new`); exclusive by the contract above.
        unsafe { std::slice::from_raw_parts_mut(self.0.buf_ptr() as *mut u8, length) }
    }
}

/// The memory of an `OwnedBuffer`; the vector keeps the alignment of its item type.
enum Memory {
    Bytes(Vec<u8>),
    Words(Vec<u64>),
    Levels(Vec<u16>),
    Ints(Vec<i32>),
    Longs(Vec<i64>),
}

/// Memory of a kernel, passed to Python zero-copy.
#[pyclass(frozen, module = "lance_io._kernels")]
pub struct OwnedBuffer {
    memory: Memory,
    /// Bytes of `memory` before the buffer.
    start: usize,
    length: usize,
}

impl OwnedBuffer {
    /// The bytes, for kernels that concatenate buffers.
    pub fn bytes(&self) -> &[u8] {
        let whole: &[u8] = match &self.memory {
            Memory::Bytes(v) => v,
            Memory::Words(v) => bytemuck::cast_slice(v),
            Memory::Levels(v) => bytemuck::cast_slice(v),
            Memory::Ints(v) => bytemuck::cast_slice(v),
            Memory::Longs(v) => bytemuck::cast_slice(v),
        };
        &whole[self.start..self.start + self.length]
    }

    fn parts(&self) -> (*const u8, usize) {
        let pointer = match &self.memory {
            Memory::Bytes(v) => v.as_ptr(),
            Memory::Words(v) => v.as_ptr() as *const u8,
            Memory::Levels(v) => v.as_ptr() as *const u8,
            Memory::Ints(v) => v.as_ptr() as *const u8,
            Memory::Longs(v) => v.as_ptr() as *const u8,
        };
        (pointer.wrapping_add(self.start), self.length)
    }
}

impl From<Vec<u8>> for OwnedBuffer {
    fn from(v: Vec<u8>) -> Self {
        let length = v.len();
        OwnedBuffer { memory: Memory::Bytes(v), start: 0, length }
    }
}
impl From<Vec<u16>> for OwnedBuffer {
    fn from(v: Vec<u16>) -> Self {
        let length = v.len() * 2;
        OwnedBuffer { memory: Memory::Levels(v), start: 0, length }
    }
}
impl From<Vec<i32>> for OwnedBuffer {
    fn from(v: Vec<i32>) -> Self {
        let length = v.len() * 4;
        OwnedBuffer { memory: Memory::Ints(v), start: 0, length }
    }
}
impl From<Vec<i64>> for OwnedBuffer {
    fn from(v: Vec<i64>) -> Self {
        let length = v.len() * 8;
        OwnedBuffer { memory: Memory::Longs(v), start: 0, length }
    }
}

impl OwnedBuffer {
    /// The first `length` bytes of 8-byte aligned memory (fixed-width values of any width).
    pub fn aligned(words: Vec<u64>, length: usize) -> Self {
        assert!(length <= words.len() * 8);
        OwnedBuffer { memory: Memory::Words(words), start: 0, length }
    }
}

#[pymethods]
impl OwnedBuffer {
    #[getter]
    fn nbytes(&self) -> usize {
        self.length
    }

    fn __len__(&self) -> usize {
        self.length
    }

    unsafe fn __getbuffer__(slf: Bound<'_, Self>, view: *mut ffi::Py_buffer, flags: c_int) -> PyResult<()> {
        if view.is_null() {
            return Err(PyBufferError::new_err("no view given"));
        }
        let (pointer, length) = slf.get().parts();
        // SAFETY: `view` is valid for writing (the protocol's promise); the memory lives as long as `slf`, which
        // PyBuffer_FillInfo holds a reference to; the class is frozen, so the vector never moves or shrinks.
        let answer = unsafe {
            ffi::PyBuffer_FillInfo(view, slf.as_ptr(), pointer as *mut _, length as ffi::Py_ssize_t, 1, flags)
        };
        if answer == 0 {
            Ok(())
        } else {
            Err(PyErr::fetch(slf.py()))
        }
    }
}

/// A file descriptor that Python owns and keeps open while a kernel runs.
pub fn borrow_fd(fd: &RawFd) -> PyResult<BorrowedFd<'_>> {
    if *fd < 0 {
        return Err(PyValueError::new_err(format!("{fd} is not a file descriptor")));
    }
    // SAFETY: not -1; the caller keeps the file open, and a closed descriptor is an `EBADF`, not undefined behaviour.
    Ok(unsafe { BorrowedFd::borrow_raw(*fd) })
}

/// Uninitialised memory: it is not zeroed first, and cannot be read before it is filled.
pub struct Slot<'a>(&'a mut [MaybeUninit<u8>]);

/// Proof that a slot, or several adjacent ones, were filled to the last byte.
pub struct Filled<'a> {
    address: usize,
    length: usize,
    memory: PhantomData<&'a mut [u8]>,
}

impl<'a> Slot<'a> {
    pub fn over(bytes: &'a mut [u8]) -> Self {
        // SAFETY: same size and alignment; only initialised bytes are ever written through a slot.
        Slot(unsafe { &mut *(bytes as *mut [u8] as *mut [MaybeUninit<u8>]) })
    }

    pub fn len(&self) -> usize {
        self.0.len()
    }

    pub fn split_at(self, middle: usize) -> (Slot<'a>, Slot<'a>) {
        let (left, right) = self.0.split_at_mut(middle);
        (Slot(left), Slot(right))
    }

    /// Split the slot into an empty `Filled` proof, to which others can be joined, and the rest.
    pub fn begin(self) -> (Filled<'a>, Slot<'a>) {
        (Filled { address: self.0.as_ptr() as usize, length: 0, memory: PhantomData }, self)
    }

    /// Fill the slot from byte `start` of a file.
    pub fn read_at(self, fd: BorrowedFd, start: u64) -> Result<Filled<'a>, ReadFailure> {
        let (mut filled, mut slot) = self.begin();
        while slot.len() > 0 {
            let offset = start + filled.length as u64;
            let read = || pread(fd, &mut *slot.0, offset).map(|(bytes, _free)| bytes.len());
            let length = retry_on_intr(read).map_err(ReadFailure::System)?;
            if length == 0 {
                return Err(ReadFailure::EndsAt(offset));
            }
            filled.length += length; // `pread` returned these bytes as initialised
            slot = slot.split_at(length).1;
        }
        Ok(filled)
    }
}

/// Reason why a read did not fill its slot.
pub enum ReadFailure {
    /// The file ends at this byte.
    EndsAt(u64),
    System(Errno),
}

impl Filled<'_> {
    /// Join two proofs; their memory must be adjacent.
    pub fn join(self, next: Self) -> Self {
        assert_eq!(self.address + self.length, next.address, "slots are joined in their order");
        Filled { length: self.length + next.length, ..self }
    }
}

/// A cache line of the processor.
pub const LINE_BYTES: usize = 64;

/// Bytes to skip from `address` on so that memory has the same position in 64-byte lines as the file.
///
/// Values keep the alignment that they have in the file. This also prevents the operating system's copy loop from
/// meeting a target 1 to 31 bytes after its source modulo the page size, where copying is eight times slower on AMD
/// Zen.
pub fn bytes_to_skip(address: *const u8, file_offset: u64) -> usize {
    (file_offset as usize).wrapping_sub(address as usize) % LINE_BYTES
}

/// A new buffer of `length` bytes, filled by `work`; `None` if memory is exhausted.
///
/// `file_offset` is the file offset of the first byte, see `bytes_to_skip`.
pub fn filled_buffer<E>(
    length: usize,
    file_offset: u64,
    work: impl for<'a> FnOnce(Slot<'a>) -> Result<Filled<'a>, E>,
) -> Option<Result<OwnedBuffer, E>> {
    let mut memory = Vec::new();
    memory.try_reserve_exact(length.checked_add(LINE_BYTES)?).ok()?;
    let start = bytes_to_skip(memory.as_ptr(), file_offset);
    memory.resize(start, 0); // room: reserved
    let slot = Slot(&mut memory.spare_capacity_mut()[..length]);
    let address = slot.0.as_ptr() as usize;
    let filled = match work(slot) {
        Ok(filled) => (filled.address, filled.length),
        Err(error) => return Some(Err(error)),
    };
    assert_eq!(filled, (address, length), "the whole slot is filled");
    // SAFETY: `start` bytes are zeros; a `Filled` exists only for bytes that were returned as initialised, and this
    // one spans the next `length` bytes.
    unsafe { memory.set_len(start + length) };
    Some(Ok(OwnedBuffer { memory: Memory::Bytes(memory), start, length }))
}

/// `count` zero items; `None` if memory is exhausted. The system zeroes fresh pages on first use.
pub fn zeroed<T: bytemuck::Zeroable>(count: usize) -> Option<Vec<T>> {
    let layout = Layout::array::<T>(count).ok()?;
    if layout.size() == 0 {
        return Some(Vec::new());
    }
    // SAFETY: the size is not 0.
    let memory = unsafe { alloc_zeroed(layout) };
    if memory.is_null() {
        return None;
    }
    // SAFETY: allocated for `count` items, and zeros are valid items.
    Some(unsafe { Vec::from_raw_parts(memory.cast(), count, count) })
}

/// An array or batch that is passed to Arrow zero-copy: its buffers and children.
pub struct ArrowNode {
    pub length: usize,
    pub null_count: i64,
    pub buffers: Vec<Option<OwnedBuffer>>,
    pub children: Vec<ArrowNode>,
}

/// `struct ArrowArray` of Arrow's C data interface.
#[repr(C)]
struct ArrowArray {
    length: i64,
    null_count: i64,
    offset: i64,
    n_buffers: i64,
    n_children: i64,
    buffers: *mut *const c_void,
    children: *mut *mut ArrowArray,
    dictionary: *mut ArrowArray,
    release: Option<unsafe extern "C" fn(*mut ArrowArray)>,
    private_data: *mut c_void,
}

/// Owns the memory that an `ArrowArray` points to.
struct Holder {
    _buffers: Vec<Option<OwnedBuffer>>,
    addresses: Vec<*const c_void>,
    children: Vec<*mut ArrowArray>,
}

impl From<ArrowNode> for ArrowArray {
    fn from(node: ArrowNode) -> Self {
        let address = |buffer: &Option<OwnedBuffer>| buffer.as_ref().map_or(ptr::null(), |one| one.parts().0.cast());
        let children = node.children.into_iter().map(|child| Box::into_raw(Box::new(ArrowArray::from(child))));
        let mut holder = Box::new(Holder {
            addresses: node.buffers.iter().map(address).collect(), // room: at most three
            children: children.collect(),                          // room: members of a type
            _buffers: node.buffers,
        });
        ArrowArray {
            length: node.length as i64,
            null_count: node.null_count,
            offset: 0,
            n_buffers: holder.addresses.len() as i64,
            n_children: holder.children.len() as i64,
            buffers: holder.addresses.as_mut_ptr(),
            children: holder.children.as_mut_ptr(),
            dictionary: ptr::null_mut(),
            release: Some(release_array),
            private_data: Box::into_raw(holder).cast(),
        }
    }
}

/// The release callback of Arrow's protocol: called once by the holder of the array, on any thread.
unsafe extern "C" fn release_array(array: *mut ArrowArray) {
    // SAFETY: guaranteed by the protocol: `array` was created by `from`, possibly moved, and not released yet.
    let array = unsafe { &mut *array };
    // SAFETY: the box that `from` created; only this function frees it.
    let holder = unsafe { Box::from_raw(array.private_data.cast::<Holder>()) };
    for &child in &holder.children {
        // SAFETY: `from` created it; a consumer may move or release its content, never the structure itself.
        let mut child = unsafe { Box::from_raw(child) };
        release_held(&mut child);
    }
    array.release = None;
}

/// Free the content of an array, unless a consumer has taken it over.
fn release_held(array: &mut ArrowArray) {
    if let Some(release) = array.release {
        // SAFETY: not released yet, because `release` is still set.
        unsafe { release(array) };
    }
}

/// A batch that Arrow can import once; `ArrowBatch` of `_kernels.pyi`.
#[pyclass(frozen, module = "lance_io._kernels")]
pub struct ArrowBatch(*mut ArrowArray);

// SAFETY: the pointer owns the array, whose memory may be used and freed on any thread; nothing here reads it.
unsafe impl Send for ArrowBatch {}
// SAFETY: as above; an importer of the array's address holds the GIL, or is the only one.
unsafe impl Sync for ArrowBatch {}

impl From<ArrowNode> for ArrowBatch {
    fn from(node: ArrowNode) -> Self {
        ArrowBatch(Box::into_raw(Box::new(node.into())))
    }
}

#[pymethods]
impl ArrowBatch {
    #[getter]
    fn address(&self) -> usize {
        self.0 as usize
    }
}

impl Drop for ArrowBatch {
    fn drop(&mut self) {
        // SAFETY: created by `Box::into_raw`; dropped once.
        let mut array = unsafe { Box::from_raw(self.0) };
        release_held(&mut array);
    }
}
