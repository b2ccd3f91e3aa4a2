//! Writes UPDATEs.

use super::Table;
use super::read::{VPN_HEAD, VPN_NEXT_HOP, VPN_NEXT_HOP_IPV6, attribute, flag};
use crate::faults::{BgpFaults, is_nth};
use crate::rib::{Attributes, Net, Path, PeerId, Rib, TableId, Telling, prepended};
use crate::truth::BgpTruth;
use crate::vpn::{FIRST_VRF_LABEL, with_target};
use drophammer_model::Instant;
use drophammer_wire::bgp::AfiSafi;
use drophammer_wire::bgp::message::{self, HEADER_LEN, kind};
use std::net::IpAddr;

/// The properties of a session that UPDATEs depend on.
#[derive(Clone, Copy, Debug)]
pub(super) struct Way {
    pub peer: PeerId,
    pub asn: u32,
    pub router_id: u32,
    /// The device's address on the link of the peer, by family.
    pub own: [Option<IpAddr>; 2],
    /// True if the peer is in the same AS.
    pub internal: bool,
    /// True if the device is the next hop of external routes even for an internal peer.
    pub next_hop_self: bool,
    /// True if the peer receives VPN routes.
    pub vpn: bool,
    /// Longest message in bytes.
    pub longest: usize,
}

/// Label in a withdrawal (RFC 8277 section 2.4).
const WITHDRAWN_LABEL: [u8; 3] = [0x80, 0, 0];

/// The identifiers of a VRF as they are in UPDATEs.
#[derive(Clone, Copy, Debug)]
pub(super) struct VrfIds {
    pub distinguisher: [u8; 8],
    /// Its route target.
    pub target: [u8; 8],
}

/// The properties that all prefixes of one message share.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
struct Common {
    telling: Telling,
    table: TableId,
    ipv6: bool,
    /// Next hop to use instead of the device's own address.
    next_hop: Option<IpAddr>,
    /// True if this next hop is a fault.
    strange: bool,
    doubled: bool,
}

/// Appends UPDATEs for pending routes until `out` has at least `enough` bytes, or until a malformed UPDATE is due.
pub(super) fn write(table: &mut Table, way: &Way, faults: &BgpFaults, out: &mut Vec<u8>, enough: usize, now: Instant) {
    let Table { rib, truth, until_malformed: until, vrfs, .. } = table;
    let mut nets = Vec::new();
    while out.len() < enough && *until != Some(0) {
        let Some((_, common)) = next(rib, way, faults, truth) else { return };
        // A peer for VPN routes belongs only to tables of VRFs.
        let (label, vrf) = if way.vpn { vrf_of(vrfs, &common) } else { Default::default() };
        let before = attributes(rib, way, &common, vrf.map(|vrf| vrf.target));
        // Size of MP_UNREACH_NLRI or MP_REACH_NLRI: 4 bytes of header, AFI, SAFI; the next hop with its length, a zero
        // byte.
        let around = match (common.ipv6 || way.vpn, common.telling) {
            (false, _) => 0,
            (true, Telling::Withdraw) => 4 + 3,
            (true, Telling::Announce(_)) => 4 + 3 + 1 + next_hop_len(way, &common) + 1,
        };
        let room = way.longest.saturating_sub(HEADER_LEN + 4 + before.len() + around);
        nets.clear();
        let mut count = 0;
        while let Some((net, other)) = next(rib, way, faults, truth)
            && other == common
            && *until != Some(0)
        {
            let bytes = usize::from(net.1.div_ceil(8));
            let head = if vrf.is_some() { VPN_HEAD } else { 0 };
            if nets.len() + 1 + head + bytes > room {
                break;
            }
            nets.push(8 * head as u8 + net.1);
            if let Some(vrf) = vrf {
                nets.extend(label);
                nets.extend(vrf.distinguisher);
            }
            match net.0 {
                IpAddr::V4(a) => nets.extend_from_slice(&a.octets()[..bytes]),
                IpAddr::V6(a) => nets.extend_from_slice(&a.octets()[..bytes]),
            }
            count += 1;
            rib.told(way.peer);
            if let Telling::Announce(_) = common.telling {
                truth.wrong_next_hop += u64::from(common.strange);
                truth.wrong_as_path += u64::from(common.doubled);
                *until = until.map(|left| left - 1);
            }
        }
        if count == 0 {
            // The attributes leave no room for a prefix.
            truth.lost += 1;
            rib.told(way.peer);
            continue;
        }
        match common.telling {
            Telling::Announce(_) => truth.routes_sent += count,
            Telling::Withdraw => truth.withdrawals_sent += count,
        }
        truth.updates_sent += 1;
        truth.sent_at = now.0;
        compose(out, way, &common, &before, &nets);
    }
}

