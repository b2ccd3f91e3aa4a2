//! A test frame with all constant bytes and the sums over them, so that only addresses, signature and checksums are
//! written per frame.
//!
//! [`drophammer_wire::stack`] provides the offsets in a frame. Frames with one IP packet that contains UDP or TCP,
//! behind any tags and labels, are patched with precomputed sums. For Ethernet, IPv4 and UDP the offsets are constants.
//! All other frames, and frames with other varying fields, use the general path, which writes fields one by one and
//! recomputes checksums.

use crate::payload::Pattern;
use drophammer_model::size::FrameSize;
use drophammer_model::traffic::{AnyField, FieldName, Header, HeaderKind};
use drophammer_model::trial::Family;
use drophammer_wire::frame::HEAD;
use drophammer_wire::signature;
use drophammer_wire::stack::{self, Checksum, ChecksumKind, Compiled, Payload, Place, StackError};
use drophammer_wire::{checksum, ethernet, ipv4, ipv6, udp};
use std::sync::Arc;

/// Length of the shortest frame in bytes, without FCS.
const SHORTEST: usize = ethernet::MIN_WITHOUT_FCS;

/// Returns a hash that identifies `bytes` (FNV-1a, 64 bits); never 0.
fn name(bytes: &[u8]) -> u64 {
    let hash = |hash: u64, byte: &u8| (hash ^ u64::from(*byte)).wrapping_mul(0x0100_0000_01b3);
    bytes.iter().fold(0xcbf2_9ce4_8422_2325, hash).max(1)
}

/// A frame of one size and one flow.
#[derive(Clone, Debug)]
pub struct Template {
    bytes: Vec<u8>,
    family: Family,
    /// Offset of the outermost IP header; the end of the frame if there is none.
    ip_at: usize,
    /// Offset of the UDP or TCP checksum from the IP header.
    checksum_at: usize,
    is_udp: bool,
    /// Sum over the IPv4 header with both addresses zero. All sums here add little-endian words.
    ip_sum: u64,
    /// Sum over pseudo-header and datagram, with addresses, signature and checksum zero.
    udp_sum: u64,
    signature_at: usize,
    signature_is_odd: bool,
    /// Hash of the bytes after the head.
    body: u64,
    way: Way,
}

/// How frames are patched.
#[derive(Clone, Debug)]
enum Way {
    /// Ethernet, IPv4 without options, and UDP: with sums, at constant offsets.
    Ipv4Udp,
    /// One IP packet without options, with UDP or TCP: with sums.
    Sums,
    /// Any other frame.
    Fields(Box<General>),
}

/// Fields written on the general path.
#[derive(Clone, Debug)]
struct General {
    source: Option<Place>,
    destination: Option<Place>,
    /// Fields that vary from frame to frame.
    fields: Vec<Varying>,
    /// Checksums in the order of computation.
    checksums: Vec<Checksum>,
}

/// A field that varies.
#[derive(Clone)]
struct Varying {
    place: Place,
    values: Arc<dyn AnyField + Send + Sync>,
}

impl std::fmt::Debug for Varying {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(f, "{:?}: {} values", self.place, self.values.count())
    }
}

/// True if sums are enough to patch the frame: one IP packet without options, UDP or TCP, and no other checksum.
fn is_simple(compiled: &Compiled, ip: usize) -> bool {
    let [l3, l4] = &compiled.layers[ip..] else { return false };
    let plain_ip = match l3.kind {
        HeaderKind::Ipv4 => l3.length() == ipv4::LEN && compiled.checksums.len() == 2,
        HeaderKind::Ipv6 => l3.length() == ipv6::LEN && compiled.checksums.len() == 1,
        _ => false,
    };
    plain_ip && matches!(l4.kind, HeaderKind::Udp | HeaderKind::Tcp)
}

/// Returns both IPv4 addresses as eight bytes in wire order.
#[inline(always)]
fn addresses_on_wire(source: u128, destination: u128) -> u64 {
    (u64::from(source as u32) << 32 | u64::from(destination as u32)).swap_bytes()
}

