//! A leaf with its enclosing layers, the result of every page layout.

use crate::buffer::OwnedBuffer;
use crate::levels::layers::{layers_to_python, LayerOut};
use pyo3::prelude::*;
use pyo3::types::PyList;

/// A leaf for Python: number of items, value buffers, layers.
pub type LeafParts = (usize, Vec<Option<OwnedBuffer>>, Vec<LayerOut>);
pub type Leaf<'py> = (usize, Vec<Option<OwnedBuffer>>, Bound<'py, PyList>);

pub fn leaf_to_python<'py>(py: Python<'py>, parts: LeafParts) -> PyResult<Leaf<'py>> {
    Ok((parts.0, parts.1, layers_to_python(py, parts.2)?))
}
