//! Compares the encapsulation of received frames with the expected one.

use crate::intact::{BARE, Expected, Found};
use drophammer_model::traffic::{
    Arriving, ArrivingLabel, ArrivingTag, ArrivingTunnel, Deviation, FieldName, HeaderKind,
};
use drophammer_model::trial::Family;
use drophammer_wire::ethernet::ethertype;
use drophammer_wire::signature::Signature;
use drophammer_wire::stack::{Layer, Layers};
use std::net::{IpAddr, Ipv4Addr, Ipv6Addr};

/// Number of eight-byte words, from the first EtherType on, that are compared in one step: three tags or five labels.
const COMPARED: usize = 3;
/// Offset of the compared bytes.
const TYPE_AT: usize = 12;

/// Bytes to compare, as little-endian words.
type Words = [u64; COMPARED];

/// The encapsulation in which the frames of a flow are expected. It has two forms: masked bytes for frames with one IP
/// packet, and a description for all other frames.
#[derive(Clone, Debug)]
#[repr(align(64))]
pub(crate) struct Encapsulation {
    /// Bytes from the first EtherType to the IP header. A tag may have any tag protocol identifier; the bytes contain
    /// the identifiers of the last matching frame.
    value: Words,
    mask: Words,
    /// Offset of the IP header; 0 if only the description applies and no frame matches the bytes.
    packet_at: u8,
    /// True if `class` or `ttl` is compared.
    judges_packet: bool,
    /// Type of service or traffic class, as value and mask.
    class: (u8, u8),
    ttl: (u8, u8),
    described: Box<Described>,
}

#[derive(Clone, Debug)]
struct Described {
    arriving: Arriving,
    /// The mask without the tag protocol identifiers.
    without_tpid: Words,
}

fn words(bytes: &[u8; 8 * COMPARED]) -> Words {
    let mut words = Words::default();
    for (word, bytes) in words.iter_mut().zip(bytes.as_chunks().0) {
        *word = u64::from_le_bytes(*bytes);
    }
    words
}

impl Encapsulation {
    /// Creates the encapsulation for frames of `family`.
    pub(crate) fn new(arriving: Arriving, family: Family) -> Encapsulation {
        let (mut value, mut mask) = ([0; 8 * COMPARED], [0; 8 * COMPARED]);
        let length = 2 + 4 * (arriving.vlans.len() + arriving.labels.len());
        let in_bytes = length <= 8 * COMPARED && arriving.tunnel.is_none();
        if in_bytes {
            let mut put = |at: usize, bytes: &[u8], bits: &[u8]| {
                value[at..at + bytes.len()].copy_from_slice(bytes);
                mask[at..at + bits.len()].copy_from_slice(bits);
            };
            for (i, tag) in arriving.vlans.iter().enumerate() {
                let pcp = tag.pcp.map_or((0, 0), |pcp| (pcp.get() << 13, 0xe000));
                let (bits, compared) = (tag.vid.get() | pcp.0, 0x0fff | pcp.1);
                put(2 + 4 * i, &(bits as u16).to_be_bytes(), &(compared as u16).to_be_bytes());
            }
            let kind = match (arriving.labels.is_empty(), family) {
                (false, _) => ethertype::MPLS,
                (true, Family::Ipv4) => ethertype::IPV4,
                (true, Family::Ipv6) => ethertype::IPV6,
            };
            let labels_at = 4 * arriving.vlans.len();
            put(labels_at, &kind.to_be_bytes(), &[0xff; 2]);
            for (i, label) in arriving.labels.iter().enumerate() {
                let tc = label.tc.map_or((0, 0), |tc| (tc.get() << 9, 7 << 9));
                let ttl = label.ttl.map_or((0, 0), |ttl| (u32::from(ttl), 0xff));
                let bottom = u32::from(i + 1 == arriving.labels.len()) << 8;
                let bits = label.label.get() << 12 | tc.0 | bottom | ttl.0;
                let compared: u32 = 0xffff_f000 | tc.1 | 1 << 8 | ttl.1;
                put(labels_at + 2 + 4 * i, &bits.to_be_bytes(), &compared.to_be_bytes());
            }
        }
        if !in_bytes {
            // EtherType 0xffff is reserved (RFC 1701).
            (value, mask) = ([0xff; 8 * COMPARED], [0xff; 8 * COMPARED]);
        }
        let without_tpid = words(&mask);
        if in_bytes {
            (0..arriving.vlans.len()).for_each(|i| mask[4 * i..4 * i + 2].fill(0xff));
        }
        let dscp = arriving.dscp.map_or((0, 0), |dscp| ((dscp.get() << 2) as u8, 0xfc));
        let ecn = arriving.ecn.map_or((0, 0), |ecn| (ecn.get() as u8, 0x03));
        let ttl = arriving.ttl.map_or((0, 0), |ttl| (ttl, 0xff));
        Encapsulation {
            value: words(&value),
            mask: words(&mask),
            packet_at: if in_bytes { (TYPE_AT + length) as u8 } else { 0 },
            judges_packet: dscp.1 | ecn.1 | ttl.1 != 0,
            class: (dscp.0 | ecn.0, dscp.1 | ecn.1),
            ttl,
            described: Box::new(Described { arriving, without_tpid }),
        }
    }

