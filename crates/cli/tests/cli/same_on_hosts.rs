//! The same suite on the ports of one process, of two agents and of four gives the same counts.

use crate::common::{MACHINE, kind_of, records, shell, text};
use crate::hosts::{HOSTS, alone};
use serde_json::{Map, Value};
use std::collections::BTreeMap;
use std::path::Path;

/// Ports far below capacity: a line carries 1,190 frames of 64 bytes per second.
const SUITE: &str = "\
suite: same
profile: quick
rounds: 1
seed: 7
ports:
  - {name: p1, speed: 800 kbit/s}
  - {name: p2, speed: 800 kbit/s}
  - {name: p3, speed: 800 kbit/s}
  - {name: p4, speed: 800 kbit/s}
flows:
  - {name: small, from: p1, to: p2, size: 64, rate: 1 kfps}
  - {name: class, from: p2, to: p1, size: 128, rate: 600 fps, headers: [{ipv4: {dscp: 46}}, udp], arrives: {dscp: 46}}
  - {name: six, from: p3, to: p4, size: 96, rate: 800 fps, headers: [ipv6, udp]}
  - {name: tcp, from: p4, to: p3, size: 90, rate: 700 fps, headers: [ipv4, tcp]}
tests:
  - fixed_rate: {trial_duration: 2 s}
  - soak: {frame_size: 64, rate: 900 fps, duration: 2 s, interval: 2 s}
  - packet_order: {id: pairs, frame_sizes: [64], load_of: line, loads: [80, 40], trial_duration: 2 s, repeats: 1}
  - packet_order: {id: meshed, frame_sizes: [64], distribution: fully_meshed, load_of: line, loads: [80], trial_duration: 2 s, repeats: 1}
  - packet_order: {id: mix, frame_sizes: [imix], families: [ipv4, ipv6], load_of: line, loads: [80], trial_duration: 5 s, repeats: 1}
";

/// Who has the ports: the name, the interfaces, and the router's ends of them.
pub const PLACES: [(&str, &str, &str); 3] = [
    ("one", "e1, e2, e3, e4", "r9 r10 r11 r12"),
    ("two", "a1/eth1, a2/eth1, a1/eth2, a2/eth2", "r1 r3 r2 r4"),
    ("four", "b1/eth1, b2/eth1, b3/eth1, b4/eth1", "r5 r6 r7 r8"),
];

/// Six agents. The first two have two ports each.
const AGENTS: &str = "hosts='a1:eth1,eth2 a2:eth1,eth2 b1:eth1 b2:eth1 b3:eth1 b4:eth1'; python3 turns.py $$\n";

/// Four ports without agents. The kernel is silent on all links.
const PORTS_OF_ONE: &str = "\
for i in 1 2 3 4; do
    r=$((r + 1))
    ip link add e$i type veth peer name r$r netns router
    sysctl -qw net.ipv6.conf.e$i.disable_ipv6=1
    ip link set e$i up
    ip -n router link set r$r up
done
ip netns exec router sysctl -qw net.ipv6.conf.all.disable_ipv6=1
";

/// A run in which a busy machine kept the tester from a frame, or the device from its processor until the tester had stopped waiting, is
/// repeated.
const RUNS: &str = "\
disturbed() {
    grep '\"verdict\":\"valid\"' $1/run.jsonl > valid
    grep -v '\"unsent\":0,' valid || grep '\"held_up\":' valid
}
for place in one two four; do
    for try in 1 2 3; do
        begun=$SECONDS
        access=$controller
        [ $place = two ] || [ $place = four ] || access=
        rm -rf $place
        if $D run $place.yaml $access --out $place --busy-host --plain > $place.said 2> $place.errors && ! disturbed $place > found; then break; fi
        echo \"$place: try $try was disturbed\"
    done
    echo \"$place: $((SECONDS - begun)) s\"
done
";

/// Keys of a group about time.
const TIMES: [&str; 3] = ["latency", "last_loss_ns", "bins"];
/// Keys of a group about order. If several ports send to one, their frames come between each other in any order, so a frame that the device sends
/// after the next three on its port is then behind more or fewer of its own flow.
const ORDER: [&str; 4] = ["reordered", "max_reordering_extent", "reordered_3", "in_sequence"];

/// Counts of a trial: by group, and as the device itself counted.
type Counts = (Vec<Map<String, Value>>, BTreeMap<String, u64>);

