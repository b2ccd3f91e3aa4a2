//! Faults at random instants of a trial: planning, start, traffic, drain or report. `ROUNDS` is the number of faults
//! (default 2). Each case prints how many trials were complete and how many were void.

use crate::anew::Checked;
use crate::bench::{
    Bed, Bench, LONG, PORTS, Process, SILENCE, agent, agents, driver, ensure, rig, sent, signal, until, whole,
};
use crate::{disk, faults, hostile, twice};
use std::hash::{BuildHasher, RandomState};
use std::process::Command;
use std::time::{Duration, Instant};

const DURATION: Duration = Duration::from_secs(2);
/// Longer than a whole trial takes.
const SPAN_MS: u64 = 2_600;
/// How long a fault lasts that ends.
const WHILE: Duration = Duration::from_secs(5);

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
    /// Like [`Tally::during`]. The next trial must have all frames.
    pub fn trial(&mut self, bench: &mut Bench, fault: impl FnOnce() -> Checked + Send) -> Checked {
        self.during(bench, fault)?;
        whole(bench)
    }

    /// Runs a trial while `fault` happens. It must have all frames or no result.
    pub fn during(&mut self, bench: &mut Bench, fault: impl FnOnce() -> Checked + Send) -> Checked {
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
        Ok(())
    }

    pub fn told(&self, what: &str) -> Checked {
        eprintln!("{what}: {} complete, {} void", self.complete, self.void);
        ensure(self.complete + self.void == rounds(), "a trial is missing")
    }
}

/// How long after faults ports have sent their last frames.
#[derive(Default)]
struct LastFrames(Vec<Duration>);

impl LastFrames {
    /// Waits until both ports are quiet, which must be soon after `fault`.
    fn wait(&mut self, fault: Instant) -> Checked {
        self.0.extend(faults::stop_within(SILENCE + faults::SLACK, fault)?);
        Ok(())
    }

    fn told(mut self, what: &str) -> Checked {
        self.0.sort_unstable();
        let last = self.0.len().checked_sub(1).ok_or("no port was watched")?;
        let [least, median, most] = [0, last / 2, last].map(|i| self.0[i].as_millis());
        eprintln!("{what}: last frame of a port after {least} to {most} ms, median {median} ms");
        Ok(())
    }
}

/// A rig as soon as its ports are free.
fn next_rig(bed: &Bed) -> Result<Bench, String> {
    let mut next = None;
    until("the ports are free", || {
        next = rig(bed, "the next").ok();
        next.is_some()
    })?;
    next.ok_or("no rig".into())
}

/// Runs one more trial after a fault that does not end. It must fail, but not before the host had time to come back.
pub fn fails(bench: &mut Bench) -> Checked {
    let begun = Instant::now();
    let why =
        bench.run(&(bench.spec)(Duration::from_millis(200))).err().ok_or("a trial without its hosts has a result")?;
    eprintln!("the next trial, after {:?}: {why}", begun.elapsed());
    let waited = begun.elapsed();
    ensure(why.contains("does not answer") && waited > Duration::from_secs(40) && waited < 2 * LONG, why)
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
        nft(CUT)?;
        std::thread::sleep(WHILE);
        nft(JOINED).map(drop)
    })
}

const CUT: &str =
    "table ip cut { chain in { type filter hook input priority 0; tcp dport 4222 drop; tcp sport 4222 drop; }; }";
const JOINED: &str = "delete table ip cut";

/// Drops all packets from and to the server until the controller has given up. Once the network is there again, its
/// ports are free, and what was stored is still there.
pub fn network_cut_for_good() -> Checked {
    let bed = Bed::up()?;
    let _agents = agents(&bed)?;
    let (mut tally, mut last) = (Tally::default(), LastFrames::default());
    for round in 1..=rounds() {
        let mut bench = next_rig(&bed)?;
        whole(&mut bench)?;
        let before = bed.records()?;
        tally.during(&mut bench, || {
            std::thread::sleep(instant(round));
            nft(CUT)?;
            last.wait(Instant::now())
        })?;
        if round == rounds() {
            fails(&mut bench)?;
        }
        drop(bench);
        nft(JOINED)?;
        until("the records are there again", || bed.records().is_ok_and(|now| now >= before))?;
    }
    whole(&mut next_rig(&bed)?)?;
    last.told("network cut for good")?;
    tally.told("network cut for good")
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
        let killed = Instant::now();
        let mut next = next_rig(&bed)?;
        eprintln!("the next controller has the ports {:?} later", killed.elapsed());
        whole(&mut next)?;
    }
    Ok(())
}