impl Template {
    /// Builds the frame of `size`, or larger if headers and signature need it. If the outermost IP header lacks
    /// addresses, [`Template::patch`] writes them.
    ///
    /// # Errors
    /// The headers do not form a frame.
    pub fn new(headers: &[Header], family: Family, size: FrameSize, pattern: &Pattern) -> Result<Template, StackError> {
        let mut headers = headers.to_vec();
        let mut patched = [false; 2];
        let outermost = headers.iter_mut().find(|h| matches!(h.kind(), HeaderKind::Ipv4 | HeaderKind::Ipv6));
        if let Some(ip) = outermost {
            for (name, patched) in [FieldName::Source, FieldName::Destination].into_iter().zip(&mut patched) {
                if ip.field(name).is_none() {
                    *patched = ip.set(name, 0);
                }
            }
        }
        let fill = |payload: &mut [u8]| payload.copy_from_slice(pattern.bytes(payload.len()));
        let payload = Payload::Signed(&fill);
        let mut compiled = stack::compile(&headers, stack::fit(&headers, size, payload)?, payload)?;
        let ip = compiled.layers.outermost_ip();
        let place = |which: usize, name| compiled.place(ip?, name).copied().filter(|_| patched[which]);
        let (source, destination) = (place(0, FieldName::Source), place(1, FieldName::Destination));
        let fields: Vec<Varying> = compiled
            .fields
            .iter()
            .filter_map(|place| {
                let values = headers[place.header].field(place.field).filter(|field| field.count() > 1)?;
                Some(Varying { place: *place, values: values.shared() })
            })
            .collect();
        let signature_at = compiled.signature_at.unwrap_or(compiled.bytes.len());
        let simple = ip.filter(|ip| fields.is_empty() && patched == [true; 2] && is_simple(&compiled, *ip));
        let way = match simple {
            Some(_) => Way::Sums,
            None => {
                let checksums = compiled.checksums.clone();
                Way::Fields(Box::new(General { source, destination, fields, checksums }))
            }
        };
        let mut template = Template {
            family,
            ip_at: ip.map_or(compiled.bytes.len(), |ip| compiled.layers[ip].offset()),
            checksum_at: 0,
            is_udp: false,
            ip_sum: 0,
            udp_sum: 0,
            signature_at,
            signature_is_odd: false,
            body: 0,
            way,
            bytes: Vec::new(),
        };
        if let Some(ip) = simple {
            template.sum_up(&mut compiled, ip);
            if family == Family::Ipv4 && template.is_plain() {
                template.way = Way::Ipv4Udp;
            }
        }
        template.body = name(compiled.bytes.get(HEAD..).unwrap_or_default());
        template.bytes = compiled.bytes;
        Ok(template)
    }

    /// Sums up the constant bytes, and sets the checksums to zero.
    fn sum_up(&mut self, compiled: &mut Compiled, ip: usize) {
        let (bytes, l3) = (&mut compiled.bytes, &compiled.layers[ip]);
        for checksum in &compiled.checksums {
            bytes[checksum.at..checksum.at + 2].fill(0);
            let little_endian = |sum: u64| u64::from(checksum::fold(sum).swap_bytes());
            match checksum.kind {
                ChecksumKind::Ipv4Header => {
                    self.ip_sum = checksum::sum_le(&bytes[l3.offset()..l3.offset() + l3.length()]);
                }
                kind => {
                    let covered = checksum.covers[2].range();
                    self.is_udp = kind == ChecksumKind::Udp;
                    self.checksum_at = checksum.at - l3.offset();
                    self.signature_is_odd = (self.signature_at - covered.start) % 2 == 1;
                    self.udp_sum = little_endian(checksum.constant) + checksum::sum_le(&bytes[covered]);
                }
            }
        }
    }

    /// Returns the length of the frame without FCS.
    #[inline]
    pub fn len(&self) -> usize {
        self.bytes.len()
    }
    /// Never true.
    pub fn is_empty(&self) -> bool {
        self.bytes.is_empty()
    }

    /// Returns the length of the frame in bytes, FCS included.
    pub fn frame_bytes(&self) -> u64 {
        self.bytes.len() as u64 + 4
    }

