//! `drophammer ospf`, `ldp`, `rsvp` and `bfd`: one emulated router on one interface that speaks one protocol with its neighbour, and
//! reports what comes of it.

mod bfd;
mod ldp;
mod ospf;
mod rsvp;

use crate::args::NeighbourLink;
use crate::clock::{LOOK, Lines};
use crate::observer::stop_flag;
use crate::output::{cells, milliseconds, say};
use crate::run::{claim, usable_backend};
use crate::{Ended, Exit, Failure, on_link};
use drophammer_lab::kinds::external::refuse_in_use;
use drophammer_model::quantity::{group_digits, show_duration};
use drophammer_model::suite::DEFAULT_SEED;
use drophammer_rig::{Command, DeviceConfig, ProtocolConfig, RigError, State, Tags};
use drophammer_testbed::neighbour::Neighbour;
use serde_json::{Value, json};
use std::net::{IpAddr, Ipv4Addr};
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;

pub use bfd::run as bfd;
pub use ldp::run as ldp;
pub use ospf::run as ospf;
pub use rsvp::run as rsvp;

/// How long the neighbour may take until everything is up.
const PATIENCE: Duration = Duration::from_secs(60);
/// How long the end may take.
const FAREWELL: Duration = Duration::from_secs(3);
/// An example of the addresses.
const EXAMPLE: &str = "`--address 192.0.2.2/24 --to 192.0.2.1`";

/// What a protocol adds to the link.
struct Job {
    /// Name of the protocol.
    protocol: &'static str,
    /// What is counted as up: `session`, `adjacency`, `LSP`.
    session: &'static str,
    /// Its configuration.
    config: ProtocolConfig,
    /// Additional addresses of the device: first address and count.
    also: Vec<(IpAddr, u32)>,
    /// Commands after the start.
    commands: Vec<Command>,
    /// What the command does, in words.
    headline: String,
    /// Counters that grow when something that was up goes down.
    lost: &'static [&'static str],
    /// Title and name of the counters in a line.
    columns: &'static [(&'static str, &'static str)],
    /// What to check on the router if nothing comes up; `None` to wait until something does.
    advice: Option<String>,
}

/// The addresses on the link.
#[derive(Clone, Copy, Debug)]
struct Link {
    address: IpAddr,
    prefix_len: u8,
    gateway: IpAddr,
    tags: Tags,
}

impl Link {
    /// Reads the command line. An error says what is wrong, and what to write instead.
    fn read(args: &NeighbourLink) -> Result<Link, String> {
        let bad = || format!("--address: `{}` is not an address with its prefix length; write {EXAMPLE}", args.address);
        let (address, prefix_len) = on_link::with_length(&args.address).ok_or_else(bad)?;
        let gateway = args.to;
        [address, gateway].into_iter().try_for_each(on_link::refuse_public)?;
        if address == gateway {
            return Err(format!("{address} cannot be both the emulated router and its neighbour; write {EXAMPLE}"));
        }
        if !on_link::holds(address, prefix_len, gateway) {
            return Err(format!("{gateway} is not on the link of {address}/{prefix_len}; write {EXAMPLE}"));
        }
        let tags = args.vlan.map_or(Ok(Tags::NONE), Tags::dot1q).map_err(|e| format!("--vlan: {e}"))?;
        Ok(Link { address, prefix_len, gateway, tags })
    }

    /// Both addresses, for a protocol of IPv4.
    fn ipv4(&self, protocol: &str) -> Result<[Ipv4Addr; 2], String> {
        match (self.address, self.gateway) {
            (IpAddr::V4(address), IpAddr::V4(gateway)) => Ok([address, gateway]),
            _ => Err(format!("{protocol} needs IPv4 addresses; write {EXAMPLE}")),
        }
    }
}

/// Runs the job on its link until Ctrl-C or the end of `--for`. `read` is what the command line says.
fn run(args: &NeighbourLink, read: Result<(Link, Job), String>) -> Ended {
    let (link, job) = read.map_err(Failure::usage)?;
    let stop = stop_flag()?;
    let backend = usable_backend(&args.backend)?;
    refuse_in_use(&args.interface).map_err(Failure::environment)?;
    let _claims = claim(&format!("drophammer {}", job.protocol), std::slice::from_ref(&args.interface))?;
    let configure = |device: &mut DeviceConfig| {
        device.tags = link.tags;
        device.set_address(link.address, link.prefix_len, link.gateway);
        device.also.clone_from(&job.also);
        device.protocols.push(job.config.clone());
    };
    let neighbour = Neighbour::open(&args.interface, backend, DEFAULT_SEED, job.protocol, configure);
    let mut neighbour = neighbour.map_err(failed)?;
    if !neighbour.has_carrier().map_err(Failure::environment)? {
        let text = format!("interface `{}` has no carrier; plug the cable in, or set the other end up", args.interface);
        return Err(Failure::environment(text));
    }
    let duration = args.duration;
    let lines = Lines::begin();
    Show { args, job: &job, neighbour, duration, lines, up: None, losses: 0, last_up: 0, readable: true }.run(&stop)
}

/// Why the device cannot go on.
fn failed(e: RigError) -> Failure {
    match e {
        RigError::Config(e) => Failure::usage(e),
        RigError::Refused(e) => Failure::usage(e),
        e => Failure::environment(e),
    }
}

/// The device, and what was shown of it so far.
struct Show<'a> {
    args: &'a NeighbourLink,
    job: &'a Job,
    neighbour: Neighbour,
    duration: Option<Duration>,
    lines: Lines,
    /// When everything was up for the first time.
    up: Option<Duration>,
    /// How often something that was up went down.
    losses: u64,
    /// Sessions that were up at the last look.
    last_up: u32,
    /// True while standard output can be written.
    readable: bool,
}