/// Label of the routes of a message, and their VRF.
fn vrf_of<'a>(vrfs: &'a [VrfIds], common: &Common) -> ([u8; 3], Option<&'a VrfIds>) {
    let number = common.table.saturating_sub(1);
    let label = match common.telling {
        Telling::Withdraw => WITHDRAWN_LABEL,
        Telling::Announce(_) => {
            // The bottom of the label stack.
            let [_, label @ ..] = ((FIRST_VRF_LABEL + number) << 4 | 1).to_be_bytes();
            label
        }
    };
    (label, vrfs.get(number as usize))
}

/// The next prefix to advertise to this peer, with faults applied.
fn next(rib: &mut Rib, way: &Way, faults: &BgpFaults, truth: &mut BgpTruth) -> Option<(Net, Common)> {
    loop {
        let (table, net, number, path, telling) = rib.next_telling(way.peer)?;
        let number = u64::from(number);
        if is_nth(number, faults.lost_route_every) {
            truth.lost += u64::from(telling != Telling::Withdraw);
            rib.told(way.peer);
            continue;
        }
        let announced = telling != Telling::Withdraw;
        let learned = |path: Option<Path>| path.map(|p| rib.attributes(p.attributes).next_hop);
        let strange = announced && is_nth(number, faults.wrong_next_hop_every);
        // RFC 4271 section 5.1.3; RFC 4456 section 10.
        let reflected = way.internal && path.is_some_and(|p| p.internal);
        let unchanged = reflected || way.internal && !way.next_hop_self;
        let common = Common {
            telling,
            table,
            ipv6: net.0.is_ipv6(),
            next_hop: if announced && unchanged != strange { learned(path) } else { None },
            strange,
            doubled: announced && is_nth(number, faults.wrong_as_path_every),
        };
        return Some((net, common));
    }
}

/// All attributes except MP_REACH_NLRI.
fn attributes(rib: &Rib, way: &Way, common: &Common, target: Option<[u8; 8]>) -> Vec<u8> {
    let Telling::Announce(id) = common.telling else { return Vec::new() };
    let told: &Attributes = rib.attributes(id);
    let mut out = Vec::with_capacity(64);
    put(&mut out, flag::TRANSITIVE, attribute::ORIGIN, &[told.origin]);
    let times = u8::from(!way.internal) + u8::from(common.doubled);
    let path = if times == 0 { told.as_path.clone() } else { prepended(&told.as_path, way.asn, times) };
    put(&mut out, flag::TRANSITIVE, attribute::AS_PATH, &path);
    if !common.ipv6
        && !way.vpn
        && let Some(IpAddr::V4(next_hop)) = common.next_hop.or(way.own[0])
    {
        put(&mut out, flag::TRANSITIVE, attribute::NEXT_HOP, &next_hop.octets());
    }
    if way.internal {
        if let Some(med) = told.med {
            put(&mut out, flag::OPTIONAL, attribute::MULTI_EXIT_DISC, &med.to_be_bytes());
        }
        put(&mut out, flag::TRANSITIVE, attribute::LOCAL_PREF, &told.rank().local_pref.to_be_bytes());
        if let Some(originator) = told.originator {
            // A reflected route (RFC 4456 section 8).
            put(&mut out, flag::OPTIONAL, attribute::ORIGINATOR_ID, &originator.to_be_bytes());
            let clusters = [&way.router_id.to_be_bytes(), &told.clusters[..]].concat();
            put(&mut out, flag::OPTIONAL, attribute::CLUSTER_LIST, &clusters);
        }
    }
    match target {
        Some(target) => out.extend(with_target(&told.others, target)),
        None => out.extend_from_slice(&told.others),
    }
    out
}

