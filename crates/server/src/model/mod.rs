//! The implemented part of the Open Traffic Generator model, as plain types.
//!
//! JSON is read by hand, field by field ([`read`]), not with derived deserializers. So every field that is unknown or not
//! implemented is refused with its path, numbers may be strings as in protobuf, `choice` may be missing, and all errors are
//! reported together. Defaults are as in the model.

pub mod capture;
pub mod device;
pub mod flow;
pub mod ospf;
pub mod packet;
mod pattern;
pub mod probe;
pub mod read;
pub mod rsvp;
pub mod tag;

use capture::CaptureSettings;
use device::Device;
use drophammer_model::quantity::Bandwidth;
use flow::Flow;
use read::{Errors, Object};
use serde_json::{Value, json};
use std::collections::{HashMap, HashSet};
use std::sync::LazyLock;

/// A configuration.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct Config {
    /// The ports, in order.
    pub ports: Vec<Port>,
    /// The devices.
    pub devices: Vec<Device>,
    /// The flows.
    pub flows: Vec<Flow>,
    /// True to start protocols with the configuration.
    pub auto_start: bool,
    /// What is recorded for convergence.
    pub events: Events,
    /// Warnings about fields that have no effect.
    pub warnings: Vec<String>,
}

/// What is recorded for convergence.
#[derive(Clone, Copy, Debug, Default, PartialEq)]
pub struct Events {
    /// True to record changes of routes and links.
    pub control_plane: bool,
    /// Share of a flow's rate, in per cent, below which its receive rate counts as fallen; `None` to record no rates.
    pub rate_threshold: Option<f64>,
}

/// A port.
#[derive(Clone, Debug, PartialEq)]
pub struct Port {
    /// Its name.
    pub name: String,
    /// Its location as the client wrote it.
    pub location: String,
    /// Its interface: the location, unless that [stands for](Config::locate) another name.
    pub interface: String,
    /// Speed of its line, if given.
    pub speed: Option<Bandwidth>,
    /// MTU that its interface should have at least, if given, in bytes.
    pub mtu: Option<u32>,
    /// How its frames are captured.
    pub capture: CaptureSettings,
}

const SPEEDS: [(&str, u64); 13] = [
    ("speed_10_fd_mbps", 10_000_000),
    ("speed_10_hd_mbps", 10_000_000),
    ("speed_100_fd_mbps", 100_000_000),
    ("speed_100_hd_mbps", 100_000_000),
    ("speed_1_gbps", 1_000_000_000),
    ("speed_10_gbps", 10_000_000_000),
    ("speed_25_gbps", 25_000_000_000),
    ("speed_40_gbps", 40_000_000_000),
    ("speed_50_gbps", 50_000_000_000),
    ("speed_100_gbps", 100_000_000_000),
    ("speed_200_gbps", 200_000_000_000),
    ("speed_400_gbps", 400_000_000_000),
    ("speed_800_gbps", 800_000_000_000),
];

/// Why a setting of layer 1 has no effect.
const OWN: &str = "the interface itself determines it; `ethtool` sets it";

/// Settings of auto-negotiation, with the defaults of the model.
const NEGOTIATION: [(&str, bool); 7] = [
    ("advertise_1000_mbps", true),
    ("advertise_100_fd_mbps", true),
    ("advertise_100_hd_mbps", true),
    ("advertise_10_fd_mbps", true),
    ("advertise_10_hd_mbps", true),
    ("link_training", false),
    ("rs_fec", false),
];

impl Config {
    /// Reads a configuration.
    ///
    /// # Errors
    /// Everything that is wrong or not supported, each with its path.
    pub fn read(document: Value) -> Result<Config, Vec<String>> {
        let errors = Errors::default();
        let mut config = config(Object::document(document, &errors));
        config.warnings = errors.take_warnings();
        errors.or(config)
    }

