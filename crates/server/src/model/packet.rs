//! The headers of a flow's frames, as headers of this tester. Fields that are absent have the defaults of the API's model, which
//! differ from the defaults of suites.

use super::pattern::{Written, checksum, constant, pattern, pattern_or};
use super::read::Object;
use drophammer_model::mac::MacAddr;
use drophammer_model::traffic::{
    Bits, Ethernet, Field, FieldValue, Gre, Header, IcmpEcho, Ipv4, Ipv6, Mpls, Octets, Raw, Tcp, Udp, Vlan, Vxlan,
};
use std::net::Ipv4Addr;

/// The headers that a flow can have.
pub const KINDS: &[&str] =
    &["ethernet", "vlan", "mpls", "ipv4", "ipv6", "gre", "udp", "vxlan", "tcp", "icmp", "icmpv6", "arp", "custom"];

/// EtherType of frames whose payload has none (the model's default of an automatic one).
const NO_ETHERTYPE: u16 = 0xffff;
/// UDP port of VXLAN (RFC 7348), if the client gives none.
const VXLAN_PORT: u16 = 4_789;
/// EtherType of ARP (RFC 826).
const ARP: u16 = 0x0806;
/// Protocol of packets whose payload has none: any host internal protocol, and no next header (RFC 8200).
pub const NO_PROTOCOL: (u8, u8) = (61, 59);

/// Reads the headers of a flow, the outermost first. An empty list means only Ethernet and IPv4. Also returns the index of the
/// outermost label stack entry if its label is automatic.
pub fn packet(headers: Vec<Object<'_>>) -> (Vec<Header>, Option<usize>) {
    let mut stack = Vec::new();
    let (mut arp, mut learned) = (false, None);
    for mut header in headers {
        let kind = header.choice(KINDS, "ethernet");
        let mut o = header.object_or_empty(kind);
        if matches!(stack.last(), Some(Header::Raw(_))) {
            o.errors().add(o.path(), "no header can follow `custom` or `arp`");
        }
        arp |= kind == "arp";
        if let (Some(Header::Udp(udp)), "vxlan") = (stack.last_mut(), kind)
            && udp.destination_port == Field::Value(0)
        {
            udp.destination_port = VXLAN_PORT.into();
        }
        stack.push(match kind {
            "vlan" => Header::Vlan(vlan(&mut o)),
            "mpls" => {
                let label = pattern(&mut o, "label", Bits::new(16));
                let outermost = stack.iter().all(|header| !matches!(header, Header::Mpls(_)));
                learned = if outermost { label.is_none().then_some(stack.len()) } else { learned };
                Header::Mpls(mpls(&mut o, label))
            }
            "ipv4" => Header::Ipv4(ipv4(&mut o)),
            "ipv6" => Header::Ipv6(ipv6(&mut o)),
            "gre" => Header::Gre(gre(&mut o)),
            "udp" => Header::Udp(udp(&mut o)),
            "vxlan" => Header::Vxlan(vxlan(&mut o)),
            "tcp" => Header::Tcp(tcp(&mut o)),
            "icmp" => Header::IcmpEcho(echo(&mut o, [8, 0])),
            "icmpv6" => Header::IcmpEcho(echo(&mut o, [128, 129])),
            "arp" => raw(arp_bytes(&mut o)),
            "custom" => {
                let octets = o.parsed::<Octets>("bytes").unwrap_or_default();
                Header::Raw(Raw { bytes: octets })
            }
            _ => Header::Ethernet(ethernet(&mut o)),
        });
    }
    complete(&mut stack, arp);
    (stack, learned)
}

fn raw(bytes: Vec<u8>) -> Header {
    Header::Raw(Raw { bytes: Octets(bytes) })
}

/// Gives the innermost header a type if no header follows that has one.
fn complete(stack: &mut [Header], arp: bool) {
    let typed = stack.iter().rposition(|header| !matches!(header, Header::Raw(_)));
    let ethertype = || Some(Field::Value(if arp { ARP } else { NO_ETHERTYPE }));
    match typed.map(|at| &mut stack[at]) {
        Some(Header::Ethernet(Ethernet { ethertype: field, .. }) | Header::Vlan(Vlan { ethertype: field, .. })) => {
            *field = field.take().or_else(ethertype);
        }
        Some(Header::Gre(gre)) => gre.protocol = gre.protocol.take().or_else(ethertype),
        Some(Header::Ipv4(ip)) => ip.protocol = ip.protocol.take().or(Some(Field::Value(NO_PROTOCOL.0))),
        Some(Header::Ipv6(ip)) => ip.next_header = ip.next_header.take().or(Some(Field::Value(NO_PROTOCOL.1))),
        _ => {}
    }
}

