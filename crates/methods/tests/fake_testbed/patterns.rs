//! Traffic patterns: the flows that are built from them, and the key that identifies trials of a pattern.

use crate::common::{Fake, method, params};
use drophammer_methods::pattern::Pattern;
use drophammer_methods::{TestError, Testbed};
use drophammer_model::pattern::{Distribution, LabelOperation, PatternKey};
use drophammer_model::quantity::FrameRate;
use drophammer_model::routes::{RouteRange, Routes};
use drophammer_model::suite::{FecConfig, LabelConfig, ParamValue};
use drophammer_model::traffic::HeaderKind;
use drophammer_model::trial::{Family, Load, Targets};
use std::collections::BTreeSet;
use std::sync::Arc;

fn both() -> (&'static str, ParamValue) {
    ("families", ParamValue::Families(vec![Family::Ipv4, Family::Ipv6]))
}

#[test]
fn flows_go_between_pairs_of_ports() {
    let mut bed = Fake::new();
    bed.facts.ports.extend(Fake::new().facts.ports);
    bed.facts.ports.truncate(3);
    bed.facts.ports.push(bed.facts.ports[0].clone());
    let throughput = method("throughput");
    let pairs = |over: &[(&str, ParamValue)]| {
        let pattern = Pattern::new("64".parse().unwrap(), &params(throughput, false, over));
        let flows = pattern.flows(&bed.facts.ports).unwrap();
        assert!(flows.iter().all(|f| f.group == f.family.to_string()));
        let spec = pattern.trial(&bed.facts.ports, "p".into(), Load::Constant { rate_pps: 1.0 }, 1.0).unwrap();
        assert_eq!(PatternKey::of(&spec), pattern.key());
        flows.iter().map(|f| (f.from, f.to)).collect::<Vec<_>>()
    };
    assert_eq!(pairs(&[]), [(0, 1), (1, 0), (2, 3), (3, 2)]);
    let one_way = ("direction", ParamValue::Text("unidirectional".into()));
    assert_eq!(pairs(&[one_way]), [(0, 1), (2, 3)]);
    assert_eq!(pairs(&[both()]).len(), 8);
    let pattern = Pattern::new("64".parse().unwrap(), &params(throughput, false, &[both()]));
    let flow = &pattern.flows(&bed.facts.ports).unwrap()[0];
    assert_eq!(flow.sources, bed.facts.ports[0].ipv4.as_ref().unwrap().destinations);
    assert_eq!(flow.destinations, bed.facts.ports[1].ipv4.as_ref().unwrap().destinations.into());
    // Half of the frames have 78 bytes, because IPv6 needs them.
    assert_eq!(pattern.frame_bytes(), 71.0);
    assert_eq!(pattern.key().to_string(), "64/ipv4+ipv6/bidirectional");
    let limits = pattern.limits(&mut bed as &mut dyn Testbed);
    assert!((limits.line.pps() - 1e9 / (8.0 * 91.0)).abs() < 1e-6);
}

#[test]
fn a_trial_of_a_mix_is_known_as_the_mix() {
    let ports = Fake::new().facts.ports;
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
    bed.facts.ports.extend(Fake::new().facts.ports);
    let meshed = ("distribution", ParamValue::Text("fully_meshed".into()));
    let pattern =
        |over: &[(&str, ParamValue)]| Pattern::new("64".parse().unwrap(), &params(method("throughput"), false, over));
    let of = pattern(std::slice::from_ref(&meshed));
    let flows = of.flows(&bed.facts.ports).unwrap();
    let ways: BTreeSet<_> = flows.iter().map(|f| (f.from, f.to)).collect();
    assert_eq!((flows.len(), ways.len(), of.senders(4)), (12, 12, 4));
    assert!(ways.iter().all(|(from, to)| from != to));
    // A port shares its load equally among the others.
    assert!(flows.iter().all(|flow| flow.weight == flows[0].weight));
    let spec = of.trial(&bed.facts.ports, "p".into(), Load::Constant { rate_pps: 1.0 }, 1.0).unwrap();
    assert_eq!(PatternKey::of(&spec), of.key());
    assert_ne!(of.key(), pattern(&[]).key());
    // The tester's ceiling is measured with the same pattern between pairs of ports.
    assert_eq!((of.on_loop(), of.key().on_loop()), (pattern(&[]), pattern(&[]).key()));
    bed.ceiling = Some(FrameRate(400_000.0));
    assert_eq!(of.limits(&mut bed as &mut dyn Testbed).ceiling, Some(FrameRate(400_000.0)));
    let one_way = ("direction", ParamValue::Text("unidirectional".into()));
    assert!(matches!(pattern(&[meshed, one_way]).flows(&bed.facts.ports), Err(TestError::NotApplicable(_))));
}

