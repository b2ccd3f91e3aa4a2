//! Traffic whose lanes are all on other hosts.
//!
//! # Hosts
//!
//! A lane does not know whether the other lanes of its trial are on its host. Each host plans the whole trial, but only
//! the lanes of its own ports ([`Layout::on_host`](crate::Layout::on_host)), and starts at the agreed instant
//! ([`Traffic::on_host`](crate::Traffic::on_host)). During the trial, each host tells what lanes exchange: whether they have
//! finished sending, and how many frames they sent and received ([`Standing`]). A lane needs only the sum over all hosts, so
//! each host gets that one number of each kind, however many hosts there are. At the end hosts exchange the frames that
//! their own rings refused ([`Refusals`](crate::Refusals)), because a lane reports losses without these. The reports of all
//! lanes, on whatever hosts, are then merged as on one host ([`crate::merge`]).
//!
//! [`FarTraffic`] is the same trial where its result is needed: without a lane, it passes requests on and takes the reports.

pub(crate) mod check;

use crate::counts::{GroupCounts, LaneCounts, PlaceCounts, Snapshot, sums_by_place};
use crate::lane_report::{EventReport, LaneReport};
use crate::live::{Board, Live, Requests};
use crate::plan::Plan;
use crate::transmit::TransmitAction;
use drophammer_model::quantity::Instant;
use serde::{Deserialize, Serialize};
use std::collections::BTreeMap;
use std::sync::Arc;
use std::time::Duration;

/// What the lanes of a host, or of all hosts, have sent and received so far.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct Standing {
    /// True once these lanes have finished sending.
    pub done: bool,
    /// Number of sent frames that no ring refused; final once the lanes have finished sending.
    pub sent: u64,
    /// Number of distinct received frames; updated once the lanes have finished sending.
    pub distinct: u64,
}

impl std::iter::Sum for Standing {
    /// Adds up hosts. Numbers from other hosts can be of any size.
    fn sum<I: Iterator<Item = Standing>>(hosts: I) -> Standing {
        hosts.fold(Standing { done: true, ..Standing::default() }, |all, host| Standing {
            done: all.done && host.done,
            sent: all.sent.saturating_add(host.sent),
            distinct: all.distinct.saturating_add(host.distinct),
        })
    }
}

/// A request to the hosts of a trial.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub enum Wish {
    /// [`Live::end`].
    End,
    /// [`Live::end_sending`].
    EndSending,
    /// [`Live::transmit`] of these flows.
    Transmit {
        /// Numbers of the flows.
        flows: Vec<usize>,
        /// The action.
        action: TransmitAction,
        /// Time of the traffic; `None` means immediately.
        at: Option<Duration>,
    },
    /// [`Live::counts`].
    Count,
}

/// A trial that lanes on other hosts carry out.
pub struct FarTraffic {
    plan: Plan,
    board: Arc<Board>,
    start: Option<Instant>,
    seen: Requests,
    /// Number of the last request for counts that was passed on.
    asked: u64,
    /// The newest counts of each host; those at the end, if the hosts handed them in.
    counts: Vec<Vec<LaneCounts>>,
    events: Vec<EventReport>,
    reports: Vec<LaneReport>,
    over: bool,
}

impl FarTraffic {
    /// Creates traffic for this number of hosts from a plan without lanes.
    ///
    /// # Panics
    /// If the plan has lanes.
    pub fn new(plan: Plan, hosts: usize) -> FarTraffic {
        assert!(plan.parts.is_empty(), "other hosts have the lanes");
        let board = Arc::new(Board::far(plan.flows.clone(), hosts));
        let (seen, events, reports) = Default::default();
        let counts = vec![Vec::new(); hosts];
        FarTraffic { plan, board, start: None, seen, asked: 0, counts, events, reports, over: false }
    }

    /// Returns a handle for other threads.
    pub fn live(&self) -> Live {
        Live(self.board.clone())
    }

    /// Records when all hosts start.
    pub fn begin(&mut self, start: Instant) {
        self.start = Some(start);
        self.board.begin(start);
    }

    /// Returns when the traffic starts; `None` if that is not agreed yet.
    pub fn started(&self) -> Option<Instant> {
        self.start
    }

    /// Returns the next event: its time, and its number in the trial.
    pub fn next_event(&self) -> Option<(Instant, usize)> {
        let event = self.plan.events.get(self.events.len())?;
        Some((Instant(self.start?.0 + event.at_ns), event.event))
    }

    /// Records that the next event was carried out from `from` to `to`. `own` is true if it concerned a port.
    pub fn carried_out(&mut self, from: Instant, to: Instant, own: bool) {
        let since = |at: Instant| at.0.saturating_sub(self.start.map_or(0, |start| start.0));
        self.events.push(EventReport { from_ns: since(from), to_ns: since(to), own });
    }

