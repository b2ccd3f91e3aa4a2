//! Generator and analyzer between ports in memory, in virtual time.

#![allow(missing_docs)]

#[path = "../common/mod.rs"]
mod common;

mod alternate;
mod corruption;
mod destinations;
mod deviations;
mod encapsulation;
mod events;
mod faults;
mod flows;
mod held_up;
mod live;
mod loads;
mod refusals;
mod tshark;
