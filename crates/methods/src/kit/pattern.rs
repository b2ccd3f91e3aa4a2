//! The traffic pattern of a test row: sizes, IP versions and direction, converted into flows between the tester's
//! ports; and the rates that limit it.
//!
//! # Patterns
//!
//! Tests by frame size offer a `methods::Pattern`: size, families (or a `FamilyMix` with a size for each), direction,
//! distribution over the ports (pairs, or every port to every other one), and whether frames go to hosts or to BGP
//! routes. Ceilings, throughputs and highest loads are stored by `PatternKey`. `Method::patterns` names the patterns of
//! a test before the test runs, so that the runner can measure the tester's ceiling for each. A loop joins ports in
//! pairs and has no routers, so the ceiling is measured with the pattern `on_loop`. Frames can carry MPLS labels in
//! addition to their size (`model::Labels`, `methods/src/kit/labelled.rs`); the label entries of the receiving port
//! determine what must arrive. `methods/src/kit/routed.rs` puts routes behind the ports during a test (`Setting::Aim`),
//! and verifies on every other port, before and after the test, that the DUT has re-advertised the whole table. The
//! table stays for the next test that wants the same table (`routed::Kept`, in `Known`); the runner withdraws it before
//! any other test (`routed::release`). `methods/src/kit/route_spread.rs` defines which routes are behind which port and
//! which ports send to them, also for route tests that let the user choose. The IPv6 extension headers of a pattern are
//! part of its frame size (`model::ExtensionHeader`). If a port sends to several ports, a trial also counts the frames
//! between each two ports (`TrialResult::ways`); the report shows how evenly they are distributed.

pub(crate) mod arrivals;

use crate::extension_headers;
use crate::labelled;
use crate::modifiers;
use crate::parameters::{
    DIRECTION, DISTRIBUTION, DRAIN, EXTENSIONS, FAMILIES, IPV6_FRAME_SIZE, IPV6_SHARE, LABEL_STACK, LABELS,
};
use crate::routed;
use crate::testbed::{PortView, TestError, Testbed};
use drophammer_judge::held_up::HOST_BUSY;
use drophammer_model::Medium;
use drophammer_model::modifier::Modifier;
use drophammer_model::pattern::{
    Direction, Distribution, ExtensionHeader, FamilyMix, LABEL_BYTES, LabelOperation, Labels, MAX_LABELS, PatternKey,
};
use drophammer_model::quantity::FrameRate;
use drophammer_model::size::{ETHERNET_OVERHEAD, FrameSize, MIN_FRAME, PacketSize};
use drophammer_model::suite::Params;
use drophammer_model::trial::{Family, FlowSpec, Load, TrialResult, TrialSpec};

/// Tests use at most this share of the tester's ceiling: at the ceiling itself, about half of the trials are invalid
/// because the tester falls short.
pub const CEILING_SHARE: f64 = 0.95;

/// Above this share of the tester's ceiling, the tester may limit a figure as much as the DUT.
pub const TESTER_LIMITED_SHARE: f64 = 0.9;

/// Factor by which the highest load is reduced after the tester could not offer it validly.
pub const RETREAT: f64 = 0.9;

/// Maximum number of reductions before the tester counts as unfit.
pub const RETREATS: u32 = 6;

/// Returns true if a trial with these reasons was invalid because of its load. If the host was busy, it may have caused
/// the other reasons too, so they prove nothing about the load.
pub fn load_was_too_high(reasons: &[String]) -> bool {
    !reasons.iter().any(|reason| reason.starts_with(HOST_BUSY))
}

