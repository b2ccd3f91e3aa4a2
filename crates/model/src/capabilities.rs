//! Capabilities of a kind of DUT, and the needs of roles and tests.

use crate::label_edge::CoreProtocol;
use crate::param::{ChoiceWord, Param};

/// `install_routes`, a parameter of routers that can install BGP routes in the forwarding plane.
pub const INSTALL_ROUTES: Param<bool> = Param::fixed(
    "install_routes",
    "true",
    "put BGP routes into the forwarding plane; with `false`, only the control plane runs",
);

crate::choice! {
    /// A capability that a role or a test needs, with its word in lists and messages.
    pub enum Need {
        /// IPv4 interfaces and static routes.
        Ipv4 = "ipv4-router",
        /// IPv6 interfaces and static routes.
        Ipv6 = "ipv6-router",
        /// BGP-4 (RFC 4271).
        Bgp = "bgp",
        /// Forwarding by BGP routes in addition to static routes.
        BgpForwarding = "bgp-forwarding",
        /// TCP MD5 (RFC 2385) and GTSM (RFC 5082) for BGP sessions.
        BgpProtection = "bgp-protection",
        /// Route reflection of routes with labels (RFC 8277) and VPN routes (RFC 4364), without VRFs.
        LabelReflection = "label-reflection",
        /// VLAN sub-interfaces with one tag (IEEE 802.1Q).
        Vlan = "vlan",
        /// VLAN sub-interfaces with two tags (IEEE 802.1ad).
        Qinq = "qinq",
        /// Static label entries (RFC 3031).
        Mpls = "mpls",
        /// GRE tunnels (RFC 2784).
        Tunnels = "tunnels",
        /// Policy routing: forwarding by incoming interface instead of routes.
        PolicyRouting = "policy-routing",
        /// OSPFv2 with the tester (RFC 2328).
        Ospf = "ospf",
        /// LDP with the tester (RFC 5036).
        Ldp = "ldp",
        /// RSVP-TE with the tester (RFC 3209).
        Rsvp = "rsvp",
        /// BFD with the tester (RFC 5881).
        Bfd = "bfd",
        /// VRFs and BGP with VPN routes (RFC 4364).
        Vrfs = "vrfs",
        /// Packet filters that can be changed at run time.
        Filters = "filters",
        /// Classes of service that can be changed at run time.
        Classes = "classes",
        /// Several routers that form one DUT.
        Systems = "systems",
    }
}

/// Where the tester's interfaces to a DUT are.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Placement {
    /// In the lab, which creates them (veth or tap) together with the DUT.
    Lab,
    /// On the host: the user's own interfaces.
    Host,
    /// Nowhere: the DUT runs in virtual time.
    Virtual,
}

/// Component that creates the VLAN sub-interfaces of a DUT.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Vlans {
    /// Nobody: there are none.
    None,
    /// The kernel of this machine, if it has VLAN support (Linux module 8021q).
    HostKernel,
    /// The DUT itself.
    Own,
}

/// Counters that a DUT provides.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Counters {
    /// Frames and bytes of each interface, with drops and errors.
    Interfaces,
    /// IP counters of the DUT (RFC 4293): header errors, forwarded datagrams, discards.
    Ip,
    /// The backlog of the forwarding processor.
    Backlog,
    /// Output of commands that the user supplies.
    Commands,
    /// Exact counts of a simulated device.
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
    /// BGP routes enter the forwarding plane.
    pub bgp_forwarding: bool,
    /// TCP MD5 and GTSM for BGP sessions.
    pub bgp_protection: bool,
    /// Route reflection of routes with labels and VPN routes, without VRFs.
    pub label_reflection: bool,
    /// Who creates VLAN sub-interfaces.
    pub vlans: Vlans,
    /// Maximum number of tags of a sub-interface; 0 if there are no VLANs.
    pub vlan_tags: usize,
    /// Static label entries.
    pub mpls: bool,
    /// GRE tunnels.
    pub tunnels: bool,
    /// Policy routing by incoming interface.
    pub policy_routing: bool,
    /// Protocols of core ports.
    pub core: &'static [CoreProtocol],
    /// Those of them that a chain of such routers has at its core ports. The routers then have OSPF and LDP among each other.
    pub core_of_chain: &'static [CoreProtocol],
    /// VRFs and BGP with VPN routes.
    pub vrfs: bool,
    /// Packet filters that can be changed at run time.
    pub filters: bool,
    /// Classes of service that can be changed at run time.
    pub classes: bool,
    /// Several routers of this kind can form one DUT.
    pub systems: bool,
    /// Where the tester's interfaces are, unless a parameter of the DUT specifies it.
    pub placement: Placement,
    /// Counters that it provides.
    pub counters: &'static [Counters],
    /// True if Drophammer simulates the device; its figures are not results.
    pub simulated: bool,
}

