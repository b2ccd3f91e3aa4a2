//! Received UPDATEs (RFC 4271 section 4.3, RFC 4760, RFC 4364 section 4.3, RFC 4659 section 3) and their errors (RFC 7606). The device has its own reader and
//! writer, so that it does not repeat mistakes of the tester.

use crate::rib::{Attributes, Net, net};
use drophammer_wire::bgp::AfiSafi;
use drophammer_wire::bgp::notification::{Notification, code, update as subcode};
use std::net::{IpAddr, Ipv4Addr, Ipv6Addr};

/// Codes of path attributes.
pub(super) mod attribute {
    pub const ORIGIN: u8 = 1;
    pub const AS_PATH: u8 = 2;
    pub const NEXT_HOP: u8 = 3;
    pub const MULTI_EXIT_DISC: u8 = 4;
    pub const LOCAL_PREF: u8 = 5;
    pub const ATOMIC_AGGREGATE: u8 = 6;
    pub const AGGREGATOR: u8 = 7;
    pub const COMMUNITIES: u8 = 8;
    pub const ORIGINATOR_ID: u8 = 9;
    pub const CLUSTER_LIST: u8 = 10;
    pub const MP_REACH_NLRI: u8 = 14;
    pub const MP_UNREACH_NLRI: u8 = 15;
    pub const EXTENDED_COMMUNITIES: u8 = 16;
    pub const AS4_PATH: u8 = 17;
    pub const AS4_AGGREGATOR: u8 = 18;
    pub const LARGE_COMMUNITIES: u8 = 32;
}

/// Flags of path attributes.
pub(super) mod flag {
    pub const OPTIONAL: u8 = 0x80;
    pub const TRANSITIVE: u8 = 0x40;
    pub const PARTIAL: u8 = 0x20;
    pub const EXTENDED: u8 = 0x10;
}

/// Prefixes of one address family, as in an UPDATE.
#[derive(Clone, Copy, Debug, Default)]
pub(super) struct Nets<'a> {
    ipv6: bool,
    bytes: &'a [u8],
}

impl<'a> Nets<'a> {
    /// Reads prefixes. Each prefix must be complete and have a valid length.
    fn read(ipv6: bool, bytes: &'a [u8]) -> Result<Nets<'a>, Notification> {
        let mut rest = bytes;
        while let Some((&len, after)) = rest.split_first() {
            let fits = len <= if ipv6 { 128 } else { 32 };
            rest = after.get(usize::from(len.div_ceil(8))..).filter(|_| fits).ok_or_else(bad_network)?;
        }
        Ok(Nets { ipv6, bytes })
    }
}

fn bad_network() -> Notification {
    Notification::bare(code::UPDATE, subcode::INVALID_NETWORK_FIELD)
}

fn bad_list() -> Notification {
    Notification::bare(code::UPDATE, subcode::MALFORMED_ATTRIBUTE_LIST)
}

impl Iterator for Nets<'_> {
    type Item = Net;

    fn next(&mut self) -> Option<Net> {
        let (&len, after) = self.bytes.split_first()?;
        let (bytes, rest) = after.split_at_checked(usize::from(len.div_ceil(8)))?;
        self.bytes = rest;
        net(address(self.ipv6, bytes)?, len)
    }
}

/// The address that begins with these bytes.
fn address(ipv6: bool, bytes: &[u8]) -> Option<IpAddr> {
    let mut whole = [0; 16];
    whole.get_mut(..bytes.len())?.copy_from_slice(bytes);
    let [a, b, c, d, ..] = whole;
    Some(if ipv6 { Ipv6Addr::from(whole).into() } else { Ipv4Addr::new(a, b, c, d).into() })
}

/// Length of a label and a route distinguisher before a prefix, in bytes.
pub(super) const VPN_HEAD: usize = 3 + 8;
/// Length of a VPN-IPv4 next hop: a route distinguisher and an address (RFC 4364 section 4.3.2).
pub(super) const VPN_NEXT_HOP: usize = 8 + 4;
/// Length of a VPN-IPv6 next hop: a route distinguisher and an address (RFC 4659 section 3.2.1).
pub(super) const VPN_NEXT_HOP_IPV6: usize = 8 + 16;
/// Length of a VPN-IPv6 next hop with a link-local address (RFC 4659 section 3.2.1.1).
const VPN_NEXT_HOPS_IPV6: usize = 2 * VPN_NEXT_HOP_IPV6;

