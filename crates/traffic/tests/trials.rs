//! Trials between ports in memory: in virtual time (`engine`), with flows that start and stop (`transmit`), on several threads (`lanes`).

mod common;
mod engine;
mod lanes;
mod transmit;
#[path = "../../wire/tests/tshark/mod.rs"]
mod tshark;