    /// True for plain Ethernet with any class and any TTL.
    pub(crate) fn is_plain(&self) -> bool {
        self.described.arriving == Arriving::default()
    }

    /// Returns true if `frame` has this encapsulation, and remembers its tag protocol identifiers. The frame's packet
    /// is at `packet_at`, after nothing but tags and labels.
    fn learn(&mut self, frame: &[u8], packet_at: usize) -> bool {
        let Some(found) = compared(frame).map(words) else { return false };
        if usize::from(self.packet_at) != packet_at || !self.is_under(&self.described.without_tpid, frame) {
            return false;
        }
        for (value, (found, mask)) in self.value.iter_mut().zip(found.iter().zip(&self.mask)) {
            *value = found & mask;
        }
        true
    }

    /// True if `frame` has this encapsulation in the bits that `mask` selects. False if only the description applies.
    #[inline(always)]
    fn is_under(&self, mask: &Words, frame: &[u8]) -> bool {
        let Some(found) = compared(frame) else { return false };
        // Read the words one by one. If they were combined first, they would be read back from memory that was just written.
        let word = |at: usize| u64::from_le_bytes(*found[8 * at..].first_chunk().expect("there are three"));
        let differs = |at: usize| (word(at) ^ self.value[at]) & mask[at];
        differs(0) | differs(1) | differs(2) == 0 && (!self.judges_packet || self.is_class_and_ttl(frame))
    }

    /// True if class and TTL of the packet are as expected.
    fn is_class_and_ttl(&self, frame: &[u8]) -> bool {
        let Some(packet) = frame.get(usize::from(self.packet_at)..).and_then(<[u8]>::first_chunk::<9>) else {
            return false;
        };
        let v6 = packet[0] >> 4 == 6;
        let class = if v6 { packet[0] << 4 | packet[1] >> 4 } else { packet[1] };
        let ttl = if v6 { packet[7] } else { packet[8] };
        (class ^ self.class.0) & self.class.1 | (ttl ^ self.ttl.0) & self.ttl.1 == 0
    }

