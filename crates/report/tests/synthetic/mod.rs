//! A synthetic run with every kind of plot, mark and ending. Its figures are not real results.

// Each test file uses its own part of this.
#![allow(dead_code)]

use drophammer_model::environment::{DutRecord, Environment, PortRecord};
use drophammer_model::figure::Claim;
use drophammer_model::latency::{LatencySummary, PERCENTILES};
use drophammer_model::outcome::{
    Cell, Column, Outcome, Plot, PlotKind, Point, RankFigure, Row, Series, Table, Verdict,
};
use drophammer_model::record::{Ended, FORMAT, Note, Started, TestRecord, TestStatus, TrialRecord};
use drophammer_model::trial::{GroupCounts, Health, Load, TrialResult, TrialSpec, Validity};
use drophammer_store::Run;
use serde_json::json;
use std::path::PathBuf;

pub const NAMES: [&str; 4] = ["linux", "frr", "bird-2.17", "reference"];
pub const SIZES: [u32; 7] = [64, 128, 256, 512, 1024, 1280, 1518];
/// Text that must never reach a report unescaped.
pub const HOSTILE: &str = "</pre><script>alert(\"x\")</script> & | `_*\u{1b}[31m";

/// Speed of a DUT in frames per second; DUTs 0 and 1 are within one per cent of each other.
pub fn rate(dut: usize, size: u32) -> f64 {
    let cpu = [812_400.0, 806_100.0, 655_200.0, 1_450_000.0][dut];
    let line = 1e10 / (8.0 * (f64::from(size) + 20.0));
    (cpu * (1.0 - f64::from(size) / 16_000.0)).min(line)
}

pub fn trial(number: u64, dut: &str, test: &str, size: u32, load: f64, lost: u64) -> TrialRecord {
    let offered = load as u64 * 2;
    let group = |name: &str, lost: u64| GroupCounts {
        group: name.into(),
        intended: offered / 2,
        offered: offered / 2,
        received: offered / 2 - lost,
        lost,
        in_sequence: offered / 2 - lost,
        latency: latency(9_000.0),
        ..Default::default()
    };
    TrialRecord {
        dut: dut.into(),
        round: 1,
        test: test.into(),
        attempt: 1,
        filtered: false,
        filter_rules: None,
        classed: false,
        links_down: false,
        joint: false,
        time: "2026-11-21T03:45:10Z".into(),
        spec: TrialSpec {
            purpose: format!("{test} {size}: bisect"),
            size: size.to_string().parse().unwrap(),
            flows: vec![],
            load: Load::Constant { rate_pps: load },
            duration_s: 1.0,
            bin_s: None,
            drain_s: 2.0,
            events: vec![],
        },
        flows_left_out: 0,
        result: TrialResult {
            trial: number,
            sending_s: 1.0,
            receiving_s: 1.0,
            elapsed_s: 1.2,
            groups: vec![group("IPv4", lost), group("IPv6", 0)],
            health: Health {
                dut_used_ns: Some(970_000_000),
                max_gap_ns: 184_000,
                departure_error: vec![(50.0, 210), (99.0, 5_400)],
                ..Default::default()
            },
            dut_cpu: Some(0.97),
            senders: 2,
            ..TrialResult::default()
        },
    }
}

pub fn latency(scale: f64) -> LatencySummary {
    let at = |p: f64| (scale * (0.55 + 0.35 * -(1.0 - p.min(99.9995) / 100.0).log10()).powi(2)) as u64 + 4_000;
    LatencySummary {
        frames: 1_000_000,
        min_ns: at(0.0),
        mean_ns: at(50.0) as f64 * 1.1,
        max_ns: at(100.0),
        percentiles: PERCENTILES.iter().map(|p| (*p, at(*p))).collect(),
    }
}

fn series(name: &str, points: Vec<Point>) -> Series {
    Series { name: name.into(), reference: false, dots: false, points }
}

