//! Running traffic: a plan that is carried out in one call or in several.

use crate::counts::{LaneCounts, PlaceCounts, Snapshot, sums_by_place};
use crate::engine::{Control, Course, LanePort, LaneState, lead};
use crate::histogram::Latencies;
use crate::lane_report::{LaneReport, Refusals};
use crate::lanes::{Common, Lane, LaneError, Share, lane_ports, message};
use crate::live::{Board, Live};
use crate::plan::{Layout, Part, Plan};
use drophammer_model::quantity::Instant;
use drophammer_model::trial::{Bin, PortIndex};
use drophammer_port::{Clock, Port, PortError, SystemClock};
use std::collections::BTreeMap;
use std::ops::Range;
use std::sync::Arc;
use std::thread::{Builder, scope};
use std::time::Duration;

/// Duration of traffic that runs until somebody ends it: 100 days. A trial this long counts as continuous traffic, with
/// a smaller window to distinguish late frames from duplicates.
pub const CONTINUOUS: Duration = Duration::from_secs(100 * 24 * 3600);

/// A plan being carried out. Between two calls, only generators in the kernel send, and nothing is received.
pub struct Traffic {
    plan: Plan,
    board: Arc<Board>,
    /// State of each lane, starting with the first call.
    lanes: Vec<Option<LaneState>>,
    start: Option<Instant>,
    /// When to start, and when to be ready, if other hosts start then too.
    agreed: Option<Agreed>,
    /// How much later than agreed the lanes were ready, in ns.
    late_ns: u64,
    wall_before: i128,
    clock_step_ns: i64,
}

/// When several hosts start the same traffic.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Agreed {
    /// The start, on the clock of this host.
    pub start: Instant,
    /// By how much the clock of another host may be ahead. The lanes must be ready this much before the start, because
    /// frames of that host can arrive then.
    pub early: Duration,
}

impl Agreed {
    /// Returns how much too late lanes are that are ready at `now`, in ns.
    fn late_ns(self, now: Instant) -> u64 {
        (now + self.early).0.saturating_sub(self.start.0)
    }
}

impl Traffic {
    /// Creates traffic that has not started.
    pub fn new(plan: Plan) -> Traffic {
        Traffic::with(plan, None)
    }

    /// Creates the part of this host in traffic that starts as `agreed` on all its hosts. It ends only after the caller has
    /// told that all hosts have finished sending ([`Live::tell`]). If its lanes are not ready at the start, it ends at once
    /// ([`Traffic::late_ns`]): frames of other hosts may have arrived before anybody could count them, and would look lost.
    pub fn on_host(plan: Plan, agreed: Agreed) -> Traffic {
        Traffic::with(plan, Some(agreed))
    }

    fn with(plan: Plan, agreed: Option<Agreed>) -> Traffic {
        let lanes = plan.parts.len();
        let board = Arc::new(Board::new(&plan.parts, plan.flows.clone(), agreed.is_some()));
        Traffic {
            plan,
            board,
            lanes: (0..lanes).map(|_| None).collect(),
            start: None,
            agreed,
            late_ns: 0,
            wall_before: 0,
            clock_step_ns: 0,
        }
    }

    /// Returns the layout of its lanes.
    pub fn layout(&self) -> &Layout {
        self.plan.layout()
    }

    /// Returns a handle for other threads.
    pub fn live(&self) -> Live {
        Live(self.board.clone())
    }

    /// True once all frames are sent and accounted for, the drain is over, or somebody ended the traffic.
    pub fn is_over(&self) -> bool {
        self.lanes.iter().all(|lane| lane.as_ref().is_some_and(|lane| lane.over))
    }