    /// Returns the outermost difference of `frame` with the headers `layers`.
    pub(crate) fn deviation(&self, frame: &[u8], layers: &Layers) -> Option<Deviation> {
        let words = &self.described.arriving;
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

/// Returns the compared bytes of `frame`.
#[inline(always)]
fn compared(frame: &[u8]) -> Option<&[u8; 8 * COMPARED]> {
    frame.get(TYPE_AT..)?.first_chunk()
}

/// Finds the signature of an intact frame, and the place of its flow.
///
/// Most frames end with their signature. It contains the flow number, the flow's encapsulation determines the offset of
/// the packet, and the packet's checks confirm both.
#[inline(always)]
pub(crate) fn find(
    encapsulations: &mut [Encapsulation],
    expected: &Expected<'_>,
    frame: &[u8],
    place: impl Fn(u32) -> u32,
) -> (Found, u32) {
    // All test frames are at least this long.
    let Some(end) = frame.last_chunk::<BARE>() else { return (Found::NOTHING, u32::MAX) };
    let read = Signature::read(end.last_chunk().expect("it is longer than a signature"));
    let claimed = place(read.0.flow);
    if let Some(arrives) = encapsulations.get(claimed as usize)
        && arrives.is_under(&arrives.mask, frame)
    {
        let at = usize::from(arrives.packet_at);
        if at + BARE == frame.len() {
            // The shortest frames have the highest frame rates, so they are checked first.
            let found = expected.if_home(frame, expected.short::<_, false>(end, || read));
            if !found.is_nothing() {
                return (found, claimed);
            }
        } else {
            let found = expected.behind(frame, at);
            // Padding may look like the signature of another flow.
            if !found.is_nothing() && place(found.flow()) == claimed {
                return (found, claimed);
            }
        }
    }
    find_anywhere(encapsulations, expected, frame, place)
}

/// Like [`find`], but for frames with padding or with new tag protocol identifiers.
#[cold]
#[inline(never)]
fn find_anywhere(
    encapsulations: &mut [Encapsulation],
    expected: &Expected<'_>,
    frame: &[u8],
    place: impl Fn(u32) -> u32,
) -> (Found, u32) {
    let (found, packet_at) = expected.anywhere(frame);
    let place = place(found.flow());
    let right = encapsulations.get_mut(place as usize).is_some_and(|arrives| arrives.learn(frame, packet_at));
    (found, if right { place } else { u32::MAX })
}

/// Reads a field of the header at an index.
type Read<'a> = &'a dyn Fn(usize, FieldName) -> Option<u128>;

/// Returns the index of the first header that is neither Ethernet, nor a tag, nor a label.
fn link_end(layers: &Layers) -> usize {
    let is_link = |layer: &Layer| matches!(layer.kind, HeaderKind::Ethernet | HeaderKind::Vlan | HeaderKind::Mpls);
    layers.iter().position(|layer| !is_link(layer)).unwrap_or(layers.len())
}

fn indices(layers: &Layers, range: std::ops::Range<usize>, kind: HeaderKind) -> Vec<usize> {
    range.filter(|index| layers[*index].kind == kind).collect()
}

/// Tags of VLAN 0 carry a priority but no VLAN (IEEE 802.1Q section 9.6). So they may be present or missing, unless one
/// of them is expected to have a priority.
fn tags(wanted: &[ArrivingTag], found: &[usize], read: Read<'_>) -> Option<Deviation> {
    let vid = |index: usize| read(index, FieldName::Vid);
    let judged = wanted.iter().any(|tag| tag.vid.get() == 0 && tag.pcp.is_some());
    let wanted: Vec<_> = wanted.iter().filter(|tag| judged || tag.vid.get() != 0).collect();
    let found: Vec<_> = found.iter().filter(|index| judged || vid(**index) != Some(0)).collect();
    for (tag, index) in wanted.iter().zip(&found) {
        if vid(**index) != Some(tag.vid.get().into()) {
            return Some(Deviation::VlanId);
        }
        if tag.pcp.is_some_and(|pcp| read(**index, FieldName::Pcp) != Some(pcp.get().into())) {
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

#[cfg(test)]
mod tests {
    use super::*;
    use crate::analyzer::destination;
    use crate::intact::HOME;
    use crate::payload::Pattern;
    use crate::recognize::candidate;
    use drophammer_model::size::FrameSize;
    use drophammer_model::traffic::{Bits, Ethernet, Field, FieldValue, Header, Ipv4, Ipv6, Mpls, Udp, Vlan};
    use drophammer_wire::MacAddr;
    use drophammer_wire::signature::{self, TrialKey};
    use drophammer_wire::stack::{Payload, compile, fit};

    const HOST: MacAddr = MacAddr([2, 3, 4, 5, 6, 7]);
    const FLOW: u32 = 2;

    fn tag(vid: u32) -> Header {
        Header::Vlan(Vlan { vid: Field::Value(Bits::new(vid)), ..Vlan::default() })
    }

    fn label(label: u32) -> Header {
        Header::Mpls(Mpls { label: Field::Value(Bits::new(label)), ..Mpls::default() })
    }

    /// Builds a frame of flow [`FLOW`] behind `front`, and its expected encapsulation.
    fn frame(front: &[Header], v6: bool, size: FrameSize, pattern: &Pattern, key: TrialKey) -> (Vec<u8>, Arriving) {
        let mac = |mac: MacAddr| Some(Field::Value(MacAddr::from_bits(mac.to_bits())));
        let ethernet = Ethernet { destination: mac(HOST), source: mac(MacAddr::local(1)), ..Ethernet::default() };
        let ip = match v6 {
            true => Header::Ipv6(Ipv6 {
                source: Some(Ipv6Addr::from(7).into()),
                destination: Some(Ipv6Addr::from(9).into()),
                ..Ipv6::default()
            }),
            false => Header::Ipv4(Ipv4 {
                source: Some(Ipv4Addr::new(192, 0, 2, 1).into()),
                destination: Some(Ipv4Addr::new(192, 0, 2, 2).into()),
                ..Ipv4::default()
            }),
        };
        let stack = [&[Header::Ethernet(ethernet)], front, &[ip, Header::Udp(Udp::default())]].concat();
        let signature = Signature { flow: FLOW, sequence: 12_345, time: 4_000_000_000 }.emit(key);
        let fill = |bytes: &mut [u8]| bytes.copy_from_slice(pattern.bytes(bytes.len()));
        let payload = Payload::Signed(&fill);
        let mut compiled = compile(&stack, fit(&stack, size, payload).unwrap(), payload).unwrap();
        let at = compiled.signature_at.unwrap();
        compiled.bytes[at..at + signature::LEN].copy_from_slice(&signature);
        compiled.checksums.iter().for_each(|checksum| checksum.write(&mut compiled.bytes));
        let vlans = front.iter().filter_map(|header| match header {
            Header::Vlan(vlan) => Some(ArrivingTag { vid: vlan.vid.first(), pcp: None }),
            _ => None,
        });
        let labels = front.iter().filter_map(|header| match header {
            Header::Mpls(mpls) => Some(ArrivingLabel { label: mpls.label.first(), tc: None, ttl: Some(64) }),
            _ => None,
        });
        let arriving = Arriving { vlans: vlans.collect(), labels: labels.collect(), ..Arriving::default() };
        (compiled.bytes, arriving)
    }

    /// Computes the same result as [`find`], step by step.
    fn at_length(encapsulations: &[Encapsulation], expected: &Expected<'_>, frame: &[u8]) -> Option<(u32, Signature)> {
        let found = candidate(frame).filter(|found| found.whole && found.sums_hold)?;
        let (signature, check) = Signature::read(found.signature);
        let ours = signature.belongs_to(expected.key, check) && destination(frame) == expected.host;
        let place = signature.flow;
        let arrives = encapsulations.get(place as usize)?;
        let right = ours && expected.pattern.starts_with(found.payload);
        (right && arrives.deviation(frame, &found.layers).is_none()).then_some((place, signature))
    }

    #[test]
    fn tags_of_vlan_0_may_come_and_be_missing() {
        let pcp = |vid, pcp: Option<u32>| ArrivingTag { vid: Bits::new(vid), pcp: pcp.map(Bits::new) };
        let cases = [
            (vec![], vec![tag(0)], None),
            (vec![], vec![tag(0), tag(0)], None),
            (vec![], vec![tag(0), tag(5)], Some(Deviation::VlanUnexpected)),
            (vec![pcp(5, None)], vec![tag(0), tag(5)], None),
            (vec![pcp(5, None)], vec![tag(5), tag(0)], None),
            (vec![pcp(5, None)], vec![tag(0)], Some(Deviation::VlanMissing)),
            (vec![pcp(0, None)], vec![], None),
            (vec![pcp(0, None)], vec![tag(0)], None),
            // An expected priority needs its tag.
            (vec![pcp(0, Some(3))], vec![], Some(Deviation::VlanMissing)),
            (vec![pcp(0, Some(3))], vec![tag(0)], Some(Deviation::VlanPriority)),
            (vec![pcp(0, Some(0))], vec![tag(0)], None),
        ];
        for (vlans, front, expected) in cases {
            let (bytes, _) = frame(&front, false, FrameSize::Frame(100), &Pattern::new(9), TrialKey::new(1, 1));
            let arriving = Arriving { vlans: vlans.clone(), ..Arriving::default() };
            let layers = drophammer_wire::stack::locate(&bytes);
            let found = Encapsulation::new(arriving, Family::Ipv4).deviation(&bytes, &layers);
            assert_eq!(found, expected, "{vlans:?}, {front:?}");
        }
    }

    #[test]
    fn behind_tags_and_labels_every_change_of_a_bit_is_seen_as_the_long_way_sees_it() {
        let pattern = Pattern::new(9);
        let key = TrialKey::new(1, 1);
        let host = destination(&[HOST.0.as_slice(), &[0; 2]].concat());
        let expected = Expected { host, home: HOME, key, pattern: &pattern };
        let fronts =
            [vec![], vec![tag(5)], vec![tag(5), tag(6)], vec![label(16)], vec![label(16), label(17), label(18)]];
        let tagged_label = vec![tag(5), label(16)];
        for (front, v6) in fronts.iter().chain([&tagged_label]).flat_map(|front| [(front, false), (front, true)]) {
            for (size, padding) in [(64, 0), (65, 0), (128, 0), (300, 0), (64, 6), (64, 20)] {
                let (mut frame, arriving) = frame(front, v6, FrameSize::Frame(size), &pattern, key);
                // The padding after the packet ends like the signature of flow 1.
                let padding =
                    &[&[0; 8][..], &Signature { flow: 1, sequence: 0, time: 0 }.emit(key)].concat()[..padding];
                let whole = frame.len();
                frame.extend_from_slice(padding);
                let family = if v6 { Family::Ipv6 } else { Family::Ipv4 };
                let other = Encapsulation::new(Arriving::default(), family);
                let mut encapsulations = vec![
                    other.clone(),
                    Encapsulation::new(arriving.clone(), family),
                    Encapsulation::new(arriving, family),
                ];
                let mut found = |frame: &[u8]| {
                    // Called twice: the first call must not change the result of the second.
                    let both = [(); 2].map(|()| {
                        let (found, place) = find(&mut encapsulations, &expected, frame, |flow| flow);
                        let (flow, sequence, time) = (found.flow(), found.sequence(), found.time());
                        ((place as usize) < encapsulations.len()).then_some((place, Signature { flow, sequence, time }))
                    });
                    assert_eq!(both[0], both[1]);
                    assert_eq!(both[0], at_length(&encapsulations, &expected, frame));
                    both[0].is_some()
                };
                assert!(found(&frame), "{front:?}, {size}, {padding:?}");
                let mut right = 0;
                for bit in 0..whole * 8 {
                    frame[bit / 8] ^= 1 << (bit % 8);
                    right += usize::from(found(&frame));
                    frame[bit / 8] ^= 1 << (bit % 8);
                }
                // Bits that no check covers: the source address; the priority of each tag, and one bit that turns its
                // protocol identifier into another; the class of each label; in IPv6 everything except lengths, next
                // header and addresses.
                let open = 48 + 5 * front.len() + if v6 { 28 + 8 } else { 0 };
                assert!(right >= 48 && right <= open, "{front:?}, {size}: {right} of {}", whole * 8);
                // Another tag protocol identifier can announce the same tag.
                if matches!(front.first(), Some(Header::Vlan(_))) {
                    for tpid in [0x88a8u16, 0x9100, 0x8100] {
                        frame[12..14].copy_from_slice(&tpid.to_be_bytes());
                        assert!(found(&frame), "{tpid:#x}");
                    }
                    frame[12..14].copy_from_slice(&0x88b5u16.to_be_bytes());
                    assert!(!found(&frame));
                }
            }
        }
    }
}
