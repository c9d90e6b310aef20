//! Reads bytes: plans of reads, local files, ranged GETs and their sockets. Independent of pages.

pub mod copies;
pub mod http;
pub mod once;
pub mod plan;
pub mod pread;
#[cfg(target_os = "linux")]
pub mod sockets;
