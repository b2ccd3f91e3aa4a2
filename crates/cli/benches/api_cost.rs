//! What the API costs, on one veth pair in a network namespace:
//!
//! - how fast `blast` sends a flow, and how fast it leaves if the API starts it: by turns, counted by the kernel at the sending interface;
//! - frames lost at a fixed rate with 1,000 reads of metrics per second, and without, by turns.
//!
//! `cargo bench -p drophammer-cli --bench api_cost -- [ROUNDS [SECONDS [RATE]]]`: 5 rounds of 2 s, 100,000 frames per second.

use serde_json::{Value, json};
use std::io::{BufRead, BufReader, Read, Write};
use std::net::TcpStream;
use std::os::unix::process::CommandExt;
use std::process::{Child, Command, Stdio};
use std::sync::atomic::{AtomicBool, Ordering};
use std::thread::sleep;
use std::time::{Duration, Instant};

const PROGRAM: &str = env!("CARGO_BIN_EXE_drophammer");
/// Above what the backend reaches, but not far: a flow that is stopped first sends what is due.
const FLOOD: u64 = 1_000_000;
/// Time until the rate is steady.
const SETTLE: Duration = Duration::from_millis(300);
const READS_PER_SECOND: u32 = 1_000;
/// Connections that share the reads.
const READERS: u32 = 16;

const LINK: &str = "\
set -e
for all in all default; do echo 1 > /proc/sys/net/ipv6/conf/$all/disable_ipv6; done
ip link set lo up
ip link add va type veth peer name vb
ip link set va up; ip link set vb up";

fn main() {
    let numbers: Vec<u64> = std::env::args().skip(1).filter_map(|word| word.parse().ok()).collect();
    if std::env::var_os("IN_NAMESPACE").is_none() {
        let mut again = Command::new("unshare");
        again.args(["--user", "--map-root-user", "--net"]).arg(std::env::current_exe().expect("this program"));
        let error = again.args(numbers.iter().map(u64::to_string)).env("IN_NAMESPACE", "1").exec();
        panic!("no namespace: {error}");
    }
    let of = |at: usize, default: u64| numbers.get(at).copied().unwrap_or(default);
    let (rounds, time, rate) = (of(0, 5), Duration::from_secs(of(1, 2)), of(2, 100_000));
    let made = Command::new("sh").args(["-c", LINK]).status().expect("sh");
    assert!(made.success(), "no veth pair");
    let server = Server::start();
    rates(&server, rounds, time);
    reads(&server, rounds, time, rate);
}

/// Rates of blast and of the API, by turns.
fn rates(server: &Server, rounds: u64, time: Duration) {
    println!("frames per second, 64 bytes: blast, API, API / blast");
    let mut ratios = Vec::new();
    for round in 0..rounds {
        // The order changes from round to round.
        let [blast, api] = if round % 2 == 0 {
            let blast = blast_rate(time);
            [blast, api_rate(server, time)]
        } else {
            let api = api_rate(server, time);
            [blast_rate(time), api]
        };
        println!("{blast:>12.0} {api:>12.0} {:>8.4}", api / blast);
        ratios.push(api / blast);
    }
    println!("median of API / blast: {:.4}\n", median(ratios));
}

fn blast_rate(time: Duration) -> f64 {
    let mut blast = Command::new(PROGRAM);
    blast.args(["blast", "va", "vb", "--backend", "af_packet", "--json", "--rate", &FLOOD.to_string()]);
    let mut blast = blast.stdout(Stdio::null()).stderr(Stdio::null()).spawn().expect("blast");
    let rate = sending_rate(time);
    assert!(blast.try_wait().expect("its state").is_none(), "blast has ended early");
    interrupt(&blast);
    blast.wait().expect("its end");
    rate
}

fn api_rate(server: &Server, time: Duration) -> f64 {
    let mut client = server.client();
    client.post("/config", &config(FLOOD, &json!({"continuous": {}})));
    transmit(&mut client, "start");
    let rate = sending_rate(time);
    transmit(&mut client, "stop");
    // The interface is free for blast.
    client.post("/config", &json!({}));
    rate
}

