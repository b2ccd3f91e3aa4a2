//! The device's process: receives frames, passes them to the router, sends frames, and answers the tester's requests.

use super::{Job, JobLinks};
use crate::simulated::class_counters;
use drophammer_model::classes::EgressClasses;
use drophammer_model::quantity::Instant;
use drophammer_port::af_packet::AfPacket;
use drophammer_port::priority::HighPriority;
use drophammer_port::tap::Tap;
use drophammer_port::{BURST, Clock, Port, PortError, Received, SystemClock, wait};
use drophammer_reference::{Faults, Router};
use serde_json::{Value, json};
use std::ffi::OsString;
use std::io::{BufRead, BufReader, ErrorKind, Write};
use std::os::fd::AsFd;
use std::os::unix::net::{UnixListener, UnixStream};
use std::path::Path;
use std::time::Duration;

/// After this long without traffic the process sleeps until frames arrive. The time is short because the kernel's
/// receive work for the device's links shares the processor, and runs only while the device sleeps.
const AWAKE: Duration = Duration::from_micros(30);
/// Shorter sleeps are not worth it.
const NAP: Duration = Duration::from_micros(5);
/// Interval between checks for requests while traffic flows.
const LISTEN: Duration = Duration::from_millis(1);
/// Longest sleep.
const SLEEP: Duration = Duration::from_millis(200);
/// Longest sleep of a device that speaks BGP, because it must notice changes of its links.
const NOTICE: Duration = Duration::from_millis(5);
/// A process that was away for this long without wanting to reads up to this many more bursts from every link first.
const HELD_UP: Duration = Duration::from_millis(20);
const CATCH_UP: usize = 16;
/// Time limit for reading a request. A client that does not send its request immediately is gone.
const QUESTION: Duration = Duration::from_millis(100);

/// Runs the device until the process is terminated. Arguments: `CONFIGURATION SOCKET INTERFACE...`.
///
/// # Errors
/// Wrong arguments, an invalid configuration, or a link that stopped working.
pub fn run(arguments: &[OsString]) -> Result<(), String> {
    let [file, socket, interfaces @ ..] = arguments else {
        return Err("the device is started by the lab: CONFIGURATION SOCKET INTERFACE...".into());
    };
    let text = std::fs::read_to_string(file).map_err(|e| format!("cannot read {}: {e}", Path::new(file).display()))?;
    let job: Job =
        serde_json::from_str(&text).map_err(|e| format!("cannot read {}: {e}", Path::new(file).display()))?;
    let links = job.links;
    let mut device = job.into_device();
    if interfaces.len() != device.ports.len() {
        return Err(format!("{} interfaces for {} ports", interfaces.len(), device.ports.len()));
    }
    let clock = SystemClock::start();
    let open = |(name, config): (&OsString, &drophammer_reference::PortConfig)| -> Result<Box<dyn Port>, PortError> {
        let name = name.to_string_lossy();
        Ok(match links {
            JobLinks::Veth => Box::new(AfPacket::open(&name, clock)?),
            JobLinks::Tap => Box::new(Tap::create(&name, config.mtu, clock)?),
        })
    };
    let ports: Result<Vec<_>, _> = interfaces.iter().zip(&device.ports).map(open).collect();
    let ports = ports.map_err(|e| e.to_string())?;
    let faults = std::mem::take(&mut device.faults);
    let speaks = device.bgp.is_some();
    let carriers = vec![true; ports.len()];
    let router = Router::new(device).map_err(|e| e.to_string())?;
    let listener = UnixListener::bind(socket).and_then(|l| l.set_nonblocking(true).map(|()| l));
    let listener = listener.map_err(|e| format!("cannot listen on {}: {e}", Path::new(socket).display()))?;
    let filled = vec![0; ports.len()];
    Process {
        clock,
        router,
        ports,
        filled,
        faults,
        listener,
        overflow: 0,
        longest_wait: Duration::ZERO,
        speaks,
        carriers,
    }
    .serve()
}

struct Process {
    clock: SystemClock,
    router: Router,
    ports: Vec<Box<dyn Port>>,
    /// Slots of each port that are waiting to be sent.
    filled: Vec<usize>,
    /// Faults that start on command.
    faults: Faults,
    listener: UnixListener,
    /// Overflow of the links that was already reported to the router.
    overflow: u64,
    /// True if the device speaks BGP.
    speaks: bool,
    /// Carrier of each link when it was last checked.
    carriers: Vec<bool>,
    /// Longest delay between a frame's arrival and its processing since the last query.
    longest_wait: Duration,
}

