//! Medians and ratios, and their output.

use crate::links::Sample;
use serde_json::{Value, json};

/// What a row measures.
#[derive(Clone, Copy, PartialEq, Eq)]
pub enum Kind {
    /// Frames sent, without a reader.
    Send,
    /// Frames sent and received on one thread.
    Both,
}

impl Kind {
    /// Description of the measured value.
    pub fn title(self) -> &'static str {
        match self {
            Kind::Send => "transmit only, nobody reads",
            Kind::Both => "transmit and receive on one thread",
        }
    }
}

/// One line of the table.
pub struct Line {
    /// Name of the sender.
    pub name: String,
    /// What is measured.
    pub kind: Kind,
    /// One per round; if there is none, the reason.
    pub samples: Vec<Result<Sample, String>>,
}

/// Median, minimum and maximum.
#[derive(Clone, Copy)]
pub struct Spread {
    /// Median.
    pub median: f64,
    /// Least.
    pub min: f64,
    /// Most.
    pub max: f64,
}

impl Spread {
    /// Spread of `values`; `None` if there are none.
    fn of(mut values: Vec<f64>) -> Option<Spread> {
        values.sort_by(f64::total_cmp);
        let (min, max) = (*values.first()?, *values.last()?);
        Some(Spread { median: values[values.len() / 2], min, max })
    }
}

impl Line {
    /// Spread of a number over the rounds.
    fn spread(&self, of: impl Fn(&Sample) -> f64) -> Option<Spread> {
        Spread::of(self.samples.iter().flatten().map(of).collect())
    }

    /// Ratio to `other` in frames per second of processor time, round by round.
    fn against(&self, other: &Line) -> Option<Spread> {
        let pairs = self.samples.iter().zip(&other.samples);
        Spread::of(pairs.filter_map(|(a, b)| Some(a.as_ref().ok()?.per_cpu / b.as_ref().ok()?.per_cpu)).collect())
    }

    /// Why rounds are missing.
    fn reason(&self) -> Option<&str> {
        self.samples.iter().find_map(|s| s.as_ref().err()).map(String::as_str)
    }
}

/// The line to compare others with.
fn named<'a>(lines: &'a [Line], kind: Kind, name: &str) -> Option<&'a Line> {
    lines.iter().find(|l| l.kind == kind && l.name == name)
}

/// Ratios are to these lines of the same kind.
pub const BARE: &str = "bare system calls, constant frame";
/// See [`BARE`]; sends only.
pub const TRAFGEN: &str = "trafgen, constant frame";

/// The table as text.
pub fn text(lines: &[Line]) -> String {
    let mut out = String::new();
    for kind in [Kind::Send, Kind::Both].into_iter().filter(|kind| lines.iter().any(|l| l.kind == *kind)) {
        let [rate, per_cpu, range, bare, trafgen, lost] =
            ["k/s", "k/cpu-s", "min-max", "of bare", "of trafgen", "lost"];
        let title = kind.title();
        out += &format!("{title:<46}{rate:>8}{per_cpu:>9}{range:>13}{bare:>9}{trafgen:>12}{lost:>11}\n");
        for line in lines.iter().filter(|l| l.kind == kind) {
            let ratio = |name| named(lines, kind, name).and_then(|other| line.against(other));
            let show = |ratio: Option<Spread>| ratio.map_or("-".into(), |r| format!("{:.2}", r.median));
            out += &format!("  {:<44}", line.name);
            if let (Some(rate), Some(per_cpu)) = (line.spread(|s| s.rate), line.spread(|s| s.per_cpu)) {
                let range = format!("{:.0}-{:.0}", per_cpu.min / 1e3, per_cpu.max / 1e3);
                out += &format!("{:>8.0}{:>9.0}{range:>13}", rate.median / 1e3, per_cpu.median / 1e3);
                out += &format!("{:>9}{:>12}", show(ratio(BARE)), show(ratio(TRAFGEN)));
                let lost = line.spread(|s| s.lost).filter(|_| kind == Kind::Both && line.name != BARE);
                out += &format!("{:>11}", lost.map_or("-".into(), |l| format!("{:.4} %", l.median * 100.0)));
            }
            if line.reason().is_some() {
                let missing = line.samples.iter().filter(|s| s.is_err()).count();
                out += &format!("  {missing} of {} rounds missing", line.samples.len());
            }
            out.push('\n');
        }
        out.push('\n');
    }
    let mut told: Vec<&str> = Vec::new();
    for line in lines {
        if let Some(reason) = line.reason().filter(|reason| !told.contains(reason)) {
            out += &format!("missing, {}: {reason}\n", line.name);
            told.push(reason);
        }
    }
    out
}

/// The table as JSON, with every round.
pub fn json(lines: &[Line], rounds: usize, seconds: f64) -> Value {
    let spread = |s: Option<Spread>| s.map(|s| json!({"median": s.median, "min": s.min, "max": s.max}));
    let rows: Vec<Value> = lines
        .iter()
        .map(|line| {
            let ratio = |name| spread(named(lines, line.kind, name).and_then(|other| line.against(other)));
            json!({
                "name": line.name,
                "measures": line.kind.title(),
                "frames_per_second": spread(line.spread(|s| s.rate)),
                "frames_per_cpu_second": spread(line.spread(|s| s.per_cpu)),
                "of_bare": ratio(BARE),
                "of_trafgen": ratio(TRAFGEN),
                "lost": if line.kind == Kind::Both && line.name != BARE { spread(line.spread(|s| s.lost)) } else { None },
                "rounds": line.samples.iter().map(|s| s.as_ref().ok().map(|s| [s.rate, s.per_cpu])).collect::<Vec<_>>(),
                "missing": line.reason(),
            })
        })
        .collect();
    json!({"frame_bytes_without_fcs": crate::links::LEN, "rounds": rounds, "seconds": seconds, "rows": rows})
}
