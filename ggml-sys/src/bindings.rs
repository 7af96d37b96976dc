#![expect(
    missing_docs,
    non_camel_case_types,
    clippy::pedantic,
    clippy::indexing_slicing,
    clippy::allow_attributes,
    clippy::allow_attributes_without_reason,
    reason = "generated from C headers, whose comments are upstream's"
)]

include!(concat!(env!("OUT_DIR"), "/bindings.rs"));
