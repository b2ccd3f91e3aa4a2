//! VPN route flap: CE routers withdraw a part of their routes and advertise it again while traffic goes to every route of every VRF (the MPLS VPN
//! test of 2004: 50,000 of 800,000 routes, withdrawn after 60 s and advertised again about 100 s later).

use crate::attempts::Attempts;
use crate::kit::prelude::*;
use crate::route_flap::lost_between;
use crate::routing::Change;
use crate::trial::TimedActions;
use crate::vpn_traffic::{self, LEAKS, TO_CORE, Vpn, VpnTraffic, note_leaked_routes};
use crate::vpns::{VpnRoutesSeen, Way};
use drophammer_model::outcome::{Blame, Missing};
use drophammer_model::trial::Bin;
use std::collections::BTreeMap;
use std::ops::Range;

/// The test.
pub struct VpnRouteFlap;

const FLAPPED_ROUTES: Param<Percent> =
    Param::fixed("flapped", "6.25", "share of all routes that flaps, in per cent: the last routes of each CE router");
/// Like `routes` of [`vpn_traffic::ROUTES`], with the number of the document.
const ROUTES: Param<u32> = Param::new("routes", "100", "10000", vpn_traffic::ROUTES_HELP);
const WITHDRAW_AT: Param<Duration> =
    Param::new("withdraw_at", "5 s", "60 s", "time after the start at which routes are withdrawn");
const AWAY: Param<Duration> = Param::new("away", "10 s", "100 s", "time after which they are advertised again");
const RETURN: Param<Duration> =
    Param::new("return", "15 s", "140 s", "time after that for which traffic is still sent");
const RATE: Param<FrameRate> =
    Param::fixed("rate", "5 kfps", "load of each port, below the throughput that `vpn_scale` finds");
const BIN: Param<Duration> = Param::new("bin", "100 ms", "1 s", "width of time bins");

const STABLE_LOSS: FigureSpec = FigureSpec::lower_by_difference(
    "vpn_flap_stable_loss_percent",
    "%",
    "share of lost frames on stable paths, in both directions",
)
.by(LEAST_LOSS_PERCENT);
const WITHDRAWN_S: FigureSpec = FigureSpec::lower(
    "vpn_flap_withdrawn_s",
    "s",
    "seconds from the withdrawal until no frame to a withdrawn route arrives",
);
const RETURNED_S: FigureSpec = FigureSpec::lower(
    "vpn_flap_returned_s",
    "s",
    "seconds from the advertisement until no frame to a flapped route is lost",
);
const LEAKED: FigureSpec =
    FigureSpec::lower_by_difference("vpn_flap_leaked_frames", "frames", "frames that arrived in another VRF").by(1.0);

static SPEC: TestSpec = TestSpec {
    name: "vpn_route_flap",
    title: "VPN route flap",
    summary: "loss and rate on stable and flapped paths of VRFs while CE routers withdraw routes and advertise them again",
    source: "MPLS VPN test of 2004: 50,000 of 800,000 routes, withdrawn after 60 s for 100 s; terms of RFC 4098",
    needs: vpn_traffic::NEEDS,
    params: params![&[
        vpn_traffic::VRFS.spec(),
        ROUTES.spec(),
        vpn_traffic::FAMILIES.spec(),
        FLAPPED_ROUTES.spec(),
        WITHDRAW_AT.spec(),
        AWAY.spec(),
        RETURN.spec(),
        RATE.spec(),
        BIN.spec(),
        vpn_traffic::SIZE.spec(),
        vpn_traffic::CHECK_RATE.spec(),
        vpn_traffic::INSTALL.spec(),
        vpn_traffic::PATIENCE.spec(),
        vpn_traffic::ESTABLISH.spec(),
        DRAIN.spec(),
    ]],
    figures: &[STABLE_LOSS.shape(), WITHDRAWN_S.shape(), RETURNED_S.shape(), LEAKED.shape()],
    tables: &[PATHS.shape(), EVENTS.shape(), LEAKS.shape()],
};