    /// Runs one lane on the calling thread until `until` or the end of the traffic. `ports[i]` is queue i of the plan's
    /// layout, among the queues of this host, and must be the same in every call. The first call starts the traffic.
    ///
    /// # Errors
    /// A port stopped working.
    pub fn drive(
        &mut self,
        ports: &mut [Box<dyn Port>],
        clock: &mut dyn Clock,
        control: &mut dyn Control,
        until: Instant,
    ) -> Result<(), PortError> {
        assert_eq!(self.plan.parts.len(), 1, "several lanes are driven by drive_lanes");
        let driven = self.drive_one(ports, clock, control, until);
        self.after(clock, driven.is_err());
        driven
    }

    fn drive_one(
        &mut self,
        ports: &mut [Box<dyn Port>],
        clock: &mut dyn Clock,
        control: &mut dyn Control,
        until: Instant,
    ) -> Result<(), PortError> {
        let Plan { parts, events, drain_ns, layout, .. } = &mut self.plan;
        let mut ports: Vec<LanePort<'_>> = layout
            .here()
            .zip(ports)
            .map(|(queue, port)| LanePort { index: layout.port_of(queue), queue, port: port.as_mut() })
            .collect();
        let part = &mut parts[0];
        let (state, start) = match (&mut self.lanes[0], self.start) {
            (Some(state), Some(start)) => (state, start),
            (state, _) => {
                // This is before the ports sample the wall clock themselves, so that no step in between is missed.
                self.wall_before = clock.wall_offset();
                let state = state.insert(LaneState::new(part, &mut ports, events.len(), &self.board)?);
                let now = clock.now();
                let start = *self.start.insert(self.agreed.map_or(now + lead(clock), |agreed| agreed.start));
                self.late_ns = self.agreed.map_or(0, |agreed| agreed.late_ns(now));
                if self.late_ns > 0 {
                    self.board.end();
                }
                self.board.begin(start);
                state.begin(part, &mut ports, start, (0, &self.board));
                (state, start)
            }
        };
        let course = Course { start, until, lane: 0, live: &self.board, events, drain_ns: *drain_ns };
        state.drive(part, &mut ports, clock, control, course)
    }

