//! What a DUT must have told before flows can be sent: MAC addresses of gateways, and labels of LSPs.

use crate::build::{Built, LspPlace};
use drophammer_emulation::rsvp::Rsvp;
use drophammer_model::trial::{Family, FlowSpec, PortIndex};
use drophammer_rig::{Rig, Until};
use std::time::Duration;

/// Time for a gateway to answer.
const ANSWER: Duration = Duration::from_secs(3);

/// The label that a neighbour has assigned to an LSP; `None` while the LSP is not up.
pub fn learned_label(rig: &Rig, lsp: LspPlace) -> Option<u32> {
    let rsvp: &Rsvp = rig.hosts().device(lsp.place.port, lsp.place.device)?.protocol()?;
    rsvp.label_of(lsp.lsp)
}

/// The gateway to which a flow goes: port, device and family. The DUT has one MAC address on a link, so a device with addresses of
/// only one family still sends packets of both families there. This matters because routes of one family can come from a session over
/// the other.
pub fn gateway_of(built: &Built, spec: &FlowSpec, device: usize) -> (PortIndex, usize, Family) {
    let config = &built.rig.ports[spec.from].devices[device];
    let family = match (spec.family, config.ipv4, config.ipv6) {
        (Family::Ipv6, Some(_), None) => Family::Ipv4,
        (Family::Ipv4, None, Some(_)) => Family::Ipv6,
        (family, ..) => family,
    };
    (spec.from, device, family)
}

/// Waits until these gateways have answered.
pub fn resolve(rig: &mut Rig, built: &Built, gateways: &[(PortIndex, usize, Family)]) -> Result<(), String> {
    let end = rig.now() + ANSWER;
    loop {
        let unknown = gateways.iter().find(|(port, device, family)| {
            rig.hosts().device(*port, *device).is_none_or(|device| device.gateway_mac(*family).is_none())
        });
        let Some((port, device, family)) = unknown else { return Ok(()) };
        if rig.now() >= end {
            let device = &built.rig.ports[*port].devices[*device];
            let (gateway, how) = match family {
                Family::Ipv4 => (device.ipv4.map(|a| a.gateway.to_string()), "ARP"),
                Family::Ipv6 => (device.ipv6.map(|a| a.gateway.to_string()), "Neighbor Discovery"),
            };
            let name = &device.name;
            return Err(match gateway {
                Some(gateway) => {
                    format!("the gateway {gateway} of `{name}` does not answer {how}; check its address, and the cable")
                }
                None => format!("`{name}` has no {family} address, so the flow needs an ethernet destination"),
            });
        }
        let wait = rig.now() + Duration::from_millis(20);
        rig.serve(&Until::Resolved.or_at(wait), &|| false).map_err(|e| e.to_string())?;
    }
}
