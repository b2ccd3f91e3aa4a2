//! RSVP-TE: ingress and egress against each other in virtual time, under loss and hostile input, checked by tshark.

mod common;
mod decoded;
mod hostile;
mod lifecycle;
mod loss;
mod rules;
mod scale;
#[path = "../../../wire/tests/tshark/mod.rs"]
mod tshark;