    /// What a configuration may have, as a JSON Schema. The first call takes a while.
    pub fn accepted() -> &'static Value {
        static ACCEPTED: LazyLock<Value> = LazyLock::new(|| probe::accepted(|document| drop(config(document))));
        &ACCEPTED
    }

    /// Sets the interfaces of the ports whose locations stand for one.
    ///
    /// # Errors
    /// Ports that have the same interface.
    pub fn locate(&mut self, interfaces: &HashMap<String, String>) -> Result<(), Vec<String>> {
        for port in &mut self.ports {
            if let Some(interface) = interfaces.get(&port.location) {
                port.interface.clone_from(interface);
            }
        }
        let errors = Errors::default();
        let mut first: HashMap<&str, usize> = HashMap::new();
        for (i, port) in self.ports.iter().enumerate() {
            let owner = *first.entry(port.interface.as_str()).or_insert(i);
            if owner != i {
                let Port { location, interface, .. } = port;
                let other = &self.ports[owner].location;
                let (path, remedy) = (format!("ports[{i}].location"), "give each port an interface of its own");
                let text = format_args!("and ports[{owner}].location, `{other}`, are one interface, {interface}");
                errors.add(&path, format_args!("`{location}` {text}; {remedy}"));
            }
        }
        errors.or(())
    }
}

fn config(mut o: Object<'_>) -> Config {
    let mut ports: Vec<Port> = o.objects("ports").into_iter().map(port).collect();
    o.objects("layer1").into_iter().for_each(|layer| layer1(layer, &mut ports));
    o.objects("captures").into_iter().for_each(|settings| capture(settings, &mut ports));
    let auto_start = options(&mut o);
    let events = events(&mut o);
    let devices = o.objects("devices").into_iter().map(device::device).collect();
    let flows = o.objects("flows").into_iter().map(flow::flow).collect();
    let config = Config { ports, devices, flows, auto_start, events, warnings: Vec::new() };
    let mut seen = HashSet::new();
    for name in config.names() {
        if !name.is_empty() && !seen.insert(name) {
            o.wrong("", format_args!("two objects are called `{name}`; give each object a name of its own"));
        }
    }
    config
}

impl Config {
    /// All names, which must differ.
    fn names(&self) -> Vec<&str> {
        let mut names: Vec<&str> = self.ports.iter().map(|port| port.name.as_str()).collect();
        names.extend(self.flows.iter().map(|flow| flow.name.as_str()));
        for device in &self.devices {
            names.push(&device.name);
            for interface in &device.ethernets {
                names.push(&interface.name);
                names.extend(interface.addresses.iter().map(|address| address.name.as_str()));
            }
            names.extend(device.loopbacks.iter().map(|loopback| loopback.name.as_str()));
            for peer in device.bgp.iter().flat_map(|bgp| &bgp.peers) {
                names.push(&peer.name);
                names.extend(peer.routes.iter().map(|range| range.name.as_str()));
            }
            if let Some(router) = &device.ospf {
                names.extend([router.name.as_str(), &router.interface]);
                names.extend(router.routes.iter().map(|range| range.name.as_str()));
            }
            if let Some(router) = &device.rsvp {
                names.push(&router.name);
                names.extend(router.ingress.iter().map(|lsp| lsp.name.as_str()));
                names.extend(router.egress.iter().map(|(name, _)| name.as_str()));
            }
        }
        names
    }
}

fn port(mut o: Object<'_>) -> Port {
    let capture = CaptureSettings { overwrite: true, ..CaptureSettings::default() };
    let location = o.text("location").unwrap_or_default();
    if location.is_empty() {
        o.wrong("location", "this is required: the name of an interface of this machine");
    }
    Port { name: o.name("name"), interface: location.clone(), location, speed: None, mtu: None, capture }
}

/// Calls `set` for the ports that `port_names` lists.
fn each_port(o: &mut Object<'_>, ports: &mut [Port], set: impl Fn(&mut Port)) {
    for name in o.texts("port_names") {
        match ports.iter_mut().find(|port| port.name == name) {
            Some(port) => set(port),
            None => o.wrong("port_names", format_args!("there is no port `{name}`")),
        }
    }
}

