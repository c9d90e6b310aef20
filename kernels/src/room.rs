//! Fallible memory allocation: exhausted memory becomes an error that callers can handle, and never ends the process.
//!
//! Rust's own `push`, `collect`, `vec!` and so on abort the process. For sizes other than small constants, kernels use
//! this module; `tests/kernels/test_room.py` checks every line.

use crate::buffer::zeroed;
use crate::error::no_memory;
use pyo3::prelude::*;
use pyo3::types::PyBytes;

/// An allocation of this many bytes failed.
#[derive(Debug)]
pub struct NoMemory(pub usize);

pub type Roomy<T> = Result<T, NoMemory>;

impl From<NoMemory> for PyErr {
    fn from(NoMemory(bytes): NoMemory) -> PyErr {
        no_memory(bytes)
    }
}

/// Reserve memory for `count` more items of a growing vector.
#[inline]
pub fn reserve<T>(vector: &mut Vec<T>, count: usize) -> Roomy<()> {
    match vector.try_reserve(count) {
        Ok(()) => Ok(()),
        Err(_) => Err(no_room::<T>(vector.len().saturating_add(count))),
    }
}

#[cold]
fn no_room<T>(count: usize) -> NoMemory {
    NoMemory(count.saturating_mul(size_of::<T>()))
}

/// A vector with memory for `count` items.
pub fn vec_with_capacity<T>(count: usize) -> Roomy<Vec<T>> {
    let mut vector = Vec::new();
    match vector.try_reserve_exact(count) {
        Ok(()) => Ok(vector),
        Err(_) => Err(no_room::<T>(count)),
    }
}

/// A vector with memory for the announced number of items, if that can be allocated: the number is unchecked input, and
/// adding items fails without memory.
pub fn with_room<T>(announced: usize) -> Vec<T> {
    let mut vector = Vec::new();
    let _ = vector.try_reserve_exact(announced);
    vector
}

/// A vector of `count` equal items.
pub fn filled<T: Clone>(item: T, count: usize) -> Roomy<Vec<T>> {
    let mut vector = vec_with_capacity(count)?;
    vector.resize(count, item); // room: reserved
    Ok(vector)
}

/// A vector of `count` zeros.
pub fn zeros<T: bytemuck::Zeroable>(count: usize) -> Roomy<Vec<T>> {
    zeroed(count).ok_or_else(|| no_room::<T>(count))
}

/// `COUNT` equal items, on the heap.
pub fn boxed<T: Copy, const COUNT: usize>(item: T) -> Roomy<Box<[T; COUNT]>> {
    let items = filled(item, COUNT)?.into_boxed_slice(); // room: its own
    match items.try_into() {
        Ok(array) => Ok(array),
        Err(_) => unreachable!("the vector has just that many items"),
    }
}

/// A copy of bytes, as items of any type.
pub fn copied<T: bytemuck::AnyBitPattern + bytemuck::NoUninit>(bytes: &[u8]) -> Roomy<Vec<T>> {
    let count = bytes.len() / size_of::<T>();
    let mut vector = zeros::<T>(count)?;
    bytemuck::cast_slice_mut::<T, u8>(&mut vector).copy_from_slice(&bytes[..count * size_of::<T>()]);
    Ok(vector)
}

/// Bytes that Python owns.
pub fn py_bytes<'py>(py: Python<'py>, bytes: &[u8]) -> PyResult<Bound<'py, PyBytes>> {
    PyBytes::new_with(py, bytes.len(), |memory| {
        memory.copy_from_slice(bytes);
        Ok(())
    })
}

/// The growing methods of a vector, with an error for exhausted memory.
pub trait Grow<T> {
    fn try_push(&mut self, item: T) -> Roomy<()>;
    fn try_append(&mut self, items: &[T]) -> Roomy<()>
    where
        T: Clone;
    fn try_extend(&mut self, items: impl IntoIterator<Item = T>) -> Roomy<()>;
    fn try_resize(&mut self, count: usize, item: T) -> Roomy<()>
    where
        T: Clone;
}

impl<T> Grow<T> for Vec<T> {
    #[inline(always)]
    fn try_push(&mut self, item: T) -> Roomy<()> {
        if self.len() == self.capacity() {
            reserve(self, 1)?;
        }
        self.push(item); // room: reserved
        Ok(())
    }

    #[inline]
    fn try_append(&mut self, items: &[T]) -> Roomy<()>
    where
        T: Clone,
    {
        reserve(self, items.len())?;
        self.extend_from_slice(items); // room: reserved
        Ok(())
    }

    /// Add items; if their number is known, memory is reserved once.
    #[inline]
    fn try_extend(&mut self, items: impl IntoIterator<Item = T>) -> Roomy<()> {
        let mut items = items.into_iter();
        let (least, most) = items.size_hint();
        reserve(self, least)?;
        if most == Some(least) {
            self.extend(items); // room: reserved
            return Ok(());
        }
        items.try_for_each(|item| self.try_push(item))
    }

    #[inline]
    fn try_resize(&mut self, count: usize, item: T) -> Roomy<()>
    where
        T: Clone,
    {
        reserve(self, count.saturating_sub(self.len()))?;
        self.resize(count, item); // room: reserved
        Ok(())
    }
}

/// A copy of a slice.
pub trait Copied<T> {
    fn try_to_vec(&self) -> Roomy<Vec<T>>;
}

impl<T: Clone> Copied<T> for [T] {
    fn try_to_vec(&self) -> Roomy<Vec<T>> {
        let mut vector = vec_with_capacity(self.len())?;
        vector.extend_from_slice(self); // room: reserved
        Ok(vector)
    }
}

/// Collect all items of an iterator in a vector.
pub trait Gather: Iterator + Sized {
    fn try_vec(self) -> Roomy<Vec<Self::Item>> {
        let mut vector = Vec::new();
        vector.try_extend(self)?;
        Ok(vector)
    }
}

impl<I: Iterator> Gather for I {}

/// Collect all items of an iterator in a vector, or return its first failure.
pub trait GatherResults<T, E: From<NoMemory>>: Iterator<Item = Result<T, E>> + Sized {
    fn try_vec_of(self) -> Result<Vec<T>, E> {
        let mut vector = with_room(self.size_hint().0);
        for item in self {
            vector.try_push(item?)?;
        }
        Ok(vector)
    }
}

impl<T, E: From<NoMemory>, I: Iterator<Item = Result<T, E>>> GatherResults<T, E> for I {}

/// Collect all items of an iterator in a vector, if none of them is `None`.
pub trait GatherOptions<T>: Iterator<Item = Option<T>> + Sized {
    fn try_some(self) -> Roomy<Option<Vec<T>>> {
        let mut vector = with_room(self.size_hint().0);
        for item in self {
            let Some(item) = item else { return Ok(None) };
            vector.try_push(item)?;
        }
        Ok(Some(vector))
    }
}

impl<T, I: Iterator<Item = Option<T>>> GatherOptions<T> for I {}
