//! IPv6 packets with extension headers (RFC 5180 section 5.3): the cost of each header and of a chain of headers, and
//! the treatment of hop-by-hop options, the only header that routers on the path process.

mod hop_by_hop;

use crate::kit::prelude::*;
use crate::overload::{AFTERWARDS, INTERVAL, MANAGEMENT};
use drophammer_model::pattern::ExtensionHeader;
use drophammer_model::traffic::{Header, Ipv6, Udp};
use drophammer_model::trial::FlowSpec;

/// The test.
pub struct ExtensionHeaders;

drophammer_model::choice! {
    /// Headers between IPv6 and UDP.
    pub enum Chain {
        /// Destination options.
        DestinationOptions = "destination_options",
        /// A routing header.
        Routing = "routing",
        /// A fragment header.
        Fragment = "fragment",
        /// All three: the chain that RFC 5180 section 5.3 recommends.
        All = "chain",
    }
}

impl Chain {
    /// Its headers in the order of RFC 8200 section 4.1.
    fn headers(self) -> Vec<ExtensionHeader> {
        match self {
            Chain::DestinationOptions => vec![ExtensionHeader::DestinationOptions],
            Chain::Routing => vec![ExtensionHeader::Routing],
            Chain::Fragment => vec![ExtensionHeader::Fragment],
            Chain::All => {
                vec![ExtensionHeader::Routing, ExtensionHeader::Fragment, ExtensionHeader::DestinationOptions]
            }
        }
    }
}

const FRAME_SIZES: Param<Vec<PacketSize>> = Param::new(
    "frame_sizes",
    "[128, 512, 1518]",
    "[128, 256, 512, 1024, 1280, 1518]",
    "frame sizes with FCS and extension headers, or mixes; at least 78 bytes plus the headers, 118 with the chain",
);
const HEADERS: Param<Vec<Chain>> = Param::fixed(
    "headers",
    "[destination_options, routing, fragment, chain]",
    "extension headers whose throughput is compared with the throughput without any",
);
const LATENCY_LOAD: Param<Percent> = Param::fixed(
    "latency_load",
    "90",
    "load of the latency trials, in % of the lowest throughput of a frame size; the same for all headers",
);
const HOP_BY_HOP_LOADS: Param<Vec<Percent>> = Param::fixed(
    "hop_by_hop_loads",
    "[1, 10, 50]",
    "loads of packets with hop-by-hop options, in % of line rate (RFC 5180 section 5.3)",
);
const TRIAL_DURATION: Param<Duration> = trial_of_60_s("1 s");

const SHARE: FigureSpec = FigureSpec::higher(
    "extension_headers_{size}_{headers}_percent",
    "%",
    "throughput with these headers, in % of the throughput without, if neither the tester nor the line limits it",
);
const LATENCY_SHARE: FigureSpec = FigureSpec::lower(
    "latency_extension_headers_{size}_{headers}_percent",
    "%",
    "median latency with these headers at `latency_load`, in % of the latency without",
);

static SPEC: TestSpec = TestSpec {
    name: "extension_headers",
    title: "IPv6 extension headers",
    summary: "throughput and latency with extension headers, relative to packets without, and the effect of hop-by-hop options on the router",
    source: "RFC 5180 section 5.3",
    params: params![
        &[
            FRAME_SIZES.spec(),
            HEADERS.spec(),
            HOP_BY_HOP_LOADS.spec(),
            DIRECTION.spec(),
            DISTRIBUTION.spec(),
            LATENCY_LOAD.spec(),
            TRIAL_DURATION.spec(),
            MANAGEMENT.spec(),
            INTERVAL.spec(),
            AFTERWARDS.spec(),
        ],
        &SEARCH,
    ],
    figures: &[SHARE.shape(), LATENCY_SHARE.shape()],
    tables: &[TABLE.shape(), hop_by_hop::TABLE.shape()],
    needs: &[],
};

columns! {
    /// One chain of headers, or none. Rates are per sending port.
    struct HeaderRow {
        frame_size: PacketSize,
        headers: String = "Extension headers",
        header_bytes: u64 = "Length of the headers" ["bytes"],
        throughput_pps: Option<f64> = "Throughput, NDR(0)" ["fps"],
        of_baseline_percent: Option<f64> = "Share of throughput without headers" ["%"],
        load_pps: Option<f64> = "Load of the latency trial" ["fps"],
        latency_p50_us: Option<f64> = "Median latency" ["µs"],
        latency_p99_us: Option<f64> = "99 % latency" ["µs"],
        latency_percent: Option<f64> = "Share of latency without headers" ["%"],
        lost: Option<u64> = "Lost at this load" ["frames"],
    }
}

