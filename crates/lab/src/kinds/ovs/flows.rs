//! The role of a router as OpenFlow 1.3 flows of Open vSwitch, with its extensions (ovs-fields(7), ovs-actions(7)).
//!
//! Each port has two sides in the bridge: the link `dN`, and the internal port `iN`, behind which the kernel of the
//! namespace has the router's addresses. The switch forwards what it can. Everything else goes to the kernel: ARP,
//! Neighbor Discovery, packets to the router, packets whose TTL ends here, and packets to a neighbour that is not known
//! yet. A packet passes four tables:
//!
//! - 0: separates packets by the side on which they arrive. On their way to the kernel, ARP and Neighbor Discovery
//!   teach table 2 the MAC addresses of neighbours.
//! - 1: the routes; the priority is the prefix length. Registers get the next hop and the output port.
//! - 2: the learned neighbours. Each sets the destination of the frame.
//! - 3: if a frame still has the router's own address, its neighbour is not known, and it goes to the kernel. All other
//!   frames leave.
//!
//! Packets with labels follow the static entries of the role in table 1. They keep their labels on the way, so their
//! neighbours are in separate tables: 4 and 5 have the neighbours of IPv4 and IPv6 for packets of any kind. The kernel
//! has no label entries and drops labelled packets.

use drophammer_model::role::{InterfaceAddress, LabelRoute, Place, PushedRoute, RouterRole};
use std::fmt::Write as _;
use std::net::IpAddr;

/// Register with the output port of a packet. The next hop is in registers 0 to 3.
const OUT: &str = "NXM_NX_REG4[0..15]";
/// Register with the internal port of the port on which a packet arrived.
const KERNEL: &str = "NXM_NX_REG5[0..15]";
/// Register with the TTL of a label that is removed.
const TTL: &str = "NXM_NX_REG6[0..7]";
/// The table of the routes.
pub(super) const ROUTES: usize = 1;
/// The tables of the neighbours of IPv4 and of IPv6 for packets with labels.
const LABELLED: [usize; 2] = [4, 5];
/// Difference between the numbers of an internal port and of its link.
const INTERNAL: usize = 1000;
/// Higher than the priority of any route.
const BEFORE_ROUTES: usize = 1000;

/// Number of the link of port `i` in the bridge.
pub(super) fn link_number(i: usize) -> usize {
    i + 1
}

/// Number of the internal port of port `i`.
pub(super) fn kernel_number(i: usize) -> usize {
    link_number(i) + INTERNAL
}

/// Name of the internal port of port `i`.
pub(super) fn kernel_interface(i: usize) -> String {
    format!("i{i}")
}

/// MAC address of the router at port `i`, locally administered, since the flows need it before the interface exists. The
/// routers of a system have different addresses, because they are neighbours.
pub(super) fn mac(role: &RouterRole, i: usize) -> String {
    let router = role.member.as_ref().map_or(0x73, |member| member.number);
    format!("02:6f:76:{router:02x}:{:02x}:{:02x}", i >> 8, i & 0xff)
}

/// The flows of a role, one per line. `pipe`: labels have their own TTL (RFC 3443).
pub(super) fn render(role: &RouterRole, pipe: bool) -> String {
    let mut text = String::new();
    for i in 0..role.interfaces.len() {
        sides(&mut text, role, i);
        leave(&mut text, role, i);
    }
    own(&mut text, role);
    for (i, interface) in role.interfaces.iter().enumerate() {
        interface.addresses.iter().for_each(|a| on_link(&mut text, i, a));
    }
    // Only the best routes: the switch would not notice when to use the next best one.
    for route in role.routes.iter().filter(|route| route.rank == 0) {
        let (key, register) = words(route.via);
        let (address, length) = route.prefix;
        let to = format!("set_field:{}->{register}", number(route.via));
        let (matches, actions) = (format!("{key}={address}/{length}"), format!("{to},{}", way_out(route.at)));
        flow(&mut text, ROUTES, usize::from(length) + 1, &matches, &actions);
    }
    role.labels.iter().for_each(|entry| exchange(&mut text, role, entry, pipe));
    role.pushed.iter().for_each(|route| push(&mut text, route, pipe));
    // Packets without a route, and packets that are not IP.
    flow(&mut text, ROUTES, 0, "", &format!("output:{KERNEL}"));
    text
}

