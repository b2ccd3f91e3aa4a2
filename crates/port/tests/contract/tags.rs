//! A VLAN tag is part of the frame, whether the kernel has removed it on the way or the sender has left it to the interface.

use super::{Bench, Checked, check, ethtool, frame, take_all};
use drophammer_port::Port;
use drophammer_port::af_packet::AfPacket;
use drophammer_port::tap::Tap;
use std::process::Command;

/// Tags of IEEE 802.1Q and IEEE 802.1ad, with priority and drop eligibility.
const CUSTOMER: [u8; 4] = [0x81, 0x00, 0xb0, 0x64];
const SERVICE: [u8; 4] = [0x88, 0xa8, 0x70, 0xc8];
/// A priority tag: VLAN 0.
const PRIORITY: [u8; 4] = [0x81, 0x00, 0xe0, 0x00];
/// The full-size frame without tag.
const FULL: usize = 1_514;

/// `frame` with `tags` after its addresses.
fn tagged(frame: &[u8], tags: &[[u8; 4]]) -> Vec<u8> {
    [&frame[..12], &tags.concat(), &frame[12..]].concat()
}

/// Frames of many lengths and tags, alternately tagged and untagged. The kernel accepts frames of MTU and header, plus one IEEE 802.1Q
/// tag.
fn burst() -> Vec<Vec<u8>> {
    let stacks: [&[[u8; 4]]; 8] = [
        &[],
        &[CUSTOMER],
        &[SERVICE, CUSTOMER],
        &[],
        &[PRIORITY],
        &[CUSTOMER, CUSTOMER],
        &[SERVICE],
        &[SERVICE, SERVICE, CUSTOMER],
    ];
    let mut frames = Vec::new();
    for (i, tags) in stacks.iter().enumerate() {
        let more = if tags.first().is_some_and(|t| *t != SERVICE) { 4 } else { 0 };
        for (ipv6, len) in [(false, 60), (true, 78), (false, 600), (true, FULL + more - 4 * tags.len())] {
            frames.push(tagged(&frame(ipv6, len, 3, i as u64), tags));
        }
    }
    frames
}

/// Checks that every frame that one port sends arrives unchanged at the other.
fn pass(bench: &Bench, from: &mut dyn Port, to: &mut dyn Port, frames: &[Vec<u8>], what: &str) -> Checked {
    frames.iter().enumerate().for_each(|(i, f)| from.slots().put(i, f));
    let sent = from.send(frames.len()).map_err(|e| format!("{what}: {e}"))?;
    check(sent.accepted as usize == frames.len(), || format!("{what}: {sent:?}"))?;
    // A backend with two receive paths keeps the order within each.
    let (mut came, mut wanted) = (Vec::new(), frames.to_vec());
    take_all(&bench.clock, to, |_, frame| {
        came.push(frame.to_vec());
        Ok(())
    })?;
    if bench.name == "af_xdp" {
        came.sort();
        wanted.sort();
    }
    for (i, (came, wanted)) in came.iter().zip(&wanted).enumerate() {
        let head = |f: &[u8]| format!("{} bytes, {:02x?}", f.len(), &f[..f.len().min(24)]);
        check(came == wanted, || format!("{what}: frame {i} was {}, is {}", head(wanted), head(came)))?;
    }
    check(came.len() == wanted.len(), || format!("{what}: {} of {} frames came", came.len(), wanted.len()))
}

fn features(interface: &str, on: bool) -> Checked {
    let on = if on { "on" } else { "off" };
    ethtool(interface, &["txvlan", on, "tx-vlan-stag-hw-insert", on])
}

/// Over the veth pair, and from it through the kernel, which keeps the outer tag apart from the frame, on to another veth pair and to a
/// tap.
pub fn tags(bench: &Bench) -> Checked {
    let mut ports = bench.pair()?;
    let [near, far] = &mut ports;
    for (on, what) in [(true, "veth, tags left to the interface"), (false, "veth")] {
        features("t0", on)?;
        pass(bench, near.as_mut(), far.as_mut(), &burst(), what)?;
        pass(bench, far.as_mut(), near.as_mut(), &burst(), what)?;
    }
    drop(ports);
    if bench.name != "af_packet" {
        return Ok(());
    }
    longest(bench)?;
    let made = redirected(bench);
    let removed = bench.ip(&["link delete t2"]);
    made.and(removed)
}

/// A full-size frame leaves with one tag, and with two if the MTU has room for the second; otherwise the error gives the
/// reason.
fn longest(bench: &Bench) -> Checked {
    let plain = frame(false, FULL, 3, 0);
    let (one, two) = (tagged(&plain, &[CUSTOMER]), tagged(&plain, &[SERVICE, CUSTOMER]));
    let mut ports = bench.pair()?;
    let [near, far] = &mut ports;
    pass(bench, near.as_mut(), far.as_mut(), &[plain, one.clone()], "full size")?;
    for (i, frame) in [&one, &two].iter().enumerate() {
        near.slots().put(i, frame);
    }
    let told = near.send(2).map_err(|e| e.to_string());
    check(told.as_ref().is_err_and(|e| e.contains("1522 bytes") && e.contains("ip link set t0 mtu 1508")), || {
        format!("too long for the MTU: {told:?}")
    })?;
    drop(ports);
    bench.ip(&["link set t0 mtu 1508", "link set t1 mtu 1508"])?;
    let mut ports = bench.pair()?;
    let [near, far] = &mut ports;
    pass(bench, near.as_mut(), far.as_mut(), &[one, two], "full size and two tags")?;
    bench.ip(&["link set t0 mtu 1500", "link set t1 mtu 1500"])
}

fn redirected(bench: &Bench) -> Checked {
    bench.ip(&[
        "link add t2 type veth peer name t3",
        "link set t2 arp off multicast off addrgenmode none up",
        "link set t3 arp off multicast off addrgenmode none up",
    ])?;
    let mut near = bench.port("t0")?;
    let mut far = bench.port("t3")?;
    redirect("t1", "t2")?;
    for (on, what) in [(true, "redirected, tags left to the interface"), (false, "redirected, tags in the frame")] {
        features("t2", on)?;
        pass(bench, near.as_mut(), far.as_mut(), &burst(), what)?;
    }
    let mut tap = Tap::create("p0", 1_500, bench.clock).map_err(|e| e.to_string())?;
    bench.ip(&["link set p0 arp off multicast off addrgenmode none up"])?;
    redirect("t1", "p0")?;
    for (on, what) in [(true, "tap, tags left to the interface"), (false, "tap, tags in the frame")] {
        features("p0", on)?;
        pass(bench, near.as_mut(), &mut tap, &burst(), what)?;
    }
    let mut own = AfPacket::open("p0", bench.clock).map_err(|e| e.to_string())?;
    pass(bench, &mut tap, &mut own, &burst(), "out of the tap")?;
    pass(bench, &mut own, &mut tap, &burst(), "into the tap")
}

/// Redirects all frames received at one interface to the other; before that the kernel has removed their tag.
fn redirect(from: &str, to: &str) -> Checked {
    let _ = Command::new("tc").args(["qdisc", "del", "dev", from, "clsact"]).output();
    let filter =
        format!("filter add dev {from} ingress protocol all u32 match u32 0 0 action mirred egress redirect dev {to}");
    for line in [format!("qdisc add dev {from} clsact"), filter] {
        let output = Command::new("tc").args(line.split(' ')).output().map_err(|e| format!("tc: {e}"))?;
        check(output.status.success(), || format!("tc {line}: {}", String::from_utf8_lossy(&output.stderr)))?;
    }
    Ok(())
}
