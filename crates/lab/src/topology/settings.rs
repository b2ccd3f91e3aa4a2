//! Settings of the kernel in the namespaces of DUTs: key below `/proc/sys`, value.

/// Settings of the DUT's namespace: a router that sends nothing by itself beyond what routers must.
pub(crate) const ROUTER: [(&str, &str); 4] = [
    ("net/ipv4/ip_forward", "1"),
    ("net/ipv4/conf/all/forwarding", "1"),
    // The kernel uses the larger value of `all` and the interface's.
    ("net/ipv4/conf/all/rp_filter", "0"),
    ("net/ipv4/conf/default/rp_filter", "0"),
];

/// Settings of IPv4 interfaces, with the kernel's own values for `all` and for `default`. A new namespace has those of
/// the host, unless `net.core.devconf_inherit_init_net` says otherwise. The same suite would find different routers on
/// different hosts.
const KERNEL_DEFAULTS: [(&str, &str, &str); 14] = [
    // The kernel sets these two when forwarding is switched on, but not if the host forwards already.
    ("forwarding", "1", "1"),
    ("accept_redirects", "0", "1"),
    ("send_redirects", "1", "1"),
    ("secure_redirects", "1", "1"),
    ("shared_media", "1", "1"),
    ("accept_source_route", "0", "1"),
    ("accept_local", "0", "0"),
    ("route_localnet", "0", "0"),
    ("ignore_routes_with_linkdown", "0", "0"),
    ("log_martians", "0", "0"),
    ("arp_announce", "0", "0"),
    ("arp_filter", "0", "0"),
    ("arp_ignore", "0", "0"),
    ("proxy_arp", "0", "0"),
];

/// Settings of a router's namespace beside [`ROUTER_IPV6`].
pub(super) fn router_settings() -> Vec<(String, &'static str)> {
    let router = ROUTER.iter().map(|(key, value)| ((*key).to_owned(), *value));
    let defaults = KERNEL_DEFAULTS.iter().flat_map(|(key, all, default)| {
        [("all", *all), ("default", *default)].map(|(of, value)| (format!("net/ipv4/conf/{of}/{key}"), value))
    });
    router.chain(defaults).collect()
}

/// The same for IPv6, if the kernel has it.
pub(crate) const ROUTER_IPV6: [(&str, &str); 7] = [
    ("net/ipv6/conf/all/disable_ipv6", "0"),
    ("net/ipv6/conf/default/disable_ipv6", "0"),
    ("net/ipv6/conf/all/forwarding", "1"),
    ("net/ipv6/conf/default/accept_dad", "0"),
    ("net/ipv6/conf/default/accept_ra", "0"),
    ("net/ipv6/conf/default/autoconf", "0"),
    ("net/ipv6/conf/default/router_solicitations", "0"),
];

/// Settings of the namespace of a DUT that handles all packets itself: they keep the kernel out.
pub(super) const BARE_IPV6: [(&str, &str); 2] =
    [("net/ipv6/conf/all/disable_ipv6", "1"), ("net/ipv6/conf/default/disable_ipv6", "1")];

#[cfg(test)]
mod tests {
    use super::*;
    use std::collections::BTreeMap;

    #[test]
    fn a_router_has_no_interface_settings_of_the_host() {
        let settings = router_settings();
        let named: BTreeMap<&str, &str> = settings.iter().map(|(key, value)| (key.as_str(), *value)).collect();
        for key in [
            "accept_redirects",
            "accept_source_route",
            "arp_filter",
            "arp_ignore",
            "forwarding",
            "log_martians",
            "proxy_arp",
            "rp_filter",
            "send_redirects",
        ] {
            for of in ["all", "default"] {
                let path = format!("net/ipv4/conf/{of}/{key}");
                assert!(named.contains_key(path.as_str()), "{path}");
            }
        }
        // Forwarding is switched on first, and changes others.
        assert_eq!(settings.first().map(|(key, _)| key.as_str()), Some("net/ipv4/ip_forward"));
        assert_eq!(named.get("net/ipv4/conf/all/accept_redirects"), Some(&"0"));
        assert_eq!(named.get("net/ipv4/conf/all/send_redirects"), Some(&"1"));
    }
}
