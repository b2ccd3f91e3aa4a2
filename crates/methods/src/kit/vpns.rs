//! Interface of a test to the VRFs of a DUT (RFC 4364), and to the emulated CE and PE routers around it.

/// The VRFs of the DUT.
pub trait Vpns {}
