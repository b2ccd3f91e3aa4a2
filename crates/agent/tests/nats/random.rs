//! Faults at random instants of a trial: planning, start, traffic, drain or report. `ROUNDS` is the number of faults
//! (default 3). Each case prints how many trials were complete and how many were void.

use crate::anew::Checked;
use crate::bench::{Bed, Bench, Process, SILENCE, agent, driver, ensure, rig, spec, until, whole};
use std::hash::{BuildHasher, RandomState};
use std::process::Command;
use std::time::{Duration, Instant};

const DURATION: Duration = Duration::from_secs(2);
/// Longer than a whole trial takes.
const SPAN_MS: u64 = 2_600;

fn rounds() -> u64 {
    std::env::var("ROUNDS").ok().and_then(|rounds| rounds.parse().ok()).unwrap_or(3)
}

fn instant(round: u64) -> Duration {
    Duration::from_millis(RandomState::new().hash_one(round) % SPAN_MS)
}

#[derive(Default)]
struct Tally {
    complete: u64,
    void: u64,
}

impl Tally {
    /// Runs a trial while `fault` happens. It must have all frames or no result. The next trial must have all frames.
    fn trial(&mut self, bench: &mut Bench, fault: impl FnOnce() -> Checked + Send) -> Checked {
        let result = std::thread::scope(|scope| {
            let fault = scope.spawn(fault);
            let result = bench.run(&spec(DURATION));
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

    fn told(&self, what: &str) -> Checked {
        eprintln!("{what}: {} complete, {} void", self.complete, self.void);
        ensure(self.complete + self.void == rounds(), "a trial is missing")
    }
}

pub fn agent_killed() -> Checked {
    let bed = Bed::up()?;
    let _first = agent(&bed, "host1", "t0", &[])?;
    let mut second: Option<Process> = Some(agent(&bed, "host2", "t1", &[])?);
    let mut bench = rig(&bed, "tester")?;
    let mut tally = Tally::default();
    for round in 0..rounds() {
        let (second, bed) = (&mut second, &bed);
        tally.trial(&mut bench, move || {
            std::thread::sleep(instant(round));
            // Dropping it kills the process.
            *second = None;
            *second = Some(agent(bed, "host2", "t1", &[])?);
            Ok(())
        })?;
    }
    tally.told("agent killed")
}

/// Drops all packets from and to the server for five seconds.
pub fn network_cut() -> Checked {
    let bed = Bed::up()?;
    let _agents = [agent(&bed, "host1", "t0", &[])?, agent(&bed, "host2", "t1", &[])?];
    let mut bench = rig(&bed, "tester")?;
    let mut tally = Tally::default();
    for round in 0..rounds() {
        tally.trial(&mut bench, || {
            std::thread::sleep(instant(round));
            nft("table ip cut { chain in { type filter hook input priority 0; tcp dport 4222 drop; tcp sport 4222 drop; }; }")?;
            std::thread::sleep(Duration::from_secs(5));
            nft("delete table ip cut")
        })?;
    }
    tally.told("network cut for 5 s")
}

fn nft(commands: &str) -> Checked {
    let done = Command::new("nft").arg(commands).status().map_err(|e| format!("nft: {e}"))?;
    ensure(done.success(), format!("nft refuses {commands}"))
}

pub fn server_restarted() -> Checked {
    let bed = Bed::up()?;
    let _agents = [agent(&bed, "host1", "t0", &[])?, agent(&bed, "host2", "t1", &[])?];
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
    let _agents = [agent(&bed, "host1", "t0", &[])?, agent(&bed, "host2", "t1", &[])?];
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
