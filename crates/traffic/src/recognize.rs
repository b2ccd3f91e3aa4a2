//! Tells test traffic from everything else, wherever in a frame the signature lies.

use drophammer_model::traffic::HeaderKind;
use drophammer_wire::ipv4;
use drophammer_wire::signature::{self, TEST_PORT};
use drophammer_wire::stack::{Layers, Stop, locate};

/// A frame that may be test traffic, taken apart.
pub(crate) struct Candidate<'a> {
    pub(crate) layers: Layers,
    /// What is before the signature.
    pub(crate) payload: &'a [u8],
    pub(crate) signature: &'a [u8; signature::LEN],
    /// Is every header whole, up to a transport header?
    pub(crate) whole: bool,
    /// Is it whole but for a transport header, which there is not?
    pub(crate) without_transport: bool,
    /// Do all checksums hold?
    pub(crate) sums_hold: bool,
    /// Is it a datagram to the port of test traffic? Then it is ours, whatever its signature says.
    pub(crate) to_test_port: bool,
}

/// Takes `frame` apart; `None` where there is no room for a signature.
pub(crate) fn candidate(frame: &[u8]) -> Option<Candidate<'_>> {
    let layers = locate(frame);
    // A packet that claims more than there is was cut off on its way: it is read as far as it goes.
    let (payload, signature) = frame.get(layers.payload())?.split_last_chunk()?;
    let to_test_port = is_to_test_port(&layers, frame);
    let whole = layers.stop() == Stop::Transport && fills_its_packet(&layers);
    let without_transport = layers.stop() == Stop::Unknown;
    let sums_hold = layers.checksums(frame).all(|checksum| checksum.holds(frame));
    Some(Candidate { layers, payload, signature, whole, without_transport, sums_hold, to_test_port })
}

/// Is it a datagram to the port of test traffic? One that was cut off has no UDP header by its packet's length, but there it
/// is.
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

/// Does a datagram end where its packet does?
fn fills_its_packet(layers: &Layers) -> bool {
    match &layers[..] {
        [.., below, last] if last.kind == HeaderKind::Udp => last.end() == below.end(),
        _ => true,
    }
}
