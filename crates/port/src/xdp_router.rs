//! Forwarding in the receive path of the driver: a kernel program (XDP) that looks packets up in the kernel's routing
//! and neighbour tables and sends them before the kernel allocates packets for them.
//!
//! It forwards plain packets of IPv4 and IPv6. All others continue into the kernel's network stack, which forwards or
//! answers them as usual: packets to the router itself, ARP, options, an expiring TTL, an unknown neighbour. Each cause
//! has its own counter.

use crate::af_packet::sys::{interface_index, interface_mac};
use crate::bpf::assembler::{Alu, Helper, If, Instruction, Is, Label, Program, Register, Value, Width, wire};
use crate::bpf::{self, Mode, ProgramKind, SharedArray, Terms, verdict};
use std::io;
use std::net::{Ipv4Addr, UdpSocket};
use std::os::fd::OwnedFd;

macro_rules! counters {
    ($($counter:ident = $name:literal, $meaning:literal;)*) => {
        /// Counters of the frames of an interface, by result.
        #[derive(Clone, Copy, Debug, PartialEq, Eq)]
        pub enum Counter { $(#[doc = $meaning] $counter,)* }

        impl Counter {
            /// All counters, in the order of the map.
            pub const ALL: [Counter; [$($name),*].len()] = [$(Counter::$counter),*];

            /// Returns the counter's name.
            pub const fn name(self) -> &'static str {
                match self { $(Counter::$counter => $name,)* }
            }
        }
    };
}

counters! {
    ForwardedIpv4 = "forwarded_ipv4", "IPv4 packets sent to the interface of their route.";
    ForwardedIpv6 = "forwarded_ipv6", "IPv6 packets sent to the interface of their route.";
    PassedOther = "passed_other", "Passed to the kernel: neither IPv4 nor IPv6, too short, or for another station or a group.";
    PassedHeader = "passed_header", "Passed to the kernel: options, hop-by-hop options, or an invalid header.";
    PassedTtl = "passed_ttl", "Passed to the kernel: a TTL or hop limit of 1 or 0.";
    PassedNoNeighbour = "passed_no_neighbour", "Passed to the kernel: unknown address of the neighbour.";
    PassedTooBig = "passed_too_big", "Passed to the kernel: longer than the MTU of the output port.";
    PassedNoRoute = "passed_no_route", "Passed to the kernel: no route that forwards, including packets to the router itself.";
}

/// Counters of frames passed to the kernel.
const PASSED: &[Counter] = Counter::ALL.split_at(2).1;

/// The helper function for route look-ups requires a program whose licence is compatible with the kernel's. This
/// program can be used under the MIT licence, like the rest of this project, or under the GPL.
const TERMS: Terms = Terms { kind: ProgramKind::Xdp, licence: c"Dual MIT/GPL", fragments: true };

/// The program at an interface. The kernel removes it with this value, and with the process, however the process ends.
#[derive(Debug)]
pub struct XdpRouter {
    _link: OwnedFd,
    counters: SharedArray,
}

impl XdpRouter {
    /// Attaches the program to an interface in the current namespace, in its driver.
    ///
    /// # Errors
    /// The operating system's error: `EPERM` without `CAP_BPF` and `CAP_NET_ADMIN`, `EOPNOTSUPP` if the driver does not
    /// support it, or the message of the kernel's verifier.
    pub fn attach(interface: &str) -> io::Result<XdpRouter> {
        let socket = OwnedFd::from(UdpSocket::bind((Ipv4Addr::LOCALHOST, 0))?);
        let (index, mac) = (interface_index(interface)?, interface_mac(&socket, interface)?);
        let counters = SharedArray::new(1, Counter::ALL.len())?;
        let program = bpf::load_on(&assemble(mac, counters.descriptor()), TERMS)?;
        let (link, mode) = bpf::attach(&program, index)?;
        if mode == Mode::Generic {
            let why = "its driver cannot run a program that forwards";
            return Err(io::Error::new(io::ErrorKind::Unsupported, why));
        }
        Ok(XdpRouter { _link: link, counters })
    }

    /// Returns the number of frames that `counter` has counted since the program was attached.
    pub fn count(&self, counter: Counter) -> u64 {
        self.counters.get(0, counter as usize)
    }
}

// The program: looks a packet up in the kernel's tables, writes its new headers, and sends it by the output interface.

// Preserved registers: the context, the frame, the length of the frame. Before the length is known, the end of the
// frame's first page.
const CONTEXT: Register = 6;
const FRAME: Register = 7;
const END: Register = 8;
const LENGTH: Register = 9;
const STACK: Register = 10;

/// Offsets in the context (`struct xdp_md`).
const DATA: i16 = 0;
const DATA_END: i16 = 4;
const INGRESS: i16 = 12;

/// `struct bpf_fib_lookup` (linux/bpf.h) at the end of the stack.
const ASK: i16 = -64;
const FAMILY: i16 = ASK;
const PROTOCOL: i16 = ASK + 1;
const PACKET_LENGTH: i16 = ASK + 6;
const INTERFACE: i16 = ASK + 8;
const SOURCE: i16 = ASK + 16;
const DESTINATION: i16 = ASK + 32;
const SOURCE_MAC: i16 = ASK + 52;
const DESTINATION_MAC: i16 = ASK + 58;
const ASK_BYTES: i16 = 64;

/// Lengths of the headers.
const ETHERNET: i16 = 14;
const IPV4: i16 = 20;
const IPV6: i16 = 40;

/// Results of the look-up, from `BPF_FIB_LKUP_RET_*`.
const FOUND: i32 = 0;
const NO_NEIGHBOUR: i32 = 7;
const TOO_BIG: i32 = 8;

/// Where processing ends for a packet that is not forwarded: one label per counter.
struct Ends(Vec<(Counter, Label)>);

impl Ends {
    fn at(&self, counter: Counter) -> Label {
        self.0.iter().find(|(c, _)| *c == counter).expect("every counter of passed packets has an end").1
    }
}

/// Assembles the program for an interface with this MAC address. It counts in this map.
fn assemble(mac: [u8; 6], map: i32) -> Vec<Instruction> {
    let mut p = Program::default();
    let ends = Ends(PASSED.iter().map(|counter| (*counter, p.label())).collect());
    let ipv6 = p.label();
    p.set(CONTEXT, Is(1));
    p.load(Width::Word, FRAME, CONTEXT, DATA);
    p.load(Width::Word, END, CONTEXT, DATA_END);
    // Check the shorter headers first; every packet is at least this long.
    bound(&mut p, (ETHERNET + IPV4).into(), ends.at(Counter::PassedOther));
    to_us(&mut p, mac, ends.at(Counter::PassedOther));
    p.load(Width::Half, 5, FRAME, 12);
    p.jump_if(If::Equal, 5, Value(wire(0x86dd)), ipv6);
    p.jump_if(If::Unequal, 5, Value(wire(0x0800)), ends.at(Counter::PassedOther));
    read_ipv4(&mut p, &ends);
    look_up(&mut p, &ends);
    // RFC 1624: a TTL that is lower by one makes the checksum higher by one. A carry is added at the lowest bit.
    p.load(Width::Half, 5, FRAME, ETHERNET + 10);
    p.alu(Alu::Add, 5, Value(wire(0x0100)));
    let no_carry = p.label();
    p.jump_if(If::Below, 5, Value(0xffff), no_carry);
    p.alu(Alu::Add, 5, Value(1));
    p.here(no_carry);
    p.store(Width::Half, FRAME, ETHERNET + 10, 5);
    leave(&mut p, ETHERNET + 8, Counter::ForwardedIpv4, map);
    p.here(ipv6);
    bound(&mut p, (ETHERNET + IPV6).into(), ends.at(Counter::PassedHeader));
    read_ipv6(&mut p, &ends);
    look_up(&mut p, &ends);
    leave(&mut p, ETHERNET + 7, Counter::ForwardedIpv6, map);
    for (counter, end) in &ends.0 {
        p.here(*end);
        count(&mut p, *counter, map);
        p.set(0, Value(verdict::PASS));
        p.exit();
    }
    p.assemble()
}

/// Jumps to `pass` if the first page of the frame is shorter than this.
fn bound(p: &mut Program, bytes: i32, pass: Label) {
    p.set(4, Is(FRAME));
    p.alu(Alu::Add, 4, Value(bytes));
    p.jump_if(If::Above, 4, Is(END), pass);
}

/// Jumps to `pass` for a frame to another station or to a group.
fn to_us(p: &mut Program, mac: [u8; 6], pass: Label) {
    let [a, b, c, d, e, f] = mac;
    p.load(Width::Word, 5, FRAME, 0);
    p.set_long(4, u32::from_ne_bytes([a, b, c, d]).into());
    p.jump_if(If::Unequal, 5, Is(4), pass);
    p.load(Width::Half, 5, FRAME, 4);
    p.jump_if(If::Unequal, 5, Value(u16::from_ne_bytes([e, f]).into()), pass);
}

/// Sets everything to zero, except the family and the interface at which the packet arrived.
fn begin_ask(p: &mut Program, family: i32) {
    p.set(1, Is(CONTEXT));
    p.call(Helper::FrameLength);
    p.set(LENGTH, Is(0));
    p.set(1, Value(0));
    (ASK..ASK + ASK_BYTES).step_by(8).for_each(|at| p.store(Width::Long, STACK, at, 1));
    p.set(1, Value(family));
    p.store(Width::Byte, STACK, FAMILY, 1);
    p.load(Width::Word, 1, CONTEXT, INGRESS);
    p.store(Width::Word, STACK, INTERFACE, 1);
}

/// Jumps to `pass` if the frame, which may be longer than the packet, is shorter than the packet length in register 5.
/// Stores the length in the look-up parameters.
fn fits(p: &mut Program, pass: Label) {
    p.store(Width::Half, STACK, PACKET_LENGTH, 5);
    p.alu(Alu::Add, 5, Value(ETHERNET.into()));
    p.jump_if(If::Above, 5, Is(LENGTH), pass);
}

/// Checks the header as in RFC 1812 section 5.2.2. Invalid packets go to the kernel, which drops and counts them.
fn read_ipv4(p: &mut Program, ends: &Ends) {
    begin_ask(p, libc::AF_INET);
    let wrong = ends.at(Counter::PassedHeader);
    // Version 4 and no options.
    p.load(Width::Byte, 5, FRAME, ETHERNET);
    p.jump_if(If::Unequal, 5, Value(0x45), wrong);
    p.set(4, Value(0));
    for at in (0..IPV4).step_by(2) {
        p.load(Width::Half, 5, FRAME, ETHERNET + at);
        p.alu(Alu::Add, 4, Is(5));
    }
    for _ in 0..2 {
        p.set(5, Is(4));
        p.alu(Alu::ShiftRight, 5, Value(16));
        p.alu(Alu::And, 4, Value(0xffff));
        p.alu(Alu::Add, 4, Is(5));
    }
    p.jump_if(If::Unequal, 4, Value(0xffff), wrong);
    p.load(Width::Half, 5, FRAME, ETHERNET + 2);
    p.big_endian(5, 16);
    p.jump_if(If::Below, 5, Value(IPV4.into()), wrong);
    fits(p, wrong);
    p.load(Width::Byte, 5, FRAME, ETHERNET + 8);
    p.jump_if(If::AtMost, 5, Value(1), ends.at(Counter::PassedTtl));
    p.load(Width::Byte, 5, FRAME, ETHERNET + 9);
    p.store(Width::Byte, STACK, PROTOCOL, 5);
    // RFC 1812 section 5.3.7: source addresses in 0/8 and 127/8, multicast groups and above are not hosts. The look-up
    // does not check this.
    p.load(Width::Byte, 5, FRAME, ETHERNET + 12);
    for first in [0, 127] {
        p.jump_if(If::Equal, 5, Value(first), wrong);
    }
    p.jump_if(If::AtLeast, 5, Value(224), wrong);
    for (at, to) in [(12, SOURCE), (16, DESTINATION)] {
        p.load(Width::Word, 5, FRAME, ETHERNET + at);
        p.store(Width::Word, STACK, to, 5);
    }
}

/// Checks the header as in RFC 8200 section 3. The look-up itself refuses multicast groups, and link-local and
/// host-local addresses.
fn read_ipv6(p: &mut Program, ends: &Ends) {
    begin_ask(p, libc::AF_INET6);
    let wrong = ends.at(Counter::PassedHeader);
    p.load(Width::Byte, 5, FRAME, ETHERNET);
    p.alu(Alu::ShiftRight, 5, Value(4));
    p.jump_if(If::Unequal, 5, Value(6), wrong);
    // Every router on the path processes hop-by-hop options.
    p.load(Width::Byte, 5, FRAME, ETHERNET + 6);
    p.jump_if(If::Equal, 5, Value(0), wrong);
    p.store(Width::Byte, STACK, PROTOCOL, 5);
    p.load(Width::Half, 5, FRAME, ETHERNET + 4);
    p.big_endian(5, 16);
    p.alu(Alu::Add, 5, Value(IPV6.into()));
    fits(p, wrong);
    p.load(Width::Byte, 5, FRAME, ETHERNET + 7);
    p.jump_if(If::AtMost, 5, Value(1), ends.at(Counter::PassedTtl));
    for (at, to) in [(8, SOURCE), (16, SOURCE + 8), (24, DESTINATION), (32, DESTINATION + 8)] {
        p.load(Width::Long, 5, FRAME, ETHERNET + at);
        p.store(Width::Long, STACK, to, 5);
    }
    // RFC 4291 section 2.5.2: packets from the unspecified address are not forwarded.
    p.load(Width::Long, 5, STACK, SOURCE);
    p.load(Width::Long, 4, STACK, SOURCE + 8);
    p.alu(Alu::Or, 5, Is(4));
    p.jump_if(If::Equal, 5, Value(0), wrong);
}

/// Queries the kernel's tables. Continues with packets that have an output port and a neighbour.
fn look_up(p: &mut Program, ends: &Ends) {
    p.set(1, Is(CONTEXT));
    p.set(2, Is(STACK));
    p.alu(Alu::Add, 2, Value(ASK.into()));
    p.set(3, Value(ASK_BYTES.into()));
    p.set(4, Value(0));
    p.call(Helper::FibLookup);
    p.jump_if(If::Equal, 0, Value(NO_NEIGHBOUR), ends.at(Counter::PassedNoNeighbour));
    p.jump_if(If::Equal, 0, Value(TOO_BIG), ends.at(Counter::PassedTooBig));
    p.jump_if(If::Unequal, 0, Value(FOUND), ends.at(Counter::PassedNoRoute));
}

/// Decrements the TTL at `ttl`, writes the addresses of the next link, and sends the packet.
fn leave(p: &mut Program, ttl: i16, counter: Counter, map: i32) {
    p.load(Width::Byte, 5, FRAME, ttl);
    p.alu(Alu::Sub, 5, Value(1));
    p.store(Width::Byte, FRAME, ttl, 5);
    for half in (0..6).step_by(2) {
        p.load(Width::Half, 5, STACK, DESTINATION_MAC + half);
        p.store(Width::Half, FRAME, half, 5);
        p.load(Width::Half, 5, STACK, SOURCE_MAC + half);
        p.store(Width::Half, FRAME, 6 + half, 5);
    }
    count(p, counter, map);
    p.load(Width::Word, 1, STACK, INTERFACE);
    p.set(2, Value(0));
    p.call(Helper::Redirect);
    p.exit();
}

fn count(p: &mut Program, counter: Counter, map: i32) {
    p.set_map_value(1, map);
    p.set(2, Value(1));
    p.add_shared(1, counter as i16 * 8, 2);
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn counters_have_names_and_places_of_their_own() {
        let mut names: Vec<_> = Counter::ALL.iter().map(|c| c.name()).collect();
        assert!(Counter::ALL.iter().enumerate().all(|(place, counter)| *counter as usize == place));
        assert!(names[..2].iter().all(|n| n.starts_with("forwarded_")));
        assert!(PASSED.iter().all(|c| c.name().starts_with("passed_")));
        names.sort_unstable();
        names.dedup();
        assert_eq!(names.len(), Counter::ALL.len());
    }

    #[test]
    fn every_end_counts_once_and_only_what_has_a_way_out_is_redirected() {
        let code = assemble([2, 0, 0, 0, 0, 1], 7);
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
            .and_then(|counters| bpf::load_on(&assemble([2, 0, 0, 0, 0, 1], counters.descriptor()), TERMS));
        match loaded {
            Ok(_) => {}
            // An unprivileged user cannot load programs.
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
