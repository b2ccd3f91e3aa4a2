//! A configuration in force: open ports, the rig on them, flows and sessions.

use super::captures::Captures;
use super::convergence::Causes;
use super::counts::Counts;
use super::elsewhere;
use super::routers;
use super::row::Row;
use super::tagged::Places;
use super::traffic::Flows;
use crate::build::{Built, Link, RouterName, SessionName, SessionRange, build};
use crate::model;
use crate::model::Config;
use crate::server::Options;
use drophammer_emulation::bgp::{BgpCommand, Packing, RouteSet};
use drophammer_model::Instant;
use drophammer_model::counters::OtherFrames;
use drophammer_model::quantity::Bandwidth;
use drophammer_model::routes::Change;
use drophammer_port::{Clock, Port, PortInfo, SystemClock};
use drophammer_rig::{Act, Action, Capture, Ports, Rig, Select, Tap, TrialKeys, Until};
use std::collections::VecDeque;
use std::sync::Arc;
use std::time::Duration;

/// Width of the window over which rates are measured.
const RATE_WINDOW: Duration = Duration::from_secs(1);
/// Time between two samples for rates.
const SAMPLE: Duration = Duration::from_millis(250);
/// How often traffic of other hosts is tried again that ends while it starts.
const MOST_TRIES: usize = 2;
/// Time for sessions to end in order.
const FAREWELL: Duration = Duration::from_millis(500);

/// State of a session.
#[derive(Clone, Debug, Default)]
pub struct Session {
    /// True if it was started.
    pub started: bool,
    /// For each of its route ranges, true if it is advertised.
    pub advertised: Vec<bool>,
}

/// Frames and bytes: sent, received.
pub type Sums = [u64; 4];

/// Frames and bytes of these counts.
fn sums(counts: &Counts) -> Sums {
    [counts.frames_tx, counts.frames_rx, counts.bytes_tx, counts.bytes_rx]
}

/// Rates per second after this time.
fn rate(now: &Sums, before: &Sums, seconds: f64) -> [f64; 4] {
    std::array::from_fn(|i| now[i].saturating_sub(before[i]) as f64 / seconds)
}

/// Counts at a moment, for rates.
struct Sample {
    at: Instant,
    rows: Vec<Sums>,
    ports: Vec<Sums>,
    places: Places,
}

/// A configuration in force.
pub struct Bench {
    pub config: Config,
    pub built: Built,
    pub rig: Rig,
    pub flows: Flows,
    pub sessions: Vec<Session>,
    /// State of each router of other protocols.
    pub routers: Vec<Session>,
    pub captures: Captures,
    pub links: Vec<Link>,
    keys: TrialKeys,
    /// Frames of the devices of each port when traffic began: sent, received.
    before: Vec<[OtherFrames; 2]>,
    /// Changes that can make rates fall.
    pub causes: Causes,
    /// For each port, whether its link had carrier at the last check, and since when.
    pub(super) carriers: Vec<(Option<bool>, Instant)>,
    /// When all links were last checked.
    looked: Option<Instant>,
    /// Wall clock in ns since 1970 at instant 0.
    pub origin_ns: u64,
    samples: VecDeque<Sample>,
}

/// Speed of an interface, if its driver reports it.
fn reported_speed(interface: &str) -> Option<Bandwidth> {
    let text = std::fs::read_to_string(format!("/sys/class/net/{interface}/speed")).ok()?;
    let megabits: u64 = text.trim().parse().ok()?;
    (megabits > 0).then_some(Bandwidth(megabits * 1_000_000))
}

/// True if an interface is virtual, with no device behind it.
fn is_virtual(interface: &str) -> bool {
    !std::path::Path::new(&format!("/sys/class/net/{interface}/device")).exists()
}

/// Open ports, what is known about each, and their captures.
type Opened = (Ports, Vec<PortInfo>, Captures);

