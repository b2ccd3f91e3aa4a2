//! Actions: devices act once, and the answer has the result.

use super::bench::Bench;
use super::bgp_action::BgpAction;
use crate::api::Failure;
use crate::model::read::{Errors, Object};
use drophammer_emulation::ping::Ping;
use drophammer_emulation::protocol::Command;
use drophammer_model::trial::Family;
use drophammer_rig::{Act, Echo};
use serde_json::{Value, json};
use std::net::IpAddr;
use std::time::Duration;

/// How long to wait for replies.
const PATIENCE: Duration = Duration::from_secs(2);
/// How long to serve the devices between two checks for replies.
const LOOK: Duration = Duration::from_millis(2);
/// Maximum number of pings of a device, because it keeps their replies.
const MOST_PINGS: u64 = 1 << 16;
/// Maximum number of pings of a request, because all are in flight at the same time.
const AT_ONCE: usize = 64;

/// An action.
pub(super) enum Asked {
    /// These devices send echo requests.
    Ping(Family, Vec<Request>),
    /// These sessions act.
    Bgp(Vec<usize>, BgpAction),
}

/// Key of the actions of a family.
fn family_key(family: Family) -> &'static str {
    match family {
        Family::Ipv4 => "ipv4",
        Family::Ipv6 => "ipv6",
    }
}

/// An echo request of a device.
pub(super) struct Request {
    source: String,
    port: usize,
    device: usize,
    family: Family,
    to: IpAddr,
    /// Its number among the requests of the device.
    number: u64,
}

impl Bench {
    /// Carries out an action.
    ///
    /// # Errors
    /// Unknown names, and actions that are not supported.
    pub fn action(&mut self, body: Value) -> Result<Value, Failure> {
        let errors = Errors::default();
        let asked = self.read_action(Object::document(body, &errors));
        let (family, mut requests) = match errors.or(asked).map_err(Failure::validation)? {
            Asked::Bgp(sessions, action) => {
                self.bgp_action(&sessions, &action)?;
                return Ok(json!({"warnings": []}));
            }
            Asked::Ping(family, requests) => (family, requests),
        };
        for request in &mut requests {
            request.number = self.ping(request).and_then(|ping| ping.stats(family)).map_or(0, |stats| stats.asked);
            if request.number >= MOST_PINGS {
                let text = format!("`{}` has sent {MOST_PINGS} requests; set the configuration again", request.source);
                return Err(Failure::internal(text));
            }
            let echo = Echo { to: Some(request.to), ..Echo::gateway(family) };
            let act = Act::Device { device: request.device, command: Command::Ping(echo) };
            self.rig.command(request.port, &act).map_err(Failure::internal)?;
        }
        let end = self.rig.now() + PATIENCE;
        while self.rig.now() < end && !requests.iter().all(|request| self.is_answered(request)) {
            self.turn(LOOK, &|| false).map_err(Failure::internal)?;
        }
        let response = |request: &Request| {
            let result = if self.is_answered(request) { "succeeded" } else { "failed" };
            json!({"src_name": request.source, "dst_ip": request.to.to_string(), "result": result})
        };
        let responses: Vec<Value> = requests.iter().map(response).collect();
        let version = family_key(family);
        let of_version = json!({"choice": "ping", "ping": {"responses": responses}});
        let protocol = json!({"choice": version, version: of_version});
        Ok(json!({"warnings": [], "response": {"choice": "protocol", "protocol": protocol}}))
    }

    /// Reads an action.
    pub(super) fn read_action(&self, mut o: Object<'_>) -> Asked {
        o.choice(&["protocol"], "protocol");
        let mut protocol = o.object_or_empty("protocol");
        let families = [Family::Ipv4, Family::Ipv6];
        let [ipv4, ipv6] = families.map(family_key);
        let version = protocol.choice(&[ipv4, ipv6, "bgp"], ipv4);
        let Some(family) = families.into_iter().find(|family| family_key(*family) == version) else {
            let (sessions, action) = self.read_bgp_action(protocol.object_or_empty("bgp"));
            return Asked::Bgp(sessions, action);
        };
        let mut ip = protocol.object_or_empty(version);
        ip.choice(&["ping"], "ping");
        let mut ping = ip.object_or_empty("ping");
        let asked = ping.objects("requests");
        if asked.is_empty() || asked.len() > AT_ONCE {
            ping.wrong("requests", format_args!("write 1 to {AT_ONCE} requests"));
        }
        Asked::Ping(family, asked.into_iter().filter_map(|request| self.echo_request(request, family)).collect())
    }

    fn echo_request(&self, mut o: Object<'_>, family: Family) -> Option<Request> {
        let (source, to) = (o.name("src_name"), o.parsed::<IpAddr>("dst_ip"));
        let to = to.filter(|to| to.is_ipv4() == (family == Family::Ipv4));
        if to.is_none() {
            o.wrong("dst_ip", format_args!("this must be an {family} address"));
        }
        let interfaces = self.config.devices.iter().flat_map(|device| &device.ethernets);
        let mut named = interfaces.flat_map(|ethernet| ethernet.addresses.iter().map(move |one| (ethernet, one)));
        let found = named.find(|(_, address)| address.name == source).and_then(|(ethernet, address)| {
            let known = self.built.neighbours.iter().find(|one| one.ethernet == ethernet.name)?;
            let config = self.rig.hosts().device(known.port, known.device)?.config();
            let first = match family {
                Family::Ipv4 => config.ipv4.map(|own| IpAddr::V4(own.address)),
                Family::Ipv6 => config.ipv6.map(|own| IpAddr::V6(own.address)),
            };
            (first == Some(address.address)).then_some((known.port, known.device))
        });
        if found.is_none() {
            o.wrong("src_name", format_args!("`{source}` is not the first {family} address of an ethernet"));
        }
        let (port, device) = found?;
        Some(Request { source, port, device, family, to: to?, number: 0 })
    }

    fn ping(&self, request: &Request) -> Option<&Ping> {
        self.rig.hosts().device(request.port, request.device)?.protocol()
    }

    fn is_answered(&self, request: &Request) -> bool {
        let trips = self.ping(request).map_or(&[][..], |ping| ping.trips(request.family));
        trips.iter().rev().any(|trip| trip.number == request.number)
    }
}
