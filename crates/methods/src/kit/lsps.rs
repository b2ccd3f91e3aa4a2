//! Interface of a test to label-switched paths through the DUT by RSVP-TE (RFC 3209).

/// Label-switched paths between the P routers behind the core ports: the DUT is a transit router.
pub trait Lsps {}
