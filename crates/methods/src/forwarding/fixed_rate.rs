//! Fixed rate: the flows described in the suite, each at its configured rate, at the same time in one trial.

use crate::kit::prelude::*;
use drophammer_model::param::FlowNames;
use drophammer_model::size::FrameSize;
use drophammer_model::suite::{FlowConfig, FlowRate};
use drophammer_model::traffic::{Header, HeaderKind};
use drophammer_model::trial::{FlowDuration, FlowSchedule, FlowSpec, GroupCounts};

/// The test.
pub struct FixedRate;

const FLOWS: Param<Option<FlowNames>> = Param::optional("flows", "flows of the suite to send; defaults to all");
const TRIAL_DURATION: Param<Duration> =
    Param::new("trial_duration", "2 s", "60 s", "length of the trial (RFC 2544 section 24: 60 s)");
const INTERVAL: Param<Duration> =
    Param::new("interval", "100 ms", "1 s", "width of the time bins for rates, 1 ms or more");

const LOSS: FigureSpec =
    FigureSpec::lower_by_difference("loss_{flow}_percent", "%", "share of the flow's frames that were lost in %")
        .by(LEAST_LOSS_PERCENT);
const LATENCY: FigureSpec = FigureSpec::lower("latency_{flow}_ns", "ns", "median latency of the flow in ns");
const DEVIATING: FigureSpec = FigureSpec::lower_by_difference(
    "deviations_{flow}",
    "frames",
    "frames of the flow that arrived in a wrong encapsulation",
)
.by(1.0);

static SPEC: TestSpec = TestSpec {
    name: "fixed_rate",
    title: "Fixed rate",
    summary: "flows defined in the suite, each at its own rate: loss, order, latency, rate over time and wrong encapsulations",
    source: "RFC 2544 section 23; RFC 4737; RFC 8219 section 7",
    params: params![&[FLOWS.spec(), TRIAL_DURATION.spec(), INTERVAL.spec()], &AFTER_TRIAL],
    figures: &[LOSS.shape(), LATENCY.shape(), DEVIATING.shape()],
    tables: &[TABLE.shape(), DEVIATIONS.shape()],
    needs: &[],
};

columns! {
    /// One flow.
    struct FlowRow {
        flow: String,
        from: String,
        to: String,
        frame_size: PacketSize,
        intended_load_pps: f64 ["fps"],
        offered_load_pps: f64 ["fps"],
        forwarding_rate_pps: f64 ["fps"],
        received_bps: f64 = "Received, layer 2" ["bit/s"],
        offered: u64 ["frames"],
        received: u64 ["frames"],
        lost: u64 ["frames"],
        loss_percent: Option<f64> ["%"],
        deviating: u64 = "Wrong encapsulation" ["frames"],
        reordered: Option<u64> = "Out of order" ["frames"],
        duplicated: u64 ["frames"],
        corrupted: u64 ["frames"],
        stray: u64 ["frames"],
        latency_min_ns: Option<f64> = "Latency, minimum" ["ns"],
        latency_p50_ns: Option<f64> = "Latency, median" ["ns"],
        latency_p99_ns: Option<f64> = "Latency, 99th percentile" ["ns"],
        latency_max_ns: Option<f64> = "Latency, maximum" ["ns"],
    }
}

columns! {
    /// One kind of difference between received frames of a flow and the expected form.
    struct DeviationRow {
        flow: String,
        deviation: String = "Arrived with",
        frames: u64 ["frames"],
        share_percent: Option<f64> = "Share of offered frames" ["%"],
    }
}

const TABLE: TableSpec<FlowRow> = TableSpec::new("fixed_rate", "Flows at fixed rates");
const DEVIATIONS: TableSpec<DeviationRow> = TableSpec::new("fixed_rate_deviations", "Frames in a wrong encapsulation");
const PLOT: PlotSpec =
    PlotSpec::new("fixed_rate", "Rate of each flow over time", PlotKind::Line, "time, s", "received, fps");

/// Narrowest time bin.
const LEAST_INTERVAL: Duration = Duration::from_millis(1);
/// Maximum number of flows whose rate is drawn; more curves would be indistinguishable.
const MOST_DRAWN: usize = 12;