    /// Like [`Traffic::drive`], but with one thread per lane. The first lane runs on the calling thread, wherever the
    /// caller has pinned it, with the control `first`. The others run on new threads, each with its entry of `others`,
    /// at high priority if permitted. They are pinned to `processors` in order, or not at all if `processors` is empty.
    ///
    /// # Errors
    /// [`LaneError`] of the first lane that has a cause to report.
    ///
    /// # Panics
    /// If `others` does not have one entry per lane after the first (likewise `processors`, unless empty), if `ports`
    /// does not have one entry per queue of the plan, or if the first lane panics. The other lanes have ended by then.
    pub fn drive_lanes<C: Control + Send>(
        &mut self,
        ports: &mut [Box<dyn Port + Send>],
        clock: SystemClock,
        processors: &[usize],
        first: &mut dyn Control,
        others: &mut [C],
        until: Instant,
    ) -> Result<(), LaneError> {
        let lanes = self.plan.parts.len();
        assert_eq!(others.len() + 1, lanes, "each lane has its control");
        assert_eq!(ports.len(), self.plan.layout.here().count(), "all queues of the plan are there");
        assert!(processors.is_empty() || processors.len() + 1 == lanes, "each further lane has its processor");
        let mut shares: Vec<Share<'_>> = (0..lanes).map(|_| Vec::new()).collect();
        let layout = &self.plan.layout;
        for (queue, port) in layout.here().zip(ports) {
            let port: &mut (dyn Port + Send) = port.as_mut();
            shares[layout.lane_of_queue(queue)].push((layout.port_of(queue), queue, port));
        }
        if self.start.is_none() {
            // Before the ports sample the wall clock, as above.
            self.wall_before = clock.wall_offset();
        }
        let (agreed, mut late_ns) = (self.agreed, self.late_ns);
        let Plan { parts, events, drain_ns, .. } = &mut self.plan;
        let board = &*self.board;
        let common = Common { board, clock, events, drain_ns: *drain_ns, start: self.start, until };
        let mut work = parts.iter_mut().zip(&mut self.lanes).zip(shares);
        let ((part, state), share) = work.next().expect("a plan has a lane");
        let own = Lane { number: 0, part, state, ports: lane_ports(share), control: first, processor: None };
        let started: Vec<Result<Instant, LaneError>> = scope(|scope| {
            let threads: Vec<_> = work
                .zip(others)
                .enumerate()
                .map(|(n, (((part, state), share), control))| {
                    let (number, processor) = (n + 1, processors.get(n).copied());
                    let body = move || {
                        let lane = Lane { number, part, state, ports: lane_ports(share), control, processor };
                        lane.work(common, Board::await_start)
                    };
                    Builder::new().name(format!("lane {number}")).spawn_scoped(scope, body).map_err(|source| {
                        common.board.end();
                        LaneError::Thread { lane: number, what: "start".into(), source }
                    })
                })
                .collect();
            let own = own.work(common, |board| {
                let start = board.start(&clock, agreed.map(|agreed| agreed.start))?;
                late_ns = agreed.map_or(0, |agreed| agreed.late_ns(clock.now()));
                if late_ns > 0 {
                    board.end();
                }
                Ok(start)
            });
            let joined = threads.into_iter().enumerate().map(|(n, thread)| match thread?.join() {
                Ok(started) => started,
                Err(panic) => Err(LaneError::Panicked { lane: n + 1, message: message(panic.as_ref()) }),
            });
            std::iter::once(own).chain(joined).collect()
        });
        let mut failed = None;
        for started in started {
            match (started, &failed) {
                (Ok(start), _) => self.start = Some(start),
                // Only the lane that failed reports the cause, not the lanes that ended because of it.
                (Err(e), None | Some(LaneError::NotStarted)) => failed = Some(e),
                (Err(_), Some(_)) => {}
            }
        }
        self.late_ns = late_ns;
        self.after(&clock, failed.is_some());
        failed.map_or(Ok(()), Err)
    }

    /// Called at the end of each call.
    fn after(&mut self, clock: &dyn Clock, failed: bool) {
        let seen = self.lanes.first().and_then(|lane| lane.as_ref()?.wall_offsets);
        let offsets = seen.into_iter().flat_map(|(least, most)| [least, most]).chain([clock.wall_offset()]);
        let steps = offsets.map(|offset| i64::try_from(offset - self.wall_before).unwrap_or(i64::MAX));
        // The largest step that earlier calls have found.
        let steps = steps.chain([self.clock_step_ns]);
        self.clock_step_ns = steps.max_by_key(|step| step.unsigned_abs()).unwrap_or(0);
        if failed || self.is_over() {
            self.board.close();
        }
    }

    /// Returns when the traffic started; `None` if it has not.
    pub fn started(&self) -> Option<Instant> {
        self.start
    }

    /// Returns how much later than agreed the lanes were ready, in ns; 0 if they were ready in time.
    pub fn late_ns(&self) -> u64 {
        self.late_ns
    }

    /// Returns the largest step of the wall clock against the steady clock since the start, in ns.
    pub fn clock_step_ns(&self) -> i64 {
        self.clock_step_ns
    }

    /// Returns the counts so far. [`Live::snapshot`] is for other threads.
    pub fn snapshot(&mut self, now: Instant) -> Snapshot {
        let counts: Vec<_> = self.plan.parts.iter_mut().map(|part| part.counts(now)).collect();
        Snapshot::of(&counts)
    }

    /// Returns the counts of each lane of traffic that is over.
    pub fn last_counts(&mut self, now: Instant) -> Vec<LaneCounts> {
        let parts = self.plan.parts.iter_mut().zip(&self.lanes);
        let counts = |(part, lane): (&mut Part, &Option<LaneState>)| {
            let drops = lane.as_ref().map_or(Vec::new(), |lane| lane.receive_drops.clone());
            LaneCounts { drops, ..part.counts(now) }
        };
        parts.map(counts).collect()
    }