/// VPN-IPv4 or VPN-IPv6 routes, as in an UPDATE of a session without multiple labels (RFC 8277 section 2.2).
#[derive(Clone, Copy, Debug, Default)]
pub(super) struct VpnNets<'a> {
    ipv6: bool,
    bytes: &'a [u8],
}

/// A VPN-IPv4 or VPN-IPv6 route.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct VpnNet {
    /// Its label; meaningless in a withdrawal.
    pub label: u32,
    pub distinguisher: [u8; 8],
    pub net: Net,
}

impl<'a> VpnNets<'a> {
    /// Reads routes. Each route must be complete and have a valid length.
    fn read(ipv6: bool, bytes: &'a [u8]) -> Result<VpnNets<'a>, Notification> {
        let head = VPN_HEAD as u8 * 8;
        let longest = head + if ipv6 { 128 } else { 32 };
        let mut rest = bytes;
        while let Some((&len, after)) = rest.split_first() {
            let fits = (head..=longest).contains(&len);
            rest = after.get(usize::from(len.div_ceil(8))..).filter(|_| fits).ok_or_else(bad_network)?;
        }
        Ok(VpnNets { ipv6, bytes })
    }
}

impl Iterator for VpnNets<'_> {
    type Item = VpnNet;

    fn next(&mut self) -> Option<VpnNet> {
        let (&len, after) = self.bytes.split_first()?;
        let (bytes, rest) = after.split_at_checked(usize::from(len.div_ceil(8)))?;
        self.bytes = rest;
        let (&[a, b, c], bytes) = bytes.split_first_chunk()?;
        let (distinguisher, bytes) = bytes.split_first_chunk()?;
        Some(VpnNet {
            // The last bits are a traffic class and the bottom of the stack, which does not count here.
            label: u32::from_be_bytes([0, a, b, c]) >> 4,
            distinguisher: *distinguisher,
            net: net(address(self.ipv6, bytes)?, len.checked_sub(VPN_HEAD as u8 * 8)?)?,
        })
    }
}