fn layer1(mut o: Object<'_>, ports: &mut [Port]) {
    o.name("name");
    let at = o.has("speed").then(|| o.word("speed", &SPEEDS.map(|(word, _)| word), 5));
    let mtu = o.number("mtu", 14_000).map(|mtu| mtu as u32);
    o.without_effect("promiscuous", true, "every frame on the line arrives");
    ["media", "ieee_media_defaults", "auto_negotiate"].iter().for_each(|key| o.without_effect(key, Value::Null, OWN));
    if let Some(mut negotiation) = o.object("auto_negotiation") {
        for (key, default) in NEGOTIATION {
            negotiation.without_effect(key, default, OWN);
        }
    }
    each_port(&mut o, ports, |port| {
        port.speed = at.map(|at| Bandwidth(SPEEDS[at].1)).or(port.speed);
        port.mtu = mtu.or(port.mtu);
    });
}

fn capture(mut o: Object<'_>, ports: &mut [Port]) {
    o.name("name");
    let settings = capture::settings(&mut o);
    each_port(&mut o, ports, |port| port.capture = settings.clone());
}

/// Returns true if protocols start with the configuration, which is the default of the model.
fn options(config: &mut Object<'_>) -> bool {
    let Some(mut o) = config.object("options") else { return true };
    if let Some(mut port) = o.object("port_options") {
        port.without_effect("location_preemption", false, "an interface that another program uses is refused");
        port.drop_false();
    }
    if let Some(mut flow) = o.object("flow_options") {
        flow.drop_false();
    }
    o.object("protocol_options").is_none_or(|mut protocol| protocol.flag("auto_start_all", true))
}

fn events(config: &mut Object<'_>) -> Events {
    let Some(mut o) = config.object("events") else { return Events::default() };
    let control_plane = o.object("cp_events").is_some_and(|mut events| events.flag("enable", false));
    let rate_threshold = o.object("dp_events").and_then(|mut events| {
        events.note("rx_rate_threshold", || json!({"type": "number", "minimum": 0, "maximum": 100, "default": 95}));
        let threshold = events.float_or("rx_rate_threshold", 95.0);
        if threshold > 100.0 {
            events.wrong("rx_rate_threshold", format_args!("{threshold} is more than 100 per cent"));
        }
        events.flag("enable", false).then_some(threshold)
    });
    o.drop_false();
    Events { control_plane, rate_threshold }
}

#[cfg(test)]
mod tests {
    use super::*;
    use drophammer_model::routes::{PathSegment, PathSegmentKind, Prefix};
    use serde_json::json;

    #[test]
    fn nothing_is_a_configuration() {
        for document in [json!({}), Value::Null] {
            assert_eq!(Config::read(document), Ok(Config { auto_start: true, ..Config::default() }));
        }
    }

    #[test]
    fn events_have_a_threshold() {
        let events = |text: Value| Config::read(json!({"events": text})).map(|config| config.events);
        let read = events(json!({"cp_events": {"enable": true}, "dp_events": {"enable": true}})).unwrap();
        assert_eq!(read, Events { control_plane: true, rate_threshold: Some(95.0) });
        let disabled = json!({"cp_events": {}, "dp_events": {"enable": false, "rx_rate_threshold": 90}});
        assert_eq!(events(disabled).unwrap(), Events::default());
        let errors = events(json!({"dp_events": {"rx_rate_threshold": 101}, "link": {"enable": true}})).unwrap_err();
        assert_eq!(
            errors,
            ["events.dp_events.rx_rate_threshold: 101 is more than 100 per cent", "events.link: not supported"]
        );
    }

    #[test]
    fn ports_have_their_settings() {
        let config = Config::read(json!({
            "ports": [{"name": "a", "location": "eth1"}, {"name": "b", "location": "eth2"}],
            "layer1": [{"name": "l", "port_names": ["a", "b"], "speed": "speed_1_gbps", "mtu": 9000, "promiscuous": true}],
            "captures": [{"name": "c", "port_names": ["b"], "format": "pcapng"}],
        }));
        let config = config.unwrap();
        assert_eq!(config.ports[0].speed, Some(Bandwidth(1_000_000_000)));
        assert_eq!(config.ports.iter().map(|port| port.capture.next_generation).collect::<Vec<_>>(), [false, true]);
    }

