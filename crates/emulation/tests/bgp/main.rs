//! UPDATEs checked by independent decoders, and their memory use.

mod common;
mod memory;
mod oracle;
mod tshark;
mod vpn;
