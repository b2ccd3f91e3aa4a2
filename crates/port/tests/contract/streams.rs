//! TCP segments that leave together equal the segments in the slots.

use super::{Bench, Checked, check, count_all, ethtool, frame, take_all};
use drophammer_wire::checksum;

/// A frame with a TCP segment with correct checksums.
fn segment(ipv6: bool, sequence: u32, flags: u8, payload: usize) -> Vec<u8> {
    let length = (20 + payload) as u16;
    let mut f = vec![2, 0, 0, 0, 0, 2, 2, 0, 0, 0, 0, 1];
    if ipv6 {
        f.extend([0x86, 0xdd, 0x60, 0, 0, 0]);
        f.extend(length.to_be_bytes());
        f.extend([6, 64]);
        f.extend([0x20; 32]);
    } else {
        f.extend([8, 0, 0x45, 0]);
        f.extend((length + 20).to_be_bytes());
        f.extend([0, 0, 0x40, 0, 64, 6, 0, 0, 198, 18, 0, 2, 198, 18, 0, 1]);
        let sum = checksum::finish(checksum::sum(&f[14..34]));
        f[24..26].copy_from_slice(&sum.to_be_bytes());
    }
    let tcp = f.len();
    f.extend([0xc0, 0, 0, 179]);
    f.extend(sequence.to_be_bytes());
    f.extend([0, 0, 0, 9, 0x50, flags, 0x10, 0, 0, 0, 0, 0]);
    f.extend((0..payload).map(|i| (sequence as usize * 7 + i) as u8));
    let pseudo = checksum::sum(&f[if ipv6 { 22 } else { 26 }..tcp]) + 6 + u64::from(length);
    let sum = checksum::finish(pseudo + checksum::sum(&f[tcp..]));
    f[tcp + 16..tcp + 18].copy_from_slice(&sum.to_be_bytes());
    f
}

/// Runs with other frames before, between and after them arrive as if each frame had been sent alone.
pub fn streams(bench: &Bench) -> Checked {
    if bench.name != "af_packet" {
        // `live_frames` uses the packet sockets of this backend, and the others do not send runs.
        return Ok(());
    }
    let both = |features: &[&str]| ["t0", "t1"].iter().try_for_each(|interface| ethtool(interface, features));
    // With the lab's settings, segments are cut and checksummed before they leave, and are not combined again on
    // receipt.
    both(&["tx", "off", "gro", "off"])?;
    exchange(bench)?;
    both(&["tx", "on"])
}

fn exchange(bench: &Bench) -> Checked {
    let mut ports = bench.pair()?;
    for ipv6 in [false, true] {
        let (mut burst, mut sequence) = (vec![frame(ipv6, 200, 3, 0)], 5_u32.wrapping_sub(20_000));
        let full = if ipv6 { 1_440 } else { 1_448 };
        for (payload, flags) in [[(full, 0x10); 40].as_slice(), &[(77, 0x18), (9, 0x10)], &[(500, 0x10); 12]].concat() {
            burst.push(segment(ipv6, sequence, flags, payload));
            sequence = sequence.wrapping_add(payload as u32);
        }
        burst.push(segment(ipv6, 1, 0x10, full));
        burst.push(frame(ipv6, 100, 4, 0));
        for round in 0..4 {
            for (i, frame) in burst.iter().enumerate() {
                ports[0].slots().put(i, frame);
            }
            let sent = ports[0].send_stream(burst.len()).map_err(|e| e.to_string())?;
            check(sent.accepted as usize == burst.len(), || format!("round {round}: {sent:?}"))?;
            let mut came = Vec::new();
            take_all(&bench.clock, ports[1].as_mut(), |_, frame| {
                came.push(frame.to_vec());
                Ok(())
            })?;
            check(came.len() == burst.len(), || format!("round {round}: {} of {} came", came.len(), burst.len()))?;
            let mut identifications = Vec::new();
            for (at, (frame, expected)) in came.iter_mut().zip(&burst).enumerate() {
                if !ipv6 && frame[23] == 6 {
                    identifications.push(u16::from_be_bytes([frame[18], frame[19]]));
                    let holds = checksum::finish(checksum::sum(&frame[14..34])) == 0;
                    check(holds, || format!("frame {at}: IPv4 checksum in {:x?}", &frame[..54]))?;
                    frame[18..20].copy_from_slice(&expected[18..20]);
                    frame[24..26].copy_from_slice(&expected[24..26]);
                }
                check(frame == expected, || format!("frame {at} of {} bytes is another", expected.len()))?;
            }
            if !ipv6 {
                // The identifications of cut segments count up.
                let found = [40, 41, 53, 54].map(|at: usize| identifications[at]);
                check(found == [40, 0, 11, 0], || format!("identifications {found:?}"))?;
            }
        }
    }
    // The port refuses frames that the link drops together with the rest of their run, although the last one passes; later all
    // arrive.
    let mut send = |mtu: u32| {
        bench.ip(&[&format!("link set t1 mtu {mtu}")])?;
        let port = ports[0].as_mut();
        for i in 0..8 {
            port.slots().put(i, &segment(false, 1_000 * i as u32, 0x10, if i == 7 { 100 } else { 1_000 }));
        }
        let sent = port.send_stream(8).map_err(|e| e.to_string())?;
        Ok::<_, String>((sent.refused_mask, count_all(&bench.clock, ports[1].as_mut())?))
    };
    let all = [send(600)?, send(600)?, send(1_500)?];
    let expected = [(0xff, 1), (0x7f, 1), (0, 8)];
    check(all == expected, || format!("refused, and came: {all:x?} instead of {expected:x?}"))
}