columns! {
    /// The frames on some paths to one port, over the whole trial.
    struct PathsRow {
        paths: String,
        port: String = "To port",
        routes: u64,
        offered: u64 ["frames"],
        received: u64 ["frames"],
        lost: u64 ["frames"],
        loss_percent: Option<f64> ["%"],
        lowest_pps: Option<f64> = "Lowest rate" ["fps"],
        mean_pps: Option<f64> = "Mean rate" ["fps"],
    }
}

columns! {
    /// One change of routes, at one port.
    struct EventRow {
        event: String,
        port: String,
        at_s: f64 ["s"],
        sent_s: Option<f64> = "Sent for" ["s"],
        first_s: Option<f64> = "First effect after" ["s"],
        last_s: Option<f64> = "Complete after" ["s"],
        resolution_s: f64 ["s"],
        stable_lost: u64 = "Lost on stable paths" ["frames"],
    }
}

const PATHS: TableSpec<PathsRow> = TableSpec::new("vpn_route_flap", "VPN route flap");
const EVENTS: TableSpec<EventRow> = TableSpec::new("vpn_route_flap_events", "VPN route flap, event by event");
const PLOT: PlotSpec = PlotSpec::new(
    "vpn_route_flap",
    "Forwarding rate on stable and flapped paths of VRFs",
    PlotKind::Line,
    "time, s",
    "arrivals, fps",
);
const BY_PORT: PlotSpec =
    PlotSpec { key: "vpn_route_flap_ports", title: "Forwarding rate on flapped paths of VRFs, by port", ..PLOT };
const STABLE: &str = "stable";
const FLAPPED: &str = "flapped";
const WITHDRAWN: &str = "withdrawn";
const ADVERTISED: &str = "advertised";
const NOT_COMPLETE: &str = "not complete before the next event or the end";

impl Method for VpnRouteFlap {
    fn spec(&self) -> &'static TestSpec {
        &SPEC
    }

    fn plan(&self, params: &Params) -> Plan {
        let vrfs = f64::from(vpn_traffic::VRFS.get(params).unwrap_or(100));
        let per_vrf = ROUTES.get(params);
        let routes = vrfs * f64::from(per_vrf) * vpn_traffic::FAMILIES.get(params).len() as f64;
        let (at, away) = (WITHDRAW_AT.get(params), AWAY.get(params));
        let short =
            (away.as_secs() < 100).then(|| format!("routes withdrawn for {} instead of 100 s", show_duration(away)));
        let few = (per_vrf < 10_000).then(|| format!("{per_vrf} routes per VRF instead of 10,000"));
        Plan::times(params, 1)
            .counting(TrialCount::about(2))
            .taking(20.0 + vrfs / 5.0 + routes / 4_000.0 + (at + away + RETURN.get(params)).as_secs_f64())
            .deviating(short)
            .deviating(few)
    }

    fn run(&self, bed: &mut dyn Testbed, params: &Params, outcome: &mut Outcome) -> Result<(), TestError> {
        PATHS.begin(outcome);
        EVENTS.begin(outcome);
        LEAKS.begin(outcome);
        PLOT.begin(outcome);
        BY_PORT.begin(outcome);
        bed.progress("VRFs come up");
        let (mut vpn, ready) = Vpn::bring_up(bed, params, |vpn| check_times(vpn, params))?;
        let found = match (&ready.forwarded_s, ready.seen.complete()) {
            (_, false) => Err(TestError::Failed(format!("routes are not passed on: {}", ready.seen.cause))),
            (None, _) => {
                let groups = ready.check.as_ref().map(vpn_traffic::arrived).unwrap_or_default();
                let why = format!("traffic to every route is not free of loss, even before routes flap ({groups})");
                Err(TestError::Failed(why))
            }
            _ => flap(bed, params, &mut vpn, outcome),
        };
        let taken = bed.vpns()?.take_down();
        found.and(taken)
    }
}