impl Show<'_> {
    fn run(mut self, stop: &AtomicBool) -> Ended {
        self.headline();
        self.neighbour.command(&Command::Start).map_err(failed)?;
        for command in &self.job.commands {
            self.neighbour.command(command).map_err(failed)?;
        }
        let kept = self.keep(stop);
        let state = self.neighbour.state();
        let ended = kept.and_then(|()| self.neighbour.stop(FAREWELL).map_err(failed));
        if ended.is_ok() || self.up.is_some() {
            self.summary(&state);
        }
        ended?;
        Ok(match self.up {
            None => Exit::Environment,
            Some(_) if self.losses == 0 => Exit::Good,
            Some(_) => Exit::Failed,
        })
    }

    /// Serves the device until it must end. Fails if it never came up.
    fn keep(&mut self, stop: &AtomicBool) -> Result<(), Failure> {
        loop {
            let elapsed = self.lines.elapsed();
            let kept = self.duration.zip(self.up).is_some_and(|(time, since)| elapsed >= since + time);
            if kept || !self.readable || stop.load(Ordering::Relaxed) {
                return Ok(());
            }
            if let (None, true, Some(advice)) = (self.up, elapsed > PATIENCE, &self.job.advice) {
                let counted = self.counted(&self.neighbour.state());
                return Err(Failure::environment(format!("{counted} after {} s; {advice}", PATIENCE.as_secs())));
            }
            let event = self.up.is_none().then(|| self.neighbour.up());
            self.neighbour.serve(LOOK, event).map_err(Failure::environment)?;
            self.look();
        }
    }

    /// Shows what has changed.
    fn look(&mut self) {
        let (state, elapsed) = (self.neighbour.state(), self.lines.elapsed());
        if self.up.is_none() && state.up > 0 && state.up >= state.sessions {
            self.up = Some(elapsed);
            self.event("up", elapsed, &state);
        }
        // Something may have gone down and come up again since the last look: the protocol has counted it.
        let losses: u64 = self.job.lost.iter().map(|name| state.counter(name)).sum();
        if losses > self.losses || self.up.is_some() && state.up < self.last_up {
            self.losses = losses.max(self.losses + 1);
            self.event("down", elapsed, &state);
        }
        self.last_up = state.up;
        if self.lines.is_due() {
            self.line(elapsed, &state);
        }
    }

    /// `1 of 1 session up`. What the router begins, such as LSPs that end here, has no expected number.
    fn counted(&self, state: &State) -> String {
        let sessions = state.sessions.max(state.up);
        let (up, all) = (group_digits(state.up.into()), group_digits(sessions.into()));
        let name = match (self.job.session, sessions) {
            (one, 1) => one.to_owned(),
            ("adjacency", _) => "adjacencies".to_owned(),
            (one, _) => format!("{one}s"),
        };
        format!("{up} of {all} {name} up")
    }

    fn headline(&mut self) {
        if self.args.json {
            return;
        }
        let until = self.duration.map_or("until Ctrl-C".to_owned(), |time| format!("then for {}", show_duration(time)));
        let titles: Vec<String> = self.job.columns.iter().map(|(title, _)| (*title).to_owned()).collect();
        let text = format!("{}: {}, {until}\n{}", self.args.interface, self.job.headline, row("time", "up", &titles));
        self.print(&text);
    }

    fn line(&mut self, elapsed: Duration, state: &State) {
        if self.args.json {
            let text = counts(state, elapsed).to_string();
            return self.print(&text);
        }
        let values: Vec<String> = self.job.columns.iter().map(|(_, name)| group_digits(state.counter(name))).collect();
        let text = row(&format!("{:.0} s", elapsed.as_secs_f64()), &group_digits(state.up.into()), &values);
        self.print(&text);
    }

    fn event(&mut self, what: &str, elapsed: Duration, state: &State) {
        let text = if self.args.json {
            let mut value = counts(state, elapsed);
            value["event"] = json!(what);
            value.to_string()
        } else {
            format!("{what} after {:.3} s: {}", elapsed.as_secs_f64(), self.counted(state))
        };
        self.print(&text);
    }

    fn summary(&mut self, state: &State) {
        let elapsed = self.lines.elapsed();
        if self.args.json {
            let mut value = counts(state, elapsed);
            value["all_up_s"] = json!(self.up.map(milliseconds));
            value["losses"] = json!(self.losses);
            let text = json!({ "summary": value }).to_string();
            return self.print(&text);
        }
        let mut lines = vec![String::new(), self.counted(state)];
        let names = state.counters.iter().filter(|(_, n)| *n > 0);
        lines.extend(names.map(|(name, n)| format!("  {:<32}{:>14}", name.replace('_', " "), group_digits(*n))));
        if self.losses > 0 {
            let times = if self.losses == 1 { "once".into() } else { format!("{} times", self.losses) };
            lines.push(format!("warning: something that was up went down {times}"));
        }
        self.print(&lines.join("\n"));
    }

    /// Prints a line. When nobody reads standard output, the command ends.
    fn print(&mut self, text: &str) {
        self.readable &= say(text).is_ok();
    }
}

fn counts(state: &State, elapsed: Duration) -> Value {
    let counters: serde_json::Map<String, Value> =
        state.counters.iter().map(|(name, n)| ((*name).to_owned(), json!(n))).collect();
    json!({"time_s": milliseconds(elapsed), "sessions": state.sessions, "up": state.up, "counters": counters})
}

fn row(label: &str, up: &str, values: &[String]) -> String {
    format!("{label:<8}{up:>9}{}", cells(values, 18))
}
