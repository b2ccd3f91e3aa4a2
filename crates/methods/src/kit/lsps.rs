//! Interface of a test to label-switched paths through the DUT by RSVP-TE (RFC 3209), and flows over them.

use crate::labelled;
use crate::testbed::{PortView, TestError};
use drophammer_model::size::PacketSize;
use drophammer_model::trial::{AddressRange, Family, FlowSpec, PortIndex};
use std::ops::Range;
use std::time::Duration;

/// Maximum number of flows of a trial: the record of one with more would have more than 10 MB.
pub const MOST_FLOWS: u32 = 16_384;

/// LSPs from the P router behind one core port to the one behind another.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct LspPlan {
    /// Port of the ingress.
    pub ingress: PortIndex,
    /// Port of the egress.
    pub egress: PortIndex,
    /// Maximum number of LSPs. They are numbered from 0.
    pub count: u32,
    /// Refresh period of both ends (RFC 2205 section 3.7).
    pub refresh: Duration,
    /// Both ends support refresh reduction (RFC 2961).
    pub refresh_reduction: bool,
}

/// An LSP that is up at both ends. It is another one if it went down and came up again, or changed its label.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct UpLsp {
    /// Label that the DUT has handed out to the ingress.
    pub label: u32,
    /// Label that the egress has handed out to the DUT.
    pub arriving: u32,
    /// When it came up at the ingress and at the egress, in seconds on the tester's clock.
    pub since_s: [f64; 2],
}

/// Messages of RSVP between the DUT and both ends, until now. Those in a Bundle count on their own.
#[derive(Clone, Copy, Debug, Default, PartialEq)]
pub struct Signalling {
    /// When it was read, in seconds on the tester's clock.
    pub at_s: f64,
    /// Messages that the DUT got and sent.
    pub messages: [u64; 2],
    /// Bytes of their packets, without IP headers.
    pub bytes: [u64; 2],
}

/// Label-switched paths between the P routers behind the core ports: the DUT is a transit router. At the end of the test, they are torn
/// down. LSPs of two plans, one after the other, have different tunnel IDs.
pub trait Lsps {
    /// The core ports with RSVP-TE, at least two.
    fn ports(&self) -> Vec<PortIndex>;

    /// Starts RSVP-TE on both ends, without LSPs. LSPs of an earlier plan are torn down first.
    ///
    /// # Errors
    /// [`TestError::Failed`] if the plan is not possible; [`TestError::Interrupted`], [`TestError::DutDied`].
    fn begin(&mut self, plan: &LspPlan) -> Result<(), TestError>;

    /// Lets the ingress set up LSPs: `per_second` each second, 0 for as fast as it can.
    ///
    /// # Errors
    /// [`TestError::Failed`] if there are no such LSPs.
    fn set_up(&mut self, lsps: Range<u32>, per_second: u32) -> Result<(), TestError>;

    /// Lets the ingress tear down LSPs, at a pace as in [`Lsps::set_up`].
    ///
    /// # Errors
    /// [`TestError::Failed`] if there are no such LSPs.
    fn tear_down(&mut self, lsps: Range<u32>, per_second: u32) -> Result<(), TestError>;

    /// Waits until this number of LSPs is up at both ends; false if `within` ends first.
    ///
    /// # Errors
    /// [`TestError::Interrupted`], [`TestError::DutDied`].
    fn await_up(&mut self, lsps: u32, within: Duration) -> Result<bool, TestError>;

    /// Waits until no LSP is up at either end any more: the DUT has passed every teardown on. False if `within` ends first.
    ///
    /// # Errors
    /// [`TestError::Interrupted`], [`TestError::DutDied`].
    fn await_down(&mut self, within: Duration) -> Result<bool, TestError>;

    /// An LSP, if it is up at both ends.
    fn up(&self, lsp: u32) -> Option<UpLsp>;

    /// What its routers call an LSP.
    fn name(&self, lsp: u32) -> String;

    /// Messages so far.
    fn signalling(&mut self) -> Signalling;

    /// Errors that the ends have received since [`Lsps::begin`], by reason.
    fn errors(&self) -> Vec<(String, u64)>;
}

/// At most `most` of these LSPs, spread evenly.
pub fn tried(lsps: &[u32], most: u32) -> Vec<u32> {
    let (all, most) = (lsps.len(), most as usize);
    if all <= most { lsps.to_vec() } else { (0..most).map(|i| lsps[i * all / most]).collect() }
}

/// A flow over an LSP, between the first host behind the ingress port and the first one behind the egress port. Its label is added to the
/// size. Frames must arrive with the egress's label and a TTL that is one lower. Frames are also counted by flow.
///
/// # Errors
/// [`TestError::NotApplicable`] if a port has no IPv4.
pub fn flow(
    ports: &[PortView],
    plan: &LspPlan,
    lsp: &UpLsp,
    group: &str,
    size: &PacketSize,
) -> Result<FlowSpec, TestError> {
    let host = |port: &PortView| {
        let none = || TestError::NotApplicable(format!("port {} has no IPv4", port.name));
        Ok(AddressRange { count: 1, ..port.addressing(Family::Ipv4).ok_or_else(none)?.destinations })
    };
    let (source, destination) = (host(&ports[plan.ingress])?, host(&ports[plan.egress])?);
    let flow = FlowSpec::new(group, plan.ingress, plan.egress, source, destination);
    Ok(FlowSpec { per_destination: true, ..labelled::swapped(&flow, size, lsp.label, lsp.arriving) })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn few_lsps_are_all_tried_and_many_evenly() {
        assert_eq!(tried(&[3, 5, 9], 3), [3, 5, 9]);
        let all: Vec<u32> = (0..300).collect();
        let some = tried(&all, 100);
        assert_eq!((some.len(), &some[..3], some[99]), (100, &[0, 3, 6][..], 297));
        assert_eq!(tried(&all[..101], 100).len(), 100);
    }
}
