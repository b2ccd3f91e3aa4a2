//! Parameters shared by several tests, and their deviations from the RFCs.

use crate::modifiers::{FILTER_CONDITIONS, MODIFIERS};
use crate::route_traffic;
use crate::routed::ROUTES;
use drophammer_model::param::{Param, Percent};
use drophammer_model::pattern::{Direction, Distribution, ExtensionHeader, LabelOperation, MAX_LABELS};
use drophammer_model::quantity::{FrameRate, show_duration};
use drophammer_model::registry::ParamSpec;
use drophammer_model::size::PacketSize;
use drophammer_model::suite::Params;
use drophammer_model::trial::Family;
use std::time::Duration;

/// `frame_sizes`
pub const FRAME_SIZES: Param<Vec<PacketSize>> = Param::new(
    "frame_sizes",
    "[64, 512, 1518]",
    "[64, 128, 256, 512, 1024, 1280, 1518]",
    "frame sizes with FCS, or mixes (RFC 2544 section 9.1); IPv6 frames have at least 78 bytes",
);
/// `families`
pub const FAMILIES: Param<Vec<Family>> = Param::fixed(
    "families",
    "[ipv4]",
    "IP versions; if both are given, each gets half of the frames unless `ipv6_share` says otherwise (RFC 5180 section 5.3)",
);
/// `ipv6_share`
pub const IPV6_SHARE: Param<Option<Percent>> =
    Param::optional("ipv6_share", "share of IPv6 frames in %, if `families` names both");
/// `ipv6_frame_size`
pub const IPV6_FRAME_SIZE: Param<Option<PacketSize>> = Param::optional(
    "ipv6_frame_size",
    "size or mix of IPv6 frames, if `families` names both; defaults to the size of IPv4 frames",
);
/// `direction`
pub const DIRECTION: Param<Direction> = Param::fixed(
    "direction",
    "bidirectional",
    "whether both ports of a pair send, at the same rate, or only the first (RFC 2544 section 14)",
);
/// `distribution`
pub const DISTRIBUTION: Param<Distribution> = Param::fixed(
    "distribution",
    "non_meshed",
    "ports between which frames go: pairs (first and second port), crossed pairs (first port and first port of the second half), or from every \
     port to every other port (RFC 2285 section 3.3)",
);
/// `ipv6_extensions`
pub const EXTENSIONS: Param<Option<Vec<ExtensionHeader>>> = Param::optional(
    "ipv6_extensions",
    "extension headers of IPv6 packets, in the order of RFC 8200 section 4.1, within the frame size",
);
/// `labels`
pub const LABELS: Param<Option<LabelOperation>> = Param::optional(
    "labels",
    "action of the router on the MPLS labels of the frames, according to the `labels` entries of the receiving ports (RFC 5695); without it, \
     frames carry no labels",
);
/// `label_stack`
pub const LABEL_STACK: Param<u32> = Param::fixed(
    "label_stack",
    "1",
    "number of labels per frame, 1 to 8, if `labels` is given; they are added to the frame size",
)
.at_most(MAX_LABELS as u64);
/// `goal`
pub const GOAL: Param<Goal> =
    Param::new("goal", "quick", "rfc2544", "search goal for the throughput (RFC 9971 section 4.6)");
/// `final_trial_duration`
pub const FINAL_TRIAL: Param<Option<Duration>> =
    Param::optional("final_trial_duration", "overrides the goal's final trial duration (RFC 2544 section 24: 60 s)");
/// `width`
pub const WIDTH: Param<Option<Percent>> = Param::optional(
    "width",
    "overrides the goal's width: distance between upper and lower bound as a share of the upper bound (RFC 9971)",
);
/// `max_load`
pub const MAX_LOAD: Param<Option<FrameRate>> =
    Param::optional("max_load", "highest load per sending port to try, if below line rate and the tester's ceiling");
/// `search_duration_max`
pub const SEARCH_MAX: Param<Duration> = Param::new(
    "search_duration_max",
    "20 s",
    "2 h",
    "trial time, per frame size, after which a search ends with its results so far",
);
/// `pause`
pub const PAUSE: Param<Duration> =
    Param::new("pause", "50 ms", "5 s", "time for the router to restabilise after a trial (RFC 2544 section 23 e)");
/// `drain`
pub const DRAIN: Param<Duration> = Param::new(
    "drain",
    "200 ms",
    "2 s",
    "wait for late frames after the last one was sent; ends when all have arrived, and continues while frames arrive, up to 2 s (RFC 2544 \
     section 23 d)",
);
/// `trial_duration` of a test with trials of 60 s, which the quick profile shortens to `quick`.
pub const fn trial_of_60_s(quick: &'static str) -> Param<Duration> {
    Param::new("trial_duration", quick, "60 s", "length of a trial (RFC 2544 section 24: 60 s)")
}
/// Wait for late frames in seconds that RFC 2544 section 23 d requires.
const RFC_DRAIN_S: f64 = 2.0;