fn flow(text: &mut String, table: usize, priority: usize, matches: &str, actions: &str) {
    let comma = if matches.is_empty() { "" } else { "," };
    let _ = writeln!(text, "table={table},priority={priority}{comma}{matches},actions={actions}");
}

/// The match field for destinations of the family, and the register of its next hops.
fn words(address: IpAddr) -> (&'static str, &'static str) {
    if address.is_ipv4() { ("ip,nw_dst", "reg0") } else { ("ipv6,ipv6_dst", "xxreg0") }
}

/// An address in the notation for registers.
fn number(address: IpAddr) -> String {
    match address {
        IpAddr::V4(address) => format!("{:#x}", u32::from(address)),
        IpAddr::V6(address) => format!("{:#x}", u128::from(address)),
    }
}

fn way_out(at: Place) -> String {
    format!("load:{}->{OUT},resubmit(,2),resubmit(,3)", link_number(at.port))
}

/// Packets from the two sides of a port. If the role has labels, neighbours are learned for labelled packets too.
fn sides(text: &mut String, role: &RouterRole, i: usize) {
    let (link, kernel, mac, labels) = (link_number(i), kernel_number(i), mac(role, i), has_labels(role));
    flow(text, 0, 1, &format!("in_port={kernel}"), &format!("output:{link}"));
    // The sender of a message is a neighbour, on the link where the message arrived.
    let learn = |ether_type: &str, labelled: usize, next_hop: &str, address: &str| {
        let table = |table: usize, ether_type: &str| {
            format!(
                "learn(table={table},priority=1,{ether_type}{next_hop},{OUT}=NXM_OF_IN_PORT[],load:{address}->NXM_OF_ETH_DST[]),"
            )
        };
        let of_labels = if labels { table(labelled, "") } else { String::new() };
        format!("{}{of_labels}output:{kernel}", table(2, ether_type))
    };
    let v4 = learn("eth_type=0x800,", LABELLED[0], "NXM_NX_REG0[]=NXM_OF_ARP_SPA[]", "NXM_NX_ARP_SHA[]");
    flow(text, 0, 3, &format!("in_port={link},arp"), &v4);
    for (kind, who, option, field) in [
        (135, "NXM_NX_IPV6_SRC[]", "nd_sll", "NXM_NX_ND_SLL[]"),
        (136, "NXM_NX_ND_TARGET[]", "nd_tll", "NXM_NX_ND_TLL[]"),
    ] {
        // RFC 4861 section 7.1: senders on the link use hop limit 255. Section 4: the option with the address may be
        // missing; then the field is zero.
        let message = format!("in_port={link},icmp6,nw_ttl=255,icmp_type={kind},icmp_code=0");
        flow(text, 0, 5, &format!("{message},{option}=00:00:00:00:00:00"), &format!("output:{kernel}"));
        flow(text, 0, 4, &message, &learn("eth_type=0x86dd,", LABELLED[1], &format!("NXM_NX_XXREG0[]={who}"), field));
    }
    flow(text, 0, 2, &format!("in_port={link},dl_dst={mac}"), &format!("load:{kernel}->{KERNEL},resubmit(,1)"));
    // Broadcast and multicast. Frames to other stations match nothing and are dropped.
    let group = "01:00:00:00:00:00/01:00:00:00:00:00";
    flow(text, 0, 2, &format!("in_port={link},dl_dst={group}"), &format!("output:{kernel}"));
}

