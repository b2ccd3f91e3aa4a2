//! Valid suites: given and omitted keys become the right values.
use crate::common::{FULL, QUICK_LOOK, REGISTRY, suite};
use drophammer_model::environment::About;
use drophammer_model::quantity::Bandwidth;
use drophammer_model::registry::{FigureShape, ParamKind, ParamSpec, Registry, TableShape, TestSpec};
use drophammer_model::suite::DEFAULT_SEED;
use drophammer_model::suite::{BaselineFigure, Cells, ParamValue, Profile};
use drophammer_model::trial::Family;
use drophammer_suite::check_specs;
use drophammer_suite::read::{Overrides, read};
use std::time::Duration;

#[test]
fn quick_look_is_right_and_uses_the_benchmarking_blocks() {
    let suite = suite(QUICK_LOOK).unwrap_or_else(|e| panic!("{e}"));
    assert_eq!((suite.name.as_str(), suite.profile, suite.seed), ("quick-look", Profile::Quick, DEFAULT_SEED));
    assert_eq!(suite.duts.iter().map(|d| d.kind.as_str()).collect::<Vec<_>>(), ["frr", "bird"]);
    let tests: Vec<_> = suite.tests.iter().map(|t| t.test.as_str()).collect();
    assert_eq!(
        tests,
        ["throughput", "forwarding_rate", "frame_loss_rate", "latency", "back_to_back", "system_recovery"]
    );
    let [p1, p2] = suite.ports.as_slice() else { panic!("two ports") };
    assert_eq!((p1.speed, p1.mtu), (Bandwidth(1_000_000_000), 1500));
    let shown = |port: &drophammer_model::suite::PortConfig, family| {
        let a = port.addressing(family).unwrap();
        let (net, len) = a.behind;
        let d = a.destinations;
        format!("{}/{} {} {net}/{len} {}+{}*{}", a.dut, a.prefix_len, a.host, d.first, d.step, d.count)
    };
    assert_eq!(shown(p1, Family::Ipv4), "198.18.1.1/24 198.18.1.2 198.18.64.0/18 198.18.64.1+64*256");
    assert_eq!(shown(p2, Family::Ipv4), "198.19.1.1/24 198.19.1.2 198.19.64.0/18 198.19.64.1+64*256");
    let step = 1u64 << 63;
    assert_eq!(
        shown(p1, Family::Ipv6),
        format!("2001:2:0:1::1/64 2001:2:0:1::2 2001:2:0:4000::/50 2001:2:0:4000::1+{step}*256")
    );
    assert_eq!(
        shown(p2, Family::Ipv6),
        format!("2001:2:0:8001::1/64 2001:2:0:8001::2 2001:2:0:c000::/50 2001:2:0:c000::1+{step}*256")
    );
}

#[test]
fn every_key_is_read() {
    let suite = suite(FULL).unwrap_or_else(|e| panic!("{e}"));
    assert_eq!((suite.title.as_str(), suite.seed), ("Everything at once", 7));
    assert_eq!(suite.duts[0].params.count("threads"), Some(2));
    assert_eq!(suite.duts[1].params.texts("interfaces"), Some(vec!["eth1".into(), "eth2".into()]));
    assert_eq!(suite.duts[1].params.texts("far_interfaces"), Some(vec!["ge-0/0/0".into(), "7".into()]));
    assert_eq!(suite.duts[1].params.text("note").as_deref(), Some("left, third row"));
    let a = suite.ports[0].ipv4.as_ref().unwrap();
    assert_eq!((a.destinations.count, a.destinations.step, a.prefix_len), (1000, 65, 30));
    // The default host is the DUT's neighbour.
    assert_eq!(suite.ports[1].ipv4.as_ref().unwrap().host.to_string(), "10.0.0.6");
    let [throughput, latency, own, reset] = suite.tests.as_slice() else { panic!("four tests") };
    let sizes = |t: &drophammer_model::suite::TestConfig| {
        t.params.sizes("frame_sizes").unwrap().iter().map(ToString::to_string).collect::<Vec<_>>().join(" ")
    };
    assert_eq!(sizes(throughput), "64 ip40 imix");
    assert_eq!(sizes(latency), "64 ip40 imix");
    assert_eq!(sizes(own), "imix:7x64,4x570 imix-2001 9018");
    assert_eq!(throughput.params.families("families"), Some(vec![Family::Ipv6, Family::Ipv4]));
    assert_eq!(throughput.params.duration("duration"), Some(Duration::from_secs(60)));
    assert_eq!(throughput.params.rate("floor"), None);
    assert_eq!(own.params.duration("duration"), Some(Duration::from_secs(120)));
    assert_eq!(own.params.duration("settle"), Some(Duration::ZERO));
    assert_eq!(own.params.rate("floor").map(|r| r.pps()), Some(1500.0));
    assert_eq!(own.params.flag("verify"), Some(false));
    assert_eq!(own.params.number("precision"), Some(0.1));
    assert_eq!(latency.params.numbers("loads"), Some(vec![10.0, 0.5, 100.0]));
    assert_eq!(latency.params.count("trials"), Some(3));
    assert_eq!(reset.params.text("reset_command").as_deref(), Some("ssh router reload"));
    let expected: Vec<_> = own.expect.iter().map(|e| (e.figure.as_str(), e.at_least, e.bound)).collect();
    assert_eq!(expected, [("throughput_9018_pps", true, 100_000.0), ("throughput_imix-2001_pps", false, 5.0)]);
}

