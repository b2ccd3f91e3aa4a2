//! Frames that a tap received from the device behind it but that the kernel dropped before they reached the port's socket.
//!
//! No kernel counter counts exactly these frames: `rx_dropped` of an interface also includes frames that its sockets
//! received but no protocol of the kernel accepts, for example those with two VLAN tags. So they are computed as the frames
//! that the interface received minus those that reached the socket, including those dropped there.

use crate::device::number;
use std::fs::File;

/// Frames that a tap received, compared with those that its only socket saw.
#[derive(Debug)]
pub(super) struct Unseen {
    /// File with the number of frames that the interface received, as text.
    received: File,
    seen: Difference,
}

/// Frames that an interface received minus those that its socket saw.
#[derive(Debug, Default, PartialEq, Eq)]
struct Difference {
    /// Frames that the interface had received when the socket began to count.
    before: u64,
    at_socket: u64,
    lost: u64,
}

impl Difference {
    /// Returns the largest difference so far. A frame between the two counters is counted by the socket first and by the
    /// interface later, so a single difference may be too small but not too large.
    fn update(&mut self, at_interface: u64, further_at_socket: u64) -> u64 {
        self.at_socket += further_at_socket;
        let now = at_interface.saturating_sub(self.before).saturating_sub(self.at_socket);
        self.lost = self.lost.max(now);
        self.lost
    }
}

impl Unseen {
    /// `None` if the system does not report the frames that the interface received.
    pub fn open(interface: &str) -> Option<Unseen> {
        let received = File::open(format!("/sys/class/net/{interface}/statistics/rx_packets")).ok()?;
        Some(Unseen { received, seen: Difference::default() })
    }

    /// Starts again; the socket's own count starts at 0 at the same time.
    pub fn begin(&mut self) {
        self.seen = Difference { before: self.at_interface().unwrap_or(0), ..Difference::default() };
    }

    /// Frames that the interface received since its creation. Must be read before the socket's count.
    pub fn at_interface(&self) -> Option<u64> {
        number(&self.received)
    }

    /// Number of frames lost between the two, for this count of the interface and this many further frames at the socket.
    pub fn update(&mut self, at_interface: Option<u64>, further_at_socket: u32) -> u64 {
        // An interface that is gone counts as having received no further frames.
        self.seen.update(at_interface.unwrap_or(0), further_at_socket.into())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_is_between_two_counts_is_not_lost() {
        let mut all = Difference { before: 100, ..Difference::default() };
        assert_eq!(all.update(100, 0), 0);
        // Ten frames, of which the socket counted two before the interface did.
        assert_eq!((all.update(108, 10), all.update(110, 0)), (0, 0));
        assert_eq!(all.update(120, 7), 3, "three of ten did not come to the socket");
        assert_eq!((all.update(124, 5), all.update(125, 0)), (3, 3), "one is being counted");
        assert_eq!(all.update(0, 0), 3, "the interface is gone");
    }
}
