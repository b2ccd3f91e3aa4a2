//! A router that a file of the user's configures in place of ours: it forwards to a network that no role has.

use super::hosts::kernel_hosts;
use super::{Checked, ensure};
use drophammer_lab::{Lab, Netns, find};
use drophammer_model::role::RouterRole;
use drophammer_model::suite::{DutConfig, ParamValue, Params};
use drophammer_model::trial::Family;
use std::net::UdpSocket;
use std::path::Path;
use std::time::{Duration, Instant};

/// For FRR, a template.
const FRR: &str = "hostname {{ name }}
{% for route in routes %}
{{ \"ip\" if route.family == \"ipv4\" else \"ipv6\" }} route {{ route.prefix }} {{ route.via }} {{ route.interface }}
{% endfor %}
{% for i in interfaces if i.port == 1 %}
ip route 203.0.113.0/24 198.19.1.2 {{ i.name }}
{% endfor %}
";

/// For BIRD, a file that is taken as it is.
const BIRD: &str = "router id 198.18.1.1;
protocol device {}
protocol kernel { ipv4 { import none; export all; }; }
protocol static {
  ipv4;
  route 198.18.64.0/18 via 198.18.1.2;
  route 203.0.113.0/24 via 198.19.1.2;
}
";

/// Brings up `kind` with the user's file, and forwards there and back.
pub fn routes(lab: &mut Lab, kind: &str, work: &Path) -> Checked {
    let (key, text) = if kind == "bird" { ("config", BIRD) } else { ("template", FRR) };
    let file = work.join("mine");
    std::fs::write(&file, text).map_err(|e| e.to_string())?;
    let params = Params([(key.to_owned(), ParamValue::Text(file.display().to_string()))].into());
    let config = DutConfig { name: "mine".into(), kind: kind.into(), params };
    let role = RouterRole::of(&super::ports());
    let found = find(kind).ok_or("no such kind")?;
    let mut dut = found.bring_up(lab, &config, &role, work, &|| false).map_err(|e| e.to_string())?;
    let far = lab.namespace("far").map_err(|e| e.to_string())?;
    let near = lab.tester().map_err(|e| e.to_string())?;
    kernel_hosts(&near, &far).map_err(|e| e.to_string())?;
    far.ip(&["address add 203.0.113.9/32 dev t1".into()]).map_err(|e| e.to_string())?;
    near.ip(&["route add 203.0.113.0/24 via 198.18.1.1".into()]).map_err(|e| e.to_string())?;
    let forwarded = forwarded(&near, &far);
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

/// A datagram to the user's network and back. Nobody waits for the user's routes, so the first ones may get lost.
fn forwarded(near: &Netns, far: &Netns) -> Result<Duration, String> {
    let socket = |netns: &Netns, address: &str| -> Result<UdpSocket, String> {
        let bound = netns.run(|| UdpSocket::bind(address)).map_err(|e| e.to_string())?;
        let socket = bound.map_err(|e| e.to_string())?;
        socket.set_read_timeout(Some(Duration::from_millis(200))).map_err(|e| e.to_string())?;
        Ok(socket)
    };
    let (a, b) = (socket(near, "198.18.64.7:4001")?, socket(far, "203.0.113.9:4001")?);
    let start = Instant::now();
    for (from, to) in [(&a, &b), (&b, &a)] {
        let target = to.local_addr().map_err(|e| e.to_string())?;
        let mut bytes = [0; 8];
        loop {
            ensure(start.elapsed() < Duration::from_secs(15), &format!("nothing forwarded to {target}"))?;
            // A router without a route says so, and the next call on the socket returns what it said.
            let _ = from.send_to(b"of users", target);
            if matches!(to.recv_from(&mut bytes), Ok((8, _)) if &bytes == b"of users") {
                break;
            }
        }
    }
    Ok(start.elapsed())
}
