//! User Mode Linux as a router under test: VLAN tags, BGP peers on sub-interfaces, VRFs with and without earlier BGP sessions, and a run whose guest is killed.

mod killed;
mod pe;
mod peers;
mod vlans;

use crate::anew::Case;
use drophammer_lab::kinds::uml;
use drophammer_lab::{Lab, LabOptions};
use std::path::Path;

type Scenario = fn(&mut Lab, &Path) -> Result<(), String>;

const SCENARIOS: [(&str, Scenario); 7] = [
    ("frames_carry_the_tags_of_the_suite", vlans::tags),
    ("peers_on_sub_interfaces_exchange_routes", peers::many),
    ("vpns_between_ce_and_pe_routers", pe::vpns),
    ("vpns_after_bgp_sessions", pe::vpns_after_bgp),
    ("vpns_with_ipv6_behind_an_ipv4_core", pe::vpns_with_ipv6),
    ("vpns_with_two_sites_behind_customer_ports", pe::vpns_with_two_sites),
    ("a_killed_guest_ends_only_its_own_tests", killed::in_a_trial),
];

/// The cases.
pub fn cases() -> Vec<Case> {
    let case = |(name, scenario): (&'static str, Scenario)| {
        let run = move || {
            let folder = tempfile::tempdir().map_err(|e| e.to_string())?;
            let keep = vec![folder.path().to_path_buf()];
            let options = LabOptions { keep, queues: 1, ..LabOptions::default() };
            let mut lab = Lab::enter(&options).map_err(|e| e.to_string())?;
            scenario(&mut lab, folder.path())
        };
        Case::alone(name, run).long().unless(uml::unfit_processor())
    };
    SCENARIOS.into_iter().map(case).collect()
}

/// Guest kernels that this process has started.
pub fn guests() -> Vec<u32> {
    let children = |pid: u32| -> Vec<u32> {
        let tasks = std::fs::read_dir(format!("/proc/{pid}/task")).into_iter().flatten().flatten();
        let lists = tasks.filter_map(|task| std::fs::read_to_string(task.path().join("children")).ok());
        lists.flat_map(|list| list.split_whitespace().filter_map(|c| c.parse().ok()).collect::<Vec<u32>>()).collect()
    };
    let name = |pid: &u32| std::fs::read_to_string(format!("/proc/{pid}/comm")).unwrap_or_default();
    let all = children(std::process::id()).into_iter().filter(|pid| name(pid) == "init\n").flat_map(children);
    all.filter(|pid| name(pid) == "linux.uml\n").collect()
}

/// Checks that a guest that has ended leaves neither taps nor processes.
pub fn nothing_left() -> Result<(), String> {
    if Path::new("/sys/class/net/t0").exists() || Path::new("/sys/class/net/m0").exists() {
        return Err("a tap is still there".into());
    }
    match &guests()[..] {
        [] => Ok(()),
        left => Err(format!("guests are still there: {left:?}")),
    }
}
