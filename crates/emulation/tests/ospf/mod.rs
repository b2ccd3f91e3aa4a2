//! Emulated OSPF routers against each other in virtual time, and against recorded daemons.

mod adjacency;
mod flooding;
mod lan;
mod tshark;
