//! The kernel's own forwarding with static routes: the simplest router, and the forwarding plane of every software
//! router here.

use crate::dut::NamespaceDut;
use crate::environment::kernel_release;
use crate::management::MANAGEMENT;
use crate::snmp::SNMP;
use crate::ssh::SSH;
use crate::{Dut, DutKind, Lab, LabError, kinds, nftables};
use crate::{configuration, packet_filter, router};
use drophammer_model::registry::{KindSpec, ParamKind, ParamSpec};
use drophammer_model::role::RouterRole;
use drophammer_model::suite::DutConfig;
use std::path::{Path, PathBuf};

static SPEC: KindSpec = KindSpec {
    name: "linux",
    summary: "Linux kernel forwarding in a network namespace, static routes, nftables rules if wanted",
    capabilities: kinds::IN_NAMESPACE,
    needs: &[("ip", "iproute2"), ("ethtool", "ethtool")],
    params: &[NFTABLES, packet_filter::FILTERS.spec(), SNMP.spec(), SSH.spec(), MANAGEMENT.spec()],
};

/// Parameter: the user's ruleset.
const NFTABLES: ParamSpec = ParamSpec::optional(
    "nftables",
    ParamKind::File,
    "your own nftables ruleset, loaded with `nft -f`; relative to the suite file",
);

/// Kind `linux`.
pub struct Linux;

/// The user's ruleset file.
fn ruleset(dut: &DutConfig) -> Option<PathBuf> {
    dut.params.text(NFTABLES.key).map(PathBuf::from)
}

impl DutKind for Linux {
    fn spec(&self) -> &'static KindSpec {
        &SPEC
    }

    fn needs(&self, dut: &DutConfig) -> Vec<(&'static str, &'static str)> {
        let nft = ruleset(dut).map(|_| nftables::NEED);
        SPEC.needs.iter().copied().chain(nft).collect()
    }

    fn configuration(&self, dut: &DutConfig, role: &RouterRole) -> Result<Vec<(String, String)>, LabError> {
        let rules = ruleset(dut).map(|file| configuration::read(dut, NFTABLES.key, &file)).transpose()?;
        Ok([router::routes_file(role)].into_iter().chain(rules.map(|text| (nftables::FILE.into(), text))).collect())
    }

    fn check(&self, dut: &DutConfig, role: &RouterRole) -> Result<(), LabError> {
        kinds::refuse_unless_able(&SPEC, role)?;
        self.configuration(dut, role)?;
        ruleset(dut).map_or(Ok(()), |file| nftables::check(&dut.name, &file))
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
        let kept = router.keep(work_dir, work_dir, role, &|role| self.configuration(dut, role))?;
        router.add_routes()?;
        if let Some(file) = ruleset(dut) {
            nftables::load(router.netns(), &file, &kept.join(nftables::FILE))?;
        }
        router.with_agent(lab, dut, work_dir, stop)?;
        router.ready(stop)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::kinds::tests_support::two_ports;
    use drophammer_model::suite::{ParamValue, Params};

    fn dut(file: Option<&Path>) -> DutConfig {
        let value = |file: &Path| (NFTABLES.key.to_owned(), ParamValue::Text(file.display().to_string()));
        DutConfig {
            name: "wall".into(),
            kind: "linux".into(),
            params: Params(file.map(value).into_iter().collect()),
            topology: None,
        }
    }

    #[test]
    fn rules_need_nft_and_are_kept_beside_the_routes() {
        let role = RouterRole::of(&two_ports());
        let names = |dut: &DutConfig| {
            let files = Linux.configuration(dut, &role).unwrap();
            files.into_iter().map(|(name, _)| name).collect::<Vec<_>>()
        };
        assert_eq!(names(&dut(None)), ["routes.ip"]);
        assert!(!Linux.needs(&dut(None)).contains(&("nft", "nftables")));

        let folder = tempfile::tempdir().unwrap();
        let file = folder.path().join("my.nft");
        std::fs::write(&file, "table inet mine {}\n").unwrap();
        assert_eq!(names(&dut(Some(&file))), ["routes.ip", "nftables.conf"]);
        let kept = Linux.configuration(&dut(Some(&file)), &role).unwrap();
        assert_eq!(kept[1].1, "table inet mine {}\n");
        assert_eq!(Linux.needs(&dut(Some(&file))).last(), Some(&("nft", "nftables")));
    }

    #[test]
    fn a_missing_file_is_refused_with_its_name() {
        let error = Linux.check(&dut(Some(Path::new("/nowhere/my.nft"))), &RouterRole::of(&two_ports()));
        let error = error.unwrap_err().to_string();
        assert!(error.contains("`nftables` of `wall`: cannot read /nowhere/my.nft"), "{error}");
    }
}
