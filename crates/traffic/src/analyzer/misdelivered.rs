//! Where frames arrived that should have arrived elsewhere: the port, the innermost VLAN tag and the bottom label.

use drophammer_model::traffic::Deviation;
use drophammer_model::trial::{MOST_MISDELIVERED, Misdelivered, PortIndex};
use drophammer_wire::ethernet::ethertype;
use std::collections::BTreeMap;

/// Counts by flow and place of arrival, for at most [`MOST_MISDELIVERED`] places.
#[derive(Debug, Default)]
pub(super) struct Misdeliveries {
    places: BTreeMap<Arrived, u64>,
    /// Frames in other places.
    elsewhere: u64,
}

type Arrived = (usize, PortIndex, Option<u16>, Option<u32>);

/// True if a frame with this deviation may belong to another flow's destination.
pub(super) fn is_elsewhere(deviation: Deviation) -> bool {
    use Deviation::{Label, LabelMissing, LabelUnexpected, VlanId, VlanMissing, VlanUnexpected};
    matches!(deviation, VlanId | VlanMissing | VlanUnexpected | Label | LabelMissing | LabelUnexpected)
}

impl Misdeliveries {
    /// Counts a frame of `flow` that arrived at `port`.
    #[cold]
    pub(super) fn count(&mut self, flow: usize, port: PortIndex, frame: &[u8]) {
        let (vlan, label) = innermost(frame);
        let arrived = (flow, port, vlan, label);
        if let Some(frames) = self.places.get_mut(&arrived) {
            *frames += 1;
        } else if self.places.len() < MOST_MISDELIVERED {
            self.places.insert(arrived, 1);
        } else {
            self.elsewhere += 1;
        }
    }

    /// The counts, in order.
    pub(super) fn report(&self) -> Vec<Misdelivered> {
        let one =
            |(&(flow, port, vlan, label), &frames): (&Arrived, &u64)| Misdelivered { flow, port, vlan, label, frames };
        self.places.iter().map(one).collect()
    }

    /// Frames in places that are not in the report.
    pub(super) fn elsewhere(&self) -> u64 {
        self.elsewhere
    }
}

/// VLAN identifier of the innermost tag (IEEE 802.1Q), and the label at the bottom of the stack (RFC 3032).
fn innermost(frame: &[u8]) -> (Option<u16>, Option<u32>) {
    let (mut vlan, mut label) = (None, None);
    let mut rest = frame.get(12..).unwrap_or_default();
    while let [0x81 | 0x88 | 0x91, _, high, low, inner @ ..] = rest {
        if !matches!(u16::from_be_bytes([rest[0], rest[1]]), 0x8100 | 0x88a8 | 0x9100) {
            break;
        }
        vlan = Some(u16::from_be_bytes([*high, *low]) & 0xfff);
        rest = inner;
    }
    if let [high, low, stack @ ..] = rest
        && u16::from_be_bytes([*high, *low]) == ethertype::MPLS
    {
        let entries = stack.chunks_exact(4).map(|entry| u32::from_be_bytes([entry[0], entry[1], entry[2], entry[3]]));
        label = entries.into_iter().find(|entry| entry & 0x100 != 0).map(|entry| entry >> 12);
    }
    (vlan, label)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_innermost_tag_and_the_bottom_label_are_found() {
        let frame = |after: &[u8]| [&[0; 12][..], after].concat();
        let packet = [0x45, 0, 0, 20];
        assert_eq!(innermost(&frame(&[&[8, 0][..], &packet].concat())), (None, None));
        let tags = [0x88, 0xa8, 0, 7, 0x81, 0, 0xe0, 101];
        assert_eq!(innermost(&frame(&[&tags[..], &[8, 0], &packet].concat())), (Some(101), None));
        // Label 17, then label 80 at the bottom.
        let labels = [0x88, 0x47, 0, 1, 0x10, 64, 0, 5, 1, 64];
        assert_eq!(innermost(&frame(&labels)), (None, Some(80)));
        assert_eq!(innermost(&frame(&[&tags[4..], &labels].concat())), (Some(101), Some(80)));
        for end in 0..frame(&labels).len() {
            innermost(&frame(&labels)[..end]);
        }
    }

    #[test]
    fn places_are_bounded_and_counts_are_not() {
        let mut all = Misdeliveries::default();
        for flow in 0..MOST_MISDELIVERED + 10 {
            all.count(flow, 1, &[0; 60]);
        }
        all.count(0, 1, &[0; 60]);
        let report = all.report();
        assert_eq!((report.len(), all.elsewhere()), (MOST_MISDELIVERED, 10));
        assert_eq!(report[0], Misdelivered { flow: 0, port: 1, vlan: None, label: None, frames: 2 });
    }
}
