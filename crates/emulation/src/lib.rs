//! Emulated hosts and routers: bytes and an instant in, bytes and a deadline out.
