//! Holds the encapsulation of frames that arrive against the one that must arrive.

use drophammer_model::traffic::{
    Arriving, ArrivingLabel, ArrivingTag, ArrivingTunnel, Deviation, FieldName, HeaderKind,
};
use drophammer_model::trial::Family;
use drophammer_wire::ethernet::ethertype;
use drophammer_wire::stack::{Layer, Layers};
use std::net::{IpAddr, Ipv4Addr, Ipv6Addr};

/// Bytes from the first EtherType on that can be compared at once: three tags or five labels.
const COMPARED: usize = 24;
/// Where these bytes are.
const TYPE_AT: usize = 12;

/// What the frames of one flow must arrive in, in two forms: bytes under a mask for frames of one IP packet, and words for
/// all others.
#[derive(Clone, Debug)]
pub(crate) struct Encapsulation {
    /// Bytes from the first EtherType to the IP header; `None` where only the words tell.
    packet_at: Option<usize>,
    value: [u8; COMPARED],
    mask: [u8; COMPARED],
    /// Type of service or traffic class, and TTL or hop limit, under masks.
    class: (u8, u8),
    ttl: (u8, u8),
    words: Box<Arriving>,
}

impl Encapsulation {
    /// Of frames of `family`.
    pub(crate) fn new(words: Arriving, family: Family) -> Encapsulation {
        let (mut value, mut mask) = ([0; COMPARED], [0; COMPARED]);
        let length = 2 + 4 * (words.vlans.len() + words.labels.len());
        let packet_at = (length <= COMPARED && words.tunnel.is_none()).then_some(TYPE_AT + length);
        if packet_at.is_some() {
            let mut put = |at: usize, bytes: &[u8], bits: &[u8]| {
                value[at..at + bytes.len()].copy_from_slice(bytes);
                mask[at..at + bits.len()].copy_from_slice(bits);
            };
            // Which of the tag protocol identifiers announces a tag is not compared.
            for (i, tag) in words.vlans.iter().enumerate() {
                let pcp = tag.pcp.map_or((0, 0), |pcp| (pcp.get() << 13, 0xe000));
                let (bits, compared) = (tag.vid.get() | pcp.0, 0x0fff | pcp.1);
                put(2 + 4 * i, &(bits as u16).to_be_bytes(), &(compared as u16).to_be_bytes());
            }
            let kind = match (words.labels.is_empty(), family) {
                (false, _) => ethertype::MPLS,
                (true, Family::Ipv4) => ethertype::IPV4,
                (true, Family::Ipv6) => ethertype::IPV6,
            };
            let labels_at = 4 * words.vlans.len();
            put(labels_at, &kind.to_be_bytes(), &[0xff; 2]);
            for (i, label) in words.labels.iter().enumerate() {
                let tc = label.tc.map_or((0, 0), |tc| (tc.get() << 9, 7 << 9));
                let ttl = label.ttl.map_or((0, 0), |ttl| (u32::from(ttl), 0xff));
                let bottom = u32::from(i + 1 == words.labels.len()) << 8;
                let bits = label.label.get() << 12 | tc.0 | bottom | ttl.0;
                let compared: u32 = 0xffff_f000 | tc.1 | 1 << 8 | ttl.1;
                put(labels_at + 2 + 4 * i, &bits.to_be_bytes(), &compared.to_be_bytes());
            }
        }
        let dscp = words.dscp.map_or((0, 0), |dscp| ((dscp.get() << 2) as u8, 0xfc));
        let ecn = words.ecn.map_or((0, 0), |ecn| (ecn.get() as u8, 0x03));
        let ttl = words.ttl.map_or((0, 0), |ttl| (ttl, 0xff));
        Encapsulation { packet_at, value, mask, class: (dscp.0 | ecn.0, dscp.1 | ecn.1), ttl, words: Box::new(words) }
    }

    /// Must frames arrive with nothing but Ethernet before the packet, whatever its class and TTL?
    pub(crate) fn is_plain(&self) -> bool {
        *self.words == Arriving::default()
    }

    /// Is it the encapsulation of `frame`, one packet whose header is at `packet_at`? False also where only the words
    /// could tell.
    #[inline]
    pub(crate) fn is_of(&self, frame: &[u8], packet_at: usize) -> bool {
        if self.packet_at != Some(packet_at) || packet_at + 9 > frame.len() {
            return false;
        }
        let found = &frame[TYPE_AT..packet_at];
        let same = found.iter().zip(&self.value).zip(&self.mask).fold(0, |all, ((a, b), mask)| all | (a ^ b) & mask);
        let packet = &frame[packet_at..packet_at + 9];
        let v6 = packet[0] >> 4 == 6;
        let class = if v6 { packet[0] << 4 | packet[1] >> 4 } else { packet[1] };
        let ttl = if v6 { packet[7] } else { packet[8] };
        same | (class ^ self.class.0) & self.class.1 | (ttl ^ self.ttl.0) & self.ttl.1 == 0
    }