/// Name of an endpoint of a flow: `p1`, or `p1.100` for a sub-interface.
fn end_name(flow: &FlowConfig, from: bool, ports: &[PortView]) -> String {
    let end = if from { flow.from } else { flow.to };
    let port = ports[end.port].name.clone();
    let Some(vlan) = end.vlan else { return port };
    let vids = ports[end.port].vlans.get(vlan).cloned().unwrap_or_default();
    std::iter::once(port).chain(vids.iter().map(u16::to_string)).collect::<Vec<_>>().join(".")
}

/// Bytes of tags and labels before the outermost IP header. They are added to a size that is given for the IP packet.
fn link_bytes(headers: &[Header]) -> f64 {
    let in_front = headers.iter().take_while(|h| !matches!(h.kind(), HeaderKind::Ipv4 | HeaderKind::Ipv6));
    in_front.filter(|h| matches!(h.kind(), HeaderKind::Vlan | HeaderKind::Mpls)).count() as f64 * 4.0
}

/// Mean length of the flow's frames in bytes, FCS included.
fn frame_bytes(flow: &FlowConfig) -> f64 {
    let round = flow.size.round();
    let bytes = |size: &FrameSize| {
        let extra = if matches!(size, FrameSize::Ip(_)) { link_bytes(&flow.headers) } else { 0.0 };
        f64::from(size.frame_bytes(flow.family == Family::Ipv6)) + extra
    };
    round.iter().map(bytes).sum::<f64>() / round.len() as f64
}

/// The highest rate of the flow's frames on the line of the sending port.
fn line_pps(flow: &FlowConfig, ports: &[PortView]) -> f64 {
    let port = &ports[flow.from.port];
    let v6 = flow.family == Family::Ipv6;
    // A PPP frame carries the same packet as an Ethernet frame, but without the Ethernet header.
    let packet = frame_bytes(flow) - flow.size.mean_frame_bytes(v6) + flow.size.mean_ip_bytes(v6);
    port.medium.payload_rate(port.speed) / (8.0 * port.medium.line_bytes(packet, frame_bytes(flow)))
}

/// Rate of the flow in frames per second.
fn rate_pps(flow: &FlowConfig, ports: &[PortView]) -> f64 {
    let bytes = frame_bytes(flow);
    match flow.rate {
        FlowRate::Frames(rate) => rate.pps(),
        FlowRate::Bits(bits) => bits.0 as f64 / (bytes * 8.0),
        FlowRate::Percent(percent) => line_pps(flow, ports) * percent / 100.0,
    }
}

fn spec(flow: &FlowConfig, ports: &[PortView]) -> FlowSpec {
    FlowSpec {
        per_destination: flow.per_destination,
        headers: flow.headers.clone(),
        arrives: flow.arrives.clone(),
        size: Some(flow.size.clone()),
        schedule: Some(FlowSchedule {
            rate_pps: rate_pps(flow, ports),
            delay_s: flow.start.as_secs_f64(),
            duration: flow.duration,
        }),
        ..FlowSpec::new(flow.name.clone(), flow.from.port, flow.to.port, flow.source, flow.destination)
    }
}

/// Time during which the flow sends, in seconds.
fn sending_s(flow: &FlowConfig, rate_pps: f64, trial: Duration) -> f64 {
    let left = (trial.as_secs_f64() - flow.start.as_secs_f64()).max(0.0);
    match flow.duration {
        FlowDuration::Continuous => left,
        FlowDuration::Seconds(seconds) => seconds.min(left),
        FlowDuration::Frames(frames) => (frames as f64 / rate_pps).min(left),
    }
}

/// Checks that the flows of each port fit its line.
fn check_load(flows: &[FlowConfig], ports: &[PortView]) -> Result<(), TestError> {
    for (index, port) in ports.iter().enumerate() {
        let share = |flow: &FlowConfig| rate_pps(flow, ports) / line_pps(flow, ports);
        let load: f64 = flows.iter().filter(|f| f.from.port == index).map(share).sum();
        if load > 1.0 + 1e-9 {
            let text = format!(
                "the flows that leave port {} need {:.1} % of its line; lower their rates, or raise the port's `speed`",
                port.name,
                load * 100.0
            );
            return Err(TestError::NotApplicable(text));
        }
    }
    Ok(())
}

/// The flows that this test sends.
fn chosen(bed: &dyn Testbed, params: &Params) -> Result<Vec<FlowConfig>, TestError> {
    let names = FLOWS.get(params);
    let wanted = |flow: &&FlowConfig| names.as_ref().is_none_or(|names| names.0.contains(&flow.name));
    let flows: Vec<_> = bed.facts().flows.iter().filter(wanted).cloned().collect();
    if flows.is_empty() {
        return Err(TestError::NotApplicable("the suite has no `flows:`".into()));
    }
    check_load(&flows, bed.ports())?;
    Ok(flows)
}

