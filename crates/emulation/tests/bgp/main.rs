//! UPDATEs under the eyes of others, and what they take of memory.

mod common;
mod memory;
mod oracle;
mod tshark;