fn ethernet(o: &mut Object<'_>) -> Ethernet {
    constant::<Bits<3>>(o, "pfc_queue", Bits::default());
    let nobody = MacAddr([0; 6]);
    Ethernet {
        destination: pattern(o, "dst", nobody),
        source: pattern(o, "src", nobody),
        ethertype: pattern(o, "ether_type", NO_ETHERTYPE),
    }
}

fn vlan(o: &mut Object<'_>) -> Vlan {
    Vlan {
        tpid: pattern(o, "tpid", 0x8100),
        pcp: pattern_or(o, "priority", Bits::default()),
        dei: pattern_or(o, "cfi", false),
        vid: pattern_or(o, "id", Bits::default()),
        ethertype: None,
    }
}

fn mpls(o: &mut Object<'_>, label: Option<Field<Bits<20>>>) -> Mpls {
    Mpls {
        label: label.unwrap_or(Field::Value(Bits::new(16))),
        tc: pattern_or(o, "traffic_class", Bits::default()),
        bottom_of_stack: pattern(o, "bottom_of_stack", true),
        ttl: pattern_or(o, "time_to_live", 64),
    }
}

/// Splits the values of an octet into its upper six bits and its lower two.
fn split(o: &Object<'_>, key: &str, octets: Field<u8>) -> (Field<Bits<6>>, Field<Bits<2>>) {
    let upper = |octet: u8| Bits::new(u32::from(octet >> 2));
    let lower = |octet: u8| Bits::new(u32::from(octet & 3));
    match octets {
        Field::Value(octet) => (upper(octet).into(), lower(octet).into()),
        Field::Values(list) => (
            Field::Values(list.iter().map(|octet| upper(*octet)).collect()),
            Field::Values(list.iter().map(|octet| lower(*octet)).collect()),
        ),
        _ => {
            o.wrong(key, "only a value or a list of values is supported here");
            (Bits::default().into(), Bits::default().into())
        }
    }
}

/// The differentiated services field of IPv4, in one of its three descriptions.
fn priority(header: &mut Object<'_>) -> (Field<Bits<6>>, Field<Bits<2>>) {
    let mut o = header.object_or_empty("priority");
    match o.choice(&["dscp", "raw", "tos"], "dscp") {
        "raw" => {
            let octets = pattern_or(&mut o, "raw", 0);
            split(&o, "raw", octets)
        }
        "tos" => {
            let mut tos = o.object_or_empty("tos");
            let mut octet = constant::<Bits<3>>(&mut tos, "precedence", Bits::default()).get() << 5;
            for (shift, key) in [(4, "delay"), (3, "throughput"), (2, "reliability"), (1, "monetary"), (0, "unused")] {
                octet |= u32::from(constant(&mut tos, key, false)) << shift;
            }
            split(&tos, "tos", Field::Value(octet as u8))
        }
        _ => {
            let mut dscp = o.object_or_empty("dscp");
            (pattern_or(&mut dscp, "phb", Bits::default()), pattern_or(&mut dscp, "ecn", Bits::default()))
        }
    }
}

fn ipv4(o: &mut Object<'_>) -> Ipv4 {
    let (dscp, ecn) = priority(o);
    let nobody = Ipv4Addr::UNSPECIFIED;
    Ipv4 {
        version: pattern(o, "version", Bits::new(4)),
        header_length: pattern(o, "header_length", Bits::new(5)),
        dscp,
        ecn,
        total_length: pattern(o, "total_length", 46),
        identification: pattern_or(o, "identification", 0),
        reserved: pattern_or(o, "reserved", false),
        dont_fragment: pattern_or(o, "dont_fragment", false),
        more_fragments: pattern_or(o, "more_fragments", false),
        fragment_offset: pattern_or(o, "fragment_offset", Bits::default()),
        ttl: pattern_or(o, "time_to_live", 64),
        protocol: pattern(o, "protocol", NO_PROTOCOL.0),
        header_checksum: checksum(o, "header_checksum"),
        source: pattern(o, "src", nobody),
        destination: pattern(o, "dst", nobody),
        options: Octets::default(),
    }
}

fn ipv6(o: &mut Object<'_>) -> Ipv6 {
    let class = pattern_or(o, "traffic_class", 0);
    let (dscp, ecn) = split(o, "traffic_class", class);
    let nobody = std::net::Ipv6Addr::UNSPECIFIED;
    Ipv6 {
        version: pattern(o, "version", Bits::new(6)),
        dscp,
        ecn,
        flow_label: pattern_or(o, "flow_label", Bits::default()),
        payload_length: pattern(o, "payload_length", 0),
        next_header: pattern(o, "next_header", NO_PROTOCOL.1),
        hop_limit: pattern_or(o, "hop_limit", 64),
        source: pattern(o, "src", nobody),
        destination: pattern(o, "dst", nobody),
        extensions: Vec::new(),
    }
}