fn report(
    outcome: &mut Outcome,
    flow: &FlowConfig,
    counts: &GroupCounts,
    result: &TrialResult,
    ports: &[PortView],
    trial: Duration,
) {
    let rate = rate_pps(flow, ports);
    let seconds = sending_s(flow, rate, trial);
    let per_second = |n: u64| if seconds > 0.0 { n as f64 / seconds } else { 0.0 };
    let latency = |value: u64| (counts.latency.frames > 0).then_some(value as f64);
    let percentile = |p: f64| {
        let found = counts.latency.percentiles.iter().find(|(at, _)| *at == p);
        found.and_then(|(_, ns)| latency(*ns))
    };
    let deviating: u64 = counts.deviations.values().sum();
    TABLE.add(
        outcome,
        FlowRow {
            flow: flow.name.clone(),
            from: end_name(flow, true, ports),
            to: end_name(flow, false, ports),
            frame_size: flow.size.clone(),
            intended_load_pps: rate,
            offered_load_pps: per_second(counts.offered),
            forwarding_rate_pps: per_second(counts.received),
            received_bps: per_second(counts.received_bytes) * 8.0,
            offered: counts.offered,
            received: counts.received,
            lost: counts.lost,
            loss_percent: percent_of(counts.lost, counts.offered),
            deviating,
            reordered: counts.known_reordered(),
            duplicated: counts.duplicated,
            corrupted: counts.corrupted,
            stray: counts.stray,
            latency_min_ns: latency(counts.latency.min_ns),
            latency_p50_ns: percentile(50.0),
            latency_p99_ns: percentile(99.0),
            latency_max_ns: latency(counts.latency.max_ns),
        },
        [result.trial],
        (deviating > 0).then(|| "wrong encapsulation".to_owned()),
    );
    for (deviation, frames) in &counts.deviations {
        let row = DeviationRow {
            flow: flow.name.clone(),
            deviation: deviation.to_string(),
            frames: *frames,
            share_percent: percent_of(*frames, counts.offered),
        };
        DEVIATIONS.add(outcome, row, [result.trial], []);
    }
    let name = &flow.name;
    if counts.deviating_copies > 0 {
        let copies = counts.deviating_copies;
        note(outcome, format!("{name}: {copies} more copies of its frames arrived in a wrong encapsulation."));
    }
    let loss = percent_of(counts.lost, counts.offered);
    let kept = loss.is_none_or(|loss| loss <= OVERLOADED_PERCENT);
    let median =
        LATENCY.of(&[("flow", name)], format!("Median latency of flow {name}"), percentile(50.0).filter(|_| kept));
    let median = match hidden_latency(result, Some(&counts.group)) {
        _ if !kept => median.because(format!("more than {OVERLOADED_PERCENT} % of the frames were lost")),
        Some(why) => median.beyond(why),
        None => median.because("no frame arrived in time"),
    };
    let figures = [
        LOSS.of(&[("flow", name)], format!("Loss of flow {name}"), loss),
        median,
        DEVIATING.of(&[("flow", name)], format!("Wrong encapsulation, flow {name}"), Some(deviating as f64)),
    ];
    for figure in figures {
        outcome.ranks.push(if counts.offered > 0 {
            figure
        } else {
            figure
                .nothing("the flow sends nothing within `trial_duration`; lower its `start` or raise `trial_duration`")
        });
    }
}

/// `(middle in s, received frames per second)` of each time bin of `width` seconds in which the flow, `length` seconds
/// long from `start`, was sending throughout. If the flow fills no bin, there is one point: the mean over the time in
/// which it sends.
fn rates(counts: &GroupCounts, width: f64, start: f64, length: f64) -> Vec<(f64, f64)> {
    const ROUNDING: f64 = 1e-9;
    let whole = |bin: usize| {
        let from = bin as f64 * width;
        from >= start - ROUNDING && from + width <= start + length + ROUNDING
    };
    let bins = counts.bins.iter().enumerate().filter(|(i, _)| whole(*i));
    let points: Vec<_> = bins.map(|(i, bin)| ((i as f64 + 0.5) * width, bin.arrived as f64 / width)).collect();
    if points.is_empty() && length > 0.0 {
        return vec![(start + length / 2.0, counts.received as f64 / length)];
    }
    points
}