fn flap(bed: &mut dyn Testbed, params: &Params, vpn: &mut Vpn, outcome: &mut Outcome) -> Result<(), TestError> {
    let Percent(percent) = FLAPPED_ROUTES.get(params);
    let part = flapped_part(vpn, percent)?;
    let times = [WITHDRAW_AT.seconds(params), AWAY.seconds(params), RETURN.seconds(params)];
    let duration_s = times.iter().sum();
    let mut traffic = VpnTraffic::default();
    let ports: Vec<String> = bed.ports().iter().map(|port| port.name.clone()).collect();
    let group = |paths: &'static str| {
        let ports = ports.clone();
        move |vrf: &crate::vpns::VrfView, _: Family| group_name(paths, &ports[vrf.customer])
    };
    traffic.add(bed, vpn, Way::ToCore, &(0..vpn.per_site), &|_, _| TO_CORE.into())?;
    traffic.add(bed, vpn, Way::ToCustomers, &(0..part.start), &group(STABLE))?;
    traffic.add(bed, vpn, Way::ToCustomers, &part, &group(FLAPPED))?;
    let flapped = vpn.behind_customers(&part);
    let purpose = format!("VPN route flap: {flapped} of {} routes", vpn.all_routes());
    bed.progress(&purpose);
    let spec = TrialSpec {
        bin_s: Some(BIN.seconds(params)),
        ..vpn.trial(params, &traffic, purpose, RATE.get(params).pps(), duration_s)
    };
    let mut attempts = Attempts::few(bed);
    let (before, result, seen) = loop {
        let before = bed.vpns()?.seen();
        let changes = changes(bed, vpn, &part, &times)?;
        let result = bed.attempt(&Trial { changes, ..Trial::new(spec.clone()) }, attempts.number())?.result;
        vpn.count_leaks(&traffic, &result);
        let seen = bed.vpns()?.await_routes(vpn_traffic::PATIENCE.get(params))?;
        if attempts.passed(bed, &result)? {
            break (before, result, seen);
        }
        // A trial that ended early has not advertised the routes again.
        bed.vpns()?.change_all(Change::Advertise)?;
        let again = bed.vpns()?.await_routes(vpn_traffic::PATIENCE.get(params))?;
        if !again.complete() {
            return Err(TestError::Failed(format!("after a spoilt trial, routes are not passed on: {}", again.cause)));
        }
    };
    if !seen.complete() {
        note(outcome, format!("After the last advertisement, routes are not as expected: {}.", seen.cause));
    }
    note_leaked_routes(outcome, &seen);
    if let Some(missing) = seen.missing_since(&before) {
        note(outcome, format!("{missing}."));
    }
    let mut after = VpnTraffic::default();
    let same = after.add(bed, vpn, Way::ToCustomers, &part, &group(FLAPPED)).is_ok() && traffic.ends_with(&after);
    let doubts = doubts(&seen, &before, same);
    let leaked = vpn.write_leaks(bed, outcome)?;
    let bin_s = BIN.seconds(params);
    let resolution_s = bin_s.max(vpn.round_s(RATE.get(params)));
    let vpns = bed.vpns()?;
    let events = result.events.len();
    let sent = vpn.vrfs.iter().map(|vrf| (vrf.customer, vpns.sent(vrf.customer, events))).collect();
    let shape = Shape { bin_s, resolution_s, duration_s, ports, part, vpn, sent, doubts };
    write(outcome, &result, &shape);
    outcome.ranks.push(rank_leaked(leaked, same));
    Ok(())
}

/// Reasons to distrust the times of the changes and whom to blame for each, the failures of the router first.
fn doubts(seen: &VpnRoutesSeen, before: &VpnRoutesSeen, same_labels: bool) -> Vec<Missing> {
    let labels = (!same_labels).then(|| "the router has changed labels, and frames still had the old ones".to_owned());
    let by = |by: Blame| move |why: String| Missing { why, by };
    let ended = seen.ended_since(before).into_iter().map(by(Blame::Dut));
    let not_judged = seen.not_judged_since(before).map(by(Blame::Spoilt));
    ended.chain(not_judged).chain(labels.map(by(Blame::Beyond))).collect()
}

