//! The kernel's own forwarding with static routes: the smallest router, and what every software router adds to.

use crate::dut::NamespaceDut;
use crate::environment::kernel_release;
use crate::router;
use crate::{Dut, DutKind, Lab, LabError, kinds};
use drophammer_model::registry::KindSpec;
use drophammer_model::role::RouterRole;
use drophammer_model::suite::DutConfig;
use std::path::Path;

static SPEC: KindSpec = KindSpec {
    name: "linux",
    summary: "Linux kernel forwarding in a network namespace, static routes",
    capabilities: kinds::IN_NAMESPACE,
    needs: &[("ip", "iproute2"), ("ethtool", "ethtool")],
    params: &[],
};

/// Kind `linux`.
pub struct Linux;

impl DutKind for Linux {
    fn spec(&self) -> &'static KindSpec {
        &SPEC
    }

    fn configuration(&self, _dut: &DutConfig, role: &RouterRole) -> Result<Vec<(String, String)>, LabError> {
        Ok(vec![router::routes_file(role)])
    }

    fn start(
        &self,
        lab: &mut Lab,
        dut: &DutConfig,
        role: &RouterRole,
        work_dir: &Path,
        stop: &dyn Fn() -> bool,
    ) -> Result<Box<dyn Dut>, LabError> {
        let version = format!("Linux {}", kernel_release());
        let mut router = NamespaceDut::links(lab, dut, &SPEC, role, version)?;
        router.keep(work_dir, work_dir, role, &|role| self.configuration(dut, role))?;
        router.netns().ip(&router::route_lines(role))?;
        router.ready(stop)
    }
}
