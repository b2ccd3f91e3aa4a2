//! Messages that no agent and no controller sends: garbage, and messages as large as the server takes, on the subjects
//! to which agents and their controller listen. The sender knows their lease.

use crate::anew::Checked;
use crate::bench::{Bed, LONG, access, ensure};
use drophammer_agent::link::Link;
use drophammer_agent::message::LARGEST;
use futures_util::StreamExt;
use std::hash::{BuildHasher, RandomState};
use std::io::{Read, Write};
use std::net::TcpStream;
use std::time::Duration;
use tokio::time::{sleep, timeout};

/// Messages of the largest size on each subject. Each agent gets 24 in all, which have 192 MiB.
const LARGE: usize = 8;
/// Time between two of them. The server closes the connection of a client that does not take them in time.
const BETWEEN: Duration = Duration::from_millis(20);
/// Random messages on each subject.
const RANDOM: u64 = 200;
/// By how much the memory of an agent may grow; less than it gets in each round.
pub const KEPT: u64 = 64 << 20;

/// Resident memory of a process in bytes.
pub fn resident(process: u32) -> Result<u64, String> {
    let status = std::fs::read_to_string(format!("/proc/{process}/status")).map_err(|e| e.to_string())?;
    let line = status.lines().find_map(|line| line.strip_prefix("VmRSS:")).ok_or("the process has ended")?;
    let kib = line.split_whitespace().next().and_then(|kib| kib.parse::<u64>().ok());
    kib.map(|kib| kib << 10).ok_or_else(|| format!("no size of memory: {line}"))
}

/// Messages that cannot be read, or that name things that do not exist.
fn garbage(lease: &str) -> Vec<Vec<u8>> {
    let deep = |open: &str| open.repeat(200_000).into_bytes();
    let request = |what: &str| format!(r#"{{"lease":"{lease}","what":{what}}}"#).into_bytes();
    let mut all = vec![
        Vec::new(),
        (0..=u8::MAX).collect(),
        deep("["),
        deep(r#"{"lease":"#),
        request(r#""Reboot""#),
        request(r#"{"Plan":{"attempt":18446744073709551615,"job":{}}}"#),
        request(r#"{"Start":{"attempt":-1,"at_ns":1e400,"early_ns":0}}"#),
        request(r#"{"Report":{"attempt":99,"refusals":[]}}"#),
        // Understood, but not the attempt that runs.
        request(r#"{"Wishes":{"attempt":18446744073709551615,"wishes":["End"]}}"#),
        br#"{"sent_ns":-1}"#.to_vec(),
        br#"{"host":4294967296,"attempt":1,"standing":{"done":true,"sent":1,"distinct":1}}"#.to_vec(),
    ];
    all.extend((0..RANDOM).map(|number| {
        let byte = |at: u64| RandomState::new().hash_one((number, at)) as u8;
        (0..number * 7).map(byte).collect()
    }));
    all
}

/// Sends everything to the agents and the controller of the lease in force.
pub fn send(bed: &Bed) -> Checked {
    too_large(bed)?;
    let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build().map_err(|e| e.to_string())?;
    runtime.block_on(async {
        let client = Link::connect(&access(bed, "controller"), "hostile").await.map_err(|e| e.0)?.client;
        let mut beats = client.subscribe("drophammer.beat.*").await.map_err(|e| e.to_string())?;
        let beat = timeout(LONG, beats.next()).await.ok().flatten().ok_or("no heartbeat")?;
        let lease = beat.subject.rsplit('.').next().unwrap_or_default().to_owned();
        drop(beats);
        let of_lease = |kind: &str, host: &str| format!("drophammer.{kind}.{lease}{host}");
        let hosts = ["host1", "host2"].map(|host| format!("drophammer.agent.{host}"));
        let to_agents =
            [hosts.to_vec(), vec![of_lease("beat", ""), of_lease("down", ".0"), of_lease("down", ".1")]].concat();
        let to_controller = ["state", "up"].map(|kind| of_lease(kind, ""));
        let garbage = garbage(&lease);
        for subject in to_agents.iter().chain(&to_controller) {
            for bytes in &garbage {
                let sent = client.publish_with_reply(subject.clone(), client.new_inbox(), bytes.clone().into()).await;
                sent.map_err(|e| e.to_string())?;
            }
        }
        for _ in 0..LARGE {
            for subject in to_agents.iter().chain(&to_controller) {
                let bytes = vec![b' '; LARGEST];
                let sent = client.publish_with_reply(subject.clone(), client.new_inbox(), bytes.into()).await;
                sent.map_err(|e| e.to_string())?;
                client.flush().await.map_err(|e| e.to_string())?;
                sleep(BETWEEN).await;
            }
        }
        Ok(())
    })
}

/// Announces a message that is larger than the server takes.
fn too_large(bed: &Bed) -> Checked {
    let announce = || -> std::io::Result<Vec<u8>> {
        let mut server = TcpStream::connect(bed.server.listen)?;
        server.set_read_timeout(Some(LONG))?;
        write!(server, "CONNECT {{\"verbose\":false}}\r\nPUB drophammer.agent.host1 {}\r\n", LARGEST + 1)?;
        let mut answer = Vec::new();
        // It closes the connection.
        let _ = server.read_to_end(&mut answer);
        Ok(answer)
    };
    let answer = announce().map_err(|e| e.to_string())?;
    let answer = String::from_utf8_lossy(&answer);
    ensure(answer.contains("Maximum Payload"), format!("the server answers {answer}"))
}
