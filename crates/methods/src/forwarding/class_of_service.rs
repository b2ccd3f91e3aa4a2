//! Classes of service (core routers, 2001; RFC 4689, RFC 7640): which classes lose frames when an output port is too
//! narrow for its traffic.
//!
//! The router is configured with classes by codepoint, each with a weight, at one output port. Alternatively, the DUT
//! is a system of routers with these classes at its core links, some of which are down. All classes offer the same
//! load. First they offer less than the output port carries, and no class may lose a frame. Then they offer more, and
//! the router must share the output by weight: a class that wants less than its share loses nothing, and the others
//! share the rest.

mod congestion;
mod core_links;
mod rows;
mod shares;
mod way_out;

pub use shares::{Sharing, shares};

use crate::kit::prelude::*;
use drophammer_model::classes::{Scheduling, ServiceClass};
use drophammer_model::quantity::Bandwidth;
use drophammer_model::topology::CoreLinksDown;
use drophammer_model::traffic::{Bits, Header, Ipv4, Ipv6, Udp};
use drophammer_model::trial::FlowSpec;
use rows::{BARS, BINS, FILLING, RATE_BARS, TABLE, Trial};
use std::collections::BTreeSet;

/// The test.
pub struct ClassOfService;

const SIZES: Param<Vec<PacketSize>> = Param::fixed(
    "frame_sizes",
    "[ip40]",
    "frame sizes with FCS, or mixes; the document that defines this test uses IP packets of 40 bytes",
);
const CLASSES: Param<Vec<ServiceClass>> = Param::fixed(
    "classes",
    "[{name: gold, precedence: 5, weight: 70}, {name: silver, precedence: 3, weight: 20}, {name: bronze, precedence: 0, weight: 5}]",
    "the classes: name, IP `precedence` (0 to 7) or `dscp` (0 to 63), and weight; other traffic belongs to the last class",
);
const SCHEDULING: Param<Scheduling> = Param::fixed(
    "scheduling",
    "weights",
    "which class the router serves if several wait: all in turn by weight (`weights`), or only the one with the highest weight (`priority`)",
);
const BOTTLENECK: Param<Option<Bandwidth>> = Param::optional(
    "bottleneck",
    "rate of the output port, as configured on the router; defaults to the `speed` of the port that frames leave through, or to the `core_speed` \
     of links between routers",
);
const CORE_LINKS_DOWN: Param<Option<CoreLinksDown>> = Param::optional(
    "core_links_down",
    "overload the links between the routers of a system instead: take this many of them, or these (`[1-2, 3-4]`), down, and send from every port \
     to every other one",
);
const OVERLOAD: Param<Vec<u64>> = Param::fixed(
    "overload",
    "[150]",
    "loads in % of the output port, or of the most loaded link between routers, above 100; the figures refer to the first one",
);
const CALM: Param<Percent> =
    Param::fixed("calm", "80", "load of the trial before the overload, in % of the output port");
const TOLERANCE: Param<Percent> =
    Param::fixed("tolerance", "1", "error of a share, in percentage points, from which it counts as wrong");
const QUEUE: Param<u32> = Param::fixed("queue", "256", "queue length of each class, in frames");
const TRIAL_DURATION: Param<Duration> = trial_of_60_s("2 s");

/// Seconds until links are down and frames take other paths, plus the seconds until the links are up again, for
/// estimates.
const LINKS_S: f64 = 3.0;

const LOSS: FigureSpec = FigureSpec::lower_by_difference(
    "class_of_service_{size}_loss_percent",
    "%",
    "loss of the class with the highest weight under overload, in %",
)
.by(crate::report::LEAST_LOSS_PERCENT);
const ERROR: FigureSpec = FigureSpec::lower_by_difference(
    "class_of_service_{size}_error_points",
    "points",
    "largest difference between the share of a class and the expected one, in percentage points",
)
.by(rows::LEAST_POINTS);
const RATE: FigureSpec = FigureSpec::higher(
    "class_of_service_{size}_pps",
    "fps",
    "frames per second of all classes that left through the overloaded output port, or crossed overloaded links",
);

static SPEC: TestSpec = TestSpec {
    name: "class_of_service",
    title: "Classes of service",
    summary: "which classes lose frames when an output port is overloaded: loss, latency and share of each class, compared with the class weights",
    source: "Light Reading 2001, class of service; RFC 4689, RFC 7640",
    params: params![
        &[
            SIZES.spec(),
            FAMILIES.spec(),
            IPV6_SHARE.spec(),
            IPV6_FRAME_SIZE.spec(),
            CLASSES.spec(),
            SCHEDULING.spec(),
            BOTTLENECK.spec(),
            CORE_LINKS_DOWN.spec(),
            OVERLOAD.spec(),
            CALM.spec(),
            TOLERANCE.spec(),
            QUEUE.spec(),
            TRIAL_DURATION.spec()
        ],
        &AFTER_TRIAL,
    ],
    figures: &[LOSS.shape(), ERROR.shape(), RATE.shape()],
    tables: &[TABLE.shape(), core_links::SHAPES[0], core_links::SHAPES[1]],
    needs: &[Need::Classes],
};

