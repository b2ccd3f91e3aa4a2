//! Rigs without a DUT.

mod alone;
mod common;
mod hosts;
mod vlans;
