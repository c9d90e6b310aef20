//! Two kinds of failure: the bytes are wrong (`Damaged`), or the caller is (`ValueError`).

use pyo3::create_exception;
use pyo3::exceptions::{PyNotImplementedError, PyValueError};
use pyo3::prelude::*;

create_exception!(_kernels, DamagedError, PyValueError, "The bytes contradict the format.");

/// The bytes contradict the format; the text says how.
#[derive(Debug)]
pub struct Damaged(pub String);

pub type Checked<T> = Result<T, Damaged>;

impl Damaged {
    /// The same finding, told where it was made: `chunk 17: ...`.
    pub fn within(self, place: &str) -> Self {
        Damaged(format!("{place}: {}", self.0))
    }
}

impl From<Damaged> for PyErr {
    fn from(damaged: Damaged) -> PyErr {
        DamagedError::new_err(damaged.0)
    }
}

/// `damaged!("expected {a}, found {b}")` is an `Err(Damaged)`.
#[macro_export]
macro_rules! damaged {
    ($($arg:tt)*) => { Err($crate::error::Damaged(format!($($arg)*))) };
}

/// A finding about the bytes carries the place of the page as its second argument.
pub fn at_page<P>(error: PyErr, place: P) -> PyErr
where
    (String, P): for<'py> IntoPyObject<'py> + Send + Sync + 'static,
{
    Python::attach(|py| match error.is_instance_of::<DamagedError>(py) {
        true => DamagedError::new_err((error.value(py).to_string(), place)),
        false => error,
    })
}

/// The error for what the caller gave.
pub fn invalid(text: impl Into<String>) -> PyErr {
    PyValueError::new_err(text.into())
}

/// What the caller passed does not fit together.
#[derive(Debug)]
pub enum Refused {
    Sizes(String),
    Unsupported(String),
}

pub type Taken<T> = Result<T, Refused>;

/// `refused!("...")` is an `Err(Refused::Sizes)`.
#[macro_export]
macro_rules! refused {
    ($($arg:tt)*) => { Err($crate::error::Refused::Sizes(format!($($arg)*))) };
}

impl From<Refused> for PyErr {
    fn from(refused: Refused) -> PyErr {
        match refused {
            Refused::Sizes(text) => PyValueError::new_err(text),
            Refused::Unsupported(text) => PyNotImplementedError::new_err(text),
        }
    }
}
