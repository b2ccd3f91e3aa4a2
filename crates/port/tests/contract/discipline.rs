//! Whether frames pass through the queueing discipline of a veth link or bypass it.

use crate::{Bench, Checked, check, ethtool, frame, send};
use std::process::Command;

const FRAMES: u64 = 1_000;

fn tc(args: &[&str]) -> Result<Vec<u8>, String> {
    let output = Command::new("tc").args(args).output().map_err(|e| e.to_string())?;
    check(output.status.success(), || format!("tc {args:?}: {}", String::from_utf8_lossy(&output.stderr)))?;
    Ok(output.stdout)
}

/// Frames that passed the disciplines of `interface`.
fn passed(interface: &str) -> Result<u64, String> {
    let all = tc(&["-s", "-j", "qdisc", "show", "dev", interface])?;
    let all: Vec<serde_json::Value> = serde_json::from_slice(&all).map_err(|e| e.to_string())?;
    Ok(all.iter().filter_map(|one| one["packets"].as_u64()).sum())
}

/// Packet sockets, which `live_frames` uses as well, use the input queue of the router behind the link. They bypass it if it
/// would spread the frames of a flow over more queues than the port has.
pub fn through(bench: &Bench) -> Checked {
    let add = |interface: &str| tc(&["qdisc", "add", "dev", interface, "root", "pfifo", "limit", "2048"]).map(drop);
    let through = if bench.name == "af_xdp" { 0 } else { FRAMES };
    add("t0")?;
    bench.ip(&["link add m0 numtxqueues 2 numrxqueues 2 type veth peer name m1 numtxqueues 2 numrxqueues 2"])?;
    bench.ip(&["link set m0 up", "link set m1 up"])?;
    // The link accepts frames that the kernel generates only with this setting.
    ["m0", "m1"].into_iter().try_for_each(|end| ethtool(end, &["gro", "on"]))?;
    add("m0")?;
    for (from, to, wanted) in [("t0", "t1", through), ("m0", "m1", 0)] {
        let before = passed(from)?;
        let mut ports = [bench.port(from)?, bench.port(to)?];
        // Frames that the kernel itself sends when a link comes up pass through the discipline as well.
        let own = passed(from)? - before;
        let accepted = send(&mut ports, 0, &mut frame(false, 60, 3, 0), FRAMES, |_| Ok(()))?;
        let passed = passed(from)? - before;
        check((wanted..=wanted + own + 9).contains(&passed) && accepted == FRAMES, || {
            format!("{from}: {passed} of {FRAMES} frames passed the discipline, {wanted} ought to; {accepted} accepted")
        })?;
    }
    bench.ip(&["link delete m0"])
}
