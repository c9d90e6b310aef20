//! Borrowed input and owned output through Python's buffer protocol. The only file with `unsafe`.
#![allow(unsafe_code)]

use pyo3::buffer::PyUntypedBuffer;
use pyo3::exceptions::{PyBufferError, PyValueError};
use pyo3::ffi;
use pyo3::prelude::*;
use std::os::raw::c_int;

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
        if bytes.len() % 8 != 0 {
            return Err(PyValueError::new_err("an i64 buffer needs a multiple of 8 bytes"));
        }
        Ok(match bytemuck::try_cast_slice::<u8, i64>(bytes) {
            Ok(values) => std::borrow::Cow::Borrowed(values),
            Err(_) => std::borrow::Cow::Owned(bytemuck::pod_collect_to_vec(bytes)),
        })
    }

    /// The bytes as little-endian u16s, as above.
    pub fn u16s(&self) -> PyResult<std::borrow::Cow<'_, [u16]>> {
        let bytes = self.bytes();
        if bytes.len() % 2 != 0 {
            return Err(PyValueError::new_err("a u16 buffer needs an even number of bytes"));
        }
        Ok(match bytemuck::try_cast_slice::<u8, u16>(bytes) {
            Ok(values) => std::borrow::Cow::Borrowed(values),
            Err(_) => std::borrow::Cow::Owned(bytemuck::pod_collect_to_vec(bytes)),
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
    length: usize,
}

impl OwnedBuffer {
    fn parts(&self) -> (*const u8, usize) {
        let pointer = match &self.memory {
            Memory::Bytes(v) => v.as_ptr(),
            Memory::Words(v) => v.as_ptr() as *const u8,
            Memory::Levels(v) => v.as_ptr() as *const u8,
            Memory::Ints(v) => v.as_ptr() as *const u8,
            Memory::Longs(v) => v.as_ptr() as *const u8,
        };
        (pointer, self.length)
    }
}

impl From<Vec<u8>> for OwnedBuffer {
    fn from(v: Vec<u8>) -> Self {
        let length = v.len();
        OwnedBuffer { memory: Memory::Bytes(v), length }
    }
}
impl From<Vec<u16>> for OwnedBuffer {
    fn from(v: Vec<u16>) -> Self {
        let length = v.len() * 2;
        OwnedBuffer { memory: Memory::Levels(v), length }
    }
}
impl From<Vec<i32>> for OwnedBuffer {
    fn from(v: Vec<i32>) -> Self {
        let length = v.len() * 4;
        OwnedBuffer { memory: Memory::Ints(v), length }
    }
}
impl From<Vec<i64>> for OwnedBuffer {
    fn from(v: Vec<i64>) -> Self {
        let length = v.len() * 8;
        OwnedBuffer { memory: Memory::Longs(v), length }
    }
}

impl OwnedBuffer {
    /// The first `length` bytes of 8-byte aligned memory (fixed-width values of any width).
    pub fn aligned(words: Vec<u64>, length: usize) -> Self {
        assert!(length <= words.len() * 8);
        OwnedBuffer { memory: Memory::Words(words), length }
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
