//! Assigns frames to queues of a port by a hash of addresses and ports, like receive-side scaling (RSS). For backends
//! whose device or kernel does not do this.

use drophammer_wire::ethernet::ethertype;

/// Length of the Ethernet header before the type.
const ADDRESSES: usize = 12;

/// Returns the queue among `queues` (at least one) for `frame`. Frames with the same IP addresses and ports, with or
/// without VLAN tags, get the same queue. Frames that are neither IPv4 nor IPv6 get the first queue.
pub(crate) fn queue_of(frame: &[u8], queues: usize) -> usize {
    if queues <= 1 {
        return 0;
    }
    let mut at = ADDRESSES;
    let hashed = loop {
        let Some(kind) = frame.get(at..at + 2) else { return 0 };
        at += 2;
        match u16::from_be_bytes([kind[0], kind[1]]) {
            ethertype::VLAN | ethertype::SERVICE_VLAN | ethertype::OLD_SERVICE_VLAN => at += 2,
            // The ports follow the addresses if the header has no options.
            ethertype::IPV4 => break frame.get(at + 12..at + 24),
            ethertype::IPV6 => break frame.get(at + 8..at + 44),
            _ => return 0,
        }
    };
    // Fowler-Noll-Vo hash. Its upper bits are mixed best.
    let Some(bytes) = hashed else { return 0 };
    let hash = bytes.iter().fold(0xcbf2_9ce4_8422_2325u64, |h, b| (h ^ u64::from(*b)).wrapping_mul(0x100_0000_01b3));
    (((hash >> 32) * queues as u64) >> 32) as usize
}

#[cfg(test)]
mod tests {
    use super::*;

    fn frame(tags: usize, ipv6: bool, host: u8, port: u8) -> Vec<u8> {
        let mut frame = vec![2; ADDRESSES];
        (0..tags).for_each(|n| frame.extend([0x81, 0, 0, n as u8]));
        frame.extend(if ipv6 { [0x86, 0xdd] } else { [0x08, 0] });
        frame.extend(vec![if ipv6 { 0x60 } else { 0x45 }; if ipv6 { 40 } else { 20 }]);
        *frame.last_mut().unwrap() = host;
        frame.extend([0, port, 0, 9, 0, 0, 0, 0]);
        frame
    }

    #[test]
    fn addresses_and_ports_alone_decide() {
        for ipv6 in [false, true] {
            let mut used = [0; 4];
            for host in 0..=255 {
                let queue = queue_of(&frame(0, ipv6, host, 1), 4);
                used[queue] += 1;
                let mut other = frame(2, ipv6, host, 1);
                other[0] = 7;
                other.extend([host; 30]);
                assert_eq!(queue_of(&other, 4), queue);
            }
            assert!(used.iter().all(|n| (32..=96).contains(n)), "{used:?}");
            let by_port: std::collections::BTreeSet<_> = (0..99).map(|p| queue_of(&frame(0, ipv6, 1, p), 4)).collect();
            assert_eq!(by_port.len(), 4);
        }
        let whole = frame(1, false, 1, 1);
        assert!((0..whole.len()).all(|len| queue_of(&whole[..len], 3) < 3));
        assert_eq!((queue_of(&[7; 60], 4), queue_of(&whole, 1)), (0, 0));
    }
}
