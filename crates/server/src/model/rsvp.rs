//! RSVP-TE routers of devices.

use super::read::Object;
use drophammer_emulation::rsvp::{
    HelloConfig, IngressRange, LabelPolicy, LspRange, MOST_FOREIGN, RefreshReduction, ReservationStyle, RouteHop,
    RsvpConfig,
};
use drophammer_wire::rsvp::attribute_flag::{LABEL_RECORDING, LOCAL_PROTECTION};
use std::net::Ipv4Addr;
use std::time::Duration;

/// Flags of SESSION_ATTRIBUTE in RFC 4090 section 4.3.
const BANDWIDTH_PROTECTION: u8 = 8;
const NODE_PROTECTION: u8 = 16;
/// Longest name of an LSP in bytes.
const LONGEST_NAME: usize = 240;

/// A router with its interface and its LSPs.
#[derive(Clone, Debug, PartialEq)]
pub struct RsvpRouter {
    /// Its name.
    pub name: String,
    /// Name of the address of its interface.
    pub address_name: String,
    /// Address of the neighbour.
    pub neighbour: Ipv4Addr,
    /// Everything except the LSPs.
    pub config: RsvpConfig,
    /// LSPs that begin here, in order.
    pub ingress: Vec<IngressLsp>,
    /// LSPs that end here: their name, and the name of the address.
    pub egress: Vec<(String, String)>,
}

/// An LSP that begins at a router.
#[derive(Clone, Debug, PartialEq)]
pub struct IngressLsp {
    /// Its name.
    pub name: String,
    /// Name of the address where it begins.
    pub address_name: String,
    /// The LSP; its sender is 0.0.0.0.
    pub lsp: IngressRange,
}

/// What all LSPs of a router have in common, because they share refresh messages.
#[derive(Default)]
struct Common {
    refresh: Option<u64>,
    multiplier: Option<u64>,
    style: Option<usize>,
}

impl Common {
    /// Takes the timers of an LSP, which must equal the timers of the other LSPs.
    fn timers(&mut self, o: &mut Object<'_>) {
        let refresh = o.within("refresh_interval", [1, 3_600], 30);
        let multiplier = o.within("timeout_multiplier", [1, 10], 3);
        let known = [
            ("refresh_interval", &mut self.refresh, refresh),
            ("timeout_multiplier", &mut self.multiplier, multiplier),
        ];
        for (key, common, value) in known {
            if *common.get_or_insert(value) != value {
                o.wrong(key, "all LSPs of a router must have the same");
            }
        }
    }
}

/// Takes an address that must be there.
fn address(o: &mut Object<'_>, key: &str) -> Ipv4Addr {
    if !o.has(key) {
        o.wrong(key, "this is required");
    }
    o.parsed(key).unwrap_or(Ipv4Addr::UNSPECIFIED)
}

/// Reads a router.
pub fn router(mut o: Object<'_>) -> RsvpRouter {
    let mut config = RsvpConfig::default();
    let mut interfaces = o.objects("ipv4_interfaces").into_iter();
    let (address_name, neighbour) = match interfaces.next() {
        Some(one) => interface(one, &mut config),
        None => {
            o.wrong("ipv4_interfaces", "this needs one");
            (String::new(), Ipv4Addr::UNSPECIFIED)
        }
    };
    for further in interfaces {
        further.errors().add(further.path(), "a router has one interface: put each on a device of its own");
    }
    let (mut common, mut ingress, mut egress) = (Common::default(), Vec::new(), Vec::new());
    for mut ends in o.objects("lsp_ipv4_interfaces") {
        let address_name = ends.name("ipv4_name");
        if let Some(end) = ends.object("p2p_egress_ipv4_lsps") {
            egress.push((egress_lsps(end, &mut common, &mut config), address_name.clone()));
        }
        for lsp in ends.objects("p2p_ingress_ipv4_lsps") {
            ingress.push(ingress_lsp(lsp, &address_name, neighbour, &mut common));
        }
    }
    config.refresh = Duration::from_secs(common.refresh.unwrap_or(30));
    config.keep_multiplier = common.multiplier.unwrap_or(3) as u8;
    RsvpRouter { name: o.name("name"), address_name, neighbour, config, ingress, egress }
}

