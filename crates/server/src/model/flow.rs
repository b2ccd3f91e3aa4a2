//! Flows: ends, frames, rate and length.

use super::packet::packet;
use super::read::Object;
use super::tag::Tags;
use drophammer_model::size::{FrameSize, MAX_FRAME, MAX_SIZES, MIN_FRAME, PacketSize};
use drophammer_model::traffic::Header;
use serde_json::json;
use std::time::Duration;

/// A flow.
#[derive(Clone, Debug, PartialEq)]
pub struct Flow {
    /// Its name.
    pub name: String,
    /// Where its frames come from and go to.
    pub ends: Ends,
    /// Headers of its frames, the outermost first.
    pub packet: Vec<Header>,
    /// Index of the outermost label stack entry if its label is automatic.
    pub learned_label: Option<usize>,
    /// Tags of its headers.
    pub tags: Tags,
    /// Sizes of its frames, with FCS.
    pub size: PacketSize,
    /// The smallest size that the client wants; frames have at least [`MIN_FRAME`] bytes.
    pub smallest: u64,
    /// Its rate.
    pub rate: Rate,
    /// How long it sends.
    pub length: Length,
    /// What it measures.
    pub metrics: FlowMetrics,
}

impl Flow {
    /// False if it has no receiver, so that its arrivals do not count.
    pub fn receives(&self) -> bool {
        !matches!(&self.ends, Ends::Port { rx, .. } if rx.is_empty())
    }
}

/// Ends of a flow, by name.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Ends {
    /// Ports.
    Port {
        /// Sending port.
        tx: String,
        /// Receiving ports; none if arrivals do not count.
        rx: Vec<String>,
    },
    /// Devices: names of ethernets, addresses, loopbacks or route ranges.
    Device {
        /// Senders.
        tx: Vec<String>,
        /// Receivers.
        rx: Vec<String>,
        /// From each sender to each receiver, instead of from the first to the first and so on.
        mesh: bool,
        /// Also from the receivers to the senders, with the addresses and ports of the headers swapped.
        both_ways: bool,
    },
}

/// Rate of a flow.
#[derive(Clone, Copy, Debug, PartialEq)]
pub enum Rate {
    /// Frames per second.
    Frames(f64),
    /// Bits per second of frames with FCS, without preamble and gap.
    Bits(f64),
    /// Share of the line, in per cent.
    Percent(f64),
}

/// Time without frames: bytes at the speed of the line, or nanoseconds.
#[derive(Clone, Copy, Debug, PartialEq)]
pub enum Gap {
    /// The time that this many bytes take on the line.
    Bytes(f64),
    /// A time.
    Time(Duration),
}

/// How long a flow sends.
#[derive(Clone, Copy, Debug, PartialEq)]
pub enum Length {
    /// Until it is stopped.
    Continuous {
        /// Time before the first frame.
        delay: Gap,
    },
    /// A number of frames.
    Frames {
        /// How many.
        frames: u64,
        /// Time before the first frame.
        delay: Gap,
    },
    /// A time.
    Seconds {
        /// Seconds.
        seconds: f64,
        /// Time before the first frame.
        delay: Gap,
    },
    /// Bursts.
    Bursts {
        /// Number of bursts; `None` for bursts until the flow is stopped.
        bursts: Option<u64>,
        /// Frames of a burst.
        frames: u64,
        /// Time from the last frame of a burst to the first of the next.
        gap: Gap,
    },
}

/// What a flow measures.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct FlowMetrics {
    /// True if the flow is in the metrics.
    pub enable: bool,
    /// Latency.
    pub latency: bool,
    /// True for latency from the first bit to the first bit, false for latency until the whole frame has arrived.
    pub cut_through: bool,
    /// Times of the first and the last frame.
    pub timestamps: bool,
}

/// Maximum number of sizes of a flow's frames.
const MOST_SIZES: u64 = MAX_SIZES as u64;
/// Smallest and largest frame of the model that this tester sends; smaller ones are enlarged.
const SIZES: std::ops::RangeInclusive<u64> = 1..=MAX_FRAME as u64;

