//! Routing loop (tests of a "GigaPoP", 1999): four routers forward packets to one prefix in a circle, through a tunnel
//! and by policy routing, until their TTL expires, `ttl - 1` times each. This turns a small load into a large one. Only
//! ICMP errors come back to the tester, so the results come from the interface counters of the routers.

mod circled;
mod counted;
mod rows;
mod search;

use crate::kit::prelude::*;
use crate::trial::Stillness;
use circled::{circled, wrong};
use counted::Expected;
use drophammer_model::outcome::Verdict;
use drophammer_model::quantity::Bandwidth;
use drophammer_model::role::TUNNEL_OVERHEAD;
use drophammer_model::topology::{LOOP_PREFIX, System, WAN_HOPS};
use drophammer_model::traffic::{Header, Ipv4, Udp};
use drophammer_model::trial::{AddressRange, FlowSpec};

/// The test.
pub struct RoutingLoop;

const SIZES: Param<Vec<PacketSize>> = Param::fixed(
    "frame_sizes",
    "[ip1498, ip528, ip68, ip1400, ip40]",
    "sizes of the IP packets (`ip68`) or of frames with FCS (`86`); a test packet has at least 40 bytes",
);
const TTL: Param<u32> = Param::fixed("ttl", "64", "TTL of the injected packets, 2 to 255").at_most(255);
const PORT: Param<u32> = Param::fixed("port", "1", "number of the suite's port that injects, from 1");
const PACKETS: Param<u32> =
    Param::new("packets", "100", "1000", "packets injected to check whether all counters are right");
const RATE: Param<FrameRate> = Param::fixed("accounting_rate", "100 fps", "injection rate of `packets`");
const OWN_FRAMES: Param<u64> = Param::fixed(
    "own_frames",
    "10",
    "frames that a counter may show in addition to the packets, exchanged between routers (ARP, Neighbor Discovery)",
);
const TRIAL_DURATION: Param<Duration> =
    Param::new("trial_duration", "2 s", "60 s", "length of a trial; at least twice the time that a packet circulates");
const PRECISION: Param<Percent> = Param::new(
    "precision",
    "5",
    "1",
    "distance between the highest rate without loss and the lowest rate with loss, in % of the latter, at which the search ends",
);
const OVERLOAD: Param<Option<FrameRate>> = Param::optional(
    "overload",
    "packets injected per second under overload; defaults to twice the highest rate without loss",
);
const SETTLE: Param<Duration> = Param::new(
    "settle",
    "10 s",
    "60 s",
    "how long after a trial packets may circulate, beyond the delays of links and lines, before they count as endless",
);

const PACKETS_IN_LOOP: FigureSpec = FigureSpec::higher(
    "loop_{size}_pps",
    "pps",
    "packets per second between the second and the third router, in the slower direction, at the highest load without loss",
);
const AMPLIFICATION: FigureSpec = FigureSpec::higher(
    "loop_{size}_amplification",
    "",
    "packets that all routers forwarded per injected packet; only if every counter is right",
);

static SPEC: TestSpec = TestSpec {
    name: "routing_loop",
    title: "Routing loop",
    summary: "four routers in a loop with a tunnel and policy routing multiply a small load: what each interface counts, and how much the loop \
         carries",
    source: "O. Comay, GigaPoP capacity (1999); RFC 2784, RFC 1812 section 5.3.1",
    params: params![&[
        SIZES.spec(),
        TTL.spec(),
        PORT.spec(),
        PACKETS.spec(),
        RATE.spec(),
        OWN_FRAMES.spec(),
        TRIAL_DURATION.spec(),
        PRECISION.spec(),
        MAX_LOAD.spec(),
        OVERLOAD.spec(),
        SETTLE.spec(),
        PAUSE.spec()
    ],],
    figures: &[PACKETS_IN_LOOP.shape(), AMPLIFICATION.shape()],
    tables: &rows::SHAPES,
    needs: &[],
};

/// Counters have settled if they do not grow for this long plus twice the delay of the longest link.
const QUIET: Duration = Duration::from_millis(100);
/// Number of counter readings within [`QUIET`].
const READINGS: u32 = 10;
/// Number of trials of a search, for estimates.
const SEARCH: f64 = 9.0;
/// Addresses in the looping prefix.
const ADDRESSES: u32 = 200;