fn throughput(dut: usize, trials: &mut Vec<TrialRecord>) -> Outcome {
    let mut rows = Vec::new();
    let mut ranks = Vec::new();
    let (mut measured, mut theory) = (Vec::new(), Vec::new());
    for (i, size) in SIZES.iter().enumerate() {
        let line = 1e10 / (8.0 * (f64::from(*size) + 20.0));
        let found = rate(dut, *size);
        let limited = dut == 3 && i < 2;
        let number = (dut * 100 + i * 2 + 1) as u64;
        trials.push(trial(number, NAMES[dut], "throughput", *size, found, 0));
        trials.push(trial(number + 1, NAMES[dut], "throughput", *size, found * 1.01, 1_234));
        let cells = vec![
            Cell::from(u64::from(*size)),
            Cell::from(line),
            Cell::from(found),
            Cell::from(found),
            Cell::from(found / line * 100.0),
            if dut == 1 && i == 6 { Cell::None } else { Cell::from(0.25) },
        ];
        let marks = if limited { vec!["tester-limited".to_owned()] } else { vec![] };
        rows.push(Row { cells, trials: vec![number, number + 1], marks });
        let point = |y: f64| Point { x: i as f64, y, label: Some(size.to_string()), ..Default::default() };
        measured.push(point(found));
        theory.push(point(line));
        if [0, 6].contains(&i) {
            ranks.push(RankFigure {
                higher_is_better: true,
                tester_limited: limited,
                ..figure(&format!("throughput_{size}_pps"), &format!("Throughput, {size} bytes"), "fps", Some(found))
            });
        }
    }
    let columns = vec![
        Column::new("frame_bytes", "Frame size", "bytes"),
        Column::new("theoretical_pps", "Theoretical", "fps"),
        Column::new("offered_pps", "Offered load", "fps"),
        Column::new("throughput_pps", "Throughput", "fps"),
        Column::new("of_line_percent", "Of line rate", "%"),
        Column::new("width_percent", "Goal width", "%"),
    ];
    let theory = Series { name: "theoretical".into(), reference: true, dots: false, points: theory };
    Outcome {
        tables: vec![Table { key: "throughput".into(), title: "Throughput by frame size".into(), columns, rows }],
        plots: vec![Plot {
            key: "throughput".into(),
            title: "Throughput by frame size".into(),
            kind: PlotKind::Bars,
            x: "Frame size [bytes]".into(),
            y: "Throughput [fps]".into(),
            log_y: false,
            series: vec![series("", measured), theory],
            events: vec![],
            spans: vec![],
        }],
        ranks,
        verdicts: vec![Verdict::decided(
            "throughput of 64 >= 700,000 fps",
            rate(dut, 64) >= 700_000.0,
            format!("{:.0} fps", rate(dut, 64)),
        )],
        notes: vec!["both directions at once; per sending port".into()],
        ..Default::default()
    }
}

fn latency_test(dut: usize) -> Outcome {
    let scale = [8_200.0, 9_900.0, 14_000.0, 1_000.0][dut];
    let curve = |name: &str, scale: f64| {
        let summary = latency(scale);
        let points =
            summary.percentiles.iter().map(|(p, ns)| Point { x: *p, y: *ns as f64 / 1e3, ..Default::default() });
        series(name, points.collect())
    };
    let ranges = SIZES.iter().enumerate().map(|(i, size)| {
        let s = latency(scale * (1.0 + f64::from(*size) / 3_000.0));
        let us = |ns: u64| ns as f64 / 1e3;
        Point {
            x: i as f64,
            y: s.mean_ns / 1e3,
            label: Some(size.to_string()),
            range: Some((us(s.min_ns), us(s.max_ns))),
            trial: None,
        }
    });
    let plot = |key: &str, title: &str, kind, x: &str, log_y, series| Plot {
        key: key.into(),
        title: title.into(),
        kind,
        x: x.into(),
        y: "Latency [\u{b5}s]".into(),
        log_y,
        series,
        events: vec![],
        spans: vec![],
    };
    Outcome {
        plots: vec![
            plot(
                "latency_percentiles",
                "Latency by percentile, 64 bytes",
                PlotKind::Percentiles,
                "Percentile of frames",
                true,
                vec![curve("at 50 % load", scale), curve("at 100 % load", scale * 6.0)],
            ),
            plot(
                "latency_by_size",
                "Latency by frame size: minimum, mean, maximum",
                PlotKind::Ranges,
                "Frame size [bytes]",
                false,
                vec![series("", ranges.collect())],
            ),
        ],
        ranks: vec![RankFigure {
            resolution: 0.02,
            ..figure(
                "latency_64_p99_us",
                "Latency, 64 bytes, 99th percentile",
                "\u{b5}s",
                (dut != 2).then(|| latency(scale).percentile(99.0).unwrap() as f64 / 1e3),
            )
        }],
        ..Default::default()
    }
}

