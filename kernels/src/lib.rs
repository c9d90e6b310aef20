//! The hot loops of `lance_io`: pure functions over buffers. `lance_io/_kernels.pyi` is the specification.
#![deny(unsafe_code)]

mod buffer;
mod error;
mod levels;

use pyo3::prelude::*;

// Decoded pages are large and short-lived; an allocator that keeps their memory spares a page fault per 4 KiB.
#[global_allocator]
static ALLOCATOR: mimalloc::MiMalloc = mimalloc::MiMalloc;

#[pymodule]
fn _kernels(m: &Bound<'_, PyModule>) -> PyResult<()> {
    m.add("__version__", env!("CARGO_PKG_VERSION"))?;
    m.add("build_profile", if cfg!(debug_assertions) { "debug" } else { "release" })?;
    m.add("DamagedError", m.py().get_type::<error::DamagedError>())?;
    m.add_class::<buffer::OwnedBuffer>()?;
    Ok(())
}
