//! Invalid suites, each with the place, the message and the remedy that the user must see.
use crate::common::{QUICK_LOOK, REGISTRY, suite};
use drophammer_suite::SuiteError;
use drophammer_suite::read::{Overrides, read};

/// A suite without mistakes; the cases below change one line each.
const GOOD: &str = "\
suite: good
duts:
  - {name: frr, kind: frr}
ports:
  - {name: p1, speed: 10 Gbit/s}
  - {name: p2, speed: 10 Gbit/s}
defaults:
  frame_sizes: [64, 1518]
tests:
  - throughput
  - latency: {loads: [50]}
";

/// The line of `GOOD` to replace, its new text, line and column of an error, and parts of its message and help.
struct Case(usize, &'static str, (usize, usize), &'static str, &'static str);

#[rustfmt::skip]
const CASES: &[Case] = &[
    // Shape.
    Case(1, "siute: good", (1, 1), "a suite needs `suite`", "add for instance `suite: my-suite`"),
    Case(1, "suite:", (1, 1), "`suite` has no value", "suite: my-suite"),
    Case(1, "suite: my suite", (1, 8), "cannot be the name of a suite", "letters, digits and dashes"),
    Case(1, "suite: good\nsuite: twice", (2, 1), "`suite` is given twice", "already on line 1"),
    Case(1, "suite: good\nprofil: quick", (2, 1), "no key `profil`", "did you mean `profile`?"),
    Case(1, "suite: good\nprofile: fast", (2, 10), "cannot be `fast`", "`quick` and `conformant`"),
    Case(1, "suite: good\nprofile: conformnat", (2, 10), "cannot be `conformnat`", "did you mean `conformant`"),
    Case(1, "suite: good\nseed: -1", (2, 7), "whole number, not `-1`", "of at least 0"),
    Case(1, "suite: good\nseed: \"1\"", (2, 7), "the quoted text `1`", "without quotes"),
    Case(1, "suite: good\nseed: 99999999999999999999", (2, 7), "9999, which is out of range", "of at least 0"),
    Case(1, "suite: good\nallow_public_addresses: yes", (2, 25), "must be `true` or `false`, not `yes`", "`true` or `false`"),
    Case(1, "suite: !!str good", (1, 14), "YAML tag", "leave the tag out"),
    Case(1, "\tsuite: good", (1, 1), "a tab indents this line", "never with tabs"),
    Case(1, "suite: [good", (2, 5), "not YAML", "indentation"),
    Case(1, "suite: good\n<<: *x", (2, 5), "not YAML", ""),
    Case(1, "suite: good\n? [a, b]\n: c", (2, 3), "cannot be a key", "one word"),
    Case(1, "suite: &a [*a]", (1, 12), "alias is within its own anchor", "write the value out"),
    // Systems of several routers.
    Case(3, "  - {name: frr, kind: frr, topology: 4}", (3, 38), "`topology` is a map of keys and values, not `4`", "{mesh: 4}"),
    Case(3, "  - {name: frr, kind: frr, topology: {}}", (3, 38), "`topology` has 0 of the keys `mesh`, `chain` and `loop`", "{mesh: 4}"),
    Case(3, "  - {name: frr, kind: frr, topology: {mesh: 2, chain: 2}}", (3, 38), "`topology` has 2 of the keys `mesh`, `chain` and `loop`", "write exactly one"),
    Case(3, "  - {name: frr, kind: frr, topology: {ring: 2}}", (3, 39), "`topology` has no key `ring`", "mesh"),
    Case(3, "  - {name: frr, kind: frr, topology: {mesh: 1}}", (3, 45), "`mesh`", "2 to 64"),
    Case(3, "  - {name: frr, kind: frr, topology: {mesh: 4}}", (3, 38), "2 ports for a mesh of 4 routers", "4 or 8 ports"),
    Case(3, "  - {name: frr, kind: frr, topology: {chain: 2, core_speed: 1}}", (3, 61), "`1` is not a line speed", "100M"),
    Case(3, "  - {name: frr, kind: frr, topology: {chain: 2, core_speed: 1 kbit/s}}", (3, 61), "`core_speed` of 1 kbit/s is too slow", "10 kbit/s"),
    Case(3, "  - {name: frr, kind: frr, topology: {loop: 5}}", (3, 45), "a loop has 4 routers", "`loop: 4`"),
    Case(3, "  - {name: frr, kind: frr, topology: {chain: 2, wan_delay: 1 s}}", (3, 60), "`wan_delay` belongs to", "`loop: 4`"),
    Case(3, "  - {name: frr, kind: frr, topology: {loop: 4, wan_delay: 1 h}}", (3, 59), "`wan_delay` is too long", "10 s"),
    Case(3, "  - {name: frr, kind: frr, topology: {chain: 2, wan_loss: 1 %}}", (3, 59), "`wan_loss` belongs to", "`loop: 4`"),
    Case(3, "  - {name: frr, kind: frr, topology: {loop: 4, wan_loss: 80 %}}", (3, 58), "`wan_loss` of 80 % leaves no link", "at most 50 %"),
    Case(3, "  - {name: frr, kind: frr, topology: {loop: 4, wan_loss: few}}", (3, 58), "`few` is not a share of frames", "`0.1 %`"),
    Case(3, "  - {name: frr, kind: frr, topology: {loop: 4, wan_speed: 1 kbit/s}}", (3, 59), "`wan_speed` of 1 kbit/s is too slow", "10 kbit/s"),
    Case(3, "  - {name: bird, kind: bird, topology: {chain: 2}}", (3, 40), "a DUT of kind `bird` cannot consist of several routers", "a kind that can: `frr`"),
    // Facts for the report.
    Case(1, "suite: good\nabout: lab 3", (2, 8), "`about` is a map of keys and values, not `lab 3`", "by: Jane Doe"),
    Case(1, "suite: good\nabout: {by: [a]}", (2, 13), "`by` is a text, not a list", "Jane Doe"),
    Case(1, "suite: good\nabout: {by: }", (2, 9), "`by` is a text, not nothing", "Jane Doe"),
    Case(1, "suite: good\nabout: {by: \"a\\nb\"}", (2, 13), "is not one line of 1 to 200 characters", "control characters"),
    Case(1, "suite: good\nabout: {by: \"a\\u202eb\"}", (2, 13), "is not one line of 1 to 200 characters", "control characters"),
    Case(1, "suite: good\nabout: {a name that is much longer than names need be: x}", (2, 9), "1 to 40 characters", "shorten"),
    Case(1, "suite: good\nabout: {fr: {serial: 1}}", (2, 9), "`fr`, which is not a DUT of this suite", "did you mean `frr`"),
    Case(1, "suite: good\npublished: {test: throughput}", (2, 12), "`published` is a list, not a map", "[{test: throughput"),
    Case(1, "suite: good\npublished: [{test: throughput, title: t, source: s, columns: [a]}]", (2, 13), "a table of `published` needs `rows`", "rows"),
    Case(1, "suite: good\npublished: [{test: latenzy, title: t, source: s, columns: [a], rows: [[1]]}]", (2, 20), "`latenzy`, which is not a test of this suite", "did you mean `latency`"),
    Case(1, "suite: good\npublished: [{test: latency, id: fast, title: t, source: s, columns: [a], rows: [[1]]}]", (2, 33), "no test `latency` of this suite has the id `fast`", "known: none"),
    Case(1, "suite: good\npublished: [{test: latency, title: t, source: s, columns: [a, b], rows: [[1]]}]", (2, 74), "this row has 1 cells, the table has 2 columns", "write `\"-\"`"),
    Case(1, "suite: good\npublished: [{test: latency, title: \"a\\nb\", source: s, columns: [a], rows: [[1]]}]", (2, 36), "`title` is not one line", "control characters"),
    Case(1, "suite: good\npublished: [{test: throughput, title: t, source: s, routers: [a], figures: {throughput_9_pps: [1]}}]", (2, 77), "`throughput_9_pps` names no size of frames", "`64`, `ip40` and `imix`"),
    Case(1, "suite: good\npublished: [{test: throughput, title: t, source: s, routers: [a], figures: {througput_64_pps: [1]}}]", (2, 77), "`througput_64_pps` is not a figure of the test `throughput`", "did you mean `throughput_64_pps`"),
    Case(1, "suite: good\npublished: [{test: throughput, title: t, source: s, routers: [a, b], figures: {throughput_64_pps: [1]}}]", (2, 99), "this figure has 1 values, there are 2 routers", "write `\"-\"`"),
    Case(1, "suite: good\npublished: [{test: throughput, title: t, source: s, routers: [a, a], figures: {throughput_64_pps: 1}}]", (2, 62), "`a` is in `routers` twice", "each router once"),
    Case(1, "suite: good\npublished:\n  - {test: throughput, title: t, source: s, routers: [a, b], figures: {throughput_64_pps: [1, \"-\"]}}\n  - {test: throughput, title: t, source: s, routers: [b, a], figures: {throughput_64_pps: 2}}", (4, 5), "an earlier entry has `throughput_64_pps` of `a` too", "another name"),
    Case(1, "suite: good\npublished: [{test: throughput, title: t, source: s, figures: {throughput_64_pps: [1]}}]", (2, 13), "an entry of `published` needs `routers`", "routers"),
    Case(1, "suite: good\npublished: [{test: throughput, title: t, source: s, routers: [a], columns: [b], figures: {throughput_64_pps: [1]}}]", (2, 67), "has no use for `columns`", "`routers` and `figures`"),
    Case(1, "suite: good\npublished: [{test: throughput, title: t, source: s, columns: [a], rows: [[1]], unit: ms}]", (2, 80), "a table of `published` has no use for `unit`", "`routers` and `figures`"),
    Case(1, "suite: good\npublished: [{test: throughput, title: t, source: s, routers: [a], figures: {}}]", (2, 76), "`figures` is empty", "routers: [A (1989)]"),
    Case(1, "suite: good\nabout: {frr: {serial: {a: b}}}", (2, 23), "`serial` is a text, not a map", "Jane Doe"),
    Case(1, "suite: good\ndigest: {title: t}", (2, 9), "`digest` is a list, not a map", "[{title: Rates"),
    Case(1, "suite: good\ndigest: [{title: t}]", (2, 10), "a table of `digest` needs `columns`", "columns: {max: "),
    Case(1, "suite: good\ndigest: [{titel: t, columns: {max: throughput.x}}]", (2, 11), "a table of `digest` has no key `titel`", "did you mean `title`"),
    Case(1, "suite: good\ndigest: [{title: t, columns: {}}]", (2, 30), "`columns` is empty", "throughput.throughput_pps"),
    Case(1, "suite: good\ndigest: [{title: t, columns: {max: frame_loss_rate.loss_percent}}]", (2, 36), "a column of `frame_loss_rate`, which is not a test of this suite", "add `frame_loss_rate` to `tests`"),
    Case(1, "suite: good\ndigest: [{title: t, columns: {max: {cell: throughput.x, id: fast}}}]", (2, 61), "no test `throughput` of this suite has the id `fast`", "known: none"),
    Case(1, "suite: good\ndigest: [{title: t, columns: {max: {cell: x.y, test: latenzy}}}]", (2, 54), "`latenzy`, which is not a test of this suite", "did you mean `latency`"),
    Case(11, "  - frame_loss_rate\ndigest: [{title: t, columns: {max: loss.loss_percent}}]", (12, 36), "no test of this suite has a table `loss`", "known: `frame_loss_rate`"),
    Case(11, "  - frame_loss_rate\ndigest: [{title: t, columns: {max: frame_loss_rate.lost_percent}}]", (12, 36), "`lost_percent` is not a column of the table `frame_loss_rate`", "did you mean `loss_percent`?"),
    Case(11, "  - frame_loss_rate\ndigest: [{title: t, columns: {max: \"frame_loss_rate[dut=frr].loss_percent\"}}]", (12, 36), "`dut` is not a column of the table", "rows for each DUT"),
    Case(11, "  - frame_loss_rate\ndigest: [{title: t, columns: {max: \"frame_loss_rate[load].loss_percent\"}}]", (12, 36), "rows are selected by `column=value`", "filters[conditions=10"),
    Case(11, "  - frame_loss_rate\ndigest: [{title: t, by: size, columns: {max: frame_loss_rate.loss_percent}}]", (12, 25), "`size` is not a column of the table `frame_loss_rate`", "`frame_size`"),
    // Sub-interfaces.
    Case(5, "  - {name: p1, speed: 10 Gbit/s, vlans: 100}", (5, 41), "`vlans` is a list, not `100`", "- {id: 100}"),
    Case(5, "  - {name: p1, speed: 10 Gbit/s, vlans: [{ipv4: off}]}", (5, 42), "a sub-interface needs `id`", "id: 100"),
    Case(5, "  - {name: p1, speed: 10 Gbit/s, vlans: [{id: 4095}]}", (5, 47), "is 4095, which is out of range", "from 1 to 4094"),
    Case(5, "  - {name: p1, speed: 10 Gbit/s, vlans: [{id: [1, 0]}]}", (5, 51), "is 0, which is out of range", "from 1 to 4094"),
    Case(5, "  - {name: p1, speed: 10 Gbit/s, vlans: [{id: [1, 2, 3]}]}", (5, 47), "one tag or two, not 3", "`id: [100, 200]`"),
    Case(5, "  - {name: p1, speed: 10 Gbit/s, vlans: [{id: 1, tpid: 0x9100}]}", (5, 56), "`0x9100` is not a `tpid`", "`0x88a8`"),
    Case(5, "  - {name: p1, speed: 10 Gbit/s, vlans: [{id: 7}, {id: [7]}]}", (5, 56), "two sub-interfaces of this port are VLAN 7", "`tpid`"),
    Case(5, "  - {name: p1, speed: 10 Gbit/s, vlans: [{id: 7, tag: 8}]}", (5, 50), "has no key `tag`", "`tpid`"),
    Case(5, "  - {name: p1, speed: 10 Gbit/s, vlans: [{id: 7, ipv4: off, ipv6: off}]}", (5, 47), "neither IPv4 nor IPv6", "remove"),
    Case(5, "  - {name: p1, speed: 10 Gbit/s, vlans: [{id: 7, ipv4: {dut: 198.18.1.9/24}}]}", (5, 62), "the link of VLAN 7 of `p1`, overlaps `198.18.1.0/24`", "a different prefix"),
    // DUTs.
    Case(2, "duts: frr\nx:", (2, 7), "`duts` is a list, not `frr`", "{name: frr, kind: frr}"),
    Case(3, "  - frr", (3, 5), "a DUT is a map", "{name: frr, kind: frr}"),
    Case(3, "  - {name: frr}", (3, 5), "a DUT needs `kind`", "kind: frr"),
    Case(3, "  - {name: frr, kind: fr}", (3, 23), "no DUT kind `fr`", "did you mean `frr`?"),
    Case(3, "  - {name: a/b, kind: frr}", (3, 12), "`a/b` cannot be the name of a DUT", "letters, digits"),
    Case(3, "  - {name: frr, kind: frr, thread: 2}", (3, 28), "has no key `thread`", "did you mean `threads`?"),
    Case(3, "  - {name: frr, kind: frr, threads: 0}", (3, 37), "is 0, which is out of range", "of at least 1"),
    Case(3, "  - {name: tester, kind: frr}", (3, 12), "the tester's own name", "another name"),
    Case(3, "  - {name: frr, kind: frr}\n  - {name: frr, kind: bird}", (4, 12), "two DUTs are called `frr`", "a different name"),
    Case(3, "  - {name: x, kind: external}", (3, 21), "needs `interfaces`", "[eth1, eth2]"),
    Case(3, "  - {name: x, kind: external, interfaces: [eth1]}", (3, 43), "names 1 interfaces, but the suite has 2 ports", "one interface for each port"),
    Case(3, "  - {name: x, kind: external, interfaces: [eth1, eth1]}", (3, 50), "lists `eth1` twice", "once"),
    Case(3, "  - {name: x, kind: external, interfaces: [eth1, averyverylongname]}", (3, 50), "cannot be the name of an interface", "15 characters"),
    Case(3, "  - {name: x, kind: external, interfaces: [eth1, eth2], far_interfaces: [ge-0/0/0]}", (3, 73), "`far_interfaces` names 1 interfaces", "one interface for each port"),
    Case(3, "  - {name: x, kind: external, interfaces: [eth1, eth2], far_interfaces: [7, 7]}", (3, 77), "lists `7` twice", "once"),
    // Ports.
    Case(6, "", (5, 12), "the suite has 1 port", "or 1 with `vlans: "),
    Case(6, "  - {name: p1, speed: 10 Gbit/s}", (6, 12), "two ports are called `p1`", "a different name"),
    Case(6, "  - {name: p2, speed: 10}", (6, 23), "`10` is not a line speed", "`10 Gbit/s`"),
    Case(6, "  - {name: p2, speed: 10 GiB}", (6, 23), "`10 GiB` is not a line speed", "`10 Gbit/s`"),
    Case(6, "  - {name: p2}", (6, 5), "a port needs `speed`", "speed: 10 Gbit/s"),
    Case(6, "  - {name: p2, speed: 1 Gbit/s, mtu: 99}", (6, 38), "`mtu` is 99", "from 1280 to 9198"),
    Case(6, "  - {name: p2, speed: 1 Gbit/s, ipv6: off}", (6, 12), "port `p1` has ipv6, but port `p2` has not", "on every port or on none"),
    Case(6, "  - {name: p2, speed: 1 Gbit/s, ipv4: off, ipv6: off}", (6, 12), "neither IPv4 nor IPv6", "remove `ipv4: off`"),
    Case(6, "  - {name: p2, speed: 1 Gbit/s, ipv4: no}", (6, 39), "`ipv4` is a map", "`ipv4: off`"),
    Case(6, "  - {name: p2, speed: 1 Gbit/s, ipv4: {gateway: 10.0.0.1}}", (6, 40), "no key `gateway`", "`dut`, `host`, `behind` and `destinations`"),
    Case(6, "  - {name: p2, speed: 1 Gbit/s, ipv4: {dut: 10.0.0.1}}", (6, 45), "no prefix length", "dut: 198.19.1.1/24"),
    Case(6, "  - {name: p2, speed: 1 Gbit/s, ipv4: {dut: 10.0.0.1/33}}", (6, 45), "no valid prefix length for IPv4", "1 to 32"),
    Case(6, "  - {name: p2, speed: 1 Gbit/s, ipv4: {dut: \"fd00::1/64\"}}", (6, 45), "is not IPv4", "198.19.1.1/24"),
    Case(6, "  - {name: p2, speed: 1 Gbit/s, ipv4: {dut: 10.0.0.0/24}}", (6, 45), "10.0.0.0 is the network address", "between the first and the last"),
    Case(6, "  - {name: p2, speed: 1 Gbit/s, ipv4: {dut: 10.0.0.255/24}}", (6, 45), "10.0.0.255 is the broadcast address", "between the first and the last"),
    Case(6, "  - {name: p2, speed: 1 Gbit/s, ipv4: {dut: 10.0.0.1/32}}", (6, 45), "holds one address only", "two addresses"),
    Case(6, "  - {name: p2, speed: 1 Gbit/s, ipv4: {host: 198.19.1.1}}", (6, 46), "both have 198.19.1.1", "another address"),
    Case(6, "  - {name: p2, speed: 1 Gbit/s, ipv4: {host: 10.0.0.1}}", (6, 46), "not in the DUT's prefix `198.19.1.0/24`", "`198.19.1.2`"),
    Case(6, "  - {name: p2, speed: 1 Gbit/s, ipv4: {host: 198.19.1.2/24}}", (6, 46), "is not an IPv4 address", "without a length"),
    Case(6, "  - {name: p2, speed: 1 Gbit/s, ipv4: {behind: 8.8.8.0/24}}", (6, 48), "public addresses", "allow_public_addresses: true"),
    Case(6, "  - {name: p2, speed: 1 Gbit/s, ipv6: {behind: \"2001:4860::/32\"}}", (6, 48), "public addresses", "2001:2::/48"),
    Case(6, "  - {name: p2, speed: 1 Gbit/s, ipv4: {behind: 192.0.0.0/2}}", (6, 48), "routers do not forward", "unicast"),
    Case(6, "  - {name: p2, speed: 1 Gbit/s, ipv4: {behind: 127.0.0.0/8}}", (6, 48), "`127.0.0.0/8`", "unicast"),
    Case(6, "  - {name: p2, speed: 1 Gbit/s, ipv4: {behind: 10.0.0.1/24}}", (6, 48), "bits set beyond its length", "`10.0.0.0/24`"),
    Case(6, "  - {name: p2, speed: 1 Gbit/s, ipv4: {behind: 198.18.64.0/24}}", (6, 48), "overlaps `198.18.64.0/18`, the network behind `p1`", "a different prefix"),
    Case(6, "  - {name: p2, speed: 1 Gbit/s, ipv4: {behind: 198.18.1.128/25}}", (6, 48), "overlaps `198.18.1.0/24`, the link of `p1`", "a different prefix"),
    Case(6, "  - {name: p2, speed: 1 Gbit/s, ipv4: {destinations: 20000}}", (6, 54), "room for 16382 destinations", "larger prefix"),
    Case(6, "  - {name: p2, speed: 1 Gbit/s, ipv4: {behind: 10.0.0.0/8, destinations: 1000001}}", (6, 74), "out of range", "from 1 to 1000000"),
    // Parameters.
    Case(8, "  frame_size: [64]", (8, 3), "no test has a parameter `frame_size`", "did you mean `frame_sizes`?"),
    Case(8, "  reset_command: x", (8, 3), "no test of this suite has a parameter `reset_command`", "`reset`"),
    Case(8, "  frame_sizes: 64", (8, 16), "`frame_sizes` is a list, not `64`", "[64, 512"),
    Case(8, "  frame_sizes: []", (8, 16), "`frame_sizes` is empty", "[64, 512"),
    Case(8, "  frame_sizes: [64, 63]", (8, 21), "`63` is not a frame size", "64 to 9216"),
    Case(8, "  frame_sizes: [64, 64]", (8, 21), "lists `64` twice", "once"),
    Case(8, "  frame_sizes: [imix:0x64]", (8, 17), "`0x64` is not an IMIX part", "weight x size"),
    Case(8, "  frame_sizes: [imix:1x64, imix:50%x64]", (8, 28), "are 50 % together", "100 % together"),
    Case(8, "  frame_sizes: [64, 1519]", (8, 21), "`1519`, which needs packets of 1501 bytes, more than the MTU 1500 of port `p1`", "`mtu: 1501`"),
    Case(8, "  frame_sizes: [64, imix:i]", (8, 21), "packets of 8982 bytes", "leave `imix:i` out"),
    Case(8, "  families: [ipv4, ipv5]", (8, 20), "cannot be `ipv5`", "did you mean `ipv4`?"),
    Case(8, "  direction: bidirectionall", (8, 14), "cannot be `bidirectionall`", "did you mean `bidirectional`?"),
    Case(8, "  duration: 60", (8, 13), "`60` is not a duration", "`60 s`"),
    Case(8, "  duration: 60 bytes", (8, 13), "is not a duration", "`60 s`"),
    Case(8, "  duration: 1,5 s", (8, 13), "`1,5 s` is not a duration", "`60 s`"),
    Case(8, "  duration: 0 s", (8, 13), "`duration` cannot be zero", "60 s"),
    Case(8, "  duration: 1000 h", (8, 13), "too long", "`744 h`"),
    Case(8, "  duration:", (8, 3), "`duration` has no value", "duration: 60 s"),
    // Tests.
    Case(10, "  - throughptu", (10, 5), "no test `throughptu`", "did you mean `throughput`?"),
    Case(10, "  - {}", (10, 5), "names no test", "throughput"),
    Case(10, "  - [throughput]", (10, 5), "a test is a name or a map", "throughput"),
    Case(10, "  - throughput: 5", (10, 17), "is a map of keys and values", "frame_sizes"),
    Case(10, "  - throughput:\n    frame_sizes: [64]", (11, 5), "the keys `throughput` and `frame_sizes`", "indent"),
    Case(10, "  - throughput:\n    latency:", (11, 5), "the keys `throughput` and `latency`", "a separate dash"),
    Case(10, "  - throughput: {load: [5]}", (10, 18), "the test `throughput` has no key `load`", "known: `frame_sizes`"),
    Case(10, "  - throughput: {floor: 0}", (10, 25), "`0` is not a frame rate", "at most 1000 Gfps"),
    Case(10, "  - throughput: {verify: on}", (10, 26), "must be `true` or `false`", "without quotes"),
    Case(10, "  - throughput: {precision: 1 of 100}", (10, 29), "a percentage is a number, not `1 of 100`", "from 0 to 100"),
    Case(10, "  - throughput: {precision: 101}", (10, 29), "101 is out of range", "from 0 to 100"),
    Case(10, "  - throughput: {families: [ipv4, ipv4]}", (10, 35), "lists `IPv4` twice", "once"),
    Case(11, "  - latency: {loads: [0]}", (11, 23), "0 is out of range", "above 0"),
    Case(11, "  - latency: {loads: [.nan]}", (11, 23), "a percentage is a number, not `.nan`", "`50 %`"),
    Case(10, "  - back_to_back: {packing: 0}", (10, 29), "`packing` is a number from 1 to 65535 or `fit`, not `0`", "`500` or `fit`"),
    Case(10, "  - back_to_back: {packing: 70000}", (10, 29), "from 1 to 65535 or `fit`, not `70000`", "`500` or `fit`"),
    Case(10, "  - back_to_back: {packing: full}", (10, 29), "from 1 to 65535 or `fit`, not `full`", "`500` or `fit`"),
    Case(10, "  - back_to_back: {packing: [5]}", (10, 29), "from 1 to 65535 or `fit`", "`500` or `fit`"),
    Case(11, "  - latency: {trials: 1.5}", (11, 23), "whole number, not `1.5`", "of at least 1"),
    Case(11, "  - reset", (11, 5), "the test `reset` needs `reset_command`", "systemctl"),
    // BGP.
    Case(10, "  - routes", (10, 5), "needs BGP, but the suite has no `bgp:`", "add `bgp: {}`"),
    Case(1, "suite: good\nbgp: 65000", (2, 6), "`bgp` is a map of keys and values", "{dut_as: 65000"),
    Case(1, "suite: good\nbgp: {dut_sa: 1}", (2, 7), "no key `dut_sa`", "did you mean `dut_as`?"),
    Case(1, "suite: good\nbgp: {dut_as: 0}", (2, 15), "is 0, which is out of range", "of at least 1"),
    Case(1, "suite: good\nbgp: {dut_as: AS1}", (2, 15), "whole number, not `AS1`", "without quotes"),
    Case(1, "suite: good\nbgp: {dut_as: 4294967296}", (2, 15), "more than four octets", "private use"),
    Case(1, "suite: good\nbgp: {dut_as: 23456}", (2, 15), "AS_TRANS", "64512 to 65534"),
    Case(1, "suite: good\nbgp: {dut_as: 65002}", (2, 15), "both have the AS number 65002: the ports have 65001 to 65002", "below `tester_as`"),
    Case(1, "suite: good\nbgp: {tester_as: 65000}", (2, 1), "both have the AS number 65000", "below `tester_as`"),
    Case(1, "suite: good\nbgp: {tester_as: 65534}", (2, 18), "65534 to 65535, but 65535 is", "4200000000"),
    Case(1, "suite: good\nbgp: {tester_as: 4294967295}", (2, 18), "reserved (RFC 7300)", "4294967294"),
    Case(1, "suite: good\nbgp: {peers_per_port: 254}", (2, 23), "port `p1` has room for 253 IPv4 peers from 198.18.1.2 on, not for 254", "`peers_per_port: 253` or less"),
    Case(1, "suite: good\nbgp: {peers_per_port: 10001}", (2, 23), "is 10001, which is out of range", "from 1 to 10000"),
    Case(1, "suite: good\nbgp: {peers_per_vlan: 1}", (2, 23), "but no port has any", "`vlans: [{id: 100}]`"),
    Case(1, "suite: good\nbgp: {peers_per_vlan: 0}", (2, 23), "is 0, which is out of range", "of at least 1"),
    Case(1, "suite: good\nbgp: {peers_per_vlan: 10001}", (2, 23), "is 10001, which is out of range", "from 1 to 10000"),
    Case(6, "  - {name: p2, speed: 10 Gbit/s, vlans: [{id: [100, 200]}]}\nbgp: {peers_per_vlan: 30}", (7, 23), "VLAN 100.200 of port `p2` has room for 29 IPv4 peers from 198.19.16.2 on, not for 30", "`peers_per_vlan: 29` or less, or give the sub-interfaces"),
    Case(1, "suite: good\nbgp: {hold_time: 90}", (2, 18), "`90` is not a duration", "60 s"),
    Case(1, "suite: good\nbgp: {hold_time: 2 s}", (2, 18), "cannot carry this Hold Time", "from `3 s` to `65535 s`"),
    Case(1, "suite: good\nbgp: {hold_time: 3500 ms}", (2, 18), "cannot carry this Hold Time", "whole seconds"),
    Case(1, "suite: good\nbgp: {internal: [p3]}", (2, 17), "there is no port `p3`", "the ports are p1, p2"),
    Case(1, "suite: good\nbgp: {internal: [p1], dut_as: 65002}", (2, 31), "both have the AS number 65002", "as `internal`"),
    Case(1, "suite: good\nbgp: {internal: p1}", (2, 17), "is a list, not `p1`", "[p1, p2]"),
    Case(1, "suite: good\nbgp: {md5: \"\"}", (2, 12), "`md5` is a text", "some text"),
    Case(1, "suite: good\nbgp: {md5: \"a b\"}", (2, 12), "without spaces", "another key"),
    Case(1, "suite: good\nbgp: {gtsm: 1}", (2, 13), "`gtsm`", "`true` or `false`"),
    Case(1, "suite: good\nbgp: {families: ipv4}", (2, 17), "is a list, not `ipv4`", "[ipv4, ipv6]"),
    // Criteria.
    Case(10, "  - throughput: {expect: {throughput_65_pps: \">= 1\"}}", (10, 27), "a size that this test does not send", "`64` and `1518`"),
    Case(10, "  - throughput: {expect: {troughput_64_pps: \">= 1\"}}", (10, 27), "not a figure of the test `throughput`", "did you mean `throughput_64_pps`?"),
    Case(10, "  - throughput: {expect: {throughput_64_pps: 5}}", (10, 46), "`5` is not a criterion", "\">= 100 kfps\""),
    Case(10, "  - throughput: {expect: {throughput_64_pps: \"> 5\"}}", (10, 46), "is not a criterion", "`>=` for at least"),
    Case(10, "  - throughput: {expect: {throughput_64_pps: \">= 5 s\"}}", (10, 46), "`5 s` is not a frame rate", "100 kfps"),
    Case(11, "  - latency: {expect: {latency_64_ns: \"<= 5 kfps\"}}", (11, 39), "is not a duration", "500 us"),
    Case(10, "  - throughput: {expect: {throughput_64_pps: {frrr: \">= 1\"}}}", (10, 47), "there is no DUT `frrr`", "known: "),
    Case(10, "  - throughput: {expect: {throughput_64_pps: [1]}}", (10, 46), "a criterion is a text, not a list", "\">= 100 kfps\""),
    Case(11, "  - forwarding_rate: {expect: {x: \">= 1\"}}", (11, 32), "not a figure", "leave `expect` out"),
    Case(11, "  - frame_loss_rate: {expect: {loss.loss_percent: \">= 1\"}}", (11, 32), "`loss` is not a table of the test `frame_loss_rate`", "known: `frame_loss_rate`"),
    Case(11, "  - frame_loss_rate: {expect: {frame_loss_rate.lost_percent: \">= 1\"}}", (11, 32), "`lost_percent` is not a column of the table", "did you mean `loss_percent`?"),
    Case(11, "  - frame_loss_rate: {expect: {\"frame_loss_rate[size=64].loss_percent\": \">= 1\"}}", (11, 32), "`size` is not a column", "`frame_size`"),
    Case(11, "  - frame_loss_rate: {expect: {\"frame_loss_rate[dut=frr].loss_percent\": \">= 1\"}}", (11, 32), "`dut` is not a column", "{frr: "),
    Case(11, "  - frame_loss_rate: {expect: {frame_loss_rate.remark: \">= 1\"}}", (11, 32), "contains words", "`loss_percent`"),
    Case(11, "  - frame_loss_rate: {expect: {\"frame_loss_rate[load_percent].loss_percent\": \">= 1\"}}", (11, 32), "`column=value`", "frame_loss_rate[frame_size=64]"),
    Case(11, "  - frame_loss_rate: {expect: {\"frame_loss_rate[frame_size=64.loss_percent\": \">= 1\"}}", (11, 32), "`]` after the rows is missing", "frame_loss_rate[frame_size=64]"),
    Case(11, "  - frame_loss_rate: {expect: {frame_loss_rate.latency_us: \">= 1 kfps\"}}", (11, 60), "`1 kfps` is not a duration", "500 us"),
    Case(10, "  - throughput: {expect: {throughput_64_pps: \">= 95 of baseline\"}}", (10, 46), "`95 of baseline` is not a share", ">= 95 % of baseline"),
    Case(10, "  - throughput: {expect: {throughput_64_pps: \"<= 0 % of baseline\"}}", (10, 46), "is not a share of a baseline", "<= 105 % of baseline"),
    Case(1, "suite: good\nbaseline: [a]", (2, 11), "`baseline` is a text", "results/last-release"),
    // Ids of tests.
    Case(10, "  - throughput: {id: Small}", (10, 22), "`Small` cannot be the id of a test", "lower-case letters"),
    Case(10, "  - throughput: {id: a_name_of_more_than_32_characters}", (10, 22), "cannot be the id of a test", "at most 32"),
    Case(10, "  - throughput: {id: latency}", (10, 22), "the id `latency` is the name of a test", "list tests"),
    Case(10, "  - throughput: {id: ~}", (10, 22), "`id` is a text, not nothing", "id: small"),
    Case(10, "  - latency: {id: a}\n  - latency: {id: a}", (11, 19), "two tests `latency` are called `a`", "a different name"),
    Case(8, "  frame_sizes: [64, 1518]\n  id: a", (9, 3), "no test has a parameter `id`", "known: "),
    // Included files. Errors within them have their own tests.
    Case(1, "suite: good\ninclude: common.yaml", (2, 10), "no file can be included here", "write its keys into the suite"),
    Case(1, "suite: good\ninclude: [a.yaml, {b: c}]", (2, 19), "an included file is a text, not a map", "include: common.yaml"),
    Case(1, "suite: good\ninclude:", (2, 1), "an included file is a text, not nothing", "include: common.yaml"),
    Case(1, "suite: good\ninclude: []", (2, 10), "`include` is empty", "include: common.yaml"),
    Case(1, "suite: good\ninclude: /etc/a.yaml", (2, 10), "`/etc/a.yaml` is an absolute path", "in the folder of the suite"),
    Case(1, "suite: good\ninclude: a/../../b.yaml", (2, 10), "`a/../../b.yaml` is outside of the folder of the suite", "or below it"),
    Case(1, "suite: good\ninclude: ./t.yaml", (2, 10), "`t.yaml` includes itself: `t.yaml` \u{2192} `t.yaml`", "a separate file"),
    Case(1, "suite: good\ninclude: \"a\\u202eb\"", (2, 10), "invisible characters", "a plain name"),
];

fn changed(line: usize, new: &str) -> String {
    let mut lines: Vec<&str> = GOOD.lines().collect();
    lines[line - 1] = new;
    lines.join("\n")
}

#[test]
fn each_mistake_is_told_with_its_place_and_its_remedy() {
    suite(GOOD).expect("the suite that the cases change is right");
    let mut wrong = Vec::new();
    for Case(line, new, place, message, help) in CASES {
        let text = changed(*line, new);
        match suite(&text) {
            Ok(_) => wrong.push(format!("accepted: {new}")),
            Err(errors) => {
                let says = |e: &SuiteError| e.message.contains(message) && e.help.contains(help);
                if !errors.errors.iter().any(|e| (e.line, e.column) == *place && says(e)) {
                    wrong.push(format!("{new}\n  wanted {place:?}: {message} / {help}\n  got\n{errors}"));
                }
            }
        }
    }
    assert!(wrong.is_empty(), "{} of {} cases:\n{}", wrong.len(), CASES.len(), wrong.join("\n"));
}

#[test]
fn one_mistake_gives_one_error() {
    // A slip must not bury its cause under consequential errors. A few cases are two mistakes by nature.
    for Case(line, new, ..) in CASES.iter().filter(|c| !["siute: good", "duts: frr\nx:"].contains(&c.1)) {
        let errors = suite(&changed(*line, new)).unwrap_err();
        assert!(errors.errors.len() <= 2, "{new}\n{errors}");
    }
}

#[test]
fn a_test_is_restricted_to_duts_of_the_suite() {
    let text = |test: &str| {
        format!(
            "suite: some\nduts: [{{name: a, kind: frr}}, {{name: b, kind: bird}}]\nports: [{{name: p1, speed: 1 Gbit/s}}, {{name: p2, speed: 1 \
             Gbit/s}}]\ntests: [{{throughput: {{{test}}}}}, latency]\n"
        )
    };
    let read = suite(&text("duts: [b]")).unwrap();
    assert_eq!([read.tests[0].is_for("a"), read.tests[0].is_for("b"), read.tests[1].is_for("a")], [false, true, true]);
    for (test, message, help) in [
        ("duts: [bb]", "there is no DUT `bb`", "did you mean `b`?"),
        ("duts: []", "`duts` of a test is empty", "duts: [frr, bird]"),
        ("duts: b", "`duts` of a test is a list", "duts: [frr, bird]"),
        ("duts: [b, b]", "two DUTs are called `b`", "a different name"),
    ] {
        let errors = suite(&text(test)).unwrap_err();
        let [error] = &errors.errors[..] else { panic!("{errors}") };
        assert!(error.message.contains(message) && error.help.contains(help), "{errors}");
    }
}

#[test]
fn vpns_and_bgp_have_one_as() {
    let text = |bgp: &str| {
        format!(
            "suite: pe\nbgp: {{{bgp}}}\nduts: [{{name: frr, kind: frr}}]\nports:\n  - {{name: c, speed: 1 Gbit/s, ipv6: off, \
             customers: 2}}\n  - {{name: n, speed: 1 Gbit/s, ipv6: off, core: [ospf, ldp]}}\ntests: [throughput]\n"
        )
    };
    suite(&text("")).unwrap();
    let errors = suite(&text("dut_as: 65010")).unwrap_err();
    let [error] = &errors.errors[..] else { panic!("{errors}") };
    assert!(error.message.contains("AS 65000") && error.help.contains("`dut_as: 65000`"), "{errors}");
}

#[test]
fn customers_are_a_number_or_a_map() {
    let text = |customers: &str| {
        format!(
            "suite: pe\nduts: [{{name: frr, kind: frr}}]\nports:\n  - {{name: c, speed: 1 Gbit/s, ipv6: off, \
             customers: {customers}}}\n  - {{name: n, speed: 1 Gbit/s, ipv6: off, core: [ospf, ldp]}}\ntests: [throughput]\n"
        )
    };
    for (customers, count, [bfd, ipv6]) in [
        ("2", 2, [false, true]),
        ("{count: 3}", 3, [false, true]),
        ("{count: 4, bfd: true}", 4, [true, true]),
        ("{count: 5, ipv6: false}", 5, [false, false]),
    ] {
        let port = &suite(&text(customers)).unwrap().ports[0];
        assert_eq!((port.customers, port.customer_bfd, port.customer_ipv6), (count, bfd, ipv6), "{customers}");
    }
    for (customers, message, help) in [
        ("0", "`customers`", "1"),
        ("{bfd: true}", "`customers` needs `count`", "count: 94"),
        ("{count: 0}", "`count`", "1"),
        ("{count: 2, bfd: on}", "`bfd` must be `true` or `false`", "without quotes"),
        ("{count: 2, bdf: true}", "`customers` has no key `bdf`", "`bfd`"),
    ] {
        let errors = suite(&text(customers)).unwrap_err();
        let [error] = &errors.errors[..] else { panic!("{customers}: {errors}") };
        assert!(error.message.contains(message) && error.help.contains(help), "{customers}: {errors}");
    }
}

#[test]
fn further_sites_belong_to_vrfs_of_an_earlier_port() {
    let text = |ports: &str| {
        let core = "{name: n1, speed: 1 Gbit/s, core: [ospf, ldp]}, {name: n2, speed: 1 Gbit/s, core: [ospf, ldp]}";
        format!("suite: pe\nduts: [{{name: frr, kind: frr}}]\nports: [{ports}, {core}]\ntests: [throughput]\n")
    };
    let port = |name: &str, more: &str| format!("{{name: {name}, speed: 1 Gbit/s, {more}}}");
    let both = |first: &str, second: &str| text(&[port("c1", first), port("c2", second)].join(", "));
    let sites = |text: &str| suite(text).unwrap().ports.iter().map(|port| port.sites_of).collect::<Vec<_>>();
    assert_eq!(sites(&both("customers: 3", "customers: 2, sites_of: c1")), [None, Some(0), None, None]);
    for (first, second, message) in [
        ("customers: 3", "customers: 4, sites_of: c1", "port `c1` has 3 VRFs"),
        ("customers: {count: 3, ipv6: false}", "customers: 3, sites_of: c1", "the VRFs of port `c1` have no IPv6"),
        ("customers: 3", "sites_of: c1", "needs `customers`"),
        ("customers: 3", "customers: 1, sites_of: n1", "no earlier port `n1` has VRFs of its own"),
        ("customers: 1, sites_of: c2", "customers: 3", "no earlier port `c2` has VRFs of its own"),
    ] {
        let errors = suite(&both(first, second)).unwrap_err();
        assert!(errors.errors.iter().any(|error| error.message.contains(message)), "{message}: {errors}");
    }
    let many = (2..7).map(|n| port(&format!("c{n}"), "customers: 1, sites_of: c1")).collect::<Vec<_>>();
    let errors = suite(&text(&[vec![port("c1", "customers: 1")], many].concat().join(", "))).unwrap_err();
    assert!(errors.errors[0].message.contains("too many ports have sites of `c1`"), "{errors}");
}

#[test]
fn all_mistakes_are_told_at_once_in_order_of_place() {
    let text = "\
suite: a b
profile: fast
duts:
  - {name: frr, kind: frrr}
ports:
  - {name: p1, speed: 10}
  - {name: p2, speed: 10 Gbit/s, mtu: 5}
tests:
  - throughputt
  - latency: {loads: [500], trails: 3}
";
    let errors = suite(text).unwrap_err();
    let lines: Vec<_> = errors.errors.iter().map(|e| e.line).collect();
    assert_eq!(lines, [1, 2, 4, 6, 7, 9, 10, 10], "{errors}");
    for error in &errors.errors {
        let line_start = text.match_indices('\n').map(|(i, _)| i + 1).nth(error.line.wrapping_sub(2)).unwrap_or(0);
        assert_eq!(error.span.start, line_start + error.column - 1);
        assert!(!error.help.is_empty());
    }
    assert_eq!(&text[errors.errors[2].span.clone()], "frrr");
    assert_eq!(&text[errors.errors[7].span.clone()], "trails");
}

#[test]
fn the_plain_rendering_shows_line_caret_and_help() {
    let errors = suite(&changed(10, "  - throughptu   # my favourite")).unwrap_err();
    let want = "\
t.yaml:10:5: there is no test `throughptu`
  10 |   - throughptu   # my favourite
     |     ^^^^^^^^^^
     = help: did you mean `throughput`? known: `throughput`, `forwarding_rate`, `frame_loss_rate`, `latency`, \
`back_to_back`, `system_recovery`, `reset` and `routes`
";
    assert_eq!(errors.to_string(), want);
}

#[test]
fn places_count_characters_and_spans_count_bytes() {
    let text = changed(3, "  - {name: frr, kind: frr, \"größe\": 1, kind: x}").replace("good", "gut # schön");
    let errors = suite(&text).unwrap_err();
    let twice = errors.errors.iter().find(|e| e.message.contains("twice")).unwrap();
    assert_eq!((twice.line, twice.column), (3, 40));
    assert_eq!(&text[twice.span.clone()], "kind");
}

#[test]
fn a_byte_order_mark_and_carriage_returns_do_not_move_places() {
    let text = format!("\u{feff}{}", changed(10, "  - throughptu").replace('\n', "\r\n"));
    let errors = suite(&text).unwrap_err();
    assert_eq!(errors.errors.len(), 1, "{errors}");
    assert_eq!((errors.errors[0].line, errors.errors[0].column), (10, 5));
    assert_eq!(&text[errors.errors[0].span.clone()], "throughptu");
}

#[test]
fn hostile_files_are_refused_quickly() {
    let bomb = {
        let mut text = String::from("a0: &a0 [x, x, x, x, x, x, x, x, x, x]\n");
        for i in 1..12 {
            let items = vec![format!("*a{}", i - 1); 10].join(", ");
            text += &format!("a{i}: &a{i} [{items}]\n");
        }
        text
    };
    let long_bomb = format!("a: &a \"{}\"\nb: [{}]\n", "x".repeat(500_000), vec!["*a"; 20_000].join(", "));
    let cases = [
        ("x".repeat((1 << 20) + 1), "has 1048577 bytes"),
        ("[".repeat(100_000), "nested more than 32 deep"),
        (format!("a: {}{}", "[".repeat(33), "]".repeat(33)), "nested more than 32 deep"),
        ((0..40).map(|i| format!("{}a:\n", " ".repeat(i))).collect(), "nested more than 32 deep"),
        ("- ".repeat(50_000), "nested more than 32 deep"),
        (bomb, "more than 100000 values"),
        (long_bomb, "more than 100000 values"),
        (format!("[{}]", "1,".repeat(200_000)), "more than 100000 values"),
        ("a: 1\n".repeat(200_000), "given twice"),
        (format!("a: {}", "&a ".repeat(1000)), ""),
        (String::new(), "the file is empty"),
        ("# nothing\n".into(), "the file is empty"),
        ("---\na: 1\n---\nb: 2\n".into(), "a second document"),
        ("just text".into(), "a suite is a map"),
        ("null".into(), "a suite is a map"),
        ("a: *nowhere".into(), "not YAML"),
    ];
    for (text, message) in cases {
        let start = std::time::Instant::now();
        let errors = suite(&text).unwrap_err();
        let shown = errors.to_string();
        assert!(shown.contains(message), "wanted {message}, got {}", &shown[..shown.len().min(2000)]);
        assert!(errors.errors.len() <= 100 && shown.len() < 200_000);
        assert!(start.elapsed().as_secs() < 20, "{message}: {:?}", start.elapsed());
    }
}

#[test]
fn control_characters_of_the_file_do_not_reach_the_terminal() {
    let errors = suite(&changed(10, "  - \"\\e[31mred\\x07\"")).unwrap_err();
    assert!(!errors.to_string().chars().any(|c| c.is_control() && c != '\n'), "{errors:?}");
}

/// Only these DUTs and tests; all if there are none.
fn only(duts: &[&str], tests: &[&str]) -> Overrides {
    let names = |names: &[&str]| names.iter().map(ToString::to_string).collect();
    Overrides { duts: names(duts), tests: names(tests), ..Overrides::default() }
}

#[test]
fn the_command_line_selects_and_unknown_names_are_told_with_the_known() {
    let suite = read(QUICK_LOOK, "q", &REGISTRY, &only(&["bird"], &["latency", "throughput"])).unwrap();
    assert_eq!(suite.duts.iter().map(|d| d.name.as_str()).collect::<Vec<_>>(), ["bird"]);
    assert_eq!(suite.tests.iter().map(|t| t.test.as_str()).collect::<Vec<_>>(), ["throughput", "latency"]);

    let errors = read(QUICK_LOOK, "q", &REGISTRY, &only(&["brid"], &["reset"])).unwrap_err();
    assert_eq!(errors.errors.len(), 2);
    assert!(errors.errors[0].message.contains("`--dut brid`"), "{errors}");
    assert!(errors.errors[0].help.contains("did you mean `bird`? known: `frr` and `bird`"), "{errors}");
    assert!(errors.errors[1].message.contains("`--test reset`"), "{errors}");
    assert!(errors.errors[1].help.contains("`throughput`, `forwarding_rate`"), "{errors}");
    assert!(QUICK_LOOK[errors.errors[0].span.clone()].starts_with("duts"));
}

#[test]
fn bgp_needs_routers_that_speak_it_and_families_that_the_ports_have() {
    let text = changed(3, "  - {name: frr, kind: frr}\n  - {name: b, kind: bird}\nbgp: {}")
        .replace("latency: {loads: [50]}", "routes");
    let errors = suite(&text).unwrap_err();
    assert_eq!((errors.errors.len(), errors.errors[0].line), (1, 13), "{errors}");
    assert!(errors.errors[0].message.contains("role `bgp`, which `b` of kind `bird` does not have"), "{errors}");
    assert!(errors.errors[0].help.contains("kinds that can: `frr`"), "{errors}");
    // DUTs and tests that the command line excludes need not agree.
    for fine in [only(&["frr"], &[]), only(&["b"], &["throughput"])] {
        read(&text, "t.yaml", &REGISTRY, &fine).unwrap_or_else(|e| panic!("{e}"));
    }
    assert!(read(&text, "t.yaml", &REGISTRY, &only(&["b"], &["routes"])).is_err());

    let text = changed(1, "suite: good\nbgp: {families: [ipv4, ipv6]}").replace("10 Gbit/s}", "10 Gbit/s, ipv6: off}");
    let errors = suite(&text).unwrap_err();
    assert_eq!((errors.errors.len(), errors.errors[0].line), (1, 2), "{errors}");
    assert!(errors.errors[0].message.contains("IPv6 routes, but the ports have `ipv6: off`"), "{errors}");
    // The host's address is below the DUT's: the peers that follow must not reach it.
    let text = changed(5, "  - {name: p1, speed: 10 Gbit/s, ipv4: {dut: 10.0.0.9/24, host: 10.0.0.2}}");
    assert!(suite(&format!("{text}\nbgp: {{peers_per_port: 7}}")).is_ok());
    let errors = suite(&format!("{text}\nbgp: {{peers_per_port: 8}}")).unwrap_err();
    assert!(errors.errors[0].message.contains("room for 7 IPv4 peers from 10.0.0.2"), "{errors}");
}

#[test]
fn a_router_that_cannot_play_the_role_of_the_ports_is_told_with_those_that_can() {
    let text = GOOD.replace("kind: frr", "kind: bird").replacen("Gbit/s}", "Gbit/s, vlans: [{id: [1, 2]}]}", 1);
    let errors = suite(&text).unwrap_err();
    assert_eq!((errors.errors.len(), errors.errors[0].line, errors.errors[0].column), (1, 3, 23), "{errors}");
    assert!(errors.errors[0].message.contains("need `vlan`, which routers of kind `bird` do not support"), "{errors}");
    assert!(errors.errors[0].help.contains("kinds that can: `frr`"), "{errors}");
    // A router that does not run need not support the role.
    let both = text.replace("- {name: frr, kind: bird}", "- {name: a, kind: bird}\n  - {name: b, kind: frr}");
    read(&both, "t.yaml", &REGISTRY, &only(&["b"], &[])).unwrap_or_else(|e| panic!("{e}"));
}

#[test]
fn settings_of_the_command_line_change_parameters_and_nothing_else() {
    let with = |set: &[&str]| {
        let set = set.iter().map(|text| text.parse().unwrap()).collect();
        read(GOOD, "good.yaml", &REGISTRY, &Overrides { set, ..Overrides::default() })
    };
    let plain = with(&[]).unwrap();
    let changed = with(&["throughput.frame_sizes=[128, 256]", "latency.loads=[10]", "latency.loads=[20]"]).unwrap();
    let sizes = changed.tests[0].params.sizes("frame_sizes").unwrap();
    assert_eq!(sizes.iter().map(ToString::to_string).collect::<Vec<_>>(), ["128", "256"]);
    assert_eq!(changed.tests[1].params.numbers("loads").unwrap(), [20.0], "the last one holds");
    assert_eq!(changed.tests[1].params.sizes("frame_sizes"), plain.tests[1].params.sizes("frame_sizes"));
    assert_eq!((&changed.ports, &changed.duts), (&plain.ports, &plain.duts));
    for (set, message, help) in [
        (
            "thruput.duration=1 s",
            "`--set thruput.duration=1 s`: this suite has no such test",
            "known: `throughput` and `latency`",
        ),
        ("throughput.durationn=1 s", "the test `throughput` has no key `durationn`", "did you mean `duration`?"),
        ("throughput.duration=long", "`long`", "write"),
        ("latency.loads=[10", "`--set latency.loads=[10`: this is not YAML", "as in a suite"),
        ("latency.loads=~", "`loads`", ""),
    ] {
        let error = with(&[set]).unwrap_err().errors.remove(0);
        assert!(error.message.contains(message) && error.help.contains(help), "{set}: {error:?}");
        assert!(error.line >= 9, "{set}: at the tests, not at {}", error.line);
    }
}
