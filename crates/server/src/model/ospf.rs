//! OSPFv2 routers of devices.

use super::read::Object;
use drophammer_emulation::ospf::{Externals, NetworkType, Networks, OspfConfig, Part, Secret, Shape, Topology};
use drophammer_model::routes::Prefix;
use drophammer_wire::ospf::body::LS_INFINITY;
use std::net::Ipv4Addr;

/// A router with its interface, and the routes behind it.
#[derive(Clone, Debug, PartialEq)]
pub struct OspfRouter {
    /// Its name.
    pub name: String,
    /// Name of its interface.
    pub interface: String,
    /// Name of the address of the interface.
    pub address_name: String,
    /// Everything except the MTU. A router ID of 0.0.0.0 stands for the address of the interface.
    pub config: OspfConfig,
    /// Its routes.
    pub routes: Vec<OspfRange>,
    /// True if clients may read the LSAs that it learns.
    pub stores: bool,
}

/// Routes that a command advertises or withdraws together.
#[derive(Clone, Debug, PartialEq)]
pub struct OspfRange {
    /// Its name.
    pub name: String,
    /// The prefixes.
    pub prefixes: Vec<Prefix>,
    /// The same routes as a part of what the router advertises.
    pub part: Part,
}

/// Reads a router.
pub fn router(mut o: Object<'_>) -> OspfRouter {
    let mut id = o.object_or_empty("router_id");
    let custom = id.choice(&["interface_ip", "custom"], "interface_ip") == "custom";
    let router_id: Option<Ipv4Addr> = if custom { id.parsed("custom") } else { None };
    if custom && router_id.is_none_or(|id| id.is_unspecified()) {
        id.wrong("custom", "this is required, and must not be 0.0.0.0");
    }
    drop(id);
    let mut config = OspfConfig::new(router_id.unwrap_or(Ipv4Addr::UNSPECIFIED));
    config.retransmit_interval = o.within("lsa_retransmit_time", [1, u16::MAX.into()], 5) as u16;
    o.only("lsa_refresh_time", 1_800);
    o.only("max_flood_lsu_per_burst", 1);
    config.update_gap = 1_000 * o.number_or("inter_burst_lsu_interval", 60_000, 33) as u32;
    if let Some(mut restart) = o.object("graceful_restart") {
        restart.drop_false();
    }
    if let Some(mut capabilities) = o.object("capabilities") {
        // Neighbours agree only if both, or none, take AS-external-LSAs (RFC 2328 section 10.5).
        config.stub = !capabilities.flag("e_bit", false);
        capabilities.drop_false();
    }
    let mut interfaces = o.objects("interfaces").into_iter();
    let (name, address_name) = match interfaces.next() {
        Some(one) => interface(one, &mut config),
        None => {
            o.wrong("interfaces", "this needs one");
            Default::default()
        }
    };
    for further in interfaces {
        further.errors().add(further.path(), "a router has one interface: put each on a device of its own");
    }
    let routes = o.objects("v4_routes").into_iter().filter_map(|range| route_range(range, &mut config)).collect();
    let stores = o.flag("store_lsa", false);
    OspfRouter { name: o.name("name"), interface: name, address_name, config, routes, stores }
}

/// Reads an interface into `config`. Returns its name and the name of its address.
fn interface(mut o: Object<'_>, config: &mut OspfConfig) -> (String, String) {
    let mut area = o.object_or_empty("area");
    config.area = match area.choice(&["id", "ip"], "id") {
        "ip" => area.parsed("ip").unwrap_or(Ipv4Addr::UNSPECIFIED),
        _ => Ipv4Addr::from_bits(area.number_or("id", u32::MAX.into(), 0) as u32),
    };
    drop(area);
    let mut network = o.object_or_empty("network_type");
    config.network = match network.choice(&["broadcast", "point_to_point"], "broadcast") {
        "broadcast" => NetworkType::Broadcast,
        _ => NetworkType::PointToPoint,
    };
    drop(network);
    if let Some(authentication) = o.object("authentication") {
        config.secret = secret(authentication);
    }
    let mut advanced = o.object_or_empty("advanced");
    config.hello_interval = advanced.within("hello_interval", [1, u16::MAX.into()], 10) as u16;
    config.dead_interval = advanced.within("dead_interval", [1, u32::MAX.into()], 40) as u32;
    config.cost = advanced.number_or("routing_metric", u16::MAX.into(), 10) as u16;
    config.priority = advanced.number_or("priority", u8::MAX.into(), 0) as u8;
    config.ignore_mtu = !advanced.flag("validate_received_mtu", true);
    drop(advanced);
    if let Some(mut protection) = o.object("link_protection") {
        protection.drop_false();
    }
    (o.name("name"), o.name("ipv4_name"))
}