#[test]
fn durations_in_criteria_are_in_the_unit_of_the_figure() {
    let with = |test: &str, key: &str, bound: &str| {
        let text = QUICK_LOOK.replace(
            "  - system_recovery",
            &format!("  - {test}: {{expect: {{{key}: \"{bound}\"}}}}\n  - reset: {{reset_command: x}}"),
        );
        suite(&text).unwrap_or_else(|e| panic!("{e}")).tests[5].expect[0].bound
    };
    assert_eq!(with("latency", "latency_64_ns", "<= 500 us"), 500_000.0);
    assert_eq!(with("latency", "latency_64_ns", "<=500"), 500.0);
    assert_eq!(with("system_recovery", "recovery_64_s", "<= 250 ms"), 0.25);
    assert_eq!(with("frame_loss_rate", "loss_64_percent", "<= 0.5 %"), 0.5);
    assert_eq!(with("back_to_back", "burst_64_frames", ">= 1000"), 1000.0);
}

#[test]
fn cells_of_tables_may_be_bounded() {
    let with = |expect: &str| {
        let text = QUICK_LOOK.replace("  - frame_loss_rate", &format!("  - frame_loss_rate: {{expect: {{{expect}}}}}"));
        assert_ne!(text, QUICK_LOOK);
        suite(&text).unwrap_or_else(|e| panic!("{e}")).tests[2].expect.clone()
    };
    let cells = "frame_loss_rate[frame_size=64, load_percent=100].loss_percent";
    let [one] = with(&format!("\"{cells}\": \"<= 0.1 %\"")).try_into().unwrap();
    assert_eq!((one.figure.as_str(), one.at_least, one.bound), (cells, false, 0.1));
    assert_eq!(one.cells, Some(cells.parse::<Cells>().unwrap()));
    // The bound has the unit of the column, and each DUT may have its own bound.
    let by_dut = with("frame_loss_rate.latency_us: {frr: \"<= 1 ms\", bird: \"<= 5\"}");
    let found: Vec<_> = by_dut.iter().map(|e| (e.figure.as_str(), e.bound, e.dut.as_deref())).collect();
    let all = "frame_loss_rate.latency_us";
    assert_eq!(found, [(all, 1_000.0, Some("frr")), (all, 5.0, Some("bird"))]);
    // Without declared tables, the criterion is checked after the test.
    let text = QUICK_LOOK.replace("  - system_recovery", "  - system_recovery: {expect: {any.thing: \">= 1\"}}");
    let last = suite(&text).unwrap_or_else(|e| panic!("{e}")).tests[5].expect.clone();
    assert_eq!(last[0].cells.as_ref().unwrap().table, "any");
}

