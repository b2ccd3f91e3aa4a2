//! LSRs on one link, in virtual time and with a real daemon.

mod common;
mod freertr;
mod hostile;
mod recorded;
mod sessions;
mod tshark;
