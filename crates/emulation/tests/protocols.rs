//! The emulated protocols against each other, recorded daemons and independent decoders, in virtual time. One program, because linking
//! several takes longer than running them; `bgp` is another one, because it measures the memory of its process.

// Some of these modules are parts of other programs too, so each names the decoder itself.
#![allow(clippy::duplicate_mod)]

mod bgp_daemons;
mod exchanges;
mod freertr;
mod ldp;
mod ospf;
mod rsvp;
mod rsvp_freertr;