#[test]
fn a_bound_may_be_a_share_of_a_baseline() {
    let with = |head: &str, bound: &str| {
        let text = QUICK_LOOK
            .replace("  - system_recovery", &format!("  - latency: {{expect: {{latency_64_ns: \"{bound}\"}}}}"));
        read(&format!("{head}{text}"), "suites/s.yaml", &REGISTRY, &Overrides::default())
            .unwrap_or_else(|e| panic!("{e}"))
    };
    for (text, at_least, share) in [
        (">= 95 % of baseline", true, 95.0),
        ("<=110% of baseline", false, 110.0),
        (">= 1,000.5 %  of baseline", true, 1000.5),
    ] {
        let suite = with("", text);
        let expected = &suite.tests[5].expect[0];
        assert_eq!((expected.at_least, expected.bound), (at_least, share), "{text}");
        assert_eq!(expected.baseline, Some(BaselineFigure::default()), "nothing is read of it yet");
        assert!(suite.needs_baseline() && suite.baseline.is_none());
    }
    let suite = with("baseline: ../results/old\n", "<= 5 us");
    assert!(!suite.needs_baseline());
    assert_eq!(suite.baseline.unwrap().folder, "suites/../results/old");
    assert_eq!(with("baseline: /var/old\n", "<= 5 us").baseline.unwrap().folder, "/var/old");
}

#[test]
fn the_command_line_wins_over_the_file_and_the_profile_fills_in_the_rest() {
    let overrides = Overrides { profile: Some(Profile::Conformant), seed: Some(9), ..Overrides::default() };
    let suite = read(QUICK_LOOK, "q", &REGISTRY, &overrides).unwrap();
    assert_eq!((suite.profile, suite.seed), (Profile::Conformant, 9));
    assert_eq!(suite.tests[0].params.duration("duration"), Some(Duration::from_secs(60)));
    assert_eq!(suite.tests[3].params.count("trials"), Some(20));
}

#[test]
fn sixteen_ports_get_addresses_that_are_apart() {
    let ports: String = (1..=16).map(|i| format!("  - {{name: p{i}, speed: 1 Gbit/s}}\n")).collect();
    let text = format!("suite: many\nduts: [{{name: a, kind: frr}}]\nports:\n{ports}tests: [throughput]\n");
    assert_eq!(suite(&text).unwrap_or_else(|e| panic!("{e}")).ports.len(), 16);
}

#[test]
fn public_addresses_need_to_be_asked_for_and_a_million_destinations_fit_a_large_prefix() {
    let text = "suite: s\nduts: [{name: a, kind: frr}]\nallow_public_addresses: true\ntests: [throughput]\nports:\n\
                - {name: p1, speed: 1 Gbit/s, ipv6: off, ipv4: {behind: 8.0.0.0/8, destinations: 1000000}}\n\
                - {name: p2, speed: 1 Gbit/s, ipv6: off}\n";
    let suite = suite(text).unwrap_or_else(|e| panic!("{e}"));
    let range = suite.ports[0].ipv4.as_ref().unwrap().destinations;
    assert_eq!((range.first.to_string().as_str(), range.step, range.count), ("8.0.0.1", 16, 1_000_000));
    assert!(suite.ports[0].ipv6.is_none());
}

#[test]
fn an_alias_carries_the_value_of_its_anchor() {
    let text = "suite: s\nduts: [{name: a, kind: frr}]\ntests: [throughput]\nports:\n\
                - {name: p1, speed: &speed 1 Gbit/s}\n- {name: p2, speed: *speed}\n";
    let suite = suite(text).unwrap_or_else(|e| panic!("{e}"));
    assert_eq!(suite.ports[1].speed, Bandwidth(1_000_000_000));
}

#[test]
fn a_family_that_is_off_is_refused_for_tests_that_use_it() {
    let text = "suite: s\nduts: [{name: a, kind: frr}]\ntests:\n- throughput\n- latency: {families: [ipv6, ipv4]}\nports:\n\
                - {name: p1, speed: 1 Gbit/s, ipv4: off}\n- {name: p2, speed: 1 Gbit/s, ipv4: off}\n";
    let errors = suite(text).unwrap_err();
    let places: Vec<_> = errors.errors.iter().map(|e| (e.line, &text[e.span.clone()])).collect();
    assert_eq!(places, [(4, "throughput"), (5, "ipv4")], "{errors}");
    assert!(errors.errors[0].help.contains("families: [ipv6]"));
}

#[test]
fn values_survive_being_written_out_as_json_and_read_again() {
    let json = suite(FULL).unwrap().tests[2].params.to_json();
    let text = format!(
        "suite: s\nduts: [{{name: a, kind: frr}}]\ntests: [throughput: {}]\nports: {}\n",
        {
            // In stored form a rate is a plain number of frames per second.
            let mut json = json.clone();
            json["floor"] = serde_json::json!(format!("{} fps", json["floor"]));
            json
        },
        "[{name: p1, speed: 1 Gbit/s, mtu: 9198}, {name: p2, speed: 1 Gbit/s, mtu: 9198}]",
    );
    let again = suite(&text).unwrap_or_else(|e| panic!("{e}"));
    assert_eq!(again.tests[0].params.to_json(), json);
}