    /// The outermost difference of `frame`, whose headers are `layers`.
    pub(crate) fn deviation(&self, frame: &[u8], layers: &Layers) -> Option<Deviation> {
        let words = &*self.words;
        let read = |index: usize, name: FieldName| layers.place(frame, index, name)?.read(frame);
        let link = link_end(layers);
        tags(&words.vlans, &indices(layers, 0..link, HeaderKind::Vlan), &read)
            .or_else(|| labels(&words.labels, &indices(layers, 0..link, HeaderKind::Mpls), &read))
            .or_else(|| tunnel(words.tunnel.as_ref(), layers, &read))
            .or_else(|| {
                let ip = layers.innermost_ip()?;
                let ttl = if layers[ip].kind == HeaderKind::Ipv4 { FieldName::Ttl } else { FieldName::HopLimit };
                let differs = |name, wanted: Option<u32>| wanted.is_some_and(|w| read(ip, name) != Some(w.into()));
                if differs(FieldName::Dscp, words.dscp.map(|dscp| dscp.get())) {
                    Some(Deviation::Dscp)
                } else if differs(FieldName::Ecn, words.ecn.map(|ecn| ecn.get())) {
                    Some(Deviation::Ecn)
                } else {
                    differs(ttl, words.ttl.map(u32::from)).then_some(Deviation::Ttl)
                }
            })
    }
}

/// Reads a field of the header at an index.
type Read<'a> = &'a dyn Fn(usize, FieldName) -> Option<u128>;

/// Index of the first header that is neither Ethernet, nor a tag, nor a label.
fn link_end(layers: &Layers) -> usize {
    let is_link = |layer: &Layer| matches!(layer.kind, HeaderKind::Ethernet | HeaderKind::Vlan | HeaderKind::Mpls);
    layers.iter().position(|layer| !is_link(layer)).unwrap_or(layers.len())
}

fn indices(layers: &Layers, range: std::ops::Range<usize>, kind: HeaderKind) -> Vec<usize> {
    range.filter(|index| layers[*index].kind == kind).collect()
}

fn tags(wanted: &[ArrivingTag], found: &[usize], read: Read<'_>) -> Option<Deviation> {
    for (tag, index) in wanted.iter().zip(found) {
        if read(*index, FieldName::Vid) != Some(tag.vid.get().into()) {
            return Some(Deviation::VlanId);
        }
        if tag.pcp.is_some_and(|pcp| read(*index, FieldName::Pcp) != Some(pcp.get().into())) {
            return Some(Deviation::VlanPriority);
        }
    }
    count(wanted.len(), found.len(), Deviation::VlanMissing, Deviation::VlanUnexpected)
}

fn labels(wanted: &[ArrivingLabel], found: &[usize], read: Read<'_>) -> Option<Deviation> {
    for (label, index) in wanted.iter().zip(found) {
        if read(*index, FieldName::Label) != Some(label.label.get().into()) {
            return Some(Deviation::Label);
        }
        if label.tc.is_some_and(|tc| read(*index, FieldName::Tc) != Some(tc.get().into())) {
            return Some(Deviation::LabelTc);
        }
        if label.ttl.is_some_and(|ttl| read(*index, FieldName::Ttl) != Some(ttl.into())) {
            return Some(Deviation::LabelTtl);
        }
    }
    count(wanted.len(), found.len(), Deviation::LabelMissing, Deviation::LabelUnexpected)
}

fn count(wanted: usize, found: usize, missing: Deviation, unexpected: Deviation) -> Option<Deviation> {
    match found.cmp(&wanted) {
        std::cmp::Ordering::Less => Some(missing),
        std::cmp::Ordering::Equal => None,
        std::cmp::Ordering::Greater => Some(unexpected),
    }
}

fn tunnel(wanted: Option<&ArrivingTunnel>, layers: &Layers, read: Read<'_>) -> Option<Deviation> {
    let (outer, inner) = (layers.outermost_ip(), layers.innermost_ip());
    let (wanted, outer) = match (wanted, outer.filter(|_| outer != inner)) {
        (None, None) => return None,
        (None, Some(_)) => return Some(Deviation::TunnelUnexpected),
        (Some(_), None) => return Some(Deviation::TunnelMissing),
        (Some(wanted), Some(outer)) => (wanted, outer),
    };
    let next = layers.get(outer + 1).map(|layer| layer.kind);
    if wanted.gre != (next == Some(HeaderKind::Gre)) {
        return Some(Deviation::TunnelKind);
    }
    let v6 = layers[outer].kind == HeaderKind::Ipv6;
    let differs = |wanted: Option<IpAddr>, name| {
        let found = read(outer, name).map(|bits| match v6 {
            true => IpAddr::V6(Ipv6Addr::from(bits)),
            false => IpAddr::V4(Ipv4Addr::from(bits as u32)),
        });
        wanted.is_some() && wanted != found
    };
    if differs(wanted.source, FieldName::Source) || differs(wanted.destination, FieldName::Destination) {
        return Some(Deviation::TunnelAddress);
    }
    let key_differs = wanted.key.is_some_and(|key| read(outer + 1, FieldName::Key) != Some(key.into()));
    key_differs.then_some(Deviation::TunnelKey)
}