impl Method for ClassOfService {
    fn spec(&self) -> &'static TestSpec {
        &SPEC
    }

    fn plan(&self, params: &Params) -> Plan {
        let links = if CORE_LINKS_DOWN.get(params).is_some() { LINKS_S } else { 0.0 };
        let sizes = SIZES.get(params).len();
        // The output port determines the load, not the tester's ceiling.
        Plan::times(params, sizes)
            .trials(loads(params).len(), TRIAL_DURATION.seconds(params), 0.5)
            .taking(links / sizes.max(1) as f64)
            .deviating(shorter(params, &TRIAL_DURATION, "trials", 60.0, "RFC 2544 section 24"))
            .deviating(pause_deviations(params))
    }

    fn run(&self, bed: &mut dyn Testbed, params: &Params, outcome: &mut Outcome) -> Result<(), TestError> {
        TABLE.begin(outcome);
        BARS.begin(outcome);
        RATE_BARS.begin(outcome);
        let overloads = OVERLOAD.get(params);
        if let Some(low) = overloads.iter().find(|percent| **percent <= 100) {
            return Err(TestError::NotApplicable(format!(
                "`overload` of {low} % is not an overload; give loads above 100"
            )));
        }
        let expected = match SCHEDULING.get(params) {
            Scheduling::Weights => "the weights give it of all frames that arrived, limited by what the class offers",
            Scheduling::Priority => {
                "strict priority gives it of all frames that arrived: the class with the highest weight gets all that it offers, the next one \
                 gets its frames from what is left"
            }
        };
        note(
            outcome,
            format!(
                "All classes offer the same amount. Shares refer to the frames that arrived while the last {} % of a trial were sent, because \
                 queues fill before that. The expected share of a class is what {expected}. Delay \
                 variation is the 99th percentile of the latency minus the minimum (RFC 7640).",
                (BINS - FILLING) * 100 / BINS
            ),
        );
        let wanted = CORE_LINKS_DOWN.get(params);
        let (direction, distribution) = match wanted {
            None => (Direction::Unidirectional, Distribution::NonMeshed),
            Some(_) => (Direction::Bidirectional, Distribution::FullyMeshed),
        };
        let of_size = |size| Pattern {
            direction,
            distribution,
            ..Pattern::one_way(size, FAMILIES.get(params), DRAIN.seconds(params))
        };
        let patterns = SIZES.get(params).into_iter().map(|size| of_size(size).shared_out(params));
        let classes = CLASSES.get(params);
        let figures = |of| {
            let classes = classes.clone();
            move |pattern: &Pattern| rows::figures(pattern, &classes, None, (None, None), of)
        };
        let Some(wanted) = wanted else {
            let each = |bed: &mut dyn Testbed, pattern: &Pattern, outcome: &mut Outcome, _| {
                way_out::measure(bed, pattern, params, outcome)
            };
            return for_each_pattern(bed, patterns.collect(), outcome, or_spoilt(figures(way_out::OF), each));
        };
        let plan = core_links::CorePlan::new(bed, params, &wanted)?;
        core_links::begin(outcome);
        let each = |bed: &mut dyn Testbed, pattern: &Pattern, outcome: &mut Outcome, _| {
            core_links::measure(bed, pattern, &plan, params, outcome)
        };
        for_each_pattern(bed, patterns.collect(), outcome, or_spoilt(figures(core_links::OF), each))?;
        bed.set(Setting::CoreLinks { down: &BTreeSet::new(), families: &FAMILIES.get(params) })
    }
}

/// Loads of the trials in %: first without overload, then each overload.
fn loads(params: &Params) -> Vec<f64> {
    std::iter::once(CALM.get(params).0).chain(OVERLOAD.get(params).iter().map(|n| *n as f64)).collect()
}

/// Headers of the frames of a class.
fn headers(family: Family, class: &ServiceClass) -> Vec<Header> {
    let dscp = Bits::new(class.dscp.into()).into();
    let ip = match family {
        Family::Ipv4 => Header::Ipv4(Ipv4 { dscp, ..Ipv4::default() }),
        Family::Ipv6 => Header::Ipv6(Ipv6 { dscp, ..Ipv6::default() }),
    };
    vec![ip, Header::Udp(Udp::default())]
}

/// The trials of one frame size, one at each load.
struct Series<'a> {
    pattern: &'a Pattern,
    params: &'a Params,
    flows: Vec<FlowSpec>,
    /// Frames per second at 100 %, and the divisor that turns them into a rate per sending port.
    full: (f64, f64),
    /// Seconds that full queues take to drain.
    emptied_s: f64,
}

impl Series<'_> {
    /// Runs the trials and passes each result to `each` as soon as the trial ends.
    ///
    /// # Errors
    /// Errors of a trial; [`TestError::Unfit`] if the tester could not offer the overload to which the figures refer.
    fn run(
        &self,
        bed: &mut dyn Testbed,
        outcome: &mut Outcome,
        mut each: impl FnMut(&mut Outcome, &Trial),
    ) -> Result<(), TestError> {
        let Series { pattern, params, .. } = self;
        let (seconds, loads) = (TRIAL_DURATION.seconds(params), loads(params));
        for (at, percent) in loads.iter().copied().enumerate() {
            let what = format!("classes of service {}: {percent} %", pattern.size);
            bed.progress(&what);
            let rate_pps = self.full.0 * percent / 100.0 / self.full.1;
            let result = bed.trial(&TrialSpec {
                purpose: what,
                size: pattern.size.clone(),
                flows: self.flows.clone(),
                load: Load::Constant { rate_pps },
                duration_s: seconds,
                bin_s: Some(seconds / BINS as f64),
                drain_s: pattern.drain_s.max(2.0 * self.emptied_s),
                events: vec![],
            });
            match result {
                Ok(result) => {
                    each(outcome, &Trial { percent, first: at == 1, result, bin_s: seconds / BINS as f64 });
                }
                Err(TestError::Unfit(why)) => {
                    note_unfit(outcome, pattern, &format!("{percent} % left out,"), FrameRate(rate_pps), &why);
                    if at == 1 {
                        return Err(TestError::Unfit(why));
                    }
                }
                Err(other) => return Err(other),
            }
            bed.settle(PAUSE.get(params))?;
        }
        Ok(())
    }
}
