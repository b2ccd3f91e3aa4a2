//! Control states: flows, protocols, routes, links, captures.

use super::bench::Bench;
use super::captures::File;
use super::traffic::Action;
use crate::api::Failure;
use crate::model::read::{Errors, Object};
use drophammer_model::routes::Change;
use serde_json::Value;
use std::collections::HashMap;
use std::sync::mpsc::TryRecvError;
use std::time::Duration;

/// How long to drive the ports between two looks for a file of another host.
const WAIT: Duration = Duration::from_millis(5);
/// Maximum number of flows that a warning names.
const MOST_NAMED: usize = 10;

/// A control state, with names as indices.
pub(super) enum State {
    Flows(Action, Vec<usize>),
    Protocols(bool),
    Sessions(bool, Vec<usize>),
    Routers(bool, Vec<usize>),
    Routes(Change, Vec<Range>),
    Link(bool, Vec<usize>),
    Capture(bool, Vec<usize>),
}

/// A route range: index of its session or of its router, and of the range.
#[derive(Clone, Copy)]
pub(super) enum Range {
    Session(usize, usize),
    Router(usize, usize),
}

/// The indices of `names` in `all`; all indices if there are no names.
pub(super) fn places<'a>(o: &mut Object<'_>, key: &str, what: &str, all: impl Iterator<Item = &'a str>) -> Vec<usize> {
    let all: Vec<&str> = all.collect();
    let names = o.texts(key);
    if names.is_empty() {
        return (0..all.len()).collect();
    }
    let known: HashMap<&str, usize> = all.iter().enumerate().map(|(place, name)| (*name, place)).collect();
    let place = |name: &String| {
        let found = known.get(name.as_str()).copied();
        if found.is_none() {
            o.wrong(key, format_args!("there is no {what} `{name}`"));
        }
        found
    };
    names.iter().filter_map(place).collect()
}

fn state_is(o: &mut Object<'_>, words: [&str; 2]) -> bool {
    if !o.has("state") {
        o.wrong("state", "this is required");
    }
    o.word("state", &words, 0) == 1
}

impl Bench {
    /// Reads a control state.
    pub(super) fn read_state(&self, mut o: Object<'_>) -> State {
        let ports = || self.config.ports.iter().map(|port| port.name.as_str());
        match o.choice(&["traffic", "protocol", "port"], "traffic") {
            "port" => {
                let mut port = o.object_or_empty("port");
                let kind = port.choice(&["link", "capture"], "link");
                let mut o = port.object_or_empty(kind);
                let at = places(&mut o, "port_names", "port", ports());
                match kind {
                    "link" => State::Link(state_is(&mut o, ["down", "up"]), at),
                    _ => State::Capture(state_is(&mut o, ["stop", "start"]), at),
                }
            }
            "protocol" => {
                let mut protocol = o.object_or_empty("protocol");
                let names = || self.built.sessions.iter().map(|session| session.name.as_str());
                match protocol.choice(&["all", "route", "bgp", "ospfv2"], "all") {
                    "route" => {
                        let mut o = protocol.object_or_empty("route");
                        let sessions = self.built.sessions.iter().enumerate();
                        let mut all: Vec<(&str, Range)> = Vec::new();
                        for (i, session) in sessions {
                            let names = session.routes.iter().enumerate();
                            all.extend(names.map(|(range, at)| (at.name.as_str(), Range::Session(i, range))));
                        }
                        for (i, router) in self.built.routers.iter().enumerate() {
                            let names = router.routes().iter().enumerate();
                            all.extend(names.map(|(range, (name, _))| (name.as_str(), Range::Router(i, range))));
                        }
                        let at = places(&mut o, "names", "route range", all.iter().map(|(name, _)| *name));
                        let advertise = state_is(&mut o, ["withdraw", "advertise"]);
                        let change = if advertise { Change::Advertise } else { Change::Withdraw };
                        State::Routes(change, at.into_iter().map(|i| all[i].1).collect())
                    }
                    "bgp" => {
                        let mut bgp = protocol.object_or_empty("bgp");
                        bgp.choice(&["peers"], "peers");
                        let mut o = bgp.object_or_empty("peers");
                        let at = places(&mut o, "peer_names", "BGP peer", names());
                        State::Sessions(state_is(&mut o, ["down", "up"]), at)
                    }
                    "ospfv2" => {
                        let mut ospf = protocol.object_or_empty("ospfv2");
                        ospf.choice(&["routers"], "routers");
                        let mut o = ospf.object_or_empty("routers");
                        let routers = self.built.routers.iter().enumerate();
                        let ospf: Vec<_> = routers.filter(|(_, router)| router.is_ospf()).collect();
                        let names = ospf.iter().map(|(_, router)| router.name.as_str());
                        let at = places(&mut o, "router_names", "OSPFv2 router", names);
                        let at = at.into_iter().map(|i| ospf[i].0).collect();
                        State::Routers(state_is(&mut o, ["down", "up"]), at)
                    }
                    _ => {
                        let mut o = protocol.object_or_empty("all");
                        State::Protocols(state_is(&mut o, ["stop", "start"]))
                    }
                }
            }
            _ => {
                let mut traffic = o.object_or_empty("traffic");
                traffic.choice(&["flow_transmit"], "flow_transmit");
                let mut o = traffic.object_or_empty("flow_transmit");
                let flows = self.built.flows.iter().map(|flow| flow.name.as_str());
                let at = places(&mut o, "flow_names", "flow", flows);
                if !o.has("state") {
                    o.wrong("state", "this is required");
                }
                let actions = [Action::Start, Action::Stop, Action::Pause, Action::Resume];
                State::Flows(actions[o.word("state", &["start", "stop", "pause", "resume"], 1)], at)
            }
        }
    }

