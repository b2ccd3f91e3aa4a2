//! The kernel's tables of neighbours (ARP and Neighbor Discovery), which all namespaces share, and their limit.

use drophammer_model::suite::PortConfig;
use drophammer_model::trial::Family;
use std::fs;

/// In words, with a remedy, when the emulated routers of a suite are more than the kernel of a router in a namespace can have as
/// neighbours; the sessions of those for whom there is no room never come up. `None` when all fit, or when the limit
/// cannot be read: it is only shown in the host's own network namespace.
pub fn do_not_fit(ports: &[PortConfig]) -> Option<String> {
    [Family::Ipv4, Family::Ipv6].into_iter().find_map(|family| {
        let routers = ports.iter().map(|p| p.peers(family).len()).sum();
        let sysctl = match family {
            Family::Ipv4 => "net.ipv4.neigh.default.gc_thresh3",
            Family::Ipv6 => "net.ipv6.neigh.default.gc_thresh3",
        };
        let limit = fs::read_to_string(format!("/proc/sys/{}", sysctl.replace('.', "/"))).ok()?;
        beyond(family, routers, sysctl, limit.trim().parse().ok()?)
    })
}

fn beyond(family: Family, routers: usize, sysctl: &str, limit: usize) -> Option<String> {
    (routers > limit).then(|| {
        format!(
            "the suite has {routers} emulated {family} routers, but this machine's kernel keeps no more than {limit} neighbours \
             in all namespaces together: about so many sessions can come up on a router that uses it; remedy: \
             sysctl {sysctl}={}",
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
        let said = beyond(Family::Ipv4, 2_000, sysctl, 1_024).unwrap();
        assert!(
            said.contains("2000 emulated") && said.ends_with("sysctl net.ipv4.neigh.default.gc_thresh3=4096"),
            "{said}"
        );
    }
}
