//! Frames to the hardware broadcast address (RFC 2544 section 11.1).

use drophammer_model::mac::MacAddr;
use drophammer_model::size::{FrameSize, PacketSize};
use drophammer_model::traffic::{Ethernet, Header, Ipv4, Ipv6, Udp};
use drophammer_model::trial::{Family, FlowDuration, FlowSchedule, FlowSpec, Load};

/// Share of all frames that are broadcast.
pub const SHARE: f64 = 0.01;
/// EtherType for experiments (IEEE 802, local experimental 1), which routers need not process.
const ETHERTYPE: u16 = 0x88b5;
/// Shorter IP packets are padded to the shortest frame.
const UNPADDED: u16 = 46;
/// Bytes of the shortest frame, FCS included.
const SHORTEST: u16 = 64;
/// Flow group of the broadcast frames.
const GROUP: &str = "broadcast";

/// Returns flows of broadcast frames in addition to `tested`, from each sending port: one frame in a hundred, evenly
/// spaced between the test frames. Their rate follows the load.
pub fn flows(tested: &[FlowSpec], size: &PacketSize, load: &Load, duration_s: f64) -> Vec<FlowSpec> {
    let mut flows: Vec<FlowSpec> = Vec::new();
    // With an unknown EtherType, padding cannot be told apart from the packet.
    let padded = |size: &FrameSize| matches!(size, FrameSize::Ip(bytes) if *bytes < UNPADDED);
    let shortest = || PacketSize::Fixed(FrameSize::Frame(SHORTEST));
    for flow in tested {
        if flows.iter().any(|other| other.from == flow.from) {
            continue;
        }
        for schedule in schedules(load, duration_s) {
            flows.push(FlowSpec {
                group: GROUP.into(),
                headers: headers(flow.family),
                background: true,
                per_destination: false,
                ipdv: false,
                also: Vec::new(),
                weight: 1.0,
                arrives: None,
                size: if size.round().iter().any(padded) { Some(shortest()) } else { flow.size.clone() },
                schedule: Some(schedule),
                ..flow.clone()
            });
        }
    }
    flows
}

fn headers(family: Family) -> Vec<Header> {
    let ip = match family {
        Family::Ipv4 => Header::Ipv4(Ipv4::default()),
        Family::Ipv6 => Header::Ipv6(Ipv6::default()),
    };
    let everybody = MacAddr([0xff; 6]);
    let ethernet =
        Ethernet { destination: Some(everybody.into()), ethertype: Some(ETHERTYPE.into()), ..Ethernet::default() };
    vec![Header::Ethernet(ethernet), ip, Header::Udp(Udp::default())]
}

/// One schedule for each step of the load. The first frame is sent in the middle of the first hundred test frames.
fn schedules(load: &Load, duration_s: f64) -> Vec<FlowSchedule> {
    let mut start = 0.0;
    let mut schedules = Vec::new();
    let mut step = |rate_pps: f64, duration_s: f64, last: bool| {
        let own = rate_pps * SHARE / (1.0 - SHARE);
        if own > 0.0 {
            let delay = 0.5 / own;
            let duration =
                if last { FlowDuration::Continuous } else { FlowDuration::Seconds((duration_s - delay).max(0.0)) };
            schedules.push(FlowSchedule { rate_pps: own, delay_s: start + delay, duration });
        }
        start += duration_s;
    };
    match load {
        Load::Constant { rate_pps } | Load::Burst { rate_pps, .. } => step(*rate_pps, duration_s, true),
        Load::Maximum { limit_pps } => step(*limit_pps, duration_s, true),
        Load::Steps { steps } => {
            for (i, one) in steps.iter().enumerate() {
                step(one.rate_pps, one.duration_s, i + 1 == steps.len());
            }
        }
        // Individual rates for the flows: a kind of load that no test by frame size uses.
        Load::Flows => {}
    }
    schedules
}

#[cfg(test)]
mod tests {
    use super::*;
    use drophammer_model::trial::{AddressRange, LoadStep};

    fn of(load: &Load) -> Vec<(f64, f64, FlowDuration)> {
        schedules(load, 2.0).into_iter().map(|s| (s.rate_pps, s.delay_s, s.duration)).collect()
    }

    #[test]
    fn one_frame_in_a_hundred_is_broadcast_at_any_load() {
        let constant = of(&Load::Constant { rate_pps: 9_900.0 });
        assert_eq!(constant, of(&Load::Maximum { limit_pps: 9_900.0 }));
        let [(rate, delay, FlowDuration::Continuous)] = constant[..] else { panic!("{constant:?}") };
        assert!((rate - 100.0).abs() < 1e-9 && (delay - 0.005).abs() < 1e-12);
        let step = |rate_pps, duration_s| LoadStep { rate_pps, duration_s };
        let steps = of(&Load::Steps { steps: vec![step(9_900.0, 1.0), step(990.0, 1.0)] });
        let [(fast, _, FlowDuration::Seconds(length)), (slow, late, FlowDuration::Continuous)] = steps[..] else {
            panic!("{steps:?}")
        };
        assert!((fast - 100.0).abs() < 1e-9 && (length - 0.995).abs() < 1e-12);
        assert!((slow - 10.0).abs() < 1e-9 && (late - 1.05).abs() < 1e-12);
        assert_eq!(of(&Load::Constant { rate_pps: 0.0 }), []);
    }

    #[test]
    fn each_port_that_sends_has_its_own() {
        let hosts = |text: &str| AddressRange { first: text.parse().unwrap(), step: 1, count: 9 };
        let flow = |from, to, text| FlowSpec::new("IPv4", from, to, hosts(text), hosts(text));
        let tested = [flow(0, 1, "198.19.0.1"), flow(0, 2, "198.19.0.1"), flow(1, 0, "198.19.1.1")];
        let found = flows(&tested, &"ip40".parse().unwrap(), &Load::Constant { rate_pps: 100.0 }, 1.0);
        assert_eq!(found.iter().map(|flow| flow.from).collect::<Vec<_>>(), [0, 1]);
        assert!(found.iter().all(|flow| flow.background && flow.group == "broadcast" && flow.schedule.is_some()));
        // An IP packet of 40 bytes would be padded.
        assert!(found.iter().all(|flow| flow.size.as_ref().is_some_and(|size| size.to_string() == "64")));
    }
}