/// A traffic pattern. Ports form pairs in order: 0 and 1, 2 and 3; a remaining port stays silent. With crossed traffic,
/// four ports form the pairs 0 and 2, 1 and 3. With fully meshed traffic, each port sends to all others. Each family
/// has a separate flow group. All families send the same number of frames, unless `mix` specifies otherwise.
#[derive(Clone, Debug, PartialEq)]
pub struct Pattern {
    /// Size or mix; only for IPv4 frames if IPv6 frames have a different size.
    pub size: PacketSize,
    /// IP versions, at least one.
    pub families: Vec<Family>,
    /// Share and size of IPv6 frames, if both families are used.
    pub mix: Option<FamilyMix>,
    /// Direction; fully meshed traffic has both.
    pub direction: Direction,
    /// Which ports send to which.
    pub distribution: Distribution,
    /// Number of BGP routes that contain the destinations, over all ports and for each family; 0 if the destinations
    /// are hosts in the networks behind the ports.
    pub routes: u32,
    /// MPLS labels of the frames, in addition to their size.
    pub labels: Option<Labels>,
    /// Extension headers of the IPv6 frames, within their size.
    pub extensions: Vec<ExtensionHeader>,
    /// Additional traffic.
    pub modifier: Modifier,
    /// Wait for late frames after the last departure of a trial, in seconds (RFC 2544 section 23 d).
    pub drain_s: f64,
}

/// The labels that the parameters request.
pub fn labels(params: &Params) -> Option<Labels> {
    let operation = LABELS.find(params).flatten()?;
    // Too many labels are rejected when the flows are built.
    let sent = LABEL_STACK.find(params).map_or(1, |sent| u8::try_from(sent).unwrap_or(u8::MAX));
    let sent = if operation == LabelOperation::Push { 0 } else { sent };
    Some(Labels { operation, sent })
}

impl Pattern {
    /// Frames from the first port of each pair to the second one, to hosts, without labels, extension headers or a modifier.
    pub fn one_way(size: PacketSize, families: Vec<Family>, drain_s: f64) -> Self {
        Pattern {
            size,
            families,
            mix: None,
            direction: Direction::Unidirectional,
            distribution: Distribution::NonMeshed,
            routes: 0,
            labels: None,
            extensions: Vec::new(),
            modifier: Modifier::None,
            drain_s,
        }
    }

    /// The pattern of `size` with the parameters `families`, `ipv6_share`, `ipv6_frame_size`, `direction` and `drain`.
    pub fn new(size: PacketSize, params: &Params) -> Self {
        let pattern = Pattern {
            direction: DIRECTION.get(params),
            distribution: DISTRIBUTION.find(params).unwrap_or_default(),
            routes: routed::routes(params),
            labels: labels(params),
            extensions: EXTENSIONS.find(params).flatten().unwrap_or_default(),
            ..Pattern::one_way(size, FAMILIES.get(params), DRAIN.seconds(params))
        };
        pattern.shared_out(params)
    }

    /// Like [`Pattern::new`], but also with the settings `ipv6_share` and `ipv6_frame_size` for IPv6 frames.
    pub fn shared_out(self, params: &Params) -> Self {
        match (IPV6_SHARE.get(params), IPV6_FRAME_SIZE.get(params)) {
            (None, None) => self,
            (share, ipv6_size) => self.mixed(share.map_or(50.0, |share| share.0), ipv6_size),
        }
    }

    /// The pattern with this share of IPv6 frames in %, optionally with a different size for them. It has a single
    /// family if the share is 0 or 100 %.
    pub fn mixed(self, ipv6_percent: f64, ipv6_size: Option<PacketSize>) -> Self {
        let ipv6_size = ipv6_size.unwrap_or_else(|| self.size.clone());
        match FamilyMix::new(ipv6_percent, ipv6_size.clone()) {
            Some(mix) => Pattern { families: vec![Family::Ipv4, Family::Ipv6], mix: Some(mix), ..self },
            None if ipv6_percent >= 50.0 => {
                Pattern { size: ipv6_size, families: vec![Family::Ipv6], mix: None, ..self }
            }
            None => Pattern { families: vec![Family::Ipv4], mix: None, ..self },
        }
    }

