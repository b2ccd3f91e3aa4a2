//! The end of a link to another router of its system, inside a guest: takes it down and up again.
//!
//! The interface itself stays up: the guest's driver closes its packet socket when the interface goes down
//! (`vector_net_close`), and cannot be given another one. The driver has no carrier either, and stops for ever at the
//! first frame that this machine's kernel refuses. So the interface loses what it would lose by going down, its
//! addresses and all routes to it, and the kernel notifies daemons of that as of any other change. The other end does
//! the same, so nothing is sent over the link.

use super::Routing;
use super::tools::{ip, ip_batch, write_sysctl};
use crate::LabError;
use crate::router::{self, Names, dut_interface};
use drophammer_model::role::{Interface, RouterRole};

/// Takes the end at this interface down or up.
///
/// # Errors
/// [`LabError::Unusable`] if the interface leads to no other router; errors of ip(8), and of writing a setting.
pub(super) fn set(role: &RouterRole, routing: Routing, interface: usize, up: bool) -> Result<(), LabError> {
    let edges = role.member.as_ref().map(|member| member.edges);
    let core = edges.is_some_and(|edges| edges <= interface);
    let Some(own) = role.interfaces.get(interface).filter(|_| core) else {
        return Err(LabError::Unusable {
            what: format!("interface {interface} leads to no other router"),
            remedy: "this is a bug in Drophammer".into(),
        });
    };
    if up {
        set_ipv6(own, interface, true)?;
        lines(&[], &router::lines_of_link(role, interface, routing == Routing::Static))?;
        return lines(&MPLS, &labels_back(role, interface));
    }
    lines(&MPLS, &labels_gone(role, interface))?;
    lines(&[], &addresses_gone(own, interface))?;
    set_ipv6(own, interface, false)
}

/// Family of label entries.
const MPLS: [&str; 2] = ["-f", "mpls"];

fn lines(family: &[&str], lines: &[String]) -> Result<(), LabError> {
    match (family, lines) {
        (_, []) => Ok(()),
        ([], lines) => ip(lines),
        (family, lines) => ip_batch(&[family, &["-batch", "-"]].concat(), lines),
    }
}

/// Switches IPv6 on or off at an interface that has it: when off, the interface has neither IPv6 addresses nor routes.
fn set_ipv6(own: &Interface, interface: usize, on: bool) -> Result<(), LabError> {
    if own.addresses.iter().all(|a| a.address.is_ipv4()) {
        return Ok(());
    }
    write_sysctl(&format!("net/ipv6/conf/{}/disable_ipv6", dut_interface(interface)), if on { "0" } else { "1" })
}

/// Lines of ip(8) that remove the IPv4 addresses: with the last one the kernel removes all routes by the interface, in
/// all tables.
fn addresses_gone(own: &Interface, interface: usize) -> Vec<String> {
    let ipv4 = own.addresses.iter().filter(|a| a.address.is_ipv4());
    ipv4.map(|a| format!("address del {}/{} dev {}", a.address, a.prefix_len, dut_interface(interface))).collect()
}

/// The role with only those label entries that lead to this interface.
fn labels_by(role: &RouterRole, interface: usize) -> RouterRole {
    let labels = role.labels.iter().filter(|entry| entry.at.port == interface).cloned().collect();
    RouterRole { labels, ..role.clone() }
}

/// Lines of ip(8) for the family `mpls` that remove the label entries of an interface.
fn labels_gone(role: &RouterRole, interface: usize) -> Vec<String> {
    labels_by(role, interface).labels.iter().map(|entry| format!("route del {}", entry.label)).collect()
}

/// Lines that restore them, whether they exist or not.
fn labels_back(role: &RouterRole, interface: usize) -> Vec<String> {
    let added = router::label_lines(&labels_by(role, interface), Names::Lab);
    added.iter().map(|line| line.replacen("route add", "route replace", 1)).collect()
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::kinds::tests_support::two_ports;
    use drophammer_model::suite::LabelConfig;
    use drophammer_model::topology::{Shape, System, Topology};

    /// The role of the first of three fully meshed routers; each of the others has a label.
    fn role() -> RouterRole {
        let mut ports = two_ports();
        let mut third = ports[1].clone();
        let ipv4 = third.ipv4.as_mut().unwrap();
        (ipv4.dut, ipv4.behind) = ("198.19.2.1".parse().unwrap(), ("198.19.128.0".parse().unwrap(), 18));
        third.ipv6 = None;
        ports.push(third);
        for (port, label) in ports.iter_mut().zip([101, 201, 301]) {
            port.labels = vec![LabelConfig { label, out: vec![label + 1_000] }];
        }
        let topology = Topology { shape: Shape::Mesh, routers: 3, core_speed: None, wan: None };
        System::of(&ports, &topology).unwrap().routers.remove(0).role
    }

    #[test]
    fn an_end_loses_what_leads_to_it_and_has_it_back() {
        let role = role();
        assert_eq!(addresses_gone(&role.interfaces[2], 2), ["address del 100.64.0.5/30 dev d2"]);
        assert_eq!(labels_gone(&role, 2), ["route del 301"]);
        assert_eq!(labels_gone(&role, 1), ["route del 201"]);
        assert_eq!(labels_back(&role, 2), ["route replace 301 as 301 via inet 100.64.0.6 dev d2"]);
        let back = router::lines_of_link(&role, 2, true);
        assert_eq!(back[0], "address replace 100.64.0.5/30 dev d2");
        assert!(back.contains(&"route replace 198.19.64.0/18 via 100.64.0.6 dev d2 metric 1".to_owned()), "{back:?}");
    }

    #[test]
    fn a_port_of_the_tester_is_no_such_end() {
        for (role, interface) in [(role(), 0), (role(), 3), (RouterRole::of(&two_ports()), 1)] {
            let error = set(&role, Routing::Static, interface, false).unwrap_err().to_string();
            assert!(error.contains("leads to no other router"), "{error}");
        }
    }
}