fn put(out: &mut Vec<u8>, flags: u8, code: u8, value: &[u8]) {
    if value.len() > 255 {
        out.extend([flags | flag::EXTENDED, code]);
        out.extend((value.len() as u16).to_be_bytes());
    } else {
        out.extend([flags, code, value.len() as u8]);
    }
    out.extend_from_slice(value);
}

fn compose(out: &mut Vec<u8>, way: &Way, common: &Common, before: &[u8], nets: &[u8]) {
    begin(out, |out| {
        if !common.ipv6 && !way.vpn {
            let (withdrawn, announced) = match common.telling {
                Telling::Withdraw => (nets, &[][..]),
                Telling::Announce(_) => (&[][..], nets),
            };
            out.extend((withdrawn.len() as u16).to_be_bytes());
            out.extend_from_slice(withdrawn);
            out.extend((before.len() as u16).to_be_bytes());
            out.extend_from_slice(before);
            out.extend_from_slice(announced);
            return;
        }
        // This attribute comes first, as RFC 7606 section 5.1 requires.
        let mut value = family(way.vpn, common.ipv6).to_vec();
        let code = match common.telling {
            Telling::Withdraw => attribute::MP_UNREACH_NLRI,
            Telling::Announce(_) => {
                // The core has only IPv4.
                let own = way.own[usize::from(common.ipv6 && !way.vpn)];
                value.push(next_hop_len(way, common) as u8);
                if way.vpn {
                    value.extend([0; 8]);
                }
                match common.next_hop.or(own) {
                    Some(IpAddr::V6(next_hop)) => value.extend(next_hop.octets()),
                    // RFC 4659 section 3.2.1.2.
                    Some(IpAddr::V4(next_hop)) if common.ipv6 => value.extend(next_hop.to_ipv6_mapped().octets()),
                    Some(IpAddr::V4(next_hop)) => value.extend(next_hop.octets()),
                    // A session has an address of its own.
                    None => {}
                }
                value.push(0);
                attribute::MP_REACH_NLRI
            }
        };
        out.extend([0, 0]);
        out.extend(((4 + value.len() + nets.len() + before.len()) as u16).to_be_bytes());
        out.extend([flag::OPTIONAL | flag::EXTENDED, code]);
        out.extend(((value.len() + nets.len()) as u16).to_be_bytes());
        out.extend_from_slice(&value);
        out.extend_from_slice(nets);
        out.extend_from_slice(before);
    });
}

/// Bytes of the next hop in MP_REACH_NLRI.
fn next_hop_len(way: &Way, common: &Common) -> usize {
    match (way.vpn, common.ipv6) {
        (true, true) => VPN_NEXT_HOP_IPV6,
        (true, false) => VPN_NEXT_HOP,
        (false, _) => 16,
    }
}

/// Appends an UPDATE: a header, followed by the body that `fill` writes.
fn begin(out: &mut Vec<u8>, fill: impl FnOnce(&mut Vec<u8>)) {
    let start = out.len();
    out.resize(start + HEADER_LEN, 0);
    fill(out);
    let len = out.len() - start;
    message::emit_header(&mut out[start..], kind::UPDATE, len);
}

/// AFI and SAFI of routes that are not in the fields of BGP-4 itself.
fn family(vpn: bool, ipv6: bool) -> [u8; 3] {
    let family = match (vpn, ipv6) {
        (true, true) => AfiSafi::VPNV6,
        (true, false) => AfiSafi::VPNV4,
        (false, true) => AfiSafi::IPV6_UNICAST,
        (false, false) => AfiSafi::IPV4_UNICAST,
    };
    let [high, low] = family.afi.to_be_bytes();
    [high, low, family.safi]
}

/// Appends the End-of-RIB of a family (RFC 4724 section 2).
pub(super) fn end_of_rib(out: &mut Vec<u8>, vpn: bool, ipv6: bool) {
    begin(out, |out| match (vpn, ipv6) {
        (false, false) => out.extend([0; 4]),
        _ => {
            out.extend([0, 0, 0, 6, flag::OPTIONAL, attribute::MP_UNREACH_NLRI, 3]);
            out.extend(family(vpn, ipv6));
        }
    });
}

/// Appends an UPDATE whose withdrawn routes are longer than the message itself, which ends a session (RFC 7606 section
/// 3 b).
pub(super) fn malformed(out: &mut Vec<u8>) {
    begin(out, |out| out.extend_from_slice(&[0xff, 0xff, 0, 0]));
}