#[test]
fn check_specs_finds_what_is_wrong_with_a_registry() {
    assert_eq!(check_specs(&REGISTRY), Vec::<String>::new());
    static BAD: TestSpec = TestSpec {
        name: "Bad Name",
        title: "",
        summary: "",
        source: "",
        params: &[
            ParamSpec::new("duration", ParamKind::Duration, "60", "60 s", "Help."),
            ParamSpec::new("expect", ParamKind::Flag, "true", "on", "Help."),
            ParamSpec::optional("duration", ParamKind::Count, ""),
        ],
        figures: &[FigureShape { key: "x_{size}", help: "" }],
        tables: &[TableShape { key: "x", columns: &["a"], numeric: &[] }],
        needs: &[],
    };
    let found = check_specs(&Registry { tests: &[&BAD], kinds: &[] });
    for part in [
        "`Bad Name`: a name",
        "default for quick",
        "default for conformant",
        "something else",
        "listed twice",
        "no help",
        "lists sizes",
        "table `x` does not say",
    ] {
        assert!(found.iter().any(|f| f.contains(part)), "{part} in {found:#?}");
    }
    // A suite that uses an invalid default gets an error that says so.
    let errors = read(
        "suite: s\ntests: [Bad Name]\nduts: [x]\nports: [x]\n",
        "f",
        &Registry { tests: &[&BAD], kinds: &[] },
        &Overrides::default(),
    )
    .unwrap_err();
    assert!(
        errors.errors.iter().any(|e| e.message.contains("the default `60`") && e.help.contains("bug in Drophammer")),
        "{errors}"
    );
    assert_eq!(ParamValue::Flag(true).to_json(), serde_json::json!(true));
}

#[test]
fn bgp_has_defaults_and_reaches_every_port() {
    let with = |section: &str| {
        suite(&format!(
            "suite: s\nduts: [{{name: a, kind: frr}}]\nports: [{{name: p1, speed: 1 Gbit/s}}, {{name: p2, speed: 1 Gbit/s}}]\n\
             tests: [throughput]\n{section}"
        ))
        .unwrap_or_else(|e| panic!("{e}"))
    };
    assert!(
        with("").bgp.is_none() && with("").ports.iter().all(|p| p.bgp.is_none() && p.peers(Family::Ipv4).is_empty())
    );
    for section in ["bgp: {}", "bgp:"] {
        let read = with(section);
        let bgp = read.bgp.unwrap();
        assert_eq!((bgp.dut_as, bgp.tester_as, bgp.peers_per_port), (65000, 65001, 1));
        assert_eq!((bgp.hold_time.as_secs(), bgp.families), (90, vec![Family::Ipv4, Family::Ipv6]));
        let ases = read.ports.iter().map(|p| p.bgp.as_ref().map(|b| (b.asn, b.dut_as)));
        assert!(ases.eq([Some((65001, 65000)), Some((65002, 65000))]));
    }
    let read = with("bgp: {peers_per_port: 3, families: [ipv6], hold_time: 9 s, dut_as: 4200000000, tester_as: 64512}");
    assert_eq!(
        read.ports[1].bgp.as_ref().map(|b| (b.asn, b.dut_as, b.hold.as_secs())),
        Some((64513, 4_200_000_000, 9))
    );
    let peers =
        ["2001:2:0:8001::2", "2001:2:0:8001::3", "2001:2:0:8001::4"].map(|a| a.parse::<std::net::IpAddr>().unwrap());
    assert_eq!(read.ports[1].peers(Family::Ipv6), peers);
    assert!(read.ports[1].peers(Family::Ipv4).is_empty());
    assert_eq!(with("bgp: {}").bgp.map(|bgp| bgp.peers_per_vlan), Some(0));
    // Ports with internal peers use the DUT's AS number instead of their own.
    let read = with("bgp: {internal: [p2], next_hop_self: true, dut_as: 65002}");
    let of = |b: &drophammer_model::suite::PortBgp| (b.asn, b.is_internal(), b.next_hop_self);
    let ports: Vec<_> = read.ports.iter().filter_map(|p| p.bgp.as_ref().map(of)).collect();
    assert_eq!(ports, [(65001, false, true), (65002, true, true)]);
    let read = with("bgp: {md5: sesame, gtsm: true}");
    for protection in read.ports.iter().filter_map(|p| p.bgp.as_ref()).map(|b| &b.protection) {
        assert_eq!((protection.md5.as_ref().map(|key| key.expose()), protection.gtsm), (Some("sesame"), true));
    }
    let shown = format!("{read:?} {}", serde_json::to_string(&read.bgp).unwrap());
    assert!(!shown.contains("sesame"), "{shown}");
    let read = with("bgp: {internal: [p2, p1]}");
    assert!(read.ports.iter().all(|p| p.bgp.as_ref().is_some_and(|b| b.protection.is_none())));
    assert!(read.ports.iter().all(|p| p.bgp.as_ref().is_some_and(|b| b.is_internal() && b.asn == 65000)));
}