/// The counts of the valid trials, by test, purpose and a number. Offered loads say what the tester can do, so they are not among them.
fn counts(folder: &Path) -> BTreeMap<(String, String, usize), Counts> {
    let all = records(folder).into_iter().filter(|record| kind_of(record) == "trial");
    let valid =
        all.filter(|trial| trial["result"]["validity"]["verdict"] == "valid" && trial["test"] != "offered_load");
    let mut counts = BTreeMap::new();
    for trial in valid {
        let [test, purpose] = [&trial["test"], &trial["spec"]["purpose"]].map(|text| text.as_str().unwrap().to_owned());
        let same = counts.keys().filter(|(of, what, _)| (of, what) == (&test, &purpose)).count();
        let flows = trial["spec"]["flows"].as_array().unwrap();
        let meets = |flow: &Value| flows.iter().any(|of| of["to"] == flow["to"] && of["from"] != flow["from"]);
        let left_out = [&TIMES[..], if flows.iter().any(meets) { &ORDER } else { &[] }].concat();
        let of_frames = |group: &Value| {
            let mut group = group.as_object().unwrap().clone();
            group.retain(|key, _| !left_out.contains(&key.as_str()));
            group
        };
        let groups = trial["result"]["groups"].as_array().unwrap().iter().map(of_frames).collect();
        let mut device: BTreeMap<String, u64> =
            serde_json::from_value(trial["result"]["dut_counters"].clone()).unwrap();
        // The kernel counts only the frames on the interfaces of this host.
        device.retain(|key, _| !key.contains("_packets"));
        counts.insert((test, purpose, same + 1), (groups, device));
    }
    counts
}

/// The sum of a count over all groups.
fn sum(groups: &[Map<String, Value>], key: &str) -> u64 {
    groups.iter().map(|group| group.get(key).map_or(0, |count| count.as_u64().unwrap())).sum()
}

/// A suite that has run in all [`PLACES`].
pub struct InPlaces {
    /// It has the folder of each run.
    pub folder: tempfile::TempDir,
    /// What the script printed.
    pub printed: String,
    /// What the runs said.
    pub said: String,
}

/// Runs the script `runs` with `suite` and `files` in each place. `commands` returns the router's `setup` and `teardown`;
/// its argument lists the router's interfaces.
pub fn run_in_places(suite: &str, files: &[(&str, &str)], runs: &str, commands: impl Fn(&str) -> String) -> InPlaces {
    let _alone = alone();
    let folder = tempfile::tempdir().unwrap();
    let write = |name: &str, text: &str| std::fs::write(folder.path().join(name), text).unwrap();
    write("turns.py", include_str!("same_on_hosts/turns.py"));
    files.iter().for_each(|(name, text)| write(name, text));
    for (place, interfaces, links) in PLACES {
        let commands = commands(links);
        let dut = format!("duts:\n  - {{name: box, kind: external, interfaces: [{interfaces}], {commands}}}\n");
        write(&format!("{place}.yaml"), &format!("{suite}{dut}"));
    }
    let output = shell(MACHINE, folder.path(), &format!("{AGENTS}{HOSTS}{PORTS_OF_ONE}{runs}")).output().unwrap();
    let read = |name: String| std::fs::read_to_string(folder.path().join(name)).unwrap_or_default();
    let said = PLACES.map(|(place, ..)| read(format!("{place}.said")) + &read(format!("{place}.errors"))).concat();
    let printed = text(&output.stdout);
    assert!(output.status.success(), "{}{}{said}", output.status, text(&output.stderr));
    eprint!("{printed}");
    InPlaces { printed: printed.to_string(), folder, said }
}

#[test]
#[ignore = "long: `make test-all` runs it"]
fn one_process_two_agents_and_four_count_the_same() {
    if !nix::unistd::geteuid().is_root() {
        eprintln!("skipped: only root can lend interfaces");
        return;
    }
    let begun = std::time::Instant::now();
    let files = [("router.py", include_str!("same_on_hosts/router.py"))];
    let ran = run_in_places(SUITE, &files, RUNS, |links| {
        format!(
            "setup: python3 router.py start {links}, counters: python3 router.py counters, teardown: python3 router.py stop"
        )
    });
    let said = || &ran.said;
    let [one, two, four] = PLACES.map(|(place, ..)| counts(&ran.folder.path().join(place)));
    assert_eq!(one.len(), 6, "{:?}{}{}", one.keys(), ran.printed, said());
    let (mut frames, mut faulty, mut reordered) = (0, 0, 0);
    for (trial, (groups, device)) in &one {
        for (agents, other) in [("two agents", &two), ("four agents", &four)] {
            let (counted, by_device) = other.get(trial).unwrap_or_else(|| panic!("{agents}: no {trial:?}{}", said()));
            assert_eq!(counted, groups, "{agents}, {trial:?}");
            assert_eq!(by_device, device, "{agents}, {trial:?}");
        }
        // And these counts are right.
        let did = |key: &str| device.get(key).copied().unwrap_or(0);
        let lost = did("dropped") + did("corrupted") + did("wrong_next_hop");
        assert_eq!((sum(groups, "offered"), sum(groups, "lost")), (did("test_frames"), lost), "{trial:?}");
        let counted = ["duplicated", "corrupted", "stray"].map(|key| sum(groups, key));
        assert_eq!(counted, ["duplicated", "corrupted", "wrong_next_hop"].map(did), "{trial:?}");
        assert!(counted.iter().all(|frames| *frames > 0), "{trial:?}");
        frames += sum(groups, "offered");
        reordered += sum(groups, "reordered");
        faulty += lost + counted[0];
    }
    assert!(reordered > 0);
    let (trials, seconds) = (one.len(), begun.elapsed().as_secs());
    eprintln!(
        "{trials} trials on one process, two agents and four: the same {frames} frames, {faulty} lost or twice, {reordered} reordered; {seconds} s"
    );
}
