//! Sustained update rate: routes are withdrawn and advertised at a steady pace, and a second peer must be told of all of it without
//! falling behind (terms of RFC 4098; no RFC defines it).

use crate::Method;
use crate::parameters::{self, seconds, shorter};
use crate::report::{SeriesKind, note, plot, point, row, table};
use crate::route_tests::{self, complaint, for_each_family, one_per_port, patience, routes, thousands};
use crate::routing::{Packing, PeerIndex, RESTLESS, RouteAction, WatchIndex};
use crate::testbed::{TestError, Testbed};
use drophammer_model::outcome::{Outcome, PlotKind, Point, RankFigure, Row};
use drophammer_model::registry::{FigureSpec, ParamKind, ParamSpec, TestSpec};
use drophammer_model::routes::Routes;
use drophammer_model::suite::Params;
use drophammer_model::trial::Family;
use std::sync::Arc;
use std::time::Duration;

/// The test.
pub struct BgpUpdateRate;

static SPEC: TestSpec = TestSpec {
    name: "bgp_update_rate",
    title: "Sustained update rate",
    summary: "the highest pace of withdrawals and advertisements that the router passes on without falling behind",
    source: "terms of RFC 4098 (update trains, flaps)",
    needs: route_tests::NEEDS,
    params: &parameters::joined::<11>(&[
        &[
            route_tests::FAMILIES,
            route_tests::TABLE,
            ParamSpec::new("routes", ParamKind::Count, "20000", "200000", "routes of the table that change"),
            ParamSpec::new(
                "first_rate",
                ParamKind::Count,
                "5000",
                "5000",
                "changes per second at first; doubled while they are kept up with",
            ),
            ParamSpec::new(
                "max_rate",
                ParamKind::Count,
                "320000",
                "5000000",
                "changes per second at which the test ends",
            ),
            ParamSpec::new("duration", ParamKind::Duration, "1 s", "30 s", "time at each pace"),
            ParamSpec::new(
                "lag",
                ParamKind::Duration,
                "250 ms",
                "1 s",
                "behind is who needs longer than this after the last change",
            ),
            ParamSpec::new(
                "refinements",
                ParamKind::Count,
                "3",
                "5",
                "halvings of the interval between the last good and the first bad pace",
            ),
        ],
        &route_tests::SESSIONS,
    ]),
    figures: &[
        FigureSpec {
            key: "bgp_update_rate_ipv4_rps",
            help: "IPv4 route changes per second passed on without falling behind",
        },
        FigureSpec { key: "bgp_update_rate_ipv6_rps", help: "the same for IPv6" },
    ],
};

const TABLE: &str = "bgp_update_rate";
/// What is due in this time is in one message at most, in seconds.
const MESSAGE_S: f64 = 0.005;
/// Of what a train took too long, the share that the router must have held the session back for it to be the router's.
const HELD: f64 = 0.5;
/// Trains at a pace that the tester fell short of.
const ATTEMPTS: u32 = 3;

impl Method for BgpUpdateRate {
    fn spec(&self) -> &'static TestSpec {
        &SPEC
    }

    fn run(&self, bed: &mut dyn Testbed, params: &Params, outcome: &mut Outcome) -> Result<(), TestError> {
        table(
            outcome,
            TABLE,
            "Sustained update rate",
            &[
                ("family", "Family", ""),
                ("intended_rps", "Intended", "changes/s"),
                ("sent_rps", "Sent", "changes/s"),
                ("changes", "Changes", ""),
                ("lag_ms", "Behind at the end", "ms"),
                ("held_ms", "Held back by the router", "ms"),
                ("late_ms", "Tester late", "ms"),
                ("kept_up", "Kept up", ""),
            ],
        );
        plot(
            outcome,
            TABLE,
            "How far behind the second peer is",
            PlotKind::Line,
            "changes per second",
            "behind, ms",
            true,
        );
        let mut notes = Vec::new();
        let result = for_each_family(bed, params, &mut notes, |bed, family, _| search(bed, family, params, outcome));
        notes.into_iter().for_each(|text| note(outcome, text));
        result
    }

    fn estimate(&self, params: &Params) -> Duration {
        let paces = 7.0 + f64::from(routes(params, "refinements"));
        let each = paces * (seconds(params, "duration", 30.0) + 0.5) + 4.0;
        Duration::from_secs_f64(each * route_tests::families(params).len() as f64)
    }

    fn deviations(&self, params: &Params) -> Vec<String> {
        shorter(params, "duration", "trains", 30.0, route_tests::CONFORMANT).into_iter().collect()
    }
}

