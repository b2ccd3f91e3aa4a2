//! Runs over several hosts: a private server, errors, and a run that is killed.

use crate::common::{MACHINE, good, kind_of, records, run, shell, suite, text};
use crate::serve::{CALLS, count, row};
use serde_json::Value;
use std::collections::BTreeSet;
use std::hash::{BuildHasher, RandomState};
use std::net::TcpListener;
use std::sync::{Mutex, MutexGuard, PoisonError};

mod guide;

#[test]
fn a_server_of_ones_own_starts_shows_who_is_there_and_ends() {
    let found = std::process::Command::new("nats-server").arg("--version").output();
    assert!(found.is_ok(), "the program nats-server is missing; install it (Debian: apt install nats-server)");
    let folder = tempfile::tempdir().unwrap();
    let bed = folder.path().join("bed");
    let bed = bed.to_str().unwrap();
    // The port is still free when the server binds it, unless another test is faster.
    let port = TcpListener::bind("127.0.0.1:0").unwrap().local_addr().unwrap().port();
    let (listen, url) = (format!("127.0.0.1:{port}"), format!("nats://127.0.0.1:{port}"));
    let up = ["bed", "up", "--folder", bed, "--listen", &listen];
    let output = run(&up);
    good(&output);
    assert!(text(&output.stdout).contains(&format!("drophammer agent --nats {url} --name HOST")));
    let again = run(&up);
    assert_eq!(again.status.code(), Some(3));
    assert!(text(&again.stderr).contains("already runs in"), "{}", text(&again.stderr));
    let status = run(&["bed", "status", "--nats", &url]);
    good(&status);
    assert_eq!(text(&status.stdout), "no agent is there\n");
    let json = run(&["bed", "status", "--nats", &url, "--json"]);
    assert_eq!(text(&json.stdout), "{\"agents\":[]}\n");
    let down = run(&["bed", "down", "--folder", bed]);
    assert!(text(&down.stdout).contains("the server has ended"), "{}", text(&down.stdout));
    let down = run(&["bed", "down", "--folder", bed]);
    assert!(text(&down.stdout).contains("no server runs in"), "{}", text(&down.stdout));
    let gone = run(&["bed", "status", "--nats", &url]);
    assert_eq!(gone.status.code(), Some(3));
    assert!(text(&gone.stderr).contains("drophammer bed up"), "{}", text(&gone.stderr));
}

#[test]
fn what_cannot_be_reached_or_trusted_is_refused_with_the_remedy() {
    let folder = tempfile::tempdir().unwrap();
    let external = |interfaces: &str| {
        let dut = format!("  - {{name: box, kind: external, interfaces: [{interfaces}]}}\n");
        suite(folder.path(), &dut, "  - throughput\n").to_str().unwrap().to_owned()
    };
    let path = external("host1/eth1, host2/eth1");
    let refused = |arguments: &[&str], code: i32, says: &str| {
        let output = run(arguments);
        let said = text(&output.stderr);
        assert!(output.status.code() == Some(code) && said.contains(says), "{arguments:?}: {:?} {said}", output.status);
    };
    refused(&["run", &path], 2, "host1/eth1 is on another host");
    refused(&["bed", "status", "--nats", "nats://192.0.2.1:4222"], 3, "write tls://192.0.2.1:4222");
    refused(&["bed", "status", "--nats", "tls://192.0.2.1:4222"], 3, "give --user and --password-file");
    refused(&["bed", "up", "--listen", "192.0.2.1", "--folder", "bed"], 3, "give --cert and --key");
    let agent = ["agent", "--nats", "nats://127.0.0.1:9", "--name", "h", "--ports", "nothing0"];
    refused(&agent, 3, "no interface nothing0");
    let mixed = external("host1/eth1, eth7");
    refused(&["check", &mixed], 0, "");
    let wrong = external("host 1/eth1, host2/eth1");
    refused(&["check", &wrong], 2, "cannot be the name of an interface");
}

