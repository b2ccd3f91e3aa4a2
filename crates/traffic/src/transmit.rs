//! Starts, stops and pauses flows of running traffic.

use drophammer_model::trial::FlowSpec;
use serde::{Deserialize, Serialize};
use std::collections::BTreeMap;
use std::sync::Arc;
use std::time::Duration;

/// Whether a flow sends.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub enum Transmit {
    /// The flow sends.
    #[default]
    Started,
    /// The flow does not send until it is resumed or started.
    Paused,
    /// The flow does not send until it is started. In any state, a flow that has sent all its frames sends nothing more.
    Stopped,
}

/// An action on flows.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub enum TransmitAction {
    /// The flows send, whatever their state, and continue with their next sequence numbers.
    Start,
    /// The flows stop sending.
    Stop,
    /// Flows that send pause.
    Pause,
    /// Flows that are paused send again.
    Resume,
    /// Frames of the flows that are due and have not left never leave, whether the flows send or not. It takes effect
    /// immediately. Flows that share a load keep theirs unless all of them are selected.
    DropBacklog,
}

impl TransmitAction {
    /// Returns the state of a flow in `state` after the action.
    pub(crate) fn on(self, state: Transmit) -> Transmit {
        match (self, state) {
            (TransmitAction::Start, _) | (TransmitAction::Resume, Transmit::Paused) => Transmit::Started,
            (TransmitAction::Stop, _) => Transmit::Stopped,
            (TransmitAction::Pause, Transmit::Started) => Transmit::Paused,
            (TransmitAction::Pause | TransmitAction::Resume | TransmitAction::DropBacklog, state) => state,
        }
    }
}

/// Selects flows.
#[derive(Clone, Copy, Debug)]
pub enum FlowSelect<'a> {
    /// All flows.
    All,
    /// The flows with these numbers: their indices in [`drophammer_model::trial::TrialSpec::flows`].
    Flows(&'a [usize]),
    /// All flows of these groups.
    Groups(&'a [&'a str]),
}

/// The reason why flows cannot be started or stopped. Nothing has changed in this case.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[allow(missing_docs)] // the messages name the fields
pub enum TransmitError {
    /// The flow does not exist.
    #[error("there is no flow {flow}; the traffic has {flows} flows, numbered from 0")]
    NoSuchFlow { flow: usize, flows: usize },
    /// The group does not exist.
    #[error("there is no group `{group}` of flows; there are {}", .groups.join(", "))]
    NoSuchGroup { group: String, groups: Vec<String> },
    /// The kernel generates the frames of a flow.
    #[error(
        "flow {flow} ({group}) cannot be started or stopped: the kernel generates its frames, and sends all flows of a port or none; \
         do it before the traffic starts, or use another backend than live_frames"
    )]
    InKernel { flow: usize, group: String },
    /// The traffic is over.
    #[error("the traffic is over")]
    Over,
}

/// An action on some flows.
#[derive(Clone, Debug)]
pub(crate) struct Command {
    /// For each flow of the trial: true if it is selected.
    pub(crate) flows: Arc<[bool]>,
    pub(crate) action: TransmitAction,
    /// Time after the start of the traffic; `None` means immediately.
    pub(crate) at: Option<Duration>,
}

impl Command {
    /// True if the selection includes `flow`.
    pub(crate) fn names(&self, flow: u32) -> bool {
        self.flows.get(flow as usize).copied().unwrap_or(false)
    }
}

/// The flows of a trial, by group.
#[derive(Clone, Debug, Default)]
pub(crate) struct FlowNames {
    groups: Vec<String>,
    /// Group of each flow.
    group_of: Vec<usize>,
}

impl FlowNames {
    /// Numbers the groups of `flows` in the order of their first flows.
    pub(crate) fn new(flows: &[FlowSpec]) -> FlowNames {
        let (mut names, mut numbers) = (FlowNames::default(), BTreeMap::new());
        for flow in flows {
            let next = numbers.len();
            let group = *numbers.entry(flow.group.as_str()).or_insert(next);
            if group == next {
                names.groups.push(flow.group.clone());
            }
            names.group_of.push(group);
        }
        names
    }

    /// Returns the names of the groups.
    pub(crate) fn groups(&self) -> &[String] {
        &self.groups
    }

    /// Returns the number of flows.
    pub(crate) fn len(&self) -> usize {
        self.group_of.len()
    }

    /// Returns the group of `flow`; `None` if there is no such flow.
    pub(crate) fn group_of(&self, flow: usize) -> Option<usize> {
        self.group_of.get(flow).copied()
    }

    /// Returns the name of the group of `flow`.
    pub(crate) fn group(&self, flow: usize) -> String {
        self.group_of.get(flow).map_or(String::new(), |group| self.groups[*group].clone())
    }

    /// Returns the selected flows.
    ///
    /// # Errors
    /// [`TransmitError::NoSuchFlow`] or [`TransmitError::NoSuchGroup`].
    pub(crate) fn select(&self, which: FlowSelect<'_>) -> Result<Arc<[bool]>, TransmitError> {
        let flows = self.group_of.len();
        match which {
            FlowSelect::All => Ok(vec![true; flows].into()),
            FlowSelect::Flows(numbers) => {
                let mut selected = vec![false; flows];
                for flow in numbers {
                    *selected.get_mut(*flow).ok_or(TransmitError::NoSuchFlow { flow: *flow, flows })? = true;
                }
                Ok(selected.into())
            }
            FlowSelect::Groups(names) => {
                let unknown = names.iter().find(|name| self.groups.iter().all(|group| group != *name));
                if let Some(group) = unknown {
                    return Err(TransmitError::NoSuchGroup { group: (*group).into(), groups: self.groups.clone() });
                }
                let named = |group: &usize| names.contains(&self.groups[*group].as_str());
                Ok(self.group_of.iter().map(named).collect())
            }
        }
    }
}
