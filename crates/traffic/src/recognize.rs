//! Distinguishes test frames from all other frames, wherever the signature is.

use crate::payload::Pattern;
use drophammer_model::traffic::HeaderKind;
use drophammer_wire::ipv4;
use drophammer_wire::signature::{self, TEST_PORT};
use drophammer_wire::stack::{Layers, Stop, locate};

/// A decoded frame that may be a test frame.
pub(crate) struct Candidate<'a> {
    pub(crate) layers: Layers,
    /// The payload before the signature.
    pub(crate) payload: &'a [u8],
    pub(crate) signature: &'a [u8; signature::LEN],
    /// True if all headers up to a transport header are complete.
    pub(crate) whole: bool,
    /// True if all headers are complete but there is no transport header.
    pub(crate) without_transport: bool,
    /// True for a fragment of a packet.
    pub(crate) fragment: bool,
    /// True if all checksums are correct.
    pub(crate) sums_hold: bool,
    /// True for a datagram to the test port. It counts as a test frame whatever its signature is.
    pub(crate) to_test_port: bool,
}

impl Candidate<'_> {
    /// True if it looks like a test frame, whatever its signature is. One in 65,536 foreign frames has a valid check by
    /// chance, but they hardly ever have our port or our pattern.
    pub(crate) fn looks_ours(&self, pattern: &Pattern) -> bool {
        self.to_test_port || pattern.begins(self.payload)
    }
}

/// Decodes `frame`. Returns `None` if it has no room for a signature.
pub(crate) fn candidate(frame: &[u8]) -> Option<Candidate<'_>> {
    let layers = locate(frame);
    // A packet shorter than its length field was truncated on its way. Read the bytes that are there.
    let (payload, signature) = frame.get(layers.payload())?.split_last_chunk()?;
    let to_test_port = is_to_test_port(&layers, frame);
    let whole = layers.stop() == Stop::Transport && fills_its_packet(&layers);
    let without_transport = layers.stop() == Stop::Unknown;
    let fragment = layers.stop() == Stop::Fragment;
    let sums_hold = layers.checksums(frame).all(|checksum| checksum.holds(frame));
    Some(Candidate { layers, payload, signature, whole, without_transport, fragment, sums_hold, to_test_port })
}

/// Recognises the test frames of a run, for example to leave them out of a capture.
#[derive(Clone, Debug)]
pub struct TestTraffic {
    pattern: Pattern,
}

impl TestTraffic {
    /// Creates the value for a run with this seed ([`crate::Timing::seed`]).
    pub fn of_run(seed: u64) -> TestTraffic {
        TestTraffic { pattern: Pattern::new(seed) }
    }

    /// True if `frame` is a test frame. It must have room for a signature, and be a datagram to the test port (behind
    /// any tags, labels and tunnels) or have a payload that starts with the run's pattern. Fragments are not
    /// recognised, nor are frames of other protocols with less than 4 bytes of payload before the signature.
    pub fn has(&self, frame: &[u8]) -> bool {
        candidate(frame).is_some_and(|found| !found.fragment && found.looks_ours(&self.pattern))
    }
}

/// True for a datagram to the test port. By the packet length, a truncated datagram has no UDP header, but its bytes
/// are still read.
fn is_to_test_port(layers: &Layers, frame: &[u8]) -> bool {
    let Some(last) = layers.last() else { return false };
    let udp = match last.kind {
        HeaderKind::Udp => last.offset(),
        HeaderKind::Ipv4 if frame[last.offset() + 9] == ipv4::protocol::UDP => last.offset() + last.length(),
        HeaderKind::Ipv6 if frame[last.offset() + 6] == ipv4::protocol::UDP => last.offset() + last.length(),
        _ => return false,
    };
    frame.get(udp + 2..udp + 4) == Some(&TEST_PORT.to_be_bytes()[..])
}

/// True if the datagram ends where its packet ends.
fn fills_its_packet(layers: &Layers) -> bool {
    match &layers[..] {
        [.., below, last] if last.kind == HeaderKind::Udp => last.end() == below.end(),
        _ => true,
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use drophammer_model::size::FrameSize;
    use drophammer_model::traffic::{Bits, Header, Ipv4, Mpls, Tcp, Udp, Vlan};
    use drophammer_wire::stack::{Payload, compile};
    use std::net::Ipv4Addr;

    /// Builds a frame of `size` bytes with the payload of a run with seed `seed`.
    fn frame(between: &[Header], transport: Header, seed: u64, size: u16) -> Vec<u8> {
        let pattern = Pattern::new(seed);
        let own = |i| Some(Ipv4Addr::new(192, 0, 2, i).into());
        let ip = Header::Ipv4(Ipv4 { source: own(1), destination: own(2), ..Ipv4::default() });
        let mut headers = vec![Header::Ethernet(Default::default())];
        if let Header::Ethernet(ethernet) = &mut headers[0] {
            let mac = drophammer_wire::MacAddr::local(1);
            (ethernet.source, ethernet.destination) = (Some(mac.into()), Some(mac.into()));
        }
        headers.extend_from_slice(between);
        headers.extend([ip, transport]);
        let fill = |bytes: &mut [u8]| bytes.copy_from_slice(pattern.bytes(bytes.len()));
        compile(&headers, FrameSize::Frame(size), Payload::Signed(&fill)).unwrap().bytes
    }

    #[test]
    fn test_frames_are_recognised_under_any_headers() {
        let run = TestTraffic::of_run(7);
        let tag = Header::Vlan(Vlan { vid: Bits::new(100).into(), ..Vlan::default() });
        let label = Header::Mpls(Mpls { label: Bits::new(16).into(), ..Mpls::default() });
        let (udp, tcp) = (Header::Udp(Udp::default()), Header::Tcp(Tcp::default()));
        let elsewhere = Header::Udp(Udp { destination_port: 53.into(), ..Udp::default() });
        let tags = [tag.clone(), tag];
        for between in [&[][..], &tags[..1], &tags, &[label.clone(), label]] {
            assert!(run.has(&frame(between, udp.clone(), 8, 80)), "the port, whatever the payload");
            assert!(
                run.has(&frame(between, tcp.clone(), 7, 128)) && run.has(&frame(between, elsewhere.clone(), 7, 128))
            );
            assert!(!run.has(&frame(between, tcp.clone(), 8, 128)), "the bytes of another run");
            assert!(!run.has(&frame(between, elsewhere.clone(), 8, 128)));
        }
        assert!(!run.has(&[0xff; 60]) && !run.has(&[]));
    }
}
