//! `drophammer blast` on virtual links in a network namespace, compared with the kernel's counters.

use crate::common::{NETWORK, Ran};
use serde_json::Value;

/// Two links, va to vb and vc to vd, on which the kernel sends nothing by itself.
const LINKS: &str = "\
set -eu
for all in all default; do echo 1 > /proc/sys/net/ipv6/conf/$all/disable_ipv6 || true; done
ip link add va type veth peer name vb
ip link add vc type veth peer name vd
for link in va vb vc vd; do ip link set $link up; done
";

fn script(body: &str) -> Ran {
    Ran::script(NETWORK, &format!("{LINKS}{body}"))
}

/// The summary: the last line of the file.
fn summary(ran: &Ran, file: &str) -> Value {
    let text = ran.read(file);
    serde_json::from_str(text.lines().last().unwrap_or("")).unwrap_or_else(|e| panic!("{e}: {text}"))
}

/// Frames that va and vb sent and received, as the kernel counted them (`ip -s -j link`).
fn kernel(ran: &Ran, file: &str) -> [(u64, u64); 2] {
    let links: Vec<Value> = serde_json::from_str(&ran.read(file)).unwrap();
    ["va", "vb"].map(|interface| {
        let link = links.iter().find(|link| link["ifname"] == interface).unwrap();
        let packets = |way: &str| link["stats64"][way]["packets"].as_u64().unwrap();
        (packets("tx"), packets("rx"))
    })
}

/// Compares the summary of traffic over va and vb with the kernel's counters.
fn agree(summary: &Value, kernel: [(u64, u64); 2]) {
    let count = |direction: usize, key: &str| summary["summary"][direction][key].as_u64().unwrap_or(0);
    let others = |port: usize| summary["interfaces"][port]["other_frames_sent"].as_u64().unwrap();
    for port in 0..2 {
        let sent = count(port, "offered") - count(port, "refused") + others(port);
        assert!(others(port) > 0, "each host asked for the other one");
        assert_eq!(kernel[port].0, sent, "sent at {port}: {summary}");
        assert_eq!(kernel[port ^ 1].1, sent, "what leaves one end arrives at the other");
        let lost = count(port, "refused") + summary["tester_drops"].as_u64().unwrap();
        assert_eq!(count(port, "lost"), lost, "{summary}");
        assert_eq!(count(port, "received"), count(port, "offered") - lost);
    }
}

#[test]
fn the_summary_agrees_with_the_kernel_to_the_frame() {
    let body = "\
$D blast va vb --rate 2kfps --size 128 --for 300ms --bidirectional --json > both || echo $? > both.exit
ip -s -j link > both.kernel
";
    let ran = script(body);
    let told = summary(&ran, "both");
    agree(&told, kernel(&ran, "both.kernel"));
    for direction in 0..2 {
        // On a busy machine it sends fewer frames, and reports that.
        let row = &told["summary"][direction];
        assert!((1..=600).contains(&row["offered"].as_u64().unwrap()), "{told}");
        assert!(row["latency_p50_ns"].as_u64().unwrap() <= row["latency_max_ns"].as_u64().unwrap());
    }
    let short =
        told["unsent"].as_u64().unwrap() > 12 || told["summary"][0]["lost"] != 0 || told["summary"][1]["lost"] != 0;
    assert_eq!(ran.folder.path().join("both.exit").exists(), short, "{told}");
}

