//! Every parser of crate `wire`: any bytes are read or refused, and what was read means the same when it is written again.

use super::input::Input;
use drophammer_wire::signature::{Signature, TrialKey, unwrap_sequence, unwrap_time};
use drophammer_wire::{arp, checksum, ethernet, icmpv4, icmpv6, ipv4, ipv6, udp};

/// Reads the input as the header that its first byte names.
pub fn run(data: &[u8]) {
    let mut input = Input(data);
    let which = input.below(9);
    let sum = u64::from(input.u16());
    // A parser that demands a checksum would refuse nearly everything, so half of the inputs get a right one.
    let repaired = input.flag();
    let bytes = &mut input.0.to_vec();
    match which {
        0 => ethernet(bytes),
        1 => arp(bytes),
        2 => ipv4(bytes, repaired),
        3 => ipv6(bytes),
        4 => udp(bytes, repaired, sum),
        5 => icmpv4(bytes, repaired),
        6 => icmpv6(bytes, repaired, sum),
        7 => signature(&mut Input(bytes)),
        _ => sums(bytes),
    }
}

/// Makes the checksum over `bytes`, whose field is at `at`, right.
fn repair(bytes: &mut [u8], at: usize, pseudo: u64) {
    if let Some(field) = bytes.get_mut(at..at + 2) {
        field.fill(0);
        let sum = udp::field(pseudo + checksum::sum(bytes));
        bytes[at..at + 2].copy_from_slice(&sum.to_be_bytes());
    }
}

fn ethernet(bytes: &[u8]) {
    let Ok((header, payload)) = ethernet::Repr::parse(bytes) else { return assert!(bytes.len() < ethernet::LEN) };
    let mut again = [0; ethernet::LEN];
    header.emit(&mut again);
    assert_eq!([&again[..], payload].concat(), bytes);
}

fn arp(bytes: &[u8]) {
    let Ok(packet) = arp::Repr::parse(bytes) else { return };
    let mut again = [0; arp::LEN];
    packet.emit(&mut again);
    assert_eq!(again, bytes[..arp::LEN]);
    let reply = arp::Repr::reply_to(&packet, packet.sender_mac);
    assert_eq!((reply.target_ip, reply.target_mac), (packet.sender_ip, packet.sender_mac));
}

fn ipv4(bytes: &mut [u8], repaired: bool) {
    if repaired && bytes.len() >= ipv4::LEN {
        repair(&mut bytes[..ipv4::LEN], 10, 0);
    }
    let Ok((header, payload)) = ipv4::Repr::parse(bytes) else { return };
    assert_eq!(header.payload_len, payload.len());
    let mut again = [0; ipv4::LEN];
    header.emit(&mut again);
    assert_eq!(ipv4::Repr::parse(&[&again[..], payload].concat()).unwrap(), (header, payload));
    assert_eq!(etherparse::Ipv4HeaderSlice::from_slice(bytes).unwrap().ttl(), header.ttl);
}

fn ipv6(bytes: &[u8]) {
    let Ok((header, payload)) = ipv6::Repr::parse(bytes) else { return };
    assert_eq!(header.payload_len, payload.len());
    let mut again = [0; ipv6::LEN];
    header.emit(&mut again);
    assert_eq!(again, bytes[..ipv6::LEN]);
    assert_eq!(etherparse::Ipv6HeaderSlice::from_slice(bytes).unwrap().hop_limit(), header.hop_limit);
}

fn udp(bytes: &mut [u8], repaired: bool, sum: u64) {
    if repaired && bytes.len() >= udp::LEN {
        let length = usize::from(u16::from_be_bytes([bytes[4], bytes[5]])).min(bytes.len());
        repair(&mut bytes[..length], 6, sum);
    }
    let Ok((header, payload)) = udp::Repr::parse(bytes, sum) else { return };
    let mut again = bytes[..udp::LEN + payload.len()].to_vec();
    header.emit(&mut again, sum);
    assert_eq!(udp::Repr::parse(&again, sum).unwrap(), (header, payload));
    assert_eq!(etherparse::UdpHeaderSlice::from_slice(bytes).unwrap().destination_port(), header.destination);
}

fn icmpv4(bytes: &mut [u8], repaired: bool) {
    if repaired {
        repair(bytes, 2, 0);
    }
    let Ok(message) = icmpv4::Repr::parse(bytes) else { return };
    let mut again = vec![0xee; message.message_len()];
    message.emit(&mut again);
    assert_eq!(icmpv4::Repr::parse(&again).unwrap(), message);
}

fn icmpv6(bytes: &mut [u8], repaired: bool, sum: u64) {
    if repaired {
        repair(bytes, 2, sum);
    }
    let Ok(message) = icmpv6::Repr::parse(bytes, sum) else { return };
    let mut again = vec![0xee; message.message_len()];
    message.emit(&mut again, sum);
    assert_eq!(icmpv6::Repr::parse(&again, sum).unwrap(), message);
}

fn signature(input: &mut Input) {
    let key = TrialKey::new(input.u64(), input.u64());
    let mut tail = [0; drophammer_wire::signature::LEN];
    let bytes = input.bytes(tail.len());
    tail[..bytes.len()].copy_from_slice(bytes);
    let (signature, check) = Signature::read(&tail);
    let again = signature.emit(key);
    assert_eq!(again == tail, signature.belongs_to(key, check));
    assert_eq!(Signature::read(&again).0, signature);
    // What a flow counts and a clock shows in any run that ends.
    let (near, arrival) = (input.u64() >> 8, input.u64() >> 1);
    let sequence = unwrap_sequence(signature.sequence, near);
    assert_eq!(sequence as u32 & 0xfff_ffff, signature.sequence);
    assert!(sequence.abs_diff(near) <= 1 << 27 || sequence < 1 << 28);
    let time = unwrap_time(signature.time, arrival | 1 << 32);
    assert!(time as u32 == signature.time && time <= arrival | 1 << 32 && (arrival | 1 << 32) - time < 1 << 32);
}

fn sums(bytes: &[u8]) {
    let ours = checksum::finish(checksum::sum(bytes));
    let mut theirs = 0u32;
    for pair in bytes.chunks(2) {
        theirs += u32::from(u16::from_be_bytes([pair[0], pair.get(1).copied().unwrap_or(0)]));
        theirs = (theirs & 0xffff) + (theirs >> 16);
    }
    assert_eq!(ours, !(theirs as u16));
    assert_eq!(checksum::fold(checksum::sum_le(bytes)).swap_bytes(), checksum::fold(checksum::sum(bytes)));
}