    #[test]
    fn fields_without_effect_are_told_by_their_path_unless_they_have_the_default() {
        let config = |other: bool| {
            let pick = |usual: Value, unusual: Value| if other { unusual } else { usual };
            json!({
                "ports": [{"name": "p", "location": "eth1"}],
                "layer1": [{
                    "name": "l", "port_names": ["p"], "promiscuous": pick(json!(true), json!(false)),
                    "media": pick(Value::Null, json!("fiber")), "ieee_media_defaults": pick(Value::Null, json!(false)),
                    "auto_negotiate": pick(Value::Null, json!(false)),
                    "auto_negotiation": {"advertise_10_hd_mbps": true, "rs_fec": other, "link_training": false},
                }],
                "options": {"port_options": {"location_preemption": other}},
                "devices": [{
                    "name": "d",
                    "ethernets": [{
                        "name": "e", "connection": {"port_name": "p"}, "mtu": pick(json!("1500"), json!(9000)),
                        "ipv4_addresses": [{"name": "a", "address": "10.0.0.2", "gateway": "10.0.0.1"}],
                    }],
                    "bgp": {"router_id": "1.1.1.1", "ipv4_interfaces": [{"ipv4_name": "a", "peers": [{
                        "name": "peer", "peer_address": "10.0.0.1", "as_number": 7,
                        "advanced": {"hold_time_interval": 9, "keep_alive_interval": 30},
                        "capability": {"route_refresh": !other}, "traditional_nlri_for_ipv4_routes": !other,
                        "graceful_restart": {"enable_gr": true, "stale_time": pick(json!(10), json!(11))},
                    }]}]},
                }],
            })
        };
        assert_eq!(Config::read(config(false)).unwrap().warnings, [""; 0]);
        let warnings = Config::read(config(true)).unwrap().warnings;
        let paths: Vec<&str> = warnings.iter().map(|text| text.split(": ").next().unwrap()).collect();
        let peer = |key: &str| format!("devices[0].bgp.ipv4_interfaces[0].peers[0].{key}");
        let expected = [
            "layer1[0].promiscuous".to_owned(),
            "layer1[0].media".into(),
            "layer1[0].ieee_media_defaults".into(),
            "layer1[0].auto_negotiate".into(),
            "layer1[0].auto_negotiation.rs_fec".into(),
            "options.port_options.location_preemption".into(),
            "devices[0].ethernets[0].mtu".into(),
            peer("capability.route_refresh"),
            peer("traditional_nlri_for_ipv4_routes"),
            peer("graceful_restart.stale_time"),
        ];
        assert_eq!(paths, expected);
    }

    #[test]
    fn what_is_accepted_comes_from_the_readers() {
        let accepted = Config::accepted();
        let at = |path: &str| accepted.pointer(path).unwrap_or_else(|| panic!("{path}: {accepted}"));
        let flow = "/properties/flows/items/properties";
        let kinds = at(&format!("{flow}/packet/items/properties/choice/enum"));
        assert_eq!(*kinds, json!(packet::KINDS));
        for kind in packet::KINDS {
            at(&format!("{flow}/packet/items/properties/{kind}"));
        }
        let source = format!("{flow}/packet/items/properties/ipv4/properties/src/properties");
        assert_eq!(*at(&format!("{source}/increment/properties/step")), json!({"type": "string", "format": "ipv4"}));
        let phb = format!("{flow}/packet/items/properties/ipv4/properties/priority/properties/dscp/properties/phb");
        assert_eq!(at(&format!("{phb}/properties/random/properties/max"))["maximum"], 63);
        assert_eq!(at(&format!("{flow}/rate/properties/choice"))["default"], "pps");
        assert_eq!(at("/properties/layer1/items/properties/speed/enum").as_array().map(Vec::len), Some(SPEEDS.len()));
        assert_eq!(*at("/properties/captures/items/properties/format/enum"), json!(["pcap", "pcapng"]));
        assert_eq!(*at(&format!("{source}/auto")), json!({}));
        let sizes = |default: u64| json!({"type": "integer", "minimum": 1, "maximum": 9_216, "default": default});
        assert_eq!(*at(&format!("{flow}/size/properties/fixed")), sizes(64));
        assert_eq!(*at(&format!("{flow}/size/properties/increment/properties/end")), sizes(1_518));
        assert_eq!(at(&format!("{flow}/rate/properties/mbps"))["exclusiveMinimum"], 0);
        let others = json!({"const": false});
        assert_eq!(*at("/properties/options/properties/port_options/additionalProperties"), others);
        let device = "/properties/devices/items/properties";
        assert_eq!(*at(&format!("{device}/ospfv2/properties/capabilities/additionalProperties")), others);
        assert_eq!(*at(&format!("{device}/ethernets/items/properties/vlans/items/properties/name")), json!({}));
        let peers = format!("{device}/bgp/properties/ipv4_interfaces/items/properties/peers/items/properties");
        assert_eq!(*at(&format!("{peers}/capability/additionalProperties")), others);
        assert_eq!(at(&format!("{peers}/as_number"))["minimum"], 1);
        assert_eq!(at(&format!("{peers}/advanced/properties/hold_time_interval"))["default"], 90);
        let device = at("/properties/devices/items/properties").as_object().unwrap();
        assert!(["bgp", "ospfv2", "rsvp"].iter().all(|key| device.contains_key(*key)), "{device:?}");
    }

