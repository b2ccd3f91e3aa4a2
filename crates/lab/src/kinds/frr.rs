//! FRRouting: staticd's routes, put into the kernel by zebra; the kernel forwards.

use crate::dut::NamespaceDut;
use crate::environment::kernel_release;
use crate::{Dut, DutKind, Lab, LabError, kinds, mounts, process, router};
use drophammer_model::registry::KindSpec;
use drophammer_model::suite::{DutConfig, PortConfig};
use std::fs;
use std::os::unix::net::UnixStream;
use std::path::Path;

static SPEC: KindSpec = KindSpec {
    name: "frr",
    summary: "FRRouting in a network namespace: zebra and staticd, the kernel forwards",
    roles: &["ipv4-router", "ipv6-router"],
    needs: &[("zebra", "frr"), ("staticd", "frr"), ("ip", "iproute2"), ("ethtool", "ethtool")],
    params: &[],
    simulated: false,
};

const TEMPLATE: &str = include_str!("../../templates/frr.conf.j2");

/// Groups that the daemons insist on.
const GROUPS: [&str; 2] = ["frr", "frrvty"];

/// Kind `frr`.
pub struct Frr;

impl DutKind for Frr {
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
        let zebra = process::find("zebra", "frr")?;
        let staticd = process::find("staticd", "frr")?;
        let mut ask = process::command(&zebra, &lab.shared().mark);
        ask.arg("--version");
        let told = process::output(ask, None)?;
        let told = told.lines().next().unwrap_or_default().trim_start_matches("zebra version ").trim();
        let version = format!("FRR {told}, Linux {}", kernel_release());
        let state = lab.shared().fresh_state(&dut.name)?;
        own_surroundings(&lab.shared().state)?;

        let mut router = NamespaceDut::links(lab, dut, &SPEC, ports, version)?;
        let routes = router::routes(ports);
        router.configuration(work_dir, "frr.conf", &kinds::render(TEMPLATE, &dut.name, &routes)?)?;
        let socket = state.join("zserv.api");
        let start = |name: &str, program: &Path, config: &Path, router: &mut NamespaceDut| {
            let mut command = router.netns().command(program);
            command.args(["-u", "root", "-g", "root", "-P", "0", "--log", "stdout", "--log-level", "informational"]);
            command.arg("-f").arg(config).arg("-z").arg(&socket).arg("--vty_socket").arg(&state);
            command.arg("-i").arg(state.join(format!("{name}.pid")));
            router.daemon(name, command, work_dir)
        };
        start("zebra", &zebra, Path::new("/dev/null"), &mut router)?;
        // staticd that finds zebra not listening tries again only ten seconds later.
        router.wait(stop, |_| Ok(UnixStream::connect(&socket).err().map(|e| format!("zebra does not listen: {e}"))))?;
        start("staticd", &staticd, &work_dir.join("frr.conf"), &mut router)?;
        router.ready(&routes, stop)
    }
}

/// Gives FRR an empty /etc/frr, so that the host's configuration has no say, and groups that exist in every user
/// namespace. Once per lab; only the lab sees it.
fn own_surroundings(state: &Path) -> Result<(), LabError> {
    let group = state.join("group");
    if group.exists() {
        return Ok(());
    }
    mounts::empty_over(Path::new("/etc/frr"))?;
    let path = Path::new("/etc/group");
    let text = fs::read_to_string(path).map_err(LabError::file("read", path))?;
    fs::write(&group, with_groups(&text)).map_err(LabError::file("write", &group))?;
    mounts::show_at(&group, path)
}

/// A group file in which FRR's groups are root's: the only group that a user namespace of one user has.
fn with_groups(text: &str) -> String {
    let foreign = |line: &&str| !GROUPS.iter().any(|g| line.strip_prefix(g).is_some_and(|rest| rest.starts_with(':')));
    let mut lines: Vec<String> = text.lines().filter(foreign).map(str::to_owned).collect();
    lines.extend(GROUPS.iter().map(|g| format!("{g}:x:0:root")));
    lines.join("\n") + "\n"
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::kinds::tests_support::two_ports;

    #[test]
    fn the_configuration_holds_every_route() {
        let text = kinds::render(TEMPLATE, "frr", &router::routes(&two_ports())).unwrap();
        for line in ["ip route 198.18.64.0/18 198.18.1.2 d0", "ipv6 route 2001:2:0:8000::/50 2001:2::2 d0"] {
            assert!(text.lines().any(|l| l == line), "{line} in\n{text}");
        }
        assert_eq!(text.lines().filter(|l| l.starts_with("ip route") || l.starts_with("ipv6 route")).count(), 4);
    }

    #[test]
    fn groups_are_replaced_not_doubled() {
        let text = with_groups("root:x:0:\nfrrvty:x:110:frr\nfrrother:x:9:\n");
        assert_eq!(text, "root:x:0:\nfrrother:x:9:\nfrr:x:0:root\nfrrvty:x:0:root\n");
    }
}
