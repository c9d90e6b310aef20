//! Metadata of a data file in the form in which writers leave it (spec: file container).

pub mod columns;
pub mod flat_schema;
pub mod fragments;
pub mod metadata;
pub mod pieces;
