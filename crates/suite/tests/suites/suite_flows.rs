//! The `flows:` section: the text becomes flows, and every mistake is reported with its place and remedy.
use crate::common::REGISTRY;
use drophammer_model::param::{FlowNames, Param};
use drophammer_model::quantity::{Bandwidth, FrameRate};
use drophammer_model::registry::{FigureShape, ParamSpec, Registry, TestSpec};
use drophammer_model::suite::{Endpoint, FlowConfig, FlowRate, Suite};
use drophammer_model::traffic::{FieldName, HeaderKind};
use drophammer_model::trial::{Family, FlowDuration};
use drophammer_suite::SuiteErrors;
use drophammer_suite::read::{Overrides, read};
use std::time::Duration;

const FLOWS: Param<Option<FlowNames>> = Param::optional("flows", "flows that are sent");
static PARAMS: [ParamSpec; 1] = [FLOWS.spec()];
static FIXED: TestSpec = TestSpec {
    name: "fixed",
    title: "fixed",
    summary: "A test of flows.",
    source: "RFC 2544",
    params: &PARAMS,
    figures: &[FigureShape { key: "loss_{flow}_percent", help: "A figure." }],
    tables: &[],
    needs: &[],
};

fn read_with_fixed(text: &str) -> Result<Suite, SuiteErrors> {
    let tests: Vec<_> = REGISTRY.tests.iter().copied().chain([&FIXED]).collect();
    let registry = Registry { tests: &tests, ..REGISTRY };
    read(text, "suite.yaml", &registry, &Overrides::default())
}

fn suite(flows: &str, tests: &str) -> Result<Vec<FlowConfig>, SuiteErrors> {
    let text = format!(
        "suite: flows\nduts:\n  - {{name: linux, kind: frr}}\nports:\n  - {{name: p1, speed: 1 Gbit/s, vlans: [{{id: 100}}, {{id: [200, 7]}}]}}\n  \
         - {{name: p2, speed: 1 Gbit/s, vlans: [{{id: 300}}]}}\n{flows}tests: {tests}\n"
    );
    read_with_fixed(&text).map(|suite| suite.flows)
}

/// The first error: the text that it points at, its message and its help.
fn first(errors: &SuiteErrors) -> (String, String) {
    let first = &errors.errors[0];
    (errors.source[first.span.clone()].to_owned(), format!("{} / {}", first.message, first.help))
}

fn mistake(flows: &str, tests: &str) -> (String, String) {
    first(&suite(flows, tests).expect_err(flows))
}

const ONE: &str = "flows:\n  - {name: a, from: p1, to: p2, size: 64, rate: 1 kfps";

#[test]
fn a_flow_has_what_is_written_and_defaults_for_the_rest() {
    let flows = suite(&format!("{ONE}}}\n"), "[fixed]").unwrap();
    let [flow] = flows.as_slice() else { panic!("one flow") };
    assert_eq!(
        (flow.name.as_str(), flow.from, flow.to),
        ("a", Endpoint { port: 0, vlan: None }, Endpoint { port: 1, vlan: None })
    );
    assert_eq!((flow.family, flow.headers.len(), &flow.arrives), (Family::Ipv4, 0, &None));
    assert_eq!((flow.source.first.to_string(), flow.source.count), ("198.18.64.1".into(), 256));
    assert_eq!((flow.destination.first.to_string(), flow.destination.count), ("198.19.64.1".into(), 256));
    assert_eq!(
        (flow.rate, flow.start, flow.duration),
        (FlowRate::Frames(FrameRate(1_000.0)), Duration::ZERO, FlowDuration::Continuous)
    );
    let all = "flows:\n  - name: all\n    from: p2\n    to: p1\n    size: imix\n    rate: 20 Mbit/s\n    start: 1 s\n    frames: 70\n    \
               headers: [{ipv6: {dscp: 46}}, tcp]\n    source: 2001:db8::7\n    destination: {start: \"2001:db8:1::\", step: 5, count: 3}\n    \
               arrives: {dscp: 46, ttl: 63}\n    observe: [destinations]\n";
    let flows = suite(all, "[{fixed: {flows: [all]}}]").unwrap();
    let flow = &flows[0];
    assert_eq!(
        (flow.family, flow.rate, flow.duration),
        (Family::Ipv6, FlowRate::Bits(Bandwidth(20_000_000)), FlowDuration::Frames(70))
    );
    assert_eq!((flow.source.count, flow.destination.step, flow.destination.count), (1, 5, 3));
    assert!(flow.per_destination && flow.arrives.as_ref().is_some_and(|a| a.ttl == Some(63)));
    let text = format!("{}, duration: 3 s, family: ipv6}}\n", ONE.replace("1 kfps", "2.5 %"));
    let percent = suite(&text, "[fixed]").unwrap();
    assert_eq!(
        (percent[0].rate, percent[0].family, percent[0].duration),
        (FlowRate::Percent(2.5), Family::Ipv6, FlowDuration::Seconds(3.0))
    );
}

