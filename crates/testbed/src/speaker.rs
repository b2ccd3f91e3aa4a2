//! One emulated BGP router on one interface, without a suite.

use crate::neighbour::rig_of_one;
use crate::routers::table_of;
use drophammer_emulation::bgp::{BgpCommand, PeerConfig, RouteSet, VpnRouteSet};
use drophammer_emulation::tcp::Protection;
use drophammer_methods::routing::TableChoice;
use drophammer_model::routes::{
    Administrator, AfiSafi, Change, Counting, FIRST_LABEL, LabelPer, Packing, PrefixesPerVrf, Routes, VpnId, VpnRoutes,
    VrfRange,
};
use drophammer_port::{Backend, PortError};
use drophammer_rig::{Act, Action, Hosts, Rig, RigError, Select, SessionMetrics, Tags, Until};
use std::net::{IpAddr, Ipv4Addr};
use std::sync::Arc;
use std::time::Duration;

/// The speaker's only session.
const SESSION: usize = 0;

/// Configuration of the speaker.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct SpeakerConfig {
    /// Its address on the link.
    pub address: IpAddr,
    /// Length of the prefix of the link.
    pub prefix_len: u8,
    /// VLAN tags of its frames.
    pub tags: Tags,
    /// The next hop to its peer, on the same link: the peer itself, or a router.
    pub gateway: IpAddr,
    /// Its end of the session: its address on the link, or one of its loopback addresses.
    pub source: IpAddr,
    /// The peer's address.
    pub peer: IpAddr,
    /// The family of the routes in the session.
    pub family: AfiSafi,
    /// Its AS number.
    pub asn: u32,
    /// The peer's AS number.
    pub peer_as: u32,
    /// Its BGP identifier.
    pub router_id: Ipv4Addr,
    /// Proposed hold time.
    pub hold: Duration,
    /// Waits for the peer to connect.
    pub passive: bool,
    /// Key of TCP MD5 (RFC 2385).
    pub md5_key: Option<Vec<u8>>,
    /// GTSM (RFC 5082): accepts only segments from a peer that is at most this many hops away.
    pub gtsm_hops: Option<u8>,
}

/// Messages that the speaker sent to its peer and received from it.
#[derive(Clone, Copy, Debug, Default, PartialEq)]
pub struct Told {
    /// The session.
    pub session: SessionMetrics,
    /// Routes sent; a route sent several times counts several times.
    pub advertised: u64,
    /// UPDATE messages that carried these routes.
    pub updates: u64,
    /// Routes that could not be sent, because their attributes do not fit into the longest message that the peer
    /// accepts.
    pub skipped: u64,
    /// True if the peer's TCP has acknowledged all data. The peer's BGP may not have read it yet.
    pub all_acknowledged: bool,
}

/// What the speaker advertises.
#[derive(Clone, Debug)]
pub enum Table {
    /// Unicast routes.
    Unicast(Arc<Routes>),
    /// Routes of VRFs.
    Vpn(Arc<VpnRoutes>),
}

impl Table {
    /// `vrfs` VRFs, each with all of `routes`. VRF number n, counted from 1, has the route distinguisher and route target
    /// `asn:n`, and the label 15 + n.
    ///
    /// # Errors
    /// A number or a label does not fit.
    pub fn vpn(routes: Routes, vrfs: u32, asn: u32) -> Result<Table, String> {
        let administrator = u16::try_from(asn).map_or(Administrator::As4(asn), Administrator::As2);
        let ids = Counting::from(VpnId { administrator, number: 1 });
        let targets = vec![ids];
        let vrfs =
            VrfRange { count: vrfs, distinguisher: ids, targets, first_label: FIRST_LABEL, label_per: LabelPer::Vrf };
        let routes = VpnRoutes::new(vrfs, Arc::new(routes), PrefixesPerVrf::Same).map_err(|e| e.to_string())?;
        Ok(Table::Vpn(Arc::new(routes)))
    }

    /// The prefixes of the table, or of each VRF.
    pub fn prefixes(&self) -> &Routes {
        match self {
            Table::Unicast(routes) => routes,
            Table::Vpn(routes) => routes.routes(),
        }
    }

    /// Number of routes, over all VRFs.
    #[allow(clippy::len_without_is_empty)]
    pub fn len(&self) -> u64 {
        match self {
            Table::Unicast(routes) => routes.len().into(),
            Table::Vpn(routes) => u64::from(routes.per_vrf()) * u64::from(routes.vrfs().count),
        }
    }
}

/// The router.
pub struct Speaker {
    rig: Rig,
}

