//! Neighbor Discovery (RFC 4861 section 4): solicitations and advertisements of routers and neighbours.
//!
//! ```text
//!  0                   1                   2                   3
//!  0 1 2 3 4 5 6 7 8 9 0 1 2 3 4 5 6 7 8 9 0 1 2 3 4 5 6 7 8 9 0 1
//! +-+-+-+-+-+-+-+-+-+-+-+-+-+-+-+-+-+-+-+-+-+-+-+-+-+-+-+-+-+-+-+-+
//! |     Type      |     Code = 0  |          Checksum             |
//! +-+-+-+-+-+-+-+-+-+-+-+-+-+-+-+-+-+-+-+-+-+-+-+-+-+-+-+-+-+-+-+-+
//! |R|S|O|   Reserved (advertisement of a neighbour; else reserved)|
//! | Cur Hop Limit |M|O|  Reserved |       Router Lifetime         |   <- advertisement of a router
//! +-+-+-+-+-+-+-+-+-+-+-+-+-+-+-+-+-+-+-+-+-+-+-+-+-+-+-+-+-+-+-+-+
//! |  neighbours: Target Address (16 bytes)                        |
//! |  router advertisement: Reachable Time (4), Retrans Timer (4)  |
//! +-+-+-+-+-+-+-+-+-+-+-+-+-+-+-+-+-+-+-+-+-+-+-+-+-+-+-+-+-+-+-+-+
//! |  Options: Type (1), Length in 8 bytes (1), ...                |
//! ```

use super::kind;
use crate::{MacAddr, Malformed, ipv6_at, mac_at};
use std::net::Ipv6Addr;

const SOURCE_LINK_LAYER: u8 = 1;
const TARGET_LINK_LAYER: u8 = 2;
const PREFIX_INFORMATION: u8 = 3;
const MTU: u8 = 5;

/// A Neighbor Discovery message with the options that the tester uses. Other options are skipped.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Repr {
    /// Type 133.
    RouterSolicitation {
        /// Source link-layer address option.
        source_mac: Option<MacAddr>,
    },
    /// Type 134.
    RouterAdvertisement(RouterAdvertisement),
    /// Type 135.
    NeighborSolicitation {
        /// Address whose link-layer address is requested.
        target: Ipv6Addr,
        /// Source link-layer address option; `None` in duplicate address detection.
        source_mac: Option<MacAddr>,
    },
    /// Type 136.
    NeighborAdvertisement {
        /// R: the sender is a router.
        router: bool,
        /// S: the message answers a solicitation.
        solicited: bool,
        /// O: replaces an existing entry.
        over_ride: bool,
        /// Address that has this link-layer address.
        target: Ipv6Addr,
        /// Target link-layer address option.
        target_mac: Option<MacAddr>,
    },
}

/// Advertisement of a router (RFC 4861 section 4.2).
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct RouterAdvertisement {
    /// Hop limit that hosts should use; 0: unspecified.
    pub hop_limit: u8,
    /// M: addresses are assigned by DHCPv6.
    pub managed: bool,
    /// O: other configuration is provided by DHCPv6.
    pub other_config: bool,
    /// Lifetime as default router in seconds; 0: not a default router.
    pub lifetime_s: u16,
    /// Reachable time in ms; 0: unspecified.
    pub reachable_ms: u32,
    /// Time between solicitations in ms; 0: unspecified.
    pub retransmit_ms: u32,
    /// Source link-layer address option.
    pub source_mac: Option<MacAddr>,
    /// MTU option.
    pub mtu: Option<u32>,
    /// The first prefix information option.
    pub prefix: Option<PrefixInformation>,
}

/// Prefix information option (RFC 4861 section 4.6.2).
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct PrefixInformation {
    /// Length of the prefix in bits.
    pub prefix_len: u8,
    /// L: the prefix is on the link.
    pub on_link: bool,
    /// A: the prefix is for autonomous address configuration.
    pub autonomous: bool,
    /// Valid lifetime in seconds.
    pub valid_s: u32,
    /// Preferred lifetime in seconds.
    pub preferred_s: u32,
    /// The prefix.
    pub prefix: Ipv6Addr,
}

#[derive(Default)]
struct Options {
    source_mac: Option<MacAddr>,
    target_mac: Option<MacAddr>,
    mtu: Option<u32>,
    prefix: Option<PrefixInformation>,
}

