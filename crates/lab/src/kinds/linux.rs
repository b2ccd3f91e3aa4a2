//! The kernel's own forwarding with static routes: the smallest router, and what every software router adds to.

use crate::dut::NamespaceDut;
use crate::environment::kernel_release;
use crate::router;
use crate::{Dut, DutKind, Lab, LabError};
use drophammer_model::registry::KindSpec;
use drophammer_model::suite::{DutConfig, PortConfig};
use std::path::Path;

static SPEC: KindSpec = KindSpec {
    name: "linux",
    summary: "Linux kernel forwarding in a network namespace, static routes",
    roles: &["ipv4-router", "ipv6-router"],
    needs: &[("ip", "iproute2"), ("ethtool", "ethtool")],
    params: &[],
    simulated: false,
};

/// Kind `linux`.
pub struct Linux;

impl DutKind for Linux {
    fn spec(&self) -> &'static KindSpec {
        &SPEC
    }

    fn bring_up(
        &self,
        lab: &mut Lab,
        dut: &DutConfig,
        ports: &[PortConfig],
        work_dir: &Path,
        stop: &dyn Fn() -> bool,
    ) -> Result<Box<dyn Dut>, LabError> {
        let version = format!("Linux {}", kernel_release());
        let mut router = NamespaceDut::links(lab, dut, &SPEC, ports, version)?;
        router.without_bgp();
        let routes = router::routes(ports);
        let lines = router::route_lines(&routes);
        router.configuration(work_dir, "routes.ip", &(lines.join("\n") + "\n"))?;
        router.netns().ip(&lines)?;
        router.ready(&routes, stop)
    }
}
