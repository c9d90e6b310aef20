//! Decides when to release the GIL.

use pyo3::prelude::*;

/// Work below this many steps (about a microsecond) keeps the GIL: reacquiring it from a busy thread can take
/// milliseconds, more than other threads could gain.
const STEPS_WORTH_RELEASING: usize = 1024;

/// Run `work`, with the GIL released if its `num_steps` (values, rows, 64-byte lines) make that worthwhile.
pub fn release<T: Send>(py: Python<'_>, num_steps: usize, work: impl FnOnce() -> T + Send) -> T {
    if num_steps < STEPS_WORTH_RELEASING {
        work()
    } else {
        py.detach(work)
    }
}