#[test]
fn crossed_pairs_lead_from_one_half_of_the_ports_to_the_other() {
    let pairs = |ports: usize, direction: &str| {
        let given =
            [("distribution", ParamValue::Text("crossed".into())), ("direction", ParamValue::Text(direction.into()))];
        let pattern = Pattern::new("64".parse().unwrap(), &params(method("throughput"), false, &given));
        let views: Vec<_> = (0..ports / 2).flat_map(|_| Fake::new().facts.ports).collect();
        let spec = pattern.trial(&views, "p".into(), Load::Constant { rate_pps: 1.0 }, 1.0).unwrap();
        let same = PatternKey::of(&spec) == pattern.key();
        assert_eq!(
            (same, pattern.senders(ports)),
            (ports > 2, if direction == "bidirectional" { ports } else { ports / 2 } as u32)
        );
        spec.flows.iter().map(|flow| (flow.from, flow.to)).collect::<Vec<_>>()
    };
    assert_eq!(pairs(4, "bidirectional"), [(0, 2), (2, 0), (1, 3), (3, 1)]);
    assert_eq!(pairs(6, "unidirectional"), [(0, 3), (1, 4), (2, 5)]);
    // With two ports, crossed pairs are the same as a single pair.
    assert_eq!(pairs(2, "bidirectional"), [(0, 1), (1, 0)]);
}

#[test]
fn frames_aim_at_the_routes_behind_a_port() {
    let mut ports = Fake::new().facts.ports;
    let routes: Arc<Routes> = Arc::new(RouteRange::internet(Family::Ipv4, 100, 1).unwrap().into());
    for (port, first) in ports.iter_mut().zip([0, 60]) {
        let count = if first == 0 { 60 } else { 40 };
        port.routed.insert(Family::Ipv4, Targets::Routes { routes: routes.clone(), first, count });
    }
    let over = [("routes", ParamValue::Count(100)), ("distribution", ParamValue::Text("fully_meshed".into()))];
    let pattern = Pattern::new("64".parse().unwrap(), &params(method("throughput"), false, &over));
    let spec = pattern.trial(&ports, "p".into(), Load::Constant { rate_pps: 1.0 }, 1.0).unwrap();
    assert_eq!(spec.flows.iter().map(|flow| flow.destinations.count()).collect::<Vec<_>>(), [40, 60]);
    // The sources are still hosts in the sender's network.
    assert_eq!(spec.flows[0].sources, ports[0].ipv4.as_ref().unwrap().destinations);
    // With two ports, a full mesh is the same as a pair.
    let pair = PatternKey { distribution: Distribution::NonMeshed, ..pattern.key() };
    assert_eq!((PatternKey::of(&spec), pair.routes), (pair, 100));
}

#[test]
fn packets_that_get_their_labels_from_the_router_are_sent_without() {
    let mut bed = Fake::new();
    let fec = |to: &str, out: &[u32]| FecConfig { to: to.parse().unwrap(), out: out.into() };
    bed.facts.ports[0].pushed = vec![fec("10.98.0.0/24", &[300])];
    bed.facts.ports[1].pushed = vec![fec("10.99.0.0/24", &[200]), fec("10.99.1.0/30", &[201, 202])];
    let pattern = with_labels("push", 3, &[]);
    let spec = pattern.trial(&bed.facts.ports, "p".into(), Load::Constant { rate_pps: 1.0 }, 1.0).unwrap();
    assert_eq!(PatternKey::of(&spec), pattern.key());
    let seen: Vec<_> = spec
        .flows
        .iter()
        .map(|flow| (flow.to, flow.destinations.count(), flow.weight, flow.arrives.as_ref().unwrap().labels.len()))
        .collect();
    assert_eq!(seen, [(1, 254, 0.5, 1), (1, 2, 0.5, 2), (0, 254, 1.0, 1)]);
    assert!(spec.flows.iter().all(|flow| flow.headers.is_empty() && flow.size.is_none()));
    assert_eq!((pattern.frame_bytes(), pattern.on_loop().labels), (64.0, None));
    bed.facts.ports[0].pushed.clear();
    let error = pattern.trial(&bed.facts.ports, "p".into(), Load::Constant { rate_pps: 1.0 }, 1.0).unwrap_err();
    assert!(error.to_string().contains("{to: 10.99.0.0/24, out: [200]}"), "{error}");
}