/// A figure for which less is better.
fn figure(key: &str, title: &str, unit: &str, value: Option<f64>) -> RankFigure {
    RankFigure { resolution: 0.01, ..RankFigure::new(key, title, unit, value) }
}

fn loss_test(dut: usize, trials: &mut Vec<TrialRecord>) -> Outcome {
    let (mut curve, mut dots) = (Vec::new(), Vec::new());
    for step in 1..=10u32 {
        let load = f64::from(step) * 10.0;
        let limit = rate(dut, 64) / 14_880_952.0 * 100.0 * 8.0;
        let loss = ((load - limit) / load * 100.0).max(0.0);
        curve.push(Point { x: load, y: loss, ..Default::default() });
        for n in 0..3u32 {
            let number = 1_000 + (dut as u64) * 100 + u64::from(step * 3 + n);
            dots.push(Point {
                x: load,
                y: (loss + f64::from(n) - 1.0).max(0.0),
                trial: Some(number),
                ..Default::default()
            });
            trials.push(trial(number, NAMES[dut], "frame_loss_rate", 64, load * 1e4, (loss * load) as u64));
        }
    }
    Outcome {
        plots: vec![Plot {
            key: "frame_loss".into(),
            title: "Frame loss rate by offered load, 64 bytes".into(),
            kind: PlotKind::Line,
            x: "Offered load [% of line rate]".into(),
            y: "Frame loss [%]".into(),
            log_y: false,
            series: vec![
                series("64 bytes", curve),
                Series { name: "64 bytes, each trial".into(), reference: false, dots: true, points: dots },
            ],
            events: vec![],
            spans: vec![],
        }],
        notes: vec![HOSTILE.into()],
        ..Default::default()
    }
}

fn flap_test(dut: usize) -> Outcome {
    let point = |i: u32, dip: f64, width: f64| {
        let t = f64::from(i) * 0.01;
        let inside = t > 3.0 && t < 3.0 + width;
        Point { x: t, y: if inside { 1e5 * (1.0 - dip) } else { 1e5 }, ..Default::default() }
    };
    let width = 0.4 + 0.3 * dut as f64;
    let curve = |dip: f64| (0..1_000).map(|i| point(i, dip, width)).collect();
    Outcome {
        plots: vec![Plot {
            key: "forwarding".into(),
            title: "Forwarding rate over time".into(),
            kind: PlotKind::Line,
            x: "Time [s]".into(),
            y: "Forwarding rate [fps]".into(),
            log_y: false,
            series: vec![series("flapped", curve(0.9)), series("stable", curve(0.0))],
            events: vec![(3.0, "withdraw".into()), (3.0 + width, "converged".into()), (7.0, "announce".into())],
            spans: vec![],
        }],
        ranks: vec![figure("convergence_s", "Convergence after a withdrawal", "s", Some(width))],
        ..Default::default()
    }
}

pub fn record(dut: &str, test: &str, title: &str, status: TestStatus, outcome: Outcome) -> TestRecord {
    TestRecord {
        round: 1,
        dut: dut.into(),
        test: test.into(),
        id: None,
        title: title.into(),
        parameters: json!({"sizes": SIZES, "trial_duration": "1 s"}),
        elapsed_s: 93.25,
        status,
        outcome,
    }
}

