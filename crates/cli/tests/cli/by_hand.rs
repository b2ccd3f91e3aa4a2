//! Loads the output of `drophammer plan --config frr`, `bird` and `linux` into these routers, following its instructions exactly, as a user would by
//! hand. A run with the kind `external` must then pass on them: no frame is lost, and every route is there.
//!
//! Tester and router are two network namespaces joined by veth pairs, or the router is a guest of User Mode Linux. PID and mount namespaces end them
//! with the test. The tests need root, FRR and BIRD, and for VLANs also User Mode Linux; if something is missing, they are skipped with a message.

use crate::common::{MACHINE, assert_the_kernel_agrees, good, kind_of, records, run, shell, text};
use serde_json::Value;
use std::fs;
use std::path::Path;
use std::process::Output;
use std::sync::{Mutex, MutexGuard, PoisonError};

const KEY: &str = "sesame4711";

/// Starts the daemons without a configuration, as after an installation, and follows the printed one, which is in the files `shell` and `load`.
/// `WITHIN` precedes each command of the router.
const START: &str = r#"
mkdir -p /run/frr /run/bird
$WITHIN sh -eu shell > shell.log
case $LANGUAGE in
frr)
    mount -t tmpfs none /etc/frr
    touch /etc/frr/vtysh.conf
    chown -R frr:frr /etc/frr /run/frr /var/tmp
    for daemon in zebra staticd bgpd; do
        $WITHIN /usr/lib/frr/$daemon -d -f /dev/null > $daemon.log 2>&1
    done ;;
bird)
    echo 'protocol device {}' > empty.conf
    $WITHIN bird -c empty.conf > bird.log 2>&1 ;;
esac
$WITHIN sh -eu load > load.log 2>&1
"#;

/// The router is a network namespace, joined to the tester by veth pairs.
const NAMESPACE: &str = r#"
set -eu
mount -t sysfs none /sys
for folder in /run /var/tmp; do mount -t tmpfs none $folder; done
mkdir -p /run/netns
ip link set lo up
ip netns add router
ip -n router link set lo up
for i in $(seq "$PORTS"); do
    ip link add eth$i mtu 1600 type veth peer name r$i mtu 1600 netns router
    echo 1 > /proc/sys/net/ipv6/conf/eth$i/disable_ipv6
    ip link set eth$i up
done
WITHIN="ip netns exec router"
. ./start
exec "$D" run suite.yaml --out out --plain --busy-host
"#;

/// The router is a guest of User Mode Linux, whose kernel has VLANs, behind taps.
const GUEST: &str = r#"
set -eu
mount -t sysfs none /sys
mount -t tmpfs none /run
ip link set lo up
links=
for i in $(seq "$PORTS"); do
    ip tuntap add dev eth$i mode tap
    echo 1 > /proc/sys/net/ipv6/conf/eth$i/disable_ipv6
    ip link set eth$i mtu 1600 up
    links="$links vec$((i - 1)):transport=tap,ifname=eth$i,mtu=1500"
done
chmod 755 inside
TMPDIR=/run linux.uml mem=192M root=/dev/root rootfstype=hostfs rootflags=/ ro quiet selinux=0 panic=1 con=null con0=null,fd:1 \
    ssl=null umid=guest uml_dir=/run/ $links init="$PWD/inside" FOLDER="$PWD" PORTS="$PORTS" LANGUAGE="$LANGUAGE" > guest.log 2>&1 < /dev/null &
guest=$!
# The run waits for a link for 5 s, and on a busy machine the guest takes longer until it opens its interfaces.
for i in $(seq "$PORTS"); do
    until ip -o link show eth$i | grep -q LOWER_UP; do kill -0 $guest; sleep 0.1; done
done
status=0
"$D" run suite.yaml --out out --plain --busy-host || status=$?
cp guest.log load.log
exit $status
"#;

/// The first process of the guest, which says READY when the router is configured.
const INSIDE: &str = r#"#!/bin/sh
set -eu
export PATH=/tmp/bin:/usr/sbin:/usr/bin:/sbin:/bin
mount -t proc none /proc
mount -t sysfs none /sys
mount --bind "$FOLDER" /mnt
for folder in /run /tmp /var/tmp; do mount -t tmpfs none $folder; done
mkdir -p /tmp/lib /tmp/bin
ln -s /usr/lib/uml/modules /tmp/lib/modules
for module in ipv6 8021q; do modprobe -d /tmp $module; done
ip link set lo up
for i in $(seq "$PORTS"); do
    ip link set vec$((i - 1)) name r$i
    ethtool -K r$i tx off sg off tso off gso off gro off > /dev/null