struct Train {
    origin: PeerIndex,
    watch: WatchIndex,
    all: Arc<Routes>,
    packing: Packing,
    duration_s: f64,
    lag: Duration,
    patience: Duration,
}

/// What a train of changes at one pace came to.
struct Pace {
    changes: u64,
    sent_rps: f64,
    lag_s: f64,
    complete: bool,
    complaint: String,
    /// The DUT kept the session from going on, and the tester did, in seconds.
    held_s: f64,
    late_s: f64,
    /// Time that the train took beyond what its pace asks for, in seconds.
    beyond_s: f64,
}

impl Pace {
    /// The router read too slowly, and had to be waited for: at least half of what the train took too long.
    fn held_back(&self) -> bool {
        self.held_s >= HELD * self.beyond_s
    }
}

impl Train {
    /// Withdraws and advertises as much of the table as the time allows, in turn, at `rate` changes per second. It begins and ends
    /// with a withdrawal, so that a router which has not begun is not taken for one that is through; the table is then restored.
    fn run(&self, bed: &mut dyn Testbed, rate: u32) -> Result<Pace, TestError> {
        let changes = ((f64::from(rate) * self.duration_s) as u64).max(1);
        // A message must not have much more than its time, or the pace would be one of bursts.
        let most = (f64::from(rate) * MESSAGE_S).clamp(1.0, f64::from(u16::MAX)) as u16;
        let routes_per_update = Some(self.packing.routes_per_update).filter(|n| *n > 0).map_or(most, |n| n.min(most));
        let packing = Packing { pace: Some(f64::from(rate)), routes_per_update, ..self.packing };
        // An odd number of turns of the same routes.
        let turns = changes.div_ceil(u64::from(self.all.len())) | 1;
        let count = (changes / turns).clamp(1, u64::from(self.all.len())) as u32;
        let (peer, watch) = (self.origin, self.watch);
        let routing = bed.routing()?;
        let begun = routing.now_s();
        for turn in 0..turns {
            let (routes, part) = (self.all.clone(), 0..count);
            routing.act(&if turn % 2 == 0 {
                RouteAction::Withdraw { peer, routes, part, packing }
            } else {
                RouteAction::Announce { peer, routes, part, packing }
            })?;
        }
        routing.expect(watch, 0..count, false);
        let first = routing.await_settled(&[watch], self.patience)?;
        let sending = first.sending;
        // A TCP may acknowledge what it has after 40 ms or more: the pace is that of what was sent.
        let acknowledged_s = first.sent_s.unwrap_or_else(|| routing.now_s() - begun);
        let sent_at = begun + (acknowledged_s - sending.unanswered_s).max(0.0);
        // Rounds that it is behind are worked off some time; what comes and goes for longer does so for ever.
        let deadline_s = sent_at + self.patience.as_secs_f64() * f64::from(RESTLESS);
        let mut settled = first;
        // A router that is whole rounds behind passes through the right state and leaves it again.
        while settled.complete {
            let before = bed.routing()?.verified(watch);
            bed.settle(self.lag)?;
            let routing = bed.routing()?;
            let after = routing.verified(watch);
            if (before.announcements, before.withdrawals) == (after.announcements, after.withdrawals) {
                break;
            }
            settled = routing.await_settled(&[watch], self.patience)?;
            if settled.complete && routing.now_s() > deadline_s {
                settled.complete = false;
                settled.cause = format!(
                    "its routes still changed {} s after the last change",
                    thousands((routing.now_s() - sent_at) as u64)
                );
            }
        }
        let routing = bed.routing()?;
        let last = routing.verified(watch).last_change_s.unwrap_or(sent_at);
        let complaint = complaint(routing, watch, &settled);
        let pace = Pace {
            changes: turns * u64::from(count),
            sent_rps: (turns * u64::from(count)) as f64 / (sent_at - begun).max(1e-9),
            lag_s: (last - sent_at).max(0.0),
            complete: settled.complete,
            complaint,
            held_s: sending.held_s,
            late_s: sending.late_s,
            beyond_s: (sent_at - begun - (turns * u64::from(count)) as f64 / f64::from(rate)).max(0.0),
        };
        if pace.complete {
            let packing = self.packing;
            routing.expect(watch, 0..count, true);
            routing.act(&RouteAction::Announce { peer, routes: self.all.clone(), part: 0..count, packing })?;
            let restored = routing.await_settled(&[watch], self.patience)?;
            if !restored.complete {
                return Err(TestError::Failed("the router did not take the table once more".into()));
            }
        }
        Ok(pace)
    }
}

