//! Generator and analyzer between ports in memory, in virtual time.

#![allow(missing_docs)]

#[path = "../common/mod.rs"]
mod common;
#[path = "../../../wire/tests/tshark/mod.rs"]
mod tshark;

mod alternate;
mod corruption;
mod decoded;
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
