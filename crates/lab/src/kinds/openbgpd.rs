//! OpenBGPD: only a control plane. On Linux it puts no routes into the kernel, which forwards by static routes.

use crate::environment::kernel_release;
use crate::namespace_dut::NamespaceDut;
use crate::{Dut, DutKind, LabError, Start, bgp, configuration, kinds, process, router};
use drophammer_model::capabilities::Capabilities;
use drophammer_model::registry::KindSpec;
use drophammer_model::role::RouterRole;
use drophammer_model::suite::DutConfig;
use std::fs;
use std::net::IpAddr;
use std::path::{Path, PathBuf};

static SPEC: KindSpec = KindSpec {
    name: "openbgpd",
    summary: "OpenBGPD in a network namespace, control plane only: its BGP routes do not reach the kernel, which forwards \
              by static routes",
    capabilities: Capabilities { bgp: true, bgp_protection: true, ..kinds::IN_NAMESPACE },
    needs: &[("bgpctl", "openbgpd"), ("ip", "iproute2"), ("ethtool", "ethtool")],
    params: kinds::CONTROL_PLANE_PARAMS,
};

const TEMPLATE: &str = include_str!("../../templates/openbgpd.conf.j2");

/// User that its processes run as. They confine themselves to the user's home (chroot).
const USER: &str = "_openbgpd";

/// Kind `openbgpd`.
pub struct OpenBgpd;

impl DutKind for OpenBgpd {
    fn spec(&self) -> &'static KindSpec {
        &SPEC
    }

    fn configuration(&self, dut: &DutConfig, role: &RouterRole) -> Result<Vec<(String, String)>, LabError> {
        let text = kinds::of_bgp_alone(TEMPLATE, dut, role)?;
        Ok(vec![router::routes_file(role), ("bgpd.conf".into(), text)])
    }

    fn start(&self, start: Start<'_>) -> Result<Box<dyn Dut>, LabError> {
        let Start { lab, dut, role, work_dir, stop } = start;
        // bgpd is not looked up by name: FRR has a program with the same name.
        let control = process::find("bgpctl", "openbgpd")?;
        let program = control.with_file_name("bgpd");
        if !lab.is_root() {
            return Err(LabError::forbidden(
                "OpenBGPD changes to its own user, which only root can do",
                "run as root, or leave the kind openbgpd out",
            ));
        }
        let told = process::version(process::command(&program, &lab.shared().mark), "-V")?;
        let version = format!("{told}, Linux {}", kernel_release());
        let cage = home(USER)?;
        fs::create_dir_all(&cage).map_err(LabError::file("create", &cage))?;
        let state = lab.shared().fresh_state(&dut.name)?;

        let mut router = NamespaceDut::with_links(lab, dut, &SPEC, role, version)?;
        let socket = state.join("bgpd.sock");
        let files = |role: &RouterRole| {
            let mut files = self.configuration(dut, role)?;
            files.iter_mut().for_each(|(_, text)| *text = text.replace("@SOCKET@", &socket.display().to_string()));
            Ok::<_, LabError>(files)
        };
        // Static routes to the networks behind the ports, as with all other kinds.
        router.add_routes()?;
        router.keep(work_dir, &state, role, &files)?;
        // OpenBGPD refuses a file that others may read.
        let config = state.join("bgpd.conf");
        let (_, text) = files(role)?.pop().expect("bgpd.conf is the last of its files");
        configuration::write_private(&config, &text)?;
        let mut command = router.netns().command(&program);
        command.arg("-d").arg("-f").arg(&config);
        router.daemon("bgpd", command, work_dir)?;
        // Without this, OpenBGPD refuses a peer for 30 s after its session has ended, then for 60 s, then for 120 s.
        let up = |peer: IpAddr| {
            let mut command = router.netns().command(&control);
            command.arg("-s").arg(&socket).args(["neighbor", &peer.to_string(), "up"]);
            command
        };
        router.after_sessions = role.peers().map(up).collect();
        router.session = Some(Box::new(move |router, peer| {
            let mut command = router.netns().command(&control);
            command.arg("-s").arg(&socket).args(["show", "neighbor", &peer.peer.to_string()]);
            let told = process::output(command, None).unwrap_or_default();
            bgp::session_down(peer, bgp::state_in(&told))
        }));
        router.with_agent(lab, dut, work_dir, stop)?;
        router.ready(stop)
    }
}

/// Home of a user on this machine.
fn home(user: &str) -> Result<PathBuf, LabError> {
    let path = Path::new("/etc/passwd");
    let text = fs::read_to_string(path).map_err(LabError::file("read", path))?;
    home_in(&text, user).ok_or_else(|| {
        LabError::unusable(
            format!("this machine has no user {user}"),
            "reinstall the package openbgpd, which creates the user",
        )
    })
}

/// The sixth field of the user's line in the text of `/etc/passwd`.
fn home_in(text: &str, user: &str) -> Option<PathBuf> {
    let mut fields = text.lines().map(|l| l.split(':')).find(|l| l.clone().next() == Some(user))?;
    fields.nth(5).filter(|h| h.starts_with('/')).map(PathBuf::from)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::kinds::tests_support::{one_internal_port, two_ports_with_bgp, two_protected_ports};

    #[test]
    fn the_configuration_holds_every_peer() {
        let text = configuration::render(TEMPLATE, "obgpd", &RouterRole::of(&two_ports_with_bgp(1000))).unwrap();
        assert_eq!(text.matches("\tneighbor ").count(), 4000);
        assert_eq!(text.matches("announce IPv6 unicast").count(), 2);
        for line in ["AS 65000", "\tlocal-address 2001:2:0:1::1", "\tneighbor 198.19.1.2", "holdtime 90"] {
            assert!(text.lines().any(|l| l == line), "{line}");
        }
    }

    #[test]
    fn internal_peers_are_clients() {
        for own in [false, true] {
            let ports = one_internal_port(own);
            let text = configuration::render(TEMPLATE, "obgpd", &RouterRole::of(&ports)).unwrap();
            assert_eq!(text.matches("\troute-reflector\n").count(), 2);
            let rule = "match to group \"p0_ipv6\" peer-as 65002 set nexthop self";
            assert_eq!(text.lines().filter(|l| *l == rule).count(), usize::from(own));
            assert_eq!(text.matches("set nexthop self").count(), if own { 2 } else { 0 });
        }
    }

    #[test]
    fn sessions_are_protected_and_kept_files_do_not_show_the_key() {
        let role = RouterRole::of(&two_protected_ports());
        let text = configuration::render(TEMPLATE, "obgpd", &role).unwrap();
        assert_eq!(text.matches("\ttcp md5sig password \"sesame\"\n").count(), 4);
        assert_eq!(text.matches("\tttl-security yes\n").count(), 4);
        assert!(!text.contains("local-address"), "with one its listening sockets get no key: {text}");
        let kept = configuration::render(TEMPLATE, "obgpd", &role.without_secrets()).unwrap();
        assert!(!kept.contains("sesame") && kept.contains("password \"<secret>\"\n"), "{kept}");
    }

    #[test]
    fn homes_are_the_sixth_field() {
        let text =
            "root:x:0:0:root:/root:/bin/sh\n_openbgpdx:x:1:1::/x:/y\n_openbgpd:x:9:9:Daemon:/run/openbgpd:/bin/false\n";
        assert_eq!(home_in(text, "_openbgpd"), Some("/run/openbgpd".into()));
        assert_eq!((home_in(text, "bgpd"), home_in("a:x:1:1:", "a")), (None, None));
    }
}
