//! BIRD 2 with static routes, BGP, OSPF and BFD. It exports routes to the kernel, which forwards.

use crate::environment::kernel_release;
use crate::namespace_dut::NamespaceDut;
use crate::{Dut, DutKind, LabError, Start, bgp, configuration, kinds, process};
use drophammer_model::capabilities::{Capabilities, INSTALL_ROUTES};
use drophammer_model::label_edge::CoreProtocol;
use drophammer_model::registry::KindSpec;
use drophammer_model::role::RouterRole;
use drophammer_model::suite::DutConfig;

static SPEC: KindSpec = KindSpec {
    name: "bird",
    summary: "BIRD 2 in a network namespace: static routes, BGP and OSPF into the kernel's table",
    capabilities: Capabilities {
        bgp: true,
        bgp_forwarding: true,
        bgp_protection: true,
        label_reflection: true,
        core: &[CoreProtocol::Ospf, CoreProtocol::Bfd],
        ..kinds::IN_NAMESPACE
    },
    needs: &[("bird", "bird2"), ("ip", "iproute2"), ("ethtool", "ethtool")],
    params: kinds::ROUTING_PARAMS,
};

pub(crate) const TEMPLATE: &str = include_str!("../../templates/bird.conf.j2");

/// The line of the template, one per address family, that exports routes to the kernel.
const EXPORT: &str = "export all;";

/// Kind `bird`.
pub struct Bird;