/// Frames with old labels may belong to another VRF by now, which is no leak.
fn rank_leaked(leaked: u64, same_labels: bool) -> RankFigure {
    let figure = LEAKED.of(&[], "Frames in another VRF during route flap", Some(leaked as f64));
    if leaked > 0 && !same_labels {
        return figure.beyond("the router handed out new labels, and frames still had the old ones");
    }
    figure
}

/// Refuses times in which some routes get no frame.
fn check_times(vpn: &Vpn, params: &Params) -> Result<(), TestError> {
    let round_s = vpn.round_s(RATE.get(params));
    for (key, time) in [("withdraw_at", &WITHDRAW_AT), ("away", &AWAY), ("return", &RETURN)] {
        if time.seconds(params) < round_s {
            let why = format!(
                "each route gets a frame every {round_s:.1} s, which is longer than `{key}`: write a longer time or a higher `rate`"
            );
            return Err(TestError::NotApplicable(why));
        }
    }
    Ok(())
}

fn group_name(paths: &str, port: &str) -> String {
    format!("{paths}, {port}")
}

/// The routes of each CE router that flap.
fn flapped_part(vpn: &Vpn, percent: f64) -> Result<Range<u32>, TestError> {
    // All flapped routes belong to CE routers, which have half of all routes.
    let count = (f64::from(vpn.per_site) * 2.0 * percent / 100.0).round() as u32;
    if count == 0 || count >= vpn.per_site {
        let why = format!(
            "{percent} % of the routes are {count} of the {} behind each CE router; change `flapped` or `routes`",
            vpn.per_site
        );
        return Err(TestError::NotApplicable(why));
    }
    Ok(vpn.per_site - count..vpn.per_site)
}

/// Withdrawal and advertisement of the flapped routes of all CE routers.
fn changes(
    bed: &mut dyn Testbed,
    vpn: &Vpn,
    part: &Range<u32>,
    times: &[f64; 3],
) -> Result<Vec<TimedActions>, TestError> {
    let vpns = bed.vpns()?;
    let mut one = |change: Change, at_s: f64, label: &str| {
        let of_vrf = |vrf| vpns.at_customer(vrf, change, part.clone());
        let actions = vpn.vrfs.iter().map(of_vrf).collect::<Result<Vec<_>, _>>()?.into_iter().flatten().collect();
        Ok(TimedActions { at_s, label: label.into(), routed: None, actions })
    };
    let withdrawn = one(Change::Withdraw, times[0], WITHDRAWN)?;
    Ok(vec![withdrawn, one(Change::Advertise, times[0] + times[1], ADVERTISED)?])
}

struct Shape<'a> {
    bin_s: f64,
    /// The longer of a bin and the time between two frames to a route.
    resolution_s: f64,
    duration_s: f64,
    ports: Vec<String>,
    part: Range<u32>,
    vpn: &'a Vpn,
    /// How long the CE routers behind each port sent each change, in seconds.
    sent: BTreeMap<usize, Vec<f64>>,
    /// [`doubts`]; empty if there are none.
    doubts: Vec<Missing>,
}

fn sum_bins<'a>(all: impl Iterator<Item = &'a [Bin]>) -> Vec<Bin> {
    let mut sum: Vec<Bin> = Vec::new();
    for bins in all {
        sum.resize(sum.len().max(bins.len()), Bin::default());
        for (bin, more) in sum.iter_mut().zip(bins) {
            bin.offered += more.offered;
            bin.delivered += more.delivered;
            bin.arrived += more.arrived;
        }
    }
    sum
}

