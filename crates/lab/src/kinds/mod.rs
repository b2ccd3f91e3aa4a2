//! The kinds of DUT, one file each.

pub mod bird;
pub mod external;
pub mod frr;
pub mod linux;
pub mod openbgpd;

use crate::bgp::Speaker;
use crate::router::Route;
use crate::{DutKind, LabError, process};
use minijinja::syntax::SyntaxConfig;
use minijinja::{Environment, UndefinedBehavior, Value, context};

/// All kinds that the lab can bring up, in the order in which `drophammer list duts` shows them.
pub static KINDS: &[&dyn DutKind] = &[&linux::Linux, &frr::Frr, &bird::Bird, &openbgpd::OpenBgpd, &external::External];

/// The kind of this name.
pub fn find(name: &str) -> Option<&'static dyn DutKind> {
    KINDS.iter().copied().find(|k| k.spec().name == name)
}

/// What the kind `name` needs and this machine lacks; nothing for a kind that the lab does not know.
pub fn missing(name: &str) -> Vec<LabError> {
    let needs = find(name).map(|k| k.spec().needs).unwrap_or_default();
    needs.iter().filter_map(|(program, package)| process::find(program, package).err()).collect()
}

/// Renders a router's configuration from its template, which sees `name`, `routes`, and `bgp` ([`Speaker::context`]; none
/// where the ports have no BGP).
fn render(template: &str, name: &str, routes: &[Route], bgp: Option<&Speaker>) -> Result<String, LabError> {
    let failed = |e: minijinja::Error| LabError::Io {
        what: "cannot render a configuration template".into(),
        source: std::io::Error::other(e.to_string()),
    };
    let mut environment = Environment::new();
    environment.set_undefined_behavior(UndefinedBehavior::Strict);
    // Lines that hold nothing but a block leave no empty line behind.
    let syntax = SyntaxConfig::builder().trim_blocks(true).lstrip_blocks(true).keep_trailing_newline(true).build();
    environment.set_syntax(syntax.map_err(failed)?);
    let route = |r: &Route| context! { family => r.family, prefix => &r.prefix, via => r.via.to_string(), interface => &r.interface };
    let routes: Vec<Value> = routes.iter().map(route).collect();
    let bgp = bgp.map(Speaker::context);
    environment.render_str(template, context! { name, routes, bgp }).map_err(failed)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn names_are_unique_and_found() {
        for kind in KINDS {
            let name = kind.spec().name;
            assert_eq!(find(name).map(|k| k.spec().name), Some(name));
            assert_eq!(KINDS.iter().filter(|k| k.spec().name == name).count(), 1);
            assert!(!kind.spec().simulated && !kind.spec().summary.is_empty());
        }
        assert!(find("reference").is_none());
    }

    #[test]
    fn an_unknown_variable_is_an_error() {
        assert!(render("{{ nme }}", "a", &[], None).is_err());
    }
}

/// What the tests of the kinds share.
#[cfg(test)]
pub(crate) mod tests_support {
    use drophammer_model::quantity::Bandwidth;
    use drophammer_model::suite::{Addressing, PortBgp, PortConfig};
    use drophammer_model::trial::{AddressRange, Family};
    use std::time::Duration;

    /// The same with `peers` BGP peers on each port in each family.
    pub(crate) fn two_ports_with_bgp(peers: u32) -> Vec<PortConfig> {
        let mut ports = two_ports();
        for (port, asn) in ports.iter_mut().zip(65001..) {
            let families = vec![Family::Ipv4, Family::Ipv6];
            let hold = Duration::from_secs(90);
            port.bgp = Some(PortBgp { asn, dut_as: 65000, peers, hold, families, next_hop_self: false });
        }
        ports
    }

    /// The same with internal peers on the first port.
    pub(crate) fn one_internal_port(next_hop_self: bool) -> Vec<PortConfig> {
        let mut ports = two_ports_with_bgp(2);
        let bgp = ports.iter_mut().filter_map(|port| port.bgp.as_mut());
        bgp.zip([65000, 65002]).for_each(|(bgp, asn)| (bgp.asn, bgp.next_hop_self) = (asn, next_hop_self));
        ports
    }

    /// Two ports with both families.
    pub(crate) fn two_ports() -> Vec<PortConfig> {
        let addressing = |dut: &str, host: &str, prefix_len: u8, behind: &str, length: u8| Addressing {
            dut: dut.parse().unwrap(),
            host: host.parse().unwrap(),
            prefix_len,
            behind: (behind.parse().unwrap(), length),
            destinations: AddressRange { first: behind.parse().unwrap(), step: 1, count: 16 },
        };
        let port = |name: &str, ipv4: Addressing, ipv6: Addressing| PortConfig {
            name: name.into(),
            speed: Bandwidth(1_000_000_000),
            mtu: 1500,
            ipv4: Some(ipv4),
            ipv6: Some(ipv6),
            bgp: None,
        };
        vec![
            port(
                "p1",
                addressing("198.18.1.1", "198.18.1.2", 24, "198.18.64.0", 18),
                addressing("2001:2::1", "2001:2::2", 64, "2001:2:0:8000::", 50),
            ),
            port(
                "p2",
                addressing("198.19.1.1", "198.19.1.2", 24, "198.19.64.0", 18),
                addressing("2001:2:0:1::1", "2001:2:0:1::2", 64, "2001:2:0:c000::", 50),
            ),
        ]
    }
}
