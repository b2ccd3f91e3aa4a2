//! Traffic to routes: streams to every route of a part while the routing changes.

use crate::attempts::Attempts;
use crate::lossy::NO_THROUGHPUT;
use crate::parameters::{DISTRIBUTION, DRAIN, SEARCH, joined};
use crate::pattern::Pattern;
use crate::report::note;
use crate::route_tests::FAMILIES;
use crate::routed;
use crate::routing::{Change, RouteAction};
use crate::testbed::{PortView, TestError, Testbed};
use crate::throughput_search::{estimate_one, known_throughput, zero_loss_goal};
use crate::trial::{TimedActions, Trial};
use drophammer_model::capabilities::Need;
use drophammer_model::outcome::Outcome;
use drophammer_model::param::{Param, Percent};
use drophammer_model::pattern::{Direction, Distribution};
use drophammer_model::quantity::FrameRate;
use drophammer_model::registry::{ParamSpec, TestSpec};
use drophammer_model::routes::Routes;
use drophammer_model::size::{FrameSize, PacketSize};
use drophammer_model::suite::Params;
use drophammer_model::trial::{Family, FlowSpec, Load, PortIndex, Targets, TrialResult, TrialSpec};
use std::ops::Range;
use std::sync::Arc;
use std::time::Duration;

/// Roles that a test with traffic to routes requires of a DUT: it forwards by its BGP routes. Without the second role,
/// the traffic of a router that is only a control plane would measure the forwarding of its host.
pub const NEEDS: &[Need] = &[Need::Bgp, Need::BgpForwarding];

/// `load`
pub const LOAD: Param<Percent> = Param::new(
    "load",
    "50",
    "90",
    "load in per cent of the throughput of the same frames between the same ports (or of the smallest frames from one port to another, if the test has no such parameters), unless `rate` is given",
);
/// `rate`
pub const RATE: Param<Option<FrameRate>> = Param::optional("rate", "load of each sending port, instead of `load`");

/// Parameters of the load, and of the search for the throughput to which it refers.
pub const LOADED: [ParamSpec; 9] = joined(&[&[LOAD.spec(), RATE.spec()], &SEARCH]);

/// `frame_sizes`, in tests that have this parameter
pub const SIZES: Param<Vec<PacketSize>> = Param::fixed(
    "frame_sizes",
    "[64]",
    "frame sizes with FCS, or mixes (RFC 2544 section 9.1); IPv6 frames have at least 78 bytes",
);
/// Frame sizes and distribution over the ports, for tests in which they can be chosen.
pub const SPREAD: [ParamSpec; 2] = [SIZES.spec(), DISTRIBUTION.spec()];

/// `frame_size`, in tests that have one trial
pub const SIZE: Param<PacketSize> =
    Param::fixed("frame_size", "64", "frame size with FCS, or a mix; IPv6 frames have at least 78 bytes");
/// Frame size and distribution over the ports, for tests that have one trial.
pub const SPREAD_ONE: [ParamSpec; 2] = [SIZE.spec(), DISTRIBUTION.spec()];

/// Estimate of the throughput searches before a test with traffic: one per family and size, or none if the rate is
/// given.
pub fn estimate_search(params: &Params) -> Duration {
    match RATE.get(params) {
        Some(_) => Duration::ZERO,
        None => {
            let searches = FAMILIES.get(params).len() * sizes(params);
            estimate_one(params, &[zero_loss_goal(params)]) * searches as u32
        }
    }
}

/// Number of frame sizes.
pub fn sizes(params: &Params) -> usize {
    SIZES.find(params).map_or(1, |sizes| sizes.len())
}

/// Frames of 64 bytes, or 78 for IPv6: the smallest that carry a signature (RFC 2544 section 9, RFC 5180 section 5).
pub fn smallest(family: Family) -> PacketSize {
    PacketSize::Fixed(FrameSize::Frame(match family {
        Family::Ipv4 => 64,
        Family::Ipv6 => 78,
    }))
}

/// Frames from a port to the routes behind another one.
#[derive(Clone, Debug)]
pub struct Stream {
    /// Group name of the frames.
    pub group: String,
    /// Port that sends.
    pub from: PortIndex,
    /// Port at which they must arrive.
    pub to: PortIndex,
    /// Other ports at which they may arrive.
    pub also: Vec<PortIndex>,
    /// Target routes of the frames.
    pub routes: Arc<Routes>,
    /// Range of the target routes.
    pub part: Range<u32>,
}

