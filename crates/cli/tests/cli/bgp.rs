//! `drophammer bgp` with BIRD, FRR or no BGP speaker at the other end of a virtual link, in a network namespace.

use crate::common::{MACHINE, Ran, good, run_suite};
use serde_json::Value;
use std::path::Path;

/// The link.
const LINK: &str = "\
set -eu
for all in all default; do echo 1 > /proc/sys/net/ipv6/conf/$all/disable_ipv6 || true; done
ip link add va type veth peer name vb
ip address add 192.0.2.1/24 dev vb
for link in va vb lo; do ip link set $link up; done
";

/// BIRD at vb, with two routes to advertise.
const BIRD: &str = "\
cat > bird.conf <<'END'
router id 192.0.2.1;
protocol device {}
protocol static two { ipv4; route 198.51.100.0/25 blackhole; route 198.51.100.128/25 blackhole; }
protocol bgp tester {
    local 192.0.2.1 as 65000;
    neighbor 192.0.2.2 as 65001;
    ipv4 { import all; export where proto = \"two\"; };
}
END
bird -c bird.conf -s bird.ctl -P bird.pid
trap 'kill $(cat bird.pid)' EXIT
";

/// User, network and process namespaces: when the first process ends, the kernel kills all others.
const NAMESPACES: &[&str] = &["--user", "--map-root-user", "--net", "--pid", "--fork", "--kill-child"];

#[test]
fn a_table_arrives_and_routes_come_back() {
    let body = format!(
        "{LINK}{BIRD}
$D bgp va --address 192.0.2.2/24 --to 192.0.2.1 --routes 5000 --seed 1 > told & bgp=$!
for i in $(seq 600); do birdc -s bird.ctl show route count protocol tester > count; grep -q '^5000 of' count && break; sleep 0.1; done
birdc -s bird.ctl show protocols all tester > session
until awk '$3 == \"Established\" && $7 == 2 {{ found = 1 }} END {{ exit !found }}' told; do sleep 0.1; done
kill -INT $bgp
wait $bgp; echo $? > exit
for i in $(seq 600); do birdc -s bird.ctl show route count protocol tester > after; grep -q '^0 of' after && break; sleep 0.1; done
$D bgp va --address 192.0.2.2/24 --to 192.0.2.1 --routes 100 --for 0s --json > again; echo $? >> exit
"
    );
    let ran = Ran::script(NAMESPACES, &body);
    let told = ran.read("told");
    assert!(ran.read("count").contains("5000 of 5002 routes"), "{told}");
    assert!(ran.read("session").contains("Established"));
    assert!(ran.read("after").contains("0 of 2 routes"), "the session was ended");
    let first =
        "va: BGP from 192.0.2.2 (AS 65001) to 192.0.2.1 (AS 65000), 5,000 IPv4 routes (internet), until Ctrl-C\n";
    assert!(told.starts_with(first), "{told}");
    assert!(told.contains("session up after ") && told.contains("s: 5,000 routes in "), "{told}");
    assert!(told.ends_with("\nadvertised 5,000 routes, received 2 and 0 withdrawals\n"), "{told}");
    let again = ran.read("again");
    let last: Value = serde_json::from_str(again.lines().last().unwrap()).unwrap();
    assert_eq!(last["summary"]["advertised"], 100, "{again}");
    assert_eq!(last["summary"]["losses"], 0);
    assert_eq!(ran.read("exit"), "0\n0\n");
}

#[test]
fn a_session_that_ends_is_told_with_its_cause() {
    let body = format!(
        "{LINK}{BIRD}
$D bgp va --address 192.0.2.2/24 --to 192.0.2.1 > told & bgp=$!
until grep -q 'session up' told; do sleep 0.1; done
birdc -s bird.ctl disable tester > disabled
until grep -q 'session down' told; do sleep 0.1; done
kill -INT $bgp
wait $bgp || echo $? > exit
"
    );
    let ran = Ran::script(NAMESPACES, &body);
    let told = ran.read("told");
    assert!(told.contains("session down after ") && told.contains("Cease"), "{told}");
    assert!(told.contains("warning: the session went down once"), "{told}");
    assert_eq!(ran.read("exit"), "1\n");
}

#[test]
fn a_session_that_never_came_up_says_nothing_of_the_router() {
    for passive in ["", "--passive"] {
        // There is no BGP speaker at vb.
        let body = format!(
            "{LINK}
$D bgp va --address 192.0.2.2/24 --to 192.0.2.1 {passive} > told & bgp=$!
until grep -q '^time' told; do sleep 0.1; done
kill -INT $bgp
wait $bgp || echo $? > exit
"
        );
        let ran = Ran::script(NAMESPACES, &body);
        let told = ran.read("told");
        assert!(told.ends_with("\nthe session did not come up\n"), "{told}");
        assert_eq!(ran.read("exit"), "3\n", "{passive}");
    }
}

/// An MRT file (RFC 6396 section 4.3) with two routes of one peer. The second has 1,200 communities, which do not fit
/// into a message of 4,096 bytes.
fn table() -> Vec<u8> {
    let record = |subtype: u8, body: &[u8]| {
        let length = (body.len() as u32).to_be_bytes();
        [&[0, 0, 0, 0, 0, 13, 0, subtype][..], &length, body].concat()
    };
    let rib = |prefix: &[u8], attributes: &[u8]| {
        let length = (attributes.len() as u16).to_be_bytes();
        // A number, the prefix, and one entry: peer 0, its time, and its attributes.
        record(2, &[&[0u8; 4][..], prefix, &[0, 1, 0, 0, 0, 0, 0, 0], &length, attributes].concat())
    };
    let peer = [0u8, 1, 2, 192, 0, 2, 9, 192, 0, 2, 9, 0, 0, 0xfb, 0xf4];
    let peers = [&[192u8, 0, 2, 255, 0, 4][..], b"view", &peer].concat();
    // ORIGIN, AS_PATH 64500 10, NEXT_HOP.
    let plain = [0x40u8, 1, 1, 0, 0x40, 2, 10, 2, 2, 0, 0, 0xfb, 0xf4, 0, 0, 0, 10, 0x40, 3, 4, 192, 0, 2, 9];
    let communities: Vec<u8> = (0..1_200u32).flat_map(|n| ((64_500u32 << 16) + n).to_be_bytes()).collect();
    // COMMUNITIES, with a length of two bytes.
    let length = (communities.len() as u16).to_be_bytes();
    let long = [&plain[..], &[0xd0, 8], &length, &communities].concat();
    [record(1, &peers), rib(&[8, 20], &plain), rib(&[24, 21, 2, 3], &long)].concat()
}

#[test]
fn a_route_with_too_long_attributes_is_told_with_a_remedy_that_helps() {
    let error = "error: so far, 1 route has attributes too long for the peer's longest message\n  help: enable \
                 extended messages (RFC 8654) on the peer, or leave these routes out\n";
    for (extended, errors, exit) in [("off", error, "1\n"), ("on", "", "0\n")] {
        let folder = tempfile::tempdir().unwrap();
        std::fs::write(folder.path().join("rib.mrt"), table()).unwrap();
        let neighbor = "neighbor 192.0.2.2 as 65001;";
        assert!(BIRD.contains(neighbor));
        let bird = BIRD.replace(neighbor, &format!("{neighbor} enable extended messages {extended};"));
        let body = format!(
            "{LINK}{bird}
code=0
$D bgp va --address 192.0.2.2/24 --to 192.0.2.1 --table rib.mrt --routes 2 --for 0s > told 2> error || code=$?
echo $code > exit
"
        );
        let ran = Ran::script_in(NAMESPACES, folder, &body);
        let (told, said) = (ran.read("told"), ran.read("error"));
        assert_eq!(ran.read("exit"), exit, "{told}{said}");
        assert!(said.ends_with(errors), "{said}");
        assert_eq!(told.contains("\nadvertised 2 routes, "), extended == "on", "{told}");
    }
}

/// [`table`] with more attributes, none of them too long, and with a route of a peer that the file does not list.
fn rich_table() -> Vec<u8> {
    let whole = table();
    let record = |at: usize| HEAD + u32::from_be_bytes(whole[at + 8..at + 12].try_into().unwrap()) as usize;
    const HEAD: usize = 12;
    let (peers, first) = whole.split_at(record(0));
    let mut first = first[..record(peers.len())].to_vec();
    // ATOMIC_AGGREGATE, AGGREGATOR, a route target, and an unknown attribute.
    let more = [
        &[0x40u8, 6, 0][..],
        &[0xc0, 7, 8, 0, 0, 0xfb, 0xf5, 192, 0, 2, 7],
        &[0xc0, 16, 8, 0, 2, 0, 100, 0, 0, 0, 5],
        &[0xc0, 222, 2, 0xab, 0xcd],
    ]
    .concat();
    let attributes = HEAD + 4 + 2 + 2 + 6;
    let length = u16::from_be_bytes([first[attributes], first[attributes + 1]]) + more.len() as u16;
    first[attributes..attributes + 2].copy_from_slice(&length.to_be_bytes());
    first.extend(more);
    let body = (first.len() - HEAD) as u32;
    first[8..12].copy_from_slice(&body.to_be_bytes());
    let mut stray = first.clone();
    stray[HEAD + 8..HEAD + 10].copy_from_slice(&7u16.to_be_bytes());
    [peers, &first, &stray].concat()
}

#[test]
fn without_a_number_the_whole_file_is_advertised_with_its_attributes() {
    let folder = tempfile::tempdir().unwrap();
    std::fs::write(folder.path().join("rib.mrt"), rich_table()).unwrap();
    let body = format!(
        "{LINK}{BIRD}
$D bgp va --address 192.0.2.2/24 --to 192.0.2.1 --table rib.mrt > told & bgp=$!
for i in $(seq 600); do birdc -s bird.ctl show route all 20.0.0.0/8 > route || true; grep -q 'BGP.as_path' route && break; sleep 0.1; done
kill -INT $bgp
wait $bgp; echo $? > exit
"
    );
    let ran = Ran::script_in(NAMESPACES, folder, &body);
    let (told, route) = (ran.read("told"), ran.read("route"));
    let lost = "1 IPv4 routes (rib.mrt, AS 64500 (192.0.2.9); routes that cannot be read, left out: 1; the first one left out: record 3 has a \
                route of peer 7";
    assert!(told.contains(lost) && told.contains("\nadvertised 1 routes, "), "{told}");
    for attribute in
        ["BGP.as_path: 65001 10", "BGP.atomic_aggr:", "192.0.2.7 AS64501", "(rt, 100, 5)", "BGP.de [t]: ab cd"]
    {
        assert!(route.contains(attribute), "{attribute}: {route}");
    }
    assert_eq!(ran.read("exit"), "0\n");
}

/// Addresses of vb for sessions over link-local addresses, between loopbacks, and on a /31.
const FAR: &str = "\
for all in all default vb; do echo 0 > /proc/sys/net/ipv6/conf/$all/disable_ipv6 || true; done
ip address flush dev vb
ip address add fe80::1/64 dev vb nodad
ip address add 192.0.2.3/31 dev vb
ip address add 10.0.0.1/32 dev lo
ip route add 10.0.0.2/32 via 192.0.2.2
";
/// The sessions to test, with the options of the tester.
const SESSIONS: [(&str, &str); 3] = [
    ("link-local", "--address fe80::2/64 --to fe80::1%va"),
    ("loopback", "--address 192.0.2.2/31 --gateway 192.0.2.3 --source 10.0.0.2 --to 10.0.0.1"),
    ("slash31", "--address 192.0.2.2/31 --to 192.0.2.3"),
];

/// Runs the sessions, one after the other. The shell function `count` of `setup` prints how many routes the router has from the session that its
/// argument names.
fn far(namespaces: &[&str], setup: &str) {
    let mut body = format!("{LINK}{FAR}{setup}");
    for (name, options) in SESSIONS {
        body += &format!(
            "
$D bgp va {options} --routes 100 > {name} & bgp=$!
for i in $(seq 300); do [ \"$(count {name})\" = 100 ] && grep -q acknowledged {name} && break; sleep 0.1; done
echo \"{name} $(count {name})\" >> counts
kill -INT $bgp
wait $bgp || echo \"{name} $?\" >> failed
"
        );
    }
    let ran = Ran::script(namespaces, &body);
    let told = SESSIONS.map(|(name, _)| ran.read(name)).concat();
    assert_eq!(
        (ran.read("counts").as_str(), ran.read("failed").as_str()),
        ("link-local 100\nloopback 100\nslash31 100\n", ""),
        "{told}"
    );
}

#[test]
fn bird_peers_over_link_local_addresses_between_loopbacks_and_on_short_links() {
    let setup = "\
cat > bird.conf <<'END'
router id 192.0.2.1;
protocol device {}
protocol direct { ipv4; ipv6; }
protocol static { ipv4; route 10.0.0.2/32 via 192.0.2.2; }
template bgp tester { local as 65000; ipv4 { import all; export none; }; }
protocol bgp linklocal { local fe80::1 as 65000; neighbor fe80::2%vb as 65001; ipv6 { import all; export none; }; }
protocol bgp loopback from tester { local 10.0.0.1 as 65000; neighbor 10.0.0.2 as 65001; multihop 5; }
protocol bgp slash31 from tester { neighbor 192.0.2.2 as 65001; }
END
bird -c bird.conf -s bird.ctl -P bird.pid
trap 'kill $(cat bird.pid)' EXIT
count() { birdc -s bird.ctl show route count protocol $(echo $1 | tr -d -) | sed -n 's/^\\([0-9]*\\) of .*/\\1/p' | grep -v '^0$' | head -1; }
";
    far(NAMESPACES, setup);
}

/// FRR needs its own user, so the test needs root.
#[test]
fn frr_peers_over_link_local_addresses_between_loopbacks_and_on_short_links() {
    if !nix::unistd::geteuid().is_root() || !Path::new("/usr/lib/frr/bgpd").exists() {
        println!("NOT CHECKED: this needs root and FRR");
        return;
    }
    let setup = "\
for dir in /run /var/tmp /etc/frr; do mount -t tmpfs none $dir; done
mkdir -p /run/frr
cat > /etc/frr/bgpd.conf <<'END'
router bgp 65000
 bgp router-id 192.0.2.1
 no bgp ebgp-requires-policy
 no bgp default ipv4-unicast
 neighbor fe80::2 remote-as 65001
 neighbor fe80::2 interface vb
 neighbor 10.0.0.2 remote-as 65001
 neighbor 10.0.0.2 update-source 10.0.0.1
 neighbor 10.0.0.2 ebgp-multihop 5
 neighbor 192.0.2.2 remote-as 65001
 address-family ipv4 unicast
  neighbor 10.0.0.2 activate
  neighbor 192.0.2.2 activate
 exit-address-family
 address-family ipv6 unicast
  neighbor fe80::2 activate
 exit-address-family
END
touch /etc/frr/vtysh.conf /etc/frr/zebra.conf
chown -R frr:frr /run/frr /etc/frr
for daemon in zebra bgpd; do
    /usr/lib/frr/$daemon -d -f /etc/frr/$daemon.conf > $daemon.log 2>&1
    for i in $(seq 100); do [ -S /run/frr/$daemon.vty ] && break; sleep 0.1; done
done
count() {
    case $1 in
    link-local) vtysh -c 'show bgp ipv6 unicast summary' | awk '$1 == \"fe80::2\" { print $10 }' ;;
    loopback) vtysh -c 'show bgp ipv4 unicast summary' | awk '$1 == \"10.0.0.2\" { print $10 }' ;;
    slash31) vtysh -c 'show bgp ipv4 unicast summary' | awk '$1 == \"192.0.2.2\" { print $10 }' ;;
    esac
}
";
    far(MACHINE, setup);
}

