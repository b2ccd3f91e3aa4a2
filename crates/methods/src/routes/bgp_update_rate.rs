//! Sustained update rate: routes are withdrawn and advertised at a steady pace, and the router must re-advertise every
//! change to a second peer without falling behind (terms of RFC 4098; no RFC defines this test).

use crate::attempts::Attempts;
use crate::figure::of_family;
use crate::kit::prelude::*;
use crate::route_tests::{self, Case, PATIENCE, complaint, follow, for_each_family, must_be_complete, thousands};
use crate::routes_sent;
use crate::routing::{Change, Packing, PeerIndex, RESTLESS, WatchIndex};

/// The test.
pub struct BgpUpdateRate;

const ROUTES: Param<u32> = Param::new("routes", "20000", "200000", "number of routes in the table that changes");
const FIRST_RATE: Param<u32> =
    Param::fixed("first_rate", "5000", "changes per second at first; doubled while the router keeps up");
const MAX_RATE: Param<u32> = Param::new("max_rate", "320000", "5000000", "changes per second at which the test ends");
const DURATION: Param<Duration> = Param::new("duration", "1 s", "30 s", "time at each rate");
const LAG: Param<Duration> =
    Param::new("lag", "250 ms", "1 s", "the router is behind if it needs longer than this after the last change");
const REFINEMENTS: Param<u32> = Param::new(
    "refinements",
    "3",
    "5",
    "how often the interval between the last good and the first bad rate is halved",
);

const RATE: [FigureSpec; 2] = [
    FigureSpec::higher(
        "bgp_update_rate_ipv4_rps",
        "changes/s",
        "IPv4 route changes per second re-advertised without falling behind",
    ),
    FigureSpec::higher(
        "bgp_update_rate_ipv6_rps",
        "changes/s",
        "IPv6 route changes per second re-advertised without falling behind",
    ),
];

static SPEC: TestSpec = TestSpec {
    name: "bgp_update_rate",
    title: "Sustained update rate",
    summary: "the highest rate of withdrawals and advertisements that the router re-advertises without falling behind",
    source: "terms of RFC 4098 (update trains, flaps)",
    needs: route_tests::NEEDS,
    params: params![
        &route_tests::TABLES,
        &[ROUTES.spec(), FIRST_RATE.spec(), MAX_RATE.spec(), DURATION.spec(), LAG.spec(), REFINEMENTS.spec()],
        &route_tests::SESSIONS,
    ],
    figures: &[RATE[0].shape(), RATE[1].shape()],
    tables: &[TABLE.shape(), routes_sent::SHAPE],
};

columns! {
    /// One train of changes.
    struct TrainRow {
        family: Family,
        intended_rps: u64 ["changes/s"],
        sent_rps: f64 ["changes/s"],
        changes: u64,
        lag_ms: f64 = "Behind at the end" ["ms"],
        held_ms: f64 = "Held back by the router" ["ms"],
        late_ms: f64 = "Tester late" ["ms"],
        kept_up: String,
    }
}

const TABLE: TableSpec<TrainRow> = TableSpec::new("bgp_update_rate", "Sustained update rate");
const PLOT: PlotSpec = PlotSpec::new(
    "bgp_update_rate",
    "How far behind the second peer is",
    PlotKind::Line,
    "changes per second",
    "behind, ms",
)
.logarithmic();
/// One UPDATE carries at most the changes that are due within this time, in seconds.
const MESSAGE_S: f64 = 0.005;
/// The router caused the excess time of a train if it held the session back for at least this share of it.
const HELD: f64 = 0.5;
/// Least resolution of the figure, as a share of it: rates that are closer are not told apart.
const LEAST_WIDTH: f64 = 0.15;
/// Maximum number of attempts at a pace that the tester did not reach.
const ATTEMPTS: u32 = 3;

impl Method for BgpUpdateRate {
    fn spec(&self) -> &'static TestSpec {
        &SPEC
    }

    fn plan(&self, params: &Params) -> Plan {
        let paces = 7.0 + f64::from(REFINEMENTS.get(params));
        Plan::by_family(&SPEC, params).taking(paces * (DURATION.seconds(params) + 0.5) + 4.0).deviating(shorter(
            params,
            &DURATION,
            "trains",
            30.0,
            route_tests::CONFORMANT,
        ))
    }

    fn run(&self, bed: &mut dyn Testbed, params: &Params, outcome: &mut Outcome) -> Result<(), TestError> {
        TABLE.begin(outcome);
        PLOT.begin(outcome);
        for_each_family(bed, params, outcome, |bed, family, outcome| search(bed, family, params, outcome))
    }
}

struct Train<'a> {
    params: &'a Params,
    case: Case,
    origin: PeerIndex,
    watch: WatchIndex,
}