#[test]
fn sub_interfaces_have_tags_and_addresses_of_their_own() {
    let text = "suite: v\nduts: [{name: f, kind: frr}]\nports:\n  - name: p1\n    speed: 1 Gbit/s\n    vlans:\n      - {id: 100}\n      \
                - {id: 100, tpid: 0x88a8, ipv6: off}\n      - {id: [100, 200]}\n      - {id: [100, 200], tpid: 0x8100, ipv4: {dut: 10.0.0.1/24, \
                behind: 10.1.0.0/16}}\n  - {name: p2, speed: 1 Gbit/s, vlans: [{id: 1}]}\ntests: [throughput]\n";
    let suite = suite(text).unwrap_or_else(|e| panic!("{e}"));
    let [p1, p2] = suite.ports.as_slice() else { panic!("two ports") };
    let tags: Vec<Vec<_>> = p1.vlans.iter().map(|v| v.tags.iter().map(|t| (t.tpid, t.vid)).collect()).collect();
    let expected = [
        vec![(0x8100, 100)],
        vec![(0x88a8, 100)],
        vec![(0x88a8, 100), (0x8100, 200)],
        vec![(0x8100, 100), (0x8100, 200)],
    ];
    assert_eq!(tags, expected);
    let shown = |v: &drophammer_model::suite::VlanConfig, family| {
        let a = v.addressing(family).unwrap();
        format!("{}/{} {} {}/{} {}", a.dut, a.prefix_len, a.host, a.behind.0, a.behind.1, a.destinations.count)
    };
    assert_eq!(shown(&p1.vlans[0], Family::Ipv4), "198.18.16.1/27 198.18.16.2 198.18.32.0/26 62");
    assert_eq!(shown(&p1.vlans[2], Family::Ipv4), "198.18.16.65/27 198.18.16.66 198.18.32.128/26 62");
    assert_eq!(shown(&p1.vlans[3], Family::Ipv4), "10.0.0.1/24 10.0.0.2 10.1.0.0/16 256");
    assert_eq!(shown(&p1.vlans[2], Family::Ipv6), "2001:2:0:102::1/64 2001:2:0:102::2 2001:2:0:202::/64 256");
    assert_eq!(shown(&p2.vlans[0], Family::Ipv6), "2001:2:0:8100::1/64 2001:2:0:8100::2 2001:2:0:8200::/64 256");
    assert!(p1.vlans[1].ipv6.is_none());
}

#[test]
fn sub_interfaces_follow_the_families_of_their_port() {
    let vlans = |vlans: &str| {
        let ports = format!(
            "[{{name: p1, speed: 1 Gbit/s, ipv6: off, vlans: {vlans}}}, {{name: p2, speed: 1 Gbit/s, ipv6: off}}]"
        );
        suite(&format!("suite: v\nduts: [{{name: f, kind: frr}}]\nports: {ports}\ntests: [throughput]\n"))
    };
    assert!(vlans("[{id: 1}]").unwrap().ports[0].vlans[0].ipv6.is_none());
    assert!(vlans("[]").unwrap().ports[0].vlans.is_empty());
    let error = vlans("[{id: 1, ipv6: {}}]").unwrap_err().to_string();
    assert!(error.contains("the port has `ipv6: off`") && error.contains("t.yaml:3:"), "{error}");
    // Sixteen have defaults; a further one is refused with what it needs.
    let many = |n: u16| format!("[{}]", (1..=n).map(|id| format!("{{id: {id}}}")).collect::<Vec<_>>().join(", "));
    assert_eq!(vlans(&many(16)).unwrap().ports[0].vlans.len(), 16);
    let error = vlans(&many(17)).unwrap_err().to_string();
    assert!(error.contains("only the first 16 sub-interfaces") && error.contains("ipv4: off"), "{error}");
    let own = "{id: 17, ipv4: {dut: 10.0.0.1/24, behind: 10.1.0.0/16}}";
    assert_eq!(vlans(&many(16).replace(']', &format!(", {own}]"))).unwrap().ports[0].vlans.len(), 17);
}

