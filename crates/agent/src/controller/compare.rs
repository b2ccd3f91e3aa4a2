//! Compares the clocks of the hosts with the clock of the run.

use super::{ANSWER, Bond};
use crate::chrony::wall;
use crate::clock::{Exchange, Offset, one_way_ns, steady_ns};
use crate::message::{Reply, What};
use drophammer_model::trial::ChronyRecord;
use drophammer_port::PortError;
use futures_util::future::try_join_all;

/// Number of exchanges in a comparison.
const EXCHANGES: usize = 16;

/// A comparison of clocks.
#[derive(Default)]
pub(super) struct Compared {
    /// Each clock against this host's.
    pub(super) offsets: Vec<Offset>,
    /// For each host, how long a message takes, in ns, and what chrony says.
    pub(super) hosts: Vec<(u64, Option<ChronyRecord>)>,
}

impl Bond {
    /// Compares the clocks of all hosts with this host's clock: with messages, and by what chrony says where it synchronizes
    /// both.
    pub(super) async fn compare(&self) -> Result<Compared, PortError> {
        let own = if self.hosts.iter().any(|host| host.clock > 0) { wall().await } else { None };
        let compared = try_join_all(self.hosts.iter().map(|host| async move {
            let mut exchanges = Vec::new();
            for _ in 0..EXCHANGES {
                let asked_ns = steady_ns();
                if let Reply::Time(other_ns) = self.demand(host, What::Time, ANSWER).await? {
                    exchanges.push(Exchange { asked_ns, other_ns, answered_ns: steady_ns() });
                }
            }
            let offset = Offset::of(&exchanges).ok_or_else(|| self.lost(host, "its clock cannot be compared"))?;
            let chrony = match own.filter(|_| host.clock > 0) {
                None => None,
                Some(own) => match self.demand(host, What::Wall, ANSWER).await? {
                    Reply::Wall(other) => other.and_then(|other| own.offset_to(other)),
                    _ => None,
                },
            };
            Ok::<_, PortError>((host.clock, offset, one_way_ns(&exchanges), chrony))
        }));
        let mut all = Compared { offsets: vec![Offset::NONE; self.offsets.len()], hosts: Vec::new() };
        let mut known = vec![false; self.offsets.len()];
        // The own clock is known.
        known[0] = true;
        for (clock, offset, one_way_ns, chrony) in compared.await? {
            let both = chrony.and_then(|chrony| offset.with(chrony));
            let record = |chrony: Offset| ChronyRecord { bound_ns: chrony.error_ns, contradicted: both.is_none() };
            all.hosts.push((one_way_ns, chrony.map(record)));
            let (found, best) = (both.unwrap_or(offset), &mut all.offsets[clock]);
            // If several hosts share a clock, the best comparison counts.
            if !known[clock] || clock > 0 && found.error_ns < best.error_ns {
                *best = found;
            }
            known[clock] = true;
        }
        Ok(all)
    }
}

/// Returns the worse of two statements about one clock.
pub(super) fn worse(one: Option<ChronyRecord>, two: Option<ChronyRecord>) -> Option<ChronyRecord> {
    let (Some(a), Some(b)) = (one, two) else { return one.or(two) };
    Some(ChronyRecord { bound_ns: a.bound_ns.max(b.bound_ns), contradicted: a.contradicted || b.contradicted })
}
