//! Changes of the encapsulation of a frame, each so that an observer finds the deviation that it is called by.

use drophammer_model::size::FrameSize;
use drophammer_model::traffic::{Bits, Deviation, FieldName, Gre, Header, HeaderKind, Ipv4, Ipv6, Mpls, Vlan};
use drophammer_wire::stack::{Payload, compile, decode, fit};
use std::ops::Range;

/// VLAN identifier of a tag that should not be there.
const VID: Bits<12> = Bits::new(4094);
/// Label that should not be there: the first that is not reserved.
const LABEL: Bits<20> = Bits::new(16);

/// Changes the encapsulation of a whole frame. Lengths, types and checksums that were right are right again; what was wrong
/// stays as it is. `None` where the frame has nothing that could be changed so.
pub(crate) fn changed(frame: &[u8], change: Deviation) -> Option<Vec<u8>> {
    let mut headers = decode(frame).headers;
    apply(&mut headers, change)?;
    let payload = Payload::Plain(&|_| {});
    // All of the payload is in the headers as raw bytes, so the smallest size is the right one.
    let size = fit(&headers, FrameSize::Ip(0), payload).ok()?;
    Some(compile(&headers, size, payload).ok()?.bytes)
}

fn apply(headers: &mut Vec<Header>, change: Deviation) -> Option<()> {
    let link_end = headers.iter().position(is_ip)?;
    let inner = headers.iter().rposition(is_ip)?;
    let tags = range(headers, link_end, HeaderKind::Vlan);
    let labels = range(headers, link_end, HeaderKind::Mpls);
    let tunnelled = inner != link_end;
    match change {
        // The innermost one: the others are compared with those that must be there.
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

/// Where the headers of that kind are before the outermost IP header; where they would be, if there are none.
fn range(headers: &[Header], link_end: usize, kind: HeaderKind) -> Range<usize> {
    let link = &headers[..link_end];
    let count = link.iter().filter(|h| h.kind() == kind).count();
    // Tags come first.
    let start = link.iter().position(|h| h.kind() == kind).unwrap_or(1);
    start..start + count
}

/// Gives a field another value; `None` if the header does not have it.
fn alter(headers: &mut [Header], at: usize, name: FieldName, with: impl Fn(u128) -> u128) -> Option<()> {
    let header = headers.get_mut(at)?;
    let value = header.field(name)?.bits(0);
    header.set(name, with(value)).then_some(())
}

/// What another router would leave; where that is nothing, what this one should not.
fn one_less(ttl: u128) -> u128 {
    if ttl > 1 { ttl - 1 } else { ttl + 1 }
}

/// A header around that packet, of its family and with its addresses.
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