/// Opens the ports of `config`, which are of this machine, or of other hosts and [checked](elsewhere::check).
fn open(config: &Config, options: &Options, clock: SystemClock) -> Result<Opened, Vec<String>> {
    let one = |e: String| vec![e];
    let names: Vec<String> = config.ports.iter().map(|port| port.interface.clone()).collect();
    if let Some(lender) = options.lender.as_ref().filter(|_| elsewhere::are_named(config)) {
        let far = lender.open(&names, clock).map_err(|e| one(format!("ports: {e}")))?;
        let infos = far.ports.iter().map(|port| port.info().clone()).collect();
        return Ok((Ports::Far(far), infos, Captures::Elsewhere(vec![(false, false); names.len()])));
    }
    for (i, name) in names.iter().enumerate() {
        (options.may_use)(name).map_err(|e| one(format!("ports[{i}].location: {e}")))?;
    }
    let names: Vec<&str> = names.iter().map(String::as_str).collect();
    let opened = match names.is_empty() {
        true => Ok(Vec::new()),
        false => drophammer_rig::open(&names, options.backend, 1, clock, None),
    };
    let opened = opened.map_err(|e| one(format!("ports: {e}")))?;
    let infos = opened.iter().map(|port| port.info().clone()).collect();
    let captures: Vec<Arc<Capture>> = opened.iter().map(|_| Arc::default()).collect();
    let taps = opened.into_iter().zip(&captures);
    let taps = taps.map(|(port, capture)| Box::new(Tap::new(port, capture.clone())) as Box<dyn Port + Send>).collect();
    Ok((Ports::real(taps, clock, &[]), infos, Captures::Here(captures)))
}

/// A warning for each port whose interface has a smaller MTU than configured.
pub(super) fn small_mtus(config: &Config, links: &[Link]) -> Vec<String> {
    let smaller = |(port, link): (&model::Port, &Link)| {
        let wanted = port.mtu.filter(|mtu| *mtu > link.mtu)?;
        let (name, interface, mtu) = (&port.name, &port.interface, link.mtu);
        let ignored = format!("layer1: the MTU of {wanted} bytes of port `{name}` is ignored");
        Some(format!("{ignored}, because {interface} has {mtu}; `ip link set {interface} mtu {wanted}` changes that"))
    };
    config.ports.iter().zip(links).filter_map(smaller).collect()
}

impl Bench {
    /// Opens the ports of `config`, puts the devices behind them and prepares the flows.
    ///
    /// # Errors
    /// Everything that is wrong with the configuration, or with an interface.
    pub fn open(config: Config, options: &Options, clock: SystemClock, seed: u64) -> Result<Bench, Vec<String>> {
        let (ports, infos, captures) = open(&config, options, clock)?;
        let here = matches!(captures, Captures::Here(_));
        let origin_ns = u64::try_from(i128::from(clock.origin_ns()) + clock.wall_offset()).unwrap_or(0);
        let link = |(info, config): (&PortInfo, &model::Port)| {
            let is_virtual = here && is_virtual(&config.interface);
            let reported = reported_speed(&config.interface).filter(|_| here);
            // The speed that a virtual link reports says little.
            let speed = config.speed.or(reported.filter(|_| !is_virtual));
            Link { mtu: info.mtu, largest_frame: info.largest_frame, speed, reported, is_virtual }
        };
        let links: Vec<Link> = infos.iter().zip(&config.ports).map(link).collect();
        let mut built = build(&config, &links, seed)?;
        built.warnings.extend(small_mtus(&config, &links));
        built.warnings.extend(config.warnings.iter().cloned());
        routers::continue_sequences(&mut built.rig, clock.origin_ns());
        let rig = Rig::new(ports, &built.rig);
        Ok(Bench::with(config, built, rig, links, captures, seed, origin_ns))
    }