/// A trial of such streams.
#[derive(Clone, Debug)]
pub struct RouteTrial {
    /// Purpose, for progress and the record.
    pub purpose: String,
    /// Frame size.
    pub size: PacketSize,
    /// The streams; each gets a share of the port's load by its number of routes.
    pub streams: Vec<Stream>,
    /// Rate per sending port.
    pub rate: FrameRate,
    /// Duration in seconds.
    pub duration_s: f64,
    /// Width of time bins.
    pub bin_s: Option<f64>,
    /// True to count frames for each route.
    pub per_route: bool,
    /// Changes of the routing: seconds after the first departure, label, actions.
    pub changes: Vec<(f64, String, Vec<RouteAction>)>,
}

impl RouteTrial {
    fn request(&self, bed: &dyn Testbed, params: &Params) -> Result<Trial, TestError> {
        let mut flows = Vec::new();
        for stream in &self.streams {
            let family = stream.routes.family();
            let port = &bed.ports()[stream.from];
            let sources = port
                .addressing(family)
                .map(|a| a.destinations)
                .ok_or_else(|| TestError::NotApplicable(format!("port {} has no {family} addresses", port.name)))?;
            for arrives in std::iter::once(&stream.to).chain(&stream.also) {
                must_fit(&self.size, family, [stream.from, *arrives].map(|index| &bed.ports()[index]))?;
            }
            flows.push(FlowSpec {
                also: stream.also.clone(),
                per_destination: self.per_route,
                weight: stream.part.len() as f64,
                ..FlowSpec::new(
                    stream.group.clone(),
                    stream.from,
                    stream.to,
                    sources,
                    Targets::Routes {
                        routes: stream.routes.clone(),
                        first: stream.part.start,
                        count: stream.part.len() as u32,
                    },
                )
            });
        }
        let change = |(at_s, label, actions): &(f64, String, Vec<RouteAction>)| {
            let (label, routed, actions) = (label.clone(), self.routed(actions), actions.clone());
            TimedActions { at_s: *at_s, label, routed, actions }
        };
        let spec = TrialSpec {
            purpose: self.purpose.clone(),
            size: self.size.clone(),
            flows,
            load: Load::Constant { rate_pps: self.rate.pps() },
            duration_s: self.duration_s,
            bin_s: self.bin_s,
            drain_s: DRAIN.seconds(params),
            events: vec![],
        };
        Ok(Trial { changes: self.changes.iter().map(change).collect(), ..Trial::new(spec) })
    }

    /// [`TimedActions::routed`] of these actions.
    fn routed(&self, actions: &[RouteAction]) -> Option<bool> {
        let all = |wanted: Change| {
            self.streams.iter().all(|stream| {
                // Frames that may also arrive at other ports have different routes.
                stream.also.is_empty()
                    && actions.iter().any(|action| match action {
                        RouteAction::Routes { change, routes, part, .. } => {
                            *change == wanted
                                && Arc::ptr_eq(routes, &stream.routes)
                                && part.start <= stream.part.start
                                && part.end >= stream.part.end
                        }
                        _ => false,
                    })
            })
        };
        let advertised = all(Change::Advertise);
        (advertised || all(Change::Withdraw)).then_some(advertised)
    }
}

/// # Errors
/// [`TestError::NotApplicable`] if the frames are larger than a port accepts.
pub fn must_fit(size: &PacketSize, family: Family, ports: [&PortView; 2]) -> Result<(), TestError> {
    let needed = u32::from(size.largest_ip_bytes(family == Family::Ipv6));
    match ports.into_iter().find(|port| needed > port.mtu) {
        Some(port) => {
            let why = format!("frames of {size} need an MTU of {needed}, port {} has {}", port.name, port.mtu);
            Err(TestError::NotApplicable(why))
        }
        None => Ok(()),
    }
}

/// Runs a trial from the routing state that `prepare` sets up. If the trial is spoilt, repeats both.
///
/// # Errors
/// [`TestError::Unfit`] if too many attempts were invalid; errors of `prepare` and of the trial.
pub fn run(
    bed: &mut dyn Testbed,
    params: &Params,
    trial: &RouteTrial,
    mut prepare: impl FnMut(&mut dyn Testbed) -> Result<(), TestError>,
) -> Result<TrialResult, TestError> {
    let request = trial.request(bed, params)?;
    let mut attempts = Attempts::begin(bed);
    loop {
        prepare(bed)?;
        let result = bed.attempt(&request, attempts.number())?.result;
        if attempts.passed(bed, &result)? {
            return Ok(result);
        }
    }
}

