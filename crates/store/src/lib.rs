//! A run on disk: written as it happens, readable after a crash.
//!
//! A run is a folder. `run.jsonl` holds one [`drophammer_model::record::Record`] per line in order of time. Text files
//! beside it hold the suite as it was read, and configurations and logs of DUTs. [`RunWriter`] appends, [`RunReader`]
//! reads a run that is complete, interrupted, cut off, or still being written.

mod error;
mod lock;
mod reader;
mod regular;
mod state;
mod utc;
mod writer;

pub use error::StoreError;
pub use reader::{Run, RunReader};
pub use regular::{open_regular, read_regular};
pub use state::RunState;
pub use utc::{utc_compact, utc_now, utc_text};
pub use writer::RunWriter;

/// Name of the file of records within a run folder.
pub const RECORDS: &str = "run.jsonl";
/// Name of the lock file within a run folder; locked while a writer lives.
pub const LOCK: &str = "run.lock";
/// Name of the symbolic link, beside the run folders, that points to the newest of them.
pub const LATEST: &str = "latest";