/// A router that adds labels needs space for them on its output link, and its output line carries fewer frames.
#[test]
fn labels_that_the_router_adds_count_in_the_limits() {
    let mut bed = Fake::new();
    let fec = |to: &str, out: &[u32]| FecConfig { to: to.parse().unwrap(), out: out.into() };
    bed.facts.ports[1].pushed = vec![fec("10.99.0.0/24", &[200]), fec("10.99.1.0/24", &[201, 202])];
    let one_way = [("direction", ParamValue::Text("unidirectional".into()))];
    let push = with_labels("push", 1, &one_way);
    let line = |pattern: &Pattern, bed: &mut Fake| pattern.limits(bed as &mut dyn Testbed).line.pps();
    // Frames of 64 bytes, half of them with one label and half with two, with 20 additional bytes on the line.
    assert!((line(&push, &mut bed) - 1e9 / (8.0 * 90.0)).abs() < 1e-6);
    bed.facts.ports[1].speed.0 *= 10;
    assert!((line(&push, &mut bed) - 1e9 / (8.0 * 84.0)).abs() < 1e-6, "the input line limits");
    let long = Pattern { size: "1518".parse().unwrap(), ..push.clone() };
    match long.flows(&bed.facts.ports) {
        Err(TestError::NotApplicable(why)) => assert!(why.contains("an MTU of 1508, port p2 has 1500"), "{why}"),
        other => panic!("{other:?}"),
    }
    bed.facts.ports[1].mtu = 1508;
    assert!(long.flows(&bed.facts.ports).is_ok(), "the input needs no more than the packets");
    // With one label less at the output, either the input line or the slower output line is the limit.
    bed.facts.ports[1].labels = vec![LabelConfig { label: 101, out: vec![] }];
    bed.facts.ports[1].speed.0 /= 10;
    let pop = with_labels("pop", 1, &one_way);
    assert!((line(&pop, &mut bed) - 1e9 / (8.0 * 88.0)).abs() < 1e-6);
    bed.facts.ports[1].speed.0 /= 10;
    assert!((line(&pop, &mut bed) - 1e8 / (8.0 * 84.0)).abs() < 1e-6);
    bed.facts.ports[1].mtu = 1500;
    let long = Pattern { size: "1518".parse().unwrap(), ..pop };
    match long.flows(&bed.facts.ports) {
        Err(TestError::NotApplicable(why)) => assert!(why.contains("an MTU of 1504, port p1 has 1500"), "{why}"),
        other => panic!("{other:?}"),
    }
}

fn with_labels(operation: &str, stack: u64, rest: &[(&str, ParamValue)]) -> Pattern {
    let labels = [("labels", ParamValue::Text(operation.into())), ("label_stack", ParamValue::Count(stack))];
    Pattern::new("64".parse().unwrap(), &params(method("throughput"), false, &[&labels[..], rest].concat()))
}

