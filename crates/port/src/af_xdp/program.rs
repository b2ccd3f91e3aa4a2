//! The program that tells test frames from the rest, in the kernel: assembled here, loaded by `bpf()`, attached by a link.
//!
//! It redirects to our socket what is UDP to port 9 (IPv4 without options and not a fragment, or IPv6 without extension
//! headers), whatever its MAC addresses. All else goes on into the kernel, where a packet socket picks it up; so does a
//! test frame that came in at a queue without socket, with a VLAN tag, or after the socket is gone.

use crate::af_packet::sys::check;
use drophammer_wire::signature::TEST_PORT;
use std::io;
use std::mem;
use std::os::fd::{AsRawFd, FromRawFd, OwnedFd};

const MAP_CREATE: libc::c_long = 0;
const MAP_UPDATE: libc::c_long = 2;
const PROG_LOAD: libc::c_long = 5;
const LINK_CREATE: libc::c_long = 28;
const MAP_TYPE_XSKMAP: u32 = 17;
const PROG_TYPE_XDP: u32 = 6;
const ATTACH_XDP: u32 = 37;
const PASS: i32 = 2;
const HELPER_REDIRECT_MAP: i32 = 51;

/// Where the driver runs the program.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Mode {
    /// In the driver, before the kernel makes a packet of its own of the frame.
    Native,
    /// In the kernel's common receive path; works with every driver.
    Generic,
}

/// `bpf()` with one of the attribute structs below.
fn bpf<T>(command: libc::c_long, attributes: &mut T) -> io::Result<i32> {
    let pointer: *mut T = attributes;
    // SAFETY: `T` is the attribute struct of `command`, zero-padded; its size is told, and the pointers in it live through
    // the call.
    let result = unsafe { libc::syscall(libc::SYS_bpf, command, pointer, mem::size_of::<T>()) };
    check(result as libc::c_int)
}

fn owned(fd: i32) -> OwnedFd {
    // SAFETY: `bpf()` has just given this descriptor to us alone.
    unsafe { OwnedFd::from_raw_fd(fd) }
}

/// Attributes of `BPF_MAP_CREATE`, as far as they are needed.
#[repr(C)]
#[derive(Default)]
struct MapCreate {
    kind: u32,
    key_size: u32,
    value_size: u32,
    max_entries: u32,
}

/// A map from receive queues to sockets.
///
/// # Errors
/// The system's; `EPERM` without `CAP_BPF`.
pub fn socket_map() -> io::Result<OwnedFd> {
    let mut attributes = MapCreate { kind: MAP_TYPE_XSKMAP, key_size: 4, value_size: 4, max_entries: 1 };
    bpf(MAP_CREATE, &mut attributes).map(owned)
}

#[repr(C)]
struct MapUpdate {
    map: u32,
    pad: u32,
    key: u64,
    value: u64,
    flags: u64,
}

/// Puts `socket` into the map at queue 0.
///
/// # Errors
/// The system's.
pub fn insert(map: &OwnedFd, socket: &OwnedFd) -> io::Result<()> {
    let key = 0u32;
    let value = socket.as_raw_fd();
    let mut attributes = MapUpdate {
        map: map.as_raw_fd() as u32,
        pad: 0,
        key: (&raw const key) as u64,
        value: (&raw const value) as u64,
        flags: 0,
    };
    bpf(MAP_UPDATE, &mut attributes).map(drop)
}

#[repr(C)]
struct ProgLoad {
    kind: u32,
    count: u32,
    instructions: u64,
    license: u64,
    log_level: u32,
    log_size: u32,
    log: u64,
    kernel_version: u32,
    flags: u32,
}

/// Loads the program over `map`.
///
/// # Errors
/// The system's; what the verifier says is appended.
pub fn load(map: &OwnedFd) -> io::Result<OwnedFd> {
    let code = assemble(map.as_raw_fd());
    let attempt = |log: &mut [u8]| {
        let mut attributes = ProgLoad {
            kind: PROG_TYPE_XDP,
            count: code.len() as u32,
            instructions: code.as_ptr() as u64,
            license: c"MIT OR Apache-2.0".as_ptr() as u64,
            log_level: u32::from(!log.is_empty()),
            log_size: log.len() as u32,
            log: if log.is_empty() { 0 } else { log.as_mut_ptr() as u64 },
            kernel_version: 0,
            flags: 0,
        };
        bpf(PROG_LOAD, &mut attributes).map(owned)
    };
    attempt(&mut []).or_else(|e| {
        if e.raw_os_error() == Some(libc::EPERM) {
            return Err(e);
        }
        let mut log = vec![0; 1 << 16];
        attempt(&mut log).map_err(|e| {
            let end = log.iter().position(|b| *b == 0).unwrap_or(log.len());
            io::Error::new(e.kind(), format!("{e}; {}", String::from_utf8_lossy(&log[..end]).trim()))
        })
    })
}

#[repr(C)]
struct LinkCreate {
    program: u32,
    interface: u32,
    attach_type: u32,
    flags: u32,
}

/// Attaches the program to the interface for as long as the returned link lives: it goes with the process, however that
/// ends. In the driver where it can, otherwise in the common path.
///
/// # Errors
/// The system's; `EBUSY` when another program is attached.
pub fn attach(program: &OwnedFd, interface: i32) -> io::Result<(OwnedFd, Mode)> {
    const GENERIC: u32 = 1 << 1;
    const NATIVE: u32 = 1 << 2;
    let attempt = |flags: u32| {
        let mut attributes = LinkCreate {
            program: program.as_raw_fd() as u32,
            interface: interface as u32,
            attach_type: ATTACH_XDP,
            flags,
        };
        bpf(LINK_CREATE, &mut attributes).map(owned)
    };
    match attempt(NATIVE) {
        Ok(link) => Ok((link, Mode::Native)),
        Err(e) if matches!(e.raw_os_error(), Some(libc::EBUSY | libc::EPERM)) => Err(e),
        Err(_) => attempt(GENERIC).map(|link| (link, Mode::Generic)),
    }
}

