//! The limit of the kernel's neighbour tables (ARP and Neighbor Discovery), which all namespaces share.

use drophammer_model::suite::PortConfig;
use drophammer_model::trial::Family;
use std::fs;

/// Limit of the neighbour tables for all namespaces together, by family. It is visible only in the host's own network
/// namespace.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Limits([Option<usize>; 2]);

const FAMILIES: [(Family, &str); 2] =
    [(Family::Ipv4, "net.ipv4.neigh.default.gc_thresh3"), (Family::Ipv6, "net.ipv6.neigh.default.gc_thresh3")];

impl Limits {
    /// Reads the limits in the network namespace of this process.
    pub(crate) fn read() -> Limits {
        Limits(FAMILIES.map(|(_, sysctl)| {
            fs::read_to_string(format!("/proc/sys/{}", sysctl.replace('.', "/"))).ok()?.trim().parse().ok()
        }))
    }

    /// See [`crate::Lab::too_many_neighbours`].
    pub(crate) fn exceeded(self, ports: &[PortConfig], duts: usize) -> Option<String> {
        FAMILIES.iter().zip(self.0).find_map(|((family, sysctl), limit)| {
            let links = ports.iter().flat_map(|p| p.peer_links()).filter(|link| link.family == *family);
            let routers: usize = links.map(|link| link.peers.len()).sum();
            beyond(*family, duts * routers, sysctl, limit?)
        })
    }
}

fn beyond(family: Family, routers: usize, sysctl: &str, limit: usize) -> Option<String> {
    (routers > limit).then(|| {
        format!(
            "{routers} emulated {family} routers would be up at the same time, but this machine's kernel keeps at most {limit} \
             neighbours in all namespaces together, so only about that many sessions can come up on a router that uses it; \
             set sysctl {sysctl}={}",
            (2 * routers).next_power_of_two()
        )
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_more_than_the_kernel_keeps_are_too_many() {
        let sysctl = "net.ipv4.neigh.default.gc_thresh3";
        assert_eq!(beyond(Family::Ipv4, 1_024, sysctl, 1_024), None);
        let warning = beyond(Family::Ipv4, 2_000, sysctl, 1_024).unwrap();
        assert!(
            warning.contains("2000 emulated") && warning.ends_with("sysctl net.ipv4.neigh.default.gc_thresh3=4096"),
            "{warning}"
        );
    }
}
