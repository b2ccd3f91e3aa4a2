//! Suites as people write them: reads YAML into `model::suite`, reports all errors together, each with its line and a
//! remedy, and creates the schema for editors. Nothing here does I/O: the caller opens files.

mod about;
mod addresses;
mod bgp;
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
pub mod keys;
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

pub use addresses::is_lab_address;
pub use errors::{Source, SuiteError, SuiteErrors};
pub use read::Overrides;
pub use specs::{check_specs, defaults};