    /// Returns the requests of other threads since the last call, for all hosts.
    pub fn wishes(&mut self) -> Vec<Wish> {
        let now = self.board.requests();
        let before = std::mem::replace(&mut self.seen, now);
        let mut wishes = Vec::new();
        if now.commands_more_than(before) {
            wishes.extend(self.board.commands(0).into_iter().map(|command| Wish::Transmit {
                flows: (0..command.flows.len()).filter(|flow| command.flows[*flow]).collect(),
                action: command.action,
                at: command.at,
            }));
        }
        if now.is_end_of_sending() && !before.is_end_of_sending() {
            wishes.push(Wish::EndSending);
        }
        if now.is_end() && !before.is_end() {
            wishes.push(Wish::End);
        }
        if now.asks_more_than(before) {
            self.asked = self.board.counts_asked();
            wishes.push(Wish::Count);
        }
        wishes
    }

    /// Takes the counts of the lanes of a host, as an answer to the last [`Wish::Count`]. Ignores what does not belong to
    /// the trial.
    pub fn counted(&mut self, host: usize, mut counts: Vec<LaneCounts>) {
        counts.retain(|lane| check::is_sound(&self.plan, lane));
        let at = |counts: &[LaneCounts]| counts.iter().map(|lane| lane.at).max();
        // Answers can overtake each other.
        if let Some(newest) = self.counts.get_mut(host).filter(|newest| at(newest) <= at(&counts)) {
            newest.clone_from(&counts);
        }
        self.board.publish(host, self.asked, counts);
    }

    /// Asks all hosts for their counts; see [`FarTraffic::counts`].
    pub fn ask_counts(&self) {
        self.board.ask_counts();
    }

    /// Returns the newest counts of all lanes, and when the first of them was counted; `None` until all hosts have answered.
    pub fn counts(&self) -> Option<(Instant, impl Iterator<Item = &LaneCounts>)> {
        let lanes = || self.counts.iter().flatten();
        let all = self.counts.iter().all(|host| !host.is_empty());
        Some((lanes().map(|lane| lane.at).min().filter(|_| all)?, lanes()))
    }

    /// Like [`crate::Traffic::handed_over`], by the newest counts.
    pub fn handed_over(&self) -> Vec<u64> {
        let mut frames = vec![0; self.plan.flows.len()];
        let sent = self.counts.iter().flatten().flat_map(|lane| &lane.sent);
        sent.for_each(|(flow, _, n)| frames[*flow as usize] += n);
        frames
    }

    /// Returns the sums of the newest counts.
    pub fn snapshot(&self) -> Option<Snapshot> {
        self.counts().map(|(_, lanes)| Snapshot::of(lanes))
    }

    /// Like [`crate::Traffic::latencies`], by the newest counts. Adds up this group alone.
    pub fn latencies(&self, group: usize) -> Vec<(u64, u64)> {
        let mut sum = GroupCounts::default();
        let lanes = self.counts().into_iter().flat_map(|(_, lanes)| lanes);
        lanes.filter_map(|lane| lane.groups.get(group)).for_each(|group| sum.add(group));
        sum.latencies
    }

    /// Like [`crate::Traffic::places`], by the newest counts.
    pub fn places(&self) -> BTreeMap<usize, Vec<PlaceCounts>> {
        sums_by_place(
            self.counts().into_iter().flat_map(|(_, lanes)| lanes).flat_map(|lane| lane.places.iter().cloned()),
        )
    }

    /// Ends the traffic without a result.
    pub fn fail(&mut self) {
        self.over = true;
        self.board.close();
    }

    /// Ends the traffic with the reports of all lanes, and with their last counts if there are any.
    ///
    /// # Errors
    /// What does not fit together. The traffic has then ended without a result.
    pub fn end(&mut self, mut reports: Vec<LaneReport>, counts: Vec<LaneCounts>) -> Result<(), String> {
        self.fail();
        check::check(&self.plan, &reports)?;
        if !counts.iter().all(|lane| check::is_sound(&self.plan, lane)) {
            return Err("counts of another trial".into());
        }
        if !counts.is_empty() {
            self.counts = vec![counts];
        }
        // The devices are here, so only this host knows when they acted.
        reports.iter_mut().for_each(|report| report.events.clone_from(&self.events));
        self.reports = reports;
        Ok(())
    }

    /// True if it has ended.
    pub fn is_over(&self) -> bool {
        self.over
    }

    /// Returns the reports of all lanes; none if it failed.
    pub fn reports(&self) -> &[LaneReport] {
        &self.reports
    }
}