    /// Key of the pattern for [`Known`](crate::Known) and for the ceilings.
    pub fn key(&self) -> PatternKey {
        PatternKey {
            size: self.size.clone(),
            families: self.families.clone(),
            mix: self.mix.clone(),
            direction: self.direction,
            distribution: self.distribution,
            // A trial counts the routes of all families.
            routes: self.routes * self.families.len() as u32,
            labels: self.labels,
            extensions: self.extensions.clone(),
            modifier: self.modifier,
        }
    }

    /// IP versions as text: `IPv4+IPv6`, `85 % IPv4+15 % IPv6`.
    pub fn protocol(&self) -> String {
        let of = |family: &Family| match &self.mix {
            Some(mix) => format!("{} % {family}", mix.percent(*family)),
            None => family.to_string(),
        };
        let families = self.families.iter().map(of).collect::<Vec<_>>().join("+");
        modifiers::named(extension_headers::named(families, &self.extensions), self.modifier)
    }

    /// Size of the frames of a family.
    pub fn size_of(&self, family: Family) -> &PacketSize {
        match &self.mix {
            Some(mix) if family == Family::Ipv6 => &mix.ipv6_size,
            _ => &self.size,
        }
    }

    /// Weighted mean over all frames of a per-family figure.
    fn mean(&self, figure: impl Fn(Family) -> f64) -> f64 {
        let weight = |family: Family| self.mix.as_ref().map_or(1.0, |mix| mix.percent(family));
        let sum: f64 = self.families.iter().map(|family| figure(*family) * weight(*family)).sum();
        sum / self.families.iter().map(|family| weight(*family)).sum::<f64>().max(f64::MIN_POSITIVE)
    }

    /// Size as text: `64 bytes`; `IP packets of 40 bytes`; the name of a mix; `imix with 15 % IPv6`.
    pub fn size_text(&self) -> String {
        let size = match &self.size {
            PacketSize::Fixed(FrameSize::Frame(bytes)) => format!("{bytes} bytes"),
            PacketSize::Fixed(FrameSize::Ip(bytes)) => format!("IP packets of {bytes} bytes"),
            PacketSize::Mix { name, .. } => name.clone(),
        };
        let size = match &self.labels {
            Some(labels) => format!("{size} and {labels}"),
            None => size,
        };
        let frames = match &self.mix {
            Some(mix) => format!("{size} with {} % IPv6", mix.percent(Family::Ipv6)),
            None => size,
        };
        modifiers::named(extension_headers::named(frames, &self.extensions), self.modifier)
    }

    /// A short form for figures: `64`; `64_broadcast`.
    pub fn label(&self) -> String {
        self.modifier.size_word(&self.size.to_string())
    }

    /// Mean size of the sent frames over all families in bytes, FCS and labels included. IPv6 frames can be larger than
    /// requested.
    pub fn frame_bytes(&self) -> f64 {
        self.mean(|family| self.bytes_of(family, 0).1)
    }

    /// Mean bytes of a family's frames if they have `added` more labels than were sent (negative: fewer): from the
    /// labels to the end of the IP packet, and of the whole frame, FCS included.
    fn bytes_of(&self, family: Family, added: i32) -> (f64, f64) {
        let round = self.size_of(family).round();
        let labels = self.label_bytes().saturating_add_signed(added as i16 * LABEL_BYTES as i16);
        let packet = |size: &FrameSize| size.ip_bytes(family == Family::Ipv6) + labels;
        let frame = |size: &FrameSize| (packet(size) + ETHERNET_OVERHEAD).max(MIN_FRAME);
        let mean = |bytes: &dyn Fn(&FrameSize) -> u16| {
            round.iter().map(|size| f64::from(bytes(size))).sum::<f64>() / round.len() as f64
        };
        (mean(&packet), mean(&frame))
    }

    /// Bytes of labels in each frame.
    fn label_bytes(&self) -> u16 {
        self.labels.map_or(0, Labels::bytes)
    }

    /// The pattern with which the tester's own ceiling is measured: [`PatternKey::on_loop`].
    #[must_use]
    pub fn on_loop(&self) -> Pattern {
        let PatternKey { distribution, routes, labels, extensions, modifier, .. } = self.key().on_loop();
        Pattern { distribution, routes, labels, extensions, modifier, ..self.clone() }
    }