#[test]
fn ctrl_c_ends_sending_and_every_frame_is_in_the_summary() {
    // Uses two threads if there are two processors.
    let body = "\
threads=$(nproc); [ $threads -lt 3 ] || threads=2
$D blast va vb --rate 500fps --bidirectional --threads $threads --json > live & blast=$!
until [ -s live ]; do sleep 0.02; done
$D blast vb va 2> held || echo $? >> held
$D bgp va --address 192.0.2.2/24 --to 192.0.2.1 2>> held || echo $? >> held
$D bfd va --address 192.0.2.2/24 --to 192.0.2.1 2>> held || echo $? >> held
kill -INT $blast
wait $blast || echo $? > exit
ip -s -j link > kernel
$D blast vc vd --rate 500fps > table & blast=$!
until [ $(wc -l < table) -ge 3 ]; do sleep 0.02; done
# As timeout(1) does: to the program, and to its process group.
kill -INT $blast $blast
wait $blast || true
";
    let ran = script(body);
    let told = summary(&ran, "live");
    agree(&told, kernel(&ran, "kernel"));
    let held = ran.read("held");
    assert_eq!(held.matches(" belongs to drophammer blast, process ").count(), 3, "{held}");
    assert_eq!(held.matches("\n  help: end that first\n3\n").count(), 3, "{held}");
    let live = ran.read("live");
    let first: Value = serde_json::from_str(live.lines().next().unwrap()).unwrap();
    assert!(first["time_s"].as_f64().unwrap() >= 0.99 && first["received_fps"].as_f64().unwrap() > 0.0, "{first}");
    let table = ran.read("table");
    for part in ["vc to vd: 500 fps, 64 bytes, until Ctrl-C", "offered fps", "\n1 s ", "\nvc to vd  ", " % lost)"] {
        assert!(table.contains(part), "{part}: {table}");
    }
}

#[test]
fn frames_go_through_routers_where_there_are_some() {
    // The kernel is the router between vb and vd.
    let body = "\
echo 1 > /proc/sys/net/ipv4/ip_forward
ip address add 198.18.1.1/24 dev vb
ip address add 198.19.1.1/24 dev vd
$D blast va vc --rate 1kfps --for 200ms --json --address 198.18.1.2/24,198.19.1.2/24 --gateway 198.18.1.1,198.19.1.1 > routed || true
$D blast va vc --address 198.18.1.2/24,198.19.1.2/24 --gateway 198.18.1.1,198.19.1.77 2> dumb || echo $? >> dumb
";
    let ran = script(body);
    let told = summary(&ran, "routed");
    let count = |key: &str| told["summary"][0][key].as_u64().unwrap();
    assert!(count("offered") > 0 && count("received") > 0, "{told}");
    assert_eq!(count("received") + count("lost"), count("offered"));
    let dumb = ran.read("dumb");
    assert!(dumb.contains("the router 198.19.1.77 does not answer ARP on `vc`") && dumb.ends_with("\n3\n"), "{dumb}");
}

#[test]
fn frames_that_did_not_count_have_a_reason() {
    // The link behind the router has a smaller MTU.
    let body = "\
echo 1 > /proc/sys/net/ipv4/ip_forward
for link in va vb vc; do ip link set $link mtu 5000; done
ip address add 198.18.1.1/24 dev vb
ip address add 198.19.1.1/24 dev vd
routed=\"--address 198.18.1.2/24,198.19.1.2/24 --gateway 198.18.1.1,198.19.1.1\"
$D blast va vc $routed --size 4000 --rate 100fps --for 200ms --json > json || echo $? > exit
$D blast va vc $routed --size 4000 --rate 100fps --for 200ms > table || true
";
    let ran = script(body);
    let told = summary(&ran, "json");
    let error = &told["interfaces"][0]["icmp_errors"][0];
    assert_eq!((&error["type"], &error["code"], &error["mtu"]), (&3.into(), &4.into(), &1_500.into()), "{told}");
    assert_eq!((&told["summary"][0]["received"], &told["size"]), (&0.into(), &"4000 bytes".into()), "{told}");
    assert_eq!(ran.read("exit"), "1\n");
    let table = ran.read("table");
    assert!(table.contains(" x ICMP fragmentation needed (3/4), MTU 1500 came back\n"), "{table}");
}

#[test]
fn sizes_are_sent_one_after_the_other_and_a_raised_one_is_told() {
    let body = "\
$D blast va vb --rate 100fps --for 100ms --size 64,128 --family ipv6 --transport tcp > sizes 2> notes || true
$D blast vc vd --rate 100fps --for 100ms --transport icmp_echo --sources 300 --flows 40 --json > echo || true
$D blast vc vd --rate 1Gfps --for 200ms --json > fast || true
";
    let ran = script(body);
    let sizes = ran.read("sizes");
    for part in ["va to vb: 100 fps, 90 bytes, TCP, for 100 ms\n", "\nva to vb: 100 fps, 128 bytes, TCP, for 100 ms\n"]
    {
        assert!(sizes.contains(part), "{sizes}");
    }
    assert_eq!(sizes.matches("offered 10, received 10, lost 0 frames").count(), 2, "{sizes}");
    let notes = ran.read("notes");
    assert!(notes.starts_with("note: size 64 is too small") && notes.lines().count() == 1, "{notes}");
    let echo = summary(&ran, "echo");
    assert_eq!((&echo["summary"][0]["offered"], &echo["summary"][0]["lost"]), (&10.into(), &0.into()), "{echo}");
    // The tester needs seconds to send 20 ms of this load.
    let fast = summary(&ran, "fast");
    assert!(fast["sending_s"].as_f64().unwrap() < 1.0 && fast["unsent"].as_u64().unwrap() > 1_000_000, "{fast}");
}

