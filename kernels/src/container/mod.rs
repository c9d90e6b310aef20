//! Metadata of a data file in the form that writers produce (spec: file container).

pub mod columns;
pub mod flat_schema;
pub mod fragments;
pub mod manifest_parts;
pub mod manifest_sums;
pub mod metadata;
pub mod pieces;