    /// Pairs of sending and receiving ports.
    fn pairs(&self, ports: usize) -> Vec<(usize, usize)> {
        if self.distribution == Distribution::FullyMeshed {
            return (0..ports).flat_map(|a| (0..ports).filter(move |b| *b != a).map(move |b| (a, b))).collect();
        }
        let half = ports / 2;
        let pair = |i| if self.distribution == Distribution::Crossed { (i, i + half) } else { (2 * i, 2 * i + 1) };
        let pairs = (0..half).map(pair);
        match self.direction {
            Direction::Bidirectional => pairs.flat_map(|(a, b)| [(a, b), (b, a)]).collect(),
            Direction::Unidirectional => pairs.collect(),
        }
    }

    /// Number of sending ports. The aggregate rate is this number times the rate per port.
    pub fn senders(&self, ports: usize) -> u32 {
        let mut senders: Vec<usize> = self.pairs(ports).into_iter().map(|(from, _)| from).collect();
        senders.dedup();
        senders.len() as u32
    }

    /// The flows. Source and destination addresses are the test addresses behind the sending and the receiving port,
    /// which the generator uses in pseudo-random order (RFC 4814).
    ///
    /// # Errors
    /// [`TestError::NotApplicable`] when a port has no addresses of a family, or too small an MTU.
    pub fn flows(&self, ports: &[PortView]) -> Result<Vec<FlowSpec>, TestError> {
        if self.distribution == Distribution::FullyMeshed && self.direction == Direction::Unidirectional {
            let why = "in fully meshed traffic every port sends; remove `direction: unidirectional`";
            return Err(TestError::NotApplicable(why.into()));
        }
        if self.labels.is_some() && self.mix.is_some() {
            let why = "frames with labels are of one family, or half of each; remove `ipv6_share`";
            return Err(TestError::NotApplicable(why.into()));
        }
        let sends = self.labels.filter(|labels| labels.operation != LabelOperation::Push);
        if let Some(labels) = sends.filter(|labels| !(1..=MAX_LABELS).contains(&labels.sent)) {
            let why = format!("`label_stack` must be 1 to {MAX_LABELS}, not {}", labels.sent);
            return Err(TestError::NotApplicable(why));
        }
        let mut flows = Vec::new();
        for (from, to) in self.pairs(ports.len()) {
            for family in &self.families {
                let packet = self.size_of(*family).largest_ip_bytes(*family == Family::Ipv6);
                let sent = u32::from(packet + self.label_bytes());
                let added = self.added(*family, &ports[to]).into_iter().max().unwrap_or(0);
                let leaves = sent.saturating_add_signed(added * i32::from(LABEL_BYTES));
                let addressing = |port: &PortView, needed: u32| {
                    if needed > port.mtu {
                        let why = format!(
                            "{} need an MTU of {needed}, port {} has {}",
                            self.size_text(),
                            port.name,
                            port.mtu
                        );
                        return Err(TestError::NotApplicable(why));
                    }
                    let missing = || TestError::NotApplicable(format!("port {} has no {family} addresses", port.name));
                    port.addressing(*family).cloned().ok_or_else(missing)
                };
                let sources = addressing(&ports[from], sent)?.destinations;
                let hosts = addressing(&ports[to], leaves)?.destinations;
                // If there are no routes behind a port yet, the flows are only built to check that they are possible.
                let destinations = ports[to].routed.get(family).cloned().unwrap_or_else(|| hosts.into());
                let flow = FlowSpec::new(family.to_string(), from, to, sources, destinations);
                match self.labels {
                    Some(labels) => flows.extend(labelled::flows(&flow, &self.size, labels, &ports[to])?),
                    None => flows.push(extension_headers::flow(self.weighed(flow), &self.extensions, &self.size)?),
                }
            }
        }
        if flows.is_empty() {
            return Err(TestError::NotApplicable("a test needs at least two ports".into()));
        }
        Ok(flows)
    }