/// Settings that are the same for all sizes.
struct Circle {
    system: System,
    port: usize,
    ttl: u8,
    passes: Vec<u64>,
    expected: Expected,
    ports: Vec<String>,
    own_frames: u64,
}

impl Circle {
    fn new(bed: &mut dyn Testbed, params: &Params) -> Result<Circle, TestError> {
        let refuse = |why: String| Err(TestError::NotApplicable(why));
        let Some(system) = bed.facts().system.clone().filter(|system| system.cycle().is_some()) else {
            return refuse("the DUT has no routing loop; give it `topology: {loop: 4}`".into());
        };
        let ttl = TTL.get(params);
        let Some(ttl) = u8::try_from(ttl).ok().filter(|ttl| *ttl >= 2) else {
            return refuse(format!("a packet with `ttl: {ttl}` does not circle; give 2 to 255"));
        };
        let ports: Vec<String> = bed.ports().iter().map(|port| port.name.clone()).collect();
        let number = PORT.get(params);
        let Some(port) = usize::try_from(number).ok().and_then(|n| n.checked_sub(1)).filter(|n| *n < ports.len())
        else {
            return refuse(format!("there is no port number {number}; `port` is 1 to {}", ports.len()));
        };
        if bed.ports()[port].ipv4.is_none() {
            return refuse(format!("port {} has no IPv4, but the loop uses IPv4; choose another `port`", ports[port]));
        }
        if bed.router_interfaces()?.is_none() {
            return refuse("the routers of this DUT do not show interface counters".into());
        }
        let found = system.passes(port, ttl).zip(Expected::of(&system, port, ttl, &ports));
        let Some((passes, expected)) = found else {
            return Err(TestError::Failed(format!(
                "the path of the loop cannot be determined from port {}",
                ports[port]
            )));
        };
        Ok(Circle { system, port, ttl, passes, expected, ports, own_frames: OWN_FRAMES.get(params) })
    }

    /// The traffic pattern for which the tester's ceiling is known.
    fn pattern(size: PacketSize) -> Pattern {
        // The trial waits until the counters settle, not for a fixed time.
        Pattern::one_way(size, vec![Family::Ipv4], 0.0)
    }

    /// A trial that injects at this rate. None of its packets may come back.
    fn trial(&self, bed: &dyn Testbed, size: &PacketSize, what: &str, rate: FrameRate, duration_s: f64) -> TrialSpec {
        let ports = bed.ports();
        // [`Circle::new`] has checked this.
        let sources = ports[self.port].ipv4.as_ref().map(|addressing| addressing.destinations);
        let target = AddressRange {
            first: std::net::IpAddr::V4((u32::from(LOOP_PREFIX.0) + 1).into()),
            step: 1,
            count: ADDRESSES,
        };
        let to = (self.port + 1) % ports.len();
        let mut flow = FlowSpec::new("loop", self.port, to, sources.unwrap_or(target), target);
        flow.denied = true;
        flow.headers =
            vec![Header::Ipv4(Ipv4 { ttl: self.ttl.into(), ..Ipv4::default() }), Header::Udp(Udp::default())];
        TrialSpec {
            purpose: format!("routing loop {size}: {what} at {rate}"),
            size: size.clone(),
            flows: vec![flow],
            load: Load::Constant { rate_pps: rate.pps() },
            duration_s,
            bin_s: None,
            drain_s: 0.0,
            events: vec![],
        }
    }

    /// Bytes of a packet of `ip_bytes` on the link after a hop.
    fn bytes_at(&self, hop: usize, ip_bytes: u16) -> u32 {
        let tunnelled = self.system.cycle().is_some_and(|cycle| cycle[hop].to_tunnel);
        u32::from(ip_bytes) + if tunnelled { TUNNEL_OVERHEAD } else { 0 }
    }

    /// The speed of the link after a hop, and its delay.
    fn link_at(&self, hop: usize) -> (Option<Bandwidth>, Duration) {
        let cycle = self.system.cycle().unwrap_or_default();
        let leaves = |end: drophammer_model::topology::CoreEnd| {
            cycle.get(hop).is_some_and(|hop| (end.router, end.interface) == (hop.router, hop.to))
        };
        let link = self.system.links.iter().find(|link| link.ends.into_iter().any(leaves));
        link.map_or((None, Duration::ZERO), |link| (link.speed, link.delay))
    }

