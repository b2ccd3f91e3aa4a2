//! Recorded searches and the simulated devices that they ran on.

#![allow(dead_code)] // each test program uses only a part

use drophammer_methods::mlrsearch::{Measurement, SearchGoal};
use serde::Deserialize;
use std::convert::Infallible;
use std::path::PathBuf;

/// All recordings of searches.
pub const SEARCHES: [&str; 10] = [
    "v01_readme_hard1mpps",
    "v02_csit_knee",
    "v03_rfc2544_60s_buffered",
    "v04_csit_stall_overhead",
    "v06_tst009_noisy",
    "v08_line_rate_irregular",
    "v09_min_load_bad_nofail",
    "v10_min_load_bad_failfast",
    "v12_quick_ci",
    "v13_plain_60s_nopreceding",
];

/// Text of a file in the recordings.
pub fn read(name: &str) -> String {
    let path = PathBuf::from(env!("CARGO_MANIFEST_DIR")).join("tests/vectors/mlrsearch").join(name);
    std::fs::read_to_string(path).unwrap()
}

#[derive(Deserialize)]
pub struct Recorded {
    pub name: String,
    pub dut: Dut,
    pub config: Config,
    pub goals: Vec<Goal>,
    pub rounding: Rounding,
    pub targets: Vec<Chain>,
    pub results: Option<Vec<RecordedResult>>,
    pub summary: Summary,
}
#[derive(Deserialize)]
pub struct Config {
    pub min_load: f64,
    pub max_load: f64,
}
#[derive(Deserialize)]
pub struct Rounding {
    pub max_int_load: u32,
}
#[derive(Deserialize)]
pub struct Chain {
    pub goal: usize,
    pub chain: Vec<Link>,
}
#[derive(Deserialize)]
pub struct Link {
    pub trial_duration_s: f64,
    pub duration_sum_s: f64,
    pub int_width: u32,
}
#[derive(Deserialize)]
pub struct RecordedResult {
    pub regular: bool,
    pub relevant_lower_bound: Option<RecordedBound>,
    pub relevant_upper_bound: Option<RecordedBound>,
    pub conditional_throughput_pps: Option<f64>,
}
#[derive(Deserialize)]
pub struct RecordedBound {
    pub int_load: u32,
}
#[derive(Deserialize)]
pub struct Summary {
    pub trials: u32,
    pub trial_seconds: f64,
}
#[derive(Deserialize)]
pub struct Goal {
    pub loss_ratio: f64,
    pub exceed_ratio: f64,
    pub relative_width: f64,
    pub initial_trial_duration: f64,
    pub final_trial_duration: f64,
    pub duration_sum: f64,
    pub preceding_targets: u32,
    pub expansion_coefficient: f64,
    pub fail_fast: bool,
}

impl Goal {
    pub fn ours(&self) -> SearchGoal {
        SearchGoal {
            name: format!("loss {}", self.loss_ratio),
            loss_ratio: self.loss_ratio,
            exceed_ratio: self.exceed_ratio,
            relative_width: self.relative_width,
            initial_trial_duration_s: self.initial_trial_duration,
            final_trial_duration_s: self.final_trial_duration,
            duration_sum_s: self.duration_sum,
            preceding_targets: self.preceding_targets,
            expansion: self.expansion_coefficient,
            fail_fast: self.fail_fast,
        }
    }
}

/// The simulated devices of the recordings.
#[derive(Clone, Debug, Deserialize)]
#[serde(tag = "kind", rename_all = "snake_case")]
pub enum Dut {
    Hard {
        capacity_pps: f64,
    },
    Knee {
        knee_pps: f64,
        slope: f64,
    },
    Buffered {
        capacity_pps: f64,
        buffer_packets: f64,
    },
    Stall {
        capacity_pps: f64,
        stall_s: f64,
        period_s: f64,
        #[serde(default)]
        overhead_s: f64,
    },
    Noisy {
        p0_pps: f64,
        p1_pps: f64,
        bad_loss_ratio: f64,
        seed: u64,
    },
    Lossless,
    Floor {
        loss_ratio: f64,
    },
}