done
cd /tmp
cp /mnt/shell .
sed "s|$FOLDER|/mnt|" /mnt/load > load
WITHIN=
trap 'cat *.log' EXIT
. /mnt/start
cat load.log
echo READY
exec sleep infinity
"#;

/// What is missing for the test; empty if nothing is.
fn missing() -> Option<String> {
    if !nix::unistd::geteuid().is_root() {
        return Some("it needs root".into());
    }
    let needed = ["/usr/lib/frr/bgpd", "/usr/bin/vtysh", "/usr/sbin/bird", "/usr/sbin/birdc"];
    needed.iter().find(|path| !Path::new(path).exists()).map(|path| format!("{path} is missing"))
}

/// The indented lines after the comment `title`, without their explanations.
fn block(config: &str, title: &str) -> String {
    let lines = config.lines().skip_while(|line| !line.ends_with(title)).skip(1).take_while(|line| line.len() > 1);
    let line = |line: &str| line[1..].trim().split("    ").next().unwrap_or_default().to_owned() + "\n";
    lines.map(line).collect()
}

fn suite(ports: &str, more: &str) -> String {
    let count = ports.lines().count();
    let interfaces = (1..=count).map(|i| format!("eth{i}")).collect::<Vec<_>>().join(", ");
    format!(
        "suite: by-hand\nprofile: quick\nrounds: 1\nduts:\n  - {{name: box, kind: external, interfaces: [{interfaces}], timeout: 20 s}}\n\
         ports:\n{ports}{more}"
    )
}

const PORTS: &str = "  - {name: p1, speed: 1 Gbit/s}\n  - {name: p2, speed: 1 Gbit/s}\n";

/// A low rate, in both families.
const THROUGHPUT: &str =
    "throughput: {frame_sizes: [128], families: [ipv4, ipv6], max_load: 400 fps, pdr: false, search_duration_max: 4 s";

/// Runs are pinned to the same processor, so tests take turns.
static TURN: Mutex<()> = Mutex::new(());

fn turn() -> MutexGuard<'static, ()> {
    TURN.lock().unwrap_or_else(PoisonError::into_inner)
}

/// Number of attempts, and the exit codes of a run that was spoilt because other programs held the tester up.
const TRIES: usize = 3;
const SPOILT: [Option<i32>; 2] = [Some(5), Some(6)];

/// Loads what is printed for `suite`, after `change`, into a router of the bed, and runs the suite, with its FOLDER replaced.
fn by_hand(bed: &str, language: &str, suite: &str, folder: &Path, change: &dyn Fn(String) -> String) -> Output {
    let file = folder.join("suite.yaml");
    fs::write(&file, suite.replace("FOLDER", folder.to_str().unwrap())).unwrap();
    let ports = suite.matches("name: p").count();
    let interfaces = (1..=ports).map(|i| format!("r{i}")).collect::<Vec<_>>().join(",");
    let plan = good(&run(&["plan", file.to_str().unwrap(), "--config", language, "--interfaces", &interfaces]));
    let config = change(plan.replace("<secret>", KEY));
    let (in_shell, load) = match language {
        "linux" => (config.clone(), "true FILE".to_owned()),
        _ => (block(&config, "First, in the shell of the router:"), block(&config, "Then load this file:")),
    };
    assert!(in_shell.lines().count() >= ports && load.contains("FILE"), "{config}");
    let router = folder.join("router.conf");
    fs::write(&router, &config).unwrap();
    for (name, text) in [("shell", in_shell.as_str()), ("start", START), ("inside", INSIDE)] {
        fs::write(folder.join(name), text).unwrap();
    }
    fs::write(folder.join("load"), load.replace("FILE", router.to_str().unwrap())).unwrap();
    shell(MACHINE, folder, bed).env("LANGUAGE", language).env("PORTS", ports.to_string()).output().unwrap()
}