#[test]
fn files_are_relative_to_the_suite() {
    let text = "suite: v\nduts: [{name: f, kind: frr, config: my/f.conf}, {name: g, kind: frr, config: /etc/g.conf}]\n\
                ports: [{name: p1, speed: 1 Gbit/s}, {name: p2, speed: 1 Gbit/s}]\ntests: [throughput]\n";
    let suite =
        read(text, "some/folder/suite.yaml", &REGISTRY, &Overrides::default()).unwrap_or_else(|e| panic!("{e}"));
    let config = |i: usize| suite.duts[i].params.text("config").unwrap();
    assert_eq!((config(0).as_str(), config(1).as_str()), ("some/folder/my/f.conf", "/etc/g.conf"));
}

#[test]
fn peers_on_sub_interfaces_follow_those_of_their_port() {
    let read = suite(
        "suite: s\nduts: [{name: a, kind: frr}]\nports:\n  - {name: p1, speed: 1 Gbit/s, vlans: [{id: 100}, {id: [100, 200], ipv6: off}]}\n  \
         - {name: p2, speed: 1 Gbit/s}\nbgp: {peers_per_vlan: 2}\ntests: [throughput]\n",
    )
    .unwrap_or_else(|e| panic!("{e}"));
    let links: Vec<_> = read.ports[0].peer_links().map(|l| (l.vlan, l.family, l.peers.len())).collect();
    let expected = [
        (None, Family::Ipv4, 1),
        (None, Family::Ipv6, 1),
        (Some(0), Family::Ipv4, 2),
        (Some(0), Family::Ipv6, 2),
        (Some(1), Family::Ipv4, 2),
    ];
    assert_eq!(links, expected);
    assert_eq!(read.ports[1].peer_links().count(), 2);
    assert_eq!(read.ports[0].peers(Family::Ipv4), ["198.18.1.2".parse::<std::net::IpAddr>().unwrap()]);
    // The neighbours of the router are at the sub-interfaces.
    let role = drophammer_model::role::RouterRole::of(&read.ports);
    let groups = role.bgp.unwrap().groups;
    let seen: Vec<_> = groups.iter().map(|g| (g.at.port, g.at.vlan, g.asn, g.local.to_string())).collect();
    assert_eq!(seen[4], (0, Some(1), 65001, "198.18.16.33".into()), "{seen:?}");
    assert_eq!(groups[4].peers, ["198.18.16.34", "198.18.16.35"].map(|a| a.parse::<std::net::IpAddr>().unwrap()));
    assert_eq!(seen.len(), 7);
}

#[test]
fn published_figures_are_read_as_they_are_written() {
    let published = "published: [{test: latency, title: \"Last year's\", source: a report, columns: [router, fps], rows: [[old, 1.50], [new, \"-\"]]}]\n\
                     profile: conformant";
    let suite = suite(&FULL.replacen("profile: conformant", published, 1)).unwrap_or_else(|e| panic!("{e}"));
    let [table] = suite.about.published.as_slice() else { panic!("{:?}", suite.about.published) };
    assert_eq!((table.test.as_str(), table.title.as_str(), &table.meaning), ("latency", "Last year's", &None));
    assert_eq!(table.columns, ["router", "fps"]);
    assert_eq!(table.rows, [["old", "1.50"], ["new", "-"]]);
}