#[test]
fn labels_come_on_top_of_the_frame() {
    let mut bed = Fake::new();
    let entry = |label, out: &[u32]| LabelConfig { label, out: out.into() };
    // An entry with two labels swaps and pushes, so `swap` does not use it.
    bed.facts.ports[0].labels = vec![entry(300, &[400]), entry(301, &[]), entry(302, &[400, 401])];
    // One entry replaces a label by the same label.
    bed.facts.ports[1].labels = vec![entry(100, &[100]), entry(101, &[]), entry(102, &[202])];
    for stack in 1..=3_u8 {
        // Two entries of the second port swap; they share the traffic to that port.
        for (operation, flows, arriving) in [("swap", 3, [1, 1]), ("pop", 2, [0, 0]), ("keep", 2, [1, 1])] {
            let pattern = with_labels(operation, stack.into(), &[]);
            let spec = pattern.trial(&bed.facts.ports, "p".into(), Load::Constant { rate_pps: 1.0 }, 1.0).unwrap();
            assert_eq!(PatternKey::of(&spec), pattern.key(), "{operation}, {stack}");
            assert_eq!(spec.flows.len(), flows);
            let below = usize::from(stack) - 1;
            for flow in &spec.flows {
                let labels = flow.headers.iter().filter(|header| header.kind() == HeaderKind::Mpls).count();
                assert_eq!(labels, usize::from(stack));
                let arrives = &flow.arrives.as_ref().unwrap().labels;
                let first = if operation == "keep" { 1 } else { arriving[1 - flow.to] };
                assert_eq!(arrives.len(), first + below, "{operation}, {stack}: {arrives:?}");
                assert_eq!(flow.size, Some((64 + 4 * u16::from(stack)).to_string().parse().unwrap()));
            }
            let to_second: f64 = spec.flows.iter().filter(|flow| flow.to == 1).map(|flow| flow.weight).sum();
            assert_eq!(to_second, 1.0);
            assert_eq!(pattern.frame_bytes(), 64.0 + 4.0 * f64::from(stack));
            let line = 1e9 / (8.0 * (84.0 + 4.0 * f64::from(stack)));
            assert!((pattern.limits(&mut bed as &mut dyn Testbed).line.pps() - line).abs() < 1e-6);
            assert_eq!(pattern.on_loop().labels.unwrap().operation, LabelOperation::Keep);
            assert_eq!(pattern.on_loop().key(), pattern.key().on_loop());
        }
    }
    let swapped = &with_labels("swap", 2, &[]).flows(&bed.facts.ports).unwrap()[0];
    let arrives = &swapped.arrives.as_ref().unwrap().labels;
    let seen: Vec<_> = arrives.iter().map(|label| (label.label.get(), label.ttl)).collect();
    assert_eq!(seen, [(100, Some(63)), (1_000, Some(64))], "the router counts down the outermost alone");
    assert_eq!(with_labels("pop", 1, &[]).size_text(), "64 bytes and 1 label, pop");
    // In both TTL models, the TTL of a packet behind a single label is decremented; the TTL of a second label is not.
    for (stack, ttl) in [(1, Some(63)), (2, None)] {
        let popped = &with_labels("pop", stack, &[]).flows(&bed.facts.ports).unwrap()[0];
        assert_eq!(popped.arrives.as_ref().unwrap().ttl, ttl);
    }
}

#[test]
fn labels_need_entries_room_and_one_family_at_a_time() {
    let mut bed = Fake::new();
    let refused = |pattern: Pattern, bed: &Fake| match pattern.flows(&bed.facts.ports) {
        Err(TestError::NotApplicable(why)) => why,
        other => panic!("{other:?}"),
    };
    let why = refused(with_labels("swap", 1, &[]), &bed);
    assert!(
        why.contains("port p2 has no label entry") && why.contains("`labels: [{label: 100, out: [200]}]`"),
        "{why}"
    );
    bed.facts.ports[1].labels = vec![LabelConfig { label: 100, out: vec![200] }];
    let one_way = ("direction", ParamValue::Text("unidirectional".into()));
    assert!(with_labels("swap", 1, std::slice::from_ref(&one_way)).flows(&bed.facts.ports).is_ok());
    assert!(refused(with_labels("pop", 1, std::slice::from_ref(&one_way)), &bed).contains("`labels: [{label: 101}]`"));
    let long = Pattern { size: "1518".parse().unwrap(), ..with_labels("swap", 2, std::slice::from_ref(&one_way)) };
    assert!(refused(long, &bed).contains("an MTU of 1508"));
    for stack in [0, 9, 300] {
        let why = refused(with_labels("swap", stack, std::slice::from_ref(&one_way)), &bed);
        assert!(why.contains("`label_stack` must be 1 to 8"), "{why}");
    }
    let share = ("ipv6_share", ParamValue::Number(15.0));
    assert!(refused(with_labels("swap", 1, &[one_way, both(), share]), &bed).contains("remove `ipv6_share`"));
}