    /// Carries out a control state. Returns warnings.
    ///
    /// # Errors
    /// Unknown names, and what the rig refuses.
    pub fn control(&mut self, body: Value) -> Result<Vec<String>, Failure> {
        let errors = Errors::default();
        let state = self.read_state(Object::document(body, &errors));
        let state = errors.or(state).map_err(Failure::validation)?;
        let mut warnings = Vec::new();
        if let State::Flows(Action::Resume, flows) = &state {
            warnings.extend(self.not_resumed(flows));
        }
        let done = match state {
            State::Flows(Action::Start, flows) => self.start_flows(&flows),
            State::Flows(action, flows) => self.change_flows(action, &flows),
            State::Protocols(up) => self.protocols(up),
            State::Sessions(up, sessions) => self.sessions(&sessions, up),
            State::Routers(up, routers) => self.start_routers(&routers, up),
            State::Routes(change, ranges) => ranges.into_iter().try_for_each(|range| match range {
                Range::Session(session, range) => self.routes(session, range, change),
                Range::Router(router, range) => self.router_routes(router, range, change),
            }),
            State::Link(up, ports) => ports.into_iter().try_for_each(|port| self.switch_link(port, up)),
            State::Capture(start, ports) => {
                let Bench { captures, rig, config, origin_ns, .. } = self;
                let settings = |port: usize| start.then(|| config.ports[port].capture.clone());
                ports.into_iter().try_for_each(|port| captures.switch(rig, port, settings(port), *origin_ns))
            }
        };
        done.map_err(Failure::internal)?;
        let (lost, unsent) = (self.flows.tester_drops, std::mem::take(&mut self.flows.left_out));
        if lost > 0 && !self.flows.are_active() {
            warnings
                .push(format!("the tester itself lost {lost} received frames in the last traffic; they count as lost"));
        }
        if unsent > 0 {
            warnings.push(format!("{unsent} frames that were due did not leave: the ports cannot send at these rates"));
        }
        Ok(warnings)
    }

    /// A warning that names those of these flows that a resume does not start.
    fn not_resumed(&self, flows: &[usize]) -> Option<String> {
        let stopped = self.flows.stopped(flows);
        let names = stopped.iter().take(MOST_NAMED).map(|flow| format!("`{}`", self.built.flows[*flow].name));
        let names = names.collect::<Vec<_>>().join(", ");
        let more = match stopped.len().saturating_sub(MOST_NAMED) {
            0 => String::new(),
            more => format!(" and {more} more"),
        };
        let text = format!("resume has no effect on flows that are stopped, not paused: {names}{more}; start them");
        (!stopped.is_empty()).then_some(text)
    }

    /// Stops, pauses or resumes flows.
    ///
    /// # Errors
    /// The errors of the rig.
    pub fn change_flows(&mut self, action: Action, flows: &[usize]) -> Result<(), String> {
        let Bench { rig, flows: all, .. } = self;
        all.change(rig, action, flows)
    }

    /// Reads which port's captured frames a client wants.
    pub(super) fn read_capture(&self, mut o: Object<'_>) -> Option<usize> {
        let name = o.name("port_name");
        let port = self.config.ports.iter().position(|port| port.name == name);
        if port.is_none() {
            o.wrong("port_name", format_args!("there is no port `{name}`"));
        }
        if let Some(mut packets) = o.object("packets") {
            packets.choice(&["all"], "all");
        }
        port
    }

    /// The captured frames of a port as a file. Ends the capture.
    ///
    /// # Errors
    /// An unknown port.
    pub fn capture(&mut self, body: Value) -> Result<Vec<u8>, Failure> {
        let errors = Errors::default();
        let port = self.read_capture(Object::document(body, &errors));
        let port = errors.or(port).map_err(Failure::validation)?;
        let Some(port) = port else { return Ok(Vec::new()) };
        let settings = &self.config.ports[port].capture;
        let file = self.captures.file(&mut self.rig, port, settings).map_err(Failure::internal)?;
        let coming = match file {
            File::Here(file) => return Ok(file),
            File::OnItsWay(coming) => coming,
        };
        loop {
            match coming.try_recv() {
                Ok(file) => return file.map_err(Failure::internal),
                Err(TryRecvError::Disconnected) => {
                    return Err(Failure::internal("the connection to the host has ended"));
                }
                Err(TryRecvError::Empty) => self.turn(WAIT, &|| false).map_err(Failure::internal)?,
            }
        }
    }
}