/// Result of one train of changes at one pace.
struct Pace {
    changes: u64,
    sent_rps: f64,
    lag_s: f64,
    complete: bool,
    complaint: String,
    /// Disturbances by the host during the train.
    disturbed: Vec<String>,
    /// Seconds for which the DUT held the session back, and for which the tester was late.
    held_s: f64,
    late_s: f64,
    /// Duration of the train beyond the time that its pace requires, in seconds.
    beyond_s: f64,
}

impl Pace {
    /// Returns true if the router read too slowly for at least half of the train's excess time.
    fn held_back(&self) -> bool {
        self.held_s >= HELD * self.beyond_s
    }
}

impl Train<'_> {
    /// Alternately withdraws and advertises as much of the table as the time allows, at `rate` changes per second. The
    /// train begins and ends with a withdrawal, so that a router that has not begun is not mistaken for one that has
    /// finished. Then it restores the table.
    fn run(&self, bed: &mut dyn Testbed, rate: u32) -> Result<Pace, TestError> {
        let changes = ((f64::from(rate) * DURATION.seconds(self.params)) as u64).max(1);
        // An UPDATE must not carry much more than the changes due in its time, or the train would be a series of
        // bursts.
        let most = (f64::from(rate) * MESSAGE_S).clamp(1.0, f64::from(u16::MAX)) as u16;
        let own = self.case.packing;
        let routes_per_update = Some(own.routes_per_update).filter(|n| *n > 0).map_or(most, |n| n.min(most));
        let packing = Packing { pace: Some(f64::from(rate)), routes_per_update, ..own };
        let paced = Case { packing, ..self.case.clone() };
        let patience = PATIENCE.get(self.params);
        // An odd number of rounds over the same routes.
        let turns = changes.div_ceil(self.case.all.len().into()) | 1;
        let count = (changes / turns).clamp(1, self.case.all.len().into()) as u32;
        let watch = self.watch;
        let routing = bed.routing()?;
        routing.watch_host();
        let begun = routing.now_s();
        for turn in 0..turns {
            let change = if turn % 2 == 0 { Change::Withdraw } else { Change::Advertise };
            routing.act(&paced.change(change, self.origin, 0..count))?;
        }
        routing.expect(watch, 0..count, false);
        let first = routing.await_settled(&[watch], patience)?;
        let sending = first.sending;
        // TCP may delay its acknowledgement by 40 ms or more, so the pace is measured by the time when data was sent.
        let acknowledged_s = first.sent_s.unwrap_or_else(|| routing.now_s() - begun);
        let sent_at = begun + (acknowledged_s - sending.unanswered_s).max(0.0);
        // A router that is some rounds behind eventually catches up. If its routes still change after this deadline, it
        // never settles.
        let deadline_s = sent_at + patience.as_secs_f64() * f64::from(RESTLESS);
        let mut settled = first;
        // A router that is several rounds behind passes through the right state and leaves it again.
        while settled.complete {
            let before = bed.routing()?.verified(watch);
            bed.settle(LAG.get(self.params))?;
            let routing = bed.routing()?;
            let after = routing.verified(watch);
            if (before.announcements, before.withdrawals) == (after.announcements, after.withdrawals) {
                break;
            }
            settled = routing.await_settled(&[watch], patience)?;
            if settled.complete && routing.now_s() > deadline_s {
                settled.complete = false;
                settled.cause = format!(
                    "its routes still changed {} s after the last change",
                    thousands((routing.now_s() - sent_at) as u64)
                );
            }
        }
        let routing = bed.routing()?;
        let disturbed = routing.disturbed();
        let last = routing.verified(watch).last_change_s.unwrap_or(sent_at);
        let complaint = complaint(routing, watch, &settled);
        let pace = Pace {
            changes: turns * u64::from(count),
            sent_rps: (turns * u64::from(count)) as f64 / (sent_at - begun).max(1e-9),
            lag_s: (last - sent_at).max(0.0),
            complete: settled.complete,
            complaint,
            disturbed,
            held_s: sending.held_s,
            late_s: sending.late_s,
            beyond_s: (sent_at - begun - (turns * u64::from(count)) as f64 / f64::from(rate)).max(0.0),
        };
        if pace.complete {
            let again = follow(bed, self.params, &self.case.advertise(self.origin, 0..count), watch)?;
            must_be_complete(bed, watch, &again, || "the router did not accept the table again".into())?;
        }
        Ok(pace)
    }
}

