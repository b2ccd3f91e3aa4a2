//! Generator and analyzer between ports in memory, in virtual time.

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