    #[test]
    fn two_ports_with_one_interface_are_refused() {
        let interfaces = [("localhost:5555", "eth1"), ("localhost:5556", "eth2")];
        let interfaces: HashMap<String, String> = interfaces.map(|(a, b)| (a.to_owned(), b.to_owned())).into();
        let located = |locations: [&str; 2]| {
            let ports = json!([{"name": "a", "location": locations[0]}, {"name": "b", "location": locations[1]}]);
            let mut config = Config::read(json!({ "ports": ports })).unwrap();
            config.locate(&interfaces).map(|()| config.ports.into_iter().map(|port| port.interface).collect::<Vec<_>>())
        };
        assert_eq!(located(["localhost:5555", "localhost:5556"]).unwrap(), ["eth1", "eth2"]);
        for [first, second] in [["eth1", "localhost:5555"], ["localhost:5555", "eth1"], ["eth1", "eth1"]] {
            let same = format!("`{second}` and ports[0].location, `{first}`, are one interface, eth1");
            let text = format!("ports[1].location: {same}; give each port an interface of its own");
            assert_eq!(located([first, second]), Err(vec![text]));
        }
    }

    #[test]
    fn devices_with_bgp_are_read() {
        let config = Config::read(json!({
            "ports": [{"name": "p", "location": "eth1"}],
            "devices": [{
                "name": "d",
                "ethernets": [{
                    "name": "e", "connection": {"choice": "port_name", "port_name": "p"}, "mac": "02:00:00:00:00:01",
                    "vlans": [{"name": "v", "id": 7}],
                    "ipv4_addresses": [{"name": "a4", "address": "10.0.0.2", "gateway": "10.0.0.1", "prefix": 30}],
                    "ipv6_addresses": [{"name": "a6", "address": "2001:db8::2", "gateway": "2001:db8::1"}],
                }],
                "bgp": {"router_id": "10.0.0.2", "ipv4_interfaces": [{"ipv4_name": "a4", "peers": [{
                    "name": "peer", "peer_address": "10.0.0.1", "as_type": "ebgp", "as_number": 65001,
                    "learned_information_filter": {"unicast_ipv4_prefix": true},
                    "v4_routes": [{
                        "name": "r4", "addresses": [{"address": "20.0.0.0", "prefix": 24, "count": 3, "step": 2}],
                        "as_path": {"as_set_mode": "include_as_seq", "segments": [{"type": "as_seq", "as_numbers": [1, 2]}]},
                        "communities": [{"type": "manual_as_number", "as_number": 1, "as_custom": 2}, {"type": "no_export"}],
                        "advanced": {"multi_exit_discriminator": 50},
                    }],
                    "v6_routes": [{"name": "r6", "addresses": [{"address": "2001:db8:1::", "prefix": 64}]}],
                }]}]},
            }],
        }));
        let config = config.unwrap();
        let device = &config.devices[0];
        assert_eq!(device.ethernets[0].addresses.len(), 2);
        let peer = &device.bgp.as_ref().unwrap().peers[0];
        assert_eq!((peer.asn, peer.internal, peer.learns), (65_001, false, [true, false, false, false]));
        let routes = &peer.routes[0];
        let prefixes = ["20.0.0.0/24", "20.0.2.0/24", "20.0.4.0/24"].map(|text| text.parse::<Prefix>().unwrap());
        assert_eq!(routes.prefixes, prefixes);
        let sequence = |ases: &[u32]| PathSegment { kind: PathSegmentKind::Sequence, ases: ases.to_vec() };
        assert_eq!(routes.attributes.path, Some(vec![sequence(&[65_001]), sequence(&[1, 2])]));
        assert_eq!(routes.attributes.communities, [0x1_0002, 0xffff_ff01]);
        assert_eq!((routes.attributes.med, routes.attributes.local_pref), (Some(50), Some(100)));
        assert_eq!(peer.routes[1].prefixes.len(), 1);
    }