#[test]
fn a_sub_interface_puts_its_tags_in_front_and_expects_those_of_the_other_end() {
    let text = "flows:\n  - {name: a, from: p1.200.7, to: p2.300, size: 128, rate: 1 kfps, headers: [{ipv4: {dscp: 10}}, udp]}\n  \
                - {name: b, from: p1.100, to: p2, size: 128, rate: 1 kfps}\n";
    let flows = suite(text, "[fixed]").unwrap();
    let kinds: Vec<_> = flows[0].headers.iter().map(|h| h.kind()).collect();
    assert_eq!(kinds, [HeaderKind::Vlan, HeaderKind::Vlan, HeaderKind::Ipv4, HeaderKind::Udp]);
    let field = |i: usize, name| flows[0].headers[i].field(name).map(|f| f.bits(0));
    assert_eq!((field(0, FieldName::Vid), field(0, FieldName::Tpid)), (Some(200), Some(0x88a8)));
    assert_eq!((field(1, FieldName::Vid), field(1, FieldName::Tpid)), (Some(7), Some(0x8100)));
    assert_eq!((flows[0].from.vlan, flows[0].to.vlan), (Some(1), Some(0)));
    let vids: Vec<_> = flows[0].arrives.as_ref().unwrap().vlans.iter().map(|tag| tag.vid.get()).collect();
    assert_eq!(vids, [300]);
    // Addresses are those of the sub-interface.
    assert_ne!(flows[0].source.first, flows[1].source.first);
    assert_eq!((flows[1].headers.len(), &flows[1].arrives), (3, &None), "tag, IPv4, UDP");
}

#[test]
fn mistakes_point_at_what_they_are_about() {
    let with = |more: &str| format!("{ONE}, {more}}}\n");
    for (flows, at, part) in [
        ("flows: 7\n".to_owned(), "7", "`flows` is a list, not `7` / write for instance"),
        ("flows:\n  - {name: a}\n".into(), "{name: a}", "`from` is missing / add it"),
        (ONE.replace("64", "1519") + "}\n", "1519", "packets of 1501 bytes, more than the MTU 1500 of port `p1` / set `mtu: 1501`"),
        (with("color: red"), "color", "there is no key `color` here / known are `name`"),
        (ONE.replace("p2", "p3") + "}\n", "p3", "no port or sub-interface `p3` / "),
        (ONE.replace("p1", "p1.101") + "}\n", "p1.101", "no port or sub-interface `p1.101` / did you mean `p1.100`"),
        (ONE.replace("1 kfps", "fast") + "}\n", "fast", "`fast` is not a rate / write frames per second"),
        (ONE.replace("1 kfps", "120 %") + "}\n", "120 %", "not a rate, because it is out of range"),
        (ONE.replace("64", "12") + "}\n", "12", "64 to 9216"),
        (with("headers: [{ipv4: {dscpp: 3}}]"), "dscpp", "no key `dscpp` here / known are"),
        (with("headers: [{vlan: {vid: 4096}}]"), "4096", "does not fit a field of 12 bits / write 0 to 4095"),
        (with("family: ipv6, headers: [ipv4, udp]"), "ipv6", "the outermost IP header is IPv4, not IPv6"),
        (with("source: 8.8.8.8"), "8.8.8.8", "public addresses"),
        (with("destination: 2001:db8::1"), "2001:db8::1", "not an IPv4 address"),
        (with("destination: {start: 10.255.255.255, count: 999}"), "{start: 10.255.255.255, count: 999}", "public addresses"),
        (with("destination: {start: 10.0.0.0, count: 0}"), "{start: 10.0.0.0, count: 0}", "0 addresses / write 1 to 1000000"),
        (with("start: soon"), "soon", "/ "),
        (with("duration: 1 s, frames: 5"), "5", "`duration` and `frames` / write one of them"),
        (with("frames: 0"), "{name: a, from: p1, to: p2, size: 64, rate: 1 kfps, frames: 0}", "sends nothing"),
        (with("arrives: {vlan: 5}"), "vlan", "no key `vlan` here / known are `vlans`"),
        (with("observe: [colors]"), "colors", "`colors` is not known here / known are `destinations`"),
        ("flows:\n  - {name: a, from: p1.100, to: p2, size: 64, rate: 1 kfps, headers: [{vlan: {vid: 1}}, ipv4, udp]}\n".into(), "p1.100", "has `vlan` headers as well"),
    ] {
        let (found, message) = mistake(&flows, "[fixed]");
        assert_eq!((found.as_str(), message.contains(part)), (at, true), "{flows}\n{message}");
    }
    let twice = format!("{ONE}}}\n{}}}\n", &ONE[7..]);
    assert!(mistake(&twice, "[fixed]").1.contains("two flows are called `a`"));
}