const TABLE: TableSpec<HeaderRow> = TableSpec::new("extension_headers", "Packets with extension headers");
const BARS: PlotSpec = PlotSpec::new(
    "extension_headers",
    "Throughput with extension headers",
    PlotKind::Bars,
    "extension headers",
    "fps per port",
);

/// Smallest IPv6 frame that has room for a signature.
const SMALLEST: u16 = 78;

/// `512 bytes with destination_options`.
pub(crate) fn named(name: String, extensions: &[ExtensionHeader]) -> String {
    if extensions.is_empty() {
        return name;
    }
    let words: Vec<&str> = extensions.iter().map(|extension| extension.word()).collect();
    format!("{name} with {}", words.join(", "))
}

/// Returns `flow` with these headers in its IPv6 packets, whose size stays the same.
///
/// # Errors
/// [`TestError::NotApplicable`] if the headers do not fit.
pub(crate) fn flow(flow: FlowSpec, extensions: &[ExtensionHeader], size: &PacketSize) -> Result<FlowSpec, TestError> {
    if extensions.is_empty() || flow.family == Family::Ipv4 {
        return Ok(flow);
    }
    must_fit(extensions, size)?;
    let extensions = extensions.iter().map(|extension| extension.header()).collect();
    let packet = Header::Ipv6(Ipv6 { extensions, ..Ipv6::default() });
    Ok(FlowSpec { headers: vec![packet, Header::Udp(Udp::default())], ..flow })
}

/// # Errors
/// [`TestError::NotApplicable`] for IPv6 frames that have no room for these headers.
fn must_fit(extensions: &[ExtensionHeader], size: &PacketSize) -> Result<(), TestError> {
    if extensions.is_empty() {
        return Ok(());
    }
    let needed = SMALLEST + extensions.iter().map(|extension| extension.bytes()).sum::<u16>();
    let smallest = size.round().into_iter().map(|size| size.frame_bytes(true)).min().unwrap_or(0);
    if smallest < needed {
        let why = format!("frames with these extension headers need at least {needed} bytes, not {smallest}");
        return Err(TestError::NotApplicable(why));
    }
    Ok(())
}

/// IPv6 packets of this size with these headers.
fn pattern(size: PacketSize, extensions: Vec<ExtensionHeader>, params: &Params) -> Pattern {
    Pattern {
        direction: DIRECTION.get(params),
        distribution: DISTRIBUTION.get(params),
        extensions,
        ..Pattern::one_way(size, vec![Family::Ipv6], DRAIN.seconds(params))
    }
}

/// Without headers, then with each chain.
fn chains(params: &Params) -> Vec<Option<Chain>> {
    std::iter::once(None).chain(HEADERS.get(params).into_iter().map(Some)).collect()
}

/// The patterns of one size whose throughput is compared: one for each chain that fits into the size.
fn compared(size: &PacketSize, params: &Params) -> Vec<Pattern> {
    let headers = chains(params).into_iter().map(|chain| chain.map_or(Vec::new(), Chain::headers));
    let possible = headers.filter(|headers| must_fit(headers, size).is_ok());
    possible.map(|headers| pattern(size.clone(), headers, params)).collect()
}

fn word(chain: Option<Chain>) -> &'static str {
    chain.map_or("none", Chain::word)
}

impl Method for ExtensionHeaders {
    fn spec(&self) -> &'static TestSpec {
        &SPEC
    }

    fn plan(&self, params: &Params) -> Plan {
        let sizes = FRAME_SIZES.get(params);
        let loads = HOP_BY_HOP_LOADS.get(params).len();
        let each = |size: &PacketSize| {
            let hop_by_hop = must_fit(&[ExtensionHeader::HopByHop], size).is_ok();
            // Latency with each chain, and each load with and without the options.
            compared(size, params).len() + if hop_by_hop { 2 * loads } else { 0 }
        };
        let count: usize = sizes.iter().map(each).sum();
        let trials = (chains(params).len() + 2 * loads) as f64;
        let asking_s = (2 * loads) as f64 * AFTERWARDS.seconds(params);
        let trials_s = TRIAL_DURATION.seconds(params) * trials + beside_s(params, trials, 0.3);
        let chains = chains(params).into_iter().map(|chain| chain.map_or(Vec::new(), Chain::headers));
        let all: Vec<Vec<ExtensionHeader>> = chains.chain([vec![ExtensionHeader::HopByHop]]).collect();
        let of_size =
            |size: &PacketSize| all.iter().map(|chain| pattern(size.clone(), chain.clone(), params)).collect();
        let patterns = sizes.iter().flat_map(|size| -> Vec<Pattern> { of_size(size) }).collect();
        Plan::times(params, 1)
            .offering(patterns)
            .searching_for(sizes.iter().flat_map(|size| compared(size, params)).collect())
            .counting(count)
            .taking((trials_s + asking_s) * sizes.len() as f64)
            .deviating(shorter(params, &TRIAL_DURATION, "trials", 60.0, "RFC 2544 section 24"))
            .deviating(goal_deviations(params))
    }

    fn run(&self, bed: &mut dyn Testbed, params: &Params, outcome: &mut Outcome) -> Result<(), TestError> {
        TABLE.begin(outcome);
        hop_by_hop::TABLE.begin(outcome);
        BARS.begin(outcome);
        note(
            outcome,
            "Frames of a size have the same length with and without extension headers. A router on the path looks only at hop-by-hop options, and \
             may ignore \
             even those (RFC 8200 section 4): their rows show the effect on the router, not its best forwarding rate.",
        );
        let plain = FRAME_SIZES.get(params).into_iter().map(|size| pattern(size, Vec::new(), params)).collect();
        for_each_pattern(bed, plain, outcome, |bed, plain, outcome, index| {
            headers(bed, plain, params, outcome, index)?;
            hop_by_hop::measure(bed, plain, params, outcome)
        })
    }
}