    /// Returns the frame with addresses, signature and checksums zero.
    pub(crate) fn bytes(&self) -> &[u8] {
        &self.bytes
    }

    /// Returns the IP version.
    pub(crate) fn family(&self) -> Family {
        self.family
    }

    /// Returns the sums (of little-endian words) over the IPv4 header, and over pseudo-header and datagram, with the
    /// same fields zero.
    pub(crate) fn sums(&self) -> (u64, u64) {
        (self.ip_sum, self.udp_sum)
    }

    /// True for Ethernet, IP and UDP if only addresses vary.
    pub(crate) fn is_plain(&self) -> bool {
        !matches!(self.way, Way::Fields(_)) && self.is_udp && self.ip_at == ethernet::LEN
    }

    /// Returns the offset of the signature.
    pub(crate) fn signature_at(&self) -> usize {
        self.signature_at
    }

    /// Writes the constant bytes into `slot`, which has the template's length.
    #[inline]
    pub fn write(&self, slot: &mut [u8]) {
        slot.copy_from_slice(&self.bytes);
    }

    /// Returns the hash of the bytes after the head, for [`drophammer_wire::frame::Frame::hold`].
    #[inline]
    pub(crate) fn body(&self) -> u64 {
        self.body
    }

    /// Writes the head into `slot`, which already contains the rest of the template.
    #[inline]
    pub(crate) fn write_head(&self, slot: &mut [u8]) {
        // The copy has a constant length for most frames, and for the shortest frames.
        match (slot.first_chunk_mut::<HEAD>(), self.bytes.first_chunk::<HEAD>()) {
            (Some(slot), Some(head)) => *slot = *head,
            _ => match (<&mut [u8; SHORTEST]>::try_from(&mut *slot), <&[u8; SHORTEST]>::try_from(&self.bytes[..])) {
                (Ok(slot), Ok(head)) => *slot = *head,
                _ => slot.copy_from_slice(&self.bytes),
            },
        }
    }

    /// Turns `slot`, which contains this template, into frame `index` of its flow, with these addresses (IPv4 in the
    /// low 32 bits) and this signature.
    #[inline]
    pub fn patch(
        &self,
        slot: &mut [u8],
        index: u64,
        source: u128,
        destination: u128,
        signature: &[u8; signature::LEN],
    ) {
        match &self.way {
            Way::Fields(general) => return self.patch_fields(general, slot, index, source, destination, signature),
            Way::Ipv4Udp => {
                let tail = self.tail(signature);
                // A single length check for all writes.
                let head: &mut [u8; 42] = slot.first_chunk_mut().expect("a UDP frame has at least 42 bytes");
                let addresses = addresses_on_wire(source, destination);
                head[26..34].copy_from_slice(&addresses.to_le_bytes());
                let addresses = checksum::halves(addresses);
                head[24..26].copy_from_slice(&checksum::finish(self.ip_sum + addresses).to_le_bytes());
                head[40..42].copy_from_slice(&udp::field(self.udp_sum + addresses + tail).to_le_bytes());
            }
            Way::Sums => self.patch_packet(&mut slot[self.ip_at..], source, destination, self.tail(signature)),
        }
        slot[self.signature_at..self.signature_at + signature::LEN].copy_from_slice(signature);
    }

    /// Returns the sum over `signature` at its offset in the datagram.
    #[inline(always)]
    fn tail(&self, signature: &[u8; signature::LEN]) -> u64 {
        let tail = checksum::sum_le(signature);
        if self.signature_is_odd { checksum::swap(tail) } else { tail }
    }

