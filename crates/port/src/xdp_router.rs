//! Forwarding in the receive path of the driver: a kernel program (XDP) that looks packets up in the kernel's routing and neighbour
//! tables and sends them before the kernel allocates packets for them.
//!
//! It forwards plain packets of IPv4 and IPv6. All others continue into the kernel's network stack, which forwards or answers as usual:
//! packets to the router itself, ARP, options, an expiring TTL, an unknown neighbour. Each cause has its counter.

mod program;

use crate::af_packet::sys::{interface_index, interface_mac};
use crate::bpf::{self, Mode, ProgramKind, SharedArray, Terms};
use std::io;
use std::net::{Ipv4Addr, UdpSocket};
use std::os::fd::OwnedFd;

/// Counters of the frames of an interface, by result.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Counter {
    /// IPv4 packets sent to the interface of their route.
    ForwardedIpv4,
    /// IPv6 packets sent to the interface of their route.
    ForwardedIpv6,
    /// Passed to the kernel: neither IPv4 nor IPv6, too short, or for another station or a group.
    PassedOther,
    /// Passed to the kernel: options, hop-by-hop options, or an invalid header.
    PassedHeader,
    /// Passed to the kernel: a TTL or hop limit of 1 or 0.
    PassedTtl,
    /// Passed to the kernel: unknown address of the neighbour.
    PassedNoNeighbour,
    /// Passed to the kernel: longer than the MTU of the output port.
    PassedTooBig,
    /// Passed to the kernel: no route that forwards, including packets to the router itself.
    PassedNoRoute,
}

impl Counter {
    /// All counters.
    pub const ALL: [Counter; 8] = [
        Counter::ForwardedIpv4,
        Counter::ForwardedIpv6,
        Counter::PassedOther,
        Counter::PassedHeader,
        Counter::PassedTtl,
        Counter::PassedNoNeighbour,
        Counter::PassedTooBig,
        Counter::PassedNoRoute,
    ];
    /// Counters of frames passed to the kernel.
    const PASSED: &[Counter] = Counter::ALL.split_at(2).1;

    /// Its index in the map.
    const fn word(self) -> usize {
        self as usize
    }

    /// Its name.
    pub const fn name(self) -> &'static str {
        match self {
            Counter::ForwardedIpv4 => "forwarded_ipv4",
            Counter::ForwardedIpv6 => "forwarded_ipv6",
            Counter::PassedOther => "passed_other",
            Counter::PassedHeader => "passed_header",
            Counter::PassedTtl => "passed_ttl",
            Counter::PassedNoNeighbour => "passed_no_neighbour",
            Counter::PassedTooBig => "passed_too_big",
            Counter::PassedNoRoute => "passed_no_route",
        }
    }
}

/// The helper function for route look-ups requires a program with terms compatible with the kernel's: this program may be used under the
/// MIT licence, like all of this project, or under the GPL.
const TERMS: Terms = Terms { kind: ProgramKind::Xdp, licence: c"Dual MIT/GPL", fragments: true };

/// The program at an interface. It is removed with this value, and with the process, however the process ends.
#[derive(Debug)]
pub struct XdpRouter {
    _link: OwnedFd,
    counters: SharedArray,
}

impl XdpRouter {
    /// Attaches the program to an interface of the current namespace, in its driver.
    ///
    /// # Errors
    /// The system's error: `EPERM` without `CAP_BPF` and `CAP_NET_ADMIN`, `EOPNOTSUPP` if the driver does not support it, or the message of
    /// the kernel's verifier.
    pub fn attach(interface: &str) -> io::Result<XdpRouter> {
        let socket = OwnedFd::from(UdpSocket::bind((Ipv4Addr::LOCALHOST, 0))?);
        let (index, mac) = (interface_index(interface)?, interface_mac(&socket, interface)?);
        let counters = SharedArray::new(1, Counter::ALL.len())?;
        let program = bpf::load_on(&program::assemble(mac, counters.descriptor()), TERMS)?;
        let (link, mode) = bpf::attach(&program, index)?;
        if mode == Mode::Generic {
            let why = "its driver has no place for a program that forwards";
            return Err(io::Error::new(io::ErrorKind::Unsupported, why));
        }
        Ok(XdpRouter { _link: link, counters })
    }

    /// Number of frames counted by `counter` since it was attached.
    pub fn count(&self, counter: Counter) -> u64 {
        self.counters.get(0, counter.word())
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::bpf::assembler::Helper;

    #[test]
    fn counters_have_names_and_places_of_their_own() {
        let mut names: Vec<_> = Counter::ALL.iter().map(|c| c.name()).collect();
        assert!(Counter::ALL.iter().enumerate().all(|(place, counter)| counter.word() == place));
        assert!(names[..2].iter().all(|n| n.starts_with("forwarded_")));
        assert!(Counter::PASSED.iter().all(|c| c.name().starts_with("passed_")));
        names.sort_unstable();
        names.dedup();
        assert_eq!(names.len(), Counter::ALL.len());
    }

    #[test]
    fn every_end_counts_once_and_only_what_has_a_way_out_is_redirected() {
        let code = program::assemble([2, 0, 0, 0, 0, 1], 7);
        let calls = |helper: Helper| code.iter().filter(|i| i.opcode == 0x85 && i.immediate == helper as i32).count();
        assert_eq!((calls(Helper::FibLookup), calls(Helper::Redirect)), (2, 2));
        let counted: Vec<_> = code.iter().filter(|i| i.opcode == 0xdb).map(|i| i.offset / 8).collect();
        let mut places = counted.clone();
        places.sort_unstable();
        assert_eq!(places, (0..Counter::ALL.len() as i16).collect::<Vec<_>>());
        let ends = code.iter().filter(|i| i.opcode == 0x95).count();
        assert_eq!(ends, counted.len(), "one exit behind each count");
    }

    #[test]
    fn the_kernel_takes_the_program() {
        let loaded = SharedArray::new(1, Counter::ALL.len())
            .and_then(|counters| bpf::load_on(&program::assemble([2, 0, 0, 0, 0, 1], counters.descriptor()), TERMS));
        match loaded {
            Ok(_) => {}
            // An ordinary user may not load programs.
            Err(e) if e.kind() == io::ErrorKind::PermissionDenied => {
                assert!(!nix_is_root(), "root may load programs: {e}");
            }
            Err(e) => panic!("{e}"),
        }
    }

    fn nix_is_root() -> bool {
        std::fs::metadata("/proc/self").is_ok_and(|m| std::os::unix::fs::MetadataExt::uid(&m) == 0)
    }
}