/// Takes a field that must be 0.
fn zero<T: Written>(o: &mut Object<'_>, key: &str) {
    if constant(o, key, T::from_bits(0)).to_bits() != 0 {
        o.wrong(key, format_args!("only 0 is supported ({} bits)", T::WIDTH));
    }
}

fn gre(o: &mut Object<'_>) -> Gre {
    zero::<Bits<12>>(o, "reserved0");
    zero::<Bits<3>>(o, "version");
    zero::<u16>(o, "reserved1");
    Gre {
        checksum_present: constant(o, "checksum_present", false),
        protocol: pattern(o, "protocol", 0x0800),
        checksum: checksum(o, "checksum"),
        key: None,
        sequence_number: None,
    }
}

fn udp(o: &mut Object<'_>) -> Udp {
    Udp {
        source_port: pattern_or(o, "src_port", 0),
        destination_port: pattern_or(o, "dst_port", 0),
        length: pattern(o, "length", 0),
        checksum: checksum(o, "checksum"),
    }
}

fn vxlan(o: &mut Object<'_>) -> Vxlan {
    if constant::<u8>(o, "flags", 8) != 8 {
        o.wrong("flags", "only 8 is supported: the network identifier is valid");
    }
    zero::<Bits<24>>(o, "reserved0");
    zero::<u8>(o, "reserved1");
    Vxlan { vni: pattern_or(o, "vni", Bits::default()) }
}

/// The control bits of TCP, the highest first.
const FLAGS: [&str; 9] =
    ["ecn_ns", "ecn_cwr", "ecn_echo", "ctl_urg", "ctl_ack", "ctl_psh", "ctl_rst", "ctl_syn", "ctl_fin"];

fn tcp(o: &mut Object<'_>) -> Tcp {
    let flags = FLAGS.iter().fold(0, |flags, key| flags << 1 | u32::from(constant(o, key, false)));
    Tcp {
        source_port: pattern_or(o, "src_port", 0),
        destination_port: pattern_or(o, "dst_port", 0),
        sequence_number: pattern_or(o, "seq_num", 0),
        acknowledgment_number: pattern_or(o, "ack_num", 0),
        data_offset: pattern(o, "data_offset", Bits::new(5)),
        flags: Bits::new(flags).into(),
        window: pattern_or(o, "window", 0),
        checksum: checksum(o, "checksum"),
        urgent_pointer: Field::Value(0),
        options: Octets::default(),
    }
}

/// An echo message; `types` are the types of a request and of a reply.
fn echo(o: &mut Object<'_>, types: [u8; 2]) -> IcmpEcho {
    o.choice(&["echo"], "echo");
    let mut echo = o.object_or_empty("echo");
    let kind = constant(&mut echo, "type", types[0]);
    if !types.contains(&kind) {
        echo.wrong("type", format_args!("only {} (request) and {} (reply) are supported", types[0], types[1]));
    }
    IcmpEcho {
        reply: kind == types[1],
        code: pattern_or(&mut echo, "code", 0),
        checksum: checksum(&mut echo, "checksum"),
        identifier: pattern_or(&mut echo, "identifier", 0),
        sequence_number: pattern_or(&mut echo, "sequence_number", 0),
    }
}

