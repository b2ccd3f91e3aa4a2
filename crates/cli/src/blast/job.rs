//! The job of `drophammer blast`, from the command line.

use super::links::{self, Link};
use super::stack::{FlowHeaders, Stack};
use super::template::Captured;
use crate::args::BlastArgs;
use crate::init::reported_speed;
use drophammer_model::quantity::{Bandwidth, FrameRate, group_digits, parse_duration, parse_percent, show_duration};
use drophammer_model::size::{FrameSize, PacketSize};
use drophammer_model::suite::FlowRate;
use drophammer_model::trial::{AddressRange, FlowSpec, Load, TrialSpec};
use drophammer_rig::{CONTINUOUS, DeviceConfig, PortConfig, Tags, Unresolved, host_mac};
use std::time::Duration;

/// Wait for late frames after the last departure. It ends early when all frames are accounted for.
const DRAIN_S: f64 = 1.0;

/// The traffic and its interfaces.
#[derive(Debug)]
pub struct Job {
    /// Interfaces: one for each end, or a single one with both ends, in two VLANs.
    pub ports: Vec<String>,
    /// The host at each end.
    pub links: [Link; 2],
    /// Source addresses of each flow.
    sources: u32,
    /// Sizes of the frames.
    pub size: PacketSize,
    /// A note about sizes that were too small.
    enlarged: Option<String>,
    rate: FrameRate,
    duration: Duration,
    bidirectional: bool,
    /// Headers around the payload.
    stack: Stack,
    /// Frames of a capture, instead of frames of `size` in `stack`.
    captured: Option<Captured>,
    /// With --until-loss: how much each step raises the rate, 0.1 for 10 %.
    pub step: Option<f64>,
}

impl Job {
    /// Reads the command line: a job for each size. Errors say what is wrong, and what to write instead.
    pub fn read_each(args: &BlastArgs) -> Result<Vec<Job>, String> {
        // A mix may itself contain commas.
        let sizes: Vec<&str> = match args.size.parse::<PacketSize>() {
            Ok(_) => vec![&args.size],
            Err(_) => args.size.split(',').map(str::trim).collect(),
        };
        if sizes.len() > 1 && args.duration.is_none() {
            let why = if args.until_loss {
                "--until-loss takes one size"
            } else {
                "several sizes need --for, as in `--for 10s`"
            };
            return Err(format!("--size {}: {why}", args.size));
        }
        sizes.iter().map(|size| Job::read(&BlastArgs { size: (*size).to_owned(), ..args.clone() })).collect()
    }

    /// Reads a command line with one size.
    pub fn read(args: &BlastArgs) -> Result<Job, String> {
        let ports = ports(args)?;
        let size: PacketSize = args.size.parse().map_err(|e| format!("--size: {e}"))?;
        let duration = match &args.duration {
            None => CONTINUOUS,
            Some(text) => parse_duration(text).map_err(|e| format!("--for: {e}"))?,
        };
        let stack = Stack::read(args)?;
        let links = links::of(args, args.sources.max(stack.addresses()))?;
        let ipv6 = links[0].address.is_ipv6();
        let (size, enlarged) = enlarged(size, stack.least_bytes(ipv6));
        let captured = args.pcap.as_ref().map(|path| Captured::read(path, ipv6)).transpose()?;
        let step = if args.until_loss { Some(step(&args.step)?) } else { None };
        if duration > CONTINUOUS {
            return Err("--for: at most 2400 h; leave it out to send until Ctrl-C".into());
        }
        let (bidirectional, sources, rate) = (args.bidirectional, args.sources, FrameRate(0.0));
        let mut job =
            Job { ports, links, sources, size, enlarged, rate, duration, bidirectional, stack, captured, step };
        job.rate = rate_of(args, job.mean_frame_bytes())?;
        if duration < CONTINUOUS && job.rate.frames_in(duration) == 0 {
            let (text, rate) = (args.duration.as_deref().unwrap_or(""), job.rate);
            return Err(format!("--for {text}: no frame is due in that time at {rate}"));
        }
        Ok(job)
    }

    fn mean_frame_bytes(&self) -> f64 {
        match &self.captured {
            Some(captured) => captured.mean_frame_bytes(),
            None => self.size.with_tags(self.stack.bytes()).mean_frame_bytes(self.ipv6()),
        }
    }

    /// Leaves out captured frames that do not fit `mtu`. Fails if other frames, or all frames of the capture, do not fit interface `name`.
    pub fn fit(&mut self, args: &BlastArgs, name: &str, mtu: u32) -> Result<(), String> {
        if let Some(captured) = &mut self.captured {
            captured.fit(mtu)?;
            self.rate = rate_of(args, self.mean_frame_bytes())?;
            return Ok(());
        }
        // The largest packet with its labels. Tags do not count towards the MTU.
        let needed = self.size.largest_ip_bytes(self.ipv6()) + self.stack.bytes_in_mtu();
        if u32::from(needed) > mtu {
            let text = format!("the largest frames need an MTU of {needed}, interface `{name}` has {mtu}");
            return Err(format!("{text}; `ip link set {name} mtu {needed}`"));
        }
        Ok(())
    }

