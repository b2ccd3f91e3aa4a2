//! One writer per run folder. The lock is held by the kernel (flock), so it ends with the process, however the process
//! ends.

use crate::regular::open_regular;
use crate::{LOCK, StoreError};
use std::fs::{File, OpenOptions, TryLockError};
use std::path::Path;

/// Held as long as the writer exists.
#[derive(Debug)]
pub(crate) struct Lock {
    _file: File,
}

impl Lock {
    /// Takes the lock of `dir`.
    pub(crate) fn take(dir: &Path) -> Result<Lock, StoreError> {
        let path = dir.join(LOCK);
        let file = OpenOptions::new()
            .create(true)
            .truncate(false)
            .write(true)
            .open(&path)
            .map_err(|e| StoreError::io("create", &path, &e))?;
        match file.try_lock() {
            Ok(()) => Ok(Lock { _file: file }),
            Err(TryLockError::WouldBlock) => Err(StoreError::Locked(dir.to_owned())),
            Err(TryLockError::Error(e)) => Err(StoreError::io("lock", &path, &e)),
        }
    }

    /// True if a writer holds the lock of `dir`. False if that cannot be determined.
    pub(crate) fn is_held(dir: &Path) -> bool {
        let Ok(file) = open_regular(&dir.join(LOCK)) else { return false };
        matches!(file.try_lock_shared(), Err(TryLockError::WouldBlock))
    }
}