fn search(bed: &mut dyn Testbed, family: Family, params: &Params, outcome: &mut Outcome) -> Result<(), TestError> {
    let case = Case::new(bed, family, params, 2, ROUTES.get(params))?;
    let (origin, observer) = (case.peers[0], case.peers[1]);
    let watch = case.load(bed, params, origin, observer)?;
    let train = Train { params, case, origin, watch };
    let (most, lag_s) = (MAX_RATE.get(params), LAG.seconds(params));
    let (mut good, mut bad): (u32, Option<u32>) = (0, None);
    let mut rate = FIRST_RATE.get(params).min(most);
    let mut refinements = REFINEMENTS.get(params);
    // The lowest pace that gives no figure, either because the tester did not reach it although the router had room and
    // the second peer was not behind, or because the host disturbed all attempts (then true).
    let mut short: Option<(u32, bool)> = None;
    let (mut attempt, mut attempts) = (1, Attempts::begin(bed));
    loop {
        bed.progress(&format!("update rate, {family}: {} changes/s", thousands(rate.into())));
        let pace = train.run(bed, rate)?;
        // If the session was slower than the pace, the router did not keep up with it.
        let slow = pace.sent_rps < 0.98 * f64::from(rate);
        let kept_up = pace.complete && !slow && pace.lag_s <= lag_s;
        let fell_short = pace.complete && slow && !pace.held_back() && pace.lag_s <= lag_s;
        let again = fell_short && attempt < ATTEMPTS;
        // A busy host never helps a router to keep up, so a pace with which the router kept up counts.
        let disturbed = pace.complete && !kept_up && !pace.disturbed.is_empty();
        let again = if disturbed { attempts.again(bed, &pace.disturbed, pace.beyond_s) } else { again };
        let mut marks = Vec::new();
        if !pace.complete {
            marks.push(pace.complaint.clone());
        } else if slow && pace.held_back() {
            marks.push("the router held the session back".into());
        } else if slow {
            marks.push("the tester fell short".into());
        }
        if disturbed {
            marks.extend(pace.disturbed.iter().cloned());
        }
        if again {
            marks.push("repeated".into());
        }
        TABLE.add(
            outcome,
            TrainRow {
                family,
                intended_rps: rate.into(),
                sent_rps: pace.sent_rps,
                changes: pace.changes,
                lag_ms: pace.lag_s * 1e3,
                held_ms: pace.held_s * 1e3,
                late_ms: pace.late_s * 1e3,
                kept_up: if kept_up { "yes" } else { "no" }.into(),
            },
            [],
            marks,
        );
        PLOT.dot(outcome, &family.to_string(), xy(f64::from(rate), (pace.lag_s * 1e3).max(0.001)));
        if again {
            attempt += u32::from(!disturbed);
            continue;
        }
        (attempt, attempts) = (1, Attempts::begin(bed));
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
            short = (fell_short || disturbed).then_some((rate, disturbed)).or(short);
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
        note(
            outcome,
            format!("{family}: at least {} changes per second; higher rates were not tried", thousands(good.into())),
        );
    }
    // The router determines the bound only if it was behind at the lowest pace that failed.
    let limited = bad.is_some() && short.map(|(pace, _)| pace) == bad;
    let mut spoilt = None;
    if let Some((pace, disturbed)) = short.filter(|_| limited) {
        let (bound, pace) = (thousands(good.into()), thousands(pace.into()));
        let why = match disturbed {
            true => format!("the host disturbed every attempt at {pace}"),
            false => format!("the tester itself fell short of {pace} while the router had room"),
        };
        let found = if good > 0 { format!("at least {bound} changes per second") } else { "no figure".into() };
        note(outcome, format!("{family}: {found}; {why}"));
        spoilt = Some(why).filter(|_| good == 0);
    }
    let figure = figure(family, good, bad, limited);
    outcome.ranks.push(match spoilt {
        Some(why) => figure.spoilt(why),
        None => figure.because("it did not keep up with the lowest rate of changes"),
    });
    Ok(())
}

/// Makes the figure. `good`: the highest rate with which the router kept up. `bad`: the lowest with which it did not. `limited`: the tester
/// set `bad`.
fn figure(family: Family, good: u32, bad: Option<u32>, limited: bool) -> RankFigure {
    let title = format!("Sustained update rate, {family}");
    let figure = of_family(&RATE, family).of(&[], title, (good > 0).then_some(f64::from(good)));
    let width = bad.map_or(0.0, |bad| 1.0 - f64::from(good) / f64::from(bad.max(1)));
    // If the test ended at its own maximum, the router may keep up with more.
    RankFigure { capped: bad.is_none(), tester_limited: limited, resolution: width.max(LEAST_WIDTH), ..figure }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_last_interval_is_the_resolution_of_a_rate() {
        let of = |good, bad, limited| {
            let figure = figure(Family::Ipv4, good, bad, limited);
            (figure.value, figure.resolution, figure.capped, figure.tester_limited)
        };
        assert_eq!(of(8_000, None, false), (Some(8_000.0), 0.15, true, false));
        assert_eq!(of(4_000, Some(8_000), false), (Some(4_000.0), 0.5, false, false));
        assert_eq!(of(7_500, Some(8_000), true), (Some(7_500.0), 0.15, false, true));
        assert_eq!(of(0, Some(250), false), (None, 1.0, false, false));
    }
}
