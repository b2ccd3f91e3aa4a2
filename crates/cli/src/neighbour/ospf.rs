//! `drophammer ospf`.

use super::{Job, Link, run as run_job};
use crate::Ended;
use crate::args::{OspfArgs, OspfNetwork};
use crate::clock::seconds_since_1970;
use crate::key_file;
use drophammer_model::quantity::{group_digits, show_duration};
use drophammer_rig::ProtocolConfig;
use drophammer_rig::ospf::{self, Externals, NetworkType, Networks, OspfConfig, Secret, Shape, Topology};
use std::net::Ipv4Addr;
use std::time::Duration;

/// The topology is in private and shared address space, so that no route of the Internet is replaced.
const FIRST_ROUTER_ID: Ipv4Addr = Ipv4Addr::new(100, 64, 0, 1);
const FIRST_STUB: Ipv4Addr = Ipv4Addr::new(10, 0, 0, 0);
const FIRST_EXTERNAL: Ipv4Addr = Ipv4Addr::new(10, 128, 0, 0);
/// Longest key of MD5 authentication (RFC 2328 appendix D.3).
const LONGEST_KEY: usize = 16;

/// `drophammer ospf`.
pub fn run(args: &OspfArgs) -> Ended {
    run_job(&args.link, read(args))
}

fn read(args: &OspfArgs) -> Result<(Link, Job), String> {
    let link = Link::read(&args.link)?;
    let [address, neighbour] = link.ipv4("OSPFv2")?;
    let router_id = args.router_id.unwrap_or(address);
    let network = match args.network {
        OspfNetwork::PointToPoint => NetworkType::PointToPoint,
        OspfNetwork::Broadcast => NetworkType::Broadcast,
    };
    let secret = match &args.md5_file {
        None => Secret::None,
        Some(path) => {
            let key = key_file::one_line("--md5-file", path, LONGEST_KEY)?;
            let key = String::from_utf8(key).map_err(|_| "--md5-file: the key is not text".to_owned())?;
            Secret::Md5 { key_id: 1, key }
        }
    };
    let [hello, dead] = [("--hello", args.hello), ("--dead", args.dead)].map(|(name, time)| seconds(name, time));
    let topology = |routers: u32| Topology {
        routers,
        shape: Shape::Grid { columns: routers.isqrt().max(1) },
        first_router_id: FIRST_ROUTER_ID,
        link_cost: 10,
        stubs: 1,
        first_stub: FIRST_STUB,
        stub_length: 24,
        stub_cost: 10,
    };
    let networks = Networks { first: FIRST_EXTERNAL, length: 24, count: args.externals, metric: 20 };
    let external = Externals { networks, type_2: true, tag: 0, forwarding: Ipv4Addr::UNSPECIFIED };
    let config = OspfConfig {
        area: args.area,
        network,
        secret,
        first_sequence: seconds_since_1970(),
        hello_interval: hello?,
        dead_interval: dead?.into(),
        topology: (args.routers > 0).then(|| topology(args.routers)),
        external: (args.externals > 0).then_some(external),
        ..OspfConfig::new(router_id)
    };
    let behind = match (args.routers, args.externals) {
        (0, 0) => "nothing behind it".to_owned(),
        (routers, externals) => {
            let [routers, externals] = [routers, externals].map(|n| group_digits(n.into()));
            format!("{routers} routers and {externals} external routes behind it")
        }
    };
    let job = Job {
        protocol: ospf::NAME,
        session: "adjacency",
        config: ProtocolConfig::Ospf(Box::new(config)),
        also: Vec::new(),
        commands: Vec::new(),
        headline: format!("OSPFv2 router {router_id} in area {}, neighbour {neighbour}, {behind}", args.area),
        lost: &["adjacencies_lost"],
        columns: &[
            ("LSAs sent", "lsas_sent"),
            ("acknowledged", "lsas_acknowledged"),
            ("received", "lsas_received"),
            ("learned", "lsas_learned"),
        ],
        advice: Some(format!(
            "check that OSPF runs on the router's interface with {neighbour}, in area {}, with the same network type, \
             intervals, MTU and authentication",
            args.area
        )),
    };
    Ok((link, job))
}

/// Whole seconds, 1 to 65535.
fn seconds(name: &str, time: Duration) -> Result<u16, String> {
    let whole = u16::try_from(time.as_secs()).ok().filter(|s| *s > 0 && time.subsec_nanos() == 0);
    whole.ok_or_else(|| format!("{name}: {} is not a number of whole seconds from 1 to 65535", show_duration(time)))
}
