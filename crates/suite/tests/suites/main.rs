//! Reading of suites.

#![allow(missing_docs)]

#[path = "../common/mod.rs"]
mod common;

mod suite_errors;
mod suite_flows;
mod suite_ids;
mod suite_include;
mod suite_keys;
mod suite_props;
mod suite_read;
mod suite_schema;
mod topology;