/// Several agents never sleep in a trial, so the tests with such hosts run one after the other: beside a second set, a server can be
/// too slow to end leases.
pub fn alone() -> MutexGuard<'static, ()> {
    static TURN: Mutex<()> = Mutex::new(());
    TURN.lock().unwrap_or_else(PoisonError::into_inner)
}

/// A router between hosts. Each host is a namespace with ports and an interface in the management network; the variable `hosts` lists their
/// names and ports. The router's end of the nth port is `r<n>`. The server and the runs are outside of these namespaces, so connections are
/// encrypted and have passwords, as the documentation says. The agents may not raise their priority by themselves: all share the processors
/// of one machine, and a real-time thread would keep the others from their heartbeats. Everything here has a lower nice value, so other
/// programs do not make all frames late.
pub const HOSTS: &str = "\
set -eu
renice -n -10 $$ > /dev/null
mount -t sysfs none /sys
mount -t tmpfs none /run
ip link set lo up
ip link add mgmt type bridge
ip address add 192.0.2.1/24 dev mgmt
ip link set mgmt up
ip netns add router
ip netns exec router sysctl -qw net.ipv4.ip_forward=1
: ${hosts=host1:eth1 host2:eth1}
i=0 r=0
for host in $hosts; do
    name=${host%:*} i=$((i + 1))
    ip netns add $name
    ip link add m$i type veth peer name mgmt netns $name
    ip link set m$i master mgmt up
    ip -n $name address add 192.0.2.1$i/24 dev mgmt
    ip -n $name link set mgmt up
    for port in $(echo ${host#*:} | tr , ' '); do
        r=$((r + 1))
        ip -n $name link add $port type veth peer name r$r netns router
        ip netns exec $name sysctl -qw net.ipv6.conf.$port.disable_ipv6=1
        ip -n $name link set $port up
        ip -n router link set r$r up
    done
done
cat > setup <<'END'
ip -n router address replace $PORT_0_IPV4_DUT dev r1
ip -n router address replace $PORT_1_IPV4_DUT dev r2
ip -n router route replace $PORT_0_IPV4_BEHIND via $PORT_0_IPV4_HOST
ip -n router route replace $PORT_1_IPV4_BEHIND via $PORT_1_IPV4_HOST
END
openssl req -x509 -newkey ed25519 -nodes -keyout server.key -out server.pem -days 2 -subj /CN=drophammer \\
    -addext subjectAltName=IP:192.0.2.1 -addext basicConstraints=critical,CA:FALSE 2> openssl.errors
$D bed up --listen 192.0.2.1 --cert server.pem --key server.key > bed
server='--nats tls://192.0.2.1:4222 --ca server.pem'
controller=\"$server --user controller --password-file drophammer-bed/controller.password\"
humble='setpriv --bounding-set -sys_nice --inh-caps -sys_nice'
for host in $hosts; do
    ip netns exec ${host%:*} $humble $D agent $server --user agent --password-file drophammer-bed/agent.password \\
        --name ${host%:*} --ports ${host#*:} 2> ${host%:*}.errors &
done
until [ $($D bed status $controller | grep -c '/.*: .*, free') = $r ]; do sleep 0.1; done
";

/// The run is killed (SIGKILL) while its agents send the second trial of the second round.
const KILLED: &str = "\
count() { grep -c \"\\\"event\\\":\\\"$1\\\".*\\\"test\\\":\\\"soak\\\"\" events || :; }
sent() { ip netns exec host1 cat /sys/class/net/eth1/statistics/tx_packets; }
$D run suite.yaml $controller --out out --busy-host --plain --json > events 2> errors & run=$!
until [ \"$(count test_ended)\" = 1 ]; do kill -0 $run; sleep 0.05; done
trials=$(count trial)
until [ $(count trial) -gt $trials ]; do kill -0 $run; sleep 0.05; done
before=$(sent)
until [ $(sent) -gt $((before + 300)) ]; do kill -0 $run; sleep 0.01; done
kill -9 $run
! wait $run 2> /dev/null
cp out/run.jsonl killed.jsonl
$D run suite.yaml $controller --resume out --busy-host > resumed 2> resumed.errors
$D bed status $controller
";

/// A run of two rounds over two hosts that was killed and resumed.
struct Resumed {
    folder: tempfile::TempDir,
}

impl Resumed {
    /// Runs `script`, which kills and resumes the run, and checks that all ports are free at its end.
    fn after(script: &str) -> Resumed {
        let folder = tempfile::tempdir().unwrap();
        let suite = "suite: hosts\nprofile: quick\nrounds: 2\n\
            duts:\n  - {name: box, kind: external, interfaces: [host1/eth1, host2/eth1], setup: '. ./setup'}\n\
            ports: [{name: p1, speed: 1 Gbit/s}, {name: p2, speed: 1 Gbit/s}]\n\
            tests:\n  - soak: {frame_size: 64, duration: 9 s, interval: 3 s, rate: 1000 fps}\n";
        std::fs::write(folder.path().join("suite.yaml"), suite).unwrap();
        let output = shell(MACHINE, folder.path(), &format!("{HOSTS}{script}")).output().unwrap();
        let resumed = Resumed { folder };
        assert!(output.status.success(), "{}{}{}", output.status, text(&output.stderr), resumed.said());
        let free = text(&output.stdout);
        let ports = free.lines().filter(|line| line.contains("/eth1: ") && line.ends_with(", free"));
        assert_eq!(ports.count(), 2, "{free}");
        resumed
    }

    fn read(&self, name: &str) -> String {
        std::fs::read_to_string(self.folder.path().join(name)).unwrap_or_default()
    }

    fn said(&self) -> String {
        ["errors", "resumed.errors", "host1.errors", "host2.errors"].map(|name| self.read(name)).concat()
    }

    /// The trials of the test in a file of records.
    fn trials(&self, name: &str) -> Vec<Value> {
        let text = self.read(name);
        let records = text.lines().filter_map(|line| serde_json::from_str::<Value>(line).ok());
        records.filter(|record| kind_of(record) == "trial" && record["test"] == "soak").collect()
    }

    /// Checks that the run has ended with both rounds, and that each valid trial has all frames of both hosts and is
    /// there once. Returns the number of these trials.
    fn assert_whole(&self) -> usize {
        let all = records(&self.folder.path().join("out"));
        assert_eq!(kind_of(all.last().unwrap()), "ended");
        let round = |record: &Value| record["round"].as_u64().unwrap_or(1);
        let tests = all.iter().filter(|record| kind_of(record) == "test" && record["test"] == "soak");
        assert_eq!(tests.map(round).collect::<Vec<_>>(), [1, 2]);
        // A trial that a busy host spoilt is stored too, and repeated.
        let is_valid = |trial: &Value| trial["result"]["validity"]["verdict"] == "valid";
        let trials: Vec<_> = self.trials("out/run.jsonl").into_iter().filter(is_valid).collect();
        // A machine may be too busy for a few valid trials, so not all six must be there. None is there twice.
        let numbers: BTreeSet<_> =
            trials.iter().map(|trial| (round(trial), trial["result"]["trial"].as_u64())).collect();
        assert!((1..=6).contains(&trials.len()) && numbers.len() == trials.len(), "{numbers:?}{}", self.said());
        trials.iter().for_each(assert_counts);
        trials.len()
    }
}

/// Checks that a trial has all frames of both hosts.
fn assert_counts(trial: &Value) {
    let result = &trial["result"];
    for group in result["groups"].as_array().unwrap() {
        let counts = ["intended", "offered", "received", "lost", "duplicated", "stray"]
            .map(|key| group[key].as_u64().unwrap_or_else(|| panic!("{key}: {trial}")));
        let offered = counts[1];
        // A host that gets no processor for a moment sends a few frames less. One host alone would have sent half of
        // them.
        assert!(offered > 5_900, "{trial}");
        assert_eq!(counts, [6_000, offered, offered, 0, 0, 0], "{trial}");
    }
    let hosts = &result["health"]["between_hosts"]["each"];
    let named = hosts.as_array().unwrap().iter().map(|host| (&host["name"], &host["ports"][0]));
    assert!(named.eq([(&"host1".into(), &"eth1".into()), (&"host2".into(), &"eth1".into())]), "{hosts}");
}

#[test]
#[ignore = "long: `make test-all` runs it"]
fn a_run_that_is_killed_while_agents_send_goes_on_with_whole_trials() {
    if !nix::unistd::geteuid().is_root() {
        eprintln!("skipped: only root can lend interfaces");
        return;
    }
    let _alone = alone();
    let run = Resumed::after(KILLED);
    let killed = run.read("killed.jsonl");
    assert!(!killed.contains("\"record\":\"ended\"") && run.trials("killed.jsonl").len() >= 3, "{killed}");
    run.assert_whole();
    assert!(!run.trials("out/cut-off-1.jsonl").is_empty(), "the first trial of the second round, which was cut off");
    let report = run.read("out/report.md");
    let rows =
        report.lines().filter(|line| line.starts_with("| host1 | eth1 |") || line.starts_with("| host2 | eth1 |"));
    assert_eq!(rows.count(), 2, "{report}");
}

/// The run is killed `$after` seconds after its first record, and resumed.
const KILLED_AT: &str = "\
$D run suite.yaml $controller --out out --busy-host --plain > said 2> errors & run=$!
until [ -s out/run.jsonl ]; do kill -0 $run; sleep 0.01; done
sleep $after
kill -9 $run
! wait $run 2> /dev/null
cp out/run.jsonl killed.jsonl
$D run suite.yaml $controller --resume out --busy-host --plain > resumed 2> resumed.errors
$D bed status $controller
";
/// Shorter than the two rounds take, in ms.
const SPAN_MS: u64 = 15_000;

/// `ROUNDS` is the number of runs that are killed (default 2).
#[test]
#[ignore = "long: `make test-all` runs it"]
fn a_run_that_is_killed_at_any_instant_goes_on_with_whole_trials() {
    if !nix::unistd::geteuid().is_root() {
        eprintln!("skipped: only root can lend interfaces");
        return;
    }
    let _alone = alone();
    let rounds = std::env::var("ROUNDS").ok().and_then(|rounds| rounds.parse().ok()).unwrap_or(2_u64);
    for round in 0..rounds {
        let after_ms = RandomState::new().hash_one(round) % SPAN_MS;
        let run = Resumed::after(&format!("after={}.{:03}\n{KILLED_AT}", after_ms / 1_000, after_ms % 1_000));
        let killed = run.read("killed.jsonl");
        assert!(!killed.contains("\"record\":\"ended\""), "killed after {after_ms} ms: {killed}");
        let (before, whole) = (run.trials("killed.jsonl").len(), run.assert_whole());
        eprintln!("killed after {after_ms} ms with {before} trials: {whole} valid trials, each with all frames, once");
    }
}

/// The API over the same hosts: two flows through the router, started, paused and stopped one by one.
const SERVED: &str = r#"
ip -n router address add 10.1.0.1/24 dev r1
ip -n router address add 10.2.0.1/24 dev r2
$D serve --http --listen 127.0.0.1:0 $controller > served 2> said & SERVER=$!
trap 'kill -9 $SERVER 2> /dev/null || :' EXIT
"#;

const CALLED: &str = r#"
exec > calls
ports() { call POST /monitor/metrics '{"port": {}}'; }
free() { $D bed status $controller | grep -c 'host[12]/eth1: .*free' || :; }
stopped() { until metrics | tee last | grep -q "\"name\":\"$1\"[^}]*\"transmit\":\"stopped\""; do sleep 0.05; done; cat last; }
call POST /config "$(sed 's/host2.eth1/eth1/' config)"
call POST /config "$(sed 's/"enable": true/"enable": true, "latency": {"enable": true}/' config)"
free > before
call POST /config "$(cat config)"
free > during
call POST /control/state '{"port": {"capture": {"state": "start", "port_names": ["p2"]}}}'
transmit start '"endless"'
transmit start '"fixed"'
transmit pause '"fixed"'
metrics
transmit resume '"fixed"'
stopped fixed
ports
transmit stop
metrics
call POST /monitor/capture '{"port_name": "p2"}' > capture
transmit start '"endless"'
call POST /control/state '{"port": {"link": {"state": "down", "port_names": ["p1"]}}}'
ports
call POST /control/state '{"port": {"link": {"state": "up", "port_names": ["p1"]}}}'
transmit stop
transmit start '"fixed"'
stopped fixed
call POST /config "$(sed 's/"udp": {}/"udp": {"dst_port": {"values": [1, 2, 3, 4], "metric_tags": [{"name": "port"}]}}/
    s/"fixed": 128/"increment": {"start": 128, "end": 132, "step": 2}/' config)"
transmit start '"fixed"'
until call POST /monitor/metrics '{"flow": {"flow_names": ["fixed"]}}' | tee last | grep -q '"transmit":"stopped"'; do sleep 0.05; done
cat last
call POST /config "$(cat config)"
call POST /monitor/states '{"ipv4_neighbors": {}}'
kill -INT $SERVER
wait $SERVER
free > after
"#;

fn served_config() -> String {
    let device = |i: usize| {
        format!(
            r#"{{"name": "d{i}", "ethernets": [{{"name": "e{i}", "connection": {{"port_name": "p{i}"}},
            "ipv4_addresses": [{{"name": "a{i}", "address": "10.{i}.0.2", "gateway": "10.{i}.0.1", "prefix": 24}}]}}]}}"#
        )
    };
    let flow = |name: &str, from: usize, to: usize, rate: usize, duration: &str| {
        format!(
            r#"{{"name": "{name}", "tx_rx": {{"device": {{"tx_names": ["a{from}"], "rx_names": ["a{to}"]}}}},
            "packet": [{{"ethernet": {{}}}}, {{"ipv4": {{}}}}, {{"udp": {{}}}}], "size": {{"fixed": 128}},
            "rate": {{"pps": {rate}}}, "duration": {duration}, "metrics": {{"enable": true}}}}"#
        )
    };
    format!(
        r#"{{"ports": [{{"name": "p1", "location": "host1/eth1"}}, {{"name": "p2", "location": "host2/eth1"}}],
        "devices": [{}, {}], "flows": [{}, {}]}}"#,
        device(1),
        device(2),
        flow("fixed", 1, 2, 1_000, r#"{"fixed_packets": {"packets": 1000}}"#),
        flow("endless", 2, 1, 500, r#"{"continuous": {}}"#)
    )
}