    /// A flow with the weight and frame size of its family in this pattern.
    pub fn weighed(&self, flow: FlowSpec) -> FlowSpec {
        match &self.mix {
            Some(mix) => {
                let size = (flow.family == Family::Ipv6).then(|| mix.ipv6_size.clone());
                FlowSpec { weight: mix.percent(flow.family), size, ..flow }
            }
            None => flow,
        }
    }

    /// A trial of this pattern, without time bins.
    ///
    /// # Errors
    /// Errors of [`Pattern::flows`].
    pub fn trial(
        &self,
        ports: &[PortView],
        purpose: String,
        load: Load,
        duration_s: f64,
    ) -> Result<TrialSpec, TestError> {
        let mut flows = self.flows(ports)?;
        if self.modifier == Modifier::Broadcast {
            flows.extend(modifiers::flows(&flows, &self.size, &load, duration_s));
        }
        Ok(TrialSpec {
            purpose,
            size: self.size.clone(),
            flows,
            load,
            duration_s,
            bin_s: None,
            drain_s: self.drain_s,
            events: vec![],
        })
    }

    /// Line rate of the slowest of these ports, per sending port.
    pub fn line_rate(&self, ports: &[PortView]) -> FrameRate {
        self.line(ports).0
    }

    /// Share of a line left for the test frames; additional frames have the same size.
    fn share_of_line(&self) -> f64 {
        if self.modifier == Modifier::Broadcast { 1.0 - modifiers::SHARE } else { 1.0 }
    }

    /// Line rate of the slowest of these ports, and its medium.
    fn line(&self, ports: &[PortView]) -> (FrameRate, Medium) {
        let share = self.share_of_line();
        let payload = |i: usize| ports[i].medium.payload_rate(ports[i].speed) * share;
        let at = |i: usize, bytes: f64| (FrameRate(payload(i) / (8.0 * bytes)), ports[i].medium);
        // The router may add or remove labels, so its output line may carry fewer or more frames than its input line.
        let both = |(from, to): (usize, usize)| {
            [at(from, self.line_bytes(ports[from].medium)), at(to, self.line_bytes_behind(&ports[to]))]
        };
        let lines = self.pairs(ports.len()).into_iter().flat_map(both);
        lines.min_by(|(a, _), (b, _)| a.pps().total_cmp(&b.pps())).unwrap_or((FrameRate(0.0), Medium::default()))
    }

    /// The known rates that limit this pattern on this bed.
    pub fn limits(&self, bed: &mut dyn Testbed) -> Limits {
        let share = self.share_of_line();
        let (line, medium) = self.line(bed.ports());
        let ceiling = bed.ceiling(&self.key().on_loop()).map(|all| all.scaled(share));
        let max = ceiling.map_or(line, |c| FrameRate(line.pps().min(c.pps() * CEILING_SHARE)));
        let limits = Limits { line, medium, ceiling, max, retreated: false };
        bed.known().highest.constant.get(&self.key()).map_or(limits, |highest| limits.retreat(*highest))
    }

    /// Bits per second of this rate, without preamble and gap (layer 2).
    pub fn l2_bps(&self, rate: FrameRate) -> f64 {
        rate.pps() * self.frame_bytes() * 8.0
    }

    /// Bits per second that this rate takes on a line of `medium`, including preamble and gap or flags (layer 1).
    pub fn l1_bps(&self, rate: FrameRate, medium: Medium) -> f64 {
        rate.pps() * self.line_bytes(medium) * 8.0
    }

    /// Mean bytes that a frame takes on a line, all overhead included.
    fn line_bytes(&self, medium: Medium) -> f64 {
        self.mean(|family| {
            let (packet, frame) = self.bytes_of(family, 0);
            medium.line_bytes(packet, frame)
        })
    }