/// `count` routes of a table: `internet`, `uniform`, or the path of an MRT file. Without a count, all routes of the file.
///
/// # Errors
/// The table has fewer routes, or the file cannot be read.
pub fn table(source: &str, afi_safi: AfiSafi, count: Option<u32>, seed: u64) -> Result<Routes, String> {
    table_of(&TableChoice::named(source), afi_safi, count, seed).map_err(|e| e.to_string())
}

impl Speaker {
    /// Opens `interface`, which must have carrier. The session is not started.
    ///
    /// # Errors
    /// The interface cannot be opened, or the configuration is invalid.
    pub fn open(interface: &str, backend: &Backend, seed: u64, config: &SpeakerConfig) -> Result<Speaker, RigError> {
        let mut rig = rig_of_one(interface, backend, seed, |device| {
            device.tags = config.tags;
            device.set_address(config.address, config.prefix_len, config.gateway);
            if config.source != config.address {
                device.also.push((config.source, 1));
            }
            device.add_bgp([PeerConfig {
                hold: config.hold,
                families: vec![config.family],
                passive: config.passive,
                protection: Protection { md5_key: config.md5_key.clone(), ttl_security_hops: config.gtsm_hops },
                ..PeerConfig::new(config.source, config.peer, config.asn, config.peer_as, config.router_id)
            }]);
        })?;
        if let Some((routers, router)) = rig.session_mut(SESSION) {
            // A re-established session advertises all routes again.
            routers.keep_routes(router, true);
        }
        Ok(Speaker { rig })
    }

    /// True if the interface has carrier.
    ///
    /// # Errors
    /// The errors of the port.
    pub fn has_carrier(&mut self) -> Result<bool, PortError> {
        self.rig.has_carrier(0)
    }

    /// Brings the session up, and brings it up again whenever it ends without a request.
    pub fn start(&mut self) {
        self.rig.protocols(Select::All, Action::Start);
    }

    /// Advertises `table` to the peer as soon as the session is up.
    ///
    /// # Errors
    /// The errors of the port.
    pub fn advertise(&mut self, table: &Table, packing: Packing) -> Result<(), RigError> {
        let place = self.rig.hosts().place(SESSION);
        let (peer, change) = (place.router, Change::Advertise);
        let command = match table {
            Table::Unicast(routes) => {
                let set = RouteSet::unicast(routes.clone(), 0..routes.len(), packing);
                BgpCommand::Routes { peer, change, set }
            }
            Table::Vpn(routes) => {
                BgpCommand::VpnRoutes { peer, change, set: VpnRouteSet::all(routes.clone(), packing) }
            }
        };
        self.rig.command(place.port, &Act::bgp(place.device, command))
    }

    /// Messages sent and received so far.
    pub fn told(&self) -> Told {
        told(self.rig.hosts())
    }

    /// Why the session last ended, in words.
    pub fn cause(&self) -> Option<String> {
        let (routers, router) = self.rig.session(SESSION)?;
        routers.explain(router, routers.losses(router).1.or(routers.session(router).ended()))
    }

    /// The condition that the session is up.
    pub fn up() -> Until {
        Until::Established(vec![SESSION])
    }

    /// The condition that the session is up and the peer has acknowledged all routes.
    pub fn acknowledged() -> Until {
        Until::All(vec![Speaker::up(), Until::Acknowledged(vec![SESSION])])
    }

    /// Serves the session for `time`, or until `until` holds.
    ///
    /// # Errors
    /// The errors of the port.
    pub fn serve(&mut self, time: Duration, until: Option<Until>) -> Result<(), PortError> {
        let end = Until::At(self.rig.now() + time);
        self.rig.serve(&Until::Any(until.into_iter().chain([end]).collect()), &|| false).map(|_| ())
    }

    /// Ends the session with a NOTIFICATION (Cease, Administrative Shutdown), and waits at most `patience` until the peer has
    /// received it.
    ///
    /// # Errors
    /// The errors of the port.
    pub fn stop(&mut self, patience: Duration) -> Result<(), PortError> {
        self.rig.protocols(Select::All, Action::Stop);
        self.serve(patience, Some(Until::Idle(vec![SESSION])))
    }
}

fn told(hosts: &Hosts) -> Told {
    let Some((routers, router)) = hosts.session(SESSION) else { return Told::default() };
    let sent = routers.advertised(router);
    Told {
        session: hosts.session_metrics(SESSION),
        advertised: sent.advertised,
        updates: sent.updates,
        skipped: sent.skipped,
        all_acknowledged: routers.all_acknowledged(router),
    }
}
