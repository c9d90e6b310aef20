//! JSON text and its stored form. `lance_io/levels/jsonb.py` has the layout of the bytes.

pub mod from_text;
pub mod select;
pub mod to_text;