#[derive(Debug)]
pub(super) struct Update<'a> {
    /// Withdrawn prefixes, of both encodings.
    pub withdrawn: [Nets<'a>; 2],
    /// Announced prefixes, of both encodings, with their next hop; without a next hop, treat them as withdrawn.
    pub announced: [(Nets<'a>, Option<IpAddr>); 2],
    /// Withdrawn VPN routes.
    pub vpn_withdrawn: VpnNets<'a>,
    /// Announced VPN routes, with their next hop; an IPv4-mapped one counts as IPv4 (RFC 4659 section 3.2.1.2).
    pub vpn_announced: (VpnNets<'a>, IpAddr),
    /// Attributes of the announced prefixes, without their next hop. `None`: treat the prefixes as withdrawn.
    pub attributes: Option<Attributes>,
}

/// One attribute: flags, code, value.
fn attribute<'a>(rest: &mut &'a [u8]) -> Option<(u8, u8, &'a [u8])> {
    let (&[flags, code], after) = rest.split_first_chunk()?;
    let (len, after) = if flags & flag::EXTENDED == 0 {
        after.split_first().map(|(len, after)| (usize::from(*len), after))?
    } else {
        after.split_first_chunk().map(|(len, after)| (usize::from(u16::from_be_bytes(*len)), after))?
    };
    let (value, after) = after.split_at_checked(len)?;
    *rest = after;
    Some((flags, code, value))
}

/// Splits off a value that is preceded by its length in two bytes; returns the value and the rest.
fn counted(bytes: &[u8]) -> Option<(&[u8], &[u8])> {
    let (len, after) = bytes.split_first_chunk()?;
    after.split_at_checked(usize::from(u16::from_be_bytes(*len)))
}

fn is_path(value: &[u8]) -> bool {
    let mut rest = value;
    while let Some((&[kind, count], after)) = rest.split_first_chunk() {
        match after.get(usize::from(count) * 4..) {
            Some(after) if (1..=4).contains(&kind) && count > 0 => rest = after,
            _ => return false,
        }
    }
    rest.is_empty()
}

/// Reads the body of an UPDATE of a session with 4-octet AS numbers; `internal`: the peer is in the same AS.
pub(super) fn read(body: &[u8], internal: bool) -> Result<Update<'_>, Notification> {
    let (withdrawn, rest) = counted(body).ok_or_else(bad_list)?;
    let (mut attributes, announced) = counted(rest).ok_or_else(bad_list)?;
    let withdrawn = Nets::read(false, withdrawn)?;
    let announced = Nets::read(false, announced)?;
    let (mut sound, mut seen) = (true, [false; 256]);
    let (mut origin, mut as_path, mut next_hop, mut med, mut local_pref) = (None, None, None, None, None);
    let mut reached = Reached::Other;
    let mut unreached = (Nets::default(), VpnNets::default());
    let (mut originator, mut clusters) = (None, Vec::new());
    let mut others: Vec<(u8, Vec<u8>)> = Vec::new();
    while !attributes.is_empty() {
        let Some((flags, code, value)) = attribute(&mut attributes) else {
            // The lengths in the list are wrong: the routes are known, but their attributes are not.
            sound = false;
            break;
        };
        if std::mem::replace(&mut seen[usize::from(code)], true) {
            // The first of two equal attributes counts, but with two of these, the routes are unknown (RFC 7606 section
            // 3 g).
            if matches!(code, attribute::MP_REACH_NLRI | attribute::MP_UNREACH_NLRI) {
                return Err(bad_list());
            }
            continue;
        }
        let kind = flags & (flag::OPTIONAL | flag::TRANSITIVE);
        let expected = match code {
            attribute::ORIGIN | attribute::AS_PATH | attribute::NEXT_HOP => Some(flag::TRANSITIVE),
            attribute::LOCAL_PREF | attribute::ATOMIC_AGGREGATE => Some(flag::TRANSITIVE),
            attribute::MULTI_EXIT_DISC | attribute::MP_REACH_NLRI | attribute::MP_UNREACH_NLRI => Some(flag::OPTIONAL),
            attribute::ORIGINATOR_ID | attribute::CLUSTER_LIST => Some(flag::OPTIONAL),
            attribute::AGGREGATOR | attribute::COMMUNITIES | attribute::EXTENDED_COMMUNITIES => Some(0xc0),
            attribute::LARGE_COMMUNITIES => Some(0xc0),
            _ => None,
        };
        sound &= expected.is_none_or(|e| e == kind);
        let mut pass_on = |flags: u8| {
            let mut whole = vec![flags & !flag::EXTENDED | if value.len() > 255 { flag::EXTENDED } else { 0 }, code];
            if value.len() > 255 {
                whole.extend((value.len() as u16).to_be_bytes());
            } else {
                whole.push(value.len() as u8);
            }
            whole.extend(value);
            others.push((code, whole));
        };
        match (code, value) {
            (attribute::ORIGIN, &[value @ 0..=2]) => origin = Some(value),
            (attribute::AS_PATH, path) if is_path(path) => as_path = Some(path.to_vec()),
            (attribute::NEXT_HOP, &[a, b, c, d]) => next_hop = Some(IpAddr::from([a, b, c, d])),
            (attribute::MULTI_EXIT_DISC, &[a, b, c, d]) => med = Some(u32::from_be_bytes([a, b, c, d])),
            (attribute::LOCAL_PREF, &[a, b, c, d]) if internal => local_pref = Some(u32::from_be_bytes([a, b, c, d])),
            // From external peers, these attributes are ignored (RFC 7606 sections 7.5, 7.9 and 7.10).
            (attribute::LOCAL_PREF | attribute::ORIGINATOR_ID | attribute::CLUSTER_LIST, _) if !internal => {}
            (attribute::ORIGINATOR_ID, &[a, b, c, d]) => originator = Some(u32::from_be_bytes([a, b, c, d])),
            (attribute::CLUSTER_LIST, value) if value.len().is_multiple_of(4) && !value.is_empty() => {
                clusters = value.to_vec();
            }
            (attribute::ATOMIC_AGGREGATE, []) => pass_on(flags),
            // Discard a malformed aggregator and keep the route (RFC 7606 section 7.7).
            (attribute::ATOMIC_AGGREGATE | attribute::AGGREGATOR, value) => {
                if code == attribute::AGGREGATOR && value.len() == 8 {
                    pass_on(flags);
                }
            }
            (attribute::COMMUNITIES, value) if value.len().is_multiple_of(4) && !value.is_empty() => pass_on(flags),
            (attribute::EXTENDED_COMMUNITIES, value) if value.len().is_multiple_of(8) && !value.is_empty() => {
                pass_on(flags);
            }
            (attribute::LARGE_COMMUNITIES, value) if value.len().is_multiple_of(12) && !value.is_empty() => {
                pass_on(flags)
            }
            (attribute::MP_REACH_NLRI, value) => reached = reach(value)?,
            (attribute::MP_UNREACH_NLRI, value) => unreached = unreach(value)?,
            // Not used, because all sessions here use 4-octet AS numbers (RFC 6793 section 6).
            (attribute::AS4_PATH | attribute::AS4_AGGREGATOR, _) => {}
            (
                attribute::ORIGIN
                | attribute::AS_PATH
                | attribute::NEXT_HOP
                | attribute::MULTI_EXIT_DISC
                | attribute::LOCAL_PREF
                | attribute::ORIGINATOR_ID
                | attribute::CLUSTER_LIST
                | attribute::COMMUNITIES
                | attribute::EXTENDED_COMMUNITIES
                | attribute::LARGE_COMMUNITIES,
                _,
            ) => sound = false,
            // RFC 4271 section 9: an unknown transitive attribute is re-advertised, marked as partial.
            (_, _) if kind == flag::OPTIONAL | flag::TRANSITIVE => pass_on(flags | flag::PARTIAL),
            (_, _) if flags & flag::OPTIONAL != 0 => {}
            (_, _) => return Err(Notification::bare(code::UPDATE, subcode::UNRECOGNIZED_WELL_KNOWN)),
        }
    }
    others.sort_by_key(|(code, _)| *code);
    let others = others.into_iter().flat_map(|(_, whole)| whole).collect();
    let attributes = match (origin, as_path) {
        (Some(origin), Some(as_path)) if sound => {
            let next_hop = next_hop.unwrap_or(UNSPECIFIED);
            Some(Attributes { origin, as_path, next_hop, med, local_pref, originator, clusters, others })
        }
        _ => None,
    };
    let (reached, vpn_announced) = match reached {
        Reached::Unicast(nets, next_hop) => ((nets, next_hop), (VpnNets::default(), UNSPECIFIED)),
        Reached::Vpn(nets, next_hop) => ((Nets::default(), None), (nets, next_hop)),
        Reached::Other => ((Nets::default(), None), (VpnNets::default(), UNSPECIFIED)),
    };
    Ok(Update {
        withdrawn: [withdrawn, unreached.0],
        announced: [(announced, next_hop), reached],
        vpn_withdrawn: unreached.1,
        vpn_announced,
        attributes,
    })
}

const UNSPECIFIED: IpAddr = IpAddr::V4(Ipv4Addr::UNSPECIFIED);

/// The content of MP_REACH_NLRI.
enum Reached<'a> {
    Unicast(Nets<'a>, Option<IpAddr>),
    Vpn(VpnNets<'a>, IpAddr),
    /// Another family.
    Other,
}

/// The family at the start of a value.
fn family(value: &[u8]) -> Option<(AfiSafi, &[u8])> {
    let (&[a, b, safi], rest) = value.split_first_chunk()?;
    Some((AfiSafi::new(u16::from_be_bytes([a, b]), safi), rest))
}

fn reach(value: &[u8]) -> Result<Reached<'_>, Notification> {
    let malformed = || Notification::bare(code::UPDATE, subcode::OPTIONAL_ATTRIBUTE);
    let (family, rest) = family(value).ok_or_else(malformed)?;
    let (&len, rest) = rest.split_first().ok_or_else(malformed)?;
    let (next_hop, rest) = rest.split_at_checked(len.into()).ok_or_else(malformed)?;
    // One byte is reserved.
    let nets = rest.get(1..).ok_or_else(malformed)?;
    match (family, next_hop.len()) {
        (AfiSafi::IPV4_UNICAST, 4) => {
            let next_hop = next_hop.first_chunk::<4>().map(|a| IpAddr::from(*a));
            Ok(Reached::Unicast(Nets::read(false, nets)?, next_hop))
        }
        (AfiSafi::IPV6_UNICAST, 16 | 32) => {
            let next_hop = next_hop.first_chunk::<16>().map(|a| IpAddr::from(*a));
            Ok(Reached::Unicast(Nets::read(true, nets)?, next_hop))
        }
        (AfiSafi::VPNV4, VPN_NEXT_HOP) => {
            let next_hop = next_hop.last_chunk::<4>().map(|a| IpAddr::from(*a)).ok_or_else(malformed)?;
            Ok(Reached::Vpn(VpnNets::read(false, nets)?, next_hop))
        }
        (AfiSafi::VPNV6, VPN_NEXT_HOP_IPV6 | VPN_NEXT_HOPS_IPV6) => {
            let next_hop = next_hop[8..].first_chunk::<16>().map(|a| IpAddr::from(*a)).ok_or_else(malformed)?;
            Ok(Reached::Vpn(VpnNets::read(true, nets)?, next_hop.to_canonical()))
        }
        // RFC 7606 section 7.11: the routes are unknown.
        (AfiSafi::IPV4_UNICAST | AfiSafi::IPV6_UNICAST | AfiSafi::VPNV4 | AfiSafi::VPNV6, _) => Err(malformed()),
        _ => Ok(Reached::Other),
    }
}

fn unreach(value: &[u8]) -> Result<(Nets<'_>, VpnNets<'_>), Notification> {
    let (family, nets) = family(value).ok_or_else(|| Notification::bare(code::UPDATE, subcode::OPTIONAL_ATTRIBUTE))?;
    Ok(match family {
        AfiSafi::IPV4_UNICAST => (Nets::read(false, nets)?, VpnNets::default()),
        AfiSafi::IPV6_UNICAST => (Nets::read(true, nets)?, VpnNets::default()),
        AfiSafi::VPNV4 => (Nets::default(), VpnNets::read(false, nets)?),
        AfiSafi::VPNV6 => (Nets::default(), VpnNets::read(true, nets)?),
        _ => (Nets::default(), VpnNets::default()),
    })
}

#[cfg(test)]
mod tests {
    use super::*;
    use netgauze_bgp_pkt::path_attribute::{AsPath, MpReach, MpUnreach, PathAttributeValue};
    use netgauze_bgp_pkt::update::BgpUpdateMessage;
    use netgauze_bgp_pkt::wire::deserializer::BgpParsingContext;
    use netgauze_parse_utils::reader::SliceReader;
    use netgauze_parse_utils::traits::ParseFromWithOneInput;
    use proptest::prelude::*;
    use std::collections::HashMap;

    /// An UPDATE of withdrawn routes, attributes and announced routes.
    fn body(withdrawn: &[u8], attributes: &[&[u8]], announced: &[u8]) -> Vec<u8> {
        let attributes = attributes.concat();
        let mut out = (withdrawn.len() as u16).to_be_bytes().to_vec();
        out.extend(withdrawn);
        out.extend((attributes.len() as u16).to_be_bytes());
        out.extend(attributes);
        out.extend(announced);
        out
    }

    const ORIGIN: &[u8] = &[0x40, 1, 1, 2];
    const PATH: &[u8] = &[0x40, 2, 6, 2, 1, 0, 0, 0xfd, 0xe9];
    const HOP: &[u8] = &[0x40, 3, 4, 198, 18, 0, 2];

    fn all(nets: Nets<'_>) -> Vec<String> {
        nets.map(|(address, len)| format!("{address}/{len}")).collect()
    }

    #[test]
    fn routes_of_both_families_with_their_attributes() {
        let hop6 = "2001:2::2".parse::<Ipv6Addr>().unwrap();
        let mut reach = vec![0x90, 14, 0, 28, 0, 2, 1, 16];
        reach.extend(hop6.octets());
        reach.extend([0, 48, 0x20, 1, 0x0d, 0xb8, 0, 1]);
        let unreach = [0x80, 15, 6, 0, 2, 1, 16, 0x20, 2];
        let med = [0x80, 4, 4, 0, 0, 0, 9];
        let communities = [0xc0, 8, 4, 0, 1, 0, 2];
        let unknown = [0xc0, 99, 1, 7];
        let local = [0x80, 77, 1, 7];
        let list: &[&[u8]] = &[&reach, ORIGIN, PATH, HOP, &med, &unknown, &communities, &local, &unreach];
        let body = body(&[8, 11, 0], list, &[24, 203, 0, 113, 17, 10, 1, 255]);
        let update = read(&body, false).unwrap();
        assert_eq!(all(update.withdrawn[0]), ["11.0.0.0/8", "0.0.0.0/0"]);
        assert_eq!(all(update.withdrawn[1]), ["2002::/16"]);
        assert_eq!(
            all(update.announced[0].0),
            ["203.0.113.0/24", "10.1.128.0/17"],
            "bits beyond the length do not count"
        );
        assert_eq!(all(update.announced[1].0), ["2001:db8:1::/48"]);
        assert_eq!(update.announced[0].1, Some("198.18.0.2".parse().unwrap()));
        assert_eq!(update.announced[1].1, Some(hop6.into()));
        let attributes = update.attributes.unwrap();
        assert_eq!((attributes.origin, attributes.med, attributes.rank().length), (2, Some(9), 1));
        let partial = [0xe0, 99, 1, 7];
        assert_eq!(attributes.others, [&communities[..], &partial].concat(), "in order; what stays here is gone");
    }

    #[test]
    fn wrong_attributes_withdraw_and_wrong_lengths_end_the_session() {
        let sound = |list: &[&[u8]]| read(&body(&[], list, &[8, 10]), false).map(|u| u.attributes.is_some());
        assert_eq!(sound(&[ORIGIN, PATH, HOP]), Ok(true));
        assert_eq!(sound(&[PATH, HOP]), Ok(false), "no origin");
        assert_eq!(sound(&[&[0x40, 1, 1, 3], PATH, HOP]), Ok(false));
        assert_eq!(sound(&[&[0xc0, 1, 1, 0], PATH, HOP]), Ok(false), "flags");
        assert_eq!(sound(&[ORIGIN, &[0x40, 2, 3, 2, 1, 0], HOP]), Ok(false));
        assert_eq!(sound(&[ORIGIN, PATH, HOP, &[0xc0, 8, 3, 0, 0, 0]]), Ok(false));
        assert_eq!(sound(&[ORIGIN, PATH, HOP, &[0xc0, 7, 1, 0]]), Ok(true), "an aggregator is not worth a route");
        assert_eq!(sound(&[ORIGIN, PATH, HOP, &[0x40, 5, 1, 0]]), Ok(true), "nor a LOCAL_PREF from outside");
        assert_eq!(sound(&[ORIGIN, PATH, HOP, &[0xc0, 99, 9]]), Ok(false), "an attribute beyond the list");
        let answer = |list: &[&[u8]]| sound(list).map_err(|n| (n.code, n.subcode));
        assert_eq!(answer(&[ORIGIN, &[0x40, 99, 0]]), Err((3, 2)));
        assert_eq!(answer(&[&[0x80, 14, 2, 0, 2]]), Err((3, 9)));
        assert_eq!(answer(&[&[0x80, 15, 5, 0, 2, 1, 129, 0]]), Err((3, 10)));
        let end = |body: &[u8]| read(body, false).map(|_| ()).map_err(|n| (n.code, n.subcode));
        assert_eq!(end(&[0xff, 0xff, 0, 0]), Err((3, 1)));
        assert_eq!(end(&[0, 0, 0, 9]), Err((3, 1)));
        assert_eq!(end(&[0, 2, 33, 1, 0, 0]), Err((3, 10)));
        assert_eq!(end(&[0, 0, 0, 0]), Ok(()), "an End-of-RIB");
    }

    /// A VPN-IPv4 route of 65000:`vrf` as in an UPDATE.
    fn vpn_net(vrf: u8, label: u32, net: [u8; 4], len: u8) -> Vec<u8> {
        let label = (label << 4 | 1).to_be_bytes();
        let head = [88 + len, label[1], label[2], label[3], 0, 0, 0xfd, 0xe8, 0, 0, 0, vrf];
        [&head, &net[..usize::from(len.div_ceil(8))]].concat()
    }

    #[test]
    fn vpn_routes_with_labels_and_distinguishers() {
        let nets = [vpn_net(1, 500_000, [10, 1, 0, 0], 24), vpn_net(2, 16, [10, 1, 2, 255], 25)].concat();
        let hop = [0, 0, 0, 0, 0, 0, 0, 0, 100, 127, 1, 2];
        let value = [&[0, 1, 128, 12][..], &hop, &[0], &nets].concat();
        let reach = [&[0x80, 14, value.len() as u8][..], &value].concat();
        let gone = [&[0, 1, 128][..], &vpn_net(3, 0x80_000, [10, 9, 0, 0], 16)].concat();
        let unreach = [&[0x80, 15, gone.len() as u8][..], &gone].concat();
        let body = body(&[], &[&reach, ORIGIN, PATH, &unreach], &[]);
        let update = read(&body, true).unwrap();
        assert!(update.attributes.is_some() && update.announced.iter().all(|(nets, _)| all(*nets).is_empty()));
        let rd = |vrf| [0, 0, 0xfd, 0xe8, 0, 0, 0, vrf];
        let net4 = |net: [u8; 4], len| net_of(net, len);
        assert_eq!(
            update.vpn_announced.0.collect::<Vec<_>>(),
            [
                VpnNet { label: 500_000, distinguisher: rd(1), net: net4([10, 1, 0, 0], 24) },
                VpnNet { label: 16, distinguisher: rd(2), net: net4([10, 1, 2, 128], 25) },
            ]
        );
        assert_eq!(update.vpn_announced.1, IpAddr::from([100, 127, 1, 2]));
        let gone: Vec<_> = update.vpn_withdrawn.map(|route| (route.distinguisher, route.net)).collect();
        assert_eq!(gone, [(rd(3), net4([10, 9, 0, 0], 16))]);
    }

    fn net_of(address: [u8; 4], len: u8) -> Net {
        net(address.into(), len).unwrap()
    }

    #[test]
    fn wrong_lengths_of_vpn_routes_end_the_session() {
        let answer = |value: &[u8]| {
            let reach = [&[0x80, 14, value.len() as u8][..], value].concat();
            read(&body(&[], &[&reach], &[]), true).map(|_| ()).map_err(|n| (n.code, n.subcode))
        };
        let with = |hop: usize, nets: &[u8]| [&[0, 1, 128, hop as u8][..], &vec![0; hop], &[0], nets].concat();
        let route = vpn_net(1, 16, [10, 0, 0, 0], 8);
        assert_eq!(answer(&with(12, &route)), Ok(()));
        // Next hops of other lengths.
        assert_eq!([4, 16, 24].map(|hop| answer(&with(hop, &route))), [Err((3, 9)); 3]);
        // Of IPv6, with an address of up to 128 bits.
        let with6 = |hop: usize, nets: &[u8]| [&[0, 2, 128, hop as u8][..], &vec![0; hop], &[0], nets].concat();
        let long = [&[88 + 128][..], &[0; 27]].concat();
        assert_eq!([24, 48].map(|hop| answer(&with6(hop, &long))), [Ok(()); 2]);
        assert_eq!([12, 16, 32].map(|hop| answer(&with6(hop, &long))), [Err((3, 9)); 3]);
        assert_eq!(answer(&with6(24, &[&[88 + 129][..], &[0; 28]].concat())), Err((3, 10)));
        // Shorter than label and route distinguisher, longer than an address, or not whole.
        assert_eq!(answer(&with(12, &[87, 0, 0, 1, 0, 0, 0, 0, 0, 0, 0, 0])), Err((3, 10)));
        assert_eq!(answer(&with(12, &[&[121][..], &[0; 16]].concat())), Err((3, 10)));
        assert_eq!(answer(&with(12, &route[..route.len() - 1])), Err((3, 10)));
    }

    /// Encodes a prefix as in an UPDATE, with zeros in the bits beyond its length.
    fn emit(address: u128, bits: u32, len: u8) -> Vec<u8> {
        let address = address >> (bits - u32::from(len)) << (bits - u32::from(len));
        let bytes = (address << (128 - bits)).to_be_bytes();
        [&[len], &bytes[..usize::from(len.div_ceil(8))]].concat()
    }

    proptest! {
        #[test]
        fn netgauze_reads_the_same(
            four in proptest::collection::vec((0x0a00_0000u32..0x7f00_0000, 8u8..=32), 0..40),
            six in proptest::collection::vec((0x2000u128 << 112..0x4000 << 112, 3u8..=128), 0..40),
            origin in 0u8..3, ases in proptest::collection::vec(any::<u32>(), 1..9), med: u32,
        ) {
            let four: Vec<_> = four.iter().flat_map(|(address, len)| emit((*address).into(), 32, *len)).collect();
            let six: Vec<_> = six.iter().flat_map(|(address, len)| emit(*address, 128, *len)).collect();
            let long = |code: u8, value: &[u8]| {
                let len = (value.len() as u16).to_be_bytes();
                [&[0x90, code, len[0], len[1]], value].concat()
            };
            let hop = "2001:2::2".parse::<Ipv6Addr>().unwrap();
            let reach = long(14, &[&[0, 2, 1, 16], &hop.octets()[..], &[0], &six].concat());
            let unreach = long(15, &[&[0, 2, 1], &six[..]].concat());
            let mut path = vec![0x40, 2, 2 + 4 * ases.len() as u8, 2, ases.len() as u8];
            path.extend(ases.iter().flat_map(|a| a.to_be_bytes()));
            let med_bytes = [&[0x80, 4, 4], &med.to_be_bytes()[..]].concat();
            let list: &[&[u8]] = &[&reach, &unreach, &[0x40, 1, 1, origin], &path, HOP, &med_bytes];
            let body = body(&four, list, &four);

            let ours = read(&body, false).unwrap();
            let attributes = ours.attributes.unwrap();
            let mut context = BgpParsingContext::new(true, HashMap::new(), HashMap::new(), true, true, true, true);
            let theirs = BgpUpdateMessage::parse(&mut SliceReader::new(&body), &mut context).unwrap();
            macro_rules! nets {
                ($routes:expr) => { $routes.iter().map(|r| r.network().address().to_string()).collect::<Vec<_>>() };
            }
            prop_assert_eq!(all(ours.withdrawn[0]), nets!(theirs.withdraw_routes()));
            prop_assert_eq!(all(ours.announced[0].0), nets!(theirs.nlri()));
            let mut read = 0;
            for attribute in theirs.path_attributes() {
                read += 1;
                match attribute.value() {
                    PathAttributeValue::MpReach(MpReach::Ipv6Unicast { next_hop_global, nlri, .. }) => {
                        prop_assert_eq!(ours.announced[1].1, Some((*next_hop_global).into()));
                        prop_assert_eq!(all(ours.announced[1].0), nets!(nlri));
                    }
                    PathAttributeValue::MpUnreach(MpUnreach::Ipv6Unicast { nlri, .. }) => {
                        prop_assert_eq!(all(ours.withdrawn[1]), nets!(nlri));
                    }
                    PathAttributeValue::Origin(theirs) => prop_assert_eq!(attributes.origin, *theirs as u8),
                    PathAttributeValue::AsPath(AsPath::As4PathSegments(segments)) => {
                        let theirs: Vec<_> = segments.iter().flat_map(|s| s.as_numbers()).copied().collect();
                        prop_assert_eq!(&theirs, &ases);
                        prop_assert_eq!(&attributes.as_path[2..], &path[5..]);
                    }
                    PathAttributeValue::NextHop(theirs) => {
                        prop_assert_eq!(ours.announced[0].1, Some(theirs.next_hop().into()));
                    }
                    PathAttributeValue::MultiExitDiscriminator(theirs) => {
                        prop_assert_eq!(attributes.med, Some(theirs.metric()));
                    }
                    other => prop_assert!(false, "{other:?}"),
                }
            }
            prop_assert_eq!(read, 6);
        }

        #[test]
        fn nothing_that_arrives_is_too_strange(
            noise in proptest::collection::vec(any::<u8>(), 0..200), at in 0usize..60, place: usize, byte: u8, internal: bool,
        ) {
            let strange = |bytes: &[u8]| {
                if let Ok(update) = read(bytes, internal) {
                    let nets = update.withdrawn.into_iter().chain(update.announced.map(|a| a.0));
                    let vpn = update.vpn_withdrawn.chain(update.vpn_announced.0).map(|route| route.net);
                    for (address, len) in nets.flatten().chain(vpn) {
                        assert_eq!(net(address, len), Some((address, len)));
                    }
                    if let Some(attributes) = update.attributes {
                        attributes.rank();
                        attributes.passed(1);
                    }
                }
            };
            strange(&noise);
            let mut nearly = body(&[8, 10], &[ORIGIN, PATH, HOP, &[0x80, 15, 6, 0, 2, 1, 16, 0x20, 2]], &[24, 203, 0, 113]);
            let at = at % nearly.len();
            nearly[at] = byte;
            strange(&nearly);
            strange(&nearly[..at]);
            let nets = [vpn_net(1, 500_000, [10, 1, 0, 0], 24), vpn_net(2, 16, [10, 1, 2, 255], 25)].concat();
            let value = [&[0, 1, 128, 12][..], &[0; 12], &[0], &nets].concat();
            let reach = [&[0x80, 14, value.len() as u8][..], &value].concat();
            let unreach = [&[0x80, 15, 3 + nets.len() as u8, 0, 1, 128][..], &nets].concat();
            let mut nearly = body(&[], &[&reach, ORIGIN, PATH, &unreach], &[]);
            let at = place % nearly.len();
            nearly[at] = byte;
            strange(&nearly);
            strange(&nearly[..at]);
        }
    }
}
