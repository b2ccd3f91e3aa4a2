//! Numbers from IANA's registries, as tables of name, number and meaning. The module of each protocol re-exports its own numbers.

macro_rules! numbers {
    ($($(#[$doc:meta])* pub mod $module:ident: $kind:ty { $($name:ident = $number:literal, $meaning:literal;)* })*) => {
        $($(#[$doc])* pub mod $module { $(#[doc = $meaning] pub const $name: $kind = $number;)* })*
    };
}

numbers! {
    /// EtherType values.
    pub mod ethertype: u16 {
        IPV4 = 0x0800, "IPv4.";
        ARP = 0x0806, "ARP.";
        VLAN = 0x8100, "802.1Q VLAN tag.";
        IPV6 = 0x86dd, "IPv6.";
        SERVICE_VLAN = 0x88a8, "802.1ad service tag.";
        OLD_SERVICE_VLAN = 0x9100, "TPID of a second tag before 802.1ad.";
        MPLS = 0x8847, "MPLS unicast.";
        MPLS_UPSTREAM = 0x8848, "MPLS with an upstream-assigned label (RFC 5332).";
        BRIDGING = 0x6558, "Transparent Ethernet bridging: an Ethernet frame in GRE.";
        LLDP = 0x88cc, "LLDP.";
    }

    /// Protocol numbers (shared with IPv6 next header).
    pub mod protocol: u8 {
        HOP_BY_HOP = 0, "Hop-by-hop options of IPv6.";
        ICMP = 1, "ICMP.";
        IPV4_IN_IP = 4, "IPv4 in IP.";
        TCP = 6, "TCP.";
        UDP = 17, "UDP.";
        IPV6_IN_IP = 41, "IPv6 in IP.";
        ROUTING = 43, "Routing header of IPv6.";
        FRAGMENT = 44, "Fragment header of IPv6.";
        RSVP = 46, "RSVP.";
        GRE = 47, "GRE.";
        ICMPV6 = 58, "ICMPv6.";
        DESTINATION_OPTIONS = 60, "Destination options of IPv6.";
        OSPF = 89, "OSPF.";
    }

    /// Codes of ICMP "destination unreachable" (type 3).
    pub mod icmpv4_unreachable: u8 {
        NET = 0, "No route to the network.";
        HOST = 1, "The host is unreachable.";
        PORT = 3, "No listener at the port.";
        FRAGMENTATION_NEEDED = 4, "The packet exceeds the MTU of the next link, and must not be fragmented.";
    }

    /// Types of ICMPv6 messages (RFC 4443, RFC 4861).
    pub mod icmpv6_kind: u8 {
        DESTINATION_UNREACHABLE = 1, "Destination unreachable.";
        PACKET_TOO_BIG = 2, "Packet too big.";
        TIME_EXCEEDED = 3, "Time exceeded.";
        ECHO_REQUEST = 128, "Echo request.";
        ECHO_REPLY = 129, "Echo reply.";
        ROUTER_SOLICITATION = 133, "Router solicitation.";
        ROUTER_ADVERTISEMENT = 134, "Router advertisement.";
        NEIGHBOR_SOLICITATION = 135, "Neighbor solicitation.";
        NEIGHBOR_ADVERTISEMENT = 136, "Neighbor advertisement.";
    }

    /// Codes of ICMPv6 "destination unreachable".
    pub mod icmpv6_unreachable: u8 {
        NO_ROUTE = 0, "No route.";
        ADDRESS = 3, "The address is unreachable.";
        PORT = 4, "No listener at the port.";
    }

    /// Types of BGP messages.
    pub mod bgp_message: u8 {
        OPEN = 1, "Opens a session.";
        UPDATE = 2, "Announces and withdraws routes.";
        NOTIFICATION = 3, "Ends a session.";
        KEEPALIVE = 4, "Keeps the session alive, and confirms an OPEN.";
        ROUTE_REFRESH = 5, "Requests all routes again (RFC 2918).";
    }

    /// Codes of BGP capabilities.
    pub mod bgp_capability: u8 {
        MULTIPROTOCOL = 1, "Multiprotocol extensions (RFC 4760).";
        ROUTE_REFRESH = 2, "Route refresh (RFC 2918).";
        EXTENDED_NEXT_HOP = 5, "Extended next hop encoding (RFC 8950).";
        EXTENDED_MESSAGE = 6, "Extended messages (RFC 8654).";
        MULTIPLE_LABELS = 8, "Several labels per route (RFC 8277).";
        GRACEFUL_RESTART = 64, "Graceful restart (RFC 4724).";
        FOUR_OCTET_AS = 65, "AS numbers of 4 octets (RFC 6793).";
        ADD_PATH = 69, "Several paths per prefix (RFC 7911).";
        ENHANCED_ROUTE_REFRESH = 70, "Enhanced route refresh (RFC 7313).";
    }

    /// Subtypes of ROUTE-REFRESH (RFC 7313).
    pub mod bgp_refresh: u8 {
        REQUEST = 0, "Request for all routes of the family.";
        BEGIN = 1, "Beginning of the routes.";
        END = 2, "End of the routes.";
    }

    /// Flags of a BGP attribute.
    pub mod bgp_attribute_flag: u8 {
        OPTIONAL = 0x80, "Well-known attributes do not have this flag; all speakers must support them.";
        TRANSITIVE = 0x40, "Passed on by speakers that do not support the attribute; always set in well-known ones.";
        PARTIAL = 0x20, "A speaker that does not support the attribute has passed it on.";
        EXTENDED_LENGTH = 0x10, "Its length has two bytes.";
    }

    /// Types of BGP attributes.
    pub mod bgp_attribute: u8 {
        ORIGIN = 1, "Origin of the route.";
        AS_PATH = 2, "ASes that the route has passed.";
        NEXT_HOP = 3, "Next hop of IPv4 unicast.";
        MULTI_EXIT_DISC = 4, "MED: preference among several links to an AS.";
        LOCAL_PREF = 5, "Preference within the AS.";
        ATOMIC_AGGREGATE = 6, "The path was aggregated, and lacks some of its ASes.";
        AGGREGATOR = 7, "AS and identifier of the speaker that aggregated the route.";
        COMMUNITIES = 8, "Communities (RFC 1997).";
        ORIGINATOR_ID = 9, "Router that originated the route in the AS (RFC 4456).";
        CLUSTER_LIST = 10, "Clusters of the route reflectors that the route has passed (RFC 4456).";
        MP_REACH_NLRI = 14, "Announced routes of other families (RFC 4760).";
        MP_UNREACH_NLRI = 15, "Withdrawn routes of other families (RFC 4760).";
        EXTENDED_COMMUNITIES = 16, "Extended communities (RFC 4360).";
        AS4_PATH = 17, "AS_PATH with 4 octets per AS, carried through speakers with 2 (RFC 6793).";
        AS4_AGGREGATOR = 18, "AGGREGATOR with 4 octets per AS (RFC 6793).";
        IPV6_EXTENDED_COMMUNITIES = 25, "IPv6 address specific extended communities (RFC 5701).";
        LARGE_COMMUNITIES = 32, "Large communities (RFC 8092).";
    }

    /// Types of LDP messages (RFC 5036 section 3.7, RFC 5561).
    pub mod ldp_message: u16 {
        NOTIFICATION = 0x0001, "Informs of an event, or ends the session.";
        HELLO = 0x0100, "Discovers neighbours.";
        INITIALIZATION = 0x0200, "Proposes the parameters of a session.";
        KEEPALIVE = 0x0201, "Keeps the session alive, and accepts the parameters.";
        CAPABILITY = 0x0202, "Changes capabilities during a session (RFC 5561).";
        ADDRESS = 0x0300, "Advertises interface addresses.";
        ADDRESS_WITHDRAW = 0x0301, "Withdraws interface addresses.";
        LABEL_MAPPING = 0x0400, "Advertises the label of a FEC.";
        LABEL_REQUEST = 0x0401, "Requests the label of a FEC.";
        LABEL_WITHDRAW = 0x0402, "Withdraws the label of a FEC.";
        LABEL_RELEASE = 0x0403, "Gives back a label.";
        LABEL_ABORT_REQUEST = 0x0404, "Aborts a label request.";
    }

    /// Types of LDP TLVs (RFC 5036 section 3.7), without the bits U and F.
    pub mod ldp_tlv: u16 {
        FEC = 0x0100, "FEC elements.";
        ADDRESS_LIST = 0x0101, "Addresses of one family.";
        HOP_COUNT = 0x0103, "Number of LSRs on the path.";
        PATH_VECTOR = 0x0104, "LSRs on the path.";
        GENERIC_LABEL = 0x0200, "A label of 20 bits.";
        STATUS = 0x0300, "Status of a notification.";
        EXTENDED_STATUS = 0x0301, "More about the status.";
        RETURNED_PDU = 0x0302, "The PDU that caused a notification.";
        RETURNED_MESSAGE = 0x0303, "The message that caused a notification.";
        COMMON_HELLO = 0x0400, "Hold time and flags of a hello.";
        IPV4_TRANSPORT_ADDRESS = 0x0401, "IPv4 address of the sender's end of the session.";
        CONFIGURATION_SEQUENCE = 0x0402, "Changes with the configuration of the sender.";
        IPV6_TRANSPORT_ADDRESS = 0x0403, "IPv6 address of the sender's end of the session.";
        COMMON_SESSION = 0x0500, "Parameters of a session.";
        DYNAMIC_CAPABILITY = 0x0506, "Capability: changes during the session (RFC 5561).";
        TYPED_WILDCARD = 0x050b, "Capability: typed wildcard FEC elements (RFC 5918).";
        LABEL_REQUEST_ID = 0x0600, "Message ID of a label request.";
        UNRECOGNIZED_NOTIFICATION = 0x0603, "Capability: notifications with unknown status codes (RFC 5919).";
    }

    /// Types of FEC elements.
    pub mod ldp_fec: u8 {
        WILDCARD = 0x01, "All FECs.";
        PREFIX = 0x02, "A prefix.";
        TYPED_WILDCARD = 0x05, "All FECs of one type (RFC 5918).";
    }

    /// Types of RSVP messages (RFC 2205, RFC 2961, RFC 3209).
    pub mod rsvp_message: u8 {
        PATH = 1, "Describes a sender and asks for a reservation.";
        RESV = 2, "Reserves, and hands out a label.";
        PATH_ERR = 3, "Reports an error of a Path to the sender.";
        RESV_ERR = 4, "Reports an error of a Resv to the receiver.";
        PATH_TEAR = 5, "Removes path state.";
        RESV_TEAR = 6, "Removes reservation state.";
        RESV_CONF = 7, "Confirms a reservation.";
        BUNDLE = 12, "Carries other messages.";
        ACK = 13, "Acknowledges MESSAGE_IDs.";
        SREFRESH = 15, "Refreshes state by its MESSAGE_IDs.";
        HELLO = 20, "Detects failure and restart of a neighbour.";
    }

    /// Class numbers of RSVP objects.
    pub mod rsvp_class: u8 {
        SESSION = 1, "Destination of the session.";
        RSVP_HOP = 3, "The node that sent the message, and its interface.";
        INTEGRITY = 4, "Authentication (RFC 2747).";
        TIME_VALUES = 5, "Refresh period.";
        ERROR_SPEC = 6, "An error, or the confirmation of a reservation.";
        SCOPE = 7, "Senders to which a message goes.";
        STYLE = 8, "Reservation style.";
        FLOWSPEC = 9, "Requested service.";
        FILTER_SPEC = 10, "The sender that a reservation is for.";
        SENDER_TEMPLATE = 11, "The sender.";
        SENDER_TSPEC = 12, "Traffic of the sender.";
        ADSPEC = 13, "What the path offers.";
        POLICY_DATA = 14, "Data of policy control.";
        RESV_CONFIRM = 15, "Asks for a confirmation.";
        LABEL = 16, "MPLS label.";
        LABEL_REQUEST = 19, "Asks for a label.";
        EXPLICIT_ROUTE = 20, "Hops that the path must take.";
        RECORD_ROUTE = 21, "Hops that the path takes.";
        HELLO = 22, "Instances of two neighbours.";
        MESSAGE_ID = 23, "Identifies a message.";
        MESSAGE_ID_ACK = 24, "Acknowledges a message, or reports that it is unknown.";
        MESSAGE_ID_LIST = 25, "Messages whose state is refreshed.";
        SESSION_ATTRIBUTE = 207, "Priorities, flags and name of an LSP.";
    }

    /// Error codes of RSVP (RFC 2205 appendix B, RFC 3209 section 7.3).
    pub mod rsvp_error: u8 {
        CONFIRMATION = 0, "No error: the reservation is confirmed.";
        ADMISSION_CONTROL = 1, "Admission control failure.";
        POLICY_CONTROL = 2, "Policy control failure.";
        NO_PATH = 3, "No path information for this Resv.";
        NO_SENDER = 4, "No sender information for this Resv.";
        CONFLICTING_STYLE = 5, "Conflicting reservation style.";
        UNKNOWN_STYLE = 6, "Unknown reservation style.";
        UNKNOWN_CLASS = 13, "Unknown object class.";
        UNKNOWN_CTYPE = 14, "Unknown C-Type of a known class.";
        ROUTING_PROBLEM = 24, "Routing problem.";
        NOTIFY = 25, "Notification.";
    }

    /// Values of the RSVP error "routing problem" (RFC 3209 section 7.3).
    pub mod rsvp_routing: u16 {
        BAD_EXPLICIT_ROUTE = 1, "The explicit route has no hop.";
        BAD_STRICT_NODE = 2, "The next hop of the explicit route is strict and no neighbour.";
        BAD_LOOSE_NODE = 3, "No route to the next hop of the explicit route, which is loose.";
        BAD_INITIAL_SUBOBJECT = 4, "The first hop of the explicit route is not this node.";
        NO_ROUTE = 5, "No route to the destination.";
        UNACCEPTABLE_LABEL = 6, "Unacceptable label value.";
        LOOP = 7, "The recorded route has this node.";
        LABEL_ALLOCATION = 9, "MPLS label allocation failure.";
        UNSUPPORTED_L3PID = 10, "Unsupported protocol in the label request.";
    }

    /// Diagnostics of BFD (RFC 5880 section 4.1).
    pub mod bfd_diagnostic: u8 {
        NONE = 0, "No diagnostic.";
        DETECTION_TIME_EXPIRED = 1, "Control detection time expired.";
        ECHO_FAILED = 2, "Echo function failed.";
        NEIGHBOR_SIGNALED_DOWN = 3, "Neighbor signaled session down.";
        FORWARDING_PLANE_RESET = 4, "Forwarding plane reset.";
        PATH_DOWN = 5, "Path down.";
        CONCATENATED_PATH_DOWN = 6, "Concatenated path down.";
        ADMINISTRATIVELY_DOWN = 7, "Administratively down.";
        REVERSE_CONCATENATED_PATH_DOWN = 8, "Reverse concatenated path down.";
    }

    /// Types of OSPF packets.
    pub mod ospf_packet: u8 {
        HELLO = 1, "Finds neighbours, and keeps them.";
        DATABASE_DESCRIPTION = 2, "Lists the headers of all LSAs.";
        LINK_STATE_REQUEST = 3, "Requests LSAs.";
        LINK_STATE_UPDATE = 4, "Floods LSAs.";
        LINK_STATE_ACK = 5, "Acknowledges LSAs.";
    }

    /// Types of LSAs.
    pub mod ospf_lsa: u8 {
        ROUTER = 1, "Links of a router.";
        NETWORK = 2, "Routers of a transit network.";
        SUMMARY_NETWORK = 3, "A network in another area.";
        SUMMARY_ASBR = 4, "An AS boundary router in another area.";
        EXTERNAL = 5, "A destination outside the AS.";
        OPAQUE_LINK = 9, "Opaque, for the link (RFC 5250).";
        OPAQUE_AREA = 10, "Opaque, for the area (RFC 5250).";
        OPAQUE_AS = 11, "Opaque, for the AS (RFC 5250).";
    }

    /// Options of OSPF (RFC 2328 section A.2, RFC 5250).
    pub mod ospf_option: u8 {
        EXTERNAL = 0x02, "E: the area takes AS-external-LSAs.";
        OPAQUE = 0x40, "O: the router takes opaque LSAs; in Database Descriptions only.";
    }
}