/// Links with two addresses (RFC 3021 and RFC 6164). The host has the higher address on one link, the lower address on
/// the other.
#[test]
#[ignore = "long: `make test-all` runs it"]
fn suites_run_on_links_with_two_addresses() {
    if !nix::unistd::geteuid().is_root() || !Path::new("/usr/lib/frr/bgpd").exists() {
        println!("NOT CHECKED: this needs root and FRR");
        return;
    }
    let folder = tempfile::tempdir().unwrap();
    let suite = r#"
suite: short-links
rounds: 1
duts: [{name: frr, kind: frr}, {name: bird, kind: bird}]
ports:
  - name: p1
    speed: 1G
    ipv4: {dut: 198.18.1.0/31, host: 198.18.1.1, behind: 198.18.64.0/18}
    ipv6: {dut: "2001:2:0:1::/127", host: "2001:2:0:1::1", behind: "2001:2:0:4000::/50"}
  - name: p2
    speed: 1G
    ipv4: {dut: 198.19.1.1/31, host: 198.19.1.0, behind: 198.19.64.0/18}
    ipv6: {dut: "2001:2:0:8001::1/127", host: "2001:2:0:8001::", behind: "2001:2:0:c000::/50"}
bgp: {}
tests:
  - bgp_table_capacity: {step: 100, max_routes: 100, families: [ipv4, ipv6], expect: {bgp_capacity_ipv4_routes: ">= 100", bgp_capacity_ipv6_routes: ">= 100"}}
"#;
    std::fs::write(folder.path().join("suite.yaml"), suite).unwrap();
    good(&run_suite(&folder.path().join("suite.yaml"), &folder.path().join("out"), &["--plain", "--busy-host"]));
}
