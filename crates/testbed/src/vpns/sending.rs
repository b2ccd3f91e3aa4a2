//! How long the CE routers took to send changes of their routes.

use crate::setup::TestSetup;
use drophammer_model::Instant;
use drophammer_model::trial::PortIndex;

impl TestSetup<'_> {
    /// Seconds for each of the last `changes` changes of the CE routers in use behind a port: from the time when the first router had
    /// routes to send until the DUT's TCP had acknowledged the routes of all of them. Empty if a router has made fewer changes.
    pub(super) fn sent_behind(&self, port: PortIndex, changes: usize) -> Vec<f64> {
        let rig = &self.routing.bench.rig;
        let Some(used) = &self.vpns.in_use else { return Vec::new() };
        let mut all: Vec<Option<(Instant, Instant)>> = vec![None; changes];
        for ce in used.ces.iter().filter(|ce| ce.site.customer == port) {
            let Some((routers, router)) = rig.session(ce.session) else { return Vec::new() };
            let periods = routers.sending(router);
            let Some(skipped) = periods.len().checked_sub(changes) else { return Vec::new() };
            for (whole, (from, to)) in all.iter_mut().zip(periods.skip(skipped)) {
                *whole = Some(whole.map_or((from, to), |(first, last)| (first.min(from), last.max(to))));
            }
        }
        all.into_iter().flatten().map(|(from, to)| to.since(from).as_secs_f64()).collect()
    }
}
