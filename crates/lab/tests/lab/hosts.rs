//! Hosts at both ends of a DUT, played by the kernel, and datagrams between them.

use super::ensure;
use drophammer_lab::Netns;
use std::fs;
use std::net::{IpAddr, UdpSocket};
use std::path::Path;
use std::time::Duration;

/// Lets the kernel play the hosts behind t0 (in `near`) and t1 (in `far`). A veth end is moved to `far`. A tap stays, with a
/// bridge to `far`: moving it would take it down for a moment, and the driver of a guest that sends in that moment gives up
/// its interface for good.
pub fn kernel_hosts(near: &Netns, far: &Netns) -> Result<(), drophammer_lab::LabError> {
    near.run(|| fs::write("/proc/sys/net/ipv6/conf/t0/disable_ipv6", "0").unwrap())?;
    let path = far.path();
    match is_tap("t1") {
        true => near.ip(&lines(&[
            "link add bridge type bridge mcast_snooping 0",
            &format!("link add far mtu 9000 type veth peer name t1 mtu 9000 netns {path}"),
            "link set far master bridge up",
            "link set t1 master bridge",
            "link set bridge up",
        ]))?,
        false => near.ip(&lines(&[&format!("link set t1 netns {path}")]))?,
    }
    near.ip(&lines(&[
        "link set t0 arp on multicast on up",
        "address add 198.18.1.2/24 dev t0",
        "address add 198.18.64.7/32 dev t0",
        "address add 2001:2::2/64 dev t0 nodad",
        "address add 2001:2:0:8000::7/128 dev t0 nodad",
        "route add 198.19.64.0/18 via 198.18.1.1",
        "route add 2001:2:0:c000::/50 via 2001:2::1",
    ]))?;
    far.run(|| fs::write("/proc/sys/net/ipv6/conf/t1/disable_ipv6", "0").unwrap())?;
    far.ip(&lines(&[
        "link set t1 arp on multicast on up",
        "address add 198.19.1.2/24 dev t1",
        "address add 198.19.64.9/32 dev t1",
        "address add 2001:2:0:1::2/64 dev t1 nodad",
        "address add 2001:2:0:c000::9/128 dev t1 nodad",
        "route add 198.18.64.0/18 via 198.19.1.1",
        "route add 2001:2:0:8000::/50 via 2001:2:0:1::1",
    ]))
}

/// True if this interface of the tester is a tap.
pub fn is_tap(name: &str) -> bool {
    Path::new(&format!("/sys/class/net/{name}/tun_flags")).exists()
}

fn lines(text: &[&str]) -> Vec<String> {
    text.iter().map(|l| (*l).to_owned()).collect()
}

/// Datagrams in each direction.
pub const ROUNDS: u64 = 5000;

/// Sends datagrams from `from` to `to` and back, and waits for each. Sends lost ones again: the moved link was down for a
/// moment, and a routing daemon, which learns this late, withdraws its routes until it learns that the link is back.
/// Returns the number of datagrams sent again.
pub fn exchange(near: &Netns, far: &Netns, from: IpAddr, to: IpAddr) -> Result<u64, String> {
    let socket = |ns: &Netns, address: IpAddr| -> Result<UdpSocket, String> {
        let socket =
            ns.run(|| UdpSocket::bind((address, 4000))).map_err(|e| e.to_string())?.map_err(|e| e.to_string())?;
        socket.set_read_timeout(Some(Duration::from_secs(1))).map_err(|e| e.to_string())?;
        Ok(socket)
    };
    let (a, b) = (socket(near, from)?, socket(far, to)?);
    let mut bytes = [0; 8];
    let mut again = 0;
    for round in 0..ROUNDS {
        for (sender, receiver, target) in [(&a, &b, to), (&b, &a, from)] {
            let arrived = (0..10).find_map(|attempt| {
                // A router without a route sends an ICMP error, which the next call on the socket returns.
                sender.send_to(&round.to_be_bytes(), (target, 4000)).ok()?;
                again += u64::from(attempt > 0);
                // A datagram that seemed lost may still arrive, before its successors.
                let mut next = || receiver.recv_from(&mut bytes).ok().map(|(n, _)| (n, u64::from_be_bytes(bytes)));
                let mut found = next()?;
                for _ in 0..again {
                    if found.1 < round {
                        found = next()?;
                    }
                }
                Some(found)
            });
            let (n, arrived) = arrived.ok_or(format!("nothing forwarded to {target}"))?;
            ensure(n == 8 && arrived == round, &format!("datagram {round} itself arrives at {target}, not {arrived}"))?;
        }
    }
    Ok(again)
}
