//! The headers of a flow's frames, completed with the addresses of the link.

use crate::payload::Pattern;
use crate::permutation::Permutation;
use crate::plan::Neighbour;
use crate::recognize::Candidate;
use drophammer_model::traffic::{
    Arriving, ArrivingTunnel, Field, FieldName, FieldValue, Header, HeaderKind, Ipv4, Ipv6, Udp,
};
use drophammer_model::trial::{Family, FlowSpec, Targets};
use drophammer_wire::MacAddr;

/// First port and size of the dynamic port range (RFC 6335).
const DYNAMIC: (u16, u32) = (49_152, 16_384);

/// Returns the VLAN identifiers of the leading tags, outermost first. For a field that varies, this is the first value.
pub(crate) fn tags(headers: &[Header]) -> Vec<u16> {
    let behind_ethernet = headers.iter().skip_while(|h| h.kind() == HeaderKind::Ethernet);
    let tags = behind_ethernet.map_while(|header| match header {
        Header::Vlan(vlan) => Some(vlan.vid.first().get() as u16),
        _ => None,
    });
    tags.collect()
}

/// True if `headers` lack the device's address.
pub(crate) fn needs_device(headers: &[Header]) -> bool {
    match headers.first() {
        Some(Header::Ethernet(ethernet)) => ethernet.destination.is_none(),
        _ => true,
    }
}

/// True if `headers` lack the port's address.
pub(crate) fn needs_source(headers: &[Header]) -> bool {
    match headers.first() {
        Some(Header::Ethernet(ethernet)) => ethernet.source.is_none(),
        _ => true,
    }
}

/// Returns the headers of flow `id` in a run with this seed, from Ethernet on. Only the outermost IP header may still
/// lack its addresses.
pub(crate) fn complete(flow: &FlowSpec, id: usize, seed: u64, link: &Neighbour) -> Vec<Header> {
    let mut headers = flow.headers.clone();
    if headers.is_empty() {
        // The port is constant per flow, so that a router that balances by hash keeps the order of its frames.
        let source_port = DYNAMIC.0 + Permutation::new(DYNAMIC.1, seed).at(id as u32 % DYNAMIC.1) as u16;
        headers.push(match flow.family {
            Family::Ipv4 => Header::Ipv4(Ipv4::default()),
            Family::Ipv6 => Header::Ipv6(Ipv6::default()),
        });
        headers.push(Header::Udp(Udp { source_port: source_port.into(), ..Udp::default() }));
    }
    if !matches!(headers.first(), Some(Header::Ethernet(_))) {
        headers.insert(0, Header::Ethernet(Default::default()));
    }
    let device = link.device(flow.family, &tags(&headers)).unwrap_or_default();
    if let Some(Header::Ethernet(ethernet)) = headers.first_mut() {
        let known = |mac: MacAddr| Some(Field::Value(MacAddr::from_bits(mac.to_bits())));
        ethernet.source = ethernet.source.take().or_else(|| known(link.mac));
        ethernet.destination = ethernet.destination.take().or_else(|| known(device));
    }
    headers
}

/// Returns why the outermost IP header does not fit `flow`; `None` if it does.
pub(crate) fn wrong_ip(flow: &FlowSpec) -> Option<&'static str> {
    let outermost = flow.headers.iter().find(|h| matches!(h.kind(), HeaderKind::Ipv4 | HeaderKind::Ipv6))?;
    let family = if outermost.kind() == HeaderKind::Ipv4 { Family::Ipv4 } else { Family::Ipv6 };
    if family != flow.family {
        Some("its addresses and its outermost IP header are of different families")
    } else if outermost.field(FieldName::Source).is_some() && !flow.sources.is_unspecified()
        || outermost.field(FieldName::Destination).is_some() && !leaves_destination(flow)
    {
        Some("its outermost IP header sets addresses, but the flow's addresses go there")
    } else {
        None
    }
}

fn leaves_destination(flow: &FlowSpec) -> bool {
    matches!(&flow.destinations, Targets::Addresses(range) if range.is_unspecified())
}

/// Returns the expected encapsulation: what the flow specifies, otherwise no tags, no labels, and the tunnel in which it was sent.
pub(crate) fn arriving(flow: &FlowSpec) -> Arriving {
    flow.arrives.clone().unwrap_or_else(|| {
        let kinds: Vec<_> = flow.headers.iter().map(Header::kind).collect();
        let packets = kinds.iter().filter(|k| matches!(k, HeaderKind::Ipv4 | HeaderKind::Ipv6)).count();
        let gre = kinds.contains(&HeaderKind::Gre);
        let tunnel = (packets > 1).then(|| ArrivingTunnel { gre, ..ArrivingTunnel::default() });
        Arriving { tunnel, ..Arriving::default() }
    })
}

/// Checks that do not apply to received frames of a flow, because the flow sets these fields itself.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) struct Unjudged {
    /// True if the flow sets a checksum, right or wrong.
    pub(crate) checksums: bool,
    /// True if there is no transport header.
    pub(crate) transport: bool,
    /// Number of leading payload bytes that the flow sets.
    pub(crate) raw: usize,
}

impl Unjudged {
    /// Returns the exceptions for the frames of `flow`.
    pub(crate) fn of(flow: &FlowSpec) -> Unjudged {
        let names = [FieldName::Checksum, FieldName::HeaderChecksum];
        let is_transport = |h: &Header| matches!(h.kind(), HeaderKind::Udp | HeaderKind::Tcp | HeaderKind::IcmpEcho);
        Unjudged {
            checksums: flow.headers.iter().any(|header| names.iter().any(|name| header.field(*name).is_some())),
            transport: !flow.headers.is_empty() && !flow.headers.iter().any(is_transport),
            raw: match flow.headers.last() {
                Some(Header::Raw(raw)) => raw.bytes.0.len(),
                _ => 0,
            },
        }
    }

    /// True if `found`, a frame with a valid signature, arrived as it was sent.
    pub(crate) fn is_intact(self, found: &Candidate<'_>, pattern: &Pattern) -> bool {
        (found.whole || self.transport && found.without_transport)
            && (found.sums_hold || self.checksums)
            && found.payload.get(self.raw..).is_some_and(|payload| pattern.starts_with(payload))
    }
}