/// Reads a flow.
pub fn flow(mut o: Object<'_>) -> Flow {
    let (packet, learned_label) = packet(o.objects("packet"));
    let ends = ends(&mut o);
    let tags = Tags::take(&o, matches!(ends, Ends::Device { both_ways: true, .. }));
    let (size, smallest) = size(&mut o);
    Flow {
        name: o.name("name"),
        ends,
        packet,
        learned_label,
        tags,
        size,
        smallest,
        rate: rate(&mut o),
        length: length(&mut o),
        metrics: metrics(&mut o),
    }
}

fn ends(flow: &mut Object<'_>) -> Ends {
    let mut o = flow.object_or_empty("tx_rx");
    if o.choice(&["port", "device"], "port") == "device" {
        let mut device = o.object_or_empty("device");
        let mesh = device.word("mode", &["mesh", "one_to_one"], 0) == 0;
        let (tx, rx) = (device.texts("tx_names"), device.texts("rx_names"));
        for (key, names) in [("tx_names", &tx), ("rx_names", &rx)] {
            if names.is_empty() {
                device.wrong(key, "this needs at least one name");
            }
        }
        if !mesh && tx.len() != rx.len() {
            device.wrong("mode", "one_to_one needs as many `tx_names` as `rx_names`");
        }
        // No name may be both ends of a pair. A mesh pairs every sender with every receiver.
        let alike = if mesh { tx.iter().find(|name| rx.contains(name)) } else { same(&tx, &rx) };
        if let Some(name) = alike {
            device.wrong("rx_names", format_args!("`{name}` would send to itself; name another receiver"));
        }
        let both_ways = device.flag("bidirectional", false);
        return Ends::Device { tx, rx, mesh, both_ways };
    }
    let mut port = o.object_or_empty("port");
    let (tx, mut rx) = (port.name("tx_name"), port.texts("rx_names"));
    if let Some(name) = port.text("rx_name").filter(|name| !rx.contains(name)) {
        rx.insert(0, name);
    }
    Ends::Port { tx, rx }
}

/// The first name that is at the same position in both lists.
fn same<'a>(tx: &'a [String], rx: &[String]) -> Option<&'a String> {
    tx.iter().zip(rx).find(|(tx, rx)| tx == rx).map(|(tx, _)| tx)
}

fn fixed(size: u64) -> FrameSize {
    FrameSize::Frame((size as u16).max(MIN_FRAME))
}

fn mix(name: String, parts: Vec<(FrameSize, u16)>) -> PacketSize {
    match parts[..] {
        [(size, _)] => PacketSize::Fixed(size),
        _ => PacketSize::Mix { name, parts },
    }
}

/// Reads the sizes of frames, and the smallest of them as the client wrote it.
fn size(flow: &mut Object<'_>) -> (PacketSize, u64) {
    let mut o = flow.object_or_empty("size");
    let bounded = |o: &mut Object<'_>, key: &str, default: u64| {
        let (least, most) = (*SIZES.start(), *SIZES.end());
        o.note(key, || json!({"type": "integer", "minimum": least, "maximum": most, "default": default}));
        let size = o.number_or(key, u16::MAX.into(), default);
        if !SIZES.contains(&size) {
            o.wrong(key, format_args!("{size} bytes are not supported; write at most {MAX_FRAME}"));
        }
        size.clamp(least, most)
    };
    match o.choice(&["fixed", "increment", "random", "weight_pairs"], "fixed") {
        "increment" => {
            let mut range = o.object_or_empty("increment");
            let (start, end) = (bounded(&mut range, "start", 64), bounded(&mut range, "end", 1518));
            let step = range.number_or("step", u16::MAX.into(), 1).max(1);
            if start > end || (end - start) / step >= MOST_SIZES {
                range.wrong("step", format_args!("1 to {MOST_SIZES} sizes are supported; use a larger step"));
                return (PacketSize::Fixed(fixed(start)), start);
            }
            // A round of equal parts begins with the last part.
            let parts = (0..=(end - start) / step).rev().map(|i| (fixed(start + i * step), 1)).collect();
            (mix(format!("{start} to {end}"), parts), start)
        }
        "random" => {
            let mut range = o.object_or_empty("random");
            let (min, max) = (bounded(&mut range, "min", 64), bounded(&mut range, "max", 1518));
            if min > max {
                range.wrong("min", "it is above `max`; swap them");
                return (PacketSize::Fixed(fixed(min)), min);
            }
            (mix(format!("random {min} to {max}"), scattered(min, max)), min)
        }
        "weight_pairs" => {
            let mut pairs = o.object_or_empty("weight_pairs");
            let list: Vec<(u64, f64)> = match pairs.choice(&["predefined", "custom"], "predefined") {
                "custom" => {
                    let read = |mut o: Object<'_>| (bounded(&mut o, "size", 64), o.float_or("weight", 1.0));
                    pairs.objects("custom").into_iter().map(read).collect()
                }
                _ => predefined(pairs.word("predefined", &PREDEFINED, 0)),
            };
            let size = weighted(&list).unwrap_or_else(|why| {
                pairs.wrong("custom", why);
                PacketSize::Fixed(FrameSize::Frame(MIN_FRAME))
            });
            (size, list.iter().map(|(size, _)| *size).min().unwrap_or(MIN_FRAME.into()))
        }
        _ => {
            let size = bounded(&mut o, "fixed", 64);
            (PacketSize::Fixed(fixed(size)), size)
        }
    }
}

