//! Headers around the payload of `blast`, and the number of flows.

use crate::args::{BlastArgs, Transport};
use drophammer_model::quantity::group_digits;
use drophammer_model::size::PacketSize;
use drophammer_model::traffic::{
    Arriving, ArrivingLabel, ArrivingTag, ArrivingTunnel, Bits, Field, Header, HeaderKind, IcmpEcho, Ipv4, Ipv6, Mpls,
    Tcp, Udp, Vlan,
};
use drophammer_rig::{Tag, Tags};

/// First of the dynamic ports (RFC 6335 section 6). Each flow has one of them as its source port.
const FIRST_PORT: u16 = 49_152;
/// Number of dynamic ports.
pub const PRIVATE_PORTS: u32 = (u16::MAX - FIRST_PORT) as u32 + 1;
/// If there are more flows than dynamic ports, they use all unprivileged ports, which start here.
const FIRST_OF_MANY: u16 = 1_024;
/// Number of unprivileged ports. Even more flows use additional source addresses.
pub const PORTS: u32 = (u16::MAX - FIRST_OF_MANY) as u32 + 1;
/// Maximum number of flows of a direction. A signature has 20 bits for the flow.
pub const MAX_FLOWS: u32 = 500_000;
/// Maximum number of source addresses of a flow.
pub const MAX_SOURCES: i64 = 65_000;
/// Maximum number of VLAN tags.
const MAX_TAGS: usize = 2;
/// Maximum number of labels.
const MAX_LABELS: usize = 8;
/// EtherTypes of a VLAN tag: the outer of two tags (IEEE 802.1ad), and any other tag (IEEE 802.1Q).
const OUTER: u16 = 0x88a8;
const INNER: u16 = 0x8100;

/// Headers around the payload.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Stack {
    /// VLAN identifiers of each end, the outer tag first.
    vlans: [Vec<u16>; 2],
    /// MPLS labels, the outermost first.
    labels: Vec<u32>,
    /// Differentiated services codepoint.
    dscp: u8,
    /// Flows of each direction.
    flows: u32,
    transport: Transport,
}

/// Headers of one flow, and what distinguishes its frames.
#[derive(Clone, Debug, PartialEq)]
pub struct FlowHeaders {
    /// The headers; empty for the default ones.
    pub headers: Vec<Header>,
    /// Tags, labels and codepoint, which must arrive as they were sent. `None` if there are none.
    pub arrives: Option<Arriving>,
    /// Size of the frames of this flow, if it differs from the other flows.
    pub size: Option<PacketSize>,
    /// First source address of the flow, counted from the host's address.
    pub source: u32,
    /// Share of the flow in all frames.
    pub weight: f64,
}

impl Stack {
    /// Reads the command line. Errors say what is wrong, and what to write instead.
    pub fn read(args: &BlastArgs) -> Result<Stack, String> {
        if args.vlan.len() > MAX_TAGS {
            let tags = args.vlan.len();
            return Err(format!("--vlan: {tags} tags; write one, or the outer and the inner one as in `10,20`"));
        }
        if args.mpls.len() > MAX_LABELS {
            return Err(format!("--mpls: {} labels; write at most {MAX_LABELS}", args.mpls.len()));
        }
        let flows = args.flows.unwrap_or(1);
        if flows > PORTS && args.sources > 1 {
            return Err(format!(
                "--flows {flows}: more than {PORTS} flows use additional source addresses; leave out --sources"
            ));
        }
        // With one interface, each end has one tag.
        let vlans = match args.vlan.as_slice() {
            [a, b] if args.to.is_none() => [vec![*a], vec![*b]],
            both => [both.to_vec(), both.to_vec()],
        };
        let (labels, dscp) = (args.mpls.clone(), args.dscp.unwrap_or(0));
        Ok(Stack { vlans, labels, dscp, flows, transport: args.transport })
    }

    /// Tags of ARP, Neighbor Discovery and other frames of the host at this end.
    pub fn tags(&self, end: usize) -> Tags {
        tags(&self.around(end, false))
    }

    /// Size with FCS, without tags and labels, of the smallest frame with room for its headers and the signature.
    pub fn least_bytes(&self, ipv6: bool) -> u16 {
        const ETHERNET_WITH_FCS: u16 = 18;
        const SIGNATURE: u16 = 12;
        let transport = if self.transport == Transport::Tcp { 20 } else { 8 };
        ETHERNET_WITH_FCS + if ipv6 { 40 } else { 20 } + transport + SIGNATURE
    }

    /// Number of source addresses that the flows need.
    pub fn addresses(&self) -> u32 {
        self.flows.div_ceil(PORTS)
    }

    /// The headers of all flows at this end, except the transport header.
    fn around(&self, end: usize, ipv6: bool) -> Vec<Header> {
        let vlan = |vid: &u16| Header::Vlan(Vlan { vid: Bits::new((*vid).into()).into(), ..Vlan::default() });
        let label = |label: &u32| Header::Mpls(Mpls { label: Bits::new(*label).into(), ..Mpls::default() });
        let dscp = Bits::new(self.dscp.into()).into();
        let ip = match ipv6 {
            false => Header::Ipv4(Ipv4 { dscp, ..Ipv4::default() }),
            true => Header::Ipv6(Ipv6 { dscp, ..Ipv6::default() }),
        };
        self.vlans[end].iter().map(vlan).chain(self.labels.iter().map(label)).chain([ip]).collect()
    }