/// Packets that leave through a port, or go to the kernel because they still have the MAC address that they arrived
/// with.
fn leave(text: &mut String, role: &RouterRole, i: usize) {
    let (link, mac, labels) = (link_number(i), mac(role, i), has_labels(role));
    flow(text, 3, 3, &format!("dl_dst={mac}"), &format!("output:{KERNEL}"));
    // The flow that swaps a label also decrements its TTL.
    let kinds = [("ip", "dec_ttl,"), ("ipv6", "dec_ttl,"), ("mpls", "")];
    for (family, count_down) in &kinds[..if labels { 3 } else { 2 }] {
        let actions = |port: &str| format!("set_field:{mac}->eth_src,{count_down}output:{port}");
        // OpenFlow sends a packet back out of its input port only with `in_port`.
        flow(text, 3, 2, &format!("{family},reg4={link},in_port={link}"), &actions("in_port"));
        flow(text, 3, 1, &format!("{family},reg4={link}"), &actions(&link.to_string()));
    }
}

/// Packets with the label of the entry outermost. New labels take TTL and traffic class from the previous one. When the
/// last label is removed, the packet takes the label's TTL (uniform model, RFC 3443), or keeps its own (`pipe`). The
/// switch drops packets whose TTL ends.
fn exchange(text: &mut String, role: &RouterRole, entry: &LabelRoute, pipe: bool) {
    let (_, register) = words(entry.via);
    let labelled = LABELLED[usize::from(entry.via.is_ipv6())];
    let next_hop = format!("set_field:{}->{register},load:{}->{OUT}", number(entry.via), link_number(entry.at.port));
    let mut add = |kind: &str, bottom: &str, what: &str, neighbours: usize| {
        let matches = format!("{kind},mpls_label={}{bottom}", entry.label);
        let actions = format!("{what},{next_hop},resubmit(,{neighbours}),resubmit(,3)");
        flow(text, 1, BEFORE_ROUTES, &matches, &actions);
    };
    match entry.out.split_last() {
        Some((innermost, others)) => {
            let push = |label: &u32| format!(",push_mpls:0x8847,set_field:{label}->mpls_label");
            let pushed: String = others.iter().rev().map(push).collect();
            // A datapath flow rewrites the whole label entry, including the bottom-of-stack bit, so each value needs a flow.
            for bottom in [",mpls_bos=0", ",mpls_bos=1"] {
                add("mpls", bottom, &format!("dec_mpls_ttl,set_field:{innermost}->mpls_label{pushed}"), labelled);
            }
        }
        None if pipe => {
            add("mpls", ",mpls_bos=0", "dec_mpls_ttl,pop_mpls:0x8847", labelled);
            add("mpls", ",mpls_bos=1", &format!("dec_mpls_ttl,pop_mpls:{}", ether_type(role)), 2);
        }
        None => {
            let keep = format!("dec_mpls_ttl,move:NXM_NX_MPLS_TTL[]->{TTL}");
            add("mpls", ",mpls_bos=0", &format!("{keep},pop_mpls:0x8847,move:{TTL}->NXM_NX_MPLS_TTL[]"), labelled);
            // Table 3 decrements the TTL of the packet.
            let keep = format!("move:NXM_NX_MPLS_TTL[]->{TTL}");
            let what = format!("{keep},pop_mpls:{},move:{TTL}->NXM_NX_IP_TTL[]", ether_type(role));
            add("mpls", ",mpls_bos=1", &what, 2);
        }
    }
}

/// EtherType of the packet behind the last label.
fn ether_type(role: &RouterRole) -> &'static str {
    if of_one_family(role) == Some(false) { "0x86dd" } else { "0x0800" }
}

/// Pushes labels on packets to a network, each with the packet's decremented TTL, or with its own (`pipe`).
fn push(text: &mut String, route: &PushedRoute, pipe: bool) {
    let (key, register) = words(route.via);
    let (address, length) = route.prefix;
    let own = if pipe { ",set_mpls_ttl:255" } else { "" };
    let labels: String =
        route.out.iter().rev().map(|label| format!(",push_mpls:0x8847,set_field:{label}->mpls_label{own}")).collect();
    let next_hop = format!("set_field:{}->{register},load:{}->{OUT}", number(route.via), link_number(route.at.port));
    let neighbours = LABELLED[usize::from(route.via.is_ipv6())];
    let actions = format!("dec_ttl{labels},{next_hop},resubmit(,{neighbours}),resubmit(,3)");
    flow(text, ROUTES, usize::from(length) + 1, &format!("{key}={address}/{length}"), &actions);
}

