//! When to let other Python threads run.

use pyo3::prelude::*;

/// Work below this many steps (a microsecond or so) keeps the GIL: taking it back from a busy thread can cost
/// milliseconds, more than the others could gain.
const STEPS_WORTH_RELEASING: usize = 1024;

/// Run `work` with the GIL released when its `num_steps` (values, rows, 64-byte lines) make that worthwhile.
pub fn release<T: Send>(py: Python<'_>, num_steps: usize, work: impl FnOnce() -> T + Send) -> T {
    if num_steps < STEPS_WORTH_RELEASING {
        work()
    } else {
        py.detach(work)
    }
}
