//! A Linux router with a fast path: a program in the receive path of each link (XDP) forwards by the kernel's own
//! tables, and the kernel does the rest. The XDP program is part of Drophammer; a separate process keeps it loaded.

use crate::environment::kernel_release;
use crate::links::keep_segments_apart;
use crate::namespace_dut::NamespaceDut;
use crate::program::{flatten, question};
use crate::{Dut, DutKind, Lab, LabError, Netns, Start, probe, router};
use drophammer_model::capabilities::{Capabilities, Counters};
use drophammer_model::registry::KindSpec;
use drophammer_model::role::RouterRole;
use drophammer_model::suite::DutConfig;
use std::path::PathBuf;

/// First argument of this program that makes it the router's fast path; `SOCKET INTERFACE...` follow. It attaches the
/// XDP program to the interfaces, then listens on the socket and answers the line `counters` with a JSON object of its
/// counters per interface.
pub const SUBCOMMAND: &str = "xdp-router";

static SPEC: KindSpec = KindSpec {
    name: "xdp",
    summary: "Linux with a fast path in XDP: Drophammer's XDP program forwards by the kernel's tables, the kernel does the rest",
    capabilities: Capabilities { counters: &[Counters::Interfaces, Counters::Backlog], ..Capabilities::ROUTER },
    needs: &[("ip", "iproute2"), ("ethtool", "ethtool")],
    params: &[],
};

/// Kind `xdp`.
pub struct Xdp;

impl DutKind for Xdp {
    fn spec(&self) -> &'static KindSpec {
        &SPEC
    }

    fn configuration(&self, _dut: &DutConfig, role: &RouterRole) -> Result<Vec<(String, String)>, LabError> {
        Ok(vec![router::routes_file(role)])
    }

    fn start(&self, start: Start<'_>) -> Result<Box<dyn Dut>, LabError> {
        let Start { lab, dut, role, work_dir, stop } = start;
        if !lab.is_root() {
            return Err(LabError::forbidden(
                format!("`{}` cannot load its program: only root can load a program that forwards", dut.name),
                "run as root, or use the kind `linux`",
            ));
        }
        let version = format!("Drophammer {}, Linux {}", env!("CARGO_PKG_VERSION"), kernel_release());
        let mut router = NamespaceDut::with_links(lab, dut, &SPEC, role, version)?;
        router.keep(work_dir, work_dir, role, &|role| self.configuration(dut, role))?;
        router.netns().ip(&router::route_lines(role))?;
        take_frames(lab, &router)?;

        let socket = lab.shared().fresh_state(&dut.name)?.join("control");
        // By process id rather than by path: the file at the path may have been replaced.
        let program = PathBuf::from(format!("/proc/{}/exe", std::process::id()));
        let mut command = router.netns().command(&program);
        command.arg(SUBCOMMAND).arg(&socket).args((0..role.interfaces.len()).map(router::dut_interface));
        router.daemon(SPEC.name, command, work_dir)?;
        router.listens(&socket);
        router.wait(stop, |_| {
            Ok(question(&socket, "counters").err().map(|e| format!("the fast path does not answer: {e}")))
        })?;
        router.links.also_counts(Box::new(|_, counters| {
            probe::rename_slow_path(counters);
            Ok(())
        }));
        router.daemon_counters = Some(Box::new(move |counters| {
            let answer = question(&socket, "counters").map_err(LabError::io("the fast path does not answer"))?;
            flatten(SPEC.name, &answer, counters);
            Ok(())
        }));
        router.ready(stop)
    }
}

/// Lets the tester's ends receive frames that XDP redirects: veth delivers those only to an end with a receive loop
/// (NAPI), which GRO enables. As with any veth, the loop runs on the processor of the sender, here the DUT's.
fn take_frames(lab: &Lab, router: &NamespaceDut) -> Result<(), LabError> {
    let tester = Netns::tester(lab.shared())?;
    let ends: Vec<_> = router.interfaces().iter().map(|end| end.name.clone()).collect();
    for end in &ends {
        tester.output("ethtool", "ethtool", &["-K", end, "gro", "on"], None)?;
    }
    keep_segments_apart(&tester, &ends)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::kinds::tests_support::{dut, two_ports, two_ports_with_bgp, with_vlans};

    #[test]
    fn it_plays_static_roles_alone() {
        let dut = dut("fast", SPEC.name, Default::default());
        let files = Xdp.configuration(&dut, &RouterRole::of(&two_ports())).unwrap();
        assert_eq!((files.len(), files[0].0.as_str()), (1, "routes.ip"));
        assert!(files[0].1.contains("route add 2001:2:0:c000::/50 via 2001:2:0:1::2 dev d1"), "{}", files[0].1);
        let error = Xdp.check(&dut, &RouterRole::of(&with_vlans(two_ports()))).unwrap_err().to_string();
        assert!(error.contains("`vlan`") && error.contains("kind `xdp`"), "{error}");
        Xdp.check(&dut, &RouterRole::of(&two_ports_with_bgp(1))).unwrap();
    }
}
