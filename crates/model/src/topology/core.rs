//! Links between the routers of a system, and the addresses reserved for them.

use super::{MOST_ROUTERS, Topology, Unsuited, cycle};
use crate::label_edge::DUT_LOOPBACK;
use crate::quantity::Bandwidth;
use crate::role::InterfaceAddress;
use crate::suite::{Addressing, PortConfig};
use crate::trial::Family;
use serde::{Deserialize, Serialize};
use std::fmt;
use std::net::{IpAddr, Ipv4Addr, Ipv6Addr};
use std::ops::Range;
use std::str::FromStr;
use std::time::Duration;

/// Address blocks for links between routers and for loopback addresses: shared address space (RFC 6598), and a prefix
/// of unique local addresses (RFC 4193). A suite with a system must not use them.
pub const CORE_BLOCKS: [(IpAddr, u8); 2] = [
    (IpAddr::V4(Ipv4Addr::new(100, 64, 0, 0)), 10),
    (IpAddr::V6(Ipv6Addr::new(0xfd3c, 0x91a7, 0x5e2d, 0, 0, 0, 0, 0)), 48),
];

/// Fourth group of IPv6 loopback addresses; links are numbered from 1.
const LOOPBACKS: u16 = 0xffff;

/// Name of a link between two routers: their numbers, `1-2`. Two links between the same routers share one name.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
pub struct CoreLinkName(pub usize, pub usize);

impl fmt::Display for CoreLinkName {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}-{}", self.0, self.1)
    }
}

/// Parses `1-2` or `2-1`; both name the same link.
impl FromStr for CoreLinkName {
    type Err = String;

    fn from_str(text: &str) -> Result<CoreLinkName, String> {
        let number = |part: &str| part.parse::<usize>().ok().filter(|n| (1..=MOST_ROUTERS).contains(n));
        let ends = text.split_once('-').and_then(|(a, b)| number(a).zip(number(b))).filter(|(a, b)| a != b);
        let (a, b) =
            ends.ok_or_else(|| format!("`{text}` is not a link between two routers; write for instance `1-2`"))?;
        Ok(CoreLinkName(a.min(b), a.max(b)))
    }
}

/// Links between routers that a test takes down.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum CoreLinksDown {
    /// This many links, chosen by [`System::choose_down`](super::System::choose_down).
    Count(usize),
    /// These links, each once.
    Named(Vec<CoreLinkName>),
}

/// An end of a link between two routers.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct CoreEnd {
    /// Index of the router.
    pub router: usize,
    /// Index of its interface in its role.
    pub interface: usize,
}

/// A link between two routers.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct CoreLink {
    /// Name.
    pub name: CoreLinkName,
    /// Its ends, first the end at the router with the lower number.
    pub ends: [CoreEnd; 2],
    /// Speed in each direction; absent for no limit.
    pub speed: Option<Bandwidth>,
    /// Delay in each direction.
    pub delay: Duration,
    /// Share of the frames that it loses in each direction.
    pub loss: LinkLoss,
}

/// Share of frames that a link loses, in millionths.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize)]
pub struct LinkLoss(pub u32);

impl LinkLoss {
    /// The value for all frames.
    pub const WHOLE: u32 = 1_000_000;

    /// True if it loses nothing.
    pub fn is_none(self) -> bool {
        self.0 == 0
    }

    /// The share in per cent.
    pub fn percent(self) -> f64 {
        f64::from(self.0) / f64::from(LinkLoss::WHOLE / 100)
    }
}

/// Display form: `0.1 %`.
impl fmt::Display for LinkLoss {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{} %", self.percent())
    }
}

/// Parses `0.1 %`: from 0 to 100 %, with a resolution of one millionth.
impl FromStr for LinkLoss {
    type Err = String;

    fn from_str(text: &str) -> Result<LinkLoss, String> {
        let percent = text.strip_suffix('%').and_then(|number| number.trim_end().parse::<f64>().ok());
        let millionths = percent.filter(|percent| (0.0..=100.0).contains(percent)).map(|percent| percent * 1e4);
        match millionths {
            Some(exact) if (exact - exact.round()).abs() < 1e-6 => Ok(LinkLoss(exact.round() as u32)),
            Some(_) => Err(format!("`{text}` is finer than a millionth of the frames; write for instance `0.0001 %`")),
            None => Err(format!("`{text}` is not a share of frames; write for instance `0.1 %`")),
        }
    }
}

impl CoreLink {
    /// The end at a router, if the link leads there.
    pub fn end_at(&self, router: usize) -> Option<CoreEnd> {
        self.ends.into_iter().find(|end| end.router == router)
    }

    /// The router at the other end, seen from `router`; `None` if the link does not lead to `router`.
    pub fn beyond(&self, router: usize) -> Option<usize> {
        let [a, b] = self.ends.map(|end| end.router);
        if router == a { Some(b) } else { (router == b).then_some(a) }
    }
}

