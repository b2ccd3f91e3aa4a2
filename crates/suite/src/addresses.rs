//! Addresses of a port: the defaults from the blocks reserved for benchmarks, and the rules by which addresses fit
//! together.
//!
//! IPv4 follows RFC 2544 Appendix C.2.2 in 198.18.0.0/15 (RFC 6890; the printed appendix names other ranges in places),
//! IPv6 RFC 5180 section 8 in 2001:2::/48 (the block of its erratum 1752). Port i of a pair k = i / 2 has, with `o` 18 for
//! even and 19 for odd ports:
//!
//! | | link | behind the emulated router |
//! |---|---|---|
//! | k = 0 | 198.o.1.0/24 | 198.o.64.0/18 |
//! | k = 1 to 7 | 198.o.(k+1).0/24 | 198.o.(112+16k).0/20 |
//! | k = 8 to 31 | 198.o.240.0 + 32(k-8), /27 | 198.o.244.0 + 64(k-8), /26 |
//! | k = 0, IPv6 | 2001:2:0:1::/64 | 2001:2:0:4000::/50 |
//! | k = 1 to 7, IPv6 | 2001:2:0:(k+1)::/64 | 2001:2:0:(800h k)::/53 |
//! | k = 8 to 31, IPv6 | 2001:2:0:(400h + k-8)::/64 | 2001:2:0:(500h + k-8)::/64 |
//!
//! where IPv6 subnets of odd ports have the top bit of the fourth group set. VLAN sub-interface v = 0 to 15 of a port
//! of pair k = 0 to 7 has, with n = 16k + v:
//!
//! | | link | behind the emulated router |
//! |---|---|---|
//! | IPv4 | 198.o.16.0 + 32n, /27 | 198.o.32.0 + 64n, /26 |
//! | IPv6 | 2001:2:0:(100h + n)::/64 | 2001:2:0:(200h + n)::/64 |

use super::errors::{Problems, quote};
use super::fields::{Fields, such_as, text, whole};
use super::raw::{Node, Value};
use drophammer_model::suite::Addressing;
use drophammer_model::trial::{AddressRange, Family};
use std::net::{IpAddr, Ipv4Addr, Ipv6Addr};
use std::ops::Range;

/// Maximum number of ports of a suite, all of which have default addresses.
pub(crate) const MAX_PORTS: usize = 64;
/// Number of networks that RFC 2544 section 12 recommends.
pub(crate) const DEFAULT_DESTINATIONS: u64 = 256;
/// Maximum number of destinations on a port.
pub(crate) const MAX_DESTINATIONS: u64 = 1_000_000;

const fn v4(a: u8, b: u8, c: u8, d: u8, len: u8) -> (IpAddr, u8) {
    (IpAddr::V4(Ipv4Addr::new(a, b, c, d)), len)
}

const fn v6(a: u16, b: u16, len: u8) -> (IpAddr, u8) {
    (IpAddr::V6(Ipv6Addr::new(a, b, 0, 0, 0, 0, 0, 0)), len)
}

/// Blocks without an owner on the Internet: for benchmarks (as RFC 6815 requires), private, for documentation.
#[rustfmt::skip]
const HARMLESS: [(IpAddr, u8); 11] = [
    v4(198, 18, 0, 0, 15), v4(10, 0, 0, 0, 8), v4(172, 16, 0, 0, 12), v4(192, 168, 0, 0, 16),
    v4(192, 0, 2, 0, 24), v4(198, 51, 100, 0, 24), v4(203, 0, 113, 0, 24),
    v6(0x2001, 2, 48), v6(0xfc00, 0, 7), v6(0x2001, 0xdb8, 32), v6(0x3fff, 0, 20),
];

/// Blocks that no router forwards as unicast: this network, loopback, link-local, multicast and everything above
/// multicast.
#[rustfmt::skip]
const UNUSABLE: [(IpAddr, u8); 8] = [
    v4(0, 0, 0, 0, 8), v4(127, 0, 0, 0, 8), v4(169, 254, 0, 0, 16), v4(224, 0, 0, 0, 3),
    v6(0, 0, 8), v6(0xfe80, 0, 10), v6(0xfec0, 0, 10), v6(0xff00, 0, 8),
];

/// True if `address` is in a block without an owner on the Internet: for benchmarks (RFC 2544 and RFC 5180), private,
/// or for documentation. A tester must not send to any other addresses (RFC 6815).
pub fn is_lab_address(address: IpAddr) -> bool {
    HARMLESS.iter().any(|(block, len)| Prefix::around(*block, *len).contains(address))
}