/// Like [`by_hand`], in a fresh folder, and again if the machine spoilt the run.
fn unspoilt(bed: &str, language: &str, suite: &str, change: &dyn Fn(String) -> String) -> (tempfile::TempDir, Output) {
    for attempt in 1..TRIES {
        let folder = tempfile::tempdir().unwrap();
        let output = by_hand(bed, language, suite, folder.path(), change);
        if !SPOILT.contains(&output.status.code()) {
            return (folder, output);
        }
        println!("attempt {attempt} was spoilt: {}", text(&output.stdout));
    }
    let folder = tempfile::tempdir().unwrap();
    let output = by_hand(bed, language, suite, folder.path(), change);
    (folder, output)
}

/// All output of the router and of the loading.
fn said(folder: &Path) -> String {
    let logs = fs::read_dir(folder).unwrap().map(|entry| entry.unwrap().path());
    let logs = logs.filter(|path| path.extension().is_some_and(|e| e == "log"));
    logs.map(|path| format!("{}:\n{}", path.display(), fs::read_to_string(&path).unwrap_or_default())).collect()
}

/// The column `key` of the table `table` of a test, all rows.
fn column(test: &Value, table: &str, key: &str) -> Vec<Value> {
    let tables = test["outcome"]["tables"].as_array().unwrap();
    let table = tables.iter().find(|t| t["key"] == table).unwrap_or_else(|| panic!("no table {table}: {test}"));
    let place = table["columns"].as_array().unwrap().iter().position(|c| c["key"] == key).unwrap();
    table["rows"].as_array().unwrap().iter().map(|row| row["cells"][place].clone()).collect()
}

/// Checks that the suite passes on the routers: all its tests are completed, no valid trial at the low rate lost a frame, and the kernel counted the
/// frames of these trials as the tester did.
fn passes(what: &str, bed: &str, languages: &[&str], suite: &str, further: &dyn Fn(&[Value])) {
    if let Some(why) = missing() {
        println!("skipped: {why}");
        return;
    }
    for language in languages.iter().copied() {
        let _turn = turn();
        let (folder, output) = unspoilt(bed, language, suite, &|config| config);
        let told =
            format!("{what}, {language}: {}{}{}", text(&output.stdout), text(&output.stderr), said(folder.path()));
        assert!(output.status.success(), "{told}");
        // vtysh prints a percent sign for each line that it rejects, and reads the next one.
        let loaded = fs::read_to_string(folder.path().join("load.log")).unwrap();
        assert!(!loaded.contains('%') && (language != "bird" || loaded.contains("Reconfigured")), "{told}");
        let records = records(&folder.path().join("out"));
        let tests: Vec<Value> = records.iter().filter(|r| kind_of(r) == "test").cloned().collect();
        assert!(!tests.is_empty() && tests.iter().all(|t| t["status"]["status"] == "completed"), "{told}");
        let lost = |record: &Value| {
            let groups = record["result"]["groups"].as_array().unwrap();
            groups.iter().map(|g| g["offered"].as_u64().unwrap() - g["received"].as_u64().unwrap()).sum::<u64>()
        };
        // A trial that a busy machine spoilt is stored too, and repeated.
        let at_a_low_rate = |r: &&Value| {
            kind_of(r) == "trial"
                && (r["test"] == "throughput" || r["test"] == "fixed_rate")
                && r["result"]["validity"]["verdict"] == "valid"
        };
        let trials: Vec<&Value> = records.iter().filter(at_a_low_rate).collect();
        assert!(!trials.is_empty() && trials.iter().all(|trial| lost(trial) == 0), "{told}");
        let compared =
            ["throughput", "fixed_rate"].map(|test| assert_the_kernel_agrees(&folder.path().join("out"), test));
        assert!(compared.iter().sum::<usize>() > 0, "{told}");
        further(&tests);
    }
}

#[test]
#[ignore = "long: `make test-all` runs it"]
fn protected_sessions_of_several_peers_take_and_pass_on_both_families() {
    let bgp = format!("bgp: {{peers_per_port: 2, md5: {KEY}, gtsm: true}}\n");
    let tests = format!(
        "tests:\n  - {THROUGHPUT}, expect: {{throughput_128_pps: \">= 300\"}}}}\n  - bgp_table_capacity: {{step: 150, max_routes: 300, \
         families: [ipv4, ipv6], expect: {{bgp_capacity_ipv4_routes: \">= 300\", bgp_capacity_ipv6_routes: \">= 300\"}}}}\n"
    );
    passes("several peers", NAMESPACE, &["frr", "bird"], &suite(PORTS, &(bgp + &tests)), &|tests| {
        let capacity = tests.iter().find(|t| t["test"] == "bgp_table_capacity").unwrap();
        assert!(column(capacity, "bgp_table_capacity", "wrong").iter().all(|wrong| *wrong == 0.0), "{capacity}");
    });
}

