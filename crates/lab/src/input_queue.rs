//! The input queue of a DUT in a network namespace.
//!
//! A veth pair has a ring of 256 frames in each direction: half a millisecond at 500,000 frames per second. If anything
//! delays the forwarding thread for longer, frames get lost, whereas network cards have room for 512 to 4,096 frames. So
//! the tester's end of each link gets a queueing discipline in front of the ring. Since Linux 6.16, veth makes the
//! discipline wait while the ring is full; earlier kernels drop the frames.

use crate::environment::kernel_release;
use crate::{LabError, Netns};
use drophammer_model::suite::DEFAULT_INPUT_QUEUE;

/// Adds a queueing discipline to an interface.
pub(crate) fn add_qdisc(netns: &Netns, interface: &str, args: &[&str]) -> Result<(), LabError> {
    netns.output("tc", "iproute2", &[&["qdisc", "add", "dev", interface], args].concat(), None).map(drop)
}

/// Frames in the ring of a veth pair.
const RING: u32 = 256;
/// The first kernel whose veth makes the discipline wait.
const FIRST: (u32, u32) = (6, 16);

/// The queue of every link of a lab.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct InputQueue {
    /// Frames in front of the ring; 0 if there is only the ring.
    frames: u32,
    /// True if the suite asks for a queue that this kernel does not support.
    too_old: bool,
}

/// Default number of frames in the input queue of a lab; `Err` with the size of the ring if this kernel supports only
/// the ring.
pub fn here() -> Result<u32, u32> {
    let queue = InputQueue::new(DEFAULT_INPUT_QUEUE);
    if queue.too_old { Err(RING) } else { Ok(queue.frames) }
}

impl InputQueue {
    /// A queue of `frames` if this kernel supports it; 0 means only the ring.
    pub(crate) fn new(frames: u32) -> InputQueue {
        InputQueue::on(frames, &kernel_release())
    }

    fn on(frames: u32, release: &str) -> InputQueue {
        let mut numbers = release.split(|c: char| !c.is_ascii_digit()).map(|n| n.parse::<u32>().unwrap_or(0));
        let version = (numbers.next().unwrap_or(0), numbers.next().unwrap_or(0));
        let can = version >= FIRST;
        InputQueue { frames: if can { frames } else { 0 }, too_old: !can && frames > 0 }
    }

    /// Puts the queue in front of the ring of `interface`, which has `queues` transmit queues.
    pub(crate) fn add(self, netns: &Netns, interface: &str, queues: u32) -> Result<(), LabError> {
        if self.frames == 0 {
            return Ok(());
        }
        let tc = |args: &[&str]| add_qdisc(netns, interface, args);
        let limit = self.frames.to_string();
        if queues <= 1 {
            return tc(&["root", "pfifo", "limit", &limit]);
        }
        tc(&["root", "handle", "1:", "mq"])?;
        (1..=queues).try_for_each(|queue| tc(&["parent", &format!("1:{queue:x}"), "pfifo", "limit", &limit]))
    }

    /// Frames that can wait at the slow end of a link between two routers.
    pub(crate) fn length(self) -> u32 {
        self.frames.max(RING)
    }

    /// Description for the record.
    pub(crate) fn text(self) -> String {
        let (first, second) = FIRST;
        match (self.frames, self.too_old) {
            (0, false) => format!("; input queue: the {RING} frames of the ring of a veth pair"),
            (0, true) => format!(
                "; input queue: the {RING} frames of the ring of a veth pair; a longer queue needs Linux \
                 {first}.{second} or later"
            ),
            (frames, _) => format!("; input queue: {frames} frames per link before the ring of {RING}"),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn old_kernels_have_the_ring_alone() {
        for (release, frames) in [("6.18.44-fc-v669", 2_048), ("6.16", 2_048), ("7.0.1", 2_048), ("6.9.0", 0), ("", 0)]
        {
            assert_eq!(InputQueue::on(2_048, release).frames, frames, "{release}");
        }
        assert!(InputQueue::on(2_048, "5.10.0").text().contains("needs Linux 6.16 or later"));
        assert!(!InputQueue::on(0, "5.10.0").text().contains("needs Linux"));
        assert!(InputQueue::on(2_048, "6.16.0").text().contains("2048 frames per link"));
    }
}