/// Reads an interface into `config`. Returns the name of its address, and the neighbour.
fn interface(mut o: Object<'_>, config: &mut RsvpConfig) -> (String, Ipv4Addr) {
    let [first, last] = [("label_space_start", 1_000), ("label_space_end", 100_000)]
        .map(|(key, default)| o.number_or(key, 1_048_575, default));
    if last < first || last - first < MOST_FOREIGN as u64 - 1 {
        o.wrong("label_space_end", format_args!("the label space must have {MOST_FOREIGN} labels or more"));
    }
    config.foreign = LabelPolicy::From(first as u32);
    let summary_refresh = o.flag("enable_refresh_reduction", false);
    let bundle = o.flag("send_bundle", false);
    // Srefresh messages are sent with the period of the LSPs.
    o.only("summary_refresh_interval", 30);
    // Messages that are due at the same time leave in one Bundle.
    o.only("bundle_threshold", 50);
    if summary_refresh || bundle {
        config.refresh_reduction = Some(RefreshReduction { summary_refresh, bundle, ..RefreshReduction::default() });
    }
    let interval = o.within("hello_interval", [1, 3_600], 9);
    o.only("timeout_multiplier", 3);
    if o.flag("enable_hello", false) {
        config.hello = Some(HelloConfig { interval: Duration::from_secs(interval.max(1)) });
    }
    (o.name("ipv4_name"), address(&mut o, "neighbor_ip"))
}

/// Reads what the LSPs that end at an address have in common. Returns their name.
fn egress_lsps(mut o: Object<'_>, common: &mut Common, config: &mut RsvpConfig) -> String {
    common.timers(&mut o);
    let styles = ["shared_explicit", "fixed_filter", "auto"];
    let style = o.word("reservation_style", &styles, 0);
    if *common.style.get_or_insert(style) != style {
        o.wrong("reservation_style", "all LSPs of a router must have the same");
    }
    config.style = [ReservationStyle::SharedExplicit, ReservationStyle::FixedFilter, ReservationStyle::Asked][style];
    let fixed = o.number_or("fixed_label_value", 1_048_575, 0);
    if o.flag("enable_fixed_label", false) {
        match fixed {
            0 => config.foreign = LabelPolicy::ExplicitNull,
            3 => config.foreign = LabelPolicy::ImplicitNull,
            _ => o.wrong("fixed_label_value", "only 0 (explicit null) and 3 (implicit null) are supported"),
        }
    }
    o.name("name")
}

fn ingress_lsp(mut o: Object<'_>, address_name: &str, neighbour: Ipv4Addr, common: &mut Common) -> IngressLsp {
    let name = o.name("name");
    common.timers(&mut o);
    let [tunnel_id, lsp_id] = ["tunnel_id", "lsp_id"].map(|key| o.within(key, [1, u16::MAX.into()], 1) as u16);
    // These are for an LSP that replaces another one in its tunnel, which no LSP here does.
    o.number("backup_lsp_id", u16::MAX.into());
    o.number("lsp_switchover_delay", 60_000);
    let lsps = LspRange {
        tunnels_per_endpoint: 1,
        tunnel_id,
        lsps_per_sender: 1,
        lsp_id,
        ..LspRange::new(1, Ipv4Addr::UNSPECIFIED, address(&mut o, "remote_address"))
    };
    let mut lsp = IngressRange { name: name.clone(), whole_name: true, ..IngressRange::new(lsps) };
    attributes(o.object_or_empty("session_attribute"), &mut lsp);
    let mut tspec = o.object_or_empty("tspec");
    let rate = tspec.float_or("token_bucket_rate", 0.0);
    for key in ["token_bucket_size", "peak_data_rate"] {
        if tspec.float_or(key, 0.0) != rate {
            tspec.wrong(key, "only the same number as that of `token_bucket_rate` is supported");
        }
    }
    ["minimum_policed_unit", "maximum_policed_unit"].iter().for_each(|key| tspec.only(key, 0));
    drop(tspec);
    lsp.bandwidth = (rate * 8.0) as u64;
    if let Some(ero) = o.object("ero") {
        lsp.explicit_route = explicit_route(ero, neighbour);
    }
    IngressLsp { name, address_name: address_name.to_owned(), lsp }
}