fn options(mut rest: &[u8]) -> Result<Options, Malformed> {
    let mut found = Options::default();
    while let [kind, units, ..] = *rest {
        let len = usize::from(units) * 8;
        if len == 0 || len > rest.len() {
            return Err(Malformed::new("ndp", "length of an option does not fit"));
        }
        let (option, after) = rest.split_at(len);
        rest = after;
        match (kind, len) {
            (SOURCE_LINK_LAYER, 8) => found.source_mac = Some(mac_at(option, 2)),
            (TARGET_LINK_LAYER, 8) => found.target_mac = Some(mac_at(option, 2)),
            (MTU, 8) => found.mtu = Some(word(option, 4)),
            (PREFIX_INFORMATION, 32) if found.prefix.is_none() => {
                found.prefix = Some(PrefixInformation {
                    prefix_len: option[2],
                    on_link: option[3] & 0x80 != 0,
                    autonomous: option[3] & 0x40 != 0,
                    valid_s: word(option, 4),
                    preferred_s: word(option, 8),
                    prefix: ipv6_at(option, 16),
                });
            }
            _ => {}
        }
    }
    if rest.is_empty() { Ok(found) } else { Err(Malformed::new("ndp", "a byte after the last option")) }
}

fn word(bytes: &[u8], at: usize) -> u32 {
    u32::from_be_bytes([bytes[at], bytes[at + 1], bytes[at + 2], bytes[at + 3]])
}

impl Repr {
    /// Parses a whole ICMPv6 message. The caller has verified its checksum.
    ///
    /// # Errors
    /// Messages that RFC 4861 sections 6.1 and 7.1 require to be discarded: a code other than 0, too few bytes, an
    /// option with length 0 or beyond the end, a multicast target. Also any type other than these four.
    pub fn parse(message: &[u8]) -> Result<Repr, Malformed> {
        let bad = |reason| Err(Malformed::new("ndp", reason));
        if message.len() < 8 {
            return bad("fewer than 8 bytes");
        }
        if message[1] != 0 {
            return bad("code is not 0");
        }
        let fixed = match message[0] {
            kind::ROUTER_SOLICITATION => 8,
            kind::ROUTER_ADVERTISEMENT => 16,
            kind::NEIGHBOR_SOLICITATION | kind::NEIGHBOR_ADVERTISEMENT => 24,
            _ => return bad("not a Neighbor Discovery message"),
        };
        if message.len() < fixed {
            return bad("too short for its type");
        }
        let options = options(&message[fixed..])?;
        Ok(match message[0] {
            kind::ROUTER_SOLICITATION => Repr::RouterSolicitation { source_mac: options.source_mac },
            kind::ROUTER_ADVERTISEMENT => Repr::RouterAdvertisement(RouterAdvertisement {
                hop_limit: message[4],
                managed: message[5] & 0x80 != 0,
                other_config: message[5] & 0x40 != 0,
                lifetime_s: u16::from_be_bytes([message[6], message[7]]),
                reachable_ms: word(message, 8),
                retransmit_ms: word(message, 12),
                source_mac: options.source_mac,
                mtu: options.mtu,
                prefix: options.prefix,
            }),
            other => {
                let target = ipv6_at(message, 8);
                if target.is_multicast() {
                    return bad("target is multicast");
                }
                if other == kind::NEIGHBOR_SOLICITATION {
                    Repr::NeighborSolicitation { target, source_mac: options.source_mac }
                } else {
                    let flags = message[4];
                    Repr::NeighborAdvertisement {
                        router: flags & 0x80 != 0,
                        solicited: flags & 0x40 != 0,
                        over_ride: flags & 0x20 != 0,
                        target,
                        target_mac: options.target_mac,
                    }
                }
            }
        })
    }

    /// Returns the length of the whole ICMPv6 message in bytes.
    pub fn message_len(&self) -> usize {
        let link_layer = |mac: &Option<MacAddr>| if mac.is_some() { 8 } else { 0 };
        match self {
            Repr::RouterSolicitation { source_mac } => 8 + link_layer(source_mac),
            Repr::RouterAdvertisement(ra) => {
                let mtu = if ra.mtu.is_some() { 8 } else { 0 };
                let prefix = if ra.prefix.is_some() { 32 } else { 0 };
                16 + link_layer(&ra.source_mac) + mtu + prefix
            }
            Repr::NeighborSolicitation { source_mac: mac, .. }
            | Repr::NeighborAdvertisement { target_mac: mac, .. } => 24 + link_layer(mac),
        }
    }

