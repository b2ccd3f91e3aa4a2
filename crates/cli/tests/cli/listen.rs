//! `drophammer listen` on a virtual link in a network namespace, compared with the kernel's counters.

use crate::common::{NETWORK, Ran};
use serde_json::Value;

const LINK: &str = "\
set -eu
for all in all default; do echo 1 > /proc/sys/net/ipv6/conf/$all/disable_ipv6 || true; done
ip link add va type veth peer name vb
for link in va vb; do ip link set $link up; done
";

fn script(body: &str) -> Ran {
    Ran::script(NETWORK, &format!("{LINK}{body}"))
}

/// The kernel's counters of vb in the output of `ip -s -j link`.
fn counters(links: &str) -> Value {
    let links: Vec<Value> = serde_json::from_str(links).unwrap();
    links.iter().find(|link| link["ifname"] == "vb").unwrap()["stats64"].clone()
}

#[test]
fn every_frame_that_comes_is_counted_and_named() {
    let body = "\
$D listen vb --for 60s > heard & listen=$!
until [ -s heard ]; do sleep 0.02; done
$D blast va vb --rate 1kfps --for 300ms --vlan 10 --flows 2 --json > sent || true
kill -INT $listen
wait $listen || echo $? > exit
ip -s -j link > kernel
$D listen vb --for 50ms --json > silence
";
    let ran = script(body);
    let heard = ran.read("heard");
    assert!(heard.starts_with("vb: listening for 60 s\ntime "), "{heard}");
    let number = |text: &str| text.replace(',', "").parse::<u64>().unwrap();
    let rows = heard.lines().skip_while(|line| !line.ends_with("  what")).skip(1);
    let counts: Vec<(u64, String)> = rows
        .map(|line| {
            let mut words = line.split_whitespace();
            (number(words.next().unwrap()), words.skip(1).collect::<Vec<_>>().join(" "))
        })
        .collect();
    let sent: Value = serde_json::from_str(ran.read("sent").lines().last().unwrap()).unwrap();
    let left = |key: &str| sent["summary"][0][key].as_u64().unwrap_or(0);
    let of = |end: &str| counts.iter().filter(|(_, what)| what.ends_with(end)).map(|row| row.0).sum::<u64>();
    assert!(left("offered") > 0, "{sent}");
    assert_eq!(of("> 9"), left("offered") - left("refused"), "{heard}");
    for flow in ["49152", "49153"] {
        assert!(of(&format!("vlan 10, 198.18.0.2 > 198.18.0.3 udp {flow} > 9")) > 0, "{heard}");
    }
    // The kernel has counted every frame too, including the hosts' ARP.
    assert!(of("vlan 10, arp") > 0, "{heard}");
    let received = counters(&ran.read("kernel"))["rx"]["packets"].as_u64().unwrap();
    assert_eq!(counts.iter().map(|row| row.0).sum::<u64>(), received, "{heard}");
    assert_eq!(ran.read("exit"), "");
    let silence: Value = serde_json::from_str(ran.read("silence").lines().last().unwrap()).unwrap();
    assert_eq!((silence["frames"].as_u64(), silence["interface"].as_str()), (Some(0), Some("vb")));
}

#[test]
fn nothing_is_sent() {
    // The kernel at va sends ARP requests for an address that nobody has.
    let body = "\
ip address add 198.18.0.1/24 dev va
$D listen vb --for 60s > heard & listen=$!
until [ -s heard ]; do sleep 0.02; done
bash -c 'echo x > /dev/udp/198.18.0.2/9'
while ip -s -j link show vb | grep -q 'rx.:{.bytes.:0,'; do sleep 0.02; done
kill -INT $listen
wait $listen
ip -s -j link > kernel
";
    let ran = script(body);
    let heard = ran.read("heard");
    assert!(heard.contains("arp"), "{heard}");
    let vb = counters(&ran.read("kernel"));
    assert!(vb["rx"]["packets"].as_u64().unwrap() > 0);
    assert_eq!(vb["tx"]["packets"], 0, "listen sends nothing");
}

#[test]
fn an_interface_that_is_not_there_is_named() {
    let ran = script("$D listen vx 2> said || echo $? >> said\n");
    let said = ran.read("said");
    assert!(said.contains("`vx`") && said.ends_with("3\n"), "{said}");
}
