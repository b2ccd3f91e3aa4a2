//! Tests of the conversion of the command line into a job.

use super::*;
use crate::args::parsed;
use crate::on_link;
use drophammer_model::traffic::Header;
use drophammer_model::trial::Family;
use drophammer_rig::Config;
use std::net::IpAddr;

fn read(line: &str) -> Result<Job, String> {
    Job::read_each(&parsed(line)?).map(|mut jobs| jobs.remove(0))
}

#[test]
fn rates_are_frames_bits_or_a_share_of_the_line() {
    let pps = |line: &str| read(&format!("a b {line}")).unwrap().rate.pps();
    assert_eq!(pps(""), 1_000.0);
    assert_eq!(pps("--rate 100kfps"), 100_000.0);
    assert_eq!(pps("--rate 512Mbit/s --size 64"), 1_000_000.0);
    assert_eq!(pps("--rate 50% --speed 10Gbit/s --size 64").trunc(), 7_440_476.0);
    assert_eq!(pps("--rate 672Mbit/s --size 84 --address 2001:2::1/64,2001:2::2/64"), 1_000_000.0);
}

#[test]
fn what_cannot_be_is_refused_with_what_can() {
    for (line, word) in [
        ("a a", "name two interfaces"),
        ("a", "one interface needs two VLANs"),
        ("a --vlan 100", "one interface needs two VLANs"),
        ("a --vlan 100,200", "with their addresses"),
        ("a --vlan 100,100 --address 198.18.1.2/24,198.19.1.2/24 --gateway 198.18.1.1,198.19.1.1", "two VLANs"),
        ("", "required"),
        ("a b --size 64,128", "several sizes need --for"),
        ("a b --size 64,128 --until-loss", "--until-loss takes one size"),
        ("a b --size 64,20 --for 1s", "--size"),
        ("a b --family ipv6 --address 198.18.1.2/24,198.18.1.3/24", "IPv4 addresses"),
        ("a b --family ipv4 --address 2001:2::1/64,2001:2::2/64", "IPv6 addresses"),
        ("a b --transport sctp", "udp, tcp, icmp_echo"),
        ("a b --sources 300 --address 198.18.1.2/24,198.18.1.3/24", "do not fit into its /24"),
        ("a b --sources 10 --address 198.18.1.2/24,198.18.1.3/24", "is the gateway and one of the 10"),
        ("a b --sources 2 --flows 100000", "leave out --sources"),
        ("a b --dut linux", "cannot be used with"),
        ("--dut linux --vlan 10", "cannot be used with"),
        ("--dut nothing", "possible values"),
        ("--dut linux --rate 50%", "--speed"),
        ("a b --rate fast", "100 Mbit/s"),
        ("a b --rate 100M", "it can be 100Mbit/s or 100Mfps"),
        ("a b --dscp af44", "write 0 to 63, or `ef`"),
        ("a b --size 40", "`ip40`"),
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
        ("a b --flows 0", "0 is not in 1..=500000"),
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
    assert_eq!((trial.size.mean_frame_bytes(false), trial.flows.len()), (80.0, 6));
    let ports: Vec<_> = trial.flows.iter().map(|flow| format!("{:?}", flow.headers.last().unwrap())).collect();
    assert!(ports[0] != ports[1] && ports[0] == ports[3], "{ports:?}");
    let arrives = trial.flows[5].arrives.clone().unwrap();
    assert_eq!((arrives.vlans[1].vid.get(), arrives.labels[0].label.get()), (20, 100));
    let headline = job.headline();
    assert!(headline.ends_with(", 64 bytes, VLAN 10,20, MPLS 100,200, DSCP 46, 3 flows, until Ctrl-C"), "{headline}");
    let args = parsed("a b --vlan 10 --mpls 1,2").unwrap();
    let mut job = Job::read(&args).unwrap();
    assert_eq!(job.fit(&args, "a", 54), Ok(()));
    assert!(job.fit(&args, "a", 53).unwrap_err().contains("`ip link set a mtu 54`"));
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
    let host = Unresolved { port: 1, tags: Tags::NONE };
    assert!(job.unanswered(&host).contains("198.19.1.1 does not answer ARP on `b`"));
}

const STICK: &str = "a --vlan 100,200 --address 198.18.1.2/24,198.19.1.2/24 --gateway 198.18.1.1,198.19.1.1";

#[test]
fn one_interface_has_both_ends_in_vlans_of_their_own() {
    let job = read(&format!("{STICK} --bidirectional --flows 2")).unwrap();
    assert_eq!(job.headline(), "a.100 to a.200 and back: 1,000 fps, 64 bytes, 2 flows, until Ctrl-C");
    let trial = job.trial();
    let vids = |flow: &FlowSpec| {
        let Header::Vlan(vlan) = &flow.headers[0] else { panic!("{:?}", flow.headers) };
        (vlan.vid.first().get(), flow.arrives.as_ref().unwrap().vlans[0].vid.get())
    };
    let seen: Vec<_> = trial.flows.iter().map(|flow| (flow.from, flow.to, vids(flow))).collect();
    assert_eq!(seen, [(0, 0, (100, 200)), (0, 0, (100, 200)), (0, 0, (200, 100)), (0, 0, (200, 100))]);
    let port = job.port_config(1, 0, 1_500);
    let tags: Vec<String> = port.devices.iter().map(|device| device.tags.to_string()).collect();
    assert_eq!(tags, ["VLAN 100", "VLAN 200"]);
    assert!(Config { seed: 1, ports: vec![port] }.check(1).is_ok());
    let host = Unresolved { port: 0, tags: Tags::dot1q(200).unwrap() };
    assert!(job.unanswered(&host).contains("198.19.1.1 does not answer ARP on `a.200`"));
}

#[test]
fn sizes_come_one_after_the_other_and_are_never_smaller_than_sent() {
    let words = |line: &str| {
        let jobs = Job::read_each(&parsed(line).unwrap()).unwrap();
        jobs.iter().map(Job::size_words).collect::<Vec<_>>()
    };
    assert_eq!(words("a b --size 64,imix,1518 --for 1s"), ["64 bytes", "imix", "1518 bytes"]);
    assert_eq!(words("a b --size imix:7x64,4x570"), ["imix:7x64,4x570"]);
    for (line, least) in [
        ("", None),
        ("--transport icmp_echo", None),
        ("--transport tcp", Some(70)),
        ("--family ipv6", Some(78)),
        ("--family ipv6 --transport tcp", Some(90)),
    ] {
        let job = read(&format!("a b {line}")).unwrap();
        assert_eq!(job.trial().size.mean_frame_bytes(false), f64::from(least.unwrap_or(64)), "{line}");
        let note = least.map(|bytes| format!("{bytes} bytes are sent instead"));
        assert_eq!(job.notes().len(), usize::from(note.is_some()), "{line}");
        assert!(job.notes().iter().zip(note).all(|(told, note)| told.contains("size 64 is") && told.ends_with(&note)));
    }
    let mix = read("a b --size imix:7x64,4x570,1x70 --family ipv6").unwrap();
    assert!(mix.notes()[0].starts_with("size 64, 70 are too small"), "{:?}", mix.notes());
}

#[test]
fn flows_have_ports_and_sources_of_their_own() {
    let flows = |line: &str| read(&format!("a b {line}")).unwrap().trial().flows;
    let key = |flow: &FlowSpec| (flow.sources.first, format!("{:?}", flow.headers.last().unwrap()));
    let many = flows("--flows 100000");
    let different: std::collections::BTreeSet<_> = many.iter().map(key).collect();
    assert_eq!((many.len(), different.len()), (100_000, 100_000));
    assert_eq!(many[99_999].sources.first, "198.18.0.3".parse::<IpAddr>().unwrap());
    let echo = &flows("--transport icmp_echo --family ipv6 --flows 3")[2];
    let Some(Header::IcmpEcho(header)) = echo.headers.last() else { panic!("{:?}", echo.headers) };
    assert_eq!((header.identifier.first(), echo.family), (49_154, Family::Ipv6));
    let sweep = &flows("--sources 5000")[0];
    assert_eq!((sweep.sources.count, sweep.destinations.count()), (5_000, 1));
    let host = read("a b --sources 5000").unwrap();
    assert!(host.headline().contains("64 bytes, 5,000 source addresses"));
    let port = host.port_config(1, 1, 1_500);
    assert_eq!(port.devices[0].also, [("198.19.0.3".parse().unwrap(), 4_999)], "it answers for all of them");
}
