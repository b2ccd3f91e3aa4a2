//! A run on disk: written as it happens, readable after a crash.
//!
//! A run is a folder. `run.jsonl` contains one [`drophammer_model::record::Record`] per line in order of time. Text
//! files next to it contain the suite, and configurations and logs of DUTs. [`RunWriter`] appends. [`RunReader`] reads
//! a run that is complete, interrupted, cut off, or still being written.

mod error;
mod reader;
mod regular;
mod utc;
mod writer;

pub use error::StoreError;
pub use reader::{Run, RunReader, RunState};
pub use regular::{open_regular, read_regular};
pub use utc::{utc_compact, utc_now, utc_text};
pub use writer::RunWriter;

/// Name of the file of records within a run folder.
pub const RECORDS: &str = "run.jsonl";
/// Name of the lock file within a run folder; locked while a writer exists.
pub const LOCK: &str = "run.lock";
/// Name of the symbolic link next to the run folders that points to the newest one.
pub const LATEST: &str = "latest";