impl DutKind for Bird {
    fn spec(&self) -> &'static KindSpec {
        &SPEC
    }

    fn configuration(&self, dut: &DutConfig, role: &RouterRole) -> Result<Vec<(String, String)>, LabError> {
        let installs = INSTALL_ROUTES.find(&dut.params) != Some(false);
        let text = match configuration::own(dut, role)? {
            // In the user's configuration, only the user knows what each protocol exports.
            Some(_) if !installs => {
                return Err(LabError::unusable(
                    format!("`{}` has `install_routes: false` and its own configuration", dut.name),
                    "leave `install_routes` out, and export no BGP routes to the kernel in that configuration",
                ));
            }
            Some(text) => text,
            None if installs => configuration::render(TEMPLATE, &dut.name, role)?,
            None => {
                let export = "export where source != RTS_BGP;";
                configuration::render(TEMPLATE, &dut.name, role)?.replacen(EXPORT, export, 2)
            }
        };
        Ok(vec![("bird.conf".into(), text)])
    }

    fn start(&self, start: Start<'_>) -> Result<Box<dyn Dut>, LabError> {
        let Start { lab, dut, role, work_dir, stop } = start;
        let program = process::find("bird", "bird2")?;
        let control = process::find("birdc", "bird2")?;
        let told = process::version(process::command(&program, &lab.shared().mark), "--version")?;
        let version = format!("{}, Linux {}", told.replace("BIRD version", "BIRD"), kernel_release());

        let mut router = NamespaceDut::with_links(lab, dut, &SPEC, role, version)?;
        let state = lab.shared().fresh_state(&dut.name)?;
        let configs = router.keep(work_dir, &state, role, &|role| self.configuration(dut, role))?;
        if configuration::is_own(dut) {
            router.routes_of_the_user();
        }
        let mut command = router.netns().command(&program);
        command.arg("-f").arg("-c").arg(configs.join("bird.conf"));
        let socket = state.join("bird.ctl");
        command.arg("-s").arg(&socket).arg("-P").arg(state.join("bird.pid"));
        router.daemon("bird", command, work_dir)?;
        router.session = Some(Box::new(move |router, peer| {
            let mut command = router.netns().command(&control);
            command.arg("-r").arg("-s").arg(&socket).args(["show", "protocols", &bgp::core_name(peer)]);
            let told = process::output(command, None).unwrap_or_default();
            bgp::session_down(peer, told.split_whitespace().next_back())
        }));
        router.with_agent(lab, dut, work_dir, stop)?;
        router.ready(stop)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::kinds::tests_support::{
        dut, edge_ports, one_internal_port, reflector, two_ports, two_ports_with_bgp, two_protected_ports,
    };
    use drophammer_model::routes::RouteKind;

    #[test]
    fn the_configuration_holds_every_route() {
        let text = configuration::render(TEMPLATE, "bird", &RouterRole::of(&two_ports())).unwrap();
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
        let text = configuration::render(TEMPLATE, "bird", &RouterRole::of(&ports)).unwrap();
        assert_eq!(text.matches("protocol bgp p").count(), 4000);
        for line in ["local 198.19.1.1 as 65000;", "neighbor 198.19.1.2 as 65002;", "neighbor 2001:2::3e9 as 65001;"] {
            assert!(text.contains(line), "{line}");
        }
        assert!(!text.contains("rr client"), "all are external");
    }

    #[test]
    fn core_links_speak_ospf_and_bfd() {
        let text = |core: &[CoreProtocol]| {
            configuration::render(TEMPLATE, "bird", &RouterRole::of(&edge_ports(core, 0))).unwrap()
        };
        let (with, without) = (text(&[CoreProtocol::Ospf, CoreProtocol::Bfd]), text(&[CoreProtocol::Ospf]));
        let link = "\t\tinterface \"d0\" {\n\t\t\ttype ptp;\n\t\t\thello 1;\n\t\t\tdead 4;\n\t\t\tretransmit 2;\n\t\t\tbfd;\n\t\t};\n";
        assert!(with.contains(link) && with.contains("interface \"lo\" { stub; };"), "{with}");
        assert!(with.contains("router id 100.127.255.1;") && with.contains("protocol bfd {"), "{with}");
        assert!(without.contains("protocol ospf v2 core {") && !without.contains("bfd"), "{without}");
    }

    #[test]
    fn without_installation_the_kernel_gets_static_routes_alone() {
        let role = RouterRole::of(&two_ports_with_bgp(1));
        let text = |install: bool| {
            let mut dut = dut("bird", "bird", Default::default());
            INSTALL_ROUTES.set(&mut dut.params, install);
            Bird.configuration(&dut, &role).unwrap().remove(0).1
        };
        let (with, without) = (text(true), text(false));
        assert_eq!((with.matches(EXPORT).count(), with.matches("!= RTS_BGP").count()), (2, 0));
        assert_eq!(
            (without.matches(EXPORT).count(), without.matches("export where source != RTS_BGP;").count()),
            (0, 2)
        );
        assert_eq!(without.matches("export where source = RTS_BGP;").count(), 4, "the peers get the same");
    }

    #[test]
    fn sessions_are_protected_and_kept_files_do_not_show_the_key() {
        let role = RouterRole::of(&two_protected_ports());
        let text = configuration::render(TEMPLATE, "bird", &role).unwrap();
        assert_eq!(text.matches("\tpassword \"sesame\";\n").count(), 4);
        assert_eq!(text.matches("\tttl security on;\n").count(), 4);
        let kept = configuration::render(TEMPLATE, "bird", &role.without_secrets()).unwrap();
        assert!(!kept.contains("sesame") && kept.contains("password \"<secret>\";"), "{kept}");
    }

    #[test]
    fn routes_with_labels_have_channels_and_tables_of_their_own() {
        for (routes, channel) in [(RouteKind::Labelled, "ipv"), (RouteKind::Vpn, "vpn")] {
            let text = configuration::render(TEMPLATE, "bird", &reflector(routes)).unwrap();
            for version in [4, 6] {
                let channel = format!("{channel}{version}");
                let channels = format!("\t{channel} mpls {{\n\t\ttable labelled_ipv{version};\n\t\timport all;\n");
                assert_eq!(text.matches(&channels).count(), 2, "{text}");
                assert_eq!(text.matches(&format!("\n{channel} table labelled_ipv{version};\n")).count(), 1, "{text}");
            }
        }
        let text = configuration::render(TEMPLATE, "bird", &reflector(RouteKind::Unicast)).unwrap();
        assert!(!text.contains("mpls") && !text.contains("labelled"), "{text}");
    }

    #[test]
    fn internal_peers_are_clients() {
        for own in [false, true] {
            let ports = one_internal_port(own);
            let text = configuration::render(TEMPLATE, "bird", &RouterRole::of(&ports)).unwrap();
            assert_eq!((text.matches("rr client;").count(), text.matches("direct;").count()), (2, 2));
            assert_eq!(text.matches("next hop self ebgp;").count(), if own { 2 } else { 0 });
            assert!(text.contains("neighbor 198.18.1.2 as 65000;") && text.contains("neighbor 198.19.1.2 as 65002;"));
        }
    }
}
