//! `drophammer bgp` against BIRD, or nobody, at the other end of a virtual link, in a separate network namespace.

use serde_json::Value;
use std::path::Path;
use std::process::{Command, Output};

/// The link.
const LINK: &str = "\
set -eu
for all in all default; do echo 1 > /proc/sys/net/ipv6/conf/$all/disable_ipv6 || true; done
ip link add va type veth peer name vb
ip address add 192.0.2.1/24 dev vb
for link in va vb lo; do ip link set $link up; done
";

/// BIRD at vb, which has two routes to advertise.
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

/// Runs a shell script in separate namespaces, which end with it.
fn script(folder: &Path, body: &str) -> Output {
    let mut command = Command::new("unshare");
    // When the first process of a PID namespace ends, all others are killed.
    let namespaces = ["--user", "--map-root-user", "--net", "--pid", "--fork", "--kill-child"];
    command.args(namespaces).args(["bash", "-c", body]);
    command.current_dir(folder).env("D", env!("CARGO_BIN_EXE_drophammer")).env("NO_COLOR", "1");
    command.output().expect("unshare is there")
}

fn read(folder: &Path, file: &str) -> String {
    std::fs::read_to_string(folder.join(file)).unwrap()
}

#[test]
fn a_table_arrives_and_routes_come_back() {
    let folder = tempfile::tempdir().unwrap();
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
    let output = script(folder.path(), &body);
    assert!(output.status.success(), "{}", String::from_utf8_lossy(&output.stderr));
    let told = read(folder.path(), "told");
    assert!(read(folder.path(), "count").contains("5000 of 5002 routes"), "{told}");
    assert!(read(folder.path(), "session").contains("Established"));
    assert!(read(folder.path(), "after").contains("0 of 2 routes"), "the session was ended");
    let first =
        "va: BGP from 192.0.2.2 (AS 65001) to 192.0.2.1 (AS 65000), 5,000 IPv4 routes (internet), until Ctrl-C\n";
    assert!(told.starts_with(first), "{told}");
    assert!(told.contains("session up after ") && told.contains("s: 5,000 routes in "), "{told}");
    assert!(told.ends_with("\nadvertised 5,000 routes, received 2 and 0 withdrawals\n"), "{told}");
    let again = read(folder.path(), "again");
    let last: Value = serde_json::from_str(again.lines().last().unwrap()).unwrap();
    assert_eq!(last["summary"]["advertised"], 100, "{again}");
    assert_eq!(last["summary"]["losses"], 0);
    assert_eq!(read(folder.path(), "exit"), "0\n0\n");
}

#[test]
fn a_session_that_ends_is_told_with_its_cause() {
    let folder = tempfile::tempdir().unwrap();
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
    let output = script(folder.path(), &body);
    assert!(output.status.success(), "{}", String::from_utf8_lossy(&output.stderr));
    let told = read(folder.path(), "told");
    assert!(told.contains("session down after ") && told.contains("Cease"), "{told}");
    assert!(told.contains("warning: the session went down once"), "{told}");
    assert_eq!(read(folder.path(), "exit"), "1\n");
}

#[test]
fn a_session_that_never_came_up_says_nothing_of_the_router() {
    for passive in ["", "--passive"] {
        let folder = tempfile::tempdir().unwrap();
        // Nobody speaks BGP at vb.
        let body = format!(
            "{LINK}
$D bgp va --address 192.0.2.2/24 --to 192.0.2.1 {passive} > told & bgp=$!
until grep -q '^time' told; do sleep 0.1; done
kill -INT $bgp
wait $bgp || echo $? > exit
"
        );
        let output = script(folder.path(), &body);
        assert!(output.status.success(), "{}", String::from_utf8_lossy(&output.stderr));
        let told = read(folder.path(), "told");
        assert!(told.ends_with("\nthe session did not come up\n"), "{told}");
        assert_eq!(read(folder.path(), "exit"), "3\n", "{passive}");
    }
}

/// An MRT file (RFC 6396 section 4.3) with two routes of one peer. The second has 1,200 communities, which do not fit a
/// message of 4,096 bytes.
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
    let error = "error: so far, 1 route has attributes too long for the peer's longest message; enable extended \
                 messages (RFC 8654) on the peer, or leave these routes out\n";
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
        let output = script(folder.path(), &body);
        assert!(output.status.success(), "{}", String::from_utf8_lossy(&output.stderr));
        let (told, said) = (read(folder.path(), "told"), read(folder.path(), "error"));
        assert_eq!(read(folder.path(), "exit"), exit, "{told}{said}");
        assert!(said.ends_with(errors), "{said}");
        assert_eq!(told.contains("\nadvertised 2 routes, "), extended == "on", "{told}");
    }
}
