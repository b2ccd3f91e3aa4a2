//! Suites as people write them: YAML into `model::suite`, with all errors at once, each with its line and a remedy; and the
//! schema for editors. Nothing here does I/O: who calls says how files are opened.

mod about;
mod addresses;
mod bgp;
mod blocks;
mod cells;
mod digest;
mod dut_list;
mod dut_topology;
pub mod errors;
mod expect;
mod fields;
mod flow_list;
mod flow_overlap;
pub mod include;
mod indent;
mod kept;
pub mod keys;
mod label_list;
mod port_list;
mod published;
mod raw;
pub mod read;
pub mod schema;
pub mod set;
mod specs;
mod test_list;
mod typed;
mod values;
pub mod variables;
mod vlan_list;

pub use blocks::is_lab_address;
pub use errors::{Source, SuiteError, SuiteErrors};
pub use read::Overrides;
pub use specs::{check_specs, defaults};
