//! The job of `drophammer blast`, from the command line.

use super::router;
use super::stack::{FlowHeaders, Stack};
use super::template::Captured;
use crate::args::BlastArgs;
use crate::init::reported_speed;
use crate::on_link;
use drophammer_model::quantity::{Bandwidth, FrameRate, parse_duration, parse_percent};
use drophammer_model::size::PacketSize;
use drophammer_model::suite::FlowRate;
use drophammer_model::trial::{AddressRange, FlowSpec, Load, TrialSpec};
use drophammer_rig::{Address, CONTINUOUS, DeviceConfig, Tags};
use std::net::IpAddr;
use std::time::Duration;

/// Wait for late frames after the last departure; it ends early when every frame is accounted for.
const DRAIN_S: f64 = 1.0;

/// The traffic and its interfaces.
#[derive(Debug)]
pub struct Job {
    /// Interfaces.
    pub interfaces: [String; 2],
    /// The host behind each of them.
    pub links: [Link; 2],
    /// Sizes of the frames.
    pub size: PacketSize,
    rate: FrameRate,
    duration: Duration,
    bidirectional: bool,
    /// Headers around the payload.
    stack: Stack,
    /// Frames like those of a capture, in place of frames of `size` in `stack`.
    pub captured: Option<Captured>,
    /// How much each step raises the rate, if it is raised until frames are lost: 0.1 for 10 %.
    pub step: Option<f64>,
}

/// The host behind an interface.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Link {
    /// Its address.
    pub address: IpAddr,
    /// Length of the prefix of the link.
    pub prefix_len: u8,
    /// The router; without one, the host behind the other interface.
    pub gateway: IpAddr,
}

impl Link {
    /// Gives `device` its address.
    pub fn give(&self, device: &mut DeviceConfig) {
        let prefix_len = self.prefix_len;
        match (self.address, self.gateway) {
            (IpAddr::V4(address), IpAddr::V4(gateway)) => {
                device.ipv4 = Some(Address { address, prefix_len, gateway });
            }
            (IpAddr::V6(address), IpAddr::V6(gateway)) => {
                device.ipv6 = Some(Address { address, prefix_len, gateway });
            }
            _ => {}
        }
    }
}

impl Job {
    /// Reads the command line.
    ///
    /// # Errors
    /// What is wrong with it, and what to write instead.
    pub fn read(args: &BlastArgs) -> Result<Job, String> {
        let interfaces = match (&args.from, &args.to, &args.dut) {
            (Some(from), Some(to), _) if from == to => {
                return Err(format!("`{from}` cannot be both ends; name two interfaces"));
            }
            (Some(from), Some(to), _) => [from.clone(), to.clone()],
            // Their names are known when the router is up.
            (_, _, Some(_)) => Default::default(),
            _ => return Err("name two interfaces, or a kind of router as in `--dut linux`".into()),
        };
        let size: PacketSize = args.size.parse().map_err(|e| format!("--size: {e}"))?;
        let duration = match &args.duration {
            None => CONTINUOUS,
            Some(text) => parse_duration(text).map_err(|e| format!("--for: {e}"))?,
        };
        let links = links(args)?;
        let ipv6 = links[0].address.is_ipv6();
        let stack = Stack::read(args)?;
        let captured = args.pcap.as_ref().map(|path| Captured::read(path, ipv6)).transpose()?;
        let mean_bytes = match &captured {
            Some(captured) => captured.mean_frame_bytes(),
            None => size.with_tags(stack.bytes()).mean_frame_bytes(ipv6),
        };
        let rate = rate(args, mean_bytes)?;
        let step = if args.until_loss { Some(step(&args.step)?) } else { None };
        if duration < CONTINUOUS && rate.frames_in(duration) == 0 {
            return Err(format!(
                "--for {}: no frame is due in that time at {rate}",
                args.duration.as_deref().unwrap_or("")
            ));
        }
        if duration > CONTINUOUS {
            return Err("--for: at most 2400 h; leave it out to send until Ctrl-C".into());
        }
        Ok(Job { interfaces, links, size, rate, duration, bidirectional: args.bidirectional, stack, captured, step })
    }

    /// The traffic.
    pub fn trial(&self) -> TrialSpec {
        self.trial_at(self.rate, self.duration)
    }

