//! Interface of a test to the emulated P routers as neighbours in OSPF (RFC 2328) and LDP (RFC 5036).

/// The emulated P routers behind the core ports.
pub trait Igp {}
