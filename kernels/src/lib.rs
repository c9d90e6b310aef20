//! The hot loops of `lance_io`: pure functions over buffers. `lance_io/_kernels.pyi` is the specification.
#![deny(unsafe_code)]

mod bitpack;
mod bits;
mod block;
mod buffer;
mod bytesplit;
mod chunks;
mod codec;
mod columns;
mod dictionary;
mod encode_bitpack;
mod encode_bytesplit;
mod encode_dictionary;
mod encode_fixed;
mod encode_fsst;
mod encode_fullzip;
mod encode_general;
mod encode_jsonb;
mod encode_levels;
mod encode_miniblock;
mod encode_rle;
mod encode_rows;
mod encode_stats;
mod encode_symbols;
mod encode_values;
mod encode_variable;
mod entries;
mod error;
mod fixed;
mod fsst;
mod fullzip;
mod gather;
mod general;
mod gil;
mod held;
mod http;
mod items;
mod join;
mod jsonb;
mod levels;
mod many;
mod maths;
mod miniblock;
mod plan;
mod planes;
mod pread;
mod rle;
mod rows;
mod select;
mod shapes;
mod shred;
mod sink;
#[cfg(target_os = "linux")]
mod sockets;
mod tables;
mod threads;
mod values;
mod variable;
mod whole;

use pyo3::prelude::*;

#[pymodule]
fn _kernels(m: &Bound<'_, PyModule>) -> PyResult<()> {
    m.add("__version__", env!("CARGO_PKG_VERSION"))?;
    m.add("build_profile", if cfg!(debug_assertions) { "debug" } else { "release" })?;
    m.add("DamagedError", m.py().get_type::<error::DamagedError>())?;
    m.add_class::<buffer::OwnedBuffer>()?;
    m.add_class::<held::IndexedPage>()?;
    m.add_class::<held::PlainPage>()?;
    m.add_class::<http::RangeSigner>()?;
    m.add_class::<many::PagesPlan>()?;
    #[cfg(target_os = "linux")]
    m.add_class::<sockets::RangeSockets>()?;
    m.add_function(wrap_pyfunction!(chunks::chunk_table, m)?)?;
    m.add_function(wrap_pyfunction!(chunks::repetition_table, m)?)?;
    m.add_function(wrap_pyfunction!(chunks::plan_chunks, m)?)?;
    m.add_function(wrap_pyfunction!(chunks::fullzip_bounds, m)?)?;
    m.add_function(wrap_pyfunction!(chunks::fullzip_pairs, m)?)?;
    m.add_function(wrap_pyfunction!(rows::distinct_rows, m)?)?;
    m.add_function(wrap_pyfunction!(rows::split_rows, m)?)?;
    m.add_function(wrap_pyfunction!(rows::unravel_rows, m)?)?;
    m.add_function(wrap_pyfunction!(miniblock::decode_miniblock, m)?)?;
    m.add_function(wrap_pyfunction!(fullzip::decode_fullzip, m)?)?;
    m.add_function(wrap_pyfunction!(block::decode_levels, m)?)?;
    m.add_function(wrap_pyfunction!(dictionary::decode_dictionary, m)?)?;
    m.add_function(wrap_pyfunction!(shred::shred, m)?)?;
    m.add_function(wrap_pyfunction!(encode_fullzip::encode_fullzip, m)?)?;
    m.add_function(wrap_pyfunction!(encode_levels::encode_levels, m)?)?;
    m.add_function(wrap_pyfunction!(gather::gather_ranges, m)?)?;
    m.add_function(wrap_pyfunction!(bits::set_bits, m)?)?;
    m.add_function(wrap_pyfunction!(encode_jsonb::encode_jsonb, m)?)?;
    m.add_function(wrap_pyfunction!(http::part_answer, m)?)?;
    m.add_function(wrap_pyfunction!(jsonb::json_texts, m)?)?;
    m.add_function(wrap_pyfunction!(maths::float_function, m)?)?;
    m.add_function(wrap_pyfunction!(plan::measure_ranges, m)?)?;
    m.add_function(wrap_pyfunction!(plan::plan_reads, m)?)?;
    m.add_function(wrap_pyfunction!(pread::read_ranges, m)?)?;
    m.add_function(wrap_pyfunction!(pread::read_files, m)?)?;
    m.add_function(wrap_pyfunction!(encode_bitpack::pack_block, m)?)?;
    m.add_function(wrap_pyfunction!(encode_dictionary::distinct_variable, m)?)?;
    m.add_function(wrap_pyfunction!(encode_dictionary::distinct_fixed, m)?)?;
    m.add_function(wrap_pyfunction!(encode_fsst::encode_fsst, m)?)?;
    m.add_function(wrap_pyfunction!(encode_general::compress_block, m)?)?;
    m.add_function(wrap_pyfunction!(encode_rows::pack_rows, m)?)?;
    m.add_function(wrap_pyfunction!(encode_stats::measure_words, m)?)?;
    m.add_function(wrap_pyfunction!(encode_miniblock::plan_miniblock, m)?)?;
    m.add_function(wrap_pyfunction!(encode_miniblock::encode_miniblock, m)?)?;
    m.add_function(wrap_pyfunction!(encode_miniblock::repetition_index, m)?)?;
    m.add_function(wrap_pyfunction!(columns::column_pages, m)?)?;
    m.add_function(wrap_pyfunction!(whole::index_pages, m)?)?;
    m.add_function(wrap_pyfunction!(whole::scan_pages, m)?)?;
    Ok(())
}
