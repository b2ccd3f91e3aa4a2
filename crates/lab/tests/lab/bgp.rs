//! Kinds that speak BGP, with a BIRD as the peer on both sides: the peer behind t0 announces routes, and the peer behind t1
//! must receive them.
//!
//! `DROPHAMMER_ROUTES=1000000,500000` announces that many IPv4 and IPv6 routes instead of 1,000 of each. Only then are
//! the printed numbers measurements.

use super::hosts::kernel_hosts;
use super::ports_with_bgp::with_bgp;
use super::{Checked, cpu_time, ensure, kill_ours, memory_of, up_with};
use drophammer_lab::{Dut, Lab, Netns};
use drophammer_model::trial::Family;
use std::fmt::Write as _;
use std::fs;
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};
use std::time::{Duration, Instant};

/// Number of routes to announce, IPv4 and IPv6.
fn counts() -> (u32, u32) {
    let given = std::env::var("DROPHAMMER_ROUTES").ok();
    let given = given.as_deref().and_then(|t| t.split_once(',')).map(|(a, b)| (a.parse().unwrap(), b.parse().unwrap()));
    given.unwrap_or((1000, 1000))
}

/// Waits until `look` succeeds; returns its last error after the limit. Spends at most a fifth of the time looking, because
/// counting a million routes takes processor time from the DUT.
pub fn await_that(limit: u64, mut look: impl FnMut() -> Checked) -> Checked {
    let start = Instant::now();
    loop {
        let begun = Instant::now();
        match look() {
            Err(e) if start.elapsed() > Duration::from_secs(limit) => return Err(format!("after {limit} s: {e}")),
            Err(_) => std::thread::sleep((begun.elapsed() * 4).max(Duration::from_millis(5))),
            Ok(()) => return Ok(()),
        }
    }
}

/// A BIRD on the tester's side of the DUT. Dropping it ends the process.
struct Peer<'a> {
    netns: &'a Netns,
    child: Child,
    socket: PathBuf,
}

impl Peer<'_> {
    /// Starts a BIRD in `netns` as a neighbour of the DUT, with these addresses and with routes that it announces once they
    /// are enabled.
    fn start<'a>(
        netns: &'a Netns,
        folder: &Path,
        asn: u32,
        sessions: [(&str, &str); 2],
        routes: (u32, u32),
    ) -> Result<Peer<'a>, String> {
        let mut text = format!("log stderr all;\nrouter id 198.18.255.{};\nprotocol device {{}}\n", asn - 65000);
        for ((local, dut), family) in sessions.iter().zip(["ipv4", "ipv6"]) {
            let _ = writeln!(
                text,
                "protocol bgp dut_{family} {{ local {local} as {asn}; neighbor {dut} as 65000; connect delay time 1; \
                 error wait time 1, 4; connect retry time 4; \
                 {family} {{ import all; export where source = RTS_STATIC; }}; }}"
            );
        }
        let _ = writeln!(text, "protocol static routes_ipv4 {{ disabled; ipv4;");
        for i in 0..routes.0 {
            let _ = writeln!(text, "route {}/24 blackhole;", std::net::Ipv4Addr::from(0x0100_0000 + (i << 8)));
        }
        let _ = writeln!(text, "}}\nprotocol static routes_ipv6 {{ disabled; ipv6;");
        for i in 0..u128::from(routes.1) {
            let _ = writeln!(text, "route {}/48 blackhole;", std::net::Ipv6Addr::from((0x2400 << 112) + (i << 80)));
        }
        text.push_str("}\n");
        let file = |end: &str| folder.join(format!("peer-{asn}.{end}"));
        let (config, socket) = (file("conf"), file("ctl"));
        fs::write(&config, text).map_err(|e| e.to_string())?;
        let log = fs::File::create(file("log")).map_err(|e| e.to_string())?;
        let child = netns
            .run(|| {
                let mut command = Command::new("/usr/sbin/bird");
                command.arg("-f").arg("-c").arg(&config).arg("-s").arg(&socket).arg("-P").arg(file("pid"));
                command.stdin(Stdio::null()).stderr(log).spawn()
            })
            .map_err(|e| e.to_string())?
            .map_err(|e| e.to_string())?;
        let peer = Peer { netns, child, socket };
        await_that(60, || ensure(peer.ask("show status").contains("Daemon is up"), "BIRD answers"))?;
        Ok(peer)
    }

    fn ask(&self, what: &str) -> String {
        let ask = || {
            let mut command = Command::new("/usr/sbin/birdc");
            command.arg("-s").arg(&self.socket).args(what.split(' ')).output()
        };
        self.netns.run(ask).unwrap().map(|o| String::from_utf8_lossy(&o.stdout).into_owned()).unwrap_or_default()
    }

    fn established(&self) -> Checked {
        let told = self.ask("show protocols");
        ensure(told.matches("Established").count() == 2, &format!("both sessions are established:\n{told}"))
    }

    /// Number of routes in a table that match the filter; all routes for an empty filter.
    fn holds(&self, table: &str, filter: &str) -> u64 {
        let told = self.ask(&format!("show route table {table} {filter} count"));
        let count = told.lines().find_map(|l| l.split_once(" of ")?.0.trim().parse().ok());
        count.unwrap_or(0)
    }
}