    /// Like [`Traffic::snapshot`], but without the frames of each latency and the counts by place: it takes a time that grows with the flows
    /// only, and can be asked for often.
    pub fn counts(&mut self, now: Instant) -> Snapshot {
        let counts: Vec<_> = self.plan.parts.iter_mut().map(|part| part.counts_without_latencies(now)).collect();
        Snapshot::of(&counts)
    }

    /// Returns the frames of each latency of a group so far, as in [`crate::GroupCounts::latencies`].
    pub fn latencies(&self, group: usize) -> Vec<(u64, u64)> {
        let mut all = Latencies::default();
        let groups = self.plan.parts.iter().filter_map(|part| part.analyzer.groups().get(group));
        groups.flat_map(|group| group.latency_steps()).for_each(|(ns, frames)| all.record_n(ns, frames));
        all.steps().collect()
    }

    /// Returns the counts so far by place of each flow with a cycle ([`drophammer_model::trial::FlowSpec::cycle`]).
    pub fn places(&self) -> BTreeMap<usize, Vec<PlaceCounts>> {
        sums_by_place(self.plan.parts.iter().flat_map(|part| part.places()))
    }

    /// Returns how many frames each flow of this host has handed over to its port so far, including frames that the
    /// tester's own ring refused.
    pub fn handed_over(&self) -> Vec<u64> {
        let mut frames = vec![0; self.plan.flows.len()];
        let generators = self.plan.parts.iter().flat_map(|part| &part.generators);
        generators.for_each(|generator| generator.add_offered(&mut frames));
        frames
    }

    /// Returns these time bins of a group, as far as the traffic has them. Frames that are still in the DUT count as
    /// offered only.
    pub fn bins(&self, group: usize, range: Range<usize>) -> Vec<Bin> {
        let mut bins = vec![Bin::default(); range.len()];
        for part in &self.plan.parts {
            let received = &part.analyzer.groups()[group].bins;
            let sent = part.generators.iter().flat_map(|generator| generator.groups());
            let sent = sent.filter(|sent| sent.group == group).map(|sent| &sent.bins);
            for (sum, i) in bins.iter_mut().zip(range.clone()) {
                let of = |counts: &Vec<u64>| counts.get(i).copied().unwrap_or(0);
                sum.offered += sent.clone().map(of).sum::<u64>();
                sum.delivered += of(&received.delivered);
                sum.arrived += of(&received.arrived);
            }
        }
        bins
    }

    /// Returns how many frames of `port` left more than 1 ms (2^20 ns) late, and how many left in all.
    pub fn late_departures(&self, port: PortIndex) -> (u64, u64) {
        let generators = self.plan.parts.iter().flat_map(|part| &part.generators);
        let departures =
            generators.filter(|generator| generator.port() == port).map(|generator| generator.departures());
        departures.fold((0, 0), |sum, (late, all)| (sum.0 + late, sum.1 + all))
    }

    /// Returns the counts of each lane so far, for [`crate::merge`]. Empty before the first call, and if a lane could not be prepared.
    pub fn reports(&mut self) -> Vec<LaneReport> {
        self.reports_with(&Refusals::default())
    }

    /// Returns the frames that the rings of this host refused, for the other hosts.
    pub fn refusals(&self) -> Refusals {
        self.plan.refusals()
    }

    /// Like [`Traffic::reports`], but other hosts send some of the flows; `elsewhere` are their refusals.
    pub fn reports_with(&mut self, elsewhere: &Refusals) -> Vec<LaneReport> {
        // No lane has started before all are prepared.
        let lanes: Option<Vec<&LaneState>> = self.lanes.iter().map(Option::as_ref).collect();
        self.plan.reports(&lanes.unwrap_or_default(), self.clock_step_ns, elsewhere)
    }
}