/// One instruction in the kernel's layout: opcode, registers (source above destination), offset, immediate.
#[repr(C)]
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
struct Instruction {
    opcode: u8,
    registers: u8,
    offset: i16,
    immediate: i32,
}

const fn op(opcode: u8, destination: u8, source: u8, offset: i16, immediate: i32) -> Instruction {
    Instruction { opcode, registers: source << 4 | destination, offset, immediate }
}

/// An instruction, or a jump whose target is known when all is written.
#[derive(Clone, Copy)]
enum Line {
    Is(Instruction),
    Jump(Instruction, Label),
    Here(Label),
}

#[derive(Clone, Copy, PartialEq, Eq)]
enum Label {
    Ipv6,
    Redirect,
    Pass,
}

/// A value of the frame as a load of the machine's own byte order sees it.
const fn wire(value: u16) -> i32 {
    value.to_be() as i32
}

fn assemble(map: i32) -> Vec<Instruction> {
    use Label::{Ipv6, Pass, Redirect};
    use Line::{Here, Is, Jump};
    // Registers: 1 the context, 2 the frame, 3 its end, 4 how far we look, 5 what we look at, 6 the context, kept.
    let mov = |to, from| Is(op(0xbf, to, from, 0, 0));
    let word = |to, from, offset| Is(op(0x61, to, from, offset, 0));
    let half = |offset| Is(op(0x69, 5, 2, offset, 0));
    let byte = |offset| Is(op(0x71, 5, 2, offset, 0));
    let add = |to, value| Is(op(0x07, to, 0, 0, value));
    let set = |to, value| Is(op(0xb7, to, 0, 0, value));
    let and = |value| Is(op(0x57, 5, 0, 0, value));
    let equal = |value, to| Jump(op(0x15, 5, 0, 0, value), to);
    let unequal = |value, to| Jump(op(0x55, 5, 0, 0, value), to);
    // To Pass when what we look at ends behind the frame.
    let bound = Jump(op(0x2d, 4, 3, 0, 0), Pass);
    let udp = i32::from(drophammer_wire::ipv4::protocol::UDP);
    let lines = [
        mov(6, 1),
        word(2, 1, 0),
        word(3, 1, 4),
        mov(4, 2),
        add(4, 14 + 20 + 8),
        bound,
        half(12),
        equal(wire(0x86dd), Ipv6),
        unequal(wire(0x0800), Pass),
        byte(14),
        unequal(0x45, Pass),
        byte(14 + 9),
        unequal(udp, Pass),
        // More fragments, or a fragment offset.
        half(14 + 6),
        and(wire(0x3fff)),
        unequal(0, Pass),
        half(14 + 20 + 2),
        equal(wire(TEST_PORT), Redirect),
        Jump(op(0x05, 0, 0, 0, 0), Pass),
        Here(Ipv6),
        mov(4, 2),
        add(4, 14 + 40 + 8),
        bound,
        byte(14 + 6),
        unequal(udp, Pass),
        half(14 + 40 + 2),
        unequal(wire(TEST_PORT), Pass),
        Here(Redirect),
        word(2, 6, 16),
        // The map's address, which the kernel puts in for the descriptor; takes two instructions.
        Is(op(0x18, 1, 1, 0, map)),
        Is(op(0, 0, 0, 0, 0)),
        // What happens to the frame when there is no socket for its queue.
        set(3, PASS),
        Is(op(0x85, 0, 0, 0, HELPER_REDIRECT_MAP)),
        Is(op(0x95, 0, 0, 0, 0)),
        Here(Pass),
        set(0, PASS),
        Is(op(0x95, 0, 0, 0, 0)),
    ];
    let is_code = |line: &&Line| !matches!(line, Here(_));
    let place = |label: Label| {
        lines.iter().take_while(|l| !matches!(l, Here(at) if *at == label)).filter(is_code).count() as i16
    };
    let code = lines.iter().filter(is_code).enumerate();
    code.filter_map(|(at, line)| match line {
        Is(instruction) => Some(*instruction),
        Jump(instruction, to) => Some(Instruction { offset: place(*to) - at as i16 - 1, ..*instruction }),
        Here(_) => None,
    })
    .collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn instructions_are_as_the_kernel_lays_them_out() {
        assert_eq!(mem::size_of::<Instruction>(), 8);
        let code = assemble(7);
        let of = |i: usize| (code[i].opcode, code[i].registers, code[i].offset, code[i].immediate);
        assert_eq!(of(1), (0x61, 0x12, 0, 0), "r2 = *(u32 *)(r1 + 0)");
        let last = code.len() - 1;
        // The first jump leads to `r0 = 2; exit`.
        assert_eq!((code[5].opcode, 6 + code[5].offset as usize), (0x2d, last - 1));
        assert_eq!((of(last - 1), of(last)), ((0xb7, 0, 0, 2), (0x95, 0, 0, 0)));
        let map = code.iter().find(|i| i.opcode == 0x18).unwrap();
        assert_eq!((map.registers, map.immediate), (0x11, 7), "pseudo source 1: a map's descriptor");
    }
}