    /// The configuration `config`, `built` in `rig`.
    pub(super) fn with(
        config: Config,
        built: Built,
        mut rig: Rig,
        links: Vec<Link>,
        captures: Captures,
        seed: u64,
        origin_ns: u64,
    ) -> Bench {
        let session = |(i, session): (usize, &SessionName)| {
            if let Some((routers, router)) = rig.session_mut(i) {
                routers.keep_routes(router, true);
                if session.learns.contains(&true) {
                    routers.adj_rib_in_mut(router).keep_learned();
                }
            }
            Session { started: false, advertised: vec![true; session.routes.len()] }
        };
        let sessions = built.sessions.iter().enumerate().map(session).collect();
        let router = |router: &RouterName| Session { started: false, advertised: vec![true; router.routes().len()] };
        let routers = built.routers.iter().map(router).collect();
        let flows = Flows::new(&built.flows, config.ports.len(), config.events.rate_threshold);
        let causes = Causes::new(config.events.control_plane);
        let before = vec![Default::default(); config.ports.len()];
        let (keys, samples) = (TrialKeys::new(seed), VecDeque::new());
        let carriers = vec![(None, rig.now()); config.ports.len()];
        Bench {
            config,
            built,
            rig,
            flows,
            sessions,
            routers,
            captures,
            links,
            keys,
            before,
            samples,
            causes,
            carriers,
            looked: None,
            origin_ns,
        }
    }

    /// The interfaces of this machine that are ports.
    pub fn own_interfaces(&self) -> impl Iterator<Item = &str> {
        let here = !self.rig.is_far();
        self.config.ports.iter().filter(move |_| here).map(|port| port.interface.as_str())
    }

    /// Replaces the flows with those of `config`, which is otherwise unchanged. No flow may be active. Returns
    /// warnings.
    ///
    /// # Errors
    /// Everything that is wrong with the flows.
    pub fn replace_flows(&mut self, config: Config, seed: u64) -> Result<Vec<String>, Vec<String>> {
        let Built { flows, warnings, .. } = build(&config, &self.links, seed)?;
        self.flows.abort(&mut self.rig);
        self.samples.clear();
        self.flows = Flows::new(&flows, config.ports.len(), config.events.rate_threshold);
        (self.built.flows, self.config) = (flows, config);
        Ok(warnings)
    }

    /// Serves the devices and drives traffic for at most `time`, or until `interrupted` returns true.
    ///
    /// # Errors
    /// A port stopped working.
    pub fn turn(&mut self, time: Duration, interrupted: &dyn Fn() -> bool) -> Result<(), String> {
        self.look();
        if self.flows.are_running() {
            self.flows.turn(&mut self.rig, time)?;
            self.causes.turn(&self.rig);
            self.sample();
            return Ok(());
        }
        let until = Until::At(self.rig.now() + time);
        let served = self.rig.serve(&until, interrupted).map(|_| ()).map_err(|e| e.to_string());
        self.causes.turn(&self.rig);
        served
    }

    /// Starts these flows.
    ///
    /// # Errors
    /// Why they cannot be sent.
    pub fn start_flows(&mut self, flows: &[usize]) -> Result<(), String> {
        if flows.is_empty() {
            return Ok(());
        }
        let Bench { rig, built, keys, flows: all, .. } = self;
        let mut tries = 0..MOST_TRIES;
        let began = loop {
            match all.start(rig, built, keys, flows) {
                Ok(began) => break began,
                // A host may have been too busy to be ready at the agreed start.
                Err(why) if tries.next().is_none() || !all.were_cut_off() => return Err(why),
                Err(_) => {}
            }
        };
        if began {
            for port in 0..self.before.len() {
                self.before[port] = [self.rig.hosts().sent(port), self.rig.hosts().received(port)];
            }
        }
        self.samples.clear();
        Ok(())
    }

    /// Checks whether the link of a port has carrier. Also returns since when, as far as checks have shown.
    ///
    /// # Errors
    /// The port failed.
    pub fn carrier(&mut self, port: usize) -> Result<(bool, Instant), String> {
        let (up, now) = (self.rig.has_carrier(port).map_err(|e| e.to_string())?, self.rig.now());
        let (known, since) = &mut self.carriers[port];
        if known.replace(up).is_some_and(|before| before != up) {
            *since = now;
        }
        Ok((up, *since))
    }

