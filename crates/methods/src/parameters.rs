//! Parameters that several tests share, and what a suite deviates from the RFCs by them.

use drophammer_model::quantity::show_duration;
use drophammer_model::registry::{ParamKind, ParamSpec};
use drophammer_model::size::PacketSize;
use drophammer_model::suite::Params;
use std::time::Duration;

/// `frame_sizes`
pub const FRAME_SIZES: ParamSpec = ParamSpec::new(
    "frame_sizes",
    ParamKind::Sizes,
    "[64, 512, 1518]",
    "[64, 128, 256, 512, 1024, 1280, 1518]",
    "frame sizes with FCS, or mixes (RFC 2544 section 9.1); IPv6 frames have at least 78 bytes",
);
/// `families`
pub const FAMILIES: ParamSpec = ParamSpec::new(
    "families",
    ParamKind::Families,
    "[ipv4]",
    "[ipv4]",
    "IP versions; with both, half of the frames each (RFC 5180 section 5.3)",
);
/// `direction`
pub const DIRECTION: ParamSpec = ParamSpec::new(
    "direction",
    ParamKind::Choice(&["bidirectional", "unidirectional"]),
    "bidirectional",
    "bidirectional",
    "who sends: both ports of a pair at the same rate, or the first (RFC 2544 section 14)",
);
/// `goal`
pub const GOAL: ParamSpec = ParamSpec::new(
    "goal",
    ParamKind::Choice(&["quick", "ci-quick", "rfc2544", "tst009", "csit"]),
    "quick",
    "rfc2544",
    "search goal for the throughput (RFC 9971 section 4.6)",
);
/// `final_trial_duration`
pub const FINAL_TRIAL: ParamSpec = ParamSpec::optional(
    "final_trial_duration",
    ParamKind::Duration,
    "instead of the goal's final trial duration (RFC 2544 section 24: 60 s)",
);
/// `width`
pub const WIDTH: ParamSpec = ParamSpec::optional(
    "width",
    ParamKind::Percent,
    "instead of the goal's width: distance of upper and lower bound as a share of the upper (RFC 9971)",
);
/// `max_load`
pub const MAX_LOAD: ParamSpec = ParamSpec::optional(
    "max_load",
    ParamKind::Rate,
    "highest load per sending port that is tried, if below line rate and the tester's ceiling",
);
/// `search_duration_max`
pub const SEARCH_MAX: ParamSpec = ParamSpec::new(
    "search_duration_max",
    ParamKind::Duration,
    "20 s",
    "2 h",
    "trial time after which a search ends with what it knows, per frame size",
);
/// `pause`
pub const PAUSE: ParamSpec = ParamSpec::new(
    "pause",
    ParamKind::Duration,
    "50 ms",
    "5 s",
    "time for the router to restabilise after a trial (RFC 2544 section 23 e)",
);
/// `drain`
pub const DRAIN: ParamSpec = ParamSpec::new(
    "drain",
    ParamKind::Duration,
    "200 ms",
    "2 s",
    "wait for late frames after the last one was sent; ends when all are back (RFC 2544 section 23 d)",
);
/// Wait for late frames in seconds where nothing else is said, RFC 2544 section 23 d.
const DRAIN_S: f64 = 2.0;

/// Several lists of parameters as one of `N`.
///
/// # Panics
/// When they have not `N` together, while it is compiled.
pub(crate) const fn joined<const N: usize>(lists: &[&[ParamSpec]]) -> [ParamSpec; N] {
    let mut all = [lists[0][0]; N];
    let (mut list, mut filled) = (0, 0);
    while list < lists.len() {
        let mut at = 0;
        while at < lists[list].len() {
            all[filled] = lists[list][at];
            (filled, at) = (filled + 1, at + 1);
        }
        list += 1;
    }
    assert!(filled == N);
    all
}

/// The duration of `key` in seconds; `default` where the suite leaves it out.
pub fn seconds(params: &Params, key: &str, default: f64) -> f64 {
    params.duration(key).map_or(default, |d| d.as_secs_f64())
}

/// The count of `key` as a number that loops can use; 1 where the suite leaves it out.
pub fn count(params: &Params, key: &str) -> u32 {
    params.count(key).map_or(1, |n| u32::try_from(n).unwrap_or(u32::MAX)).max(1)
}

/// The pause after each trial.
pub fn pause(params: &Params) -> Duration {
    params.duration("pause").unwrap_or_default()
}

/// The wait for late frames after the last departure, in seconds.
pub fn drain_s(params: &Params) -> f64 {
    seconds(params, "drain", DRAIN_S)
}

/// The frame sizes.
pub fn sizes(params: &Params) -> Vec<PacketSize> {
    params.sizes("frame_sizes").unwrap_or_default()
}

/// A deviation when the duration of `key` is below what the RFC asks for.
pub fn shorter(params: &Params, key: &str, what: &str, rfc_s: f64, section: &str) -> Option<String> {
    let found = params.duration(key)?;
    let asked = Duration::from_secs_f64(rfc_s);
    (found < asked)
        .then(|| format!("{what} of {} instead of {} ({section})", show_duration(found), show_duration(asked)))
}

/// A deviation when the count of `key` is below what the RFC asks for.
pub fn fewer(params: &Params, key: &str, what: &str, rfc: u64, section: &str) -> Option<String> {
    let found = params.count(key)?;
    (found < rfc).then(|| format!("{found} {what} instead of {rfc} ({section})"))
}

/// Deviations by frame sizes, pause and drain, which most tests have. The same words for every test, so that a run can
/// state them once.
pub fn common_deviations(params: &Params) -> Vec<String> {
    let few = (sizes(params).len() < 5).then(|| "fewer than 5 frame sizes (RFC 2544 section 9)".to_owned());
    let pause = shorter(params, "pause", "pause", 5.0, "RFC 2544 section 23 e");
    let drain = shorter(params, "drain", "wait for late frames", DRAIN_S, "RFC 2544 section 23 d");
    few.into_iter().chain(pause).chain(drain).collect()
}

/// What a trial takes beside sending, drain and pause in seconds, for estimates: setting it up and reading it.
const TRIAL_OVERHEAD_S: f64 = 0.12;

/// What `trials` trials take beside sending, in seconds, for estimates. The share `lossy` (0 to 1) of them loses frames and
/// waits for these in vain.
pub fn beside_s(params: &Params, trials: f64, lossy: f64) -> f64 {
    trials * (pause(params).as_secs_f64() + TRIAL_OVERHEAD_S + lossy * drain_s(params))
}
