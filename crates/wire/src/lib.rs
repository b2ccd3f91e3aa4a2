//! Headers and messages as bytes, without I/O; the test signature.