    /// Time that a packet spends on the links if it never waits in a queue.
    fn on_links(&self, ip_bytes: u16) -> Duration {
        let at = |(hop, passes): (usize, &u64)| {
            let (speed, delay) = self.link_at(hop);
            let bits = f64::from(self.bytes_at(hop, ip_bytes)) * 8.0;
            *passes as f64 * (delay.as_secs_f64() + speed.map_or(0.0, |speed| bits / speed.0 as f64))
        };
        Duration::from_secs_f64(self.passes.iter().enumerate().map(at).sum())
    }

    /// The injection rate above which some link would have to carry more bits of IP packets than it can; `None` if the
    /// links have no speed.
    fn most(&self, ip_bytes: u16) -> Option<FrameRate> {
        let at = |(hop, passes): (usize, &u64)| {
            let (speed, _) = self.link_at(hop);
            let bits = f64::from(self.bytes_at(hop, ip_bytes)) * 8.0 * *passes as f64;
            speed.filter(|_| *passes > 0).map(|speed| speed.0 as f64 / bits)
        };
        self.passes.iter().enumerate().filter_map(at).min_by(f64::total_cmp).map(FrameRate)
    }

    fn stillness(&self, params: &Params, ip_bytes: u16) -> Stillness {
        let longest = self.system.links.iter().map(|link| link.delay).max().unwrap_or_default();
        let quiet = QUIET + 2 * longest;
        let patience = SETTLE.get(params) + 2 * self.on_links(ip_bytes);
        Stillness { quiet, step: quiet / READINGS, patience }
    }
}

/// The verdict on the counters, which were right for `right` of `sizes` packet sizes. It is undecided if some sizes
/// were not measured.
fn verdict(right: usize, sizes: usize, wrong: &[String]) -> Verdict {
    let undecided = wrong.is_empty() && right < sizes;
    let found = match wrong {
        [] => format!("every counter, with {right} of {sizes} packet sizes"),
        wrong => wrong.join(". "),
    };
    let decided = Verdict::decided("every interface counts each pass", wrong.is_empty() && !undecided, found);
    Verdict { undecided, ..decided }
}

fn patterns(params: &Params) -> Vec<Pattern> {
    SIZES.get(params).into_iter().map(Circle::pattern).collect()
}

impl Method for RoutingLoop {
    fn spec(&self) -> &'static TestSpec {
        &SPEC
    }

    fn plan(&self, params: &Params) -> Plan {
        /// Total duration of the overload trials, in trial lengths; after each, the test also waits for the counters.
        const OVERLOADED: f64 = 3.0;
        const WAITING_S: f64 = 0.4;
        let accounting_s = f64::from(PACKETS.get(params)) / RATE.get(params).pps().max(1.0);
        let trial_s = TRIAL_DURATION.seconds(params);
        let waiting_s = (SEARCH + OVERLOADED) * (WAITING_S + PAUSE.seconds(params));
        let mut plan = Plan::of(params, patterns(params))
            // The accounting trial, the search, two overload trials, and a check after the search and after the overload.
            .counting(TrialCount::exactly(1) + TrialCount::about(SEARCH as usize + 4))
            .taking(accounting_s + (SEARCH + OVERLOADED) * trial_s + waiting_s)
            .counts_alone()
            .deviating(shorter(params, &PAUSE, "pause", 5.0, "RFC 2544 section 23 e"))
            .deviating(shorter(params, &TRIAL_DURATION, "trials", 60.0, "RFC 2544 section 24"));
        // One extra trial for all sizes lets the routers learn their neighbours.
        plan.trials = plan.trials + TrialCount::exactly(1);
        plan
    }

    fn run(&self, bed: &mut dyn Testbed, params: &Params, outcome: &mut Outcome) -> Result<(), TestError> {
        rows::begin(outcome);
        let circle = Circle::new(bed, params)?;
        note(
            outcome,
            format!(
                "{}. Packets to {}/{} enter through port {} with a TTL of {}; each must be forwarded {} times in total. Rates under overload are \
                 the difference of \
                 two trials, one twice as long as the other, which excludes their beginning and end. Processors of \
                 interfaces: N/A, because no router here has any; their work is part of the router's CPU.",
                circle.system.topology,
                LOOP_PREFIX.0,
                LOOP_PREFIX.1,
                circle.ports[circle.port],
                circle.ttl,
                circle.passes.iter().sum::<u64>()
            ),
        );
        let mut learnt = false;
        let (mut right, mut wrong, mut stuck, mut carried) = (0, Vec::new(), Vec::new(), Vec::new());
        let measured = for_each_at_low_load(bed, patterns(params), outcome, |bed, pattern, outcome, _| {
            if !std::mem::replace(&mut learnt, true) {
                learn(bed, &circle, pattern, params)?;
            }
            let size = measure(bed, &circle, pattern, params, outcome)?;
            stuck.extend(size.stuck.map(|text| format!("{}: {text}", pattern.size_text())));
            carried.extend(size.carried);
            match size.wrong {
                None => right += 1,
                Some(text) => {
                    note_of(outcome, pattern, &text);
                    wrong.push(format!("{}: {text}", pattern.size_text()));
                }
            }
            Ok(())
        });
        // Overload comes last, because it may break the loop: all sizes have been measured before.
        let ended = match measured {
            Ok(()) | Err(TestError::Unfit(_)) => {
                let overloaded = overload_each(bed, &circle, &carried, params, outcome, &mut stuck);
                measured.and(overloaded)
            }
            Err(other) => Err(other),
        };
        if right > 0 || !wrong.is_empty() {
            outcome.verdicts.push(verdict(right, patterns(params).len(), &wrong));
        }
        if !stuck.is_empty() {
            outcome.verdicts.push(Verdict::decided("the loop still works after the load", false, stuck.join(". ")));
        }
        ended
    }
}