/// Waits until `va` sends, and returns its rate over this time.
fn sending_rate(time: Duration) -> f64 {
    let before = sent();
    let deadline = Instant::now() + Duration::from_secs(20);
    while sent() < before + 1_000 {
        assert!(Instant::now() < deadline, "nothing is sent");
        sleep(Duration::from_millis(1));
    }
    sleep(SETTLE);
    let (first, start) = (sent(), Instant::now());
    sleep(time);
    let (last, elapsed) = (sent(), start.elapsed());
    (last - first) as f64 / elapsed.as_secs_f64()
}

/// Frames that `va` has sent.
fn sent() -> u64 {
    let text = std::fs::read_to_string("/proc/net/dev").expect("counters");
    let line = text.lines().find_map(|line| line.trim().strip_prefix("va:")).expect("va");
    line.split_whitespace().nth(9).and_then(|packets| packets.parse().ok()).expect("packets")
}

/// Loss with reads of metrics and without, by turns.
fn reads(server: &Server, rounds: u64, time: Duration, rate: u64) {
    println!(
        "{rate} frames per second for {} s: reads per second, offered, lost, valid, read p50 and p99 in µs",
        time.as_secs()
    );
    let mut lost = [0, 0];
    for round in 0..rounds {
        for turn in 0..2 {
            let with_reads = (round + turn) % 2 == 1;
            let duration = json!({"fixed_seconds": {"seconds": time.as_secs_f64()}});
            let mut client = server.client();
            client.post("/config", &config(rate, &duration));
            transmit(&mut client, "start");
            let over = AtomicBool::new(false);
            let start = Instant::now();
            let mut took: Vec<f64> = std::thread::scope(|scope| {
                let readers = if with_reads { READERS } else { 0 };
                let readers: Vec<_> = (0..readers).map(|_| scope.spawn(|| read_until(server, &over))).collect();
                // The flow ends by itself, and its last frames arrive.
                sleep(time);
                over.store(true, Ordering::Relaxed);
                readers.into_iter().flat_map(|reader| reader.join().expect("a reader")).collect()
            });
            let reads_per_second = took.len() as f64 / start.elapsed().as_secs_f64();
            let row = |client: &mut Client| client.post("/monitor/metrics", &all_flows())["flow_metrics"][0].take();
            let deadline = Instant::now() + Duration::from_secs(20);
            while row(&mut client)["transmit"] != "stopped" {
                assert!(Instant::now() < deadline, "the flow does not end");
                sleep(Duration::from_millis(10));
            }
            // Then the counts are final.
            transmit(&mut client, "stop");
            let row = row(&mut client);
            let count = |key: &str| row[key].as_u64().unwrap_or_else(|| panic!("{key}: {row}"));
            let missing = count("frames_tx") - count("frames_rx");
            lost[usize::from(with_reads)] += missing;
            took.sort_by(f64::total_cmp);
            let at =
                |share: f64| took.get((took.len() as f64 * share) as usize).map_or("-".into(), |us| format!("{us:.0}"));
            println!(
                "{reads_per_second:>8.0} {:>10} {missing:>8} {:>6} {:>8} {:>8}",
                count("frames_tx"),
                row["x-drophammer"]["valid"],
                at(0.5),
                at(0.99)
            );
        }
    }
    println!("lost in all: {} without reads, {} with reads", lost[0], lost[1]);
}

/// Reads metrics at this reader's share of the rate; returns how long each read took, in µs.
fn read_until(server: &Server, over: &AtomicBool) -> Vec<f64> {
    let (mut client, mut took) = (server.client(), Vec::new());
    let (start, interval) = (Instant::now(), Duration::from_secs(1) * READERS / READS_PER_SECOND);
    while !over.load(Ordering::Relaxed) {
        let due = start + interval * took.len() as u32;
        sleep(due.saturating_duration_since(Instant::now()));
        let asked = Instant::now();
        let answer = client.post("/monitor/metrics", &all_flows());
        assert_eq!(answer["flow_metrics"][0]["name"], "f", "{answer}");
        took.push(asked.elapsed().as_secs_f64() * 1e6);
    }
    took
}