/// The traffic whose throughput determines the load of a test.
fn load_pattern(size: PacketSize, family: Family, params: &Params) -> Pattern {
    let distribution = DISTRIBUTION.find(params).unwrap_or_default();
    let meshed = distribution == Distribution::FullyMeshed;
    Pattern {
        direction: if meshed { Direction::Bidirectional } else { Direction::Unidirectional },
        distribution,
        // Traffic to routes needs no hosts.
        routes: if meshed { routed::routes(params) } else { 0 },
        ..Pattern::one_way(size, vec![family], DRAIN.seconds(params))
    }
}

/// `load_pattern` for each frame size of a test: `frame_sizes`, or `frame_size`, or the smallest.
pub fn load_patterns_of(family: Family, params: &Params) -> Vec<Pattern> {
    let one = || SIZE.find(params).unwrap_or_else(|| smallest(family));
    let sizes = SIZES.find(params).unwrap_or_else(|| vec![one()]);
    // The smallest frame of IPv6 is larger than that of IPv4.
    let of = |size: PacketSize| if size == smallest(Family::Ipv4) { smallest(family) } else { size };
    sizes.into_iter().map(|size| load_pattern(of(size), family, params)).collect()
}

/// The patterns whose throughput a test with these parameters needs for its load, and for which the tester's ceiling
/// must be measured; none if the rate is given, or if the test has no load parameter.
pub fn load_patterns(spec: &TestSpec, params: &Params) -> Vec<Pattern> {
    let takes = |key: &str| spec.params.iter().any(|param| param.key == key);
    let searches = takes(LOAD.spec().key) && takes(RATE.spec().key) && RATE.find(params).flatten().is_none();
    let families = FAMILIES.find(params).unwrap_or_default();
    families.into_iter().filter(|_| searches).flat_map(|family| load_patterns_of(family, params)).collect()
}

/// The throughput to which [`load`] refers, if a test of this run found it: the throughput of the smallest frames from
/// one port to another.
pub fn baseline(bed: &mut dyn Testbed, family: Family, params: &Params) -> Option<FrameRate> {
    baseline_of(bed, smallest(family), family, params)
}

/// Like [`baseline`], but for a frame size, between the ports of the test.
pub fn baseline_of(bed: &mut dyn Testbed, size: PacketSize, family: Family, params: &Params) -> Option<FrameRate> {
    bed.known().throughput.get(&load_pattern(size, family, params).key()).copied().flatten()
}

/// The load of a test: `rate`, or `load` per cent of the throughput from one port to another, which is searched if it
/// is not known.
///
/// # Errors
/// Errors of the search; [`TestError::NotApplicable`] if it finds no throughput.
pub fn load(
    bed: &mut dyn Testbed,
    family: Family,
    params: &Params,
    outcome: &mut Outcome,
) -> Result<FrameRate, TestError> {
    load_of(bed, &load_pattern(smallest(family), family, params), params, outcome)
}

/// Like [`load`], but as a share of the throughput of this traffic.
///
/// # Errors
/// Errors of [`load`].
pub fn load_of(
    bed: &mut dyn Testbed,
    pattern: &Pattern,
    params: &Params,
    outcome: &mut Outcome,
) -> Result<FrameRate, TestError> {
    if let Some(rate) = RATE.get(params) {
        return Ok(rate);
    }
    let Percent(percent) = LOAD.get(params);
    let throughput = known_throughput(bed, pattern, params, outcome)?;
    let throughput = throughput
        .ok_or_else(|| TestError::Failed(format!("{NO_THROUGHPUT}; `rate` gives a load that is not a share of it")))?;
    let rate = throughput.scaled(percent / 100.0);
    let of = match pattern.distribution {
        Distribution::NonMeshed | Distribution::Crossed => {
            format!("throughput of {throughput} from one port to another")
        }
        Distribution::FullyMeshed => format!("throughput of {throughput} per port, from each to all others"),
    };
    let what = format!("{}, {}", pattern.protocol(), pattern.size_text());
    note(outcome, format!("{what}: the load is {rate}, {percent} % of the {of}."));
    Ok(rate)
}
