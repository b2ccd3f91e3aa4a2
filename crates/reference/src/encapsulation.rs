//! Changes to the encapsulation of a frame. The analyzer reports each change as the deviation with the same name.

use drophammer_model::size::FrameSize;
use drophammer_model::traffic::{Bits, Deviation, FieldName, Gre, Header, HeaderKind, Ipv4, Ipv6, Mpls, Vlan};
use drophammer_wire::stack::{Payload, compile, decode, fit, locate};
use std::ops::Range;

/// VLAN identifier of an added tag.
const VID: Bits<12> = Bits::new(4094);
/// An added label: the first label that is not reserved.
const LABEL: Bits<20> = Bits::new(16);

const UDP: u8 = drophammer_wire::ipv4::protocol::UDP;

/// Changes the encapsulation of a whole frame. Updates correct lengths, types and checksums, and leaves wrong ones
/// wrong. `None` if the frame contains nothing that can be changed in this way.
pub(crate) fn changed(frame: &[u8], change: Deviation) -> Option<Vec<u8>> {
    let mut headers = decode(frame).headers;
    apply(&mut headers, change)?;
    let payload = Payload::Plain(&|_| {});
    // The headers contain all of the payload as raw bytes, so the smallest size is right.
    let size = fit(&headers, FrameSize::Ip(0), payload).ok()?;
    Some(compile(&headers, size, payload).ok()?.bytes)
}

/// Undoes the decrement of the TTL in the outermost label or IP header of a forwarded frame. Returns false if it has
/// none.
pub(crate) fn undo_decrement(frame: &mut [u8]) -> bool {
    let layers = locate(frame);
    let named = |kind| match kind {
        HeaderKind::Mpls | HeaderKind::Ipv4 => Some(FieldName::Ttl),
        HeaderKind::Ipv6 => Some(FieldName::HopLimit),
        _ => None,
    };
    let found = layers.iter().enumerate().find_map(|(at, layer)| layers.place(frame, at, named(layer.kind)?));
    let Some((place, ttl)) = found.and_then(|place| Some((place, place.read(frame).filter(|ttl| *ttl < 255)?))) else {
        return false;
    };
    let wrong: Vec<usize> = layers.wrong_checksums(frame).map(|c| c.header).collect();
    let right: Vec<_> = layers.checksums(frame).filter(|c| !wrong.contains(&c.header)).collect();
    place.write(frame, ttl + 1);
    right.iter().for_each(|checksum| checksum.write(frame));
    true
}

