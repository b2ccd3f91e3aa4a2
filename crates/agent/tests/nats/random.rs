//! Faults at random instants of a trial: planning, start, traffic, drain or report. `ROUNDS` is the number of faults
//! (default 2). Each case prints how many trials were complete and how many were void.

use crate::anew::Checked;
use crate::bench::{Bed, Bench, SILENCE, agent, agents, driver, ensure, rig, signal, until, whole};
use crate::faults;
use std::hash::{BuildHasher, RandomState};
use std::process::Command;
use std::time::{Duration, Instant};

const DURATION: Duration = Duration::from_secs(2);
/// Longer than a whole trial takes.
const SPAN_MS: u64 = 2_600;

pub fn rounds() -> u64 {
    std::env::var("ROUNDS").ok().and_then(|rounds| rounds.parse().ok()).unwrap_or(2)
}

pub fn instant(round: u64) -> Duration {
    Duration::from_millis(RandomState::new().hash_one(round) % SPAN_MS)
}

#[derive(Default)]
pub struct Tally {
    complete: u64,
    void: u64,
}

impl Tally {
    /// Runs a trial while `fault` happens. It must have all frames or no result. The next trial must have all frames.
    pub fn trial(&mut self, bench: &mut Bench, fault: impl FnOnce() -> Checked + Send) -> Checked {
        let result = std::thread::scope(|scope| {
            let fault = scope.spawn(fault);
            let result = bench.run(&(bench.spec)(DURATION));
            fault.join().map_err(|_| "the fault failed")??;
            Ok::<_, String>(result)
        })?;
        match result {
            Ok(result) => {
                let counts = (result.intended(), result.offered(), result.received(), result.lost());
                ensure(counts == (8_000, 8_000, 8_000, 0), format!("{counts:?} {:?}", result.health))?;
                self.complete += 1;
            }
            Err(why) => {
                eprintln!("void: {why}");
                self.void += 1;
            }
        }
        whole(bench)
    }

    pub fn told(&self, what: &str) -> Checked {
        eprintln!("{what}: {} complete, {} void", self.complete, self.void);
        ensure(self.complete + self.void == rounds(), "a trial is missing")
    }
}

/// One trial a round between two hosts, with `fault` at a random instant of it.
fn trials(what: &str, bed: &Bed, mut fault: impl FnMut() -> Checked + Send) -> Checked {
    let mut bench = rig(bed, "tester")?;
    let mut tally = Tally::default();
    for round in 0..rounds() {
        tally.trial(&mut bench, || {
            std::thread::sleep(instant(round));
            fault()
        })?;
    }
    tally.told(what)
}

pub fn agent_killed() -> Checked {
    let bed = Bed::up()?;
    let [_first, second] = agents(&bed)?;
    let mut second = Some(second);
    trials("agent killed", &bed, || {
        // Dropping it kills the process.
        drop(second.take());
        second = Some(agent(&bed, "host2", "t1", &[])?);
        Ok(())
    })
}

/// Drops all packets from and to the server for five seconds.
pub fn network_cut() -> Checked {
    let bed = Bed::up()?;
    let _agents = agents(&bed)?;
    trials("network cut for 5 s", &bed, || {
        nft(
            "table ip cut { chain in { type filter hook input priority 0; tcp dport 4222 drop; tcp sport 4222 drop; }; }",
        )?;
        std::thread::sleep(Duration::from_secs(5));
        nft("delete table ip cut").map(drop)
    })
}

/// Loses a tenth of all packets from and to the server, for longer than a trial takes.
pub fn network_lossy() -> Checked {
    let bed = Bed::up()?;
    let _agents = agents(&bed)?;
    trials("10 % of packets lost for 3 s", &bed, || {
        let lose = "numgen random mod 100 < 10 counter drop";
        nft(&format!(
            "table ip lossy {{ chain in {{ type filter hook input priority 0; tcp dport 4222 {lose}; tcp sport 4222 {lose}; }}; }}"
        ))?;
        std::thread::sleep(Duration::from_secs(3));
        let rules = nft("list table ip lossy")?;
        let counts =
            rules.split("counter packets ").skip(1).filter_map(|rest| rest.split(' ').next()?.parse::<u64>().ok());
        let lost: u64 = counts.sum();
        ensure(lost > 0, format!("nothing was lost: {rules}"))?;
        nft("delete table ip lossy").map(drop)
    })
}

/// The process of an agent stands still for a second.
pub fn agent_stopped() -> Checked {
    let bed = Bed::up()?;
    let agents = agents(&bed)?;
    trials("agent stopped for 1 s", &bed, || {
        signal(agents[1].0.id(), "-STOP")?;
        std::thread::sleep(Duration::from_secs(1));
        signal(agents[1].0.id(), "-CONT")
    })
}

/// The steady clock of a host jumps by a second.
pub fn clock_stepped() -> Checked {
    let bed = Bed::up()?;
    let steps = faults::steps(&bed)?;
    let steps: Vec<(&str, &str)> = steps.iter().map(|(name, value)| (*name, value.as_str())).collect();
    let agents = [agent(&bed, "host1", "t0", &[("CLOCK", "one")])?, agent(&bed, "host2", "t1", &steps)?];
    trials("clock of a host stepped by 1 s", &bed, || signal(agents[1].0.id(), "-USR1"))
}

fn nft(commands: &str) -> Result<String, String> {
    let done = Command::new("nft").arg(commands).output().map_err(|e| format!("nft: {e}"))?;
    ensure(done.status.success(), format!("nft refuses {commands}: {}", String::from_utf8_lossy(&done.stderr)))?;
    Ok(String::from_utf8_lossy(&done.stdout).into_owned())
}

pub fn server_restarted() -> Checked {
    let bed = Bed::up()?;
    let _agents = agents(&bed)?;
    let mut bench = rig(&bed, "tester")?;
    let mut tally = Tally::default();
    for round in 0..rounds() {
        let before = bed.records()?;
        tally.trial(&mut bench, || {
            std::thread::sleep(instant(round));
            drophammer_agent::bed::down(&bed.server.folder).map_err(|e| e.0)?;
            bed.server.up().map_err(|e| e.0)
        })?;
        ensure(bed.records()? >= before + 2, "the server has lost records")?;
    }
    tally.told("server restarted")
}

pub fn controller_killed() -> Checked {
    let bed = Bed::up()?;
    let _agents = agents(&bed)?;
    for round in 0..rounds() {
        let mut driver = driver(&bed, SILENCE)?;
        std::thread::sleep(instant(round));
        driver.0.kill().map_err(|e| e.to_string())?;
        let (killed, mut next) = (Instant::now(), None);
        until("the leases end", || {
            next = rig(&bed, "the next").ok();
            next.is_some()
        })?;
        eprintln!("the next controller has the ports {:?} later", killed.elapsed());
        whole(next.as_mut().ok_or("no rig")?)?;
    }
    Ok(())
}
