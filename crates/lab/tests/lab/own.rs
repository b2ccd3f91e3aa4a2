//! Routers with a file of the user. A configuration that replaces ours forwards to a network outside the role; an nftables
//! ruleset in addition to ours drops the packets that it names.

use super::hosts::kernel_hosts;
use super::{Checked, ensure};
use drophammer_lab::{Lab, Netns, find};
use drophammer_model::role::RouterRole;
use drophammer_model::suite::{DutConfig, ParamValue, Params};
use drophammer_model::trial::Family;
use std::net::UdpSocket;
use std::path::Path;
use std::time::{Duration, Instant};

/// A template for FRR.
const FRR: &str = "hostname {{ name }}
{% for route in routes %}
{{ \"ip\" if route.family == \"ipv4\" else \"ipv6\" }} route {{ route.prefix }} {{ route.via }} {{ route.interface }}
{% endfor %}
{% for i in interfaces if i.port == 1 %}
ip route 203.0.113.0/24 198.19.1.2 {{ i.name }}
{% endfor %}
";

/// A file for BIRD, used unchanged.
const BIRD: &str = "router id 198.18.1.1;
protocol device {}
protocol kernel { ipv4 { import none; export all; }; }
protocol static {
  ipv4;
  route 198.18.64.0/18 via 198.18.1.2;
  route 203.0.113.0/24 via 198.19.1.2;
}
";

/// Brings up `kind` with the user's file, and forwards datagrams in both directions.
pub fn routes(lab: &mut Lab, kind: &str, work: &Path) -> Checked {
    let (key, text) = if kind == "bird" { ("config", BIRD) } else { ("template", FRR) };
    let file = work.join("mine");
    std::fs::write(&file, text).map_err(|e| e.to_string())?;
    let params = Params([(key.to_owned(), ParamValue::Text(file.display().to_string()))].into());
    let config = DutConfig { name: "mine".into(), kind: kind.into(), params, topology: None };
    let role = RouterRole::of(&super::ports());
    let found = find(kind).ok_or("no such kind")?;
    let mut dut = found.bring_up(lab, &config, &role, work, &|| false).map_err(|e| e.to_string())?;
    let far = lab.namespace("far").map_err(|e| e.to_string())?;
    let near = lab.tester().map_err(|e| e.to_string())?;
    kernel_hosts(&near, &far).map_err(|e| e.to_string())?;
    far.ip(&["address add 203.0.113.9/32 dev t1".into()]).map_err(|e| e.to_string())?;
    near.ip(&["route add 203.0.113.0/24 via 198.18.1.1".into()]).map_err(|e| e.to_string())?;
    let forwarded = forwarded(&near, &far, "203.0.113.9");
    let record = dut.record();
    let written = record.config.values().any(|text| text.contains("203.0.113.0/24"));
    ensure(written, &format!("the user's routes in the record: {:?}", record.config))?;
    if kind != "bird" {
        let rendered = record.config.values().any(|t| {
            t.contains("hostname mine")
                && t.contains("ipv6 route 2001:2:0:c000::/50 2001:2:0:1::2 d1")
                && !t.contains('{')
        });
        ensure(rendered, &format!("the template with its values: {:?}", record.config))?;
    }
    let took = forwarded.map_err(|e| match dut.fib_routes(Family::Ipv4) {
        Ok(routes) => format!("{e}; {routes:?} IPv4 routes in its kernel"),
        Err(other) => format!("{e}; {other}"),
    })?;
    println!("{kind}: forwards as the user's file says {:.3} s after it came up", took.as_secs_f64());
    drop(far);
    dut.take_down().map_err(|e| e.to_string())
}

/// Drops only datagrams to this port.
const RULES: &str = "table inet mine {
  chain forward {
    type filter hook forward priority filter;
    udp dport 4009 drop
  }
}
";

/// Brings up `linux` with the user's rules, which drop only the packets that they name. Invalid rules are refused before
/// the start.
pub fn rules(lab: &mut Lab, work: &Path) -> Checked {
    let file = work.join("my.nft");
    let params = Params([("nftables".to_owned(), ParamValue::Text(file.display().to_string()))].into());
    let config = DutConfig { name: "wall".into(), kind: "linux".into(), params, topology: None };
    let role = RouterRole::of(&super::ports());
    let found = find("linux").ok_or("no such kind")?;

    std::fs::write(&file, "table inet mine {\n  chain forward { udp dport nonsense drop; }\n}\n")
        .map_err(|e| e.to_string())?;
    let refused = found.check(&config, &role).err().map(|e| e.to_string()).unwrap_or_default();
    let named =
        refused.contains("`nftables` of `wall`") && refused.contains("my.nft:2:") && refused.contains("nonsense");
    ensure(named, &format!("what nft says of the rules: {refused}"))?;

    std::fs::write(&file, RULES).map_err(|e| e.to_string())?;
    let dut = found.bring_up(lab, &config, &role, work, &|| false).map_err(|e| e.to_string())?;
    let kept = std::fs::read_to_string(work.join("nftables.conf")).map_err(|e| e.to_string())?;
    ensure(kept == RULES && dut.record().config.values().any(|text| text == RULES), "the rules are not kept")?;
    let far = lab.namespace("far").map_err(|e| e.to_string())?;
    let near = lab.tester().map_err(|e| e.to_string())?;
    kernel_hosts(&near, &far).map_err(|e| e.to_string())?;
    forwarded(&near, &far, "198.19.64.9")?;

    let to = |port: u16| socket(&far, &format!("198.19.64.9:{port}"));
    let (dropped, passed, from) = (to(4009)?, to(4010)?, socket(&near, "198.18.64.7:4002")?);
    for port in [4009, 4010] {
        from.send_to(b"of users", ("198.19.64.9", port)).map_err(|e| e.to_string())?;
    }
    let mut bytes = [0; 8];
    // If the first datagram were forwarded, it would come before the second one.
    passed.set_read_timeout(Some(Duration::from_secs(10))).map_err(|e| e.to_string())?;
    ensure(matches!(passed.recv_from(&mut bytes), Ok((8, _))), "the rules do not name port 4010")?;
    ensure(dropped.recv_from(&mut bytes).is_err(), "the rules drop packets to port 4009")?;
    drop(far);
    dut.take_down().map_err(|e| e.to_string())
}

fn socket(netns: &Netns, address: &str) -> Result<UdpSocket, String> {
    let bound = netns.run(|| UdpSocket::bind(address)).map_err(|e| e.to_string())?;
    let socket = bound.map_err(|e| e.to_string())?;
    socket.set_read_timeout(Some(Duration::from_millis(200))).map_err(|e| e.to_string())?;
    Ok(socket)
}

/// Sends a datagram to the address `there` and back. The lab does not wait for the user's routes, so the first ones may
/// get lost.
fn forwarded(near: &Netns, far: &Netns, there: &str) -> Result<Duration, String> {
    let (a, b) = (socket(near, "198.18.64.7:4001")?, socket(far, &format!("{there}:4001"))?);
    let start = Instant::now();
    for (from, to) in [(&a, &b), (&b, &a)] {
        let target = to.local_addr().map_err(|e| e.to_string())?;
        let mut bytes = [0; 8];
        loop {
            ensure(start.elapsed() < Duration::from_secs(15), &format!("nothing forwarded to {target}"))?;
            // A router without a route sends an ICMP error, which the next call on the socket returns.
            let _ = from.send_to(b"of users", target);
            if matches!(to.recv_from(&mut bytes), Ok((8, _)) if &bytes == b"of users") {
                break;
            }
        }
    }
    Ok(start.elapsed())
}