    /// Checks the links of all ports from time to time. Links on other hosts take a message each, so they are checked only when a client asks.
    fn look(&mut self) {
        let now = self.rig.now();
        if self.rig.is_far() || self.looked.is_some_and(|last| now.since(last) < SAMPLE) {
            return;
        }
        self.looked = Some(now);
        for port in 0..self.carriers.len() {
            // The next call that uses a failed port reports it.
            let _ = self.carrier(port);
        }
    }

    /// Counts of each row of flow metrics.
    fn row_sums(&self) -> Vec<Sums> {
        self.flows.rows.iter().map(|row| sums(&row.counts)).collect()
    }

    /// Frames and bytes of a port, test frames and others, since traffic began: sent, received.
    pub fn port_sums(&self, port: usize) -> Sums {
        let (hosts, before) = (self.rig.hosts(), &self.before[port]);
        let [sent, received] = [hosts.sent(port).since(before[0]), hosts.received(port).since(before[1])];
        // Octets are without FCS.
        let bytes = |frames: OtherFrames| frames.octets + 4 * frames.frames;
        let mut sums = [sent.frames, received.frames, bytes(sent), bytes(received)];
        for row in self.flows.rows.iter().filter(|row| row.current) {
            // Frames that a row sent before it started again are frames of the port.
            let counts = &row.whole;
            if row.from == port {
                sums[0] += counts.frames_tx;
                sums[2] += counts.bytes_tx;
            }
        }
        let (frames, bytes) = self.flows.arrived[port];
        [sums[0], sums[1] + frames, sums[2], sums[3] + bytes]
    }

    fn ports(&self) -> Vec<Sums> {
        (0..self.config.ports.len()).map(|port| self.port_sums(port)).collect()
    }

    /// Stores counts for rates, if it is time.
    fn sample(&mut self) {
        let now = self.rig.now();
        if self.samples.back().is_some_and(|last| now.since(last.at) < SAMPLE) {
            return;
        }
        self.rig.ask_counts();
        self.flows.refresh(&mut self.rig);
        // Other hosts have counted a little earlier, or not yet.
        let Some(at) = self.rig.counted_at().filter(|at| self.samples.back().is_none_or(|last| last.at < *at)) else {
            return;
        };
        let (rows, ports, places) = (self.row_sums(), self.ports(), self.rig.places());
        self.samples.push_back(Sample { at, rows, ports, places });
        while self.samples.len() > 2 && now.since(self.samples[1].at) >= RATE_WINDOW {
            self.samples.pop_front();
        }
    }

    /// Rates per second over the last second: of each row, and of each port.
    pub fn rates(&mut self) -> (Vec<[f64; 4]>, Vec<[f64; 4]>) {
        let (rows, ports) = (self.row_sums(), self.ports());
        let first = self.earlier();
        let each = |now: &[Sums], of: fn(&Sample) -> &Vec<Sums>| {
            let before = |i: usize| first.and_then(|(first, seconds)| Some((of(first).get(i)?, seconds)));
            now.iter()
                .enumerate()
                .map(|(i, now)| before(i).map_or([0.0; 4], |(b, seconds)| rate(now, b, seconds)))
                .collect()
        };
        (each(&rows, |sample| &sample.rows), each(&ports, |sample| &sample.ports))
    }

    /// The oldest sample of running traffic, and the seconds since then.
    fn earlier(&self) -> Option<(&Sample, f64)> {
        let first = self.samples.front().filter(|_| self.flows.are_running())?;
        let now = self.rig.counted_at().unwrap_or_else(|| self.rig.now());
        let seconds = now.since(first.at).as_secs_f64();
        (seconds > 1e-3).then_some((first, seconds))
    }

