//! What a kind of DUT can do, and what a role or a test needs of it.

use crate::param::Param;
use std::fmt;

/// `install_routes`, a parameter of routers whose BGP routes reach the forwarding plane.
pub const INSTALL_ROUTES: Param<bool> = Param::new(
    "install_routes",
    "true",
    "true",
    "BGP routes go into the forwarding plane; `false` leaves them out, so that the control plane works alone",
);

/// One thing that a role or a test needs of a DUT.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum Need {
    /// IPv4 interfaces and static routes.
    Ipv4,
    /// IPv6 interfaces and static routes.
    Ipv6,
    /// BGP-4 (RFC 4271).
    Bgp,
    /// Forwarding by routes of BGP, not by static ones alone.
    BgpForwarding,
    /// TCP MD5 (RFC 2385) and GTSM (RFC 5082) for the sessions of BGP.
    BgpProtection,
    /// VLAN sub-interfaces with one tag (IEEE 802.1Q).
    Vlan,
    /// VLAN sub-interfaces with two tags (IEEE 802.1ad).
    Qinq,
    /// Static label entries (RFC 3031).
    Mpls,
    /// GRE tunnels (RFC 2784).
    Tunnels,
    /// Another way than that of the routes, by incoming interface.
    PolicyRouting,
    /// Packet filters that can be changed while it runs.
    Filters,
    /// Classes of service that can be changed while it runs.
    Classes,
    /// Several routers that stand as one DUT.
    Systems,
}

impl Need {
    /// All needs.
    pub const ALL: [Need; 13] = [
        Need::Ipv4,
        Need::Ipv6,
        Need::Bgp,
        Need::BgpForwarding,
        Need::BgpProtection,
        Need::Vlan,
        Need::Qinq,
        Need::Mpls,
        Need::Tunnels,
        Need::PolicyRouting,
        Need::Filters,
        Need::Classes,
        Need::Systems,
    ];

    /// The word for lists and messages: `ipv4-router`, `bgp`.
    pub const fn word(self) -> &'static str {
        match self {
            Need::Ipv4 => "ipv4-router",
            Need::Ipv6 => "ipv6-router",
            Need::Bgp => "bgp",
            Need::BgpForwarding => "bgp-forwarding",
            Need::BgpProtection => "bgp-protection",
            Need::Vlan => "vlan",
            Need::Qinq => "qinq",
            Need::Mpls => "mpls",
            Need::Tunnels => "tunnels",
            Need::PolicyRouting => "policy-routing",
            Need::Filters => "filters",
            Need::Classes => "classes",
            Need::Systems => "systems",
        }
    }
}

impl fmt::Display for Need {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.word())
    }
}

/// Where the tester's interfaces to a DUT are.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Placement {
    /// The lab makes them, veth or tap, beside the DUT that it starts.
    Lab,
    /// The user's own interfaces on the host.
    Host,
    /// There are none: the DUT lives in virtual time.
    Virtual,
}

/// Who makes the VLAN sub-interfaces of a DUT.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Vlans {
    /// Nobody.
    None,
    /// The kernel of this machine, which may have none (Linux module 8021q).
    HostKernel,
    /// The DUT itself.
    Own,
}

/// Counters that a DUT shows.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Counters {
    /// Frames and bytes of each interface, with drops and errors.
    Interfaces,
    /// IP counters of the DUT (RFC 4293): header errors, forwarded datagrams, discards.
    Ip,
    /// The backlog of the processor that forwards.
    Backlog,
    /// What commands of the user write.
    Commands,
    /// What a simulated device knows of itself.
    Truth,
}

/// What a kind of DUT can do.
#[derive(Clone, Copy, Debug)]
pub struct Capabilities {
    /// IPv4 interfaces and static routes.
    pub ipv4: bool,
    /// IPv6 interfaces and static routes.
    pub ipv6: bool,
    /// BGP-4.
    pub bgp: bool,
    /// Routes of BGP are forwarded by.
    pub bgp_forwarding: bool,
    /// TCP MD5 and GTSM for the sessions of BGP.
    pub bgp_protection: bool,
    /// Who makes VLAN sub-interfaces.
    pub vlans: Vlans,
    /// Most tags of a sub-interface; 0 without VLANs.
    pub vlan_tags: usize,
    /// Static label entries.
    pub mpls: bool,
    /// GRE tunnels.
    pub tunnels: bool,
    /// Policy routing by incoming interface.
    pub policy_routing: bool,
    /// Packet filters that can be changed while it runs.
    pub filters: bool,
    /// Classes of service that can be changed while it runs.
    pub classes: bool,
    /// Several of them can stand as one DUT.
    pub systems: bool,
    /// Where the tester's interfaces are, unless a parameter of the DUT says otherwise.
    pub placement: Placement,
    /// What it counts.
    pub counters: &'static [Counters],
    /// True when the device is simulated by Drophammer itself: its figures are no results.
    pub simulated: bool,
}

impl Capabilities {
    /// A router of the lab: both IP versions and static routes, nothing more.
    pub const ROUTER: Capabilities = Capabilities {
        ipv4: true,
        ipv6: true,
        bgp: false,
        bgp_forwarding: false,
        bgp_protection: false,
        vlans: Vlans::None,
        vlan_tags: 0,
        mpls: false,
        tunnels: false,
        policy_routing: false,
        filters: false,
        classes: false,
        systems: false,
        placement: Placement::Lab,
        counters: &[],
        simulated: false,
    };

    /// Can it do this? Of VLANs by the kernel of this machine only the lab knows more.
    pub const fn has(&self, need: Need) -> bool {
        match need {
            Need::Ipv4 => self.ipv4,
            Need::Ipv6 => self.ipv6,
            Need::Bgp => self.bgp,
            Need::BgpForwarding => self.bgp_forwarding,
            Need::BgpProtection => self.bgp_protection,
            Need::Vlan => self.vlan_tags >= 1,
            Need::Qinq => self.vlan_tags >= 2,
            Need::Mpls => self.mpls,
            Need::Tunnels => self.tunnels,
            Need::PolicyRouting => self.policy_routing,
            Need::Filters => self.filters,
            Need::Classes => self.classes,
            Need::Systems => self.systems,
        }
    }

    /// The first of `needs` that keeps it from playing a role. A router without BGP plays the role without, so nothing needs protection.
    pub fn lacks(&self, needs: &[Need]) -> Option<Need> {
        let lacks = |need: &Need| !self.has(*need) && (*need != Need::BgpProtection || self.bgp);
        needs.iter().copied().find(lacks)
    }

    /// Everything that it can do, in words.
    pub fn words(&self) -> Vec<&'static str> {
        Need::ALL.into_iter().filter(|need| self.has(*need)).map(Need::word).collect()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn words_are_those_of_what_it_has() {
        assert_eq!(Capabilities::ROUTER.words(), ["ipv4-router", "ipv6-router"]);
        let more = Capabilities { bgp: true, vlans: Vlans::Own, vlan_tags: 1, ..Capabilities::ROUTER };
        assert_eq!(more.words(), ["ipv4-router", "ipv6-router", "bgp", "vlan"]);
        assert!(more.has(Need::Vlan) && !more.has(Need::Qinq) && !more.has(Need::BgpForwarding));
    }
}