    /// Writes the message to the front of `buffer`, which has at least [`Repr::message_len`] bytes. The checksum stays 0.
    pub fn emit(&self, buffer: &mut [u8]) {
        let buffer = &mut buffer[..self.message_len()];
        buffer.fill(0);
        let link_layer = |at: usize, kind: u8, mac: &Option<MacAddr>, buffer: &mut [u8]| {
            let Some(mac) = mac else { return at };
            buffer[at..at + 2].copy_from_slice(&[kind, 1]);
            buffer[at + 2..at + 8].copy_from_slice(&mac.0);
            at + 8
        };
        match self {
            Repr::RouterSolicitation { source_mac } => {
                buffer[0] = kind::ROUTER_SOLICITATION;
                link_layer(8, SOURCE_LINK_LAYER, source_mac, buffer);
            }
            Repr::RouterAdvertisement(ra) => {
                buffer[0] = kind::ROUTER_ADVERTISEMENT;
                buffer[4] = ra.hop_limit;
                buffer[5] = u8::from(ra.managed) << 7 | u8::from(ra.other_config) << 6;
                buffer[6..8].copy_from_slice(&ra.lifetime_s.to_be_bytes());
                buffer[8..12].copy_from_slice(&ra.reachable_ms.to_be_bytes());
                buffer[12..16].copy_from_slice(&ra.retransmit_ms.to_be_bytes());
                let mut at = link_layer(16, SOURCE_LINK_LAYER, &ra.source_mac, buffer);
                if let Some(mtu) = ra.mtu {
                    buffer[at..at + 2].copy_from_slice(&[MTU, 1]);
                    buffer[at + 4..at + 8].copy_from_slice(&mtu.to_be_bytes());
                    at += 8;
                }
                if let Some(prefix) = ra.prefix {
                    let option = &mut buffer[at..at + 32];
                    let flags = u8::from(prefix.on_link) << 7 | u8::from(prefix.autonomous) << 6;
                    option[..4].copy_from_slice(&[PREFIX_INFORMATION, 4, prefix.prefix_len, flags]);
                    option[4..8].copy_from_slice(&prefix.valid_s.to_be_bytes());
                    option[8..12].copy_from_slice(&prefix.preferred_s.to_be_bytes());
                    option[16..].copy_from_slice(&prefix.prefix.octets());
                }
            }
            Repr::NeighborSolicitation { target, source_mac } => {
                buffer[0] = kind::NEIGHBOR_SOLICITATION;
                buffer[8..24].copy_from_slice(&target.octets());
                link_layer(24, SOURCE_LINK_LAYER, source_mac, buffer);
            }
            Repr::NeighborAdvertisement { router, solicited, over_ride, target, target_mac } => {
                buffer[0] = kind::NEIGHBOR_ADVERTISEMENT;
                buffer[4] = u8::from(*router) << 7 | u8::from(*solicited) << 6 | u8::from(*over_ride) << 5;
                buffer[8..24].copy_from_slice(&target.octets());
                link_layer(24, TARGET_LINK_LAYER, target_mac, buffer);
            }
        }
    }
}

/// Returns the solicited-node multicast address of `address` (RFC 4291 section 2.7.1).
pub fn solicited_node(address: Ipv6Addr) -> Ipv6Addr {
    let [.., a, b, c] = address.octets();
    Ipv6Addr::new(0xff02, 0, 0, 0, 0, 1, 0xff00 | u16::from(a), u16::from_be_bytes([b, c]))
}

/// Returns the Ethernet address of an IPv6 multicast address (RFC 2464 section 7).
pub fn multicast_mac(address: Ipv6Addr) -> MacAddr {
    let [.., a, b, c, d] = address.octets();
    MacAddr([0x33, 0x33, a, b, c, d])
}

