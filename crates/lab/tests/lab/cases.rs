//! The scenarios, and the users as whom each one runs.

use crate::anew::Case;
use crate::processes::{Program, run};
use drophammer_lab::kinds::uml;
use std::fs;
use std::os::unix::fs::MetadataExt;

/// Cases that are short and always run.
const ALWAYS: [&str; 3] = ["linux", "frr", "killed"];

/// All cases.
pub fn all() -> Vec<Case> {
    let of = |(name, user): (&'static str, &'static str)| {
        let case = Case::alone(format!("{name} as {user}"), move || run(&Program::copy()?, name, user));
        // `external` changes interfaces of the host, and `ovs` gives its datapath flows late on a busy machine.
        let case = if name.starts_with("external") || name.starts_with("ovs") { case } else { case.waits() };
        let uml = if name.contains("uml") { uml::unfit_processor() } else { None };
        let case = case.unless(uml.or_else(|| no_taps(name, user)));
        if ALWAYS.contains(&name) && user != "nobody" { case } else { case.long() }
    };
    cases(nix::unistd::geteuid().is_root()).into_iter().map(of).collect()
}

/// User Mode Linux and Open vSwitch need taps, which some systems give to root alone.
fn no_taps(name: &str, user: &str) -> Option<String> {
    let taps = fs::metadata("/dev/net/tun").is_ok_and(|device| device.mode() & 0o006 == 0o006);
    let needs = user == "nobody" && (name.contains("uml") || name.contains("ovs"));
    (needs && !taps).then(|| "only root may open /dev/net/tun".into())
}

/// The scenarios, and the users as whom they run; `root` is true if this process is root.
fn cases(root: bool) -> Vec<(&'static str, &'static str)> {
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
        "bgp-gobgp",
        "bgp-refused",
        "peers-frr",
        "peers-bird",
        "peers-gobgp",
        "ovs",
        "ovs-killed",
        "uml",
        "uml-killed",
        "bgp-uml",
        "pe-uml",
        "core-frr",
        "core-bird",
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
    // Only once, because it takes the full time limit for a router to become ready.
    cases.push(("never-ready", if root { "root" } else { "user" }));
    cases.push(("reset-beside", if root { "root" } else { "user" }));
    cases.push(("snmp-link", if root { "root" } else { "user" }));
    cases
}