#[test]
#[ignore = "long: `make test-all` runs it"]
fn a_linux_router_forwards_after_the_script() {
    let tests = format!("tests:\n  - {THROUGHPUT}, expect: {{throughput_128_pps: \">= 300\"}}}}\n");
    passes("a script", NAMESPACE, &["linux"], &suite(PORTS, &tests), &|_| ());
}

#[test]
#[ignore = "long: `make test-all` runs it"]
fn internal_peers_and_meshed_ports_forward_to_routes() {
    let ports: String = (1..=4).map(|i| format!("  - {{name: p{i}, speed: 1 Gbit/s}}\n")).collect();
    let tests = format!(
        "bgp: {{internal: [p2, p4], next_hop_self: true}}\ntests:\n  - {THROUGHPUT}, routes: 200, distribution: fully_meshed, \
         expect: {{throughput_128_pps: \">= 300\"}}}}\n"
    );
    passes("internal peers", NAMESPACE, &["frr", "bird"], &suite(&ports, &tests), &|tests| {
        let throughput = tests.iter().find(|t| t["test"] == "throughput").unwrap();
        assert!(!column(throughput, "routed", "verified").is_empty(), "{throughput}");
    });
}

#[test]
#[ignore = "long: `make test-all` runs it"]
fn sub_interfaces_forward_and_have_neighbours_of_their_own() {
    if !Path::new("/usr/bin/linux.uml").exists() {
        println!("skipped: linux.uml is missing");
        return;
    }
    if let Some(why) = drophammer_lab::kinds::uml::unfit_processor() {
        println!("skipped: {why}");
        return;
    }
    let vlans = "suite: by-hand\nprofile: quick\nrounds: 1\nduts:\n  - {name: box, kind: external, interfaces: [eth1, eth2], alive: grep -q READY FOLDER/guest.log}\n\
        ports:\n  - {name: p1, speed: 1 Gbit/s, vlans: [{id: 100}, {id: [100, 200]}]}\n  - {name: p2, speed: 1 Gbit/s, vlans: [{id: 300}]}\n\
        bgp: {peers_per_vlan: 1}\nflows:\n\
        \x20 - {name: red, from: p1.100, to: p2.300, size: 128, rate: 300 fps, headers: [ipv4, udp]}\n\
        \x20 - {name: blue, from: p1.100.200, to: p2.300, size: 128, rate: 200 fps, headers: [ipv6, udp]}\n\
        tests:\n  - fixed_rate: {expect: {loss_red_percent: \"<= 0\", deviations_red: \"<= 0\", loss_blue_percent: \"<= 0\", deviations_blue: \"<= 0\"}}\n\
        \x20 - bgp_session_capacity: {expect: {bgp_sessions: \">= 10\"}}\n";
    passes("sub-interfaces", GUEST, &["frr", "bird"], vlans, &|_| ());
}

/// A configuration without a static route must fail; otherwise the tests above would prove nothing.
#[test]
#[ignore = "long: `make test-all` runs it"]
fn a_line_that_is_missing_is_found() {
    if let Some(why) = missing() {
        println!("skipped: {why}");
        return;
    }
    let suite = suite(PORTS, &format!("tests:\n  - {THROUGHPUT}}}\n"));
    let missed = |(language, line): (&str, &str)| {
        let without = |config: String| {
            assert!(config.contains(line), "{config}");
            config.lines().filter(|l| !l.starts_with(line)).map(|l| format!("{l}\n")).collect()
        };
        let (folder, output) = unspoilt(NAMESPACE, language, &suite, &without);
        let told = text(&output.stdout) + &text(&output.stderr);
        assert_eq!(output.status.code(), Some(1), "{told}{}", said(folder.path()));
        assert!(told.contains("IPv4"), "{told}");
    };
    let _turn = turn();
    // Both runs only wait for their router until they give up, so they can run at the same time.
    std::thread::scope(|scope| {
        for case in [("frr", "ip route 198.18.64.0/18"), ("bird", "\troute 198.18.64.0/18")] {
            let missed = &missed;
            scope.spawn(move || missed(case));
        }
    });
}
