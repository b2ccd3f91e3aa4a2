//! Errors of a run folder. Every message is one line that names the path and the remedy.

use std::io;
use std::path::{Path, PathBuf};

/// Why writing or reading a run failed.
#[derive(Debug, thiserror::Error)]
pub enum StoreError {
    /// The operating system returned an error.
    #[error("cannot {doing} {}: {why}", .path.display())]
    Io {
        /// The operation: `write`.
        doing: &'static str,
        /// The file or folder.
        path: PathBuf,
        /// The cause, with the remedy if one is known.
        why: String,
    },
    /// The folder of the new run already exists.
    #[error("{} exists and is not empty; name another folder or remove this one", .0.display())]
    Exists(PathBuf),
    /// Another process writes into this folder.
    #[error("{} is in use by another running Drophammer; wait for it or name another folder", .0.display())]
    Locked(PathBuf),
    /// The folder contains no run.
    #[error("{} contains no run: {why}", .path.display())]
    NoRun {
        /// The folder.
        path: PathBuf,
        /// What is missing.
        why: String,
    },
    /// A line of the records is unreadable, and it is not a cut last line.
    #[error("{} line {line} is damaged ({why}); the lines before it are intact: copy them to a new folder to read them", .path.display())]
    Corrupt {
        /// The file.
        path: PathBuf,
        /// Line number from 1.
        line: usize,
        /// What is wrong with the line.
        why: String,
    },
    /// A newer program wrote the run.
    #[error("{} has format {found}, but this program reads up to {known}; use a newer Drophammer", .path.display())]
    Format {
        /// The file.
        path: PathBuf,
        /// Its format.
        found: u32,
        /// The newest format that this program supports.
        known: u32,
    },
    /// A path for [`crate::RunWriter::save_text`] outside the run folder.
    #[error("`{0}` is not a path inside the run folder; use a relative path without `..`")]
    Outside(String),
    /// Nothing was written, because it would not be possible to read the record back.
    #[error("cannot store a record that could not be read back ({0}); this is a fault in the test that made it")]
    Unreadable(String),
    /// An earlier write failed and left a partial line that could not be removed. The writer accepts no more records.
    #[error("{} accepts no more records after a failed write: {why}", .path.display())]
    Closed {
        /// The file.
        path: PathBuf,
        /// The first failure.
        why: String,
    },
}

impl StoreError {
    /// An operating system error, with the remedy for the usual causes.
    pub(crate) fn io(doing: &'static str, path: &Path, error: &io::Error) -> StoreError {
        let why = match error.kind() {
            io::ErrorKind::StorageFull => "the disk is full; free some space or choose a folder on another disk".into(),
            io::ErrorKind::QuotaExceeded => {
                "the disk quota is used up; free some space or choose another folder".into()
            }
            io::ErrorKind::ReadOnlyFilesystem => "the file system is read-only; choose another folder".into(),
            io::ErrorKind::PermissionDenied => "permission denied; choose a folder that you may write to".into(),
            io::ErrorKind::NotADirectory => "a part of the path is a file, not a folder; choose another folder".into(),
            io::ErrorKind::NotFound => "no such file or folder; check the path".into(),
            _ => error.to_string(),
        };
        StoreError::Io { doing, path: path.to_owned(), why }
    }
}