    /// Describes where the traffic differs from the request: frames of a capture that are not sent, and enlarged sizes.
    pub fn notes(&self) -> Vec<String> {
        self.captured.iter().flat_map(Captured::left_out).chain(self.enlarged.clone()).collect()
    }

    /// The traffic.
    pub fn trial(&self) -> TrialSpec {
        self.trial_at(self.rate, self.duration)
    }

    /// The same traffic with another rate and another duration.
    pub fn trial_at(&self, rate: FrameRate, duration: Duration) -> TrialSpec {
        let flows = |(from, to): (usize, usize)| {
            let of_direction = match &self.captured {
                Some(captured) => captured.flows(),
                None => self.stack.flow_headers(from, to, self.ipv6()),
            };
            let (own, other) = (self.links[from], self.links[to]);
            let flow = move |FlowHeaders { headers, arrives, size, source, weight }: FlowHeaders| {
                let sources = AddressRange { first: own.nth(source), step: 1, count: self.sources };
                let destination = AddressRange { first: other.address, step: 1, count: 1 };
                let ports = [from, to].map(|end| self.port_of(end));
                let group = self.direction(from, to);
                FlowSpec {
                    headers,
                    arrives,
                    size,
                    weight,
                    ..FlowSpec::new(group, ports[0], ports[1], sources, destination)
                }
            };
            of_direction.into_iter().map(flow).collect::<Vec<_>>()
        };
        let ways: &[(usize, usize)] = if self.bidirectional { &[(0, 1), (1, 0)] } else { &[(0, 1)] };
        TrialSpec {
            purpose: "blast".into(),
            size: self.size.with_tags(self.stack.bytes()),
            flows: ways.iter().copied().flat_map(flows).collect(),
            load: Load::Constant { rate_pps: rate.pps() },
            duration_s: duration.as_secs_f64(),
            bin_s: None,
            drain_s: DRAIN_S,
            events: Vec::new(),
        }
    }

    /// Rate of each sending end; with --until-loss, the initial rate.
    pub fn rate(&self) -> FrameRate {
        self.rate
    }

    /// How long to send; `None` for until Ctrl-C.
    pub fn duration(&self) -> Option<Duration> {
        (self.duration < CONTINUOUS).then_some(self.duration)
    }

    /// The devices behind port `index`, whose MTU is `mtu`.
    pub fn port_config(&self, seed: u64, index: usize, mtu: u32) -> PortConfig {
        let mut port = PortConfig::new(&self.ports[index], host_mac(seed, index), mtu);
        let device = |end: usize| {
            let mut device = DeviceConfig { tags: self.tags(end), ..DeviceConfig::new(&self.end(end), port.mac()) };
            self.links[end].give(&mut device, self.sources.max(self.stack.addresses()));
            device
        };
        let devices = (0..2).filter(|end| self.port_of(*end) == index).map(device).collect();
        port.devices = devices;
        port
    }

    /// Index of the interface of an end.
    fn port_of(&self, end: usize) -> usize {
        end.min(self.ports.len() - 1)
    }

    /// Name of an end: `eth1`, or `eth1.100` if the interface has both ends.
    fn end(&self, end: usize) -> String {
        let name = &self.ports[self.port_of(end)];
        match self.tags(end).as_slice() {
            [tag] if self.ports.len() == 1 => format!("{name}.{}", tag.vid),
            _ => name.clone(),
        }
    }

    /// Names of both ends.
    pub fn ends(&self) -> [String; 2] {
        [0, 1].map(|end| self.end(end))
    }

    fn direction(&self, from: usize, to: usize) -> String {
        format!("{} to {}", self.end(from), self.end(to))
    }

    fn ipv6(&self) -> bool {
        self.links[0].address.is_ipv6()
    }

    /// VLAN tags of the other frames of the host at an end.
    fn tags(&self, end: usize) -> Tags {
        self.captured.as_ref().map_or_else(|| self.stack.tags(end), Captured::tags)
    }

    /// Describes the sizes of the frames in words.
    pub fn size_words(&self) -> String {
        match &self.size {
            PacketSize::Fixed(size) => format!("{} bytes", size.frame_bytes(self.ipv6())),
            PacketSize::Mix { name, .. } => name.clone(),
        }
    }

    /// Describes the traffic in words.
    pub fn headline(&self) -> String {
        let [a, b] = self.ends();
        let way = if self.bidirectional { "and back" } else { "" };
        let length = if let Some(step) = self.step {
            format!("raised by {:.4} % every second until frames are lost", step * 100.0).replace(".0000 %", " %")
        } else if self.duration == CONTINUOUS {
            "until Ctrl-C".into()
        } else {
            format!("for {}", show_duration(self.duration))
        };
        let text = format!("{a} to {b} {way}");
        let frames = match &self.captured {
            Some(captured) => captured.words(),
            None if self.sources > 1 => {
                let sources = group_digits(self.sources.into());
                format!("{}{}, {sources} source addresses", self.size_words(), self.stack.words())
            }
            None => format!("{}{}", self.size_words(), self.stack.words()),
        };
        format!("{}: {}, {frames}, {length}", text.trim_end(), self.rate)
    }

