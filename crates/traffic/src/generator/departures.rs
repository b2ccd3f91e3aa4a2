//! When a frame was to leave, told from its sequence number.

use super::PortGenerator;

/// Nominal departures of one flow.
pub(crate) struct Departures<'a> {
    generator: &'a PortGenerator,
    /// Places of the flow in a round; at least one.
    places: Vec<u64>,
}

impl PortGenerator {
    /// Nominal departures of flow `id`; `None` if it does not leave here.
    pub(crate) fn departures(&self, id: u32) -> Option<Departures<'_>> {
        let turn = |flow: &u32| self.flows[*flow as usize].id == id;
        let places: Vec<u64> =
            self.round.iter().enumerate().filter(|(_, flow)| turn(flow)).map(|(place, _)| place as u64).collect();
        (!places.is_empty()).then_some(Departures { generator: self, places })
    }
}

impl Departures<'_> {
    /// Of the frame with `sequence`, in ns after the start.
    pub(crate) fn of(&self, sequence: u64) -> u64 {
        let PortGenerator { round, skips, schedule, .. } = self.generator;
        let per_round = self.places.len() as u64;
        let sent = sequence / per_round * round.len() as u64 + self.places[(sequence % per_round) as usize];
        let before = skips.partition_point(|s| s.sent <= sent);
        let skipped = before.checked_sub(1).map_or(0, |last| skips[last].total);
        schedule.departure((sent + skipped).min(schedule.total().saturating_sub(1)))
    }
}
