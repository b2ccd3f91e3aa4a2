//! Several routers as one DUT: they forward end to end, and leave nothing behind, however the lab ends.

use super::hosts::{exchange, kernel_hosts};
use super::{Checked, ensure, memory_of};
use drophammer_lab::{Dut, Lab, bring_up_system, check_system, find};
use drophammer_model::suite::{DutConfig, ParamValue, Params};
use drophammer_model::topology::{Shape, System, Topology};
use std::net::IpAddr;
use std::path::Path;

/// Three routers of FRR in a row.
pub fn up(lab: &mut Lab, work: &Path) -> Result<Box<dyn Dut>, String> {
    let core_speed = Some("100 Mbit/s".parse().map_err(|e| format!("{e:?}"))?);
    let topology = Topology { shape: Shape::Chain, routers: 3, core_speed, wan: None };
    let (name, kind, params) = ("row".into(), "frr".into(), Params::default());
    let config = DutConfig { name, kind, params, topology: Some(topology) };
    let system = System::of(&super::ports(), &topology).map_err(|e| e.to_string())?;
    let kind = find("frr").ok_or("no such kind")?;
    let mut own = config.clone();
    own.params = Params([("snmp".to_owned(), ParamValue::Flag(true))].into());
    let refused = check_system(kind, &own, &system).err().map(|e| e.to_string()).unwrap_or_default();
    ensure(refused.contains("with a `topology`, `row` cannot have `snmp: true`"), &refused)?;
    own.params = Params([("config".to_owned(), ParamValue::Text("mine".into()))].into());
    let refused = check_system(kind, &own, &system).err().map(|e| e.to_string()).unwrap_or_default();
    ensure(refused.contains("a configuration of your own"), &refused)?;
    bring_up_system(kind, lab, &config, system, work, &|| false).map_err(|e| e.to_string())
}

/// Datagrams of both IP versions cross all routers, and the counters of each router show it.
pub fn forwards(lab: &mut Lab, work: &Path) -> Checked {
    let mut dut = up(lab, work)?;
    ensure(dut.interfaces().iter().map(|i| i.name.as_str()).eq(["t0", "t1"]), "interfaces t0 and t1")?;
    println!("{}", dut.record().confinement);
    let logs = (1..=3).all(|n| work.join(format!("r{n}/zebra.log")).exists());
    ensure(logs, "each router has a folder of its own")?;
    let names: Vec<_> = memory_of(dut.as_mut()).into_iter().map(|(name, _)| name).collect();
    ensure(["r1.zebra", "r3.staticd"].iter().all(|name| names.iter().any(|n| n == name)), &format!("{names:?}"))?;
    let (far, near) = (lab.namespace("far").map_err(|e| e.to_string())?, lab.tester().map_err(|e| e.to_string())?);
    let before = dut.counters().map_err(|e| e.to_string())?;
    kernel_hosts(&near, &far).map_err(|e| e.to_string())?;
    for (from, to) in [("198.18.64.7", "198.19.64.9"), ("2001:2:0:8000::7", "2001:2:0:c000::9")] {
        let parse = |text: &str| text.parse::<IpAddr>().map_err(|e| e.to_string());
        exchange(&near, &far, parse(from)?, parse(to)?)?;
    }
    let link = "link set t1 netns ".to_owned() + &near.path();
    far.ip(&[link]).map_err(|e| e.to_string())?;
    near.ip(&["link set t1 up".into()]).map_err(|e| e.to_string())?;
    let after = dut.counters().map_err(|e| e.to_string())?;
    for router in 1..=3 {
        for counter in ["ip.ForwDatagrams", "ip6.OutForwDatagrams"] {
            let name = format!("r{router}.{counter}");
            let grown = after[&name] - before[&name];
            ensure(grown >= 2 * super::ROUNDS, &format!("{name} grew by {grown}"))?;
        }
    }
    dut.take_down().map_err(|e| e.to_string())
}
