//! Checks that an interface of the host is free for tests.

use crate::enter::Shared;
use crate::links::is_set_up;
use crate::netns::ip_json;
use crate::{LabError, probe, process, sweep, wait};
use drophammer_model::role::RouterRole;
use nix::unistd::geteuid;
use serde_json::Value;
use std::path::Path;
use std::time::Duration;

/// Why an interface must not be used, and the remedy.
type Objection = (String, String);

/// Interfaces and routes of this machine, from `ip -j address` and `ip -j route`.
struct Host {
    links: Vec<Value>,
    routes: Vec<Value>,
}

impl Host {
    /// Asks ip(8) in the namespace of this thread.
    fn ask(ip: &Path, mark: &str) -> Result<Host, LabError> {
        let ask = |args: &[&str]| {
            let mut command = process::command(ip, mark);
            command.arg("-j").args(args);
            process::output(command, None).and_then(|text| ip_json(&text))
        };
        let links = ask(&["address", "show"])?;
        let mut routes = ask(&["-4", "route", "show"])?;
        routes.extend(ask(&["-6", "route", "show"])?);
        Ok(Host { links, routes })
    }
}

/// Refuses an interface that is missing, down, too small or in use by the host.
pub(super) fn refuse_unless_free(shared: &Shared, name: &str, mtu: u32) -> Result<(), LabError> {
    let ip = process::find("ip", "iproute2")?;
    let host = shared.on_host(|| Host::ask(&ip, &shared.mark))??;
    refuse(objection(name, mtu, &host.links, &host.routes))
}

/// Refuses an interface that the host uses, because it has an address, a route, or a master. It checks nothing else. It
/// looks in the network namespace of this thread, and needs no lab.
pub fn refuse_in_use(name: &str) -> Result<(), LabError> {
    let host = Host::ask(&process::find("ip", "iproute2")?, &sweep::mark())?;
    let link = host.links.iter().find(|link| text(link, "ifname") == name);
    refuse(link.and_then(|link| use_of(name, link, &host.routes)))
}

/// Time for links to come up before a run begins: auto-negotiation takes some seconds.
const LINK: Duration = Duration::from_secs(5);

/// Refuses interfaces that cannot be used in a run, before anything is started. With `with_link`, also refuses
/// interfaces without a link.
pub(super) fn refuse_host(names: &[String], role: &RouterRole, with_link: bool) -> Result<(), LabError> {
    if !geteuid().is_root() {
        return Err(LabError::unusable(
            format!("only root can use {} in a run", names.join(" and ")),
            "run as root, or use a DUT of a kind that runs in a namespace",
        ));
    }
    let host = Host::ask(&process::find("ip", "iproute2")?, &sweep::mark())?;
    for (name, interface) in names.iter().zip(&role.interfaces) {
        refuse(objection(name, interface.mtu, &host.links, &host.routes))?;
    }
    let down = || names.iter().find(|name| with_link && !has_link(name));
    match wait::while_missing(LINK, &|| false, || Ok(down().cloned())) {
        Err(LabError::NotReady { condition: name, .. }) => Err(LabError::unusable(
            format!("{name} has no link"),
            "plug in the cable, or set the router's end up; a command `setup` can also do that",
        )),
        other => other,
    }
}

/// True if the interface is up and its cable is connected.
pub(super) fn has_link(name: &str) -> bool {
    std::fs::read_to_string(format!("/sys/class/net/{name}/carrier")).is_ok_and(|carrier| carrier.trim() == "1")
}

/// Refuses an interface that was set down on this machine: no router can cause that.
pub(super) fn refuse_down(name: &str) -> Result<(), LabError> {
    match is_set_up(Path::new(probe::OWN), name) {
        Some(true) => Ok(()),
        _ => Err(LabError::OwnInterface(name.to_owned())),
    }
}

fn refuse(objection: Option<Objection>) -> Result<(), LabError> {
    objection.map_or(Ok(()), |(what, remedy)| Err(LabError::unusable(what, remedy)))
}

fn text(value: &Value, key: &str) -> String {
    value.get(key).and_then(Value::as_str).unwrap_or_default().to_owned()
}

/// Why the interface must not be used, and the remedy.
pub(super) fn objection(name: &str, mtu: u32, links: &[Value], routes: &[Value]) -> Option<Objection> {
    let Some(link) = links.iter().find(|link| text(link, "ifname") == name) else {
        let known: Vec<_> = links.iter().map(|link| text(link, "ifname")).filter(|n| n != "lo").collect();
        let remedy = match known.as_slice() {
            [] => "it has only lo".to_owned(),
            known => format!("name one that it has: {}", known.join(", ")),
        };
        return Some((format!("this machine has no interface {name}"), remedy));
    };
    if let Some(used) = use_of(name, link, routes) {
        return Some(used);
    }
    let flags = link.get("flags").and_then(Value::as_array).cloned().unwrap_or_default();
    if !flags.iter().any(|f| f == "UP") {
        return Some((format!("{name} is down"), format!("ip link set {name} up")));
    }
    let own = link.get("mtu").and_then(Value::as_u64).unwrap_or(0);
    (own < u64::from(mtu)).then(|| {
        (
            format!("{name} has an MTU of {own}, but the suite needs {mtu}"),
            format!("ip link set {name} mtu {mtu}, or a smaller mtu in the suite"),
        )
    })
}

/// How the host uses the interface, and the remedy; `None` if it does not use it.
fn use_of(name: &str, link: &Value, routes: &[Value]) -> Option<Objection> {
    // Suggest no command: it would cut off a user who is connected through this very interface.
    let free = |first: &str| {
        format!("name an interface that this machine does not use; if only tests use {name}, {first} first")
    };
    let flags = link.get("flags").and_then(Value::as_array).into_iter().flatten();
    if flags.filter_map(Value::as_str).any(|flag| flag == "LOOPBACK") {
        return Some((
            format!("{name} is the loopback interface of this machine"),
            "name an interface that leads to a router, or one end of a veth pair".into(),
        ));
    }
    let on = |r: &&Value| {
        let hops = r.get("nexthops").and_then(Value::as_array);
        text(r, "dev") == name || hops.is_some_and(|h| h.iter().any(|n| text(n, "dev") == name))
    };
    let of_host = |r: &&Value| !text(r, "dst").starts_with("fe80::") && text(r, "dst") != "ff00::/8";
    if routes.iter().filter(on).any(|r| text(r, "dst") == "default") {
        return Some((
            format!("{name} carries this machine's default route"),
            "use an interface that is free for tests; RFC 6815 forbids them on networks in use".into(),
        ));
    }
    let addresses = link.get("addr_info").and_then(Value::as_array).cloned().unwrap_or_default();
    if let Some(address) = addresses.iter().find(|a| text(a, "scope") != "link") {
        return Some((
            format!("{name} has the address {} of this machine", text(address, "local")),
            free("remove its addresses"),
        ));
    }
    if let Some(route) = routes.iter().filter(on).find(of_host) {
        return Some((
            format!("{name} has the route {} of this machine", text(route, "dst")),
            free("remove its routes"),
        ));
    }
    let master = text(link, "master");
    (!master.is_empty()).then(|| (format!("{name} is a member of {master}"), free(&format!("take it out of {master}"))))
}