/// The controller is killed while both ports send.
pub fn controller_killed_in_traffic() -> Checked {
    let bed = Bed::up()?;
    let _agents = agents(&bed)?;
    let mut last = LastFrames::default();
    for round in 0..rounds() {
        let before = PORTS.map(sent);
        // It waits for the leases of the one before.
        let mut driver = driver(&bed, SILENCE)?;
        until("traffic", || PORTS.iter().zip(before).all(|(port, before)| sent(port) > before + 1_000))?;
        std::thread::sleep(instant(round));
        driver.0.kill().map_err(|e| e.to_string())?;
        last.wait(Instant::now())?;
    }
    last.told("controller killed")?;
    whole(&mut next_rig(&bed)?)
}

/// From a random instant on, everything is said three times more, up to 2.3 s later.
pub fn messages_repeated() -> Checked {
    let bed = Bed::up()?;
    let _agents = agents(&bed)?;
    let mut again = None;
    trials("messages twice and late", &bed, || {
        drop(again.take());
        again = Some(twice::repeat(&bed)?);
        Ok(())
    })
}

/// The disk of the server is full for a while. Then there is room again, and the server is started again.
pub fn disk_full() -> Checked {
    let bed = Bed::up_with(|_, folder| disk::server(folder))?;
    let _agents = agents(&bed)?;
    let mut bench = rig(&bed, "tester")?;
    let mut tally = Tally::default();
    for round in 0..rounds() {
        let before = bed.records()?;
        tally.trial(&mut bench, || {
            std::thread::sleep(instant(round));
            disk::fill(&bed)?;
            std::thread::sleep(WHILE);
            disk::make_room(&bed)
        })?;
        ensure(bed.records()? >= before + 2, "the server has lost records")?;
    }
    tally.told("disk of the server full for 5 s")
}

/// Garbage and messages of the largest size, on all subjects to which agents and controller listen. No agent ends or
/// keeps the memory, and trials go on.
pub fn hostile_messages() -> Checked {
    let bed = Bed::up()?;
    // The C library otherwise keeps large pieces of freed memory, as many as its threads had at once.
    let returned = [("MALLOC_MMAP_THRESHOLD_", "1000000")];
    let mut agents = [agent(&bed, "host1", "t0", &returned)?, agent(&bed, "host2", "t1", &returned)?];
    let mut bench = rig(&bed, "tester")?;
    whole(&mut bench)?;
    let resident = |agents: &[Process; 2]| -> Result<[u64; 2], String> {
        Ok([hostile::resident(agents[0].0.id())?, hostile::resident(agents[1].0.id())?])
    };
    let before = resident(&agents)?;
    let mut tally = Tally::default();
    for round in 0..rounds() {
        tally.trial(&mut bench, || {
            std::thread::sleep(instant(round));
            hostile::send(&bed)
        })?;
        let bounded = |now: [u64; 2]| now.iter().zip(before).all(|(now, before)| *now < before + hostile::KEPT);
        until("the memory of the agents is free again", || resident(&agents).is_ok_and(bounded))?;
        let mib = resident(&agents)?.map(|bytes| bytes >> 20);
        eprintln!(
            "memory of the agents: {mib:?} MiB, before the first message {:?} MiB",
            before.map(|bytes| bytes >> 20)
        );
    }
    ensure(agents.iter_mut().all(Process::runs), "an agent has ended")?;
    ensure(tally.complete > 0, "no trial was complete while there were hostile messages")?;
    tally.told("hostile messages")
}