/// Sends a few packets around, so that the routers learn their neighbours on all links (RFC 2544 section 23 b).
fn learn(bed: &mut dyn Testbed, circle: &Circle, pattern: &Pattern, params: &Params) -> Result<(), TestError> {
    const PACKETS: f64 = 10.0;
    let (rate, stillness) = (RATE.get(params), circle.stillness(params, ip_bytes(pattern)?));
    let spec = circle.trial(bed, &pattern.size, "learning", rate, PACKETS / rate.pps().max(f64::MIN_POSITIVE));
    circled(bed, circle, &spec, stillness).map(drop)
}

/// Bytes of the packets of a pattern.
fn ip_bytes(pattern: &Pattern) -> Result<u16, TestError> {
    match &pattern.size {
        PacketSize::Fixed(size) => Ok(size.ip_bytes(false)),
        PacketSize::Mix { .. } => {
            Err(TestError::NotApplicable("packets of a mix are counted together; give sizes one by one".into()))
        }
    }
}

/// Results of one size.
#[derive(Default)]
struct Found {
    /// Faults of the counters, in words.
    wrong: Option<String>,
    /// How the loop failed to carry even the lowest load.
    stuck: Option<String>,
    /// The highest load; `None` if there is no load without loss.
    carried: Option<Carried>,
}

/// What the overload of one size needs.
struct Carried {
    pattern: Pattern,
    /// The highest load without loss.
    highest: FrameRate,
    /// The accounting trial, which later shows whether the loop still works.
    accounting: TrialSpec,
    /// Length of a trial in seconds.
    trial_s: f64,
    /// Latest possible time at which the last packet of the accounting trial was in the tunnel.
    alone: Duration,
}