    /// Mean bytes of a frame on the line from the DUT to a port.
    fn line_bytes_behind(&self, to: &PortView) -> f64 {
        self.mean(|family| {
            let line = |added: i32| {
                let (packet, frame) = self.bytes_of(family, added);
                to.medium.line_bytes(packet, frame)
            };
            let each: Vec<f64> = self.added(family, to).into_iter().map(line).collect();
            if each.is_empty() { line(0) } else { each.iter().sum::<f64>() / each.len() as f64 }
        })
    }

    /// Labels that the DUT adds to the frames of a family that leave through this port, for each flow of a sender.
    fn added(&self, family: Family, to: &PortView) -> Vec<i32> {
        self.labels.map_or_else(|| vec![0], |labels| labelled::added(labels, family, to))
    }
}

/// Rates that limit a pattern. All are per sending port.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Limits {
    /// Theoretical line rate of the slowest port (RFC 2544 Appendix B), less the share of a modifier.
    pub line: FrameRate,
    /// Medium of that port.
    pub medium: Medium,
    /// The tester's own ceiling.
    pub ceiling: Option<FrameRate>,
    /// Highest load that tests request: the line rate, or 95 % of the ceiling if that is lower, or the highest load
    /// that the tester could offer if it could not offer even that validly.
    pub max: FrameRate,
    /// True if the tester could not offer more than `max` validly.
    pub retreated: bool,
}

/// A rate of at least this share of the line's maximum frame rate counts as line rate, because the search cannot tell
/// them apart.
const LINE_RATE_SHARE: f64 = 0.999;

impl Limits {
    /// The limits if the tester cannot offer more than `highest` validly.
    pub fn retreat(self, highest: FrameRate) -> Self {
        if highest.pps() < self.max.pps() { Limits { max: highest, retreated: true, ..self } } else { self }
    }

    /// True if the tester limits this rate as much as the DUT.
    pub fn tester_limited(&self, rate: FrameRate) -> bool {
        // Keeps the margin for a reduced load: 90 % of the ceiling compared with 95 % of it.
        let near = self.max.pps() * TESTER_LIMITED_SHARE / CEILING_SHARE;
        (self.retreated && rate.pps() >= near)
            || self.ceiling.is_some_and(|c| rate.pps() >= TESTER_LIMITED_SHARE * c.pps())
    }

    /// True if the line limits this rate as much as the DUT.
    pub fn at_line_rate(&self, rate: FrameRate) -> bool {
        rate.pps() >= self.line.pps() * LINE_RATE_SHARE
    }

    /// True if the sending ports sent as many frames as the line carries, to a frame each.
    pub fn line_is_full(&self, result: &TrialResult) -> bool {
        let senders = f64::from(result.senders.max(1));
        let full = self.line.pps() * result.sending_s * senders;
        result.offered() as f64 + senders >= full * LINE_RATE_SHARE
    }

    /// Returns true if the tester keeps the highest load below line rate.
    pub fn below_line(&self) -> bool {
        self.max.pps() < self.line.pps()
    }

    /// Describes the highest load, for a note.
    pub fn statement(&self) -> String {
        if self.retreated {
            format!("the tester cannot offer more than {} per port validly; line rate is {}", self.max, self.line)
        } else if self.below_line() {
            format!(
                "the highest load is {} per port, {} % of the tester's own ceiling; line rate is {}",
                self.max,
                CEILING_SHARE * 100.0,
                self.line
            )
        } else {
            format!("the highest load is line rate, {} per port", self.line)
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use drophammer_model::trial::GroupCounts;

    #[test]
    fn a_line_is_full_to_a_frame() {
        let line = FrameRate(1_625.5);
        let limits = Limits { line, medium: Medium::Ethernet, ceiling: None, max: line, retreated: false };
        // 81.3 frames in 50 ms.
        let of_two = |offered| TrialResult {
            sending_s: 0.05,
            senders: 2,
            groups: vec![GroupCounts { offered, ..GroupCounts::default() }],
            ..TrialResult::default()
        };
        assert!(limits.line_is_full(&of_two(162)));
        assert!(!limits.line_is_full(&of_two(150)));
    }
}