/// Sizes between both ends, evenly spread, in an order that is neither rising nor falling. If there are at most 256 sizes, a
/// round has each of them.
fn scattered(min: u64, max: u64) -> Vec<(FrameSize, u16)> {
    let count = (max - min + 1).min(MOST_SIZES);
    let size = |i: u64| if count == 1 { min } else { min + i * (max - min) / (count - 1) };
    // A stride without a common divisor reaches each size once.
    let stride = [157, 149, 151, 7, 3, 1].into_iter().find(|stride| gcd(*stride, count) == 1).unwrap_or(1);
    (0..count).map(|i| (fixed(size(i * stride % count)), 1)).collect()
}

pub(super) fn gcd(a: u64, b: u64) -> u64 {
    if b == 0 { a } else { gcd(b, a % b) }
}

const PREDEFINED: [&str; 5] = ["imix", "ipsec_imix", "ipv6_imix", "standard_imix", "tcp_imix"];

/// The predefined mix at this place of [`PREDEFINED`].
fn predefined(place: usize) -> Vec<(u64, f64)> {
    let sizes = match place {
        0 => return vec![(64, 7.0), (570, 4.0), (1518, 1.0)],
        1 => [90, 92, 594, 1418],
        2 => [60, 496, 594, 1518],
        3 => [58, 62, 594, 1518],
        _ => [90, 92, 594, 1518],
    };
    sizes.into_iter().zip([58.67, 2.0, 23.66, 15.67]).collect()
}

/// A mix of these sizes with these weights.
fn weighted(pairs: &[(u64, f64)]) -> Result<PacketSize, String> {
    let parts: Vec<String> = pairs.iter().map(|(size, weight)| format!("{weight}x{}", fixed(*size))).collect();
    format!("imix:{}", parts.join(",")).parse().map_err(|e| format!("{e}"))
}

fn rate(flow: &mut Object<'_>) -> Rate {
    let mut o = flow.object_or_empty("rate");
    let kind = o.choice(&["pps", "bps", "kbps", "mbps", "gbps", "percentage"], "pps");
    let (factor, default) = match kind {
        "pps" => (1.0, 1_000.0),
        "bps" => (1.0, 1e9),
        "kbps" => (1e3, 1e6),
        "mbps" => (1e6, 1e3),
        "gbps" => (1e9, 1.0),
        _ => (1.0, 100.0),
    };
    o.note(kind, || json!({"type": "number", "exclusiveMinimum": 0, "default": default}));
    let number = o.float_or(kind, default) * factor;
    if number == 0.0 {
        o.wrong(kind, "the rate must be above 0");
    }
    match kind {
        "pps" => Rate::Frames(number),
        "percentage" => Rate::Percent(number),
        _ => Rate::Bits(number),
    }
}