fn attributes(mut o: Object<'_>, lsp: &mut IngressRange) {
    let own = o.text("session_name");
    if !o.flag("auto_generate_session_name", true) {
        lsp.name = own.unwrap_or_default();
    }
    if lsp.name.len() > LONGEST_NAME {
        o.wrong("session_name", format_args!("a name has at most {LONGEST_NAME} bytes"));
    }
    let [setup, holding] = ["setup_priority", "holding_priority"].map(|key| o.number_or(key, 7, 7) as u8);
    if holding > setup {
        o.wrong("holding_priority", "this must not be larger than `setup_priority`");
    }
    (lsp.setup_priority, lsp.holding_priority) = (setup, holding);
    for (key, flag) in [
        ("local_protection_desired", LOCAL_PROTECTION),
        ("label_recording_desired", LABEL_RECORDING),
        ("bandwidth_protection_desired", BANDWIDTH_PROTECTION),
        ("node_protection_desired", NODE_PROTECTION),
    ] {
        if o.flag(key, false) {
            lsp.flags |= flag;
        }
    }
    lsp.record_route = lsp.flags & LABEL_RECORDING != 0;
    lsp.shared_explicit = o.flag("se_style_desired", false);
    if let Some(mut affinities) = o.object("resource_affinities") {
        for key in ["exclude_any", "include_any", "include_all"] {
            if affinities.text(key).is_some_and(|text| text.chars().any(|digit| digit != '0')) {
                affinities.wrong(key, "only 0 is supported");
            }
        }
    }
}

