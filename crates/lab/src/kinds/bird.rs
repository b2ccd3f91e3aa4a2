//! BIRD 2 with static routes and BGP, exported to the kernel, which forwards.

use crate::dut::NamespaceDut;
use crate::environment::kernel_release;
use crate::{Dut, DutKind, Lab, LabError, kinds, process, router};
use drophammer_model::registry::{BGP, KindSpec};
use drophammer_model::suite::{DutConfig, PortConfig};
use std::path::Path;

static SPEC: KindSpec = KindSpec {
    name: "bird",
    summary: "BIRD 2 in a network namespace: static routes and BGP into the kernel's table",
    roles: &["ipv4-router", "ipv6-router", BGP],
    needs: &[("bird", "bird2"), ("ip", "iproute2"), ("ethtool", "ethtool")],
    params: &[],
    simulated: false,
};

const TEMPLATE: &str = include_str!("../../templates/bird.conf.j2");

/// Kind `bird`.
pub struct Bird;

impl DutKind for Bird {
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
        let program = process::find("bird", "bird2")?;
        let mut ask = process::command(&program, &lab.shared().mark);
        // It tells its version on the error stream.
        ask.arg("--version").stderr(std::process::Stdio::piped());
        let told = ask.output().map_err(LabError::io("cannot start bird"))?;
        let told = String::from_utf8_lossy(&told.stderr).trim().replace("BIRD version", "BIRD");
        let version = format!("{told}, Linux {}", kernel_release());

        let mut router = NamespaceDut::links(lab, dut, &SPEC, ports, version)?;
        let routes = router::routes(ports);
        router.configuration(work_dir, "bird.conf", &kinds::render(TEMPLATE, &dut.name, &routes, router.bgp())?)?;
        let state = lab.shared().fresh_state(&dut.name)?;
        let mut command = router.netns().command(&program);
        command.arg("-f").arg("-c").arg(work_dir.join("bird.conf"));
        command.arg("-s").arg(state.join("bird.ctl")).arg("-P").arg(state.join("bird.pid"));
        router.daemon("bird", command, work_dir)?;
        router.ready(&routes, stop)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::bgp::Speaker;
    use crate::kinds::tests_support::{one_internal_port, two_ports, two_ports_with_bgp};

    #[test]
    fn the_configuration_holds_every_route() {
        let text = kinds::render(TEMPLATE, "bird", &router::routes(&two_ports()), None).unwrap();
        for line in ["route 198.18.64.0/18 via 198.18.1.2;", "route 2001:2:0:8000::/50 via 2001:2::2;"] {
            assert!(text.contains(line), "{line} in\n{text}");
        }
        assert_eq!(text.matches("route 198.").count(), 2);
        assert_eq!(text.matches("route 2001:").count(), 2);
        assert!(!text.to_lowercase().contains("bgp"), "{text}");
    }

    #[test]
    fn the_configuration_holds_every_peer() {
        let ports = two_ports_with_bgp(1000);
        let text = kinds::render(TEMPLATE, "bird", &router::routes(&ports), Speaker::of(&ports).as_ref()).unwrap();
        assert_eq!(text.matches("protocol bgp p").count(), 4000);
        for line in ["local 198.19.1.1 as 65000;", "neighbor 198.19.1.2 as 65002;", "neighbor 2001:2::3e9 as 65001;"] {
            assert!(text.contains(line), "{line}");
        }
        assert!(!text.contains("rr client"), "all are external");
    }

    #[test]
    fn internal_peers_are_clients() {
        for own in [false, true] {
            let ports = one_internal_port(own);
            let text = kinds::render(TEMPLATE, "bird", &router::routes(&ports), Speaker::of(&ports).as_ref()).unwrap();
            assert_eq!((text.matches("rr client;").count(), text.matches("direct;").count()), (2, 2));
            assert_eq!(text.matches("next hop self ebgp;").count(), if own { 2 } else { 0 });
            assert!(text.contains("neighbor 198.18.1.2 as 65000;") && text.contains("neighbor 198.19.1.2 as 65002;"));
        }
    }
}