    /// The flows from one end to another.
    pub fn flow_headers(&self, from: usize, to: usize, ipv6: bool) -> Vec<FlowHeaders> {
        let plain = FlowHeaders { headers: Vec::new(), arrives: None, size: None, source: 0, weight: 1.0 };
        if *self == (Stack { flows: 1, ..Stack::default() }) {
            return vec![plain];
        }
        let (around, arrives) = (self.around(from, ipv6), arriving(&self.around(to, ipv6)));
        let first = if self.flows <= PRIVATE_PORTS { FIRST_PORT } else { FIRST_OF_MANY };
        let flow = |i: u32| {
            let port = first + (i % PORTS) as u16;
            let transport = match self.transport {
                Transport::Udp => Header::Udp(Udp { source_port: port.into(), ..Udp::default() }),
                Transport::Tcp => Header::Tcp(Tcp { source_port: port.into(), ..Tcp::default() }),
                Transport::IcmpEcho => Header::IcmpEcho(IcmpEcho { identifier: port.into(), ..IcmpEcho::default() }),
            };
            let headers = around.iter().cloned().chain([transport]).collect();
            FlowHeaders { headers, arrives: arrives.clone(), source: i / PORTS, ..plain.clone() }
        };
        (0..self.flows).map(flow).collect()
    }

    /// Bytes between Ethernet header and IP packet that count against the interface's MTU: labels, but not tags.
    pub fn bytes_in_mtu(&self) -> u16 {
        4 * self.labels.len() as u16
    }

    /// Bytes between Ethernet header and IP packet.
    pub fn bytes(&self) -> u16 {
        4 * self.vlans[0].len() as u16 + self.bytes_in_mtu()
    }

    /// Describes non-default settings in words: `, VLAN 10, 1,000 flows`.
    pub fn words(&self) -> String {
        let text = |numbers: Vec<String>, what: &str| {
            if numbers.is_empty() { String::new() } else { format!(", {what} {}", numbers.join(",")) }
        };
        // If the ends have different tags, the names of the ends contain them.
        let shared = if self.vlans[0] == self.vlans[1] { self.vlans[0].as_slice() } else { &[] };
        let mut words = text(shared.iter().map(u16::to_string).collect(), "VLAN");
        words += &text(self.labels.iter().map(u32::to_string).collect(), "MPLS");
        if self.dscp != 0 {
            words += &format!(", DSCP {}", self.dscp);
        }
        words += match self.transport {
            Transport::Udp => "",
            Transport::Tcp => ", TCP",
            Transport::IcmpEcho => ", ICMP echo",
        };
        if self.flows > 1 {
            words += &format!(", {} flows", group_digits(self.flows.into()));
        }
        words
    }
}

/// The tags among `headers`, for frames that are not test frames.
pub fn tags(headers: &[Header]) -> Tags {
    let vids: Vec<u16> = vids(headers).collect();
    let last = vids.len().saturating_sub(1);
    let tag = |(i, vid): (usize, &u16)| Tag { tpid: if i < last { OUTER } else { INNER }, vid: *vid };
    Tags::new(&vids.iter().enumerate().map(tag).collect::<Vec<_>>()).unwrap_or(Tags::NONE)
}

fn vids(headers: &[Header]) -> impl Iterator<Item = u16> {
    headers.iter().filter_map(|header| match header {
        Header::Vlan(vlan) => value(&vlan.vid).map(|vid| vid.get() as u16),
        _ => None,
    })
}

/// The value of a field, if it is the same in all frames.
fn value<T: Copy>(field: &Field<T>) -> Option<T> {
    if let Field::Value(value) = field { Some(*value) } else { None }
}

/// The headers that must arrive as they were sent: tags, labels, a tunnel, and a codepoint other than 0. `None` if
/// there are none.
pub fn arriving(headers: &[Header]) -> Option<Arriving> {
    let labels = headers.iter().filter_map(|header| match header {
        Header::Mpls(mpls) => value(&mpls.label).map(|label| ArrivingLabel { label, tc: None, ttl: None }),
        _ => None,
    });
    let dscp = headers.iter().rev().find_map(|header| match header {
        Header::Ipv4(ip) => value(&ip.dscp),
        Header::Ipv6(ip) => value(&ip.dscp),
        _ => None,
    });
    let kinds = || headers.iter().map(Header::kind);
    let packets = kinds().filter(|kind| matches!(kind, HeaderKind::Ipv4 | HeaderKind::Ipv6)).count();
    let gre = kinds().any(|kind| kind == HeaderKind::Gre);
    let arriving = Arriving {
        vlans: vids(headers).map(|vid| ArrivingTag { vid: Bits::new(vid.into()), pcp: None }).collect(),
        labels: labels.collect(),
        dscp: dscp.filter(|dscp| dscp.get() != 0),
        tunnel: (packets > 1).then(|| ArrivingTunnel { gre, ..ArrivingTunnel::default() }),
        ..Arriving::default()
    };
    (arriving != Arriving::default()).then_some(arriving)
}