    /// As the test suite of the API's authors sends it.
    #[test]
    fn a_recorded_path_begins_with_the_own_as_as_a_set() {
        let config = Config::read(json!({
            "ports": [{"name": "ptx", "location": "va"}],
            "devices": [{
                "name": "dtx",
                "ethernets": [{
                    "name": "dtx_eth", "connection": {"choice": "port_name", "port_name": "ptx"}, "mtu": 1500,
                    "ipv4_addresses": [{"name": "dtx_ip", "address": "1.1.1.1", "gateway": "1.1.1.2", "prefix": 24}],
                }],
                "bgp": {"router_id": "1.1.1.1", "ipv4_interfaces": [{"ipv4_name": "dtx_ip", "peers": [{
                    "name": "peer", "peer_address": "1.1.1.2", "as_type": "ebgp", "as_number": 1111, "as_number_width": "four",
                    "v4_routes": [{
                        "name": "rr", "addresses": [{"address": "10.10.10.1", "prefix": 32, "count": 1, "step": 1}],
                        "next_hop_mode": "manual", "next_hop_address_type": "ipv4", "next_hop_ipv4_address": "1.1.1.3",
                        "next_hop_ipv6_address": "::0",
                        "advanced": {"include_multi_exit_discriminator": true, "multi_exit_discriminator": 50, "origin": "egp"},
                        "as_path": {"as_set_mode": "include_as_set", "segments": [{"type": "as_seq", "as_numbers": [1112, 1113]}]},
                    }],
                }]}]},
            }],
        }));
        let config = config.unwrap();
        let routes = &config.devices[0].bgp.as_ref().unwrap().peers[0].routes[0];
        let segment = |kind, ases: &[u32]| PathSegment { kind, ases: ases.to_vec() };
        let path = vec![segment(PathSegmentKind::Set, &[1_111]), segment(PathSegmentKind::Sequence, &[1_112, 1_113])];
        assert_eq!((&routes.attributes.path, routes.attributes.med), (&Some(path), Some(50)));
        assert_eq!(routes.attributes.next_hop, Some("1.1.1.3".parse().unwrap()));
    }

    #[test]
    fn all_mistakes_are_told_at_once() {
        let errors = Config::read(json!({
            "ports": [{"name": "a"}, {"name": "a", "location": "eth1"}],
            "lags": [{"name": "l"}],
            "layer1": [{"name": "x", "port_names": ["nobody"]}],
            "devices": [{"name": "d", "isis": {}, "ethernets": [{"name": "e", "connection": {"lag_name": "l"}}]}],
            "flows": [{"name": "f", "tx_rx": {"port": {"tx_name": "a"}}, "packet": [{"choice": "ppp", "ppp": {}}]}],
        }));
        let errors = errors.unwrap_err();
        for expected in [
            "ports[0].location: this is required: the name of an interface of this machine",
            "lags: not supported",
            "layer1[0].port_names: there is no port `nobody`",
            "devices[0].isis: not supported",
            "devices[0].ethernets[0].connection.lag_name: not supported",
            "flows[0].packet[0].ppp: not supported",
            "two objects are called `a`; give each object a name of its own",
        ] {
            assert!(errors.iter().any(|error| error == expected), "{expected}: {errors:#?}");
        }
    }
}
