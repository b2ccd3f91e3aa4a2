//! A made-up test of routes: a skyline, rates with flaps, stairs of capacity, sorted convergence times, a list of prefixes.

use drophammer_model::outcome::{Cell, Column, Outcome, Plot, PlotKind, Point, Row, Series, Table};
use drophammer_model::record::{TestRecord, TestStatus};
use drophammer_store::Run;

/// Routes that are advertised and withdrawn.
pub const ROUTES: u32 = 200_000;
/// Number of unreachable prefixes on the second DUT.
pub const UNREACHABLE: u32 = 1_234;

fn at(x: f64, y: f64) -> Point {
    Point { x, y, ..Default::default() }
}

fn plot(key: &str, kind: PlotKind, title: &str, x: &str, y: &str, series: Vec<(&str, Vec<Point>)>) -> Plot {
    let series = series.into_iter().map(|(name, points)| Series {
        name: name.into(),
        reference: name == "advertised",
        dots: false,
        points,
    });
    let (key, title, x, y) = (key.into(), title.into(), x.into(), y.into());
    Plot { key, title, kind, x, y, log_y: false, series: series.collect(), events: vec![], spans: vec![] }
}

/// Two cycles of advertising and withdrawing; a slow DUT takes `slow` times as long.
fn skyline(slow: f64) -> Plot {
    let mut points = vec![at(0.0, 0.0)];
    let mut events = Vec::new();
    for cycle in [10.0, 70.0] {
        events.push((cycle, "advertise 200 k".into()));
        events.push((cycle + 30.0 + 0.02 * slow, "withdraw 200 k".into()));
        events.push((cycle + 4.0 * slow, "complete".into()));
        for i in 0..=1_000 {
            let share = f64::from(i) / 1_000.0;
            points.push(at(cycle + 4.0 * slow * share.powf(1.3), share * f64::from(ROUTES)));
        }
        for i in 0..=1_000 {
            let share = f64::from(i) / 1_000.0;
            points.push(at(cycle + 30.0 + 2.0 * slow * share, (1.0 - share) * f64::from(ROUTES)));
        }
    }
    points.push(at(120.0, 0.0));
    let series = vec![("", points)];
    Plot { events, ..plot("skyline", PlotKind::Area, "Routes present over time", "time, s", "routes", series) }
}

fn rates(slow: f64, long: u32) -> Plot {
    let noise = |i: u32| f64::from(i.wrapping_mul(2_654_435_761) >> 16) / 65_536.0;
    let end = 20.0 + 3.0 * slow;
    let curve = |flapped: bool| {
        let value = |i: u32| {
            let x = f64::from(i) * 60.0 / f64::from(long);
            let down = flapped && x > 20.0 && x < end;
            at(x, if down { 0.0 } else { 98_000.0 + 2_000.0 * noise(i) })
        };
        (0..long).map(value).collect()
    };
    let series = vec![("flapped", curve(true)), ("stable", curve(false))];
    let events = vec![(20.0, "withdraw 25 k".into()), (end, "forwards again".into()), (40.0, "advertise 25 k".into())];
    let title = "Forwarding rate with a route flap";
    Plot { events, ..plot("flap_rate", PlotKind::Line, title, "time, s", "fps per port", series) }
}

fn stairs(slow: f64) -> Plot {
    let step = |i: u32| at(f64::from(i) * 100_000.0, slow * (0.8 + 0.02 * f64::from(i * i)));
    let last = if slow > 1.5 { 7 } else { 10 };
    let series = vec![("", (1..=last).map(step).collect())];
    let mut out = plot("capacity", PlotKind::Steps, "Time per step of 100 k routes", "routes held", "time, s", series);
    if slow > 1.5 {
        out.events.push((700_000.0, "the session ended: hold timer expired".into()));
    }
    out
}

/// Convergence times. On a slow DUT some routes never arrive.
fn sorted(slow: f64, long: u32) -> Plot {
    let reached = if slow > 1.5 { 97.5 } else { 100.0 };
    let curve = |scale: f64| {
        let value = |i: u32| {
            let share = f64::from(i) / f64::from(long);
            at(share * reached, scale * slow * (0.02 + 1.5 * share.powi(3) + 2.0 * share.powi(200)))
        };
        (1..=long).map(value).collect()
    };
    let series = vec![("advertised again", curve(1.0)), ("withdrawn", curve(0.2))];
    let title = "Convergence time of every route";
    let axis = "share of routes, %";
    Plot { log_y: true, ..plot("convergence", PlotKind::Sorted, title, axis, "time, s", series) }
}

/// Adds the test to every DUT of the run; the longest series have `long` points.
pub fn add(run: &mut Run, long: u32) {
    run.started.tests.push(("bgp_convergence".into(), "BGP convergence".into()));
    for (i, dut) in run.started.duts.clone().into_iter().enumerate() {
        let slow = 1.0 + i as f64;
        let prefix = |n: u32| format!("{}.{}.{}.0/24", 20 + n / 65_536, n / 256 % 256, n % 256);
        let row = |n: u32| Row { cells: vec![Cell::from(prefix(n)), Cell::from(u64::from(n))], ..Default::default() };
        let lost = if i == 1 { UNREACHABLE } else { 3 };
        let table = Table {
            key: "unreachable".into(),
            title: "Unreachable prefixes".into(),
            columns: vec![Column::new("prefix", "Prefix", ""), Column::new("index", "Route", "")],
            rows: (0..lost).map(row).collect(),
        };
        let plots = vec![skyline(slow), rates(slow, long), stairs(slow), sorted(slow, long)];
        run.tests.push(TestRecord {
            dut,
            round: 1,
            test: "bgp_convergence".into(),
            id: None,
            title: "BGP convergence".into(),
            parameters: serde_json::json!({ "routes": ROUTES }),
            elapsed_s: 240.0,
            status: TestStatus::Completed,
            outcome: Outcome { tables: vec![table], plots, ..Default::default() },
        });
    }
}