fn secret(mut o: Object<'_>) -> Secret {
    let limited = |o: &mut Object<'_>, key: &str, most: usize| {
        let text = o.text(key);
        if text.as_ref().is_some_and(|text| text.is_empty() || text.len() > most) {
            o.wrong(key, format_args!("this must have 1 to {most} bytes"));
        }
        text
    };
    if o.choice(&["clear_text", "md5s"], "clear_text") == "clear_text" {
        return Secret::Simple(limited(&mut o, "clear_text", 8).unwrap_or_else(|| "otg".into()));
    }
    let mut keys = o.objects("md5s").into_iter();
    let Some(mut first) = keys.next() else {
        o.wrong("md5s", "this needs one key");
        return Secret::None;
    };
    for further in keys {
        further.errors().add(further.path(), "only one key is supported");
    }
    let key_id = first.within("key_id", [1, 255], 1) as u8;
    Secret::Md5 { key_id, key: limited(&mut first, "key", 16).unwrap_or_default() }
}

/// Reads routes into `config`, which has room for one range of each origin.
fn route_range(mut o: Object<'_>, config: &mut OspfConfig) -> Option<OspfRange> {
    let name = o.name("name");
    let mut addresses = o.objects("addresses").into_iter();
    let networks = match addresses.next() {
        Some(first) => networks(first),
        None => {
            o.wrong("addresses", "this needs one");
            None
        }
    };
    for further in addresses {
        further.errors().add(further.path(), "a range has one block of prefixes: give each a range of its own");
    }
    let mut origin = o.object_or_empty("route_origin");
    let origins = ["inter_area", "intra_area", "external_type_1", "external_type_2"];
    let kind = origin.choice(&origins, "inter_area");
    if let Some(mut flags) = origin.object_or_empty(kind).object("flags") {
        flags.drop_false();
    }
    drop(origin);
    // The largest metric means that there is no route. Metrics of router links have 16 bits.
    let most = if kind == "intra_area" { u16::MAX.into() } else { LS_INFINITY - 1 };
    let metric = o.number_or("metric", most.into(), 0) as u32;
    let networks = Networks { metric, ..networks? };
    let taken = match kind {
        "inter_area" => config.inter_area.replace(networks).is_some(),
        "intra_area" => config.topology.replace(stub_router(&networks)).is_some(),
        _ => {
            let (type_2, tag, forwarding) = (kind == "external_type_2", 0, Ipv4Addr::UNSPECIFIED);
            config.external.replace(Externals { networks, type_2, tag, forwarding }).is_some()
        }
    };
    if taken {
        let which = if kind.starts_with("external") { "external" } else { kind };
        o.wrong(
            "route_origin",
            format_args!("a router has one range that is {which}: put each on a router of its own"),
        );
    }
    let part = match kind {
        "inter_area" => Part::InterArea(0..networks.count),
        "intra_area" => Part::Routers(0..1),
        _ => Part::External(0..networks.count),
    };
    let address = |i: u32| Ipv4Addr::from_bits(networks.first.to_bits() + (i << (32 - networks.length)));
    let prefixes = (0..networks.count).filter_map(|i| Prefix::masked(address(i).into(), networks.length)).collect();
    Some(OspfRange { name, prefixes, part })
}

/// Networks of the area are stub networks of a router at distance 0, whose router ID is their first address.
fn stub_router(networks: &Networks) -> Topology {
    Topology {
        routers: 1,
        shape: Shape::Grid { columns: 1 },
        first_router_id: networks.first,
        link_cost: 0,
        stubs: networks.count.min(u16::MAX.into()) as u16,
        first_stub: networks.first,
        stub_length: networks.length,
        stub_cost: networks.metric as u16,
    }
}