/// Result with one chain.
struct Found {
    chain: Option<Chain>,
    throughput: Option<FrameRate>,
    /// Why the throughput is not known.
    unknown: Option<String>,
    /// Why the throughput is only a lower bound.
    bound: Option<LowerBound>,
    at_line_rate: bool,
    latency: Option<TrialResult>,
    /// Why the tester could not measure the throughput, or the latency.
    spoilt: Option<Vec<String>>,
}

impl Found {
    /// Returns true if the throughput is only a lower bound.
    fn is_bound(&self) -> bool {
        self.bound.is_some() || self.at_line_rate
    }

    fn latency_us(&self, percent: f64) -> Option<f64> {
        self.latency.as_ref().and_then(|result| latency_us(result, percent))
    }
}

fn latency_us(result: &TrialResult, percent: f64) -> Option<f64> {
    if hidden_latency(result, None).is_some() {
        return None;
    }
    result.groups.iter().filter_map(|group| group.latency.percentile(percent)).max().map(|ns| ns as f64 / 1e3)
}

/// The same packets with the headers of `chain`.
fn extended(plain: &Pattern, chain: Option<Chain>) -> Pattern {
    Pattern { extensions: chain.map_or(Vec::new(), Chain::headers), ..plain.clone() }
}

/// Measures the throughput with each chain, then the latency at one load. Writes whatever was measured before an error.
fn headers(
    bed: &mut dyn Testbed,
    plain: &Pattern,
    params: &Params,
    outcome: &mut Outcome,
    index: u32,
) -> Result<(), TestError> {
    let mut found: Vec<Found> = Vec::new();
    let mut stopped = Ok(());
    for chain in chains(params) {
        let pattern = extended(plain, chain);
        bed.progress(&format!("throughput, {}", pattern.size_text()));
        if let Some(why) = pattern.flows(bed.ports()).err() {
            note_of(outcome, &pattern, format!("not tested: {why}"));
            continue;
        }
        let mut spoilt = None;
        let (throughput, unknown) = match known_throughput(bed, &pattern, params, outcome) {
            Ok(throughput) => (throughput, None),
            // If this chain fails, the others can still be measured. Without the baseline, none can.
            Err(TestError::NotApplicable(why)) if chain.is_some() => (None, Some(why)),
            Err(TestError::Unfit(why)) if chain.is_some() => {
                let text = format!("no throughput, the tester was unfit: {}", why.join("; "));
                spoilt = Some(why);
                (None, Some(text))
            }
            // A chain that kills the router must not erase the results of the chains before it.
            Err(error) => {
                stopped = Err(error);
                break;
            }
        };
        let bound = throughput.and_then(|_| known_bound(bed, &pattern));
        let limits = pattern.limits(bed);
        let at_line_rate = throughput.is_some_and(|rate| limits.at_line_rate(rate));
        found.push(Found { chain, throughput, unknown, bound, at_line_rate, latency: None, spoilt });
    }
    if stopped.is_ok() {
        stopped = latencies(bed, plain, params, outcome, &mut found);
    }
    write(outcome, &plain.size, &found, index);
    stopped
}

/// Latency with each chain that has a throughput, at the same load.
fn latencies(
    bed: &mut dyn Testbed,
    plain: &Pattern,
    params: &Params,
    outcome: &mut Outcome,
    found: &mut [Found],
) -> Result<(), TestError> {
    let lowest = found.iter().filter_map(|one| one.throughput).map(FrameRate::pps).min_by(f64::total_cmp);
    let Some(lowest) = lowest else { return Ok(()) };
    let rate_pps = lowest * LATENCY_LOAD.get(params).0 / 100.0;
    for one in found.iter_mut().filter(|one| one.throughput.is_some()) {
        let pattern = extended(plain, one.chain);
        bed.progress(&format!("latency, {}", pattern.size_text()));
        let purpose = format!("extension headers {}: latency", pattern.size_text());
        let load = Load::Constant { rate_pps };
        let spec = pattern.trial(bed.ports(), purpose, load, TRIAL_DURATION.seconds(params))?;
        match bed.latency_trial(&spec) {
            Ok(result) => one.latency = Some(result),
            Err(TestError::Unfit(why)) => {
                note_of(outcome, &pattern, format!("no latency, the tester was unfit: {}", why.join("; ")));
                one.spoilt = Some(why);
            }
            Err(other) => return Err(other),
        }
        bed.settle(PAUSE.get(params))?;
    }
    Ok(())
}

