use super::free::objection;
use super::*;
use serde_json::{Value, json};

fn link(name: &str) -> Value {
    json!({"ifname": name, "flags": ["BROADCAST", "UP"], "mtu": 1500, "addr_info": [{"local": "fe80::1", "scope": "link"}]})
}

#[test]
fn a_free_interface_is_taken() {
    let routes = [json!({"dst": "fe80::/64", "dev": "eth1"}), json!({"dst": "default", "dev": "eth0"})];
    assert_eq!(objection("eth1", 1500, &[link("eth1")], &routes), None);
}

#[test]
fn an_interface_in_use_is_refused_with_a_remedy() {
    let with = |key: &str, value: Value| {
        let mut l = link("eth1");
        l[key] = value;
        l
    };
    let default = vec![json!({"dst": "default", "dev": "eth1"})];
    let multipath = vec![json!({"dst": "default", "nexthops": [{"dev": "eth0"}, {"dev": "eth1"}]})];
    let route = vec![json!({"dst": "10.0.0.0/8", "dev": "eth1"})];
    let address = with("addr_info", json!([{"local": "192.0.2.1", "scope": "global"}]));
    for (link, routes, word) in [
        (link("eth1"), default, "default route"),
        (link("eth1"), multipath, "default route"),
        (link("eth1"), route, "10.0.0.0/8"),
        (address, vec![], "192.0.2.1"),
        (with("master", json!("br0")), vec![], "br0"),
        (with("flags", json!(["BROADCAST"])), vec![], "down"),
        (with("mtu", json!(1400)), vec![], "1400"),
        (link("eth2"), vec![], "no interface eth1"),
    ] {
        let (what, remedy) = objection("eth1", 1500, &[link], &routes).expect(word);
        assert!(what.contains(word), "{what}");
        assert!(!remedy.is_empty());
        assert!(!remedy.contains("flush") && !remedy.contains("nomaster"), "no command that could harm: {remedy}");
    }
    let mut loopback = with("addr_info", json!([{"local": "127.0.0.1", "scope": "host"}]));
    loopback["flags"] = json!(["LOOPBACK", "UP"]);
    let (what, _) = objection("eth1", 1500, &[loopback], &[]).unwrap();
    assert!(what.contains("is the loopback interface"), "{what}");
}

#[test]
fn mac_addresses() {
    let two = macs("02:00:00:00:00:01, 02:00:00:00:00:Ff").unwrap();
    assert_eq!(two, [[2, 0, 0, 0, 0, 1], [2, 0, 0, 0, 0, 255]]);
    assert!(macs("").unwrap().is_empty());
    for bad in ["02:00", "02:00:00:00:00:0g", "2:0:0:0:0:1", "02:00:00:00:00:01:02"] {
        assert!(macs(bad).is_err(), "{bad}");
    }
}

#[test]
fn counters_are_lines_of_name_and_value() {
    let found = parse_counters("# uptime 3 days\nge-0/0/0 in drops 12\ntx\t9\nbroken\n", &Mask::default());
    assert_eq!(found, BTreeMap::from([("ge-0/0/0 in drops".into(), 12), ("tx".into(), 9)]));
    let found = parse_counters("rx 14711\nsession 4711 resets 2\n", &Mask::of(["4711"]));
    assert_eq!(found, BTreeMap::from([("rx".into(), 14_711), ("session <secret> resets".into(), 2)]));
}

#[test]
fn commands_see_the_role() {
    let ports = crate::kinds::tests_support::two_ports();
    let variables: BTreeMap<_, _> =
        environment(&["eth1".into(), "eth2".into()], &RouterRole::of(&ports)).into_iter().collect();
    assert_eq!(variables["PORT_0_IPV4_DUT"], "198.18.1.1/24");
    assert_eq!(variables["PORT_1_IPV6_BEHIND"], "2001:2:0:c000::/50");
    assert_eq!(variables["PORT_1_INTERFACE"], "eth2");
    assert!(variables.keys().all(|key| !key.ends_with("_AS") && !key.ends_with("_PEERS")));
}

#[test]
fn commands_see_the_neighbours() {
    let ports = crate::kinds::tests_support::two_ports_with_bgp(5);
    let variables: BTreeMap<_, _> =
        environment(&["eth1".into(), "eth2".into()], &RouterRole::of(&ports)).into_iter().collect();
    assert_eq!((&*variables["DUT_AS"], &*variables["DUT_HOLD_TIME"]), ("65000", "90"));
    assert_eq!((&*variables["PORT_0_AS"], &*variables["PORT_1_AS"]), ("65001", "65002"));
    assert_eq!((&*variables["PORT_0_IPV4_PEERS"], &*variables["PORT_1_IPV6_PEERS"]), ("5", "5"));
    assert!(!variables.contains_key("DUT_MD5") && !variables.contains_key("DUT_GTSM"));
    let ports = crate::kinds::tests_support::two_protected_ports();
    let variables: BTreeMap<_, _> =
        environment(&["eth1".into(), "eth2".into()], &RouterRole::of(&ports)).into_iter().collect();
    assert_eq!((&*variables["DUT_MD5"], &*variables["DUT_GTSM"]), ("sesame", "1"));
}

#[test]
fn commands_see_the_sub_interfaces() {
    let ports = crate::kinds::tests_support::with_vlans(crate::kinds::tests_support::two_ports());
    let variables: BTreeMap<_, _> =
        environment(&["eth1".into(), "eth2".into()], &RouterRole::of(&ports)).into_iter().collect();
    assert_eq!((&*variables["PORT_0_VLANS"], &*variables["PORT_1_VLANS"]), ("3", "0"));
    assert_eq!(variables["PORT_0_VLAN_1_TAGS"], "0x88a8:100 0x8100:200");
    assert_eq!(variables["PORT_0_VLAN_1_IPV4_DUT"], "198.18.32.33/27");
    assert_eq!(variables["PORT_0_VLAN_2_IPV4_BEHIND"], "198.18.48.128/26");
    assert!(!variables.contains_key("PORT_0_VLAN_0_IPV6_DUT"));
}

#[test]
fn the_key_of_a_session_is_in_no_record_and_no_error() {
    let mask = RouterRole::of(&crate::kinds::tests_support::two_protected_ports()).mask();
    assert_eq!(mask.text("./set --key sesame --as 1"), "./set --key <secret> --as 1");
    let error = LabError::Command {
        command: "setup: ./set sesame".into(),
        status: "exit status: 1".into(),
        output: "\n    sesame is too short".into(),
    };
    let error = masked(&mask, error).to_string();
    assert_eq!(error, "`setup: ./set <secret>` failed (exit status: 1): \n    <secret> is too short");
    let error = LabError::NotReady { condition: "`x sesame` still runs".into(), seconds: 1.0, log: "\nsesame".into() };
    assert!(!masked(&mask, error).to_string().contains("sesame"));
    assert_eq!(RouterRole::of(&crate::kinds::tests_support::two_ports()).mask().text("sesame"), "sesame");
}