fn write(outcome: &mut Outcome, result: &TrialResult, shape: &Shape<'_>) {
    let bin_s = shape.bin_s;
    let mut vrfs_of: BTreeMap<usize, u64> = BTreeMap::new();
    shape.vpn.vrfs.iter().for_each(|vrf| *vrfs_of.entry(vrf.customer).or_default() += 1);
    let families = shape.vpn.families.len() as u64;
    let stable_routes = u64::from(shape.part.start) * families;
    let to_core = u64::from(shape.vpn.per_site) * shape.vpn.vrfs.len() as u64 * families;
    let mut rows = vec![(TO_CORE, "core".to_owned(), TO_CORE.to_owned(), to_core)];
    for (port, vrfs) in &vrfs_of {
        let name = &shape.ports[*port];
        rows.push((STABLE, name.clone(), group_name(STABLE, name), stable_routes * vrfs));
        rows.push((FLAPPED, name.clone(), group_name(FLAPPED, name), shape.part.len() as u64 * families * vrfs));
    }
    let mut of_paths: BTreeMap<&str, Vec<&[Bin]>> = BTreeMap::new();
    let (mut stable_offered, mut stable_lost) = (0, 0);
    for (paths, port, group, routes) in &rows {
        let Some(counts) = result.groups.iter().find(|counts| counts.group == *group) else { continue };
        of_paths.entry(paths).or_default().push(&counts.bins);
        if *paths != FLAPPED {
            stable_offered += counts.offered;
            stable_lost += counts.lost;
        }
        let rates: Vec<f64> = counts.bins.iter().map(|bin| bin.arrived as f64 / bin_s).collect();
        // The first and the last bin may be partial.
        let whole = (shape.duration_s / bin_s + 1e-6) as usize;
        let inner = rates.get(1..whole.min(rates.len())).unwrap_or_default();
        let row = PathsRow {
            paths: (*paths).into(),
            port: port.clone(),
            routes: *routes,
            offered: counts.offered,
            received: counts.received,
            lost: counts.lost,
            loss_percent: percent_of(counts.lost, counts.offered),
            lowest_pps: inner.iter().copied().min_by(f64::total_cmp),
            mean_pps: (!inner.is_empty()).then(|| mean(inner)),
        };
        PATHS.add(outcome, row, [result.trial], []);
        if *paths == FLAPPED {
            for (at, rate) in rates.iter().enumerate() {
                BY_PORT.curve(outcome, port, xy_of(at as f64 * bin_s, *rate, result.trial));
            }
        }
    }
    for (paths, bins) in &of_paths {
        for (at, bin) in sum_bins(bins.iter().copied()).iter().enumerate() {
            PLOT.curve(outcome, paths, xy_of(at as f64 * bin_s, bin.arrived as f64 / bin_s, result.trial));
        }
    }
    let stable: Vec<&[Bin]> =
        of_paths.iter().filter(|(paths, _)| **paths != FLAPPED).flat_map(|(_, bins)| bins.clone()).collect();
    let stable = sum_bins(stable.into_iter());
    let loss = percent_of(stable_lost, stable_offered);
    outcome.ranks.push(STABLE_LOSS.of(&[], "Loss on stable paths during VPN route flap", loss));
    events(outcome, result, shape, &vrfs_of, &stable);
}