/// True if the role uses labels.
fn has_labels(role: &RouterRole) -> bool {
    !role.labels.is_empty() || !role.pushed.is_empty()
}

/// True if all addresses of the role are IPv4, false if all are IPv6; `None` if both occur: a label does not say which
/// one follows.
pub(super) fn of_one_family(role: &RouterRole) -> Option<bool> {
    let mut addresses = role.interfaces.iter().flat_map(|i| &i.addresses).map(|a| a.address.is_ipv4());
    let first = addresses.next()?;
    addresses.all(|ipv4| ipv4 == first).then_some(first)
}

/// Packets to the router itself, and packets that only its kernel can answer.
fn own(text: &mut String, role: &RouterRole) {
    let to_kernel = format!("output:{KERNEL}");
    let mut kernel = |matches: &str| flow(text, 1, BEFORE_ROUTES, matches, &to_kernel);
    for address in role.interfaces.iter().flat_map(|i| &i.addresses) {
        kernel(&format!("{}={}", words(address.address).0, address.address));
    }
    for family in ["ip", "ipv6"] {
        // RFC 1812 section 5.3.1, RFC 8200 section 3: the packet ends here, and the kernel informs its sender.
        (0..=1).for_each(|ttl| kernel(&format!("{family},nw_ttl={ttl}")));
    }
    ["ip,nw_dst=224.0.0.0/4", "ip,nw_dst=255.255.255.255", "ipv6,ipv6_dst=ff00::/8", "ipv6,ipv6_dst=fe80::/10"]
        .iter()
        .for_each(|matches| kernel(matches));
}

