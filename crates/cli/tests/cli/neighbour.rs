//! `drophammer ospf`, `ldp`, `rsvp` and `bfd` at both ends of a virtual link, and with FRR, in a network namespace.

use crate::common::{Ran, refused, run};
use serde_json::Value;

/// The link between two testers.
const LINK: &str = "\
set -eu
for all in all default; do echo 1 > /proc/sys/net/ipv6/conf/$all/disable_ipv6 || true; done
ip link add va type veth peer name vb
for link in va vb lo; do ip link set $link up; done
";

/// User, network and process namespaces: when the first process ends, the kernel kills all others.
const NAMESPACES: &[&str] = &["--user", "--map-root-user", "--net", "--pid", "--fork", "--kill-child"];

/// The last line of an output of JSON: the summary.
fn summary(output: &str) -> Value {
    let last: Value = serde_json::from_str(output.lines().last().expect("an output")).expect("JSON");
    last["summary"].clone()
}

/// Runs `drophammer` with `left` at va until it ends, and with `right` at vb at the same time; the first word of each is the command.
/// Returns the two summaries. The left one must end with exit code 0.
fn both(left: &str, right: &str) -> [Value; 2] {
    let at = |words: &str, interface: &str, own: u8, other: u8| {
        let (command, options) = words.split_once(' ').unwrap_or((words, ""));
        format!("$D {command} {interface} --address 192.0.2.{own}/24 --to 192.0.2.{other} {options} --json")
    };
    let body = format!(
        "{LINK}
{} > right & right=$!
{} --for 1s > left; echo $? > exit
kill -INT $right
wait $right || true
",
        at(right, "vb", 1, 2),
        at(left, "va", 2, 1)
    );
    let ran = Ran::script(NAMESPACES, &body);
    assert_eq!(ran.read("exit"), "0\n", "{left}: {}", ran.read("left"));
    [summary(&ran.read("left")), summary(&ran.read("right"))]
}

#[test]
fn two_testers_are_neighbours_in_every_protocol() {
    let quick = "--hello 1s --dead 4s";
    let [left, right] = both(&format!("ospf {quick} --routers 10 --externals 100"), &format!("ospf {quick}"));
    assert_eq!((&left["up"], &left["losses"]), (&1.into(), &0.into()), "{left}");
    // The Router-LSAs of the tester and of ten routers, and 100 AS-external-LSAs.
    assert_eq!(right["counters"]["lsas_learned"], 111, "{right}");

    let [left, right] = both("ldp --fecs 100 --first 10.1.0.0/24 --labels 500", "ldp --fecs 3 --labels implicit-null");
    assert_eq!(left["counters"]["mappings_sent"], 100, "{left}");
    assert_eq!(left["counters"]["mappings_received"], 3, "{left}");
    assert_eq!(right["counters"]["mappings_received"], 100, "{right}");

    let [left, right] = both("rsvp --endpoint 192.0.2.1 --lsps 50 --refresh-reduction", "rsvp --refresh-reduction");
    assert_eq!((&left["sessions"], &left["up"], &left["losses"]), (&50.into(), &50.into(), &0.into()), "{left}");
    // Every LSP was torn down at the end.
    assert_eq!(right["counters"]["path_tear_received"], 50, "{right}");

    let [left, right] = both("bfd --interval 50ms", "bfd --interval 50ms --passive");
    assert_eq!((&left["up"], &left["losses"]), (&1.into(), &0.into()), "{left}");
    // The left side ended with AdminDown.
    assert_eq!((&right["counters"]["neighbor_signaled_down"], &right["losses"]), (&1.into(), &1.into()), "{right}");
}

#[test]
fn what_cannot_be_is_refused_with_what_can() {
    for (line, word) in [
        ("ospf va --address 192.0.2.2 --to 192.0.2.1", "prefix length"),
        ("ospf va --address 2001:db8::2/64 --to 2001:db8::1", "needs IPv4"),
        ("ospf va --address 192.0.2.2/24 --to 192.0.2.1 --hello 100ms", "whole seconds"),
        ("ospf va --address 192.0.2.2/24 --to 192.0.2.1 --md5-file /nowhere", "cannot read"),
        ("ldp va --address 192.0.2.2/24 --to 198.18.0.1", "not on the link"),
        ("ldp va --address 192.0.2.2/24 --to 192.0.2.1 --fecs 10 --labels 3", "16 to 1048575"),
        ("ldp va --address 192.0.2.2/24 --to 192.0.2.1 --fecs 10 --labels x", "`x` is not a label"),
        ("rsvp va --address 192.0.2.2/24 --to 192.0.2.1 --lsps 10", "--endpoint"),
        ("rsvp va --address 192.0.2.2/24 --to 192.0.2.1 --refresh 1us", "1 ms"),
        ("bfd va --address 192.0.2.2/24 --to 192.0.2.2", "both"),
        ("bfd va --address 8.8.8.8/24 --to 8.8.8.1", "RFC 6815"),
    ] {
        let words: Vec<&str> = line.split(' ').collect();
        refused(&run(&words), 2, word);
    }
}