fn explicit_route(mut o: Object<'_>, neighbour: Ipv4Addr) -> Vec<RouteHop> {
    let prefix = |o: &mut Object<'_>, key: &str| o.number_or(key, 32, 32) as u8;
    let mut hops = Vec::new();
    let way = o.word("prepend_neighbor_ip", &["dont_prepend", "prepend_loose", "prepend_strict"], 1);
    let prefix_len = prefix(&mut o, "prefix_length");
    if way > 0 {
        hops.push(RouteHop { address: neighbour, prefix_len, loose: way == 1 });
    }
    for mut hop in o.objects("subobjects") {
        hop.word("type", &["ipv4"], 0);
        hop.only("as_number", 0);
        let address = hop.parsed("ipv4_address").unwrap_or(Ipv4Addr::UNSPECIFIED);
        let loose = hop.word("hop_type", &["strict", "loose"], 1) == 1;
        hops.push(RouteHop { address, prefix_len: prefix(&mut hop, "prefix_length"), loose });
    }
    hops
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::model::read::Errors;
    use serde_json::{Value, json};

    fn read(document: Value) -> Result<RsvpRouter, Vec<String>> {
        let errors = Errors::default();
        let router = router(Object::document(document, &errors));
        errors.or(router)
    }

    #[test]
    fn defaults_are_those_of_the_model() {
        let router = read(json!({
            "name": "r", "ipv4_interfaces": [{"ipv4_name": "a", "neighbor_ip": "10.0.0.2"}],
            "lsp_ipv4_interfaces": [{
                "ipv4_name": "l", "p2p_egress_ipv4_lsps": {"name": "in"},
                "p2p_ingress_ipv4_lsps": [{"name": "out", "remote_address": "2.2.2.2", "ero": {}}],
            }],
        }));
        let router = router.unwrap();
        let config = RsvpConfig {
            foreign: LabelPolicy::From(1_000),
            style: ReservationStyle::SharedExplicit,
            ..RsvpConfig::default()
        };
        assert_eq!((router.config, router.neighbour), (config, [10, 0, 0, 2].into()));
        assert_eq!(router.egress, [("in".to_owned(), "l".to_owned())]);
        let IngressLsp { lsp, .. } = &router.ingress[0];
        assert_eq!((lsp.lsps.endpoint, lsp.lsps.tunnel_id, lsp.lsps.lsp_id), ([2, 2, 2, 2].into(), 1, 1));
        assert_eq!((lsp.setup_priority, lsp.holding_priority, lsp.flags, lsp.bandwidth), (7, 7, 0, 0));
        assert_eq!((lsp.name.as_str(), lsp.shared_explicit, lsp.record_route), ("out", false, false));
        assert_eq!(lsp.explicit_route, [RouteHop { address: [10, 0, 0, 2].into(), prefix_len: 32, loose: true }]);
    }

    #[test]
    fn attributes_and_timers_have_their_place() {
        let lsp = json!({
            "name": "out", "remote_address": "2.2.2.2", "tunnel_id": 5, "lsp_id": 6, "refresh_interval": 2,
            "session_attribute": {"auto_generate_session_name": false, "session_name": "gold", "setup_priority": 3,
                "holding_priority": 2, "label_recording_desired": true, "se_style_desired": true},
            "tspec": {"token_bucket_rate": 1000, "token_bucket_size": 1000, "peak_data_rate": 1000},
            "ero": {"prepend_neighbor_ip": "dont_prepend",
                    "subobjects": [{"ipv4_address": "10.1.0.0", "prefix_length": 16, "hop_type": "strict"}]},
        });
        let router = read(json!({
            "name": "r",
            "ipv4_interfaces": [{"ipv4_name": "a", "neighbor_ip": "10.0.0.2", "enable_refresh_reduction": true,
                "send_bundle": true, "enable_hello": true, "hello_interval": 1}],
            "lsp_ipv4_interfaces": [{"ipv4_name": "a", "p2p_ingress_ipv4_lsps": [lsp]}],
        }));
        let RsvpRouter { config, ingress, .. } = router.unwrap();
        assert_eq!(config.refresh, Duration::from_secs(2));
        assert_eq!(config.refresh_reduction, Some(RefreshReduction::default()));
        assert_eq!(config.hello, Some(HelloConfig { interval: Duration::from_secs(1) }));
        let lsp = &ingress[0].lsp;
        assert_eq!((lsp.name.as_str(), lsp.bandwidth, lsp.flags), ("gold", 8_000, LABEL_RECORDING));
        assert_eq!((lsp.setup_priority, lsp.holding_priority), (3, 2));
        assert!(lsp.shared_explicit && lsp.record_route);
        assert_eq!(lsp.explicit_route, [RouteHop { address: [10, 1, 0, 0].into(), prefix_len: 16, loose: false }]);
    }

    #[test]
    fn what_is_not_there_is_refused_by_its_path() {
        let errors = read(json!({
            "name": "r", "ipv4_interfaces": [{"ipv4_name": "a", "neighbor_ip": "10.0.0.2", "bundle_threshold": 9}],
            "lsp_ipv4_interfaces": [{
                "ipv4_name": "l", "p2p_egress_ipv4_lsps": {"name": "in", "enable_fixed_label": true, "fixed_label_value": 77},
                "p2p_ingress_ipv4_lsps": [{
                    "name": "out", "remote_address": "2.2.2.2", "refresh_interval": 9, "fast_reroute": {"hop_limit": 1},
                    "tspec": {"token_bucket_rate": 5}, "ero": {"subobjects": [{"type": "as_number", "as_number": 1}]},
                    "session_attribute": {"setup_priority": 1, "resource_affinities": {"exclude_any": "ff"}},
                }],
            }],
        }))
        .unwrap_err();
        let lsp = "lsp_ipv4_interfaces[0].p2p_ingress_ipv4_lsps[0]";
        for expected in [
            "ipv4_interfaces[0].bundle_threshold: only 50 is supported".to_owned(),
            "lsp_ipv4_interfaces[0].p2p_egress_ipv4_lsps.fixed_label_value: only 0 (explicit null) and 3 (implicit null) are supported".to_owned(),
            format!("{lsp}.refresh_interval: all LSPs of a router must have the same"),
            format!("{lsp}.fast_reroute: not supported"),
            format!("{lsp}.tspec.token_bucket_size: only the same number as that of `token_bucket_rate` is supported"),
            format!("{lsp}.ero.subobjects[0].type: `as_number` is not supported; supported: ipv4"),
            format!("{lsp}.session_attribute.holding_priority: this must not be larger than `setup_priority`"),
            format!("{lsp}.session_attribute.resource_affinities.exclude_any: only 0 is supported"),
        ] {
            assert!(errors.contains(&expected), "{expected}: {errors:#?}");
        }
    }
}
