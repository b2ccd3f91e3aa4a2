//! A run on disk: written as it happens, readable after a crash.