pub struct Device {
    pub dut: Dut,
    pub clock: f64,
    pub random: u64,
    pub trials: u64,
}

impl Device {
    pub fn new(dut: &Dut) -> Self {
        let random = if let Dut::Noisy { seed, .. } = dut { *seed } else { 0 };
        Device { dut: dut.clone(), clock: 0.0, random, trials: 0 }
    }

    /// A random number, uniform in 0..1 (SplitMix64).
    pub fn uniform(&mut self) -> f64 {
        self.random = self.random.wrapping_add(0x9E37_79B9_7F4A_7C15);
        let mut z = self.random;
        z = (z ^ (z >> 30)).wrapping_mul(0xBF58_476D_1CE4_E5B9);
        z = (z ^ (z >> 27)).wrapping_mul(0x94D0_49BB_1331_11EB);
        ((z ^ (z >> 31)) >> 11) as f64 / (1u64 << 53) as f64
    }

    pub fn measure(&mut self, duration: f64, load: f64) -> Result<Measurement, Infallible> {
        self.trials += 1;
        let intended = (duration * load) as u64;
        let n = intended as f64;
        let mut overhead = 0.0;
        let received = match self.dut.clone() {
            Dut::Hard { capacity_pps } => n.min((duration * capacity_pps).floor()),
            Dut::Knee { knee_pps, slope } => n - (n * (slope * (load - knee_pps) / knee_pps).clamp(0.0, 1.0)).floor(),
            Dut::Buffered { capacity_pps, buffer_packets } => n.min((duration * capacity_pps + buffer_packets).floor()),
            Dut::Stall { capacity_pps, stall_s, period_s, overhead_s } => {
                overhead = overhead_s;
                let (from, to) = (self.clock, self.clock + duration);
                let stalls = (to / period_s).floor() - (from / period_s).floor();
                self.clock += duration + overhead;
                (n.min(duration * capacity_pps) - stalls * stall_s * load.min(capacity_pps)).floor()
            }
            Dut::Noisy { p0_pps, p1_pps, bad_loss_ratio, .. } => {
                let bad = ((load - p0_pps) / (p1_pps - p0_pps)).clamp(0.0, 1.0);
                if self.uniform() < bad { n - (n * bad_loss_ratio).floor() } else { n }
            }
            Dut::Lossless => n,
            Dut::Floor { loss_ratio } => n - (n * loss_ratio).floor(),
        };
        Ok(Measurement {
            duration_s: duration,
            effective_duration_s: duration + overhead,
            intended,
            received: received as u64,
            offered_pps: load,
            trial: self.trials,
        })
    }

    /// Interval that contains the highest load that meets the goal: the lower end certainly meets it, and loads above
    /// the upper end certainly do not.
    pub fn answer(&self, goal: &SearchGoal, longest_s: f64) -> (f64, f64) {
        let loss = goal.loss_ratio;
        match self.dut {
            Dut::Hard { capacity_pps } => (capacity_pps / (1.0 - loss), capacity_pps / (1.0 - loss)),
            Dut::Knee { knee_pps, slope } => (knee_pps * (1.0 + loss / slope), knee_pps * (1.0 + loss / slope)),
            Dut::Buffered { capacity_pps, buffer_packets } => {
                // Longer trials of another goal at the same load count as full-length for this goal, and a buffer hides
                // less loss in them.
                let answer = |duration_s: f64| (capacity_pps + buffer_packets / duration_s) / (1.0 - loss);
                (answer(longest_s), answer(goal.final_trial_duration_s))
            }
            Dut::Stall { capacity_pps, .. } => (capacity_pps / (1.0 - loss), capacity_pps / (1.0 - loss)),
            Dut::Noisy { p0_pps, p1_pps, .. } => (p0_pps, p1_pps),
            Dut::Lossless => (f64::INFINITY, f64::INFINITY),
            Dut::Floor { loss_ratio } if loss >= loss_ratio => (f64::INFINITY, f64::INFINITY),
            Dut::Floor { .. } => (0.0, 0.0),
        }
    }
}
