//! How far a run got.

/// The state of a run.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum RunState {
    /// It ran to its end.
    Complete,
    /// The user stopped it; all results until then are stored in order.
    Interrupted,
    /// It has no end record: the program was killed, the machine went down, or the run is still going on.
    CutOff,
}

impl std::fmt::Display for RunState {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str(match self {
            RunState::Complete => "complete",
            RunState::Interrupted => "interrupted",
            RunState::CutOff => "cut off",
        })
    }
}
