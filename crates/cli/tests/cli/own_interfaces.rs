//! Interfaces of this machine that cannot be used, or go down during a test: this is the tester's failure, never the router's. The tests run in
//! namespaces that end with them.

use crate::common::{MACHINE, kind_of, records, refused, shell};
use std::path::Path;

/// The router is the kernel of the namespace `router`, with the ends r1 and r2 of the links.
pub const ROUTER: &str = "\
set -eu
mount -t sysfs none /sys
mount -t tmpfs none /run
ip link set lo up
ip netns add router
ip netns exec router sysctl -qw net.ipv4.ip_forward=1
for i in 1 2; do
    ip link add eth$i type veth peer name r$i netns router
    echo 1 > /proc/sys/net/ipv6/conf/eth$i/disable_ipv6
    ip link set eth$i up
    ip -n router link set r$i up
done
cat > setup <<'END'
ip -n router address replace $PORT_0_IPV4_DUT dev r1
ip -n router address replace $PORT_1_IPV4_DUT dev r2
ip -n router route replace $PORT_0_IPV4_BEHIND via $PORT_0_IPV4_HOST
ip -n router route replace $PORT_1_IPV4_BEHIND via $PORT_1_IPV4_HOST
END
";

pub fn suite(folder: &Path, setup: bool) {
    let setup = if setup { ", setup: '. ./setup'" } else { "" };
    let suite = format!(
        "suite: own\nprofile: quick\nrounds: 1\nduts:\n  - {{name: box, kind: external, interfaces: [eth1, eth2]{setup}}}\n\
         ports: [{{name: p1, speed: 1 Gbit/s}}, {{name: p2, speed: 1 Gbit/s}}]\n\
         tests:\n  - soak: {{frame_size: 64, duration: 60 s, rate: 1000 fps}}\n"
    );
    std::fs::write(folder.join("suite.yaml"), suite).unwrap();
}

fn is_root() -> bool {
    let root = nix::unistd::geteuid().is_root();
    if !root {
        eprintln!("skipped: only root can use interfaces of this machine");
    }
    root
}

#[test]
fn what_cannot_be_used_is_refused_before_anything_starts() {
    if !is_root() {
        return;
    }
    let spoilt = [
        ("ip link del eth2", "this machine has no interface eth2"),
        ("ip -n router link set r2 down", "eth2 has no link"),
        ("ip link set eth2 down", "eth2 is down"),
        ("ip address add 10.9.9.9/24 dev eth2", "eth2 has the address 10.9.9.9 of this machine"),
        ("D=\"setpriv --reuid 65534 --regid 65534 --clear-groups $D\"", "only root can use eth1 and eth2 in a run"),
    ];
    for (spoil, message) in spoilt {
        let folder = tempfile::tempdir().unwrap();
        suite(folder.path(), false);
        let body = format!("{ROUTER}{spoil}\nchmod 755 .\nexec $D run suite.yaml --out out\n");
        let said = refused(&shell(MACHINE, folder.path(), &body).output().unwrap(), 3, message);
        assert!(said.contains("help: "), "{spoil}: {said}");
        assert!(!folder.path().join("out").exists(), "{spoil}: nothing was started");
    }
}

#[test]
fn an_interface_that_is_set_down_is_not_the_death_of_the_router() {
    if !is_root() {
        return;
    }
    let folder = tempfile::tempdir().unwrap();
    suite(folder.path(), true);
    let body = format!(
        "{ROUTER}$D run suite.yaml --out out --plain --json --busy-host > events 2> errors & run=$!
until grep -q '\"rates\"' events; do kill -0 $run; sleep 0.05; done
ip link set eth1 down
status=0; wait $run || status=$?
exit $status
"
    );
    let output = shell(MACHINE, folder.path(), &body).output().unwrap();
    let read = |name: &str| std::fs::read_to_string(folder.path().join(name)).unwrap_or_default();
    assert_eq!(output.status.code(), Some(6), "{}{}", read("events"), read("errors"));
    let records = records(&folder.path().join("out"));
    let test = records.iter().find(|record| kind_of(record) == "test" && record["test"] == "soak").unwrap();
    let status = test["status"].to_string();
    assert!(status.contains("the interface eth1 of this machine went down"), "{status}");
    assert!(!read("out/report.txt").contains("device under test died"), "{}", read("out/report.txt"));
}

#[test]
fn blast_and_bgp_tell_what_they_counted_until_then() {
    if !is_root() {
        return;
    }
    let folder = tempfile::tempdir().unwrap();
    let body = "\
set -eu
for all in all default; do echo 1 > /proc/sys/net/ipv6/conf/$all/disable_ipv6; done
ip link add va type veth peer name vb
ip link set va up; ip link set vb up
$D blast va vb --rate 1kfps > blast 2> blast.errors & blast=$!
until [ $(wc -l < blast) -ge 3 ]; do kill -0 $blast; sleep 0.05; done
ip link set va down
wait $blast || echo $? >> blast
ip link set va up
$D bgp va --address 192.0.2.2/24 --to 192.0.2.1 --as 65001 --peer-as 65000 --passive > passive 2> passive.errors &
$D bgp vb --address 192.0.2.1/24 --to 192.0.2.2 --as 65000 --peer-as 65001 --routes 100 > bgp 2> bgp.errors & bgp=$!
until grep -q acknowledged bgp; do kill -0 $bgp; sleep 0.05; done
ip link set vb down
wait $bgp || echo $? >> bgp
";
    let output = shell(MACHINE, folder.path(), body).output().unwrap();
    let read = |name: &str| std::fs::read_to_string(folder.path().join(name)).unwrap_or_default();
    assert!(output.status.success(), "{output:?} {} {}", read("blast.errors"), read("bgp.errors"));
    let blast = read("blast");
    assert!(blast.contains("\nva to vb  ") && blast.ends_with("\n3\n"), "{blast}");
    assert!(read("blast.errors").contains("va"), "{}", read("blast.errors"));
    let bgp = read("bgp");
    assert!(bgp.contains("100 routes") && bgp.ends_with("\n3\n"), "{bgp}");
}
