//! Routers other than BGP: start, stop, routes, and their metrics.

use super::answers::Selection;
use super::bench::Bench;
use crate::build::{RouterKind, RouterName};
use drophammer_emulation::ospf::{NeighbourState, Ospf, OspfCommand};
use drophammer_emulation::rsvp::{Pace, RsvpCommand};
use drophammer_model::routes::Change;
use drophammer_rig::{Command, Config as RigConfig, ProtocolConfig};
use serde_json::{Value, json};

/// Neighbours demand that OSPF's cryptographic sequence numbers never fall, not even after a new configuration. So they are seconds
/// since 1970. `origin_ns` is the time at the beginning of the clock.
pub fn continue_sequences(rig: &mut RigConfig, origin_ns: u64) {
    let devices = rig.ports.iter_mut().flat_map(|port| &mut port.devices);
    for protocol in devices.flat_map(|device| &mut device.protocols) {
        if let ProtocolConfig::Ospf(config) = protocol {
            config.first_sequence = (origin_ns / 1_000_000_000) as u32;
        }
    }
}

/// Metrics of OSPFv2: the column, and the counters whose sum it is.
const OSPF_COLUMNS: [(&str, &[&str]); 31] = [
    ("sessions_flap", &["adjacencies_lost"]),
    ("hellos_sent", &["hellos_sent"]),
    ("hellos_received", &["hellos_received"]),
    ("dbd_sent", &["descriptions_sent"]),
    ("dbd_received", &["descriptions_received"]),
    ("ls_request_sent", &["requests_sent"]),
    ("ls_request_received", &["requests_received"]),
    ("ls_update_sent", &["updates_sent"]),
    ("ls_update_received", &["updates_received"]),
    ("ls_ack_sent", &["acks_sent"]),
    ("ls_ack_received", &["acks_received"]),
    ("lsa_sent", &["lsas_sent"]),
    ("lsa_received", &["lsas_received"]),
    ("lsa_ack_sent", &["lsa_headers_sent"]),
    ("lsa_ack_received", &["lsa_headers_received"]),
    ("router_lsa_sent", &["router_lsas_sent"]),
    ("router_lsa_received", &["router_lsas_received"]),
    ("network_lsa_sent", &["network_lsas_sent"]),
    ("network_lsa_received", &["network_lsas_received"]),
    ("summary_lsa_sent", &["summary_lsas_sent", "asbr_summary_lsas_sent"]),
    ("summary_lsa_received", &["summary_lsas_received", "asbr_summary_lsas_received"]),
    ("external_lsa_sent", &["external_lsas_sent"]),
    ("external_lsa_received", &["external_lsas_received"]),
    ("nssa_lsa_sent", &["nssa_lsas_sent"]),
    ("nssa_lsa_received", &["nssa_lsas_received"]),
    ("opaque_local_sent", &["opaque_link_lsas_sent"]),
    ("opaque_local_received", &["opaque_link_lsas_received"]),
    ("opaque_area_sent", &["opaque_area_lsas_sent"]),
    ("opaque_area_received", &["opaque_area_lsas_received"]),
    ("opaque_domain_sent", &["opaque_as_lsas_sent"]),
    ("opaque_domain_received", &["opaque_as_lsas_received"]),
];

impl Bench {
    /// Starts or stops all protocols.
    ///
    /// # Errors
    /// The errors of the rig.
    pub fn protocols(&mut self, up: bool) -> Result<(), String> {
        let sessions: Vec<usize> = (0..self.sessions.len()).collect();
        self.sessions(&sessions, up)?;
        let routers: Vec<usize> = (0..self.routers.len()).collect();
        self.start_routers(&routers, up)
    }

    /// Starts or stops routers.
    ///
    /// # Errors
    /// The errors of the rig.
    pub fn start_routers(&mut self, which: &[usize], up: bool) -> Result<(), String> {
        for i in which {
            if std::mem::replace(&mut self.routers[*i].started, up) != up {
                let command = if up { Command::Start } else { Command::Stop };
                let router = &self.built.routers[*i];
                self.rig.command_to(router.place, &command).map_err(|e| e.to_string())?;
                if let (true, RouterKind::Rsvp(lsps)) = (up, &router.kind) {
                    let all = Command::Rsvp(RsvpCommand::SetUp(Pace { lsps: 0..lsps.len() as u32, per_second: 0 }));
                    self.rig.command_to(router.place, &all).map_err(|e| e.to_string())?;
                }
            }
        }
        Ok(())
    }

    /// Advertises or withdraws a range of routes, also while the router is stopped.
    ///
    /// # Errors
    /// The errors of the rig.
    pub fn router_routes(&mut self, router: usize, range: usize, change: Change) -> Result<(), String> {
        let advertise = change == Change::Advertise;
        if std::mem::replace(&mut self.routers[router].advertised[range], advertise) == advertise {
            return Ok(());
        }
        let (begin, named) = (self.rig.now(), &self.built.routers[router]);
        let (name, part) = &named.routes()[range];
        let part = part.clone();
        let command = if advertise { OspfCommand::Advertise(part) } else { OspfCommand::Withdraw(part) };
        self.rig.command_to(named.place, &Command::Ospf(command)).map_err(|e| e.to_string())?;
        // A router that is stopped tells it when it starts.
        if self.routers[router].started {
            let kind = if advertise { "route_advertise" } else { "route_withdraw" };
            self.causes.begin(kind, name, begin, None);
        }
        Ok(())
    }

    /// Names of the routers of one protocol.
    pub(super) fn router_names(&self, ospf: bool) -> impl Iterator<Item = &str> {
        self.built.routers.iter().filter(move |router| router.is_ospf() == ospf).map(|router| router.name.as_str())
    }

    /// OSPFv2 of a router.
    pub(super) fn ospf(&self, router: &RouterName) -> Option<&Ospf> {
        self.rig.hosts().device(router.place.port, router.place.device)?.protocol()
    }

    pub(super) fn ospf_metrics(&self, selection: &Selection) -> Vec<Value> {
        let mut rows = Vec::new();
        for router in self.built.routers.iter().filter(|router| router.is_ospf() && selection.has(&router.name)) {
            let (Some(ospf), Some(state)) = (self.ospf(router), self.rig.hosts().state(router.place)) else { continue };
            let full = ospf.neighbours().filter(|neighbour| neighbour.state == NeighbourState::Full).count();
            // An interface without neighbours counts as a neighbour that is down.
            let down = u64::from(ospf.neighbours().next().is_none());
            let mut row = json!({"name": router.name, "full_state_count": full, "down_state_count": down});
            for (column, counters) in OSPF_COLUMNS {
                row[column] = json!(counters.iter().map(|counter| state.counter(counter)).sum::<u64>());
            }
            rows.push(row);
        }
        rows
    }
}
