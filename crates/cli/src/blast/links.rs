//! The hosts of `drophammer blast` and their routers.

use super::router;
use crate::args::BlastArgs;
use crate::on_link;
use drophammer_model::trial::Family;
use drophammer_rig::DeviceConfig;
use std::net::{IpAddr, Ipv4Addr, Ipv6Addr};

/// The host behind an interface.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Link {
    pub address: IpAddr,
    pub prefix_len: u8,
    /// The router, or the host behind the other interface if there is no router.
    pub gateway: IpAddr,
}

impl Link {
    /// Gives `device` its address and the next `sources - 1` addresses.
    pub fn give(&self, device: &mut DeviceConfig, sources: u32) {
        if sources > 1 {
            device.also = vec![(self.nth(1), sources - 1)];
        }
        device.set_address(self.address, self.prefix_len, self.gateway);
    }

    /// The `n`th address after the host's.
    pub fn nth(&self, n: u32) -> IpAddr {
        match self.address {
            IpAddr::V4(address) => Ipv4Addr::from_bits(address.to_bits().wrapping_add(n)).into(),
            IpAddr::V6(address) => Ipv6Addr::from_bits(address.to_bits().wrapping_add(n.into())).into(),
        }
    }

    /// Checks that the link has room for `sources` addresses of the host, and that the gateway is not among them.
    fn has_room(&self, sources: u32) -> Result<(), String> {
        let Link { address, prefix_len, gateway } = *self;
        let last = self.nth(sources - 1);
        if !on_link::holds(address, prefix_len, last) || last < address {
            return Err(format!(
                "{sources} source addresses starting at {address} do not fit into its /{prefix_len}; give --address with a shorter prefix"
            ));
        }
        if (address..=last).contains(&gateway) {
            return Err(format!(
                "{gateway} is the gateway and one of the {sources} source addresses starting at {address}; give --address and --gateway so \
                 that the gateway is below the host"
            ));
        }
        Ok(())
    }
}

/// The hosts on both links, each with `sources` addresses. Errors say what is wrong, and what to write instead.
pub fn of(args: &BlastArgs, sources: u32) -> Result<[Link; 2], String> {
    let found = links(args, sources)?;
    found.iter().try_for_each(|link| link.has_room(sources))?;
    let given = found[0].address.is_ipv6();
    match args.family {
        Some(Family::Ipv4) if given => Err("--family ipv4: --address has IPv6 addresses; leave one of them out".into()),
        Some(Family::Ipv6) if !given => {
            Err("--family ipv6: --address has IPv4 addresses; leave one of them out".into())
        }
        _ => Ok(found),
    }
}

/// Two neighbouring hosts in the blocks for benchmarks (RFC 2544 Appendix C.2.2, RFC 5180 section 8). Many source
/// addresses need a larger network with more space between the hosts.
fn neighbours(ipv6: bool, sources: u32) -> [Link; 2] {
    let v6 = |network, host| IpAddr::from([0x2001, 2, 0, network, 0, 0, 0, host]);
    let (hosts, prefix_len): ([IpAddr; 2], u8) = match (ipv6, sources) {
        (false, 1) => ([[198, 18, 0, 2].into(), [198, 18, 0, 3].into()], 24),
        (false, _) => ([[198, 18, 0, 2].into(), [198, 19, 0, 2].into()], 15),
        (true, 1) => ([v6(0, 2), v6(0, 3)], 64),
        (true, _) => ([v6(0, 2), v6(1, 2)], 48),
    };
    [0, 1].map(|i: usize| Link { address: hosts[i], prefix_len, gateway: hosts[i ^ 1] })
}

/// The host on each link: as given on the command line, or two hosts on the same link.
fn links(args: &BlastArgs, sources: u32) -> Result<[Link; 2], String> {
    let example = "`--address 198.18.1.2/24,198.19.1.2/24 --gateway 198.18.1.1,198.19.1.1`";
    let two = |name: &str, given: &[String]| match given {
        [a, b] => Ok([a.clone(), b.clone()]),
        other => {
            Err(format!("--{name} takes two values, one for each interface, not {}; write {example}", other.len()))
        }
    };
    let ipv6 = args.family == Some(Family::Ipv6);
    if let Some(kind) = &args.dut {
        return router::links(kind, ipv6);
    }
    if args.address.is_empty() && args.gateway.is_empty() {
        return Ok(neighbours(ipv6, sources));
    }
    if args.address.is_empty() {
        return Err(format!("--gateway needs --address; write {example}"));
    }
    let addresses = two("address", &args.address)?;
    let gateways = match args.gateway.as_slice() {
        [] => None,
        given => Some(two("gateway", given)?),
    };
    let mut hosts = Vec::new();
    for text in &addresses {
        let bad = || format!("--address: `{text}` is not an address with its prefix length; write {example}");
        hosts.push(on_link::with_length(text).ok_or_else(bad)?);
    }
    let mut links = Vec::new();
    for (i, (address, prefix_len)) in hosts.iter().copied().enumerate() {
        let gateway = match &gateways {
            None => hosts[i ^ 1].0,
            Some(given) => {
                given[i].parse().map_err(|_| format!("--gateway: `{}` is not an address; write {example}", given[i]))?
            }
        };
        let link = Link { address, prefix_len, gateway };
        [address, gateway].into_iter().try_for_each(on_link::refuse_public)?;
        if link.address == link.gateway {
            return Err(format!("{address} cannot be both the host and its gateway"));
        }
        if !on_link::holds(address, prefix_len, gateway) {
            let help = if gateways.is_none() { "; give --gateway if routers are between the interfaces" } else { "" };
            return Err(format!("{gateway} is not on the link of {address}/{prefix_len}{help}"));
        }
        links.push(link);
    }
    match links.as_slice() {
        [a, b] if a.address.is_ipv4() == b.address.is_ipv4() => Ok([*a, *b]),
        _ => Err("one address is IPv4 and the other IPv6; write two of one kind".into()),
    }
}
