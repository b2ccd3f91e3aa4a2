//! Which flows a lane receives, and what it knows of the others.

use drophammer_model::trial::{FlowSpec, TrialSpec};
use std::sync::Arc;

/// A flow as seen by a lane that does not receive it.
#[derive(Clone, Copy, Debug)]
pub(super) struct Entry {
    pub group: u32,
    pub frames: u64,
}

/// All flows of a trial on several lanes; all lanes read it, none writes it.
#[derive(Clone)]
pub(crate) struct Register(pub(super) Arc<[Entry]>);

impl Register {
    pub(crate) fn new(spec: &TrialSpec, groups: &[String], frames: &[u64]) -> Register {
        let entry = |(flow, frames): (&FlowSpec, &u64)| Entry { group: group_of(groups, &flow.group), frames: *frames };
        Register(spec.flows.iter().zip(frames).map(entry).collect())
    }
}

/// Where a lane finds the flows of the trial.
pub(super) struct Home {
    /// Index of each flow of the trial among the flows received here, [`u32::MAX`] for all others. Absent with one lane, which receives all flows in
    /// order.
    pub places: Option<Box<[u32]>>,
    pub register: Option<Register>,
}

impl Home {
    /// Index of `flow` among the flows received here; beyond their end if it is not received here.
    #[inline]
    pub fn place(&self, flow: u32) -> u32 {
        match &self.places {
            None => flow,
            Some(places) => places.get(flow as usize).copied().unwrap_or(u32::MAX),
        }
    }
}

pub(super) fn group_of(groups: &[String], name: &str) -> u32 {
    groups.iter().position(|g| g == name).unwrap_or(0) as u32
}