/// A complete run over the first `duts` of [`NAMES`]; the fourth is simulated.
pub fn run(duts: usize) -> Run {
    let titles = [
        ("throughput", "Throughput"),
        ("latency", "Latency"),
        ("frame_loss_rate", "Frame loss rate"),
        ("route_flap", "Route flap"),
    ];
    let mut run = Run {
        dir: PathBuf::from("quick-look-20261121-034455"),
        started: Started {
            format: FORMAT,
            time: "2026-11-21T03:44:55Z".into(),
            suite: "quick-look".into(),
            title: "Software routers, a quick look (made-up figures)".into(),
            about: Default::default(),
            profile: "quick".into(),
            conformant: false,
            deviations: vec!["trials of 1 s instead of 60 s".into(), "1 repetition instead of 20".into()],
            seed: 2544,
            duts: NAMES[..duts].iter().map(|n| (*n).into()).collect(),
            tests: titles.iter().map(|(a, b)| ((*a).into(), (*b).into())).collect(),
            rounds: 1,
            command: vec!["drophammer".into(), "run".into(), "suites/quick-look.yaml".into()],
            digest: String::new(),
            environment: Environment {
                drophammer: "0.1.0".into(),
                kernel: "6.12.0".into(),
                cpu_model: "Some processor".into(),
                cpus: "2 online: tester 0, DUT 1".into(),
                memory_bytes: 24 << 30,
                clock_source: "tsc".into(),
                privilege: "root".into(),
                load_average: 0.25,
                more: [("governor".to_owned(), "performance".to_owned())].into(),
                ..Default::default()
            },
            baseline: None,
        },
        duts: vec![],
        trials: vec![],
        tests: vec![],
        earlier: Default::default(),
        filters: vec![],
        classes: vec![],
        core_links: vec![],
        notes: vec![Note {
            time: "2026-11-21T03:45:00Z".into(),
            dut: None,
            text: "ceiling measured".into(),
            problem: false,
        }],
        ended: Some(Ended { time: "2026-11-21T03:59:02Z".into(), interrupted: false }),
        running: false,
        warnings: vec![],
    };
    for (dut, name) in NAMES.iter().enumerate().take(duts) {
        run.duts.push(DutRecord {
            name: (*name).into(),
            kind: name.split('-').next().unwrap().into(),
            version: format!("{name} 10.3"),
            confinement: "one processor, veth pairs, network namespace".into(),
            config: [(format!("{name}.conf"), format!("! {HOSTILE}\nip forwarding\n"))].into(),
            simulated: dut == 3,
            ports: vec![PortRecord {
                name: "p1".into(),
                interface: "veth-p1".into(),
                backend: "af_packet".into(),
                driver: "veth".into(),
                queues: 1,
                mtu: 1500,
                speed_bps: 10_000_000_000,
                medium: drophammer_model::medium::Medium::Ethernet,
                mac: "02:00:00:00:00:01".into(),
                addresses: vec!["198.18.1.2 -> 198.18.1.1".into()],
            }],
            ..Default::default()
        });
        let done = || TestStatus::Completed;
        run.tests.push(record(name, "throughput", "Throughput", done(), throughput(dut, &mut run.trials)));
        run.tests.push(record(name, "latency", "Latency", done(), latency_test(dut)));
        let outcome = loss_test(dut, &mut run.trials);
        run.tests.push(record(name, "frame_loss_rate", "Frame loss rate", done(), outcome));
        let flap = match dut {
            2 => {
                let died = TestStatus::Failed("the DUT died: SIGSEGV".into());
                record(name, "route_flap", "Route flap", died, Outcome::default())
            }
            _ => record(name, "route_flap", "Route flap", done(), flap_test(dut)),
        };
        run.tests.push(flap);
    }
    let mut spoilt = trial(900, NAMES[0], "throughput", 64, 5e5, 77);
    spoilt.result.validity = Validity::Invalid(vec!["held off the processor for 12 ms".into()]);
    run.trials.push(spoilt);
    run
}