#[test]
fn published_figures_of_tests_are_read_by_router() {
    let published = "published: [{test: frame_loss_rate, title: Loss, source: a report, unit: per mille, routers: [\"A (2001)\", B], figures: {loss_64_percent: [1.5, \"-\"], \"frame_loss_rate[ frame_size=64,load_percent='100'].loss_percent\": none}}]";
    let suite = suite(&format!("{QUICK_LOOK}\n{published}\n")).unwrap_or_else(|e| panic!("{e}"));
    let [entry] = suite.about.published.as_slice() else { panic!("{:?}", suite.about.published) };
    assert_eq!(
        (entry.routers.as_slice(), entry.unit.as_deref()),
        (["A (2001)", "B"].map(String::from).as_slice(), Some("per mille"))
    );
    assert!(entry.columns.is_empty() && entry.rows.is_empty());
    assert_eq!(entry.values("loss_64_percent").collect::<Vec<_>>(), [("A (2001)", "1.5")]);
    // A single value without a list applies to all routers; the key is written the same way everywhere.
    let cells = "frame_loss_rate[frame_size=64, load_percent=100].loss_percent";
    assert_eq!(entry.values(cells).collect::<Vec<_>>(), [("A (2001)", "none"), ("B", "none")]);
}

#[test]
fn published_figures_may_be_of_one_test_by_its_id_and_of_sizes_that_are_not_sent() {
    let tests = "tests:\n  - throughput: {id: short, frame_sizes: [64]}\n  - throughput: {frame_sizes: [1518]}\n";
    let head = QUICK_LOOK.split("tests:").next().unwrap();
    let entry = |id: &str, router: &str| {
        format!(
            "{{test: throughput{id}, title: t, source: s, routers: [{router}], figures: {{throughput_64_pps: 1, throughput_imix_pps: 2}}}}"
        )
    };
    let published = format!("published: [{}, {}]\n", entry(", id: short", "A"), entry("", "B"));
    let suite = suite(&format!("{head}{tests}{published}")).unwrap_or_else(|e| panic!("{e}"));
    let meant: Vec<_> = suite.about.published.iter().map(|e| (e.test.as_str(), e.id.as_deref())).collect();
    assert_eq!(meant, [("throughput", Some("short")), ("throughput", None)]);
    assert!(suite.about.published.iter().all(|entry| entry.values("throughput_imix_pps").count() == 1));
}

#[test]
fn digests_are_read_with_their_columns_in_order_whatever_tests_are_selected() {
    let digest = "digest:\n  - title: As in the document\n    by: frame_size\n    columns:\n      \"+25 %\": \"frame_loss_rate[ load_percent=50 ].loss_percent\"\n      remark: {cell: frame_loss_rate.remark, test: frame_loss_rate}\n";
    let overrides = Overrides { tests: vec!["latency".into()], ..Overrides::default() };
    let suite =
        read(&format!("{QUICK_LOOK}\n{digest}"), "t.yaml", &REGISTRY, &overrides).unwrap_or_else(|e| panic!("{e}"));
    let [read] = suite.about.digests.as_slice() else { panic!("{:?}", suite.about.digests) };
    assert_eq!((read.title.as_str(), read.by.as_deref()), ("As in the document", Some("frame_size")));
    let columns: Vec<_> = read.columns.iter().map(|c| [c.title.as_str(), c.test.as_str(), c.key.as_str()]).collect();
    let expected = [
        ["+25 %", "frame_loss_rate", "frame_loss_rate[load_percent=50].loss_percent"],
        ["remark", "frame_loss_rate", "frame_loss_rate.remark"],
    ];
    assert_eq!(columns, expected);
    // The record of the run has it, and can be read again.
    let stored = serde_json::to_string(&suite.about).unwrap();
    assert_eq!(serde_json::from_str::<About>(&stored).unwrap(), suite.about);
    assert!(!suite.about.is_empty());
}

#[test]
fn facts_for_the_report_are_read_in_order() {
    let about = "about: {place: lab 3, by: Jane Doe, frr-1: {serial number: 1234, year: 2024}}\nprofile: conformant";
    let suite = suite(&FULL.replacen("profile: conformant", about, 1)).unwrap_or_else(|e| panic!("{e}"));
    let pair = |key: &str, value: &str| (key.to_owned(), value.to_owned());
    assert_eq!(suite.about.facts, [pair("place", "lab 3"), pair("by", "Jane Doe")]);
    assert_eq!(suite.about.dut("frr-1"), [pair("serial number", "1234"), pair("year", "2024")]);
    assert!(suite.about.dut("rack.router").is_empty());
    let many: String = (0..21).map(|i| format!("f{i}: x, ")).collect();
    let many = FULL.replacen("profile: conformant", &format!("about: {{{many}}}\nprofile: conformant"), 1);
    let errors = crate::common::suite(&many).unwrap_err().to_string();
    assert!(errors.contains("21 facts are too many") && errors.contains("20 at most"), "{errors}");
}
