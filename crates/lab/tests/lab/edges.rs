//! Routers with core links and VRFs come up with a daemon for each protocol, and leave nothing behind.

use super::{Checked, ensure, memory_of, up_with};
use drophammer_lab::Lab;
use drophammer_model::label_edge::CoreProtocol;
use drophammer_model::suite::PortConfig;
use std::path::Path;

/// The first port faces the core, the second one has this number of customers.
fn ports(core: &[CoreProtocol], customers: u32) -> Vec<PortConfig> {
    let mut ports = super::ports();
    ports[0].core = core.to_vec();
    ports[1].customers = customers;
    ports
}

/// A guest with three VRFs, IPv4 and IPv6. It is ready when its kernel has a label for each VRF in each family.
pub fn provider_edge(lab: &mut Lab, work: &Path) -> Checked {
    let ports = ports(&[CoreProtocol::Ospf, CoreProtocol::Ldp, CoreProtocol::Bfd], 3);
    let mut dut = up_with(lab, "uml", work, &ports)?;
    let record = dut.record();
    let files: Vec<_> = record.config.keys().map(String::as_str).collect();
    ensure(files == ["bgpd.conf", "frr.conf", "ldpd.conf", "ospfd.conf", "vrfs.ip"], &format!("files {files:?}"))?;
    let stored = std::fs::read_to_string(work.join("bgpd.conf")).map_err(|e| e.to_string())?;
    ensure(stored.matches("label vpn export auto").count() == 6, &stored)?;
    dut.check().map_err(|e| e.to_string())?;
    let daemons: Vec<_> = memory_of(dut.as_mut()).into_iter().map(|(name, _)| name).collect();
    ensure(daemons == ["bfdd", "bgpd", "ldpd", "ospfd", "staticd", "zebra"], &format!("daemons {daemons:?}"))?;
    // The MTUs leave room for the tag of a customer and for the two labels of the core.
    let mtu = |name: &str| std::fs::read_to_string(format!("/sys/class/net/{name}/mtu")).unwrap_or_default();
    ensure((mtu("t0").trim(), mtu("t1").trim()) == ("1508", "9004"), "MTU of each port")?;
    dut.take_down().map_err(|e| e.to_string())?;
    ensure(!Path::new("/sys/class/net/t0").exists(), "t0 is gone")
}

/// A router in a namespace with OSPF and BFD on a core link.
pub fn core_link(lab: &mut Lab, kind: &str, work: &Path) -> Checked {
    let mut dut = up_with(lab, kind, work, &ports(&[CoreProtocol::Ospf, CoreProtocol::Bfd], 0))?;
    let daemons: Vec<_> = memory_of(dut.as_mut()).into_iter().map(|(name, _)| name).collect();
    let wanted = if kind == "bird" { &["bird"][..] } else { &["zebra", "staticd", "bfdd", "ospfd"] };
    ensure(daemons == wanted, &format!("daemons {daemons:?}"))?;
    dut.check().map_err(|e| e.to_string())?;
    dut.take_down().map_err(|e| e.to_string())?;
    // Labels are refused with an error that names the kinds that have them.
    let labels = up_with(lab, kind, work, &ports(&[CoreProtocol::Ospf, CoreProtocol::Ldp], 3)).err();
    let error = labels.ok_or("a router without MPLS came up")?;
    ensure(error.contains("`ldp`") && error.contains("uml"), &error)
}
