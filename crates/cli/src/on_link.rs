//! Addresses on a link, as given on the command line.

use drophammer_suite::is_lab_address;
use std::net::IpAddr;

/// Parses an address and the prefix length of its link: `198.18.1.2/24`.
pub fn with_length(text: &str) -> Option<(IpAddr, u8)> {
    let (address, length) = text.split_once('/')?;
    let address: IpAddr = address.parse().ok()?;
    let most = if address.is_ipv4() { 32 } else { 128 };
    let length = length.parse().ok().filter(|length| (1..=most).contains(length))?;
    Some((address, length))
}

/// Refuses public addresses.
pub fn refuse_public(address: IpAddr) -> Result<(), String> {
    if is_lab_address(address) || matches!(address, IpAddr::V6(address) if address.is_unicast_link_local()) {
        return Ok(());
    }
    Err(format!(
        "{address} is a public address; use addresses for benchmarks (198.18.0.0/15, 2001:2::/48), private \
         addresses, or addresses for documentation (RFC 6815)"
    ))
}

/// True if `other` is on the link of `address`.
pub fn holds(address: IpAddr, length: u8, other: IpAddr) -> bool {
    let same = |a: u128, b: u128, bits: u32| {
        let host = bits - u32::from(length);
        a.checked_shr(host).unwrap_or(0) == b.checked_shr(host).unwrap_or(0)
    };
    match (address, other) {
        (IpAddr::V4(a), IpAddr::V4(b)) => same(a.to_bits().into(), b.to_bits().into(), 32),
        (IpAddr::V6(a), IpAddr::V6(b)) => same(a.to_bits(), b.to_bits(), 128),
        _ => false,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn links_hold_their_addresses() {
        let on = |text: &str, other: &str| {
            let (address, length) = with_length(text).unwrap();
            holds(address, length, other.parse().unwrap())
        };
        assert!(on("198.18.1.2/24", "198.18.1.1") && !on("198.18.1.2/24", "198.18.2.1"));
        assert!(!on("198.18.1.2/1", "1.1.1.1") && on("2001:2::1/64", "2001:2::ffff"));
        assert!(!on("198.18.1.2/24", "2001:2::1"));
        for wrong in ["198.18.1.2", "198.18.1.2/0", "198.18.1.2/33", "2001:2::1/129", "x/24", "198.18.1.2/"] {
            assert_eq!(with_length(wrong), None, "{wrong}");
        }
    }

    #[test]
    fn public_addresses_are_refused() {
        assert!(
            refuse_public("192.0.2.1".parse().unwrap()).is_ok() && refuse_public("fe80::1".parse().unwrap()).is_ok()
        );
        assert!(refuse_public("8.8.8.8".parse().unwrap()).unwrap_err().contains("RFC 6815"));
    }
}