/// A prefix: the network address as a number, and the length.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Prefix {
    family: Family,
    network: u128,
    len: u8,
}

fn bits(family: Family) -> u8 {
    if family == Family::Ipv4 { 32 } else { 128 }
}

fn family_of(address: IpAddr) -> Family {
    if address.is_ipv4() { Family::Ipv4 } else { Family::Ipv6 }
}

pub(crate) fn to_number(address: IpAddr) -> u128 {
    match address {
        IpAddr::V4(a) => u128::from(u32::from(a)),
        IpAddr::V6(a) => u128::from(a),
    }
}

pub(crate) fn to_address(family: Family, number: u128) -> IpAddr {
    match family {
        Family::Ipv4 => Ipv4Addr::from(number as u32).into(),
        Family::Ipv6 => Ipv6Addr::from(number).into(),
    }
}

impl Prefix {
    /// The prefix of this length that contains `address`.
    pub fn around(address: IpAddr, len: u8) -> Prefix {
        let family = family_of(address);
        let prefix = Prefix { family, network: 0, len };
        Prefix { network: to_number(address) & !prefix.host_mask(), ..prefix }
    }

    /// A mask with ones in the host part.
    fn host_mask(&self) -> u128 {
        match bits(self.family) - self.len {
            128 => u128::MAX,
            host => (1u128 << host) - 1,
        }
    }

    pub fn last(&self) -> u128 {
        self.network | self.host_mask()
    }

    pub fn contains(&self, address: IpAddr) -> bool {
        family_of(address) == self.family && to_number(address) & !self.host_mask() == self.network
    }

    /// True if the two prefixes have an address in common.
    pub fn overlaps(&self, other: &Prefix) -> bool {
        self.family == other.family && self.network <= other.last() && other.network <= self.last()
    }

    fn within(&self, block: &Prefix) -> bool {
        block.contains(to_address(self.family, self.network)) && self.len >= block.len
    }

    /// True if a prefix of this length has room for a network address and a broadcast address (IPv6: the subnet-router
    /// anycast address).
    pub fn has_reserved_ends(&self) -> bool {
        bits(self.family) - self.len >= 2
    }
}

impl std::fmt::Display for Prefix {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(f, "{}/{}", to_address(self.family, self.network), self.len)
    }
}

/// Number of sub-interfaces of a port that have default addresses.
pub(crate) const DEFAULT_VLANS: usize = 16;

/// Number of ports whose sub-interfaces have default addresses.
const VLAN_PORTS: usize = 16;

/// The owner of addresses.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Owner {
    /// The port of this index, which is below [`MAX_PORTS`].
    Port(usize),
    /// A VLAN sub-interface: index of its port, and its index on that port.
    Vlan(usize, usize),
}

impl Owner {
    /// Default addresses of this owner; `None` for a sub-interface that has none.
    fn defaults(self, family: Family) -> Option<Defaults> {
        match self {
            Owner::Port(index) => Some(port_defaults(family, index)),
            Owner::Vlan(port, index) => {
                (index < DEFAULT_VLANS && port < VLAN_PORTS).then(|| vlan_defaults(family, port, index))
            }
        }
    }
}

/// `(dut, host, link length, behind)`
type Defaults = (IpAddr, IpAddr, u8, (IpAddr, u8));

fn vlan_defaults(family: Family, port: usize, index: usize) -> Defaults {
    let (n, odd) = ((DEFAULT_VLANS * (port / 2) + index) as u32, (port % 2) as u32);
    match family {
        Family::Ipv4 => {
            let at = |c: u32, add: u32| IpAddr::from(Ipv4Addr::from(0xc612_0000 + (odd << 16) + (c << 8) + add));
            (at(16, 32 * n + 1), at(16, 32 * n + 2), 27, (at(32, 64 * n), 26))
        }
        Family::Ipv6 => {
            let half = if odd == 1 { 0x8000 } else { 0 };
            let at = |s: u32, host| IpAddr::from(Ipv6Addr::new(0x2001, 2, 0, half | (s + n) as u16, 0, 0, 0, host));
            (at(0x100, 1), at(0x100, 2), 64, (at(0x200, 0), 64))
        }
    }
}

/// Number of port pairs with room for hundreds of networks; later pairs have a /26 (IPv6: a /64).
const WIDE_PAIRS: u8 = 8;