impl Process {
    fn serve(mut self) -> Result<(), String> {
        // The receive work of the device's links has the same priority. Otherwise one would starve the other.
        let _priority = HighPriority::new();
        wait::be_punctual();
        let (mut busy_at, mut heard_at, mut passed) = (self.clock.now(), self.clock.now(), self.clock.now());
        loop {
            let mut came = self.take().map_err(|e| e.to_string())?;
            // After a hold-up, packets that arrived meanwhile are read first, so that no session ends because they waited.
            let rounds = if self.clock.now().since(passed) > HELD_UP { CATCH_UP } else { 0 };
            for _ in 0..rounds {
                match self.take().map_err(|e| e.to_string())? {
                    0 => break,
                    more => came += more,
                }
            }
            let now = self.clock.now();
            passed = now;
            let left = self.give(now).map_err(|e| e.to_string())?;
            if came + left > 0 {
                busy_at = now;
            }
            let idle = now.since(busy_at) > AWAKE;
            if now.since(heard_at) > LISTEN {
                heard_at = now;
                self.look_at_links(now).map_err(|e| e.to_string())?;
                self.listen()?;
            }
            if came + left == 0 {
                let rest = self.router.next_deadline().map_or(SLEEP, |at| at.since(now));
                if idle && rest > NAP {
                    self.sleep(rest.min(if self.speaks { NOTICE } else { SLEEP }))?;
                    passed = self.clock.now();
                } else {
                    std::hint::spin_loop();
                }
            }
        }
    }

