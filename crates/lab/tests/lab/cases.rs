//! The scenarios, and the users as whom each one runs.

use drophammer_lab::kinds::uml;
use std::fs;
use std::os::unix::fs::MetadataExt;

/// A scenario, and the user as whom it runs.
pub type Case = (&'static str, &'static str);

/// All cases; `root` is true if this process is root.
pub fn cases(root: bool) -> Vec<Case> {
    let all = [
        "linux",
        "frr",
        "bird",
        "twice",
        "loop",
        "broken",
        "killed",
        "reset-frr",
        "reset-bird",
        "bgp-frr",
        "bgp-bird",
        "bgp-refused",
        "peers-frr",
        "peers-bird",
        "ovs",
        "ovs-killed",
        "uml",
        "uml-killed",
        "bgp-uml",
        "vlans",
        "own-frr",
        "own-bird",
        "own-uml",
        "own-linux",
        "system",
        "system-killed",
    ];
    let mut cases: Vec<_> = all.iter().map(|name| (*name, if root { "root" } else { "user" })).collect();
    if root {
        let own = ["external", "external-refused", "external-snmp", "bgp-openbgpd", "peers-openbgpd"];
        cases.extend(own.map(|name| (name, "root")));
        cases.extend(all.map(|name| (name, "nobody")));
    }
    if let Some(why) = uml::unfit_processor() {
        println!("    scenarios with uml are left out: {why}");
        cases.retain(|(name, _)| !name.contains("uml"));
    }
    // User Mode Linux and Open vSwitch need taps, which some systems give to root alone.
    let taps = fs::metadata("/dev/net/tun").is_ok_and(|device| device.mode() & 0o006 == 0o006);
    if root && !taps {
        println!("    scenarios with uml and ovs as nobody are left out: only root may open /dev/net/tun");
        cases.retain(|(name, user)| *user == "root" || !(name.contains("uml") || name.contains("ovs")));
    }
    // Only once, because it takes the full time limit for a router to become ready.
    cases.push(("never-ready", if root { "root" } else { "user" }));
    cases.push(("reset-beside", if root { "root" } else { "user" }));
    cases.push(("snmp-link", if root { "root" } else { "user" }));
    cases
}

/// Lanes of cases that run at the same time, and the cases that run alone after them. Most of a case is waiting, so each
/// user has a lane, and the case that waits for a time limit has one. `external` changes interfaces of the host, and
/// `ovs` gives its datapath flows late on a busy machine.
pub fn at_once(cases: Vec<Case>) -> ([Vec<Case>; 3], Vec<Case>) {
    let is_alone = |(name, _): &Case| name.starts_with("external") || name.starts_with("ovs");
    let (alone, together): (Vec<Case>, Vec<Case>) = cases.into_iter().partition(is_alone);
    let waits = |(name, _): &Case| *name == "never-ready";
    let (waiting, others): (Vec<Case>, Vec<Case>) = together.into_iter().partition(waits);
    let (nobody, own): (Vec<Case>, Vec<Case>) = others.into_iter().partition(|(_, user)| *user == "nobody");
    ([waiting, own, nobody], alone)
}
