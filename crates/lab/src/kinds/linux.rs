//! The kernel's own forwarding with static routes: the simplest router, and the forwarding plane of the software routers
//! here. The user's nftables ruleset is checked before the run and loaded into the router.

use crate::environment::kernel_release;
use crate::management::MANAGEMENT;
use crate::namespace_dut::NamespaceDut;
use crate::snmp::SNMP;
use crate::ssh::SSH;
use crate::{Dut, DutKind, LabError, Netns, Start, configuration, kinds, packet_filter, process, router};
use drophammer_model::registry::{KindSpec, ParamKind, ParamSpec};
use drophammer_model::role::RouterRole;
use drophammer_model::suite::DutConfig;
use std::ffi::OsStr;
use std::path::{Path, PathBuf};
use std::process::Command;

static SPEC: KindSpec = KindSpec {
    name: "linux",
    summary: "Linux kernel forwarding in a network namespace, with static routes and optional nftables rules",
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

/// Name of the copy of the ruleset.
const FILE: &str = "nftables.conf";

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
        let nft = ruleset(dut).map(|_| packet_filter::NEED);
        SPEC.needs.iter().copied().chain(nft).collect()
    }

    fn configuration(&self, dut: &DutConfig, role: &RouterRole) -> Result<Vec<(String, String)>, LabError> {
        let rules = ruleset(dut).map(|file| configuration::read(dut, NFTABLES.key, &file)).transpose()?;
        Ok([router::routes_file(role)].into_iter().chain(rules.map(|text| (FILE.into(), text))).collect())
    }

    fn check(&self, dut: &DutConfig, role: &RouterRole) -> Result<(), LabError> {
        kinds::refuse_unless_able(&SPEC, role)?;
        self.configuration(dut, role)?;
        ruleset(dut).map_or(Ok(()), |file| check(&dut.name, &file))
    }

    fn start(&self, start: Start<'_>) -> Result<Box<dyn Dut>, LabError> {
        let Start { lab, dut, role, work_dir, stop } = start;
        let version = format!("Linux {}", kernel_release());
        let mut router = NamespaceDut::with_links(lab, dut, &SPEC, role, version)?;
        let kept = router.keep(work_dir, work_dir, role, &|role| self.configuration(dut, role))?;
        router.add_routes()?;
        if let Some(file) = ruleset(dut) {
            load(router.netns(), &file, &kept.join(FILE))?;
        }
        router.with_agent(lab, dut, work_dir, stop)?;
        router.ready(stop)
    }
}

/// Asks nft(8) whether the kernel would accept the ruleset in `file`. It runs in an empty, temporary network namespace,
/// so ordinary users can do this too. Succeeds if nft is not installed: other code reports missing programs.
fn check(name: &str, file: &Path) -> Result<(), LabError> {
    let (program, package) = packet_filter::NEED;
    let (Ok(nft), Ok(unshare)) = (process::find(program, package), process::find("unshare", "util-linux")) else {
        return Ok(());
    };
    let mut command = Command::new(unshare);
    if !nix::unistd::geteuid().is_root() {
        command.args(["--user", "--map-root-user"]);
    }
    command.args(["--net", "--"]).arg(nft).arg("--check").args(arguments(file, file));
    match process::output(command, None) {
        Ok(_) => Ok(()),
        Err(LabError::Command { output, .. }) => Err(LabError::unusable(
            format!("`nftables` of `{name}`: nft rejects {}: {output}", file.display()),
            "correct the ruleset; `nft --check --file FILE` checks it again",
        )),
        Err(other) => Err(other),
    }
}

/// Loads the copy of the user's `file` into the namespace of a router.
fn load(netns: &Netns, file: &Path, kept: &Path) -> Result<(), LabError> {
    let nft = process::find(packet_filter::NEED.0, packet_filter::NEED.1)?;
    netns.run(|| {
        let mut command = netns.command(&nft);
        command.args(arguments(file, kept));
        process::output(command, None).map(drop)
    })?
}

/// Arguments of nft for the ruleset in `text`. It finds included files next to the user's `file`.
fn arguments<'a>(file: &'a Path, text: &'a Path) -> [&'a OsStr; 4] {
    let folder = file.parent().filter(|folder| !folder.as_os_str().is_empty()).unwrap_or(Path::new("."));
    ["--includepath".as_ref(), folder.as_os_str(), "--file".as_ref(), text.as_os_str()]
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::kinds::tests_support::{self, two_ports};
    use drophammer_model::suite::{ParamValue, Params};

    fn dut(file: Option<&Path>) -> DutConfig {
        let value = |file: &Path| (NFTABLES.key.to_owned(), ParamValue::Text(file.display().to_string()));
        tests_support::dut("wall", "linux", Params(file.map(value).into_iter().collect()))
    }

    #[test]
    fn rules_need_nft_and_are_kept_with_the_routes() {
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