/// Destinations on a link are their own next hops.
fn on_link(text: &mut String, i: usize, on: &InterfaceAddress) {
    let (key, _) = words(on.address);
    let (from, to) = match on.address {
        IpAddr::V4(_) => ("NXM_OF_IP_DST[]", "NXM_NX_REG0[]"),
        IpAddr::V6(_) => ("NXM_NX_IPV6_DST[]", "NXM_NX_XXREG0[]"),
    };
    let at = Place { port: i, vlan: None };
    let matches = format!("{key}={}/{}", on.address, on.prefix_len);
    flow(text, 1, usize::from(on.prefix_len) + 1, &matches, &format!("move:{from}->{to},{}", way_out(at)));
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::kinds::tests_support::two_ports;

    fn flows() -> Vec<String> {
        render(&RouterRole::of(&two_ports()), false).lines().map(str::to_owned).collect()
    }

    #[test]
    fn every_route_and_link_is_a_flow() {
        let flows = flows();
        for wanted in [
            "table=1,priority=19,ip,nw_dst=198.18.64.0/18,actions=set_field:0xc6120102->reg0,load:1->NXM_NX_REG4[0..15],resubmit(,2),resubmit(,3)",
            "table=1,priority=51,ipv6,ipv6_dst=2001:2:0:c000::/50,actions=set_field:0x20010002000000010000000000000002->xxreg0,\
             load:2->NXM_NX_REG4[0..15],resubmit(,2),resubmit(,3)",
            "table=1,priority=25,ip,nw_dst=198.19.1.1/24,actions=move:NXM_OF_IP_DST[]->NXM_NX_REG0[],load:2->NXM_NX_REG4[0..15],\
             resubmit(,2),resubmit(,3)",
            "table=1,priority=1000,ip,nw_dst=198.18.1.1,actions=output:NXM_NX_REG5[0..15]",
            "table=1,priority=1000,ipv6,nw_ttl=1,actions=output:NXM_NX_REG5[0..15]",
            "table=3,priority=1,ipv6,reg4=2,actions=set_field:02:6f:76:73:00:01->eth_src,dec_ttl,output:2",
            "table=0,priority=1,in_port=1002,actions=output:2",
        ] {
            assert!(flows.iter().any(|flow| flow == wanted), "{wanted}\n{}", flows.join("\n"));
        }
        let routes = flows.iter().filter(|flow| flow.contains("set_field:0x")).count();
        assert_eq!(routes, 4, "two routes in two families");
    }

    #[test]
    fn longer_prefixes_come_first_and_the_routers_own_addresses_before_all() {
        let priority = |flow: &String| -> usize {
            let rest = flow.split("priority=").nth(1).unwrap();
            rest.split(',').next().unwrap().parse().unwrap()
        };
        for flow in flows().iter().filter(|flow| flow.starts_with("table=1,") && flow.contains("resubmit(,2)")) {
            let length: usize = flow.split('/').nth(1).unwrap().split(',').next().unwrap().parse().unwrap();
            assert_eq!(priority(flow), length + 1, "{flow}");
            assert!(priority(flow) < BEFORE_ROUTES);
        }
    }

    #[test]
    fn labelled_packets_have_separate_neighbours() {
        let mut role = RouterRole::of(&two_ports());
        let at = Place { port: 1, vlan: None };
        let entry = |label, out: &[u32]| LabelRoute { label, out: out.into(), via: "198.19.1.2".parse().unwrap(), at };
        role.labels = vec![entry(100, &[200]), entry(101, &[201, 202, 203]), entry(102, &[])];
        let flows: Vec<String> = render(&role, false).lines().map(str::to_owned).collect();
        let to = "set_field:0xc6130102->reg0,load:2->NXM_NX_REG4[0..15]";
        let swap = format!(
            "table=1,priority=1000,mpls,mpls_label=100,mpls_bos=1,actions=dec_mpls_ttl,set_field:200->mpls_label,{to},resubmit(,4),resubmit(,3)"
        );
        let push = format!(
            "table=1,priority=1000,mpls,mpls_label=101,mpls_bos=0,actions=dec_mpls_ttl,set_field:203->mpls_label,push_mpls:0x8847,\
             set_field:202->mpls_label,push_mpls:0x8847,set_field:201->mpls_label,{to},resubmit(,4),resubmit(,3)"
        );
        let pop = format!(
            "table=1,priority=1000,mpls,mpls_label=102,mpls_bos=1,actions=move:NXM_NX_MPLS_TTL[]->NXM_NX_REG6[0..7],\
             pop_mpls:0x0800,move:NXM_NX_REG6[0..7]->NXM_NX_IP_TTL[],{to},resubmit(,2),resubmit(,3)"
        );
        let prefix = ("10.99.0.0".parse().unwrap(), 24);
        role.pushed = vec![PushedRoute { prefix, out: vec![300, 301], via: "198.19.1.2".parse().unwrap(), at }];
        let flows: Vec<String> = flows.into_iter().chain(render(&role, false).lines().map(str::to_owned)).collect();
        let fec = format!(
            "table=1,priority=25,ip,nw_dst=10.99.0.0/24,actions=dec_ttl,push_mpls:0x8847,set_field:301->mpls_label,push_mpls:0x8847,\
             set_field:300->mpls_label,{to},resubmit(,4),resubmit(,3)"
        );
        for wanted in [swap, push, pop, fec] {
            assert!(flows.contains(&wanted), "{wanted}\n{}", flows.join("\n"));
        }
        let learned = flows.iter().find(|flow| flow.starts_with("table=0,priority=3,in_port=1,arp,")).unwrap();
        assert!(learned.contains("learn(table=4,priority=1,NXM_NX_REG0[]=NXM_OF_ARP_SPA[],"), "{learned}");
        assert!(flows.contains(
            &"table=3,priority=1,mpls,reg4=2,actions=set_field:02:6f:76:73:00:01->eth_src,output:2".to_owned()
        ));
    }

    #[test]
    fn without_labels_nothing_is_said_of_them() {
        assert!(flows().iter().all(|flow| !flow.contains("mpls") && !flow.contains("learn(table=4")));
    }

    #[test]
    fn two_flows_never_match_alike() {
        let flows = flows();
        let mut heads: Vec<_> = flows.iter().map(|flow| flow.split(",actions=").next().unwrap()).collect();
        heads.sort_unstable();
        let all = heads.len();
        heads.dedup();
        assert_eq!(heads.len(), all);
    }
}