/// The 28 bytes of an ARP message over Ethernet and IPv4.
fn arp_bytes(o: &mut Object<'_>) -> Vec<u8> {
    fn put<T: Written>(out: &mut Vec<u8>, o: &mut Object<'_>, key: &str, default: T) {
        let value = constant(o, key, default).to_bits().to_be_bytes();
        out.extend_from_slice(&value[16 - T::WIDTH as usize / 8..]);
    }
    let (mut out, nobody, unknown) = (Vec::new(), Ipv4Addr::UNSPECIFIED, MacAddr::from_bits(0));
    put(&mut out, o, "hardware_type", 1u16);
    put(&mut out, o, "protocol_type", 0x0800u16);
    put(&mut out, o, "hardware_length", 6u8);
    put(&mut out, o, "protocol_length", 4u8);
    put(&mut out, o, "operation", 1u16);
    put(&mut out, o, "sender_hardware_addr", unknown);
    put(&mut out, o, "sender_protocol_addr", nobody);
    put(&mut out, o, "target_hardware_addr", unknown);
    put(&mut out, o, "target_protocol_addr", nobody);
    out
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::model::read::Errors;
    use serde_json::{Value, json};

    fn read(headers: Value) -> Result<Vec<Header>, Vec<String>> {
        let errors = Errors::default();
        let mut flow = Object::document(json!({ "packet": headers }), &errors);
        let (stack, _) = packet(flow.objects("packet"));
        drop(flow);
        errors.or(stack)
    }

    #[test]
    fn untouched_headers_have_the_defaults_of_the_model() {
        let stack = read(json!([{"ethernet": {}}, {"vlan": {}}, {"ipv4": {}}, {"tcp": {}}])).unwrap();
        let [Header::Ethernet(ethernet), Header::Vlan(vlan), Header::Ipv4(ip), Header::Tcp(tcp)] = &stack[..] else {
            panic!("{stack:?}")
        };
        assert_eq!((&ethernet.destination, &ethernet.ethertype, &vlan.tpid), (&None, &None, &None));
        assert_eq!((&ip.source, &ip.ttl, &ip.dont_fragment), (&None, &64.into(), &false.into()));
        assert_eq!((&tcp.flags, &tcp.source_port, &tcp.data_offset), (&Bits::new(0).into(), &0.into(), &None));
    }

    #[test]
    fn the_innermost_header_has_a_type_of_its_own() {
        let stack = read(json!([{"choice": "ethernet", "ethernet": {}}, {"ipv6": {}}])).unwrap();
        let Header::Ipv6(ip) = &stack[1] else { panic!("{stack:?}") };
        assert_eq!(ip.next_header, Some(59.into()));
        let stack = read(json!([{"ethernet": {}}, {"arp": {"operation": {"value": 2}}}])).unwrap();
        let (Header::Ethernet(ethernet), Header::Raw(raw)) = (&stack[0], &stack[1]) else { panic!("{stack:?}") };
        assert_eq!(ethernet.ethertype, Some(0x0806.into()));
        assert_eq!((raw.bytes.0.len(), raw.bytes.0[7]), (28, 2));
        let stack = read(json!([{"ethernet": {}}, {"custom": {"bytes": "beef"}}])).unwrap();
        let Header::Ethernet(ethernet) = &stack[0] else { panic!("{stack:?}") };
        assert_eq!(ethernet.ethertype, Some(0xffff.into()));
    }

    #[test]
    fn the_differentiated_services_field_has_three_descriptions() {
        for (priority, dscp, ecn) in [
            (json!({"dscp": {"phb": {"value": 46}, "ecn": {"value": 1}}}), 46, 1),
            (json!({"raw": {"value": 185}}), 46, 1),
            (json!({"choice": "tos", "tos": {"precedence": {"value": 5}, "delay": {"value": 1}}}), 44, 0),
        ] {
            let stack = read(json!([{"ethernet": {}}, {"ipv4": {"priority": priority}}])).unwrap();
            let Header::Ipv4(ip) = &stack[1] else { panic!("{stack:?}") };
            assert_eq!((&ip.dscp, &ip.ecn), (&Bits::new(dscp).into(), &Bits::new(ecn).into()));
        }
    }

    #[test]
    fn vxlan_has_its_port() {
        let stack = read(
            json!([{"ethernet": {}}, {"ipv4": {}}, {"udp": {}}, {"vxlan": {"vni": {"values": [7, 8]}}}, {"ethernet": {}}]),
        );
        let stack = stack.unwrap();
        let (Header::Udp(udp), Header::Vxlan(vxlan)) = (&stack[2], &stack[3]) else { panic!("{stack:?}") };
        assert_eq!(udp.destination_port, 4_789.into());
        assert_eq!(vxlan.vni, Field::Values(vec![Bits::new(7), Bits::new(8)]));
    }

    #[test]
    fn what_is_not_supported_is_named() {
        for (headers, error) in [
            (json!([{"choice": "gtpv1", "gtpv1": {}}]), "packet[0].gtpv1: not supported"),
            (json!([{"vxlan": {"flags": {"value": 0}}}]), "packet[0].vxlan.flags: only 8 is supported"),
            (json!([{"ipv4": {"options": [{"choice": "router_alert"}]}}]), "packet[0].ipv4.options: not supported"),
            (json!([{"tcp": {"ctl_syn": {"values": [0, 1]}}}]), "packet[0].tcp.ctl_syn: only one value for all frames"),
            (json!([{"udp": {"checksum": {"generated": "bad"}}}]), "packet[0].udp.checksum.generated: `bad`"),
        ] {
            let found = read(headers).unwrap_err();
            assert!(found[0].starts_with(error), "{found:?}");
        }
    }
}
