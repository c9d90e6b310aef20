//! Functions of one float, for filters.
//!
//! Uses the standard library, which calls the C library. Vectorized functions differ from it in the last bit, and from
//! processor to processor, so that a filter would select other rows on another machine.

use crate::buffer::{Input, OwnedBuffer};
use crate::gil;
use crate::room::{Gather, Roomy};
use pyo3::exceptions::PyValueError;
use pyo3::prelude::*;

/// Approximate cost of a function, in steps of `gil::release`.
const STEPS_PER_VALUE: usize = 8;

macro_rules! functions {
    ($find:ident, $apply:ident, $float:ident, $bits:ident, $above:expr) => {
        fn $find(name: &str) -> Option<fn($float) -> $float> {
            Some(match name {
                "sin" => $float::sin,
                "cos" => $float::cos,
                "tan" => $float::tan,
                "cot" => |x| 1.0 / x.tan(),
                "asin" => $float::asin,
                "acos" => $float::acos,
                "atan" => $float::atan,
                "sinh" => $float::sinh,
                "cosh" => $float::cosh,
                "tanh" => $float::tanh,
                "asinh" => $float::asinh,
                "acosh" => $float::acosh,
                "atanh" => $float::atanh,
                "sqrt" => $float::sqrt,
                "cbrt" => $float::cbrt,
                "exp" => $float::exp,
                "ln" => $float::ln,
                "log" => |x| x.log(10.0),
                "log2" => $float::log2,
                "log10" => $float::log10,
                "degrees" => $float::to_degrees,
                "radians" => $float::to_radians,
                "signum" => |x| if x == 0.0 { 0.0 } else { x.signum() },
                _ => return None,
            })
        }

        /// Apply the function to each value. C libraries differ in the sign of the NaN outside of the domain, which
        /// decides whether it sorts above or below all numbers; it is above for the functions of `$above`.
        fn $apply(name: &str, values: &[u8]) -> Roomy<Option<Vec<$bits>>> {
            let Some(function) = $find(name) else { return Ok(None) };
            let outside = if $above.contains(&name) { $float::NAN } else { -$float::NAN };
            let (values, _) = values.as_chunks();
            let results = values.iter().map(|&bytes| {
                let value = $float::from_le_bytes(bytes);
                let result = function(value);
                if result.is_nan() && !value.is_nan() {
                    outside
                } else {
                    result
                }
            });
            results.map(|result| result.to_bits() as $bits).try_vec().map(Some)
        }
    };
}

functions!(find64, apply64, f64, i64, ["asin", "acos", "ln", "log", "log2", "log10"]);
functions!(find32, apply32, f32, i32, ["asin", "acos", "log10"]);

/// `float_function` of `_kernels.pyi`.
#[pyfunction]
#[pyo3(signature = (name, values, width, /))]
pub fn float_function(py: Python<'_>, name: &str, values: &Bound<'_, PyAny>, width: usize) -> PyResult<OwnedBuffer> {
    let values = Input::new(values)?;
    let values = values.bytes();
    if !matches!(width, 4 | 8) || !values.len().is_multiple_of(width) {
        return Err(PyValueError::new_err(format!("{} bytes are no floats of {width} bytes", values.len())));
    }
    let num_steps = values.len() / width * STEPS_PER_VALUE;
    let found: Option<OwnedBuffer> = gil::release(py, num_steps, || {
        Roomy::Ok(match width {
            4 => apply32(name, values)?.map(OwnedBuffer::from),
            _ => apply64(name, values)?.map(OwnedBuffer::from),
        })
    })?;
    found.ok_or_else(|| PyValueError::new_err(format!("there is no function {name} of one float")))
}