    /// Rates of a row by combination of its tagged values; empty if unknown. `places` are the counts of the running traffic.
    pub fn rates_by_combination(&self, row: &Row, places: &Places) -> Vec<[f64; 4]> {
        let Some((first, seconds)) = self.earlier() else { return Vec::new() };
        let [now, before] = [places, &first.places].map(|places| self.flows.by_combination_before(row, places));
        now.iter().zip(&before).map(|(now, before)| rate(&sums(now), &sums(before), seconds)).collect()
    }

    /// Starts or stops sessions.
    ///
    /// # Errors
    /// The errors of the rig.
    pub fn sessions(&mut self, which: &[usize], up: bool) -> Result<(), String> {
        let changed: Vec<usize> = which.iter().copied().filter(|i| self.sessions[*i].started != up).collect();
        if up {
            for i in &changed {
                for range in 0..self.sessions[*i].advertised.len() {
                    if self.sessions[*i].advertised[range] {
                        self.send_routes(*i, range, Change::Advertise)?;
                    }
                }
            }
        }
        self.rig.protocols(Select::These(&changed), if up { Action::Start } else { Action::Stop });
        changed.iter().for_each(|i| self.sessions[*i].started = up);
        Ok(())
    }

    /// Advertises or withdraws a range of routes.
    ///
    /// # Errors
    /// The errors of the rig.
    pub fn routes(&mut self, session: usize, range: usize, change: Change) -> Result<(), String> {
        let advertise = change == Change::Advertise;
        if std::mem::replace(&mut self.sessions[session].advertised[range], advertise) == advertise {
            return Ok(());
        }
        // A session that is down picks this up when it starts.
        if !self.sessions[session].started {
            return Ok(());
        }
        let begin = self.rig.now();
        self.send_routes(session, range, change)?;
        let kind = if advertise { "route_advertise" } else { "route_withdraw" };
        self.causes.begin(kind, &self.built.sessions[session].routes[range].name, begin, Some(session));
        Ok(())
    }

    /// Switches the link of a port.
    ///
    /// # Errors
    /// The errors of the rig.
    pub fn switch_link(&mut self, port: usize, up: bool) -> Result<(), String> {
        let begin = self.rig.now();
        self.rig.command(port, &Act::Link(up)).map_err(|e| e.to_string())?;
        let _ = self.carrier(port);
        let kind = if up { "link_up" } else { "link_down" };
        self.causes.begin(kind, &self.config.ports[port].name, begin, None);
        self.causes.turn(&self.rig);
        Ok(())
    }

    fn send_routes(&mut self, session: usize, range: usize, change: Change) -> Result<(), String> {
        let place = self.rig.hosts().place(session);
        let SessionRange { routes, encapsulation, .. } = &self.built.sessions[session].routes[range];
        let part = 0..routes.len();
        let set = RouteSet { routes: routes.clone(), part, packing: Packing::default(), encapsulation: *encapsulation };
        let command = BgpCommand::Routes { peer: place.router, change, set };
        self.rig.command(place.port, &Act::bgp(place.device, command)).map_err(|e| e.to_string())
    }

    /// Ends traffic and sessions.
    pub fn close(mut self) {
        self.flows.abort(&mut self.rig);
        let all: Vec<usize> = (0..self.sessions.len()).filter(|i| self.sessions[*i].started).collect();
        let running = self.built.routers.iter().zip(&self.routers).filter(|(_, router)| router.started);
        let mut ended: Vec<Until> = running.map(|(router, _)| Until::Ended(router.place)).collect();
        // If a protocol or a port fails now, the peers notice by their timers.
        let _ = self.protocols(false);
        ended.push(Until::Idle(all.clone()));
        if !all.is_empty() || ended.len() > 1 {
            let end = self.rig.now() + FAREWELL;
            let _ = self.rig.serve(&Until::All(ended).or_at(end), &|| false);
        }
    }
}