/// Default addresses of port `index`, which is below [`MAX_PORTS`].
fn port_defaults(family: Family, index: usize) -> Defaults {
    let pair = (index / 2) as u8;
    match family {
        Family::Ipv4 => {
            let o = 18 + (index % 2) as u8;
            let at = |c: u8, d: u8| IpAddr::V4(Ipv4Addr::new(198, o, c, d));
            if let Some(further) = pair.checked_sub(WIDE_PAIRS) {
                let at = |c: u8, add: u16| at(c + (add >> 8) as u8, add as u8);
                let (link, behind) = (32 * u16::from(further), 64 * u16::from(further));
                return (at(240, link + 1), at(240, link + 2), 27, (at(244, behind), 26));
            }
            let behind = if pair == 0 { (at(64, 0), 18) } else { (at(112 + 16 * pair, 0), 20) };
            (at(pair + 1, 1), at(pair + 1, 2), 24, behind)
        }
        Family::Ipv6 => {
            let half = if index % 2 == 1 { 0x8000 } else { 0 };
            let at = |s: u16, host: u16| IpAddr::V6(Ipv6Addr::new(0x2001, 2, 0, half | s, 0, 0, 0, host));
            if let Some(further) = pair.checked_sub(WIDE_PAIRS) {
                let further = u16::from(further);
                return (at(0x400 + further, 1), at(0x400 + further, 2), 64, (at(0x500 + further, 0), 64));
            }
            let pair = u16::from(pair);
            let behind = if pair == 0 { (at(0x4000, 0), 50) } else { (at(0x800 * pair, 0), 53) };
            (at(pair + 1, 1), at(pair + 1, 2), 64, behind)
        }
    }
}

/// Addresses of one family on one port, with their positions in the file for errors that concern several ports.
pub(crate) struct Placed<'n> {
    pub addressing: Addressing,
    pub link_span: &'n Range<usize>,
    pub behind_span: &'n Range<usize>,
}

impl Placed<'_> {
    pub fn link(&self) -> Prefix {
        Prefix::around(self.addressing.dut, self.addressing.prefix_len)
    }

    pub fn behind(&self) -> Prefix {
        Prefix::around(self.addressing.behind.0, self.addressing.behind.1)
    }
}

/// Reads `ipv4:` or `ipv6:` of a port or sub-interface. `Some(None)` if the family is off; `None` after an error.
pub(crate) fn read<'n>(
    node: Option<&'n Node>,
    family: Family,
    owner: Owner,
    port_span: &'n Range<usize>,
    public: bool,
    problems: &mut Problems,
) -> Option<Option<Placed<'n>>> {
    let key = family.to_string().to_lowercase();
    let defaults = owner.defaults(family);
    // Without defaults, the addresses of the first port serve as examples.
    let (dut, host, len, behind) = defaults.unwrap_or_else(|| port_defaults(family, 0));
    let fields = match node.map(|n| (&n.value, n)) {
        None | Some((Value::Null, _)) => None,
        Some((Value::Scalar { text, .. }, _)) if text == "off" => return Some(None),
        Some((_, node)) => {
            let example = format!("{key}: {{dut: {dut}/{len}, host: {host}}}` or `{key}: off");
            let known = ["dut", "host", "behind", "destinations"];
            Some(Fields::with_keys(node, &format!("`{key}`"), &known, &example, problems)?)
        }
    };
    let get = |key: &str| fields.and_then(|f| f.value(key));
    if defaults.is_none() && (get("dut").is_none() || get("behind").is_none()) {
        let message = format!(
            "only the first {DEFAULT_VLANS} sub-interfaces of the first {VLAN_PORTS} ports have default addresses"
        );
        let help = format!("give this one `{key}: {{dut: …, host: …, behind: …}}`, or `{key}: off`");
        return problems.refuse(node.map_or(port_span, |n| &n.span), message, help);
    }
    let mut right = true;
    let mut prefix = |key: &str, default: (IpAddr, u8), problems: &mut Problems| match get(key) {
        None => default,
        Some(node) => read_prefix(node, key, family, default, problems).unwrap_or_else(|| {
            right = false;
            default
        }),
    };
    let (dut, len) = prefix("dut", (dut, len), problems);
    let behind = prefix("behind", behind, problems);
    let dut_span = get("dut").map_or(port_span, |n| &n.span);
    let behind_span = get("behind").map_or(port_span, |n| &n.span);
    let link = Prefix::around(dut, len);
    let host = match get("host") {
        Some(node) => read_address(node, family, host, problems).unwrap_or_else(|| {
            right = false;
            host
        }),
        None if link.contains(host) && host != dut => host,
        None => neighbour(dut, &link),
    };
    if !right {
        return None;
    }
    let host_span = get("host").map_or(dut_span, |n| &n.span);
    let before = problems.len();
    check_link(dut, host, &link, dut_span, host_span, problems);
    let behind_prefix = Prefix::around(behind.0, behind.1);
    for (prefix, span) in [(link, dut_span), (behind_prefix, behind_span)] {
        check_block(&prefix, span, public, problems);
    }
    if to_number(behind.0) != behind_prefix.network {
        let message = format!("`{}/{}` has bits set beyond its length", behind.0, behind.1);
        problems.add(behind_span, message, format!("write the network, `{behind_prefix}`"));
    }
    let destinations = destinations(get("destinations"), &behind_prefix, problems)?;
    (problems.len() == before).then_some(Some(Placed {
        addressing: Addressing { dut, host, prefix_len: len, behind, destinations },
        link_span: dut_span,
        behind_span,
    }))
}

