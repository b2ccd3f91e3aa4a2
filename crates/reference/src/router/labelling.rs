//! Packets with MPLS labels, and packets that get labels.

use super::Router;
use super::forward::trim;
use super::header::IP;
use crate::labels::{self, Entry};
use drophammer_model::Instant;
use drophammer_wire::frame::Frame;

/// TTL of labels that are pushed in the pipe model.
const PIPE: u8 = 255;

impl Router {
    /// Takes a packet with labels.
    pub(super) fn take_labelled(&mut self, now: Instant, port: usize, frame: &mut Frame) -> bool {
        self.truth.transit += 1;
        self.rules_read = 0;
        let Some(outermost) = labels::outermost(frame) else {
            self.truth.dropped.malformed += 1;
            return false;
        };
        let Some(entry) = self.labels.find(outermost.label) else {
            self.truth.dropped.no_label += 1;
            return false;
        };
        if outermost.ttl <= 1 {
            self.truth.dropped.ttl += 1;
            return false;
        }
        let next_hop = entry.next_hop;
        let out = &self.interfaces[self.neighbours.get(next_hop).interface];
        labels::exchange(frame.bytes_mut(), outermost, &entry.out, self.pipe);
        if frame.len() - IP > out.mtu {
            self.truth.dropped.mtu += 1;
            return false;
        }
        let total = frame.len() - IP;
        trim(frame, total, out.tags.len());
        self.forward(now, port, next_hop, frame)
    }

    /// Pushes the labels of `entry` onto a packet of `total` bytes, whose TTL has been decremented to `ttl`.
    pub(super) fn push(
        &mut self,
        now: Instant,
        port: usize,
        entry: &Entry,
        ttl: u8,
        total: usize,
        frame: &mut Frame,
    ) -> bool {
        let out = &self.interfaces[self.neighbours.get(entry.next_hop).interface];
        let (mtu, tags) = (out.mtu, out.tags.len());
        labels::push(frame.bytes_mut(), &entry.out, if self.pipe { PIPE } else { ttl }, total);
        let total = frame.len() - IP;
        if total > mtu {
            self.truth.dropped.mtu += 1;
            return false;
        }
        trim(frame, total, tags);
        self.forward(now, port, entry.next_hop, frame)
    }
}