#[test]
fn one_interface_with_two_vlans_goes_through_a_router_on_a_stick() {
    // The reference device is the router: not every kernel has VLANs.
    let vlan = |vid: u16, third: u8| {
        format!(
            r#"{{"port": 0, "tags": [{{"tpid": 33024, "vid": {vid}}}], "ipv4": ["198.{third}.1.1", 24], "ipv6": null}}"#
        )
    };
    let router = format!(
        r#"{{"links": "veth", "device": {{"ports": [{{"mac": "02:00:00:00:00:99", "mtu": 1500, "egress_buffer": 1024}}], "sub_interfaces": [{}, {}]}}}}"#,
        vlan(100, 18),
        vlan(200, 19)
    );
    let folder = tempfile::tempdir().unwrap();
    std::fs::write(folder.path().join("router.json"), router).unwrap();
    let body = "\
$D reference-device router.json socket vb 2> router & router=$!
until [ -S socket ]; do kill -0 $router; sleep 0.02; done
$D blast va --vlan 100,200 --address 198.18.1.2/24,198.19.1.2/24 --gateway 198.18.1.1,198.19.1.1 --rate 500fps --for 200ms --bidirectional --json > stick || true
$D blast va --vlan 100,300 --address 198.18.1.2/24,198.19.1.2/24 --gateway 198.18.1.1,198.19.1.1 2> dumb || echo $? >> dumb
kill $router
";
    let ran = Ran::script_in(NETWORK, folder, &format!("{LINKS}{body}"));
    let told = summary(&ran, "stick");
    let names: Vec<_> = (0..2).map(|way| told["summary"][way]["direction"].as_str().unwrap().to_owned()).collect();
    assert_eq!(names, ["va.100 to va.200", "va.200 to va.100"]);
    for way in 0..2 {
        let count = |key: &str| told["summary"][way][key].as_u64().unwrap();
        assert!(count("offered") > 0 && count("received") > 0, "{told}");
        assert_eq!(
            (count("received") + count("lost"), count("corrupted"), count("stray")),
            (count("offered"), 0, 0),
            "{told}"
        );
    }
    assert_eq!(told["interfaces"].as_array().unwrap().len(), 1, "{told}");
    let dumb = ran.read("dumb");
    assert!(
        dumb.contains("the router 198.19.1.1 does not answer ARP on `va.300`") && dumb.ends_with("\n3\n"),
        "{dumb}"
    );
}

#[test]
fn what_cannot_be_used_is_named_with_the_remedy() {
    let body = "\
try() { \"$@\" 2>&1 || echo \"exit $?\"; }
try $D blast va nothing
try $D blast va vc
try $D blast va va
try $D blast va vb --size 9000
ip link set vb down
try $D blast va vc
try $D blast vb va
";
    let ran = script(body);
    let printed: Vec<&str> = ran.printed.split_inclusive("exit ").collect();
    let expected = [
        ("`nothing`: there is no such interface\n  help: `ip link` lists them", "3"),
        ("connect `va` and `vc` by a cable", "3"),
        ("name two interfaces", "2"),
        ("`ip link set va mtu 8982`", "2"),
        ("`va` has no carrier", "3"),
        ("it is down\n  help: `ip link set vb up`", "3"),
    ];
    assert_eq!(printed.len(), expected.len() + 1, "{printed:?}");
    for (i, (words, exit)) in expected.iter().enumerate() {
        assert!(printed[i].contains(words) && printed[i + 1].starts_with(exit), "{words}: {printed:?}");
    }
}