/// Takes a time without frames; `default` is in bytes.
fn gap(o: &mut Object<'_>, key: &str, default: f64) -> Gap {
    let Some(mut gap) = o.object(key) else { return Gap::Bytes(default) };
    let nanoseconds = |ns: f64| Gap::Time(Duration::from_nanos(ns.min(1e18) as u64));
    match gap.choice(&["bytes", "nanoseconds", "microseconds"], "bytes") {
        "nanoseconds" => nanoseconds(gap.float_or("nanoseconds", 0.0)),
        "microseconds" => nanoseconds(gap.float_or("microseconds", 0.0) * 1e3),
        _ => Gap::Bytes(gap.float_or("bytes", default)),
    }
}

/// The smallest gap between frames, in bytes. Ethernet needs 12, and the rate of a flow determines its gaps.
fn smallest_gap(o: &mut Object<'_>) {
    o.note("gap", || json!({"type": "integer", "minimum": 0, "maximum": 12, "default": 12}));
    if o.number("gap", u32::MAX.into()).is_some_and(|gap| gap > 12) {
        o.wrong(
            "gap",
            "only gaps of at most 12 bytes are supported, because the rate determines the gaps; lower the rate",
        );
    }
}

fn length(flow: &mut Object<'_>) -> Length {
    let mut o = flow.object_or_empty("duration");
    let kind = o.choice(&["continuous", "fixed_packets", "fixed_seconds", "burst"], "continuous");
    let mut o = o.object_or_empty(kind);
    smallest_gap(&mut o);
    match kind {
        "burst" => Length::Bursts {
            bursts: o.number("bursts", u32::MAX.into()).filter(|bursts| *bursts > 0),
            frames: o.number_or("packets", u32::MAX.into(), 1).max(1),
            gap: gap(&mut o, "inter_burst_gap", 12.0),
        },
        "fixed_packets" => Length::Frames {
            frames: o.number_or("packets", u32::MAX.into(), 1).max(1),
            delay: gap(&mut o, "delay", 0.0),
        },
        "fixed_seconds" => {
            o.note("seconds", || json!({"type": "number", "minimum": 1e-9, "maximum": 1e6, "default": 1}));
            let seconds = o.float_or("seconds", 1.0);
            if !(1e-9..=1e6).contains(&seconds) {
                o.wrong("seconds", "write more than 0 and at most 1,000,000 seconds");
            }
            Length::Seconds { seconds, delay: gap(&mut o, "delay", 0.0) }
        }
        _ => Length::Continuous { delay: gap(&mut o, "delay", 0.0) },
    }
}

