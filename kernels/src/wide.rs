//! Loops that use the widest vector instructions of the processor. With `buffer.rs` and `memory.rs` the only file with
//! `unsafe`.
#![allow(unsafe_code)]

/// A loop over numbers. It is compiled for each set of instructions, with all calls that are inlined into it:
/// `run` and these calls are `#[inline(always)]`. Sums have the same order and the same result by all of them.
pub trait Loop {
    type Output;
    fn run(self) -> Self::Output;
}

/// Run a loop by the widest instructions that the processor has.
pub fn run<L: Loop>(each: L) -> L::Output {
    #[cfg(target_arch = "x86_64")]
    if std::arch::is_x86_feature_detected!("avx2") {
        return unsafe { run_avx2(each) }; // the processor has these instructions
    }
    each.run()
}

#[cfg(target_arch = "x86_64")]
#[target_feature(enable = "avx2")]
fn run_avx2<L: Loop>(each: L) -> L::Output {
    each.run()
}
