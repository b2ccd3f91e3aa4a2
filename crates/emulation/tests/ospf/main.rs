//! Emulated OSPF routers that talk with each other in virtual time, and with recorded daemons.

mod adjacency;
mod flooding;
mod lan;
mod tshark;
