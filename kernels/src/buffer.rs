//! Borrowed input and owned output through Python's buffer protocol. With `memory.rs` the only file with `unsafe`.
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

/// Bytes that Python owns and keeps alive, and does not change, while a kernel runs.
///
/// The contract with callers is numpy's and pyarrow's own: nobody writes into a buffer that was handed to a kernel.
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

/// Writable memory that Python owns; nobody else touches it while the kernel fills it.
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

/// Where the memory of an `OwnedBuffer` comes from; the vector keeps the alignment of its item type.
enum Memory {
    Bytes(Vec<u8>),
    Words(Vec<u64>),
    Levels(Vec<u16>),
    Ints(Vec<i32>),
    Longs(Vec<i64>),
}

/// Memory made by a kernel, handed to Python without a copy.
#[pyclass(frozen, module = "lance_io._kernels")]
pub struct OwnedBuffer {
    memory: Memory,
    /// Bytes of `memory` before the buffer.
    start: usize,
    length: usize,
}

impl OwnedBuffer {
    /// The bytes, for kernels that put buffers together.
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

/// Memory to be filled, which nobody can read before that: neither zeroed first nor read too early.
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

    /// The slot with the proof that none of it is filled yet, to join others to.
    pub fn begin(self) -> (Filled<'a>, Slot<'a>) {
        (Filled { address: self.0.as_ptr() as usize, length: 0, memory: PhantomData }, self)
    }

    /// Fill the slot from byte `start` of a file on.
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

/// Why a read did not fill its slot.
pub enum ReadFailure {
    /// The file ends at this byte.
    EndsAt(u64),
    System(Errno),
}

impl Filled<'_> {
    /// Both in one; they must lie next to each other.
    pub fn join(self, next: Self) -> Self {
        assert_eq!(self.address + self.length, next.address, "slots are joined in their order");
        Filled { length: self.length + next.length, ..self }
    }
}

/// A line of the processor's caches.
pub const LINE_BYTES: usize = 64;

/// Bytes to skip from `address` on so that memory lies as the file does, relative to lines of 64 bytes.
///
/// Values keep the alignment they have in the file. And the kernel's copy loop never meets a target that lies 1 to 31
/// bytes behind its source modulo the page size: there, copying is eight times slower on some processors (AMD Zen).
pub fn bytes_to_skip(address: *const u8, file_offset: u64) -> usize {
    (file_offset as usize).wrapping_sub(address as usize) % LINE_BYTES
}

/// A new buffer of `length` bytes, filled by `work`; `None` when there is not enough memory.
///
/// `file_offset` is where the first of the bytes comes from, see `bytes_to_skip`.
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
    // one spans the `length` bytes behind them.
    unsafe { memory.set_len(start + length) };
    Some(Ok(OwnedBuffer { memory: Memory::Bytes(memory), start, length }))
}

/// `count` items of 0; `None` when there is not enough memory. The system zeroes fresh pages when they are first used.
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
    // SAFETY: allocated for just so many items, which zeros are.
    Some(unsafe { Vec::from_raw_parts(memory.cast(), count, count) })
}

/// An array, or a batch, that is handed to Arrow without a copy: its buffers and what lies below it.
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

/// What the pointers of an `ArrowArray` point into.
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

/// Called once by whoever holds the array, on any thread.
unsafe extern "C" fn release_array(array: *mut ArrowArray) {
    // SAFETY: the protocol's promise: `array` was made above, or moved from there, and has not been released.
    let array = unsafe { &mut *array };
    // SAFETY: the box that `from` made; nobody else frees it.
    let holder = unsafe { Box::from_raw(array.private_data.cast::<Holder>()) };
    for &child in &holder.children {
        // SAFETY: `from` made it; a consumer may have moved or released what it holds, never the structure itself.
        let mut child = unsafe { Box::from_raw(child) };
        release_held(&mut child);
    }
    array.release = None;
}

/// Free what an array holds, unless somebody has taken that over.
fn release_held(array: &mut ArrowArray) {
    if let Some(release) = array.release {
        // SAFETY: not released yet, or it would say so.
        unsafe { release(array) };
    }
}

/// A batch that waits for Arrow to take it over; `ArrowBatch` of the contract.
#[pyclass(frozen, module = "lance_io._kernels")]
pub struct ArrowBatch(*mut ArrowArray);

// SAFETY: the pointer owns the array, all of whose memory may be used and freed on any thread; nothing here reads it.
unsafe impl Send for ArrowBatch {}
// SAFETY: as above; who imports the array through its address holds the GIL, or is the only one that does.
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
        // SAFETY: made by `Box::into_raw`; dropped once.
        let mut array = unsafe { Box::from_raw(self.0) };
        release_held(&mut array);
    }
}