    /// Passes one burst from every link to the router, in order of arrival.
    fn take(&mut self) -> Result<usize, PortError> {
        let mut bursts: Vec<(Received<'_>, usize)> = Vec::with_capacity(self.ports.len());
        for port in &mut self.ports {
            bursts.push((port.receive()?, 0));
        }
        let now = self.clock.now();
        let mut came = 0;
        loop {
            let heads = bursts.iter().enumerate().filter(|(_, (burst, next))| *next < burst.len());
            let Some((at, port)) = heads.map(|(port, (burst, next))| (burst.get(*next).at, port)).min() else {
                return Ok(came);
            };
            let (burst, next) = &mut bursts[port];
            self.longest_wait = self.longest_wait.max(now.since(at));
            self.router.receive(at, port, burst.get(*next).frame);
            *next += 1;
            came += 1;
        }
    }

    /// Sends the frames that depart by `now`.
    fn give(&mut self, now: Instant) -> Result<usize, PortError> {
        let Process { router, ports, filled, .. } = self;
        let (mut left, mut refused, mut failed) = (0, 0, Ok(()));
        router.poll(now, &mut |_, port, frame| {
            ports[port].slots().put(filled[port], frame);
            filled[port] += 1;
            left += 1;
            if filled[port] == BURST && failed.is_ok() {
                failed = flush(ports[port].as_mut(), &mut filled[port]).map(|n| refused += n);
            }
        });
        failed?;
        for (port, filled) in ports.iter_mut().zip(filled) {
            refused += flush(port.as_mut(), filled)?;
        }
        router.note_transmit_refused(refused);
        Ok(left)
    }

    fn sleep(&self, time: Duration) -> Result<(), String> {
        let mut all: Vec<_> = self.ports.iter().filter_map(|p| p.readable()).collect();
        all.push(self.listener.as_fd());
        wait::until_readable(&all, time).map(drop).map_err(|e| format!("cannot sleep: {e}"))
    }

    /// Reports carrier changes to the router.
    fn look_at_links(&mut self, now: Instant) -> Result<(), PortError> {
        for (i, (port, carrier)) in self.ports.iter_mut().zip(&mut self.carriers).enumerate() {
            let has = drophammer_port::has_carrier(port.as_mut())?;
            if std::mem::replace(carrier, has) != has {
                self.router.set_link(now, i, has);
            }
        }
        Ok(())
    }

    /// Answers requests.
    fn listen(&mut self) -> Result<(), String> {
        loop {
            match self.listener.accept() {
                // A client that disconnects does not terminate the device.
                Ok((stream, _)) => drop(self.answer(stream)),
                Err(e) if e.kind() == ErrorKind::WouldBlock => return Ok(()),
                Err(e) if e.kind() == ErrorKind::Interrupted => {}
                Err(e) => return Err(format!("cannot listen: {e}")),
            }
        }
    }

    fn answer(&mut self, mut stream: UnixStream) -> std::io::Result<()> {
        stream.set_nonblocking(false)?;
        stream.set_read_timeout(Some(QUESTION))?;
        let mut line = String::new();
        if BufReader::new(&stream).read_line(&mut line)? == 0 {
            return Ok(());
        }
        let answer = self.reply(line.trim()).unwrap_or_else(|why| json!({ "error": why }));
        stream.write_all(format!("{answer}\n").as_bytes())
    }

    fn reply(&mut self, line: &str) -> Result<Value, String> {
        let (verb, rest) = line.split_once(' ').unwrap_or((line, ""));
        match verb {
            "counters" => self.counters(),
            "wait" => Ok(json!(std::mem::take(&mut self.longest_wait).as_nanos() as u64)),
            "begin" => self.begin(self.faults.clone()),
            "faults" => self.begin(serde_json::from_str(rest).map_err(|e| format!("no faults: {e}"))?),
            "link" => self.set_link(rest),
            "filter" => self.set_filter(rest),
            "classes" => self.set_classes(rest),
            "fib" => {
                let fib = &self.router.truth().fib;
                Ok(json!({ "ipv4": fib.ipv4, "ipv6": fib.ipv6 }))
            }
            _ => Err(format!("unknown command `{verb}`")),
        }
    }

    /// Applies these faults from now on.
    fn begin(&mut self, faults: Faults) -> Result<Value, String> {
        let faults = faults.from_instant(self.clock.now());
        self.router.set_faults(faults).map(|()| json!({})).map_err(|e| e.to_string())
    }

    /// Replaces the device's filter by `lists` from now on.
    fn set_filter(&mut self, lists: &str) -> Result<Value, String> {
        let lists = serde_json::from_str(lists).map_err(|e| format!("no filter: {e}"))?;
        self.router.set_filter(lists).map(|()| json!({})).map_err(|e| e.to_string())
    }

    /// Replaces the device's classes of service by `lists` from now on.
    fn set_classes(&mut self, lists: &str) -> Result<Value, String> {
        let lists: Vec<EgressClasses> = serde_json::from_str(lists).map_err(|e| format!("no classes: {e}"))?;
        self.router.set_classes(&lists).map(|()| json!({})).map_err(|e| e.to_string())
    }

    /// Switches the link of a port: `PORT down` or `PORT up`.
    fn set_link(&mut self, what: &str) -> Result<Value, String> {
        let ports = self.ports.len();
        let (port, up) = match what.split_once(' ') {
            Some((port, "up")) => (port, true),
            Some((port, "down")) => (port, false),
            _ => return Err(format!("expected a port and `up` or `down`, not `{what}`")),
        };
        let port = port.parse().ok().filter(|port| *port < ports);
        let port =
            port.ok_or_else(|| format!("the device has ports 0 to {}, not `{what}`", ports.saturating_sub(1)))?;
        self.router.set_link(self.clock.now(), port, up);
        Ok(json!({}))
    }

    fn counters(&mut self) -> Result<Value, String> {
        let mut overflow = 0;
        for port in &mut self.ports {
            overflow += port.counters().map_err(|e| e.to_string())?.receive_drops;
        }
        self.router.note_receive_overflow(overflow - self.overflow);
        self.overflow = overflow;
        let mut all = serde_json::Map::new();
        for port in 0..self.ports.len() {
            all.insert(format!("d{port}"), json!(self.router.counters(port)));
        }
        for (class, counters) in self.router.class_counters().iter().enumerate() {
            all.insert(format!("class{class}"), json!(counters));
        }
        for (name, count) in class_counters(&self.router) {
            all.insert(name, json!(count));
        }
        let matches = self.router.filter_matches();
        let counted = matches.len() <= drophammer_lab::MOST_FILTER_COUNTERS;
        for (rule, matches) in matches.iter().enumerate().filter(|_| counted) {
            all.insert(drophammer_lab::filter_counter(rule), json!(matches));
        }
        all.insert("truth".into(), json!(self.router.truth()));
        Ok(Value::Object(all))
    }
}

/// Sends the filled slots; returns how many frames the link refused.
fn flush(port: &mut dyn Port, filled: &mut usize) -> Result<u64, PortError> {
    match std::mem::take(filled) {
        0 => Ok(0),
        frames => port.send(frames).map(|sent| sent.refused.into()),
    }
}
