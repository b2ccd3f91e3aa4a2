//! Takes a link to another router down and up again, at its end inside a guest.
//!
//! The interface itself stays up: the guest's driver closes its packet socket when the interface goes down
//! (`vector_net_close`), and cannot get another one. The driver has no carrier either, and it stops permanently at the
//! first frame that this machine's kernel refuses. So we remove what the interface would lose by going down, its
//! addresses and all routes to it, and the kernel notifies daemons as usual. The other end does the same, so nothing is
//! sent over the link.

use super::Routing;
use super::guest::{ip, ip_batch, write_sysctl};
use crate::LabError;
use crate::router::{self, Names, dut_interface};
use drophammer_model::role::{Interface, RouterRole};

/// Takes the end at this interface, which must lead to another router, down or up.
pub(super) fn set(role: &RouterRole, routing: Routing, interface: usize, up: bool) -> Result<(), LabError> {
    let edges = role.member.as_ref().map(|member| member.edges);
    let core = edges.is_some_and(|edges| edges <= interface);
    let Some(own) = role.interfaces.get(interface).filter(|_| core) else {
        return Err(LabError::unusable(
            format!("interface {interface} does not lead to another router"),
            "this is a bug in Drophammer",
        ));
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

/// Switches IPv6 on or off at an interface that has it. When off, the interface has neither IPv6 addresses nor routes.
fn set_ipv6(own: &Interface, interface: usize, on: bool) -> Result<(), LabError> {
    if own.addresses.iter().all(|a| a.address.is_ipv4()) {
        return Ok(());
    }
    write_sysctl(&format!("net/ipv6/conf/{}/disable_ipv6", dut_interface(interface)), if on { "0" } else { "1" })
}

/// Lines of ip(8) that remove the IPv4 addresses. When the last one is removed, the kernel removes all routes through
/// the interface, in all tables.
fn addresses_gone(own: &Interface, interface: usize) -> Vec<String> {
    let ipv4 = own.addresses.iter().filter(|a| a.address.is_ipv4());
    ipv4.map(|a| format!("address del {}/{} dev {}", a.address, a.prefix_len, dut_interface(interface))).collect()
}

/// The role with only the label entries that lead to this interface.
fn labels_by(role: &RouterRole, interface: usize) -> RouterRole {
    let labels = role.labels.iter().filter(|entry| entry.at.port == interface).cloned().collect();
    RouterRole { labels, ..role.clone() }
}

/// Lines of ip(8) for the family `mpls` that remove the label entries of an interface.
fn labels_gone(role: &RouterRole, interface: usize) -> Vec<String> {
    labels_by(role, interface).labels.iter().map(|entry| format!("route del {}", entry.label)).collect()
}

/// Lines of ip(8) that restore these entries, whether they exist or not.
fn labels_back(role: &RouterRole, interface: usize) -> Vec<String> {
    let added = router::label_lines(&labels_by(role, interface), Names::Lab);
    added.iter().map(|line| line.replacen("route add", "route replace", 1)).collect()
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::kinds::tests_support::{first_of_mesh, three_ports, two_ports};
    use drophammer_model::suite::LabelConfig;

    /// The role of the first of three fully meshed routers; each of the others has a label.
    fn role() -> RouterRole {
        let mut ports = three_ports(two_ports());
        for (port, label) in ports.iter_mut().zip([101, 201, 301]) {
            port.labels = vec![LabelConfig { label, out: vec![label + 1_000] }];
        }
        first_of_mesh(&ports)
    }

    #[test]
    fn an_end_loses_addresses_and_routes_and_gets_them_back() {
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
            assert!(error.contains("does not lead to another router"), "{error}");
        }
    }
}