/// Draws the received rate of a flow over time.
fn draw(outcome: &mut Outcome, counts: &GroupCounts, interval: Duration, flow: &FlowConfig, length: f64) {
    for (x, y) in rates(counts, interval.as_secs_f64(), flow.start.as_secs_f64(), length) {
        PLOT.curve(outcome, &counts.group, xy(x, y));
    }
}

impl Method for FixedRate {
    fn spec(&self) -> &'static TestSpec {
        &SPEC
    }

    fn plan(&self, params: &Params) -> Plan {
        let time = TRIAL_DURATION.get(params) + DRAIN.get(params) + PAUSE.get(params);
        Plan::times(params, 1).counting(1).taking(time.as_secs_f64()).deviating(shorter(
            params,
            &TRIAL_DURATION,
            "trials",
            60.0,
            "RFC 2544 section 24",
        ))
    }

    fn run(&self, bed: &mut dyn Testbed, params: &Params, outcome: &mut Outcome) -> Result<(), TestError> {
        let flows = chosen(bed, params)?;
        let (trial, interval) = (TRIAL_DURATION.get(params), INTERVAL.get(params).max(LEAST_INTERVAL));
        TABLE.begin(outcome);
        PLOT.begin(outcome);
        note(
            outcome,
            "Rates are means over the time during which the flow sends. Layer 2 counts frames with FCS, without preamble and gap.",
        );
        let ports = bed.ports().to_vec();
        bed.progress("flows at fixed rates");
        let result = bed.latency_trial(&TrialSpec {
            purpose: format!("fixed rate: {} flows", flows.len()),
            // Every flow has a separate size.
            size: flows[0].size.clone(),
            flows: flows.iter().map(|flow| spec(flow, &ports)).collect(),
            load: Load::Flows,
            duration_s: trial.as_secs_f64(),
            bin_s: Some(interval.as_secs_f64()),
            drain_s: DRAIN.seconds(params),
            events: vec![],
        })?;
        for (i, flow) in flows.iter().enumerate() {
            let Some(counts) = result.groups.iter().find(|g| g.group == flow.name) else { continue };
            report(outcome, flow, counts, &result, &ports, trial);
            if i < MOST_DRAWN {
                draw(outcome, counts, interval, flow, sending_s(flow, rate_pps(flow, &ports), trial));
            }
        }
        if flows.len() > MOST_DRAWN {
            note(
                outcome,
                format!("The plot shows the first {MOST_DRAWN} of {} flows; the table has all.", flows.len()),
            );
        }
        for destinations in &result.destination_summaries {
            let name = &flows[destinations.flow].name;
            note(
                outcome,
                format!(
                    "{name}: {} of {} destinations lost a frame, {} got no frame at all.",
                    destinations.with_loss, destinations.offered, destinations.unreached
                ),
            );
        }
        if result.health.other_received > 0 {
            note(
                outcome,
                format!("{} frames from other senders arrived during the trial.", result.health.other_received),
            );
        }
        bed.settle(PAUSE.get(params))
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::table::Columns;
    use drophammer_model::quantity::{Bandwidth, FrameRate};
    use drophammer_model::suite::Endpoint;
    use drophammer_model::trial::{AddressRange, Bin};

    fn flow(size: &str, rate: FlowRate, headers: &str) -> FlowConfig {
        let range = AddressRange { first: "198.18.0.1".parse().unwrap(), step: 1, count: 1 };
        FlowConfig {
            name: "a".into(),
            from: Endpoint { port: 0, vlan: None },
            to: Endpoint { port: 1, vlan: None },
            family: Family::Ipv4,
            headers: serde_json::from_str(headers).unwrap(),
            source: range,
            destination: range,
            size: size.parse().unwrap(),
            rate,
            start: Duration::from_millis(500),
            duration: FlowDuration::Continuous,
            per_destination: false,
            arrives: None,
        }
    }

    fn ports() -> Vec<PortView> {
        let port = |name: &str| PortView {
            name: name.into(),
            speed: Bandwidth(1_000_000_000),
            medium: Default::default(),
            mtu: 1500,
            ipv4: None,
            ipv6: None,
            vlans: vec![],
            labels: Vec::new(),
            pushed: Vec::new(),
            core: Vec::new(),
            customers: 0,
            largest_frame: 1518,
            routed: Default::default(),
        };
        vec![port("p1"), port("p2")]
    }

    #[test]
    fn rates_in_bits_and_per_cent_count_all_headers() {
        let ports = ports();
        let rate = |size: &str, rate, headers: &str| rate_pps(&flow(size, rate, headers), &ports);
        assert_eq!(rate("64", FlowRate::Frames(FrameRate(1234.0)), "[]"), 1234.0);
        assert!((rate("1000", FlowRate::Bits(Bandwidth(8_000_000)), "[]") - 1_000.0).abs() < 1e-9);
        // 1,488,095.24 frames of 64 bytes fill 1 Gbit/s.
        assert!((rate("64", FlowRate::Percent(10.0), "[]") - 148_809.52).abs() < 0.01);
        // An IP packet of 1,000 bytes with two tags: 1,026 bytes.
        let tags = r#"[{"vlan":{}},{"vlan":{}},{"ipv4":{}},{"udp":{}}]"#;
        assert!((rate("ip1000", FlowRate::Bits(Bandwidth(8_208_000)), tags) - 1_000.0).abs() < 1e-9);
        assert!((rate("1000", FlowRate::Bits(Bandwidth(8_000_000)), tags) - 1_000.0).abs() < 1e-9);
    }

    #[test]
    fn the_page_names_every_column() {
        let path = concat!(env!("CARGO_MANIFEST_DIR"), "/../../docs/tests/fixed_rate.md");
        let page = std::fs::read_to_string(path).unwrap();
        for key in FlowRow::KEYS.iter().chain(DeviationRow::KEYS) {
            assert!(page.contains(&format!("`{key}`")), "{key}");
        }
    }

    #[test]
    fn a_line_that_is_too_full_is_refused() {
        let flows = [flow("64", FlowRate::Percent(60.0), "[]"), flow("1518", FlowRate::Percent(40.0), "[]")];
        assert_eq!(check_load(&flows, &ports()), Ok(()));
        let more = [flows.to_vec(), vec![flow("64", FlowRate::Frames(FrameRate(2_000.0)), "[]")]].concat();
        let error = check_load(&more, &ports()).unwrap_err().to_string();
        assert!(error.contains("port p1 need 100.1 % of its line") && error.contains("lower their rates"), "{error}");
    }

    #[test]
    fn only_bins_of_the_sending_time_have_a_rate() {
        let counts = |arrived: &[u64]| GroupCounts {
            received: arrived.iter().sum(),
            bins: arrived.iter().map(|n| Bin { arrived: *n, ..Bin::default() }).collect(),
            ..GroupCounts::default()
        };
        // 1,000 fps from 0.25 s to 0.75 s, an outage in the middle, nothing after the end.
        let flow = counts(&[0, 0, 50, 100, 0, 100, 100, 50, 0, 0, 0]);
        let same = |found: Vec<(f64, f64)>, expected: &[(f64, f64)]| {
            let near = |(a, b): (&(f64, f64), &(f64, f64))| (a.0 - b.0).abs() < 1e-9 && (a.1 - b.1).abs() < 1e-6;
            assert!(found.len() == expected.len() && found.iter().zip(expected).all(near), "{found:?}, {expected:?}");
        };
        same(rates(&flow, 0.1, 0.25, 0.5), &[(0.35, 1_000.0), (0.45, 0.0), (0.55, 1_000.0), (0.65, 1_000.0)]);
        // The bins after the end of a trial belong to the drain time.
        let trial = counts(&[100, 100, 100, 0, 0, 0]);
        same(rates(&trial, 0.1, 0.0, 0.3), &[(0.05, 1_000.0), (0.15, 1_000.0), (0.25, 1_000.0)]);
        // 80 ms across parts of two bins.
        same(rates(&counts(&[30, 50, 0]), 0.1, 0.07, 0.08), &[(0.11, 1_000.0)]);
        assert_eq!(rates(&counts(&[0, 0]), 0.1, 0.2, 0.0), []);
    }

    #[test]
    fn a_flow_sends_for_its_own_time() {
        let second = Duration::from_secs(1);
        let of =
            |duration| sending_s(&FlowConfig { duration, ..flow("64", FlowRate::Percent(1.0), "[]") }, 100.0, second);
        assert_eq!(of(FlowDuration::Continuous), 0.5);
        assert_eq!(of(FlowDuration::Seconds(0.2)), 0.2);
        assert_eq!(of(FlowDuration::Frames(30)), 0.3);
        assert_eq!(of(FlowDuration::Frames(3_000)), 0.5);
    }
}