/// When the changes took effect, at each port and over all of them.
fn events(
    outcome: &mut Outcome,
    result: &TrialResult,
    shape: &Shape<'_>,
    ports: &BTreeMap<usize, u64>,
    stable: &[Bin],
) {
    let bin_s = shape.bin_s;
    let mut since = 0.0;
    for (index, event) in result.events.iter().enumerate() {
        let until = result.events.get(index + 1).map_or(shape.duration_s, |next| next.at_s);
        let (stable_lost, _) = lost_between(stable, bin_s, event.at_s, until);
        let mut slowest: Option<Effect> = None;
        let mut unknown = false;
        let sent = |port: &usize| shape.sent.get(port).and_then(|sent| sent.get(index)).copied();
        if let Some(longest_s) = ports.keys().filter_map(sent).max_by(f64::total_cmp) {
            let text = format!("{}: the tester sends", event.label);
            PLOT.span(outcome, (event.at_s, event.at_s + longest_s), &text);
        }
        for port in ports.keys() {
            let name = &shape.ports[*port];
            let group = group_name(FLAPPED, name);
            let bins = result.groups.iter().find(|counts| counts.group == group).map_or(&[][..], |counts| &counts.bins);
            let found = effect(bins, bin_s, [since, event.at_s, until], event.label == WITHDRAWN);
            unknown |= found.last_s.is_none();
            if slowest.is_none_or(|slowest| found.last_s > slowest.last_s) {
                slowest = Some(found);
            }
            let row = EventRow {
                event: event.label.clone(),
                port: name.clone(),
                at_s: event.at_s,
                sent_s: sent(port),
                first_s: found.first_s,
                last_s: found.last_s,
                resolution_s: shape.resolution_s,
                stable_lost,
            };
            if let Some(sent_s) = sent(port) {
                let text = format!("{}: the tester sends at {name}", event.label);
                BY_PORT.span(outcome, (event.at_s, event.at_s + sent_s), &text);
            }
            if let Some(last_s) = found.last_s {
                let text = format!("{name} after {last_s:.3} s");
                BY_PORT.event(outcome, event.at_s + last_s, &text);
            }
            let marks = found.last_s.is_none().then(|| NOT_COMPLETE.to_owned());
            let marks = marks.into_iter().chain(shape.doubts.iter().map(|doubt| doubt.why.clone()));
            EVENTS.add(outcome, row, [result.trial], marks);
        }
        PLOT.event(outcome, event.at_s, &event.label);
        BY_PORT.event(outcome, event.at_s, &event.label);
        let (figure, title) = match event.label.as_str() {
            WITHDRAWN => (WITHDRAWN_S, "Time until withdrawn VPN routes get no traffic"),
            _ => (RETURNED_S, "Time until advertised VPN routes get all traffic"),
        };
        let value = slowest.and_then(|slowest| slowest.last_s).filter(|_| !unknown && shape.doubts.is_empty());
        let resolution = value.map_or(0.0, |value| shape.resolution_s / value.max(shape.resolution_s));
        since = event.at_s;
        let not_complete = || unknown.then(|| Missing { why: NOT_COMPLETE.into(), by: Blame::Dut });
        let missing = shape.doubts.first().cloned().or_else(not_complete);
        outcome.ranks.push(RankFigure { resolution, missing, ..figure.of(&[], title, value) });
    }
}

/// Seconds from a change until its first effect on traffic to flapped routes, and until it was complete.
#[derive(Clone, Copy, Debug, Default, PartialEq)]
struct Effect {
    first_s: Option<f64>,
    last_s: Option<f64>,
}