#[test]
#[ignore = "long: `make test-all` runs it"]
fn tags_labels_and_flows_arrive_as_they_were_sent() {
    let body = "\
$D blast va vb --rate 2kfps --for 300ms --vlan 10,20 --mpls 100,200 --dscp 46 --flows 20 --bidirectional --json > all || echo $? > all.exit
ip -s -j link > kernel
$D blast vc vd --rate 100fps --until-loss --step 900% --json > raised; echo $? > raised.exit
$D blast vc vd --rate 100fps --until-loss --step 1% --json > stopped & blast=$!
until grep -q valid..true stopped; do sleep 0.02; done
kill -INT $blast
wait $blast; echo $? > stopped.exit
";
    let ran = script(body);
    let told = summary(&ran, "all");
    agree(&told, kernel(&ran, "kernel"));
    assert!(told["summary"][1]["received"].as_u64().unwrap() > 0, "{told}");
    // The rate rises tenfold until the tester or the link reaches its limit; at least one step passes.
    let last = summary(&ran, "raised");
    let passed = last["no_loss_fps"].as_f64().unwrap_or_else(|| panic!("{last}"));
    let above = last["loss_fps"].as_f64().or(last["tester_limit_fps"].as_f64()).unwrap();
    // Each step may have sent up to a hundredth less than requested.
    assert!((9.89..10.11).contains(&(above / passed)), "{last}");
    assert_eq!(ran.read("raised.exit"), "0\n");
    // A bound was found before Ctrl-C ended the search.
    assert!(summary(&ran, "stopped")["no_loss_fps"].as_f64().is_some());
    assert_eq!(ran.read("stopped.exit"), "0\n");
}

#[test]
fn interfaces_that_the_host_uses_are_refused_before_anything_is_sent() {
    let body = "\
try() { \"$@\" 2>&1 || echo \"exit $?\"; }
ip address add 192.0.2.1/24 dev va
try $D blast va vb
try $D blast vb va
try $D bgp va --address 198.51.100.2/24 --to 198.51.100.1
ip route add default via 192.0.2.9 dev va
try $D blast va vb
ip address flush dev va
ip route add 203.0.113.0/24 dev va
try $D blast va vb
ip route flush dev va
ip link add br0 type bridge
ip link set va master br0
try $D blast va vb
ip -s -j link > kernel
";
    let ran = script(body);
    let printed: Vec<&str> = ran.printed.split_inclusive("exit 3\n").collect();
    let address = "va has the address 192.0.2.1 of this machine";
    let expected = [
        address,
        address,
        address,
        "va carries this machine's default route",
        "va has the route 203.0.113.0/24 of this machine",
        "va is a member of br0",
    ];
    assert_eq!(printed.len(), expected.len(), "{printed:?}");
    for (printed, words) in printed.iter().zip(expected) {
        assert!(printed.contains(words) && printed.contains("\n  help: "), "{words}: {printed}");
        assert!(
            !printed.contains("flush") && !printed.contains("ip link set"),
            "no command that could harm: {printed}"
        );
    }
    assert_eq!(kernel(&ran, "kernel"), [(0, 0); 2]);
}

#[test]
fn programs_are_found_without_path_and_errors_have_one_style() {
    let body = "\
PATH=/nonexistent $D blast --dut linux --rate 1k --for 300ms 2> no-path || true
$D blast va lo 2> loopback || true
$D blast --frob 2> argument || true
$D blast va vb --dscp af44 2> value || true
";
    let ran = script(body);
    let no_path = ran.read("no-path");
    assert!(!no_path.contains("Cannot allocate memory") && !no_path.contains("SIGKILL"), "{no_path}");
    for (file, cause, help) in [
        ("loopback", "error: lo is the loopback interface of this machine\n", "  help: name an interface"),
        ("argument", "error: unexpected argument '--frob' found\n", "  help: a similar argument exists: '--for'\n"),
        ("value", "af44 is not a DSCP\n", "  help: write 0 to 63, or `ef`"),
    ] {
        let shown = ran.read(file);
        assert!(shown.starts_with("error: ") && shown.contains(cause) && shown.contains(help), "{shown}");
        assert!(!shown.contains("remedy:") && !shown.contains("tip:"), "{shown}");
    }
}