impl Capabilities {
    /// A router of the lab: both IP versions, static routes, nothing else.
    pub const ROUTER: Capabilities = Capabilities {
        ipv4: true,
        ipv6: true,
        bgp: false,
        bgp_forwarding: false,
        bgp_protection: false,
        label_reflection: false,
        vlans: Vlans::None,
        vlan_tags: 0,
        mpls: false,
        tunnels: false,
        policy_routing: false,
        core: &[],
        core_of_chain: &[],
        vrfs: false,
        filters: false,
        classes: false,
        systems: false,
        placement: Placement::Lab,
        counters: &[],
        simulated: false,
    };

    /// A router with BGP whose routes enter the forwarding plane, protected sessions, and its own VLAN sub-interfaces.
    pub const BGP_ROUTER: Capabilities = Capabilities {
        bgp: true,
        bgp_forwarding: true,
        bgp_protection: true,
        vlans: Vlans::Own,
        vlan_tags: 2,
        ..Capabilities::ROUTER
    };

    /// True if the DUT speaks this protocol on core ports.
    fn speaks(&self, protocol: CoreProtocol) -> bool {
        self.core.contains(&protocol)
    }

    /// True if the DUT meets this need. The lab checks whether this machine's kernel supports VLANs.
    pub fn has(&self, need: Need) -> bool {
        match need {
            Need::Ipv4 => self.ipv4,
            Need::Ipv6 => self.ipv6,
            Need::Bgp => self.bgp,
            Need::BgpForwarding => self.bgp_forwarding,
            Need::BgpProtection => self.bgp_protection,
            Need::LabelReflection => self.label_reflection,
            Need::Vlan => self.vlan_tags >= 1,
            Need::Qinq => self.vlan_tags >= 2,
            Need::Mpls => self.mpls,
            Need::Tunnels => self.tunnels,
            Need::PolicyRouting => self.policy_routing,
            Need::Ospf => self.speaks(CoreProtocol::Ospf),
            Need::Ldp => self.speaks(CoreProtocol::Ldp),
            Need::Rsvp => self.speaks(CoreProtocol::Rsvp),
            Need::Bfd => self.speaks(CoreProtocol::Bfd),
            Need::Vrfs => self.vrfs,
            Need::Filters => self.filters,
            Need::Classes => self.classes,
            Need::Systems => self.systems,
        }
    }

    /// The first of `needs` that the DUT does not meet. A router without BGP has a role without BGP sessions, so it
    /// needs neither protection nor routes with labels for them.
    pub fn lacks(&self, needs: &[Need]) -> Option<Need> {
        let of_sessions = |need: &Need| matches!(need, Need::BgpProtection | Need::LabelReflection);
        let lacks = |need: &Need| !self.has(*need) && (self.bgp || !of_sessions(need));
        needs.iter().copied().find(lacks)
    }

    /// Everything that the DUT supports, in words.
    pub fn words(&self) -> Vec<&'static str> {
        Need::WORDS.iter().copied().filter(|word| Need::of_word(word).is_some_and(|need| self.has(need))).collect()
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
