//! The far end of a benchmark: an interface that lets go of every frame at its first look.

use crate::PortError;
use crate::af_packet::sys::interface_index;
use crate::bpf::assembler::{Program, Value};
use crate::bpf::{self, verdict};
use std::os::fd::OwnedFd;

/// An XDP program that throws away all that an interface receives, for as long as this lives. The interface counts the
/// frames as received. A veth interface with it receives by NAPI, so the other end takes frames that the kernel makes.
pub struct Discard {
    _link: OwnedFd,
}

impl Discard {
    /// At `interface` of the current network namespace.
    ///
    /// # Errors
    /// [`PortError::Open`]: no such interface, not permitted (`CAP_BPF` and `CAP_NET_ADMIN`), it has a program already.
    pub fn attach(interface: &str) -> Result<Discard, PortError> {
        let fail = |e: std::io::Error| PortError::Open { interface: interface.to_owned(), reason: e.to_string() };
        let mut p = Program::default();
        p.set(0, Value(verdict::DROP));
        p.exit();
        let program = bpf::load(&p.assemble()).map_err(fail)?;
        let (link, _) = bpf::attach(&program, interface_index(interface).map_err(fail)?).map_err(fail)?;
        Ok(Discard { _link: link })
    }
}
