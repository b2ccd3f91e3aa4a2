//! A frame that is damaged or was never sent does not count as received.

use crate::common::*;
use drophammer_model::trial::{Family, GroupCounts};
use drophammer_wire::signature::{Signature, TrialKey};

fn every_50th_corrupted(expected: GroupCounts) -> GroupCounts {
    GroupCounts { corrupted: N / 50, ..every_50th_gone(expected) }
}

/// Applies `change` to every 50th frame, and forwards the others unchanged.
fn changed(change: fn(&mut Vec<u8>)) -> impl Fn(&Offered<'_>, &mut Vec<Out>) + Clone {
    move |f, out| {
        let mut copy = f.on(DELAY);
        if f.nth(50) {
            change(&mut copy.frame);
        }
        out.push(copy);
    }
}

fn flip(at: usize, bits: u8, frame: &mut [u8]) {
    frame[at] ^= bits;
}

fn flip_and_mend(at: usize, bits: u8, frame: &mut [u8]) {
    flip(at, bits, frame);
    mend(frame);
}

#[test]
fn changed_frames_are_corrupted_and_lost_whatever_is_changed() {
    let changes: &[fn(&mut Vec<u8>)] = &[
        // A byte of the pattern, without and with a corrected checksum.
        |f| flip(udp_at(f) + 8, 0x20, f),
        |f| flip_and_mend(udp_at(f) + 9, 0x01, f),
        // The signature: sequence, check, time; with a corrected checksum.
        |f| flip_and_mend(signature_at(f) + 4, 0x40, f),
        |f| flip_and_mend(signature_at(f) + 6, 0x08, f),
        |f| flip_and_mend(signature_at(f) + 11, 0x80, f),
        // Two words of the payload exchanged: a sum does not detect it, the pattern does.
        |f| {
            let at = udp_at(f) + 8;
            f.swap(at, at + 2);
            f.swap(at + 1, at + 3);
        },
        // The UDP checksum itself, and its source port.
        |f| flip(udp_at(f) + 7, 0x10, f),
        |f| flip(udp_at(f), 0x10, f),
        // A destination address.
        |f| flip(udp_at(f) - 1, 0x01, f),
        // Cut short.
        |f| f.truncate(f.len() - 4),
        // The length in the UDP header.
        |f| {
            let at = udp_at(f);
            f[at + 5] -= 2;
        },
    ];
    for (i, change) in changes.iter().enumerate() {
        run_both(changed(*change), |result, expected, _| {
            assert_eq!(result.groups, [every_50th_corrupted(expected)], "change {i}")
        });
    }
}

#[test]
fn a_broken_ipv4_header_is_corrupted_and_a_lowered_ttl_is_not() {
    let mut broken = Bench::new(2, changed(|f| f[22] -= 1));
    let result = broken.run(&one("128", Family::Ipv4, N as f64));
    assert_eq!(result.groups, [every_50th_corrupted(all_well(&result, 0, N, 128))]);

    let mut router = Bench::new(
        2,
        changed(|f| {
            f[22] -= 1;
            f[24..26].fill(0);
            let sum = internet_checksum(&[&f[14..34]]);
            f[24..26].copy_from_slice(&sum.to_be_bytes());
        }),
    );
    let result = router.run(&one("128", Family::Ipv4, N as f64));
    assert_eq!(result.groups, [all_well(&result, 0, N, 128)]);

    let mut router = Bench::new(2, changed(|f| f[21] -= 1));
    let result = router.run(&one("128", Family::Ipv6, N as f64));
    assert_eq!(result.groups, [all_well(&result, 0, N, 128)]);
}

fn signature_of(frame: &[u8]) -> Signature {
    let at = signature_at(frame);
    Signature::read(frame[at..at + 12].try_into().unwrap()).0
}

#[test]
fn test_frames_of_another_run_are_not_received() {
    run_both(
        |f, out| {
            // Instead of every 50th frame.
            let mut copy = f.on(DELAY);
            if f.nth(50) {
                copy.frame = signed(f.frame, signature_of(f.frame), TrialKey::new(RUN + 1, 1));
            }
            out.push(copy);
        },
        |result, expected, _| assert_eq!(result.groups, [every_50th_corrupted(expected)]),
    );
}

#[test]
fn frames_that_nobody_sent_are_not_received_even_with_the_right_key() {
    run_both(
        |f, out| {
            out.push(f.on(DELAY));
            if f.nth(50) {
                let s = signature_of(f.frame);
                let no_such_flow = signed(f.frame, Signature { flow: 77, ..s }, key(1));
                let beyond_the_last = signed(f.frame, Signature { sequence: N as u32, ..s }, key(1));
                out.extend([no_such_flow, beyond_the_last].map(|frame| Out { frame, ..f.on(DELAY) }));
            }
        },
        |result, expected, _| assert_eq!(result.groups, [GroupCounts { corrupted: 2 * (N / 50), ..expected }]),
    );
}