    /// Explains why no neighbour of a host answers, and what to do.
    pub fn unanswered(&self, host: &Unresolved) -> String {
        let at = |end: &usize| self.port_of(*end) == host.port && self.tags(*end) == host.tags;
        let end = (0..2).find(at).unwrap_or(host.port);
        let (Link { gateway, .. }, [a, b]) = (self.links[end], self.ends());
        let how = if gateway.is_ipv4() { "ARP" } else { "Neighbor Discovery" };
        let [name, other] = [end, end ^ 1].map(|end| self.end(end));
        if gateway == self.links[end ^ 1].address {
            format!(
                "frames from `{name}` do not reach `{other}`; connect `{a}` and `{b}` by a cable, a veth pair, a bridge or a switch, or give \
                 --address and --gateway if routers are between them"
            )
        } else {
            format!("the router {gateway} does not answer {how} on `{name}`; check its address, and the cable")
        }
    }
}

/// The interfaces. The names are empty for a router that is not up yet.
fn ports(args: &BlastArgs) -> Result<Vec<String>, String> {
    let example =
        "`drophammer blast eth1 --vlan 100,200 --address 198.18.1.2/24,198.19.1.2/24 --gateway 198.18.1.1,198.19.1.1`";
    match (&args.from, &args.to, &args.dut) {
        (Some(from), Some(to), _) if from == to => {
            Err(format!("`{from}` cannot be both ends; name two interfaces, or one with two VLANs, as in {example}"))
        }
        (Some(from), Some(to), _) => Ok(vec![from.clone(), to.clone()]),
        (Some(from), None, _) => match args.vlan.as_slice() {
            [a, b] if a != b && !args.gateway.is_empty() && !args.address.is_empty() => Ok(vec![from.clone()]),
            _ => Err(format!(
                "one interface needs two VLANs, and a router between them: give both with their addresses, as in {example}; or name \
                 two interfaces"
            )),
        },
        (_, _, Some(_)) => Ok(vec![String::new(); 2]),
        _ => Err("name two interfaces, or a kind of router as in `--dut linux`".into()),
    }
}

/// The sizes, raised to `least`, the smallest frame with room for its headers and the signature; and a note if any size
/// was changed.
fn enlarged(size: PacketSize, least: u16) -> (PacketSize, Option<String>) {
    let mut small = Vec::new();
    let mut fit = |size: FrameSize| {
        if size.frame_bytes(false) >= least {
            return size;
        }
        small.push(size.to_string());
        FrameSize::Frame(least)
    };
    let size = match size {
        PacketSize::Fixed(size) => PacketSize::Fixed(fit(size)),
        PacketSize::Mix { name, parts } => {
            PacketSize::Mix { name, parts: parts.into_iter().map(|(size, frames)| (fit(size), frames)).collect() }
        }
    };
    let note = (!small.is_empty()).then(|| {
        let (small, which) = (small.join(", "), if small.len() == 1 { "is" } else { "are" });
        format!("size {small} {which} too small for these headers and the signature that counts a frame: {least} bytes are sent instead")
    });
    (size, note)
}

/// Parses `--step`.
fn step(text: &str) -> Result<f64, String> {
    parse_percent(text)
        .filter(|share| (0.01..=1_000.0).contains(share))
        .map(|share| share / 100.0)
        .ok_or_else(|| format!("--step: `{text}` is not a share from 0.01% to 1000%; write for instance `10%`"))
}

/// Parses `--rate`.
fn rate_of(args: &BlastArgs, frame: f64) -> Result<FrameRate, String> {
    let text = &args.rate;
    let rate = match text.parse().map_err(|e| format!("--rate: {e}"))? {
        FlowRate::Percent(share) => return Ok(speed(args)?.line_rate(frame).scaled(share / 100.0)),
        FlowRate::Frames(rate) => rate,
        FlowRate::Bits(bits) => FrameRate(bits.0 as f64 / (8.0 * frame)),
    };
    if !(0.01..=1e9).contains(&rate.pps()) {
        return Err(format!("--rate: {text} is out of range; use 0.01 fps to 1 Gfps"));
    }
    Ok(rate)
}

/// Speed of the line, if the rate is a share of it.
fn speed(args: &BlastArgs) -> Result<Bandwidth, String> {
    if let Some(text) = &args.speed {
        return text.parse().map_err(|e| format!("--speed: {e}"));
    }
    let from = args.from.as_deref().unwrap_or_default();
    reported_speed(from).ok_or_else(|| {
        let who = if args.dut.is_some() { "a virtual link".to_owned() } else { format!("interface `{from}`") };
        format!("--rate {}: {who} reports no speed; give --speed, as in `--speed 10Gbit/s`", args.rate)
    })
}

#[cfg(test)]
mod tests;
