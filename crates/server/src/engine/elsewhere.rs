//! Ports of other hosts: what a configuration may ask of them.
//!
//! Agents lend such ports, and count the test frames at them. The devices behind them are in this process, so protocols, actions and
//! states are those of any other port. What needs one clock, or one place that sees every frame, is refused.

use crate::build::{Built, Link, build};
use crate::model::read::Errors;
use crate::model::{Config, Port};
use drophammer_model::quantity::Bandwidth;

/// The host of a port; `None` for a port of this machine.
fn host(port: &Port) -> Option<&str> {
    port.interface.split_once('/').map(|(host, _)| host)
}

/// True if a port is on another host.
pub fn are_named(config: &Config) -> bool {
    config.ports.iter().any(|port| host(port).is_some())
}

/// Returns true if the ports are on other hosts. `reached` says whether hosts can be reached. The bench must have the same `seed`,
/// because MAC addresses follow from it. Opens nothing.
///
/// # Errors
/// Everything that such ports cannot do, and what is wrong with the rest of the configuration, each with its path.
pub fn check(config: &Config, reached: bool, seed: u64) -> Result<bool, Vec<String>> {
    let errors = Errors::default();
    if !are_named(config) {
        return Ok(false);
    }
    for (i, port) in config.ports.iter().enumerate() {
        let (location, path) = (&port.interface, format!("ports[{i}].location"));
        if host(port).is_none() {
            let remedy = format_args!("start an agent here too, and write HOST/{location}");
            errors.add(
                &path,
                format_args!("{location} is on this machine, and other ports are on other hosts; {remedy}"),
            );
        } else if !reached {
            errors.add(&path, format_args!("{location} is on another host; start the server with --nats"));
        }
    }
    if config.events.rate_threshold.is_some() {
        errors.add("events.dp_events", "not supported for ports of other hosts");
    }
    errors.or(())?;
    let built = unopened(config, seed)?;
    check_flows(config, &built).map(|()| true)
}

/// Builds `config` before its ports are open. They count as good as ports can be: they tell the rest when they are open.
///
/// # Errors
/// Everything that is wrong with the configuration, whatever the ports are.
pub fn unopened(config: &Config, seed: u64) -> Result<Built, Vec<String>> {
    let link = |port: &Port| Link {
        mtu: port.mtu.unwrap_or(9_000),
        largest_frame: 1 << 16,
        speed: Some(port.speed.unwrap_or(Bandwidth(1_000_000_000))),
        reported: None,
        is_virtual: true,
    };
    build(config, &config.ports.iter().map(link).collect::<Vec<_>>(), seed)
}

/// Refuses flows that several hosts would have to count together.
fn check_flows(config: &Config, built: &Built) -> Result<(), Vec<String>> {
    let errors = Errors::default();
    let host_of = |port: usize| host(&config.ports[port]);
    for (i, flow) in built.flows.iter().enumerate() {
        let specs = || flow.streams.iter().map(|stream| &stream.spec);
        if specs().any(|spec| spec.also.iter().any(|also| host_of(*also) != host_of(spec.to))) {
            let text = "its frames may arrive at ports of several hosts; one host must count them";
            errors.add(&format!("flows[{i}].tx_rx"), text);
        }
        if flow.metrics.latency && specs().any(|spec| host_of(spec.from) != host_of(spec.to)) {
            let text = "not measured between ports of two hosts, because their clocks differ";
            errors.add(&format!("flows[{i}].metrics.latency"), text);
        }
        if flow.metrics.cut_through {
            let text = "cut_through is not supported for ports of other hosts; use store_forward";
            errors.add(&format!("flows[{i}].metrics.latency.mode"), text);
        }
    }
    errors.or(())
}

#[cfg(test)]
mod tests {
    use super::*;
    use serde_json::{Value, json};

    fn checked(locations: [&str; 2], more: Value, reached: bool) -> Result<bool, Vec<String>> {
        let flow = json!({
            "name": "f", "tx_rx": {"port": {"tx_name": "a", "rx_name": "b"}},
            "packet": [{"ethernet": {}}, {"ipv4": {}}], "metrics": {"enable": true, "latency": more["latency"]},
        });
        let document = json!({
            "ports": [{"name": "a", "location": locations[0]}, {"name": "b", "location": locations[1]}],
            "flows": [flow], "events": more["events"],
        });
        check(&Config::read(document).unwrap(), reached, 7)
    }

    #[test]
    fn a_device_with_a_usual_mac_address_is_none_of_the_tester() {
        let ethernet = json!({"name": "e", "mac": "02:00:00:00:00:01", "connection": {"port_name": "a"}});
        let document = json!({
            "ports": [{"name": "a", "location": "h1/eth1"}], "devices": [{"name": "d", "ethernets": [ethernet]}],
        });
        let config = Config::read(document).unwrap();
        assert_eq!(check(&config, true, 7), Ok(true));
        // What a bench refuses, the check refuses.
        let error = "devices: devices `a` and `e` both have MAC address 02:00:00:00:00:01 (untagged): change the address or the tags of one of them";
        assert_eq!(check(&config, true, 0), Err(vec![error.into()]));
    }

    #[test]
    fn what_several_hosts_cannot_do_is_refused_by_path() {
        assert_eq!(checked(["eth1", "eth2"], json!({}), false), Ok(false));
        assert_eq!(checked(["h1/eth1", "h2/eth1"], json!({}), true), Ok(true));
        let latency = json!({"latency": {"enable": true}});
        assert_eq!(checked(["h1/eth1", "h1/eth2"], latency.clone(), true), Ok(true));
        let cut_through = json!({"latency": {"enable": true, "mode": "cut_through"}});
        let events = json!({"events": {"dp_events": {"enable": true}, "cp_events": {"enable": true}}});
        for (locations, more, reached, error) in [
            (
                ["h1/eth1", "eth1"],
                json!({}),
                true,
                "ports[1].location: eth1 is on this machine, and other ports are on other hosts; start an agent",
            ),
            (
                ["h1/eth1", "h2/eth1"],
                json!({}),
                false,
                "ports[0].location: h1/eth1 is on another host; start the server with --nats",
            ),
            (
                ["h1/eth1", "h2/eth1"],
                latency,
                true,
                "flows[0].metrics.latency: not measured between ports of two hosts",
            ),
            (["h1/eth1", "h1/eth2"], cut_through, true, "flows[0].metrics.latency.mode: cut_through is not supported"),
            (["h1/eth1", "h2/eth1"], events, true, "events.dp_events: not supported for ports of other hosts"),
        ] {
            let errors = checked(locations, more, reached).unwrap_err();
            assert!(errors[0].starts_with(error), "{errors:?}");
        }
    }
}
