//! Patterns of traffic: which flows they are made of, and that a trial of a pattern is known as such.

mod common;

use common::{Fake, method, params};
use drophammer_methods::pattern::Pattern;
use drophammer_methods::{TestError, Testbed};
use drophammer_model::pattern::{Distribution, PatternKey};
use drophammer_model::quantity::FrameRate;
use drophammer_model::routes::{RouteRange, Routes};
use drophammer_model::suite::ParamValue;
use drophammer_model::trial::{Family, Load, Targets};
use std::collections::BTreeSet;
use std::sync::Arc;

fn both() -> (&'static str, ParamValue) {
    ("families", ParamValue::Families(vec![Family::Ipv4, Family::Ipv6]))
}

#[test]
fn flows_go_between_pairs_of_ports() {
    let mut bed = Fake::new();
    bed.ports.extend(Fake::new().ports);
    bed.ports.truncate(3);
    bed.ports.push(bed.ports[0].clone());
    let throughput = method("throughput");
    let pairs = |over: &[(&str, ParamValue)]| {
        let pattern = Pattern::new("64".parse().unwrap(), &params(throughput, false, over));
        let flows = pattern.flows(&bed.ports).unwrap();
        assert!(flows.iter().all(|f| f.group == f.family.to_string()));
        let spec = pattern.trial(&bed.ports, "p".into(), Load::Constant { rate_pps: 1.0 }, 1.0).unwrap();
        assert_eq!(PatternKey::of(&spec), pattern.key());
        flows.iter().map(|f| (f.from, f.to)).collect::<Vec<_>>()
    };
    assert_eq!(pairs(&[]), [(0, 1), (1, 0), (2, 3), (3, 2)]);
    let one_way = ("direction", ParamValue::Text("unidirectional".into()));
    assert_eq!(pairs(&[one_way]), [(0, 1), (2, 3)]);
    assert_eq!(pairs(&[both()]).len(), 8);
    let pattern = Pattern::new("64".parse().unwrap(), &params(throughput, false, &[both()]));
    let flow = &pattern.flows(&bed.ports).unwrap()[0];
    assert_eq!(flow.sources, bed.ports[0].ipv4.as_ref().unwrap().destinations);
    assert_eq!(flow.destinations, bed.ports[1].ipv4.as_ref().unwrap().destinations.into());
    // Half of the frames are of 78 bytes, because IPv6 needs them.
    assert_eq!(pattern.frame_bytes(), 71.0);
    assert_eq!(pattern.key().to_string(), "64/ipv4+ipv6/bidirectional");
    let limits = pattern.limits(&mut bed as &mut dyn Testbed);
    assert!((limits.line.pps() - 1e9 / (8.0 * 91.0)).abs() < 1e-6);
}

#[test]
fn a_trial_of_a_mix_is_known_as_the_mix() {
    let ports = Fake::new().ports;
    for (share, ipv6_size) in [(15.0, Some("528")), (10.0, None), (50.0, Some("imix")), (99.5, Some("128"))] {
        let over: Vec<(&str, ParamValue)> = [
            Some(both()),
            Some(("ipv6_share", ParamValue::Number(share))),
            ipv6_size.map(|size| ("ipv6_frame_size", ParamValue::Sizes(vec![size.parse().unwrap()]))),
        ]
        .into_iter()
        .flatten()
        .collect();
        let pattern = Pattern::new("128".parse().unwrap(), &params(method("throughput"), false, &over));
        let spec = pattern.trial(&ports, "p".into(), Load::Constant { rate_pps: 1.0 }, 1.0).unwrap();
        assert!(pattern.mix.is_some());
        assert_eq!(PatternKey::of(&spec), pattern.key(), "{share} % of {ipv6_size:?}");
    }
}

#[test]
fn fully_meshed_traffic_goes_from_every_port_to_every_other_one() {
    let mut bed = Fake::new();
    bed.ports.extend(Fake::new().ports);
    let meshed = ("distribution", ParamValue::Text("fully_meshed".into()));
    let pattern =
        |over: &[(&str, ParamValue)]| Pattern::new("64".parse().unwrap(), &params(method("throughput"), false, over));
    let of = pattern(std::slice::from_ref(&meshed));
    let flows = of.flows(&bed.ports).unwrap();
    let ways: BTreeSet<_> = flows.iter().map(|f| (f.from, f.to)).collect();
    assert_eq!((flows.len(), ways.len(), of.senders(4)), (12, 12, 4));
    assert!(ways.iter().all(|(from, to)| from != to));
    // A port shares its load equally among the others.
    assert!(flows.iter().all(|flow| flow.weight == flows[0].weight));
    let spec = of.trial(&bed.ports, "p".into(), Load::Constant { rate_pps: 1.0 }, 1.0).unwrap();
    assert_eq!(PatternKey::of(&spec), of.key());
    assert_ne!(of.key(), pattern(&[]).key());
    // The tester does the same for pairs of ports.
    assert_eq!((of.on_loop(), of.key().on_loop()), (pattern(&[]), pattern(&[]).key()));
    bed.ceiling = Some(FrameRate(400_000.0));
    assert_eq!(of.limits(&mut bed as &mut dyn Testbed).ceiling, Some(FrameRate(400_000.0)));
    let one_way = ("direction", ParamValue::Text("unidirectional".into()));
    assert!(matches!(pattern(&[meshed, one_way]).flows(&bed.ports), Err(TestError::NotApplicable(_))));
}

#[test]
fn frames_aim_at_the_routes_behind_a_port() {
    let mut ports = Fake::new().ports;
    let routes: Arc<Routes> = Arc::new(RouteRange::internet(Family::Ipv4, 100, 1).unwrap().into());
    for (port, first) in ports.iter_mut().zip([0, 60]) {
        let count = if first == 0 { 60 } else { 40 };
        port.routed.insert(Family::Ipv4, Targets::Routes { routes: routes.clone(), first, count });
    }
    let over = [("routes", ParamValue::Count(100)), ("distribution", ParamValue::Text("fully_meshed".into()))];
    let pattern = Pattern::new("64".parse().unwrap(), &params(method("throughput"), false, &over));
    let spec = pattern.trial(&ports, "p".into(), Load::Constant { rate_pps: 1.0 }, 1.0).unwrap();
    assert_eq!(spec.flows.iter().map(|flow| flow.destinations.count()).collect::<Vec<_>>(), [40, 60]);
    // Sources stay hosts of the sender's network.
    assert_eq!(spec.flows[0].sources, ports[0].ipv4.as_ref().unwrap().destinations);
    // Between two ports a full mesh is a pair.
    let pair = PatternKey { distribution: Distribution::NonMeshed, ..pattern.key() };
    assert_eq!((PatternKey::of(&spec), pair.routes), (pair, 100));
}