/// Measures one size: whether counters are right, then the highest load without loss.
fn measure(
    bed: &mut dyn Testbed,
    circle: &Circle,
    pattern: &Pattern,
    params: &Params,
    outcome: &mut Outcome,
) -> Result<Found, TestError> {
    let ip_bytes = ip_bytes(pattern)?;
    let narrowest = circle.system.routers.iter().flat_map(|router| &router.role.tunnels).map(|tunnel| tunnel.mtu).min();
    if narrowest.is_some_and(|mtu| u32::from(ip_bytes) > mtu) {
        let mtu = narrowest.unwrap_or_default();
        return Err(TestError::NotApplicable(format!("the tunnel carries packets up to {mtu} bytes")));
    }
    let stillness = circle.stillness(params, ip_bytes);
    bed.progress(&format!("routing loop, {}: every counter", pattern.size_text()));
    let rate = RATE.get(params);
    let duration_s = f64::from(PACKETS.get(params).max(1)) / rate.pps().max(f64::MIN_POSITIVE);
    let spec = circle.trial(bed, &pattern.size, "accounting", rate, duration_s);
    let accounted = circled(bed, circle, &spec, stillness)?;
    bed.settle(PAUSE.get(params))?;
    rows::accounting(outcome, circle, pattern, &accounted);
    let (wrong, amplification) = (wrong(circle, &accounted), accounted.amplification(circle));
    rows::load(outcome, circle, pattern, "accounting", &accounted);
    // A load reaches its plateau when the first packets expire.
    let around = circle.on_links(ip_bytes).max(accounted.went_on.at_most);
    let trial_s = TRIAL_DURATION.seconds(params).max(2.0 * around.as_secs_f64());
    let alone = accounted.in_tunnel.at_most;
    let setting = search::Setting { circle, pattern, params, stillness, trial_s, ip_bytes, alone };
    let title = format!("Packets through the loop, {}", pattern.size_text());
    let mut rank = PACKETS_IN_LOOP.of(&[("size", &pattern.size)], title, None);
    let (mut stuck, mut carried) = (None, None);
    if accounted.is_lossless() {
        bed.progress(&format!("routing loop, {}: highest load", pattern.size_text()));
        let found = search::highest(bed, &setting, accounted, outcome)?;
        let each_way = WAN_HOPS.map(|hop| circle.passes[hop]).into_iter().min().unwrap_or(0);
        // If the loop gets stuck after too high a load, all later trials lose packets too, and the search shows
        // nothing.
        stuck = if found.was_lossy { setting.sticks(bed, &spec, "the search")? } else { None };
        match &stuck {
            Some(text) => note_of(outcome, pattern, text),
            None => {
                rank.value = Some(found.best.rate().pps() * each_way as f64);
                (rank.tester_limited, rank.capped) = (found.tester_limited, found.capped);
                rows::load(outcome, circle, pattern, "without loss", &found.best);
                rows::rates(outcome, circle, pattern, "without loss", &[&found.best]);
                let (pattern, highest) = (pattern.clone(), found.best.rate());
                carried = Some(Carried { pattern, highest, accounting: spec, trial_s, alone });
            }
        }
    } else {
        note_of(outcome, pattern, "packets are missing even at the lowest load, so there is no load without loss");
    }
    outcome.ranks.push(rank);
    let title = format!("Amplification, {}", pattern.size_text());
    // A loop that does not decrement the TTL would have a higher value without being better.
    let value = wrong.is_none().then_some(amplification);
    outcome.ranks.push(AMPLIFICATION.of(&[("size", &pattern.size)], title, value));
    Ok(Found { wrong, stuck, carried })
}

/// Measures each size under overload, and whether the loop still works afterwards; if not, adds the reason to `stuck`.
fn overload_each(
    bed: &mut dyn Testbed,
    circle: &Circle,
    carried: &[Carried],
    params: &Params,
    outcome: &mut Outcome,
    stuck: &mut Vec<String>,
) -> Result<(), TestError> {
    let patterns = carried.iter().map(|carried| carried.pattern.clone()).collect();
    for_each_at_low_load(bed, patterns, outcome, |bed, pattern, outcome, index| {
        let Carried { highest, accounting, trial_s, alone, .. } = &carried[index as usize];
        let ip_bytes = ip_bytes(pattern)?;
        let stillness = circle.stillness(params, ip_bytes);
        let setting =
            search::Setting { circle, pattern, params, stillness, trial_s: *trial_s, ip_bytes, alone: *alone };
        bed.progress(&format!("routing loop, {}: overload", pattern.size_text()));
        search::overload(bed, &setting, *highest, outcome)?;
        if let Some(text) = setting.sticks(bed, accounting, "overload")? {
            note_of(outcome, pattern, &text);
            stuck.push(format!("{}: {text}", pattern.size_text()));
        }
        Ok(())
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn sizes_that_were_not_measured_leave_the_verdict_open() {
        let of = |right, wrong: &[String]| {
            let verdict = verdict(right, 5, wrong);
            (verdict.pass, verdict.undecided)
        };
        assert_eq!((of(5, &[]), of(1, &[])), ((true, false), (false, true)));
        assert_eq!(of(1, &["r2 counted one too few".into()]), (false, false));
    }
}