fn apply(headers: &mut Vec<Header>, change: Deviation) -> Option<()> {
    let link_end = headers.iter().position(is_ip)?;
    let inner = headers.iter().rposition(is_ip)?;
    let tags = range(headers, link_end, HeaderKind::Vlan);
    let labels = range(headers, link_end, HeaderKind::Mpls);
    let tunnelled = inner != link_end;
    match change {
        // Remove the innermost tag: the analyzer compares the remaining tags with the expected ones.
        Deviation::VlanMissing if !tags.is_empty() => drop(headers.remove(tags.end - 1)),
        Deviation::VlanUnexpected => {
            headers.insert(tags.end, Header::Vlan(Vlan { vid: VID.into(), ..Vlan::default() }))
        }
        Deviation::VlanId if !tags.is_empty() => {
            alter(headers, tags.start, FieldName::Vid, |vid| if vid < 4094 { vid + 1 } else { 1 })?;
        }
        Deviation::VlanPriority if !tags.is_empty() => alter(headers, tags.start, FieldName::Pcp, |pcp| pcp ^ 1)?,
        Deviation::LabelMissing if !labels.is_empty() => drop(headers.remove(labels.end - 1)),
        Deviation::LabelUnexpected => {
            headers.insert(link_end, Header::Mpls(Mpls { label: LABEL.into(), ..Mpls::default() }));
        }
        Deviation::Label if !labels.is_empty() => alter(headers, labels.start, FieldName::Label, |label| label ^ 1)?,
        Deviation::LabelTc if !labels.is_empty() => alter(headers, labels.start, FieldName::Tc, |tc| tc ^ 1)?,
        Deviation::LabelTtl if !labels.is_empty() => alter(headers, labels.start, FieldName::Ttl, one_less)?,
        Deviation::TunnelMissing if tunnelled => drop(headers.drain(link_end..inner)),
        Deviation::TunnelUnexpected if !tunnelled => {
            let outer = outer(&headers[link_end]);
            headers.splice(link_end..link_end, [outer, Header::Gre(Gre::default())]);
        }
        Deviation::TunnelKind if inner == link_end + 1 => headers.insert(inner, Header::Gre(Gre::default())),
        Deviation::TunnelKind if inner == link_end + 2 => drop(headers.remove(link_end + 1)),
        Deviation::TunnelKey if tunnelled => alter(headers, link_end + 1, FieldName::Key, |key| key ^ 1)?,
        Deviation::TunnelAddress if tunnelled => alter(headers, link_end, FieldName::Source, |source| source ^ 1)?,
        // The frame becomes the second of two fragments; the first, of eight bytes, is lost.
        Deviation::Fragmented if matches!(headers.get(inner + 1), Some(Header::Udp(_))) => {
            headers.remove(inner + 1);
            let set = [(FieldName::Protocol, u128::from(UDP)), (FieldName::FragmentOffset, 1)];
            set.into_iter().all(|(name, bits)| headers[inner].set(name, bits)).then_some(())?;
        }
        Deviation::Dscp => alter(headers, inner, FieldName::Dscp, |dscp| dscp ^ 1)?,
        Deviation::Ecn => alter(headers, inner, FieldName::Ecn, |ecn| if ecn == 3 { 0 } else { 3 })?,
        Deviation::Ttl if headers[inner].kind() == HeaderKind::Ipv4 => alter(headers, inner, FieldName::Ttl, one_less)?,
        Deviation::Ttl => alter(headers, inner, FieldName::HopLimit, one_less)?,
        _ => return None,
    }
    Some(())
}

fn is_ip(header: &Header) -> bool {
    matches!(header.kind(), HeaderKind::Ipv4 | HeaderKind::Ipv6)
}

/// Position of the headers of this kind before the outermost IP header, or the position where they would be if there
/// are none.
fn range(headers: &[Header], link_end: usize, kind: HeaderKind) -> Range<usize> {
    let link = &headers[..link_end];
    let count = link.iter().filter(|h| h.kind() == kind).count();
    // Tags come first.
    let start = link.iter().position(|h| h.kind() == kind).unwrap_or(1);
    start..start + count
}

/// Changes the value of a field; `None` if the header does not have it.
fn alter(headers: &mut [Header], at: usize, name: FieldName, with: impl Fn(u128) -> u128) -> Option<()> {
    let header = headers.get_mut(at)?;
    let value = header.field(name)?.bits(0);
    header.set(name, with(value)).then_some(())
}

/// The TTL after one more router. If that would be 0, one more than `ttl` instead.
fn one_less(ttl: u128) -> u128 {
    if ttl > 1 { ttl - 1 } else { ttl + 1 }
}

