//! The kernel program that separates test frames from all others.
//!
//! It redirects UDP packets to port 9 (IPv4 without options and not a fragment, or IPv6 without extension headers) to
//! our socket, whatever their MAC addresses. All other frames continue into the kernel, where a packet socket receives
//! them. So do test frames at a queue without a socket, with a VLAN tag, or after the socket was closed.

use crate::bpf::assembler::{Alu, Helper, If, Instruction, Is, Program, Value, Width, wire};
use crate::bpf::plain::{ETHERNET, IP, Plain, UDP};
use crate::bpf::{self, verdict};
use drophammer_model::traffic::FieldName;
use std::io;
use std::os::fd::{AsRawFd, OwnedFd};

/// Loads the program, which redirects through `map`.
///
/// # Errors
/// The operating system's error, followed by the message of the verifier.
pub fn load(map: &OwnedFd) -> io::Result<OwnedFd> {
    bpf::load(&assemble(map.as_raw_fd()))
}

fn assemble(map: i32) -> Vec<Instruction> {
    // Registers: 1 the context, 2 the frame, 3 its end, 4 the end of the checked bytes, 5 the checked value, 6 a copy
    // of the context.
    let mut p = Program::default();
    let (ipv6, redirect, pass) = (p.label(), p.label(), p.label());
    let (four, six) = (Plain::new(false), Plain::new(true));
    // Jumps to `pass` if the checked bytes extend beyond the frame.
    let bound = |p: &mut Program, bytes: i32| {
        p.set(4, Is(2));
        p.alu(Alu::Add, 4, Value(bytes));
        p.jump_if(If::Above, 4, Is(3), pass);
    };
    p.set(6, Is(1));
    p.load(Width::Word, 2, 1, 0);
    p.load(Width::Word, 3, 1, 4);
    // Check the shorter headers first; every test frame is at least this long.
    bound(&mut p, four.headers() as i32);
    let ethertype = FieldName::Ethertype;
    p.load(Width::Half, 5, 2, four.at(ETHERNET, ethertype));
    p.jump_if(If::Equal, 5, Value(wire(six.value(ETHERNET, ethertype))), ipv6);
    p.jump_if(If::Unequal, 5, Value(wire(four.value(ETHERNET, ethertype))), pass);
    // Version and header length, which share a byte: no options.
    p.load(Width::Byte, 5, 2, four.at(IP, FieldName::Version));
    p.jump_if(If::Unequal, 5, Value(four.byte(IP, FieldName::Version).into()), pass);
    p.load(Width::Byte, 5, 2, four.at(IP, FieldName::Protocol));
    p.jump_if(If::Unequal, 5, Value(four.value(IP, FieldName::Protocol).into()), pass);
    // More fragments, or a fragment offset.
    p.load(Width::Half, 5, 2, four.at(IP, FieldName::MoreFragments));
    p.alu(Alu::And, 5, Value(wire(four.mask(IP, FieldName::MoreFragments))));
    p.jump_if(If::Unequal, 5, Value(0), pass);
    p.load(Width::Half, 5, 2, four.at(UDP, FieldName::DestinationPort));
    p.jump_if(If::Equal, 5, Value(wire(four.value(UDP, FieldName::DestinationPort))), redirect);
    p.jump(pass);
    p.here(ipv6);
    bound(&mut p, six.headers() as i32);
    p.load(Width::Byte, 5, 2, six.at(IP, FieldName::NextHeader));
    p.jump_if(If::Unequal, 5, Value(six.value(IP, FieldName::NextHeader).into()), pass);
    p.load(Width::Half, 5, 2, six.at(UDP, FieldName::DestinationPort));
    p.jump_if(If::Unequal, 5, Value(wire(six.value(UDP, FieldName::DestinationPort))), pass);
    p.here(redirect);
    p.load(Width::Word, 2, 6, 16);
    p.set_map(1, map);
    // Verdict if there is no socket for the frame's queue.
    p.set(3, Value(verdict::PASS));
    p.call(Helper::RedirectMap);
    p.exit();
    p.here(pass);
    p.set(0, Value(verdict::PASS));
    p.exit();
    p.assemble()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_is_no_test_frame_passes() {
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
