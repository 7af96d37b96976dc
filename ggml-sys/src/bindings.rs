#![expect(
    missing_docs,
    non_camel_case_types,
    clippy::pedantic,
    reason = "generated from C headers, whose comments are upstream's"
)]

include!(concat!(env!("OUT_DIR"), "/bindings.rs"));