    /// The same traffic at another rate and for another time.
    pub fn trial_at(&self, rate: FrameRate, duration: Duration) -> TrialSpec {
        let host = |i: usize| AddressRange { first: self.links[i].address, step: 1, count: 1 };
        let of_direction = match &self.captured {
            Some(captured) => captured.flows(),
            None => self.stack.flow_headers(self.ipv6()),
        };
        let flows = |(from, to): (usize, usize)| {
            let flow = move |FlowHeaders { headers, arrives, size, weight }: FlowHeaders| FlowSpec {
                headers,
                arrives,
                size,
                weight,
                ..FlowSpec::new(self.direction(from, to), from, to, host(from), host(to))
            };
            of_direction.iter().cloned().map(flow).collect::<Vec<_>>()
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

    /// Rate of each sending interface; the first rate if it is raised.
    pub fn rate(&self) -> FrameRate {
        self.rate
    }

    fn direction(&self, from: usize, to: usize) -> String {
        format!("{} to {}", self.interfaces[from], self.interfaces[to])
    }

    fn ipv6(&self) -> bool {
        self.links[0].address.is_ipv6()
    }

    /// Bytes that must fit into the MTU: the largest packet with its labels.
    pub fn bytes_in_mtu(&self) -> u16 {
        if let Some(captured) = &self.captured {
            return captured.bytes_in_mtu();
        }
        self.size.largest_ip_bytes(self.ipv6()) + self.stack.bytes_in_mtu()
    }

    /// VLAN tags of the hosts' other frames.
    pub fn tags(&self) -> Tags {
        self.captured.as_ref().map_or_else(|| self.stack.tags(), Captured::tags)
    }

    /// The traffic in words.
    pub fn headline(&self) -> String {
        let size = match &self.size {
            PacketSize::Fixed(size) => format!("{} bytes", size.frame_bytes(self.ipv6())),
            PacketSize::Mix { name, .. } => name.clone(),
        };
        let [a, b] = &self.interfaces;
        let way = if self.bidirectional { "and back" } else { "" };
        let length = if let Some(step) = self.step {
            format!("raised by {:.4} % every second until frames are lost", step * 100.0).replace(".0000 %", " %")
        } else if self.duration == CONTINUOUS {
            "until Ctrl-C".into()
        } else {
            format!("for {}", drophammer_model::quantity::show_duration(self.duration))
        };
        let text = format!("{a} to {b} {way}");
        let frames = match &self.captured {
            Some(captured) => captured.words(),
            None => format!("{size}{}", self.stack.words()),
        };
        format!("{}: {}, {frames}, {length}", text.trim_end(), self.rate)
    }

    /// Why no neighbour answers on interface `port`, and the remedy.
    pub fn unanswered(&self, port: usize) -> String {
        let (Link { gateway, .. }, name) = (self.links[port], &self.interfaces[port]);
        let how = if gateway.is_ipv4() { "ARP" } else { "Neighbor Discovery" };
        if gateway == self.links[port ^ 1].address {
            let [a, b] = &self.interfaces;
            format!(
                "frames from `{name}` do not reach `{}`; join `{a}` and `{b}` by a cable, a veth pair, a bridge or a switch, or give \
                 --address and --gateway where routers are between them",
                self.interfaces[port ^ 1]
            )
        } else {
            format!("the router {gateway} does not answer {how} on `{name}`; check its address, and the cable")
        }
    }
}

/// The hosts on both links: those of the user, or two that are neighbours of each other.
fn links(args: &BlastArgs) -> Result<[Link; 2], String> {
    let example = "`--address 198.18.1.2/24,198.19.1.2/24 --gateway 198.18.1.1,198.19.1.1`";
    let two = |name: &str, given: &[String]| match given {
        [a, b] => Ok([a.clone(), b.clone()]),
        other => {
            Err(format!("--{name} takes two values, one for each interface, not {}; write {example}", other.len()))
        }
    };
    if let Some(kind) = &args.dut {
        return router::links(kind);
    }
    if args.address.is_empty() && args.gateway.is_empty() {
        // From the block for benchmarks (RFC 2544 Appendix C.2.2).
        let hosts: [IpAddr; 2] = [[198, 18, 0, 2].into(), [198, 18, 0, 3].into()];
        let link = |i: usize| Link { address: hosts[i], prefix_len: 24, gateway: hosts[i ^ 1] };
        return Ok([link(0), link(1)]);
    }
    if args.address.is_empty() {
        return Err(format!("--gateway needs --address; write {example}"));
    }
    let addresses = two("address", &args.address)?;
    let gateways = match args.gateway.as_slice() {
        [] => None,
        given => Some(two("gateway", given)?),
    };
    let mut hosts = Vec::new();
    for text in &addresses {
        let bad = || format!("--address: `{text}` is not an address with its prefix length; write {example}");
        hosts.push(on_link::with_length(text).ok_or_else(bad)?);
    }
    let mut links = Vec::new();
    for (i, (address, prefix_len)) in hosts.iter().copied().enumerate() {
        let gateway = match &gateways {
            None => hosts[i ^ 1].0,
            Some(given) => {
                given[i].parse().map_err(|_| format!("--gateway: `{}` is not an address; write {example}", given[i]))?
            }
        };
        let link = Link { address, prefix_len, gateway };
        [address, gateway].into_iter().try_for_each(on_link::refuse_public)?;
        if link.address == link.gateway {
            return Err(format!("{address} cannot be both the host and its gateway"));
        }
        if !on_link::holds(address, prefix_len, gateway) {
            let help =
                if gateways.is_none() { "; give --gateway where routers are between the interfaces" } else { "" };
            return Err(format!("{gateway} is not on the link of {address}/{prefix_len}{help}"));
        }
        links.push(link);
    }
    match links.as_slice() {
        [a, b] if a.address.is_ipv4() == b.address.is_ipv4() => Ok([*a, *b]),
        _ => Err("one address is IPv4 and the other IPv6; write two of one kind".into()),
    }
}

/// Reads `--step`.
fn step(text: &str) -> Result<f64, String> {
    parse_percent(text)
        .filter(|share| (0.01..=1_000.0).contains(share))
        .map(|share| share / 100.0)
        .ok_or_else(|| format!("--step: `{text}` is not a share from 0.01% to 1000%; write for instance `10%`"))
}

/// Reads `--rate`.
fn rate(args: &BlastArgs, frame: f64) -> Result<FrameRate, String> {
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

/// Speed of the line, if a rate is a share of it.
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
mod tests {
    use super::*;
    use clap::Parser;

    #[derive(Parser)]
    struct Line {
        #[command(flatten)]
        args: BlastArgs,
    }

    fn read(line: &str) -> Result<Job, String> {
        let line =
            Line::try_parse_from(["blast"].into_iter().chain(line.split_whitespace())).map_err(|e| e.to_string())?;
        Job::read(&line.args)
    }

    #[test]
    fn rates_are_frames_bits_or_a_share_of_the_line() {
        let pps = |line: &str| read(&format!("a b {line}")).unwrap().rate.pps();
        assert_eq!(pps(""), 1_000.0);
        assert_eq!(pps("--rate 100kfps"), 100_000.0);
        assert_eq!((pps("--rate 100k"), pps("--rate 100000"), pps("--rate 1.024G --size 128")), (1e5, 1e5, 1e6));
        assert_eq!(pps("--rate 512Mbit/s --size 64"), 1_000_000.0);
        assert_eq!(pps("--rate 50% --speed 10Gbit/s --size 64").trunc(), 7_440_476.0);
        assert_eq!(pps("--rate 672Mbit/s --size 84 --address 2001:2::1/64,2001:2::2/64"), 1_000_000.0);
    }

    #[test]
    fn what_cannot_be_is_refused_with_what_can() {
        for (line, word) in [
            ("a a", "name two interfaces"),
            ("a", "required"),
            ("", "required"),
            ("a b --dut linux", "cannot be used with"),
            ("--dut linux --vlan 10", "cannot be used with"),
            ("--dut nothing", "possible values"),
            ("--dut linux --rate 50%", "--speed"),
            ("a b --rate fast", "100 Mbit/s"),
            ("a b --rate 100M", "it can be 100Mbit/s or 100Mfps"),
            ("a b --rate 0%", "at most 100"),
            ("a b --rate 101%", "at most 100"),
            ("a b --rate 50%", "--speed"),
            ("a b --size 20", "--size"),
            ("a b --for 10", "--for"),
            ("a b --for 1ms --rate 10fps", "no frame is due"),
            ("a b --for 9999h", "2400 h"),
            ("a b --vlan 1,2,3", "3 tags"),
            ("a b --vlan 4095", "4095 is not in 1..=4094"),
            ("a b --mpls 1048576", "1048576 is not in 0..=1048575"),
            ("a b --mpls 1,2,3,4,5,6,7,8,9", "9 labels"),
            ("a b --dscp 64", "64 is not in 0..=63"),
            ("a b --dscp af44", "write 0 to 63, or `ef`"),
            ("a b --size 40", "`ip40`"),
            ("a b --flows 0", "0 is not in 1..=16384"),
            ("a b --pcap /nowhere --vlan 10", "cannot be used with"),
            ("a b --pcap /nowhere", "--pcap /nowhere: No such file"),
            ("a b --until-loss --step x", "`x` is not a share"),
            ("a b --until-loss --step 0%", "`0%` is not a share"),
            ("a b --until-loss --for 1s", "cannot be used with"),
            ("a b --step 5%", "--until-loss"),
            ("a b --address 198.18.1.2/24", "two values"),
            ("a b --gateway 198.18.1.1,198.19.1.1", "needs --address"),
            ("a b --address 198.18.1.2,198.19.1.2/24", "prefix length"),
            ("a b --address 198.18.1.2/24,198.19.1.2/33", "prefix length"),
            ("a b --address 198.18.1.2/24,198.19.1.2/24", "--gateway"),
            ("a b --address 198.18.1.2/24,198.19.1.2/24 --gateway 198.18.1.1", "two values"),
            ("a b --address 198.18.1.2/24,198.19.1.2/24 --gateway 198.18.1.1,198.18.1.3", "not on the link"),
            ("a b --address 198.18.1.2/24,198.19.1.2/24 --gateway 198.18.1.2,198.19.1.1", "both the host"),
            ("a b --address 8.8.8.8/24,198.19.1.2/24 --gateway 8.8.8.1,198.19.1.1", "RFC 6815"),
            ("a b --address 10.0.0.1/24,2001:2::2/64 --gateway 10.0.0.2,2001:2::1", "one address is IPv4"),
        ] {
            let error = read(line).expect_err(line);
            assert!(error.contains(word), "{line}: {error}");
        }
    }

    #[test]
    fn tags_and_labels_come_on_top_and_must_arrive() {
        let job = read("a b --vlan 10,20 --mpls 100,200 --dscp ef --flows 3 --bidirectional").unwrap();
        let trial = job.trial();
        assert_eq!((trial.size.mean_frame_bytes(false), trial.flows.len(), job.bytes_in_mtu()), (80.0, 6, 54));
        let ports: Vec<_> = trial.flows.iter().map(|flow| format!("{:?}", flow.headers.last().unwrap())).collect();
        assert!(ports[0] != ports[1] && ports[0] == ports[3], "{ports:?}");
        let arrives = trial.flows[5].arrives.clone().unwrap();
        assert_eq!((arrives.vlans[1].vid.get(), arrives.labels[0].label.get()), (20, 100));
        let headline = job.headline();
        assert!(
            headline.ends_with(", 64 bytes, VLAN 10,20, MPLS 100,200, DSCP 46, 3 flows, until Ctrl-C"),
            "{headline}"
        );
        assert_eq!(read("a b").unwrap().trial().flows[0].arrives, None);
        let raised = read("a b --until-loss --step 2.5%").unwrap();
        assert!(raised.headline().ends_with("raised by 2.5000 % every second until frames are lost"));
    }

    #[test]
    fn a_router_of_this_machine_has_the_addresses_of_a_suite() {
        let job = read("--dut linux").unwrap();
        assert!(job.links[0].gateway != job.links[1].address && job.links[0].address != job.links[1].address);
        assert!(on_link::holds(job.links[1].address, job.links[1].prefix_len, job.links[1].gateway));
    }

    #[test]
    fn without_addresses_the_hosts_are_neighbours() {
        let job = read("a b --bidirectional --for 2s").unwrap();
        assert_eq!(job.links[0].gateway, job.links[1].address);
        assert_eq!(job.trial().flows.iter().map(|f| (f.from, f.to)).collect::<Vec<_>>(), [(0, 1), (1, 0)]);
        assert_eq!(job.headline(), "a to b and back: 1,000 fps, 64 bytes, for 2 s");
        let routed = "a b --address 198.18.1.2/24,198.19.1.2/24 --gateway 198.18.1.1,198.19.1.1";
        let job = read(routed).unwrap();
        assert!(job.unanswered(1).contains("198.19.1.1 does not answer ARP on `b`"));
    }
}