#[test]
fn flows_that_no_router_can_tell_apart_must_arrive_alike() {
    let two = |a: &str, b: &str| {
        let flow =
            |name: &str, more: &str| format!("  - {{name: {name}, from: p1, to: p2, size: 128, rate: 1 kfps{more}}}\n");
        format!("flows:\n{}{}", flow("a", a), flow("b", b))
    };
    for (a, b, what) in [
        (", arrives: {dscp: 1}", ", arrives: {dscp: 2}", "DSCP"),
        (", arrives: {ttl: 63}", ", arrives: {ttl: 62, dscp: 0}", "TTL"),
        (", arrives: {ecn: 1}", ", arrives: {ecn: 0}", "ECN"),
        ("", ", arrives: {vlans: [{vid: 7}]}", "VLAN tags"),
        (", arrives: {vlans: [{vid: 7, pcp: 1}]}", ", arrives: {vlans: [{vid: 7, pcp: 2}]}", "VLAN tags"),
        (", headers: [ipv4, udp]", ", arrives: {labels: [{label: 16}]}", "labels"),
        (", arrives: {labels: [{label: 16, ttl: 9}]}", ", arrives: {labels: [{label: 16, ttl: 8}]}", "labels"),
        ("", ", headers: [ethernet, ipv4, udp], arrives: {tunnel: {gre: true}}", "tunnels"),
        (
            ", destination: 10.0.0.7, arrives: {ttl: 1}",
            ", destination: {start: 10.0.0.1, step: 3, count: 9}, arrives: {ttl: 2}",
            "TTL",
        ),
    ] {
        let (at, message) = mistake(&two(a, b), "[fixed]");
        assert!(message.starts_with("the flows `a` and `b` send the same headers"), "{a}{b}: {message}");
        assert!(message.contains(&format!("with different {what} / give them different")), "{a}{b}: {message}");
        assert!(at.starts_with('{') && b.contains(&at), "it points at `arrives`: {at}");
    }
    // Same place, same headers: but both demands can be met, or a field or an address tells the flows apart.
    for (a, b) in [
        ("", ""),
        (", arrives: {dscp: 1}", ", arrives: {ttl: 2}"),
        (", arrives: {vlans: [{vid: 7}]}", ", arrives: {vlans: [{vid: 7, pcp: 2}]}"),
        (", arrives: {ttl: 1}", ", arrives: {ttl: 2}, headers: [{ipv4: {dscp: 1}}, udp]"),
        (", arrives: {ttl: 1}", ", arrives: {ttl: 2}, family: ipv6"),
        (
            ", arrives: {ttl: 1}, destination: 10.0.0.3",
            ", arrives: {ttl: 2}, destination: {start: 10.0.0.2, step: 2, count: 5}",
        ),
        // Without `arrives`, the tunnel is expected as sent.
        (
            ", headers: [ipv4, gre, {ipv4: {source: 10.0.0.1, destination: 10.0.0.2}}, udp]",
            ", headers: [ipv4, gre, {ipv4: {source: 10.0.0.1, destination: 10.0.0.2}}, udp], arrives: {tunnel: {gre: true}}",
        ),
    ] {
        assert!(suite(&two(a, b), "[fixed]").is_ok(), "{a}{b}");
    }
    let elsewhere = two(", arrives: {ttl: 1}", ", arrives: {ttl: 2}").replacen("to: p2", "to: p2.300", 1);
    assert!(suite(&elsewhere, "[fixed]").is_ok());
}

#[test]
fn a_test_of_flows_needs_them() {
    let (at, message) = mistake("", "[fixed]");
    assert_eq!(
        (at.as_str(), message.contains("needs flows, but the suite has no `flows:` / add")),
        ("fixed", true),
        "{message}"
    );
    let (at, message) = mistake(&format!("{ONE}}}\n"), "[{fixed: {flows: [b]}}]");
    assert_eq!((at.as_str(), message.contains("no flow `b`")), ("b", true), "{message}");
}

#[test]
fn label_entries_have_their_place_and_their_remedy() {
    let with = |labels: &str| {
        let text = format!(
            "suite: labels\nduts:\n  - {{name: box, kind: frr}}\nports:\n  - {{name: p1, speed: 1 Gbit/s}}\n  \
             - {{name: p2, speed: 1 Gbit/s, labels: {labels}}}\ntests: [fixed]\n"
        );
        first(&read_with_fixed(&text).expect_err(labels))
    };
    for (labels, at, part) in [
        ("7", "7", "`labels` is a list, not `7` / write for instance"),
        ("[{label: 15}]", "{label: 15}", "label 15 is reserved (RFC 3032 section 2.1) / write 16 to 1048575"),
        ("[{label: 16, out: [3]}]", "{label: 16, out: [3]}", "label 3 is reserved (RFC 3032 section 2.1) / write 16"),
        ("[{label: 1048576}]", "1048576", "does not fit a field of 20 bits / write 0 to 1048575"),
        (
            "[{label: 16, out: [17, 18, 19, 20, 21]}]",
            "{label: 16, out: [17, 18, 19, 20, 21]}",
            "`out` has 5 labels / write 4 at most",
        ),
        ("[{label: 16, in: 3}]", "in", "no key `in` here / known are"),
        ("[{label: 16}, {label: 16}]", "{label: 16}", "two entries are for label 16 / give each entry"),
        // This kind forwards no labels.
        ("[{label: 16}]", "frr", "the ports need `mpls`, which routers of kind `frr` do not support"),
    ] {
        let (found, message) = with(labels);
        assert_eq!((found.as_str(), message.contains(part)), (at, true), "{labels}\n{message}");
    }
}
