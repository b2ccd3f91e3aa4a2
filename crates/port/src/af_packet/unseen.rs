//! Frames that a tap took from the device behind it, and that the kernel threw away before they reached the port's socket.
//!
//! No counter of the kernel has them alone: `rx_dropped` of an interface also counts frames that its sockets have got and no
//! protocol of the kernel takes, those with two VLAN tags for example. So they are what the interface received less what
//! came to the socket, dropped there or not.

use std::fs::File;
use std::os::unix::fs::FileExt;

/// What a tap received, compared with what its only socket saw.
#[derive(Debug)]
pub(super) struct Unseen {
    /// Frames that the interface received, as text.
    received: File,
    seen: Difference,
}

/// Frames that an interface received less those that its socket saw.
#[derive(Debug, Default, PartialEq, Eq)]
struct Difference {
    /// What the interface had received when the socket began to count.
    before: u64,
    at_socket: u64,
    lost: u64,
}

impl Difference {
    /// The largest difference so far. A frame between the two counts is one that the socket has and the interface counts
    /// later, so a single difference may be too small, but not too large.
    fn update(&mut self, at_interface: u64, further_at_socket: u64) -> u64 {
        self.at_socket += further_at_socket;
        let now = at_interface.saturating_sub(self.before).saturating_sub(self.at_socket);
        self.lost = self.lost.max(now);
        self.lost
    }
}

impl Unseen {
    /// `None` where the system does not say what the interface received.
    pub fn open(interface: &str) -> Option<Unseen> {
        let received = File::open(format!("/sys/class/net/{interface}/statistics/rx_packets")).ok()?;
        Some(Unseen { received, seen: Difference::default() })
    }

    /// Begins again: the socket's own count is 0 from now on.
    pub fn begin(&mut self) {
        self.seen = Difference { before: self.at_interface().unwrap_or(0), ..Difference::default() };
    }

    /// Frames that the interface received since it came to be. To be read before the socket's count.
    pub fn at_interface(&self) -> Option<u64> {
        let mut text = [0; 24];
        let length = self.received.read_at(&mut text, 0).ok()?;
        std::str::from_utf8(&text[..length]).ok()?.trim().parse().ok()
    }

    /// Frames that were lost between the two, once the interface had received so many and so many further ones had come to the
    /// socket.
    pub fn update(&mut self, at_interface: Option<u64>, further_at_socket: u32) -> u64 {
        // An interface that is gone has received no more than what was seen of it.
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
        // Ten frames, two of them at the socket before the interface counted them.
        assert_eq!((all.update(108, 10), all.update(110, 0)), (0, 0));
        assert_eq!(all.update(120, 7), 3, "three of ten did not come to the socket");
        assert_eq!((all.update(124, 5), all.update(125, 0)), (3, 3), "one is being counted");
        assert_eq!(all.update(0, 0), 3, "the interface is gone");
    }
}