impl Drop for Peer<'_> {
    fn drop(&mut self) {
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}

/// Filter for routes that AS 65001 announced and the DUT, AS 65000, re-advertised.
const PASSED_ON: &str = "where bgp_path ~ [= 65000 65001 =]";

/// Routes go from peer to peer and into the kernel, and are withdrawn when the peer ends.
pub fn speaks(lab: &mut Lab, kind: &str, work: &Path) -> Checked {
    let text = |e: drophammer_lab::LabError| e.to_string();
    let into_kernel = !["openbgpd", "gobgp"].contains(&kind);
    let mut dut = up_with(lab, kind, work, &with_bgp(super::ports(), 1))?;
    let daemon = match kind {
        "bird" => "bird",
        "gobgp" => "gobgpd",
        _ => "bgpd",
    };
    // A guest is a single process here.
    let (ours, named) = if kind == "uml" { ("linux.uml", "uml") } else { (daemon, daemon) };
    let wanted = [counts().0, counts().1].map(u64::from);
    let fib = |dut: &mut Box<dyn Dut>| -> Result<[u64; 2], String> {
        let ask = |dut: &mut Box<dyn Dut>, f| dut.fib_routes(f).map_err(text)?.ok_or("no count of routes".to_owned());
        Ok([ask(dut, Family::Ipv4)?, ask(dut, Family::Ipv6)?])
    };
    let (far, near) = (lab.namespace("far").map_err(text)?, lab.tester().map_err(text)?);
    kernel_hosts(&near, &far).map_err(text)?;
    let sessions = [("198.18.1.2", "198.18.1.1"), ("2001:2::2", "2001:2::1")];
    let sender = Peer::start(&near, work, 65001, sessions, counts())?;
    let sessions = [("198.19.1.2", "198.19.1.1"), ("2001:2:0:1::2", "2001:2:0:1::1")];
    let receiver = Peer::start(&far, work, 65002, sessions, (0, 0))?;
    await_that(60, || sender.established().and_then(|()| receiver.established()))?;

    // The moved link was down for a moment; its routes are back once the numbers no longer change.
    let before = fib(&mut dut)?;
    let memory = |dut: &mut Box<dyn Dut>| {
        memory_of(dut.as_mut()).iter().find(|(n, _)| n == daemon).map_or(0, |(_, bytes)| *bytes)
    };
    ensure(memory(&mut dut) > 1_000_000, &format!("memory of {daemon}: {:?}", memory_of(dut.as_mut())))?;
    for (i, (table, family)) in [("master4", "ipv4"), ("master6", "ipv6")].into_iter().enumerate() {
        if wanted[i] == 0 {
            continue;
        }
        let cpu = cpu_time(dut.as_mut())?;
        let start = Instant::now();
        sender.ask(&format!("enable routes_{family}"));
        if into_kernel {
            await_that(300, || {
                let now = fib(&mut dut)?[i];
                ensure(
                    now == before[i] + wanted[i],
                    &format!("{family}: {now} routes in the kernel, {} before", before[i]),
                )
            })?;
            println!(
                "{kind}: {} {family} routes in the kernel after {:.2} s",
                wanted[i],
                start.elapsed().as_secs_f64()
            );
        }
        await_that(300, || {
            let (all, right) = (receiver.holds(table, ""), receiver.holds(table, PASSED_ON));
            ensure(
                (all, right) == (wanted[i], wanted[i]),
                &format!("{family}: {all} routes passed on, {right} of them right"),
            )
        })?;
        let cpu = cpu_time(dut.as_mut())?.saturating_sub(cpu);
        let took = start.elapsed().as_secs_f64();
        println!(
            "{kind}: {} {family} routes passed on after {took:.2} s, {:.2} s of processor",
            wanted[i],
            cpu.as_secs_f64()
        );
        println!("{kind}: memory {:?}", memory_of(dut.as_mut()));
    }
    let next_hops = [receiver.ask("show route table master4 all"), receiver.ask("show route table master6 all")];
    let right = ["BGP.next_hop: 198.19.1.1", "BGP.next_hop: 2001:2:0:1::1"];
    for ((told, address), _) in next_hops.iter().zip(right).zip(wanted).filter(|(_, wanted)| *wanted > 0) {
        let head: Vec<_> = told.lines().take(20).collect();
        ensure(told.contains(address), &format!("{address} in {}", head.join("\n")))?;
    }
    let asked = Instant::now();
    fib(&mut dut)?;
    println!("{kind}: counting the routes in the kernel takes {:.1} ms", asked.elapsed().as_secs_f64() * 1e3);
    if !into_kernel {
        ensure(fib(&mut dut)? == before, "routes of the control plane alone do not reach the kernel")?;
    }

    let start = Instant::now();
    drop(sender);
    await_that(300, || {
        let held = [receiver.holds("master4", ""), receiver.holds("master6", "")];
        ensure(held == [0, 0], &format!("{held:?} routes are still passed on"))?;
        let now = fib(&mut dut)?;
        ensure(now == before, &format!("{now:?} routes are still in the kernel, {before:?} before"))
    })?;
    println!("{kind}: withdrawn in {:.2} s", start.elapsed().as_secs_f64());
    dut.check().map_err(text)?;
    kill_ours(ours)?;
    await_that(30, || {
        let error = dut.check().err().map(|e| e.to_string()).unwrap_or_default();
        ensure(error.contains(named) && error.contains("signal: 9"), &format!("the dead daemon is noticed: {error}"))
    })?;
    drop(receiver);
    dut.take_down().map_err(text)
}