fn metrics(flow: &mut Object<'_>) -> FlowMetrics {
    let mut o = flow.object_or_empty("metrics");
    let enable = o.flag("enable", false);
    // Loss is in all metrics.
    o.flag("loss", false);
    let timestamps = o.flag("timestamps", false);
    let (cut_through, latency) = o.object("latency").map_or((false, false), |mut latency| {
        let mode = latency.word("mode", &["store_forward", "cut_through"], 0);
        (mode == 1, latency.flag("enable", false))
    });
    FlowMetrics { enable, latency, cut_through: latency && cut_through, timestamps }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::model::read::Errors;
    use serde_json::{Value, json};

    fn read(text: Value) -> Result<Flow, Vec<String>> {
        let errors = Errors::default();
        let found = flow(Object::document(text, &errors));
        errors.or(found)
    }

    fn with(key: &str, value: Value) -> Result<Flow, Vec<String>> {
        let mut text = json!({"name": "f", "tx_rx": {"port": {"tx_name": "a", "rx_name": "b"}}});
        text[key] = value;
        read(text)
    }

    #[test]
    fn a_short_flow_has_the_defaults_of_the_model() {
        let flow = with("metrics", json!({"enable": true})).unwrap();
        assert_eq!(flow.ends, Ends::Port { tx: "a".into(), rx: vec!["b".into()] });
        assert_eq!((flow.rate, flow.size), (Rate::Frames(1_000.0), PacketSize::Fixed(FrameSize::Frame(64))));
        assert_eq!(flow.length, Length::Continuous { delay: Gap::Bytes(0.0) });
    }

    #[test]
    fn every_rate_and_length_is_read() {
        for (value, rate) in [
            (json!({"pps": "50"}), Rate::Frames(50.0)),
            (json!({"choice": "mbps", "mbps": 3}), Rate::Bits(3e6)),
            (json!({"percentage": 10}), Rate::Percent(10.0)),
        ] {
            assert_eq!(with("rate", value).unwrap().rate, rate);
        }
        let none = Gap::Bytes(0.0);
        for (value, length) in [
            (json!({"fixed_packets": {"packets": 7}}), Length::Frames { frames: 7, delay: none }),
            (
                json!({"fixed_seconds": {"seconds": 2, "delay": {"microseconds": 3}}}),
                Length::Seconds { seconds: 2.0, delay: Gap::Time(Duration::from_micros(3)) },
            ),
            (
                json!({"burst": {"bursts": 4, "packets": 5, "inter_burst_gap": {"choice": "nanoseconds", "nanoseconds": 9}}}),
                Length::Bursts { bursts: Some(4), frames: 5, gap: Gap::Time(Duration::from_nanos(9)) },
            ),
        ] {
            assert_eq!(with("duration", value).unwrap().length, length);
        }
    }

    fn sizes(value: Value) -> Vec<u16> {
        with("size", value).unwrap().size.round().iter().map(|size| size.frame_bytes(false)).collect()
    }

    #[test]
    fn every_size_is_read() {
        assert_eq!(sizes(json!({"fixed": 128})), [128]);
        assert_eq!(sizes(json!({"increment": {"start": 64, "end": 80, "step": 8}})), [64, 72, 80]);
        let mut random = sizes(json!({"random": {"min": 100, "max": 109}}));
        assert_ne!(random, (100..110).collect::<Vec<_>>());
        random.sort_unstable();
        assert_eq!(random, (100..110).collect::<Vec<_>>());
        let imix = sizes(json!({"weight_pairs": {}}));
        assert_eq!([64, 570, 1518].map(|size| imix.iter().filter(|s| **s == size).count()), [7, 4, 1]);
        assert_eq!(
            sizes(json!({"weight_pairs": {"custom": [{"size": 64, "weight": 1}, {"size": 128, "weight": 2}]}})).len(),
            3
        );
        for (size, smallest) in [
            (json!({"fixed": 40}), 40),
            (json!({"increment": {"start": 60, "end": 70}}), 60),
            (json!({"random": {"min": 1, "max": 70}}), 1),
            (json!({"weight_pairs": {"predefined": "standard_imix"}}), 58),
            (json!({"weight_pairs": {"custom": [{"size": 128, "weight": 1}, {"size": 62, "weight": 2}]}}), 62),
            (json!({}), 64),
        ] {
            assert_eq!(with("size", size.clone()).unwrap().smallest, smallest, "{size}");
            assert_eq!(sizes(size).into_iter().min(), Some(64));
        }
    }

    #[test]
    fn mistakes_are_named() {
        for (key, value, error) in [
            ("rate", json!({"pps": 0}), "rate.pps: the rate must be above 0"),
            ("size", json!({"fixed": 20_000}), "size.fixed: 20000 bytes are not supported"),
            ("size", json!({"increment": {"end": 1518}}), "size.increment.step: 1 to 256 sizes"),
            ("egress_packet", json!([{"ethernet": {}}]), "egress_packet: not supported"),
            ("metrics", json!({"rx_tx_ratio": {}}), "metrics.rx_tx_ratio: not supported"),
            ("tx_rx", json!({"device": {"tx_names": ["a"]}}), "tx_rx.device.rx_names: this needs at least one name"),
            (
                "tx_rx",
                json!({"device": {"tx_names": ["a", "b"], "rx_names": ["c", "a"]}}),
                "tx_rx.device.rx_names: `a` would send to itself",
            ),
            (
                "tx_rx",
                json!({"device": {"mode": "one_to_one", "tx_names": ["a", "b"], "rx_names": ["c", "b"]}}),
                "tx_rx.device.rx_names: `b` would send to itself",
            ),
        ] {
            let found = with(key, value).unwrap_err();
            assert!(found[0].starts_with(error), "{found:?}");
        }
    }
}