/// Returns the link-local address that an interface with `mac` assigns to itself (RFC 4291 section 2.5.6 and appendix A).
pub fn link_local(mac: MacAddr) -> Ipv6Addr {
    let [a, b, c, d, e, f] = mac.0;
    let word = |a, b| u16::from_be_bytes([a, b]);
    Ipv6Addr::new(0xfe80, 0, 0, 0, word(a ^ 2, b), word(c, 0xff), word(0xfe, d), word(e, f))
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    #[test]
    fn a_neighbor_solicitation_byte_for_byte() {
        // Who has fe80::1? from 00:60:97:07:69:ea.
        let mut bytes = vec![135, 0, 0, 0, 0, 0, 0, 0];
        bytes.extend_from_slice(&[0xfe, 0x80, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 1]);
        bytes.extend_from_slice(&[1, 1, 0x00, 0x60, 0x97, 0x07, 0x69, 0xea]);
        let repr = Repr::parse(&bytes).unwrap();
        let mac = MacAddr([0x00, 0x60, 0x97, 0x07, 0x69, 0xea]);
        assert_eq!(repr, Repr::NeighborSolicitation { target: "fe80::1".parse().unwrap(), source_mac: Some(mac) });
        let mut out = vec![0xff; repr.message_len()];
        repr.emit(&mut out);
        assert_eq!(out, bytes);
    }

    #[test]
    fn what_rfc_4861_says_to_discard_is_refused() {
        let good = {
            let mut out = [0; 32];
            Repr::NeighborSolicitation { target: "2001:2::1".parse().unwrap(), source_mac: Some(MacAddr::local(1)) }
                .emit(&mut out);
            out
        };
        assert!(Repr::parse(&good).is_ok());
        let broken = |at: usize, value: u8| {
            let mut b = good;
            b[at] = value;
            Repr::parse(&b).unwrap_err().reason
        };
        assert_eq!(broken(1, 1), "code is not 0");
        assert_eq!(broken(25, 0), "length of an option does not fit");
        assert_eq!(broken(25, 2), "length of an option does not fit");
        assert_eq!(broken(8, 0xff), "target is multicast");
        assert_eq!(Repr::parse(&good[..25]).unwrap_err().reason, "a byte after the last option");
        assert_eq!(Repr::parse(&good[..23]).unwrap_err().reason, "too short for its type");
    }

    #[test]
    fn derived_addresses() {
        let address: Ipv6Addr = "4037::01:800:200e:8c6c".parse().unwrap();
        // The example of RFC 4291 section 2.7.1.
        assert_eq!(solicited_node(address), "ff02::1:ff0e:8c6c".parse::<Ipv6Addr>().unwrap());
        assert_eq!(multicast_mac(solicited_node(address)).to_string(), "33:33:ff:0e:8c:6c");
        let mac: MacAddr = "34:56:78:9a:bc:de".parse().unwrap();
        assert_eq!(link_local(mac), "fe80::3656:78ff:fe9a:bcde".parse::<Ipv6Addr>().unwrap());
    }

    fn mac_option() -> impl Strategy<Value = Option<MacAddr>> {
        proptest::option::of(any::<[u8; 6]>().prop_map(MacAddr))
    }

    fn unicast() -> impl Strategy<Value = Ipv6Addr> {
        any::<[u8; 16]>().prop_map(|mut a| {
            a[0] &= 0x7f;
            a.into()
        })
    }

    fn prefix() -> impl Strategy<Value = PrefixInformation> {
        (0u8..=128, any::<bool>(), any::<bool>(), any::<u32>(), any::<u32>(), any::<[u8; 16]>()).prop_map(
            |(prefix_len, on_link, autonomous, valid_s, preferred_s, prefix)| PrefixInformation {
                prefix_len,
                on_link,
                autonomous,
                valid_s,
                preferred_s,
                prefix: prefix.into(),
            },
        )
    }

    fn any_repr() -> impl Strategy<Value = Repr> {
        let ra = (
            any::<(u8, bool, bool, u16, u32, u32)>(),
            mac_option(),
            any::<Option<u32>>(),
            proptest::option::of(prefix()),
        );
        prop_oneof![
            mac_option().prop_map(|source_mac| Repr::RouterSolicitation { source_mac }),
            ra.prop_map(
                |(
                    (hop_limit, managed, other_config, lifetime_s, reachable_ms, retransmit_ms),
                    source_mac,
                    mtu,
                    prefix,
                )| {
                    Repr::RouterAdvertisement(RouterAdvertisement {
                        hop_limit,
                        managed,
                        other_config,
                        lifetime_s,
                        reachable_ms,
                        retransmit_ms,
                        source_mac,
                        mtu,
                        prefix,
                    })
                }
            ),
            (unicast(), mac_option())
                .prop_map(|(target, source_mac)| Repr::NeighborSolicitation { target, source_mac }),
            (any::<[bool; 3]>(), unicast(), mac_option()).prop_map(
                |([router, solicited, over_ride], target, target_mac)| {
                    Repr::NeighborAdvertisement { router, solicited, over_ride, target, target_mac }
                }
            ),
        ]
    }

    proptest! {
        #[test]
        fn parse_undoes_emit(repr in any_repr()) {
            let mut out = vec![0xff; repr.message_len()];
            repr.emit(&mut out);
            prop_assert_eq!(Repr::parse(&out), Ok(repr));
        }

        #[test]
        fn arbitrary_bytes_never_panic(mut bytes in proptest::collection::vec(any::<u8>(), 0..96), kind in 132u8..138, code in 0u8..2) {
            if bytes.len() >= 2 {
                bytes[..2].copy_from_slice(&[kind, code]);
            }
            let _ = Repr::parse(&bytes);
        }
    }
}
