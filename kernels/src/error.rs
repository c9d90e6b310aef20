//! Kinds of failure: the bytes are damaged (`Damaged`), memory is exhausted (`NoMemory`), or the caller is wrong
//! (`ValueError`).

use crate::room::NoMemory;
use pyo3::create_exception;
use pyo3::exceptions::{PyMemoryError, PyNotImplementedError, PyValueError};
use pyo3::prelude::*;

create_exception!(_kernels, DamagedError, PyValueError, "The bytes contradict the format.");
create_exception!(_kernels, TooLargeError, DamagedError, "The bytes decode to more than the program allows.");

/// Reason why bytes cannot be decoded.
#[derive(Debug)]
pub enum Fault {
    /// The bytes contradict the format; the text explains the contradiction.
    Damaged(String),
    /// The bytes may be valid, but there is not enough memory to decode them; 0 if the size is unknown.
    NoMemory(usize),
    /// The bytes may be valid, but decode to more than the program of their page allows.
    TooLarge { bytes: u64, bytes_max: usize },
}

pub use Fault::Damaged;

pub type Checked<T> = Result<T, Fault>;

impl Fault {
    /// Add the location to the error: `chunk 17: ...`.
    pub fn within(self, place: &str) -> Self {
        match self {
            Damaged(text) => Damaged(format!("{place}: {text}")),
            other => other,
        }
    }
}

impl From<NoMemory> for Fault {
    fn from(NoMemory(bytes): NoMemory) -> Fault {
        Fault::NoMemory(bytes)
    }
}

impl From<Fault> for PyErr {
    fn from(fault: Fault) -> PyErr {
        match fault {
            Damaged(text) => DamagedError::new_err(text),
            Fault::NoMemory(bytes) => no_memory(bytes),
            Fault::TooLarge { bytes, bytes_max } => TooLargeError::new_err(too_large(bytes, bytes_max)),
        }
    }
}

/// Message for a frame that decodes to too much; `u64::MAX` bytes if it does not announce its size.
pub fn too_large(bytes: u64, bytes_max: usize) -> String {
    let size = if bytes == u64::MAX { "more".into() } else { format!("{bytes} bytes") };
    format!("a compressed frame of {size}; max_decoded_bytes is {bytes_max}")
}

/// The error for exhausted memory; 0 as in `Fault::NoMemory`.
pub fn no_memory(bytes: usize) -> PyErr {
    PyMemoryError::new_err(match bytes {
        0 => "no memory to compress or decompress a frame".into(),
        bytes => format!("no memory for {bytes} bytes"),
    })
}

/// `damaged!("expected {a}, found {b}")` is an `Err(Damaged)`.
#[macro_export]
macro_rules! damaged {
    ($($arg:tt)*) => { Err($crate::error::Fault::Damaged(format!($($arg)*))) };
}

/// Add the index of the page as the second argument of an error about the bytes.
pub fn at_page<P>(error: PyErr, place: P) -> PyErr
where
    (String, P): for<'py> IntoPyObject<'py> + Send + Sync + 'static,
{
    Python::attach(|py| match error.is_instance_of::<DamagedError>(py) {
        true if error.is_instance_of::<TooLargeError>(py) => {
            TooLargeError::new_err((error.value(py).to_string(), place))
        }
        true => DamagedError::new_err((error.value(py).to_string(), place)),
        false => error,
    })
}

/// The error for invalid arguments of the caller.
pub fn invalid(text: impl Into<String>) -> PyErr {
    PyValueError::new_err(text.into())
}

/// The caller's arguments do not fit together.
#[derive(Debug)]
pub enum Refused {
    Sizes(String),
    Unsupported(String),
    NoMemory(usize),
}

pub type Taken<T> = Result<T, Refused>;

/// `refused!("...")` is an `Err(Refused::Sizes)`.
#[macro_export]
macro_rules! refused {
    ($($arg:tt)*) => { Err($crate::error::Refused::Sizes(format!($($arg)*))) };
}

impl From<NoMemory> for Refused {
    fn from(NoMemory(bytes): NoMemory) -> Refused {
        Refused::NoMemory(bytes)
    }
}

impl From<Refused> for PyErr {
    fn from(refused: Refused) -> PyErr {
        match refused {
            Refused::Sizes(text) => PyValueError::new_err(text),
            Refused::Unsupported(text) => PyNotImplementedError::new_err(text),
            Refused::NoMemory(bytes) => no_memory(bytes),
        }
    }
}
