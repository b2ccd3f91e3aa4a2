//! RSVP-TE: ingress and egress against each other in virtual time, under loss and hostile input, checked by tshark.

mod common;
mod lifecycle;
mod scale;