    /// Patches `packet`; `tail` is the sum over the signature.
    #[inline]
    fn patch_packet(&self, packet: &mut [u8], source: u128, destination: u128, tail: u64) {
        let addresses = match self.family {
            Family::Ipv4 => {
                let head: &mut [u8; ipv4::LEN] = packet.first_chunk_mut().expect("an IPv4 packet has its header");
                let addresses = addresses_on_wire(source, destination);
                head[12..20].copy_from_slice(&addresses.to_le_bytes());
                let addresses = checksum::halves(addresses);
                head[10..12].copy_from_slice(&checksum::finish(self.ip_sum + addresses).to_le_bytes());
                addresses
            }
            Family::Ipv6 => {
                let head: &mut [u8; ipv6::LEN] = packet.first_chunk_mut().expect("an IPv6 packet has its header");
                head[8..24].copy_from_slice(&source.to_be_bytes());
                head[24..40].copy_from_slice(&destination.to_be_bytes());
                checksum::sum_le(&head[8..40])
            }
        };
        let sum = self.udp_sum + addresses + tail;
        let checksum = if self.is_udp { udp::field(sum) } else { checksum::finish(sum) };
        packet[self.checksum_at..self.checksum_at + 2].copy_from_slice(&checksum.to_le_bytes());
    }

    /// Patches a frame on the general path.
    #[inline(never)]
    fn patch_fields(
        &self,
        general: &General,
        slot: &mut [u8],
        index: u64,
        source: u128,
        destination: u128,
        signature: &[u8; signature::LEN],
    ) {
        for (place, address) in [(general.source, source), (general.destination, destination)] {
            if let Some(place) = place {
                place.write(slot, address);
            }
        }
        for Varying { place, values } in &general.fields {
            place.write(slot, values.bits(index));
        }
        slot[self.signature_at..self.signature_at + signature::LEN].copy_from_slice(signature);
        general.checksums.iter().for_each(|checksum| checksum.write(slot));
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::headers;
    use crate::plan::Neighbour;
    use drophammer_model::trial::{AddressRange, FlowSpec};
    use drophammer_wire::MacAddr;
    use drophammer_wire::signature::{Signature, TEST_PORT, TrialKey};
    use proptest::prelude::*;

    fn headers(family: Family) -> Vec<Header> {
        let range = AddressRange { first: "198.18.0.1".parse().unwrap(), step: 1, count: 1 };
        let flow = FlowSpec { family, ..FlowSpec::new("all", 0, 1, range, range) };
        let (mac, device) = (MacAddr::local(1), Some(MacAddr::local(2)));
        let link = Neighbour { mac, device_ipv4: device, device_ipv6: device, ..Neighbour::default() };
        headers::complete(&flow, 0, 1, &link)
    }

    proptest! {
        #[test]
        fn every_frame_is_whole(
            size in 64u16..1519, v6: bool, a: u128, b: u128, a2: u128, b2: u128, flow in 0u32..1000, sequence in 0u32..1 << 28, time: u32
        ) {
            let family = if v6 { Family::Ipv6 } else { Family::Ipv4 };
            let pattern = Pattern::new(1);
            let template = Template::new(&headers(family), family, FrameSize::Frame(size), &pattern).unwrap();
            let mut slot = vec![0; template.len()];
            template.write(&mut slot);
            let key = TrialKey::new(1, 1);
            // Patched twice: nothing of the first frame may remain in the second.
            template.patch(&mut slot, 7, a2, b2, &Signature { flow: 1, sequence: 2, time: 3 }.emit(key));
            let signature = Signature { flow, sequence, time };
            template.patch(&mut slot, 8, a, b, &signature.emit(key));

            let (_, packet) = ethernet::Repr::parse(&slot).unwrap();
            let (datagram, pseudo) = if v6 {
                let (ip, rest) = ipv6::Repr::parse(packet).unwrap();
                prop_assert_eq!((u128::from(ip.source), u128::from(ip.destination)), (a, b));
                (rest, ip.pseudo_header_sum())
            } else {
                let (ip, rest) = ipv4::Repr::parse(packet).unwrap();
                prop_assert_eq!((u32::from(ip.source), u32::from(ip.destination)), (a as u32, b as u32));
                (rest, ip.pseudo_header_sum())
            };
            let (udp, payload) = udp::Repr::parse(datagram, pseudo).unwrap();
            prop_assert_eq!(udp.destination, TEST_PORT);
            let at = payload.len() - signature::LEN;
            prop_assert_eq!(&payload[..at], pattern.bytes(at));
            let (read, check) = Signature::read(payload[at..].try_into().unwrap());
            prop_assert_eq!(read, signature);
            prop_assert!(read.belongs_to(key, check));
        }
    }
}