fn read_address(node: &Node, family: Family, example: IpAddr, problems: &mut Problems) -> Option<IpAddr> {
    let text = text(node, "an address", &example.to_string(), problems)?;
    let help = match text.parse::<IpAddr>() {
        Ok(address) if family_of(address) == family => return Some(address),
        Ok(_) => format!("{}; the other family has its own key", such_as(example)),
        Err(_) if text.contains('/') => "write the address without a length; it has the length of `dut`".to_owned(),
        Err(_) => such_as(example),
    };
    problems.refuse(&node.span, format!("{} is not an {family} address", quote(text)), help)
}

fn read_prefix(
    node: &Node,
    key: &str,
    family: Family,
    example: (IpAddr, u8),
    problems: &mut Problems,
) -> Option<(IpAddr, u8)> {
    let example = format!("{}/{}", example.0, example.1);
    let text = text(node, &format!("`{key}`"), &example, problems)?;
    let such = such_as(format!("{key}: {example}"));
    let Some((address, len)) = text.split_once('/') else {
        return problems.refuse(&node.span, format!("{} has no prefix length", quote(text)), such);
    };
    let (what, help) = match (address.parse::<IpAddr>(), len.parse::<u8>()) {
        (Ok(address), _) if family_of(address) != family => {
            (format!("is not {family}"), format!("{}; the other family has its own key", such_as(example)))
        }
        (Ok(address), Ok(len)) if len > 0 && len <= bits(family) => return Some((address, len)),
        (Ok(_), _) => {
            let help = format!("write a length from 1 to {}", bits(family));
            (format!("has no valid prefix length for {family}"), help)
        }
        _ => (format!("is not an {family} prefix"), such),
    };
    problems.refuse(&node.span, format!("{} {what}", quote(text)), help)
}

/// The address above `dut`, or the one below it if the one above is unusable.
fn neighbour(dut: IpAddr, link: &Prefix) -> IpAddr {
    let number = to_number(dut);
    let top = link.last() - u128::from(link.has_reserved_ends() && link.family == Family::Ipv4);
    let number = if number < top { number + 1 } else { number.saturating_sub(1) };
    to_address(link.family, number)
}

fn check_link(
    dut: IpAddr,
    host: IpAddr,
    link: &Prefix,
    dut_span: &Range<usize>,
    host_span: &Range<usize>,
    problems: &mut Problems,
) {
    if link.len == bits(link.family) {
        let help = "the link needs two addresses; write a shorter prefix length";
        problems.add(dut_span, format!("`{link}` holds one address only"), help);
        return;
    }
    if dut == host {
        problems.add(host_span, format!("DUT and host both have {dut}"), "give the host another address of the prefix");
    } else if !link.contains(host) {
        let message = format!("the host {host} is not in the DUT's prefix `{link}`");
        problems.add(host_span, message, format!("write for instance `{}`", neighbour(dut, link)));
    }
    for (address, span) in [(dut, dut_span), (host, host_span)] {
        let number = to_number(address);
        let broadcast = link.family == Family::Ipv4 && number == link.last();
        if link.has_reserved_ends() && link.contains(address) && (number == link.network || broadcast) {
            let what = match (broadcast, link.family) {
                (true, _) => "broadcast address",
                (false, Family::Ipv4) => "network address",
                (false, Family::Ipv6) => "subnet-router anycast address",
            };
            let message = format!("{address} is the {what} of `{link}`");
            problems.add(span, message, "write an address between the first and the last of the prefix");
        }
    }
}

