//! The reference device: a simulated router of known behaviour.