/// The effect of a withdrawal (frames cease to arrive) or an advertisement (frames cease to be lost) at the second of three times on
/// frames by their departure; the others are the event before it and the end. `last_s` is absent if the change was not complete before the end, or if
/// frames already fared as after the change before it.
fn effect(bins: &[Bin], bin_s: f64, [since_s, at_s, until_s]: [f64; 3], withdrawn: bool) -> Effect {
    let (lost, delivered) =
        (|bin: usize| bins[bin].offered.saturating_sub(bins[bin].delivered), |bin: usize| bins[bin].delivered);
    let end_s = |bin: usize| (bin + 1) as f64 * bin_s;
    let sent = || (0..bins.len()).filter(|bin| bins[*bin].offered > 0);
    let range: Vec<usize> = sent().filter(|bin| end_s(*bin) > at_s && end_s(*bin) <= until_s + 1e-9).collect();
    // Frames that fare as before the change, and as after it.
    let (old, new): (&dyn Fn(usize) -> u64, &dyn Fn(usize) -> u64) =
        if withdrawn { (&delivered, &lost) } else { (&lost, &delivered) };
    if !sent().any(|bin| end_s(bin) > since_s && end_s(bin) <= at_s + 1e-9 && old(bin) > 0) {
        return Effect::default();
    }
    let first = range.iter().copied().find(|bin| new(*bin) > 0);
    let last_old = range.iter().copied().rev().find(|bin| old(*bin) > 0);
    let complete = match (last_old, range.last()) {
        (Some(last), Some(end)) if last == *end => None,
        (Some(last), _) => Some(((last + 1) as f64 * bin_s - at_s).max(0.0)),
        (None, Some(_)) => Some(0.0),
        (None, None) => None,
    };
    Effect { first_s: first.map(|bin| (bin as f64 * bin_s - at_s).max(0.0)), last_s: complete }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn bins(delivered: &[u64]) -> Vec<Bin> {
        delivered.iter().map(|delivered| Bin { offered: 10, delivered: *delivered, arrived: *delivered }).collect()
    }

    #[test]
    fn a_late_tester_and_new_labels_are_not_the_routers_fault() {
        let before = VpnRoutesSeen { sessions_lost: 2, ..VpnRoutesSeen::default() };
        let blamed = |seen: VpnRoutesSeen, same| -> Vec<Blame> {
            doubts(&seen, &before, same).into_iter().map(|doubt| doubt.by).collect()
        };
        let calm = before.clone();
        let lost = VpnRoutesSeen { sessions_lost: 3, ..calm.clone() };
        let late = VpnRoutesSeen { bfd_not_judged: 1, ..calm.clone() };
        let both = VpnRoutesSeen { bfd_not_judged: 1, ..lost.clone() };
        assert!(blamed(calm.clone(), true).is_empty());
        // The session stayed up, so the times are right.
        assert!(blamed(VpnRoutesSeen { bfd_missing: 5, ..calm.clone() }, true).is_empty());
        assert_eq!(blamed(lost, true), [Blame::Dut]);
        assert_eq!(blamed(late, true), [Blame::Spoilt]);
        assert_eq!(blamed(calm, false), [Blame::Beyond]);
        assert_eq!(blamed(both, false), [Blame::Dut, Blame::Spoilt, Blame::Beyond]);
    }

    #[test]
    fn frames_with_old_labels_are_no_leaks() {
        assert_eq!(rank_leaked(3, true).value, Some(3.0));
        assert_eq!(rank_leaked(0, false).value, Some(0.0));
        let unknown = rank_leaked(3, false);
        assert_eq!((unknown.value, unknown.missing.map(|missing| missing.by)), (None, Some(Blame::Beyond)));
    }

    #[test]
    fn effects_are_timed_by_departure() {
        // Withdrawn at 1 s, the first loss in the bin from 1.5 s on, the last arrival in the bin until 2.5 s.
        let all = bins(&[10, 10, 10, 8, 3, 0, 0, 0, 0, 2, 7, 10, 10]);
        let withdrawn = effect(&all, 0.5, [0.0, 1.0, 4.0], true);
        assert_eq!(withdrawn, Effect { first_s: Some(0.5), last_s: Some(1.5) });
        let advertised = effect(&all, 0.5, [1.0, 4.0, 6.5], false);
        assert_eq!(advertised, Effect { first_s: Some(0.5), last_s: Some(1.5) });
    }

    #[test]
    fn a_change_that_is_not_complete_has_no_time() {
        let lasting = effect(&bins(&[10, 10, 9, 9]), 0.5, [0.0, 1.0, 2.0], true);
        assert_eq!(lasting, Effect { first_s: Some(0.0), last_s: None });
        let never = effect(&bins(&[0, 0, 0, 0]), 0.5, [0.0, 1.0, 2.0], false);
        assert_eq!(never, Effect { first_s: None, last_s: None });
        assert_eq!(effect(&[], 0.5, [0.0, 1.0, 2.0], false), Effect::default());
    }

    #[test]
    fn what_was_so_before_a_change_is_no_effect_of_it() {
        assert_eq!(effect(&bins(&[0, 0, 0, 0]), 0.5, [0.0, 1.0, 2.0], true), Effect::default());
        assert_eq!(effect(&bins(&[10, 10, 10, 10]), 0.5, [0.0, 1.0, 2.0], false), Effect::default());
    }
}