/// RFC 6815: a tester that floods public addresses harms their owners if any route leads out of the laboratory.
pub(crate) fn check_block(prefix: &Prefix, span: &Range<usize>, public: bool, problems: &mut Problems) {
    let block = |(address, len): &(IpAddr, u8)| Prefix::around(*address, *len);
    if let Some(bad) = UNUSABLE.iter().map(block).find(|b| b.overlaps(prefix)) {
        let help = "leave the key out for the default, or write a unicast prefix";
        problems.add(span, format!("`{prefix}` touches `{bad}`, which routers do not forward"), help);
    } else if !public && !HARMLESS.iter().map(block).any(|b| prefix.within(&b)) {
        let help = "use 198.18.0.0/15, 2001:2::/48 or private addresses (RFC 6815); in an isolated laboratory, \
                    `allow_public_addresses: true` permits them";
        problems.add(span, format!("`{prefix}` are public addresses, which belong to somebody"), help);
    }
}

/// Test addresses within `behind`, spread evenly.
fn destinations(node: Option<&Node>, behind: &Prefix, problems: &mut Problems) -> Option<AddressRange> {
    let size = behind.host_mask().saturating_add(1);
    // The first and last address of a prefix stay unused if there is room: some routers treat them as broadcast
    // addresses.
    let (capacity, offset) = if behind.has_reserved_ends() { (size - 2, 1) } else { (size, 0) };
    let capacity = u64::try_from(capacity).unwrap_or(u64::MAX);
    let count = match node {
        None => DEFAULT_DESTINATIONS.min(capacity),
        Some(node) => {
            let count = whole(node, "`destinations`", 1, MAX_DESTINATIONS, problems)?;
            if count > capacity {
                let message = format!("`{behind}` has room for {capacity} destinations, not for {count}");
                return problems.refuse(&node.span, message, "write fewer, or a larger prefix for `behind`");
            }
            count
        }
    };
    // A step of at most 2^63 is exact for every reader of the stored record. For IPv6 that is two destinations in each
    // /64.
    let mut step = (size / u128::from(count)).clamp(1, 1 << 63);
    if step == 2 && behind.has_reserved_ends() && offset + step * u128::from(count - 1) > size - 2 {
        step = 1;
    }
    Some(AddressRange {
        first: to_address(behind.family, behind.network + offset),
        step: step as u64,
        count: u32::try_from(count).unwrap_or(u32::MAX),
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    fn last_of(range: &AddressRange) -> u128 {
        to_number(range.first) + u128::from(range.step) * u128::from(range.count - 1)
    }

    #[test]
    fn defaults_of_all_ports_and_their_sub_interfaces_are_apart_and_inside_the_benchmarking_blocks() {
        for (family, block) in [(Family::Ipv4, HARMLESS[0]), (Family::Ipv6, HARMLESS[7])] {
            let block = Prefix::around(block.0, block.1);
            let mut all = Vec::new();
            for index in 0..MAX_PORTS {
                let vlans = (0..DEFAULT_VLANS).map(|v| Owner::Vlan(index, v));
                for owner in std::iter::once(Owner::Port(index)).chain(vlans.filter(|_| index < VLAN_PORTS)) {
                    let (dut, host, len, behind) = owner.defaults(family).unwrap();
                    let link = Prefix::around(dut, len);
                    assert!(link.contains(host) && host != dut);
                    all.push(link);
                    let behind_prefix = Prefix::around(behind.0, behind.1);
                    assert_eq!(to_number(behind.0), behind_prefix.network, "{behind_prefix}");
                    all.push(behind_prefix);
                }
                assert!(Owner::Vlan(index, DEFAULT_VLANS).defaults(family).is_none());
                assert_eq!(Owner::Vlan(index, 0).defaults(family).is_some(), index < VLAN_PORTS);
            }
            for (i, a) in all.iter().enumerate() {
                assert!(a.within(&block), "{a}");
                assert!(all[i + 1..].iter().all(|b| !a.overlaps(b)), "{a}");
            }
        }
    }

    #[test]
    fn destinations_stay_inside_and_off_the_ends() {
        for len in 8..=32 {
            let behind = Prefix::around("10.0.0.0".parse().unwrap(), len);
            let mut problems = Problems::default();
            let range = destinations(None, &behind, &mut problems).unwrap();
            assert!(last_of(&range) <= behind.last());
            if len <= 30 {
                assert!(to_number(range.first) > behind.network && last_of(&range) < behind.last(), "/{len}");
            }
            let room = match len {
                32 => 1,
                31 => 2,
                _ => behind.host_mask() - 1,
            };
            assert_eq!(u128::from(range.count), room.min(256), "/{len}");
        }
    }
}