/// Reads a block of prefixes; `None` after an error.
fn networks(mut o: Object<'_>) -> Option<Networks> {
    let first: Option<Ipv4Addr> = o.parsed("address");
    if first.is_none() {
        o.wrong("address", "this is required");
    }
    let length = o.within("prefix", [1, 32], 24) as u8;
    let count = o.within("count", [1, 1 << 20], 1) as u32;
    if o.number("step", u32::MAX.into()).is_some_and(|step| step != 1 && count > 1) {
        o.wrong("step", "only 1 is supported");
    }
    let first = first?.to_bits() & u32::MAX.checked_shl(32 - u32::from(length.clamp(1, 32))).unwrap_or(0);
    let end = u64::from(first) + (u64::from(count) << (32 - length.clamp(1, 32)));
    if end > 1 << 32 {
        o.wrong("count", "the last prefix is outside the address space");
        return None;
    }
    Some(Networks { first: Ipv4Addr::from_bits(first), length, count, metric: 0 })
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::model::read::Errors;
    use serde_json::{Value, json};

    fn read(document: Value) -> Result<OspfRouter, Vec<String>> {
        let errors = Errors::default();
        let router = router(Object::document(document, &errors));
        errors.or(router)
    }

    #[test]
    fn defaults_are_those_of_the_model() {
        let document = json!({"name": "r", "interfaces": [{"name": "i", "ipv4_name": "a"}]});
        let router = read(document).unwrap();
        let expected =
            OspfConfig { priority: 0, cost: 10, update_gap: 33_000, ..OspfConfig::new(Ipv4Addr::UNSPECIFIED) };
        assert_eq!((router.config, router.stores, router.routes.len()), (expected, false, 0));
        assert_eq!((router.interface.as_str(), router.address_name.as_str()), ("i", "a"));
    }

    #[test]
    fn everything_has_its_place() {
        let range = |name: &str, origin: &str, first: &str| {
            json!({"name": name, "metric": 7, "route_origin": {"choice": origin, origin: {}},
                   "addresses": [{"address": first, "prefix": 24, "count": 3}]})
        };
        let router = read(json!({
            "name": "r", "router_id": {"custom": "9.9.9.9"}, "store_lsa": true, "lsa_retransmit_time": 2,
            "inter_burst_lsu_interval": 0, "capabilities": {"e_bit": true},
            "interfaces": [{
                "name": "i", "ipv4_name": "a", "area": {"ip": "0.0.0.5"}, "network_type": {"choice": "point_to_point"},
                "authentication": {"md5s": [{"key_id": 3, "key": "secret"}]},
                "advanced": {"hello_interval": 1, "dead_interval": 4, "routing_metric": 2, "priority": 9, "validate_received_mtu": false},
            }],
            "v4_routes": [range("inter", "inter_area", "20.0.0.9"), range("intra", "intra_area", "30.0.0.0"),
                          range("ext", "external_type_1", "40.0.0.0")],
        }));
        let OspfRouter { config, routes, stores, .. } = router.unwrap();
        assert!(stores && config.ignore_mtu && !config.stub);
        assert_eq!((config.router_id, config.area), ([9, 9, 9, 9].into(), [0, 0, 0, 5].into()));
        assert_eq!(config.network, NetworkType::PointToPoint);
        assert_eq!(config.secret, Secret::Md5 { key_id: 3, key: "secret".into() });
        assert_eq!((config.hello_interval, config.dead_interval, config.cost, config.priority), (1, 4, 2, 9));
        assert_eq!((config.retransmit_interval, config.update_gap), (2, 0));
        let networks = |first: [u8; 4]| Networks { first: first.into(), length: 24, count: 3, metric: 7 };
        assert_eq!(config.inter_area, Some(networks([20, 0, 0, 0])));
        let external = config.external.unwrap();
        assert_eq!((external.networks, external.type_2), (networks([40, 0, 0, 0]), false));
        let behind = config.topology.unwrap();
        assert_eq!((behind.stubs, behind.stub_cost, behind.first_stub), (3, 7, [30, 0, 0, 0].into()));
        let parts: Vec<_> = routes.iter().map(|range| range.part.clone()).collect();
        assert_eq!(parts, [Part::InterArea(0..3), Part::Routers(0..1), Part::External(0..3)]);
        assert_eq!(routes[0].prefixes[2].to_string(), "20.0.2.0/24");
    }

    #[test]
    fn what_is_not_there_is_refused_by_its_path() {
        let range = |name: &str| json!({"name": name, "addresses": [{"address": "20.0.0.0", "step": 2, "count": 2}]});
        let errors = read(json!({
            "name": "r", "lsa_refresh_time": 60, "graceful_restart": {"helper_mode": true}, "capabilities": {"o_bit": true},
            "segment_routing": {"algorithms": [0]},
            "interfaces": [
                {"name": "i", "ipv4_name": "a", "network_type": {"choice": "point_to_multipoint"}, "srlg_values": [1],
                 "authentication": {"clear_text": "much too long"}, "advanced": {"hello_interval": 0}},
                {"name": "j", "ipv4_name": "b"},
            ],
            "v4_routes": [range("x"), range("y"),
                {"name": "z", "addresses": [{"address": "20.0.0.0"}], "route_origin": {"nssa_external": {}, "choice": "nssa_external"}}],
        }))
        .unwrap_err();
        for expected in [
            "lsa_refresh_time: only 1800 is supported",
            "graceful_restart.helper_mode: not supported",
            "capabilities.o_bit: not supported",
            "segment_routing: not supported",
            "interfaces[0].network_type.point_to_multipoint: not supported",
            "interfaces[0].srlg_values: not supported",
            "interfaces[0].authentication.clear_text: this must have 1 to 8 bytes",
            "interfaces[0].advanced.hello_interval: the smallest value is 1",
            "interfaces[1]: a router has one interface: put each on a device of its own",
            "v4_routes[0].addresses[0].step: only 1 is supported",
            "v4_routes[1].route_origin: a router has one range that is inter_area: put each on a router of its own",
            "v4_routes[2].route_origin.nssa_external: not supported",
        ] {
            assert!(errors.iter().any(|error| error == expected), "{expected}: {errors:#?}");
        }
    }
}