/// A tunnel header for this packet, with the same family and addresses.
fn outer(packet: &Header) -> Header {
    match packet {
        Header::Ipv6(inner) => Header::Ipv6(Ipv6 {
            source: inner.source.clone(),
            destination: inner.destination.clone(),
            ..Ipv6::default()
        }),
        Header::Ipv4(inner) => Header::Ipv4(Ipv4 {
            source: inner.source.clone(),
            destination: inner.destination.clone(),
            ..Ipv4::default()
        }),
        other => other.clone(),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use drophammer_model::traffic::Octets;
    use drophammer_wire::stack::is_intact;

    const ETHERNET: &str = r#"{"ethernet":{"source":"02:00:00:00:00:01","destination":"02:00:00:00:00:02"}}"#;
    const IPV4: &str = r#"{"ipv4":{"source":"192.0.2.1","destination":"198.51.100.1","dscp":46,"ttl":7}}"#;
    const IPV6: &str = r#"{"ipv6":{"source":"2001:db8::1","destination":"2001:db8::2","hop_limit":1}}"#;
    const UDP: &str = r#"{"udp":{}},{"raw":{"bytes":"000102030405060708090a0b0c0d0e0f1011121314151617"}}"#;

    fn frame(headers: &[&str]) -> Vec<u8> {
        let text = format!("[{ETHERNET},{}]", headers.join(","));
        let headers: Vec<Header> = serde_json::from_str(&text).unwrap();
        let payload = Payload::Plain(&|_| {});
        compile(&headers, fit(&headers, FrameSize::Ip(0), payload).unwrap(), payload).unwrap().bytes
    }

    /// The headers after the change. Checks that the payload is unchanged.
    fn after(before: &[u8], change: Deviation) -> Option<Vec<Header>> {
        let bytes = changed(before, change)?;
        assert!(is_intact(&bytes), "{change}");
        assert_eq!(bytes[locate(&bytes).payload()], before[locate(before).payload()], "{change}");
        assert!(bytes.len() >= 60);
        let mut headers = decode(&bytes).headers;
        headers.retain(|h| h.kind() != HeaderKind::Raw);
        Some(headers)
    }

    fn values(headers: &[Header], kind: HeaderKind, name: FieldName) -> Vec<u128> {
        let of_kind = headers.iter().filter(|h| h.kind() == kind);
        of_kind.map(|h| h.field(name).map_or(0, |field| field.bits(0))).collect()
    }

    #[test]
    fn labels_go_come_and_change() {
        let two = frame(&[
            r#"{"vlan":{"vid":9}}"#,
            r#"{"mpls":{"label":100,"tc":3,"ttl":9}}"#,
            r#"{"mpls":{"label":200}}"#,
            IPV4,
            UDP,
        ]);
        let found = |change, name| values(&after(&two, change).unwrap(), HeaderKind::Mpls, name);
        assert_eq!(found(Deviation::LabelMissing, FieldName::Label), [100]);
        assert_eq!(found(Deviation::LabelUnexpected, FieldName::Label), [100, 200, 16]);
        assert_eq!(found(Deviation::Label, FieldName::Label), [101, 200]);
        assert_eq!(found(Deviation::LabelTc, FieldName::Tc), [2, 0]);
        assert_eq!(found(Deviation::LabelTtl, FieldName::Ttl), [8, 64]);
        let one = frame(&[r#"{"mpls":{"label":100}}"#, IPV6, UDP]);
        let kinds = |headers: Vec<Header>| headers.iter().map(Header::kind).collect::<Vec<_>>();
        let ethernet_ipv6 = [HeaderKind::Ethernet, HeaderKind::Ipv6, HeaderKind::Udp];
        assert_eq!(kinds(after(&one, Deviation::LabelMissing).unwrap()), ethernet_ipv6);
    }

    #[test]
    fn the_innermost_tag_is_missing_or_too_many_and_the_outermost_wrong() {
        let two = frame(&[r#"{"vlan":{"vid":4094,"pcp":7}}"#, r#"{"vlan":{"vid":200}}"#, IPV4, UDP]);
        let found = |change, name| values(&after(&two, change).unwrap(), HeaderKind::Vlan, name);
        assert_eq!(found(Deviation::VlanMissing, FieldName::Vid), [4094]);
        assert_eq!(found(Deviation::VlanUnexpected, FieldName::Vid), [4094, 200, 4094]);
        assert_eq!(found(Deviation::VlanId, FieldName::Vid), [1, 200]);
        assert_eq!(found(Deviation::VlanPriority, FieldName::Pcp), [6, 0]);
    }

    #[test]
    fn tunnels_of_both_kinds() {
        let gre = frame(&[IPV6, r#"{"gre":{"key":8,"checksum_present":true}}"#, IPV4, UDP]);
        let in_ip = frame(&[IPV4, IPV6, UDP]);
        let kinds = |frame: &[u8], change| {
            let headers = after(frame, change)?;
            Some(headers[1..].iter().map(Header::kind).collect::<Vec<_>>())
        };
        use HeaderKind as H;
        assert_eq!(kinds(&gre, Deviation::TunnelMissing).unwrap(), [H::Ipv4, H::Udp]);
        assert_eq!(kinds(&gre, Deviation::TunnelKind).unwrap(), [H::Ipv6, H::Ipv4, H::Udp]);
        assert_eq!(kinds(&in_ip, Deviation::TunnelKind).unwrap(), [H::Ipv4, H::Gre, H::Ipv6, H::Udp]);
        assert_eq!(values(&after(&gre, Deviation::TunnelKey).unwrap(), H::Gre, FieldName::Key), [9]);
        let plain = frame(&[IPV6, UDP]);
        assert_eq!(kinds(&plain, Deviation::TunnelUnexpected).unwrap(), [H::Ipv6, H::Gre, H::Ipv6, H::Udp]);
        // A tester checks the TTL of the innermost packet.
        let ttl = after(&gre, Deviation::Ttl).unwrap();
        assert_eq!(values(&ttl, H::Ipv4, FieldName::Ttl), [6]);
        assert_eq!(values(&ttl, H::Ipv6, FieldName::HopLimit), [1]);
        assert_eq!(values(&after(&plain, Deviation::Ttl).unwrap(), H::Ipv6, FieldName::HopLimit), [2], "not 0");
    }

    #[test]
    fn the_ttl_that_a_router_decrements_is_that_of_the_outermost_header() {
        let kept = |headers: &[&str]| {
            let mut bytes = frame(headers);
            assert!(undo_decrement(&mut bytes) && is_intact(&bytes));
            let headers = decode(&bytes).headers;
            [
                (HeaderKind::Mpls, FieldName::Ttl),
                (HeaderKind::Ipv4, FieldName::Ttl),
                (HeaderKind::Ipv6, FieldName::HopLimit),
            ]
            .map(|(kind, name)| values(&headers, kind, name))
        };
        let none: Vec<u128> = vec![];
        assert_eq!(kept(&[r#"{"vlan":{"vid":9}}"#, IPV4, UDP]), [none.clone(), vec![8], none.clone()]);
        assert_eq!(kept(&[IPV6, IPV4, UDP]), [none.clone(), vec![7], vec![2]]);
        assert_eq!(
            kept(&[r#"{"mpls":{"label":100,"ttl":9}}"#, r#"{"mpls":{"label":7,"ttl":3}}"#, IPV4, UDP]),
            [vec![10, 3], vec![7], none]
        );
        assert!(!undo_decrement(&mut [0; 60]));
    }

    #[test]
    fn what_is_not_there_cannot_be_changed() {
        let plain = frame(&[IPV4, UDP]);
        let possible = Deviation::ALL.iter().filter(|change| changed(&plain, **change).is_some()).copied();
        assert_eq!(
            possible.collect::<Vec<_>>(),
            [
                Deviation::VlanUnexpected,
                Deviation::LabelUnexpected,
                Deviation::TunnelUnexpected,
                Deviation::Fragmented,
                Deviation::Dscp,
                Deviation::Ecn,
                Deviation::Ttl,
            ]
        );
        assert_eq!(changed(&[0; 60], Deviation::Dscp), None);
    }

    #[test]
    fn a_wrong_checksum_stays_wrong_and_another_payload_as_it_is() {
        let wrong = frame(&[IPV4, r#"{"udp":{"checksum":4660}},{"raw":{"bytes":"00010203"}}"#]);
        let bytes = changed(&wrong, Deviation::VlanUnexpected).unwrap();
        let kinds: Vec<_> = locate(&bytes).wrong_checksums(&bytes).map(|c| c.header).collect();
        assert_eq!(kinds, [3]);
        let other = frame(&[
            r#"{"ipv4":{"source":"192.0.2.1","destination":"198.51.100.1","protocol":253}}"#,
            r#"{"raw":{"bytes":"0badcafe"}}"#,
        ]);
        let headers = decode(&changed(&other, Deviation::Dscp).unwrap()).headers;
        assert_eq!(
            headers.last(),
            Some(&Header::Raw(drophammer_model::traffic::Raw { bytes: Octets(vec![0x0b, 0xad, 0xca, 0xfe]) }))
        );
    }
}
