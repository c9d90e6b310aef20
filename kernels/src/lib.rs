//! The hot loops of `lance_io`: pure functions over buffers. `lance_io/_kernels.pyi` is the specification.
#![deny(unsafe_code)]

mod arrays;
mod batches;
mod buffer;
mod container;
mod decode;
mod encode;
mod error;
mod fullzip;
mod gil;
mod io;
mod jsonb;
mod levels;
mod miniblock;
mod sink;
mod take;
mod threads;
mod v2_0;

use pyo3::prelude::*;

#[pymodule]
fn _kernels(m: &Bound<'_, PyModule>) -> PyResult<()> {
    m.add("__version__", env!("CARGO_PKG_VERSION"))?;
    m.add("build_profile", if cfg!(debug_assertions) { "debug" } else { "release" })?;
    m.add("DamagedError", m.py().get_type::<error::DamagedError>())?;
    m.add_class::<buffer::OwnedBuffer>()?;
    m.add_class::<miniblock::indexed_page::IndexedPage>()?;
    m.add_class::<take::plain_page::PlainPage>()?;
    m.add_class::<take::array_page::ArrayPage>()?;
    m.add_class::<v2_0::whole::WholeArray>()?;
    m.add_class::<io::http::RangeSigner>()?;
    m.add_class::<buffer::ArrowBatch>()?;
    m.add_class::<take::pages::Layouts>()?;
    m.add_class::<take::pages::PagesPlan>()?;
    m.add_class::<levels::rows::PageRows>()?;
    #[cfg(target_os = "linux")]
    m.add_class::<io::sockets::RangeSockets>()?;
    m.add_function(wrap_pyfunction!(miniblock::chunks::chunk_table, m)?)?;
    m.add_function(wrap_pyfunction!(miniblock::chunks::repetition_table, m)?)?;
    m.add_function(wrap_pyfunction!(miniblock::chunks::plan_chunks, m)?)?;
    m.add_function(wrap_pyfunction!(fullzip::row_index::fullzip_bounds, m)?)?;
    m.add_function(wrap_pyfunction!(fullzip::row_index::fullzip_pairs, m)?)?;
    m.add_function(wrap_pyfunction!(levels::rows::distinct_rows, m)?)?;
    m.add_function(wrap_pyfunction!(levels::rows::split_rows, m)?)?;
    m.add_function(wrap_pyfunction!(levels::rows::unravel_rows, m)?)?;
    m.add_function(wrap_pyfunction!(miniblock::indexed_page::decode_miniblock, m)?)?;
    m.add_function(wrap_pyfunction!(fullzip::page::decode_fullzip, m)?)?;
    m.add_function(wrap_pyfunction!(decode::block::decode_levels, m)?)?;
    m.add_function(wrap_pyfunction!(decode::dictionary::decode_dictionary, m)?)?;
    m.add_function(wrap_pyfunction!(levels::shred::shred, m)?)?;
    m.add_function(wrap_pyfunction!(fullzip::encode::encode_fullzip, m)?)?;
    m.add_function(wrap_pyfunction!(encode::level_blocks::encode_levels, m)?)?;
    m.add_function(wrap_pyfunction!(arrays::gather::gather_ranges, m)?)?;
    m.add_function(wrap_pyfunction!(batches::bits::join_bits, m)?)?;
    m.add_function(wrap_pyfunction!(batches::lists::join_lists, m)?)?;
    m.add_function(wrap_pyfunction!(batches::strings::join_strings, m)?)?;
    m.add_function(wrap_pyfunction!(arrays::bits::set_bits, m)?)?;
    m.add_function(wrap_pyfunction!(jsonb::from_text::encode_jsonb, m)?)?;
    m.add_function(wrap_pyfunction!(io::http::part_answer, m)?)?;
    m.add_function(wrap_pyfunction!(jsonb::to_text::json_texts, m)?)?;
    m.add_function(wrap_pyfunction!(arrays::maths::float_function, m)?)?;
    m.add_function(wrap_pyfunction!(io::plan::measure_ranges, m)?)?;
    m.add_function(wrap_pyfunction!(io::plan::plan_reads, m)?)?;
    m.add_function(wrap_pyfunction!(io::copies::read_copies, m)?)?;
    m.add_function(wrap_pyfunction!(io::pread::read_ranges, m)?)?;
    m.add_function(wrap_pyfunction!(io::pread::read_files, m)?)?;
    m.add_function(wrap_pyfunction!(encode::bitpack::pack_block, m)?)?;
    m.add_function(wrap_pyfunction!(encode::dictionary::distinct_variable, m)?)?;
    m.add_function(wrap_pyfunction!(encode::dictionary::distinct_fixed, m)?)?;
    m.add_function(wrap_pyfunction!(encode::fsst::encode_fsst, m)?)?;
    m.add_function(wrap_pyfunction!(encode::general::compress_block, m)?)?;
    m.add_function(wrap_pyfunction!(encode::packed_rows::pack_rows, m)?)?;
    m.add_function(wrap_pyfunction!(encode::stats::measure_words, m)?)?;
    m.add_function(wrap_pyfunction!(miniblock::encode::plan_miniblock, m)?)?;
    m.add_function(wrap_pyfunction!(miniblock::encode::encode_miniblock, m)?)?;
    m.add_function(wrap_pyfunction!(miniblock::encode::repetition_index, m)?)?;
    m.add_function(wrap_pyfunction!(container::columns::column_pages, m)?)?;
    m.add_function(wrap_pyfunction!(container::metadata::file_columns, m)?)?;
    m.add_function(wrap_pyfunction!(container::metadata::file_ending, m)?)?;
    m.add_function(wrap_pyfunction!(container::metadata::split_descriptor, m)?)?;
    m.add_function(wrap_pyfunction!(container::metadata::split_items, m)?)?;
    m.add_function(wrap_pyfunction!(miniblock::whole::index_pages, m)?)?;
    m.add_function(wrap_pyfunction!(miniblock::whole::scan_pages, m)?)?;
    m.add_function(wrap_pyfunction!(v2_0::bits::gather_bits, m)?)?;
    m.add_function(wrap_pyfunction!(v2_0::bits::unpack_bits, m)?)?;
    m.add_function(wrap_pyfunction!(v2_0::codes::look_up_codes, m)?)?;
    m.add_function(wrap_pyfunction!(v2_0::ends::decode_ends, m)?)?;
    m.add_function(wrap_pyfunction!(v2_0::groups::unpack_groups, m)?)?;
    m.add_function(wrap_pyfunction!(v2_0::inflate::inflate, m)?)?;
    m.add_function(wrap_pyfunction!(v2_0::symbols::decode_symbols, m)?)?;
    m.add_function(wrap_pyfunction!(v2_0::whole::whole_ranges, m)?)?;
    m.add_function(wrap_pyfunction!(v2_0::whole::scan_arrays, m)?)?;
    Ok(())
}