drophammer_model::choice! {
    /// Search goals for the throughput (RFC 9971 section 4.6).
    pub enum Goal {
        /// [`SearchGoal::quick`](crate::mlrsearch::SearchGoal::quick)
        Quick = "quick",
        /// [`SearchGoal::ci_quick`](crate::mlrsearch::SearchGoal::ci_quick)
        CiQuick = "ci-quick",
        /// [`SearchGoal::rfc2544`](crate::mlrsearch::SearchGoal::rfc2544)
        Rfc2544 = "rfc2544",
        /// [`SearchGoal::tst009`](crate::mlrsearch::SearchGoal::tst009)
        Tst009 = "tst009",
        /// [`SearchGoal::csit_ndr`](crate::mlrsearch::SearchGoal::csit_ndr), plus the partial drop rate
        Csit = "csit",
    }
}

/// Traffic parameters of tests by frame size.
pub const TRAFFIC: [ParamSpec; 7] = [
    FRAME_SIZES.spec(),
    FAMILIES.spec(),
    IPV6_SHARE.spec(),
    IPV6_FRAME_SIZE.spec(),
    DIRECTION.spec(),
    DISTRIBUTION.spec(),
    ROUTES.spec().needing(route_traffic::NEEDS),
];
/// Parameters of tests whose frames can carry labels.
pub const LABELLED: [ParamSpec; 2] = [LABELS.spec(), LABEL_STACK.spec()];
/// The modifiers of RFC 2544 section 11, in tests that support them.
pub const MODIFIED: [ParamSpec; 2] = [MODIFIERS.spec(), FILTER_CONDITIONS.spec()];
/// Parameters of the pause after each trial.
pub const AFTER_TRIAL: [ParamSpec; 2] = [PAUSE.spec(), DRAIN.spec()];
/// Parameters of tests that need to know the throughput.
pub const SEARCH: [ParamSpec; 7] =
    [GOAL.spec(), FINAL_TRIAL.spec(), WIDTH.spec(), MAX_LOAD.spec(), SEARCH_MAX.spec(), PAUSE.spec(), DRAIN.spec()];

/// Joins several lists of parameters: `params![&TRAFFIC, &[STEP.spec()], &AFTER_TRIAL]`.
#[macro_export]
macro_rules! params {
    ($($list:expr),+ $(,)?) => {{
        const LISTS: &[&[drophammer_model::registry::ParamSpec]] = &[$($list),+];
        const ALL: [drophammer_model::registry::ParamSpec; $crate::parameters::length(LISTS)] =
            $crate::parameters::joined(LISTS);
        &ALL
    }};
}
pub use crate::params;

/// Number of parameters in these lists.
pub const fn length(lists: &[&[ParamSpec]]) -> usize {
    let (mut length, mut list) = (0, 0);
    while list < lists.len() {
        length += lists[list].len();
        list += 1;
    }
    length
}

/// Joins several lists of parameters; `N` is their total length.
pub const fn joined<const N: usize>(lists: &[&[ParamSpec]]) -> [ParamSpec; N] {
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
    all
}

/// Returns a deviation if the duration is shorter than the RFC requires.
pub fn shorter(params: &Params, of: &Param<Duration>, what: &str, rfc_s: f64, section: &str) -> Option<String> {
    let (found, asked) = (of.get(params), Duration::from_secs_f64(rfc_s));
    (found < asked)
        .then(|| format!("{what} of {} instead of {} ({section})", show_duration(found), show_duration(asked)))
}

/// Returns a deviation if the count is smaller than the RFC requires.
pub fn fewer(params: &Params, of: &Param<u32>, what: &str, rfc: u32, section: &str) -> Option<String> {
    let found = of.get(params);
    (found < rfc).then(|| format!("{found} {what} instead of {rfc} ({section})"))
}

/// Deviations in frame sizes, pause and drain, which most tests have. Every test uses the same wording, so that a run
/// can print each deviation once.
pub fn common_deviations(params: &Params) -> Vec<String> {
    let few = (FRAME_SIZES.get(params).len() < 5).then(|| "fewer than 5 frame sizes (RFC 2544 section 9)".to_owned());
    few.into_iter().chain(pause_deviations(params)).collect()
}

/// Deviations in pause and drain.
pub fn pause_deviations(params: &Params) -> impl Iterator<Item = String> {
    let pause = shorter(params, &PAUSE, "pause", 5.0, "RFC 2544 section 23 e");
    let drain = shorter(params, &DRAIN, "wait for late frames", RFC_DRAIN_S, "RFC 2544 section 23 d");
    pause.into_iter().chain(drain)
}

/// Overhead of a trial in addition to sending, drain and pause, in seconds, for estimates: setting it up and reading
/// the results.
const TRIAL_OVERHEAD_S: f64 = 0.12;

/// Time of `trials` trials in addition to sending, in seconds, for estimates. The share `lossy` (0 to 1) of the trials
/// loses frames and waits for them until the drain time ends.
pub fn beside_s(params: &Params, trials: f64, lossy: f64) -> f64 {
    trials * PAUSE.seconds(params) + unpaused_s(params, trials, lossy)
}

/// [`beside_s`] of a test without pauses.
pub fn unpaused_s(params: &Params, trials: f64, lossy: f64) -> f64 {
    trials * (TRIAL_OVERHEAD_S + lossy * DRAIN.seconds(params))
}