fn search(bed: &mut dyn Testbed, family: Family, params: &Params, outcome: &mut Outcome) -> Result<(), TestError> {
    let peers = one_per_port(bed, family, 2)?;
    let (origin, observer) = (peers[0], peers[1]);
    let packing = route_tests::packing(params)?;
    let all = route_tests::table(bed, params, family, routes(params, "routes"))?;
    route_tests::establish(bed, &[origin, observer], params)?;
    let routing = bed.routing()?;
    let watch = routing.watch(observer, origin, &all);
    routing.expect(watch, 0..all.len(), true);
    routing.act(&RouteAction::Announce { peer: origin, routes: all.clone(), part: 0..all.len(), packing })?;
    let settled = routing.await_settled(&[watch], patience(params))?;
    if !settled.complete {
        let why = complaint(routing, watch, &settled);
        return Err(TestError::Failed(format!("the router did not take the table: {why}")));
    }
    let train = Train {
        origin,
        watch,
        all,
        packing,
        duration_s: seconds(params, "duration", 30.0),
        lag: params.duration("lag").unwrap_or(Duration::from_secs(1)),
        patience: patience(params),
    };
    let most = routes(params, "max_rate");
    let (mut good, mut bad): (u32, Option<u32>) = (0, None);
    let mut rate = routes(params, "first_rate").min(most);
    let mut refinements = routes(params, "refinements");
    // The lowest pace that the tester fell short of although the router had room and the second peer was not behind: no figure of the
    // router's may rest on it.
    let mut short: Option<u32> = None;
    let mut attempt = 1;
    loop {
        bed.progress(&format!("update rate, {family}: {} changes/s", thousands(rate.into())), 0, 0);
        let pace = train.run(bed, rate)?;
        // A pace that the session did not take is none that the router kept up with.
        let slow = pace.sent_rps < 0.98 * f64::from(rate);
        let kept_up = pace.complete && !slow && pace.lag_s <= train.lag.as_secs_f64();
        let fell_short = pace.complete && slow && !pace.held_back() && pace.lag_s <= train.lag.as_secs_f64();
        let again = fell_short && attempt < ATTEMPTS;
        let mut marks = Vec::new();
        if !pace.complete {
            marks.push(pace.complaint.clone());
        } else if slow && pace.held_back() {
            marks.push("the router held the session back".into());
        } else if slow {
            marks.push("the tester fell short".into());
        }
        if again {
            marks.push("repeated".into());
        }
        row(
            outcome,
            TABLE,
            Row {
                cells: vec![
                    family.to_string().into(),
                    u64::from(rate).into(),
                    pace.sent_rps.into(),
                    pace.changes.into(),
                    (pace.lag_s * 1e3).into(),
                    (pace.held_s * 1e3).into(),
                    (pace.late_s * 1e3).into(),
                    if kept_up { "yes" } else { "no" }.into(),
                ],
                trials: Vec::new(),
                marks,
            },
        );
        let dot = Point { x: f64::from(rate), y: (pace.lag_s * 1e3).max(0.001), ..Point::default() };
        point(outcome, TABLE, &family.to_string(), SeriesKind::Dots, dot);
        if again {
            attempt += 1;
            continue;
        }
        attempt = 1;
        if !pace.complete {
            bad = Some(rate);
            note(
                outcome,
                format!("{family}: ended at {} changes per second: {}", thousands(rate.into()), pace.complaint),
            );
            break;
        }
        if kept_up {
            good = good.max(rate);
        } else {
            bad = Some(bad.map_or(rate, |b| b.min(rate)));
            short = fell_short.then_some(rate).or(short);
        }
        rate = match bad {
            None if rate >= most => break,
            None => rate.saturating_mul(2).min(most),
            Some(_) if refinements == 0 => break,
            Some(bad) => {
                refinements -= 1;
                good + (bad - good) / 2
            }
        };
        if rate <= good || rate == 0 {
            break;
        }
    }
    if bad.is_none() {
        note(outcome, format!("{family}: at least {} changes per second; more were not tried", thousands(good.into())));
    }
    // It is the router's bound only if it was behind at the lowest pace that was too much.
    let limited = bad.is_none() || short == bad;
    if let Some(short) = short.filter(|_| limited) {
        note(
            outcome,
            format!(
                "{family}: at least {} changes per second; the tester itself fell short of {} while the router had room",
                thousands(good.into()),
                thousands(short.into())
            ),
        );
    }
    outcome.ranks.push(RankFigure {
        key: format!("bgp_update_rate_{}_rps", family.to_string().to_lowercase()),
        title: format!("Sustained update rate, {family}"),
        unit: "changes/s".into(),
        value: (good > 0).then_some(f64::from(good)),
        higher_is_better: true,
        tester_limited: limited,
        resolution: 0.15,
    });
    Ok(())
}