fn write(outcome: &mut Outcome, size: &PacketSize, found: &[Found], index: u32) {
    let without = found.first().filter(|one| one.chain.is_none());
    for (at, one) in found.iter().enumerate() {
        let pps = one.throughput.map(FrameRate::pps);
        let bounded = without.is_some_and(Found::is_bound);
        let share = without.filter(|without| !without.is_bound() || one.chain.is_none());
        let known = if one.unknown.is_some() { None } else { pps.or(Some(0.0)) };
        let share = share.and_then(|without| percent_ratio(known, without.throughput.map(FrameRate::pps)));
        let latency_without = without.and_then(|without| without.latency_us(50.0));
        let latency = percent_ratio(one.latency_us(50.0), latency_without);
        let mut marks = Vec::new();
        marks.extend(one.unknown.clone());
        marks.extend((known == Some(0.0)).then(|| "loses frames at every load".to_owned()));
        marks.extend(one.bound.map(|bound| bound.to_string()));
        marks.extend((one.at_line_rate && one.bound.is_none()).then(|| "line rate".to_owned()));
        if bounded && one.chain.is_some() {
            marks.push("share unknown: without headers the router may be faster".to_owned());
        }
        let headers = one.chain.map_or(Vec::new(), Chain::headers);
        let load_pps = one.latency.as_ref().map(|result| result.offered_load().pps());
        let row = HeaderRow {
            frame_size: size.clone(),
            headers: word(one.chain).into(),
            header_bytes: headers.iter().map(|header| u64::from(header.bytes())).sum(),
            throughput_pps: pps,
            of_baseline_percent: share,
            load_pps,
            latency_p50_us: one.latency_us(50.0),
            latency_p99_us: one.latency_us(99.0),
            latency_percent: latency,
            lost: one.latency.as_ref().map(TrialResult::lost),
        };
        TABLE.add(outcome, row, one.latency.as_ref().map(|result| result.trial), marks);
        if let Some(y) = pps {
            let x = f64::from(index) * found.len() as f64 + at as f64;
            let label = Some(format!("{size}: {}", word(one.chain)));
            BARS.curve(outcome, "throughput", Point { x, y, label, range: None, trial: None });
        }
        let Some(chain) = one.chain else { continue };
        let title = format!("Throughput with {chain}, relative to no extension headers, {size}");
        let figure = SHARE.of(&[("size", size), ("headers", &chain)], title, share);
        if bounded {
            outcome.ranks.push(figure.nothing("the throughput without headers is only a lower bound"));
        } else if share.is_some() {
            let capped = one.bound == Some(LowerBound::MaxLoad);
            outcome.ranks.push(RankFigure { tester_limited: one.is_bound() && !capped, capped, ..figure });
        } else if let Some(why) = one.spoilt.as_ref().filter(|_| one.throughput.is_none()) {
            push_spoilt(outcome, figure, why);
        } else if let Some(why) = &one.unknown {
            outcome.ranks.push(figure.beyond(why.clone()));
        } else if without.is_some_and(|without| without.throughput.is_none()) {
            outcome.ranks.push(figure.because("it loses frames at every load without headers"));
        }
        let title = format!("Median latency with {chain}, relative to no extension headers, {size}");
        let figure = LATENCY_SHARE.of(&[("size", size), ("headers", &chain)], title, latency);
        let figure = RankFigure { load_pps, ..figure };
        let mut results = [Some(one), without].into_iter().flatten().filter_map(|one| one.latency.as_ref());
        // The router failed if it loses frames at every load, or every frame of the trial.
        if let Some(why) = results.find_map(|result| hidden_latency(result, None)) {
            outcome.ranks.push(figure.beyond(why));
        } else if latency_without.is_some() && (one.latency.is_some() || known == Some(0.0)) {
            outcome.ranks.push(figure.because("no frame arrived"));
        } else if let Some(why) = one.spoilt.as_ref().or_else(|| without?.spoilt.as_ref()) {
            push_spoilt(outcome, figure, why);
        } else if let Some(why) = &one.unknown {
            outcome.ranks.push(figure.beyond(why.clone()));
        }
    }
}
