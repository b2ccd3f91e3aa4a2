//! Routers of OSPFv2 and RSVP-TE on the devices.

use super::Place;
use super::devices::Builder;
use crate::model::ospf::OspfRouter;
use crate::model::rsvp::RsvpRouter;
use drophammer_emulation::ospf::{self, OspfConfig, Part};
use drophammer_emulation::rsvp::{self, IngressRange, LspRange, RsvpConfig};
use drophammer_model::routes::{Prefix, RouteAttributes, RouteTable, Routes};
use drophammer_model::trial::Family;
use drophammer_rig::{ProtocolConfig, ProtocolPlace};
use std::net::{IpAddr, Ipv4Addr};
use std::sync::Arc;

/// A router other than BGP.
#[derive(Clone, Debug)]
pub struct RouterName {
    /// Its name.
    pub name: String,
    /// Its protocol.
    pub place: ProtocolPlace,
    /// What it is.
    pub kind: RouterKind,
}

/// What kind of router it is.
#[derive(Clone, Debug)]
pub enum RouterKind {
    /// OSPFv2.
    Ospf {
        /// Names of its route ranges.
        routes: Vec<(String, Part)>,
        /// True if clients may read its LSAs.
        stores: bool,
    },
    /// RSVP-TE: the LSPs that begin here.
    Rsvp(Vec<IngressRange>),
}

/// An LSP that begins at a device.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct LspPlace {
    /// The protocol of the device.
    pub place: ProtocolPlace,
    /// Number of the LSP.
    pub lsp: u32,
}

impl RouterName {
    /// True for OSPFv2.
    pub fn is_ospf(&self) -> bool {
        matches!(self.kind, RouterKind::Ospf { .. })
    }

    /// Names of its route ranges.
    pub fn routes(&self) -> &[(String, Part)] {
        match &self.kind {
            RouterKind::Ospf { routes, .. } => routes,
            RouterKind::Rsvp(_) => &[],
        }
    }
}

impl Builder<'_> {
    /// Finds an IPv4 address, which must be the first of its interface. `None` after an error.
    fn first_ipv4(&mut self, name: &str, path: &str) -> Option<(Place, Ipv4Addr)> {
        let Some(place) = self.places.get(name).cloned() else {
            self.errors.add(path, format_args!("there is no address `{name}`"));
            return None;
        };
        let first = self.at(&place).ipv4.map(|ipv4| ipv4.address);
        match (place.addresses.first(), first) {
            (Some(IpAddr::V4(own)), Some(first)) if *own == first => Some((place.clone(), first)),
            _ => {
                self.errors.add(path, format_args!("`{name}` must be the first IPv4 address of an ethernet"));
                None
            }
        }
    }

    /// Adds a protocol to a device that does not have it yet.
    fn put(&mut self, place: &Place, protocol: ProtocolConfig, path: &str) {
        let kind = std::mem::discriminant(&protocol);
        let device = self.at(place);
        if device.protocols.iter().any(|known| std::mem::discriminant(known) == kind) {
            return self
                .errors
                .add(path, "the ethernet already has such a router: put this one on an ethernet of its own");
        }
        device.protocols.push(protocol);
    }

    pub(super) fn ospf(&mut self, router: &OspfRouter, path: &str) {
        let Some((place, own)) = self.first_ipv4(&router.address_name, &format!("{path}.interfaces[0].ipv4_name"))
        else {
            return;
        };
        let router_id = if router.config.router_id.is_unspecified() { own } else { router.config.router_id };
        let mtu = self.links[place.port].mtu.min(u16::MAX.into()) as u16;
        let config = OspfConfig { router_id, mtu, ..router.config.clone() };
        self.put(&place, ProtocolConfig::Ospf(Box::new(config)), path);
        for range in &router.routes {
            let routes = routes(&range.name, &range.prefixes);
            self.name(&range.name, Place { routes: Some(routes), ..place.clone() });
        }
        let routes = router.routes.iter().map(|range| (range.name.clone(), range.part.clone())).collect();
        self.routers.push(RouterName {
            name: router.name.clone(),
            place: ProtocolPlace { port: place.port, device: place.device, protocol: ospf::NAME },
            kind: RouterKind::Ospf { routes, stores: router.stores },
        });
    }

    pub(super) fn rsvp(&mut self, router: &RsvpRouter, path: &str) {
        let Some((place, _)) = self.first_ipv4(&router.address_name, &format!("{path}.ipv4_interfaces[0].ipv4_name"))
        else {
            return;
        };
        let gateway = self.at(&place).ipv4.map(|ipv4| ipv4.gateway);
        if gateway != Some(router.neighbour) {
            let text = "this must be the gateway of the interface, to which Path messages go";
            self.errors.add(&format!("{path}.ipv4_interfaces[0].neighbor_ip"), text);
        }
        let protocol = ProtocolPlace { port: place.port, device: place.device, protocol: rsvp::NAME };
        for (name, address_name) in &router.egress {
            if let Some((end, _)) = self.end(address_name, &place, path) {
                self.name(name, end);
            }
        }
        let mut ingress = Vec::new();
        for lsp in &router.ingress {
            let Some((end, sender)) = self.end(&lsp.address_name, &place, path) else { continue };
            let number = LspPlace { place: protocol, lsp: ingress.len() as u32 };
            self.name(&lsp.name, Place { lsp: Some(number), ..end });
            ingress.push(IngressRange { lsps: LspRange { sender, ..lsp.lsp.lsps.clone() }, ..lsp.lsp.clone() });
        }
        let config = RsvpConfig { ingress: ingress.clone(), ..router.config.clone() };
        self.put(&place, ProtocolConfig::Rsvp(Box::new(config)), path);
        self.routers.push(RouterName { name: router.name.clone(), place: protocol, kind: RouterKind::Rsvp(ingress) });
    }

    /// Finds the end of an LSP: an IPv4 address of the device at `router`. `None` after an error.
    fn end(&mut self, name: &str, router: &Place, path: &str) -> Option<(Place, Ipv4Addr)> {
        let place = self.places.get(name).filter(|place| (place.port, place.device) == (router.port, router.device));
        let address = place.and_then(|place| match place.addresses.first() {
            Some(IpAddr::V4(address)) => Some((place.clone(), *address)),
            _ => None,
        });
        if address.is_none() {
            let path = format!("{path}.lsp_ipv4_interfaces");
            self.errors
                .add(&path, format_args!("`{name}` is not an IPv4 address or loopback of the router's ethernet"));
        }
        address
    }
}

/// Prefixes as destinations of flows.
fn routes(name: &str, prefixes: &[Prefix]) -> Arc<Routes> {
    let each = prefixes.iter().map(|prefix| (*prefix, RouteAttributes::default()));
    Arc::new(RouteTable::new(name, Family::Ipv4, each).into())
}