fn all_flows() -> Value {
    json!({"flow": {}, "x-drophammer": true})
}

/// One flow from `va` to `vb` with the headers and the counts of blast.
fn config(rate: u64, duration: &Value) -> Value {
    json!({
        "ports": [{"name": "a", "location": "va"}, {"name": "b", "location": "vb"}],
        "flows": [{
            "name": "f",
            "tx_rx": {"port": {"tx_name": "a", "rx_name": "b"}},
            "packet": [
                {"ethernet": {"src": {"value": "02:00:00:00:00:0a"}, "dst": {"value": "02:00:00:00:00:0b"}}},
                {"ipv4": {"src": {"value": "198.18.0.1"}, "dst": {"value": "198.18.0.2"}}},
                {"udp": {"src_port": {"value": 49_152}, "dst_port": {"value": 7}}},
            ],
            "size": {"fixed": 64},
            "rate": {"pps": rate},
            "duration": duration,
            "metrics": {"enable": true, "loss": true, "latency": {"enable": true, "mode": "store_forward"}},
        }],
    })
}

fn transmit(client: &mut Client, state: &str) {
    client.post("/control/state", &json!({"traffic": {"flow_transmit": {"state": state}}}));
}

fn median(mut values: Vec<f64>) -> f64 {
    values.sort_by(f64::total_cmp);
    values[values.len() / 2]
}

fn interrupt(child: &Child) {
    let pid = nix::unistd::Pid::from_raw(child.id().cast_signed());
    nix::sys::signal::kill(pid, nix::sys::signal::Signal::SIGINT).expect("a signal");
}

/// `drophammer serve`, which ends with this value.
struct Server {
    process: Child,
    address: String,
}

impl Server {
    fn start() -> Server {
        let mut command = Command::new(PROGRAM);
        command.args(["serve", "--http", "--listen", "127.0.0.1:0", "--grpc", "127.0.0.1:0", "--backend", "af_packet"]);
        let mut process = command.stdout(Stdio::piped()).spawn().expect("serve");
        let mut line = String::new();
        BufReader::new(process.stdout.take().expect("its output")).read_line(&mut line).expect("its address");
        let address =
            line.split("http://").nth(1).and_then(|rest| rest.split(',').next()).expect("an address").to_owned();
        Server { process, address }
    }

    fn client(&self) -> Client {
        let stream = TcpStream::connect(&self.address).expect("a connection");
        stream.set_nodelay(true).expect("an option");
        Client { reader: BufReader::new(stream) }
    }
}

impl Drop for Server {
    fn drop(&mut self) {
        interrupt(&self.process);
        let _ = self.process.wait();
    }
}

/// A connection that stays open.
struct Client {
    reader: BufReader<TcpStream>,
}

impl Client {
    fn post(&mut self, path: &str, body: &Value) -> Value {
        let body = body.to_string();
        let head = format!("POST {path} HTTP/1.1\r\nHost: 127.0.0.1\r\nContent-Length: {}\r\n\r\n", body.len());
        self.reader.get_mut().write_all((head + &body).as_bytes()).expect("a request");
        let mut line = String::new();
        self.reader.read_line(&mut line).expect("an answer");
        let is_good = line.starts_with("HTTP/1.1 200");
        let mut length = 0;
        while line.trim() != "" {
            line.clear();
            self.reader.read_line(&mut line).expect("a header");
            if let Some(value) = line.to_ascii_lowercase().strip_prefix("content-length:") {
                length = value.trim().parse().expect("a length");
            }
        }
        let mut answer = vec![0; length];
        self.reader.read_exact(&mut answer).expect("a body");
        let answer: Value = serde_json::from_slice(&answer).expect("JSON");
        assert!(is_good, "{path}: {answer}");
        answer
    }
}