/// The links of a system whose routers have the ports in `dealt`.
pub(super) fn links(topology: &Topology, dealt: &[Range<usize>]) -> Vec<CoreLink> {
    let mut next: Vec<usize> = dealt.iter().map(ExactSizeIterator::len).collect();
    let mut end = |router: usize| {
        let interface = next[router];
        next[router] += 1;
        CoreEnd { router, interface }
    };
    let link = |(a, b)| {
        let wan = topology.wan.filter(|_| (a, b) == cycle::WAN).unwrap_or_default();
        CoreLink {
            name: CoreLinkName(a + 1, b + 1),
            ends: [end(a), end(b)],
            speed: wan.speed.or(topology.core_speed),
            delay: wan.delay.unwrap_or_default(),
            loss: wan.loss.unwrap_or_default(),
        }
    };
    topology.joined().into_iter().map(link).collect()
}

/// Address of a router on link number `link`: at its first end (0) or second end (1).
pub(super) fn address(family: Family, link: usize, end: usize) -> InterfaceAddress {
    let host = end as u32 + 1;
    match family {
        Family::Ipv4 => {
            let address = Ipv4Addr::from(0x6440_0000 + 4 * link as u32 + host);
            InterfaceAddress { address: address.into(), prefix_len: 30 }
        }
        Family::Ipv6 => InterfaceAddress { address: ipv6(link as u16 + 1, host as u16), prefix_len: 64 },
    }
}

/// Loopback address of a router by its index.
pub(super) fn loopback(family: Family, router: usize) -> IpAddr {
    match family {
        Family::Ipv4 => router_id(router).into(),
        Family::Ipv6 => ipv6(LOOPBACKS, router as u16 + 1),
    }
}

/// BGP identifier of a router by its index: its IPv4 loopback address, even if it does not use IPv4. The first router has that of
/// a DUT of one router.
pub(super) fn router_id(router: usize) -> Ipv4Addr {
    Ipv4Addr::from_bits(DUT_LOOPBACK.to_bits() + router as u32)
}

fn ipv6(subnet: u16, host: u16) -> IpAddr {
    Ipv6Addr::new(0xfd3c, 0x91a7, 0x5e2d, subnet, 0, 0, 0, host).into()
}

/// Network address of the prefix of `length` that contains `address`.
pub(super) fn network(address: IpAddr, length: u8) -> IpAddr {
    match address {
        IpAddr::V4(a) => {
            let mask = u32::MAX.checked_shl(32 - u32::from(length)).unwrap_or(0);
            Ipv4Addr::from(u32::from(a) & mask).into()
        }
        IpAddr::V6(a) => {
            let mask = u128::MAX.checked_shl(128 - u32::from(length)).unwrap_or(0);
            Ipv6Addr::from(u128::from(a) & mask).into()
        }
    }
}

/// Refuses ports with a prefix inside one of [`CORE_BLOCKS`]. A prefix that contains a whole block is harmless, because
/// the prefixes in the block are more specific.
pub(super) fn refuse_addresses(ports: &[PortConfig]) -> Result<(), Unsuited> {
    for port in ports {
        let own = [port.ipv4.as_ref(), port.ipv6.as_ref()];
        let vlans = port.vlans.iter().flat_map(|vlan| [vlan.ipv4.as_ref(), vlan.ipv6.as_ref()]);
        for addressing in own.into_iter().chain(vlans).flatten() {
            let Addressing { dut, prefix_len, behind, .. } = *addressing;
            for (address, length) in [(dut, prefix_len), behind] {
                let inside = |(block, len): &&(IpAddr, u8)| {
                    block.is_ipv4() == address.is_ipv4() && length >= *len && network(address, *len) == *block
                };
                if let Some((block, len)) = CORE_BLOCKS.iter().find(inside) {
                    return Err(Unsuited {
                        what: format!(
                            "`{}` has {}/{length}, which is in {block}/{len}: the routers of a system have their own links there",
                            port.name,
                            network(address, length)
                        ),
                        remedy: "write other addresses for this port, or leave the defaults".into(),
                    });
                }
            }
        }
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::topology::{Shape, Wan};

    #[test]
    fn a_loss_is_a_share_to_the_millionth() {
        let good = [("0.1 %", 1_000), ("0.0001 %", 1), ("12.5%", 125_000), ("0 %", 0), ("100 %", 1_000_000)];
        for (text, millionths) in good {
            let loss: LinkLoss = text.parse().unwrap();
            assert_eq!(loss, LinkLoss(millionths), "{text}");
            assert_eq!(loss.to_string().parse(), Ok(loss));
        }
        let no = "not a share";
        for (text, why) in [("0.1", no), ("-1 %", no), ("101 %", no), ("NaN %", no), ("0.00005 %", "finer")] {
            assert!(text.parse::<LinkLoss>().unwrap_err().contains(why), "{text}");
        }
    }

    #[test]
    fn a_loss_is_that_of_the_link_in_the_middle() {
        let wan = Some(Wan { loss: Some(LinkLoss(1_000)), ..Wan::default() });
        let lossy = Topology { shape: Shape::Loop, routers: 4, core_speed: None, wan };
        assert_eq!(lossy.to_string(), "4 routers, in a loop, the link in the middle with a loss of 0.1 %");
        let losses = links(&lossy, &[0..1, 1..1, 1..1, 1..2]).into_iter().map(|link| link.loss.0);
        assert_eq!(losses.collect::<Vec<_>>(), [0, 0, 1_000, 0, 0]);
    }
}
