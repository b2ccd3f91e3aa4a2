//! Rigs without a DUT.

mod alone;
mod hosts;
mod vlans;
