//! Independent work on several cores, within one call: a pool would not survive a fork.

use crate::error::invalid;
use crate::room::{Gather, GatherResults};
use pyo3::PyResult;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::Mutex;
use std::thread::Builder;

/// The result of `each` for all of `work`, in its order; an idle thread takes the next item. The first failure in that
/// order is the failure of all.
pub fn side_by_side<W: Sync, T: Send>(
    work: &[W],
    threads_max: usize,
    each: impl Fn(&W) -> PyResult<T> + Sync,
) -> PyResult<Vec<T>> {
    let threads = threads_max.min(work.len());
    if threads < 2 {
        return work.iter().map(each).try_vec_of();
    }
    let next = AtomicUsize::new(0);
    let done: Vec<Mutex<Option<PyResult<T>>>> = work.iter().map(|_| Mutex::new(None)).try_vec()?;
    let drain = || loop {
        let at = next.fetch_add(1, Ordering::Relaxed);
        let Some(work) = work.get(at) else { return };
        if let Ok(mut place) = done[at].lock() {
            *place = Some(each(work));
        }
    };
    std::thread::scope(|scope| {
        for _ in 1..threads {
            // If a thread does not start, the others do its share.
            let _ = Builder::new().spawn_scoped(scope, drain);
        }
        drain();
    });
    let results = done.into_iter().map(|place| place.into_inner().ok().flatten());
    results.map(|result| result.unwrap_or_else(|| Err(invalid("a thread ended before its work")))).try_vec_of()
}