/// The same run in `rounds` rounds, whose figures differ by up to 0.5 %.
pub fn in_rounds(run: &Run, rounds: u32) -> Run {
    let mut all = run.clone();
    all.started.rounds = rounds;
    all.tests.clear();
    for round in 1..=rounds {
        for (place, record) in run.tests.iter().enumerate() {
            let mut record = record.clone();
            record.round = round;
            for (at, rank) in record.outcome.ranks.iter_mut().enumerate() {
                let step = (round as usize * 7 + place * 5 + at * 3) % 11;
                rank.value = rank.value.map(|value| value * (1.0 + 0.001 * (step as f64 - 5.0)));
            }
            all.tests.push(record);
        }
    }
    all
}

/// Repeats the trials of a run, and the rows and dots that name them, until it has this many.
pub fn lengthen(run: &mut Run, trials: usize) {
    let original = run.clone();
    let last = original.trials.iter().map(|t| t.result.trial).max().unwrap_or(0);
    for turn in 1.. {
        let shift = turn * (last + 1);
        for t in &original.trials {
            if run.trials.len() >= trials {
                return;
            }
            let mut t = t.clone();
            t.result.trial += shift;
            run.trials.push(t);
        }
        for (test, old) in run.tests.iter_mut().zip(&original.tests) {
            for (table, old) in test.outcome.tables.iter_mut().zip(&old.outcome.tables) {
                for (row, old) in table.rows.iter_mut().zip(&old.rows) {
                    row.trials.extend(old.trials.iter().map(|n| n + shift));
                }
            }
            for (plot, old) in test.outcome.plots.iter_mut().zip(&old.outcome.plots) {
                for (series, old) in plot.series.iter_mut().zip(&old.series).filter(|(s, _)| s.dots) {
                    let again = old.points.iter().map(|p| Point { trial: p.trial.map(|n| n + shift), ..p.clone() });
                    series.points.extend(again);
                }
            }
        }
    }
}

/// Gives the first DUT's throughput of 1518 bytes a claim. Returns a trial that refutes it: no loss at twice the load.
pub fn contradict(run: &mut Run) -> TrialRecord {
    let found = rate(0, 1518);
    run.tests[0].outcome.ranks[1].claim = Some(Claim {
        goal: "NDR(0)".into(),
        trial: 13,
        superseded: vec![],
        met_pps: Some(found),
        missed_pps: Some(found * 1.01),
        width: 0.01,
        loss_ratio: 0.0,
        exceed_ratio: 0.0,
        trial_duration_s: 1.0,
        duration_sum_s: 1.0,
    });
    trial(950, "linux", "frame_loss_rate", 1518, found * 2.0, 0)
}

/// Lets the first DUT lose 30 % in the 64-byte trials that decide its figure, with its processor busy for this share.
pub fn lose(run: &mut Run, dut_cpu: f64) {
    for trial in run.trials.iter_mut().filter(|t| t.dut == "linux" && t.spec.size.to_string() == "64") {
        trial.result.dut_cpu = Some(dut_cpu);
        let group = &mut trial.result.groups[0];
        group.lost = group.offered * 6 / 10;
        group.received = group.offered - group.lost;
    }
}

/// These files of a report.
pub fn files<const N: usize>(run: &Run, names: [&str; N]) -> [String; N] {
    let mut files = report(run);
    names.map(|name| files.remove(name).unwrap())
}

/// A page without the embedded CSV files.
pub fn without_data(html: &str) -> String {
    let mut parts = html.split("href=\"data:");
    let first = parts.next().unwrap().to_owned();
    parts.fold(first, |page, part| page + &part[part.find('"').unwrap()..])
}

/// All files of a report: relative name to content.
pub fn report(run: &Run) -> std::collections::BTreeMap<String, String> {
    let folder = tempfile::tempdir().unwrap();
    let paths = drophammer_report::write_all(run, folder.path()).unwrap();
    let name = |p: &std::path::Path| p.strip_prefix(folder.path()).unwrap().to_str().unwrap().to_owned();
    paths.iter().map(|p| (name(p), std::fs::read_to_string(p).unwrap())).collect()
}
