//! A stream of a flow: what it sends, and how much of that has left.

use super::windows::Windows;
use drophammer_model::trial::PortIndex;
use std::time::Duration;

/// A stream of a flow in the traffic of the rig.
pub struct Stream {
    pub windows: Windows,
    /// Its row, and its sending port.
    pub row: usize,
    pub from: PortIndex,
    pub sizes: Vec<u64>,
    /// See [`crate::build::flows::Stream::turn`].
    pub turn: (usize, usize),
    /// Its number in the traffic; `None` if its gateway was unknown when the traffic began.
    pub number: Option<usize>,
    /// Frames sent in the traffic, and how many of them before it started.
    pub offered: u64,
    pub base: u64,
    /// The same with frames that the tester's own ring refused.
    pub handed: u64,
    pub base_handed: u64,
    /// Planned frames that never leave.
    pub dropped: u64,
    /// While it finishes: since when, in time that the ports were driven.
    pub finishes: Option<Duration>,
}

impl Stream {
    /// Frames that are planned and have not left.
    pub fn late(&self) -> u64 {
        (self.base_handed + self.windows.planned()).saturating_sub(self.handed + self.dropped)
    }

    /// Bytes of the first `frames` frames of the traffic.
    pub fn bytes(&self, frames: u64) -> u64 {
        let (round, length) = (self.sizes.iter().sum::<u64>(), self.sizes.len() as u64);
        frames / length * round + self.sizes.iter().take((frames % length) as usize).sum::<u64>()
    }
}