#[test]
#[ignore = "long: `make test-all` runs it"]
fn the_api_serves_ports_of_other_hosts_with_exact_counts_and_captures() {
    if !nix::unistd::geteuid().is_root() {
        eprintln!("skipped: only root can lend interfaces");
        return;
    }
    let _alone = alone();
    let folder = tempfile::tempdir().unwrap();
    std::fs::write(folder.path().join("config"), served_config()).unwrap();
    let begun = std::time::Instant::now();
    let output = shell(MACHINE, folder.path(), &format!("{HOSTS}{SERVED}{CALLS}{CALLED}")).output().unwrap();
    let read = |name: &str| std::fs::read_to_string(folder.path().join(name)).unwrap_or_default();
    let said = || ["calls", "said", "host1.errors", "host2.errors"].map(read).concat();
    assert!(output.status.success(), "{}{}{}", output.status, text(&output.stderr), said());
    eprintln!("the API over two hosts: {:?}", begun.elapsed());
    let answers = read("calls");
    let answers = answers.lines().filter(|line| line.starts_with('{'));
    let answers: Vec<Value> = answers.map(|line| serde_json::from_str(line).unwrap()).collect();
    let [
        mixed,
        latency,
        set,
        _,
        _,
        _,
        _,
        paused,
        _,
        over,
        ports,
        _,
        ended,
        _,
        _,
        unplugged,
        _,
        _,
        _,
        again,
        _,
        _,
        tagged,
        _,
        hosts,
    ] = &answers[..]
    else {
        panic!("{answers:#?}{}", said())
    };
    let error = |answer: &Value| answer["errors"][0].as_str().unwrap_or_else(|| panic!("{answer}")).to_owned();
    assert!(error(mixed).starts_with("ports[1].location: eth1 is on this machine"), "{mixed}");
    assert!(
        error(latency).starts_with("flows[0].metrics.latency: not measured between ports of two hosts"),
        "{latency}"
    );
    assert_eq!(set["warnings"].as_array().map(Vec::len), Some(0), "{set}");
    assert_eq!(["before", "during", "after"].map(|name| read(name).trim().to_owned()), ["2", "0", "2"], "free ports");
    let state = |answer: &Value, name: &str| row(answer, name)["transmit"].as_str().unwrap().to_owned();
    assert_eq!([state(paused, "fixed"), state(paused, "endless")], ["paused", "started"]);
    assert!(count(paused, "fixed", "frames_tx") < 1_000, "{paused}");
    assert_eq!(["frames_tx", "frames_rx"].map(|key| count(over, "fixed", key)), [1_000; 2], "{over}");
    assert_eq!(count(over, "fixed", "bytes_rx"), 128_000);
    let port = |answer: &Value, i: usize| answer["port_metrics"][i].clone();
    assert_eq!((&port(ports, 1)["capture"], &port(ports, 0)["link"]), (&"started".into(), &"up".into()), "{ports}");
    assert!(
        port(ports, 1)["frames_rx"].as_u64() >= Some(1_000) && port(ports, 1)["frames_tx_rate"].as_f64() > Some(0.0),
        "{ports}"
    );
    let sent = count(ended, "endless", "frames_tx");
    assert_eq!((count(ended, "endless", "frames_rx"), count(ended, "fixed", "frames_rx")), (sent, 1_000), "{ended}");
    assert!(sent > 500 && state(ended, "endless") == "stopped", "{ended}");
    for key in ["frames_out_of_order", "frames_duplicated", "frames_stray", "frames_corrupted"] {
        assert_eq!(row(ended, "fixed")["x-drophammer"][key], 0, "{ended}");
    }
    // IPv4 and UDP between these addresses, each frame once.
    let capture = std::fs::read(folder.path().join("capture")).unwrap();
    let addresses = [10, 1, 0, 2, 10, 2, 0, 2];
    assert_eq!(capture.windows(8).filter(|bytes| **bytes == addresses).count(), 1_000);
    assert_eq!([0, 1].map(|i| port(unplugged, i)["link"].clone()), ["down", "up"].map(Value::from), "{unplugged}");
    assert_eq!(["frames_tx", "frames_rx"].map(|key| count(again, "fixed", key)), [1_000; 2], "{again}");
    // Frames were lost while the link was down.
    let counts = ["frames_tx", "frames_rx"].map(|key| count(again, "endless", key));
    assert!(counts[0] > counts[1], "{again}");
    // 334 frames of 128 bytes, 333 of 130 and 333 of 132.
    assert_eq!(["bytes_tx", "bytes_rx"].map(|key| count(tagged, "fixed", key)), [129_998; 2], "{tagged}");
    let tagged = row(tagged, "fixed")["tagged_metrics"].as_array().unwrap_or_else(|| panic!("{tagged}")).iter();
    let frames = |of: &Value| ["frames_tx", "frames_rx"].map(|key| of[key].as_u64().unwrap());
    assert!(
        tagged.map(frames).eq([[250; 2]; 4]),
        "one host counts what is sent, the other one what arrives: {answers:#?}"
    );
    assert_eq!(hosts["ipv4_neighbors"].as_array().map(Vec::len), Some(2), "{hosts}");
}