/// A router with 500 neighbours on each port and in each family, 2,000 in all, comes up and accepts the last of them.
pub fn many(lab: &mut Lab, kind: &str, work: &Path) -> Checked {
    let text = |e: drophammer_lab::LabError| e.to_string();
    let mut ports = super::ports();
    let wide = [("198.18.4.1", "198.18.4.2"), ("198.19.4.1", "198.19.4.2")];
    for (port, (dut, host)) in ports.iter_mut().zip(wide) {
        let ipv4 = port.ipv4.as_mut().unwrap();
        (ipv4.dut, ipv4.host, ipv4.prefix_len) = (dut.parse().unwrap(), host.parse().unwrap(), 22);
    }
    let dut = up_with(lab, kind, work, &with_bgp(ports, 500))?;
    let (far, near) = (lab.namespace("far").map_err(text)?, lab.tester().map_err(text)?);
    kernel_hosts(&near, &far).map_err(text)?;
    near.ip(&["address add 198.18.5.245/22 dev t0".into(), "address add 2001:2::1f5/64 dev t0 nodad".into()])
        .map_err(text)?;
    let last = [("198.18.5.245", "198.18.4.1"), ("2001:2::1f5", "2001:2::1")];
    let peer = Peer::start(&near, work, 65001, last, (0, 0))?;
    let start = Instant::now();
    await_that(60, || peer.established())?;
    ensure(start.elapsed() < Duration::from_secs(45), "it does not turn away who comes first")?;
    println!("{kind}: the last of 2,000 neighbours established after {:.2} s", start.elapsed().as_secs_f64());
    drop(peer);
    dut.take_down().map_err(text)
}

/// Unsupported configurations are refused with a remedy.
pub fn refused(lab: &mut Lab, work: &Path) -> Checked {
    let (ports, what, remedy) = match lab.is_root() {
        true => (super::ports(), "the suite has no `bgp:`", "add `bgp: {}`"),
        false => (with_bgp(super::ports(), 1), "which only root can do", "run as root"),
    };
    let error = up_with(lab, "openbgpd", work, &ports).err().ok_or("came up")?;
    ensure(error.contains(what) && error.contains(remedy), &error)
}
