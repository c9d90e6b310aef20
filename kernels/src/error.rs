//! Two kinds of failure: the bytes are wrong (`Damaged`), or the caller is (`ValueError`).

use pyo3::create_exception;
use pyo3::exceptions::PyValueError;
use pyo3::PyErr;

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
