//! FRR and BIRD in a namespace of the lab.

use drophammer_lab::{Lab, Netns};
use std::fs::{self, File};
use std::os::unix::fs::PermissionsExt;
use std::os::unix::net::UnixStream;
use std::path::Path;
use std::process::{Child, Command, Stdio};
use std::time::{Duration, Instant};

fn text(e: impl std::fmt::Display) -> String {
    e.to_string()
}

/// Runs a program in the namespace, and returns what it prints.
pub fn output(netns: &Netns, program: &str, arguments: &[&str]) -> Result<String, String> {
    let done = netns.run(|| Command::new(program).args(arguments).output()).map_err(text)?.map_err(text)?;
    match done.status.success() {
        true => Ok(String::from_utf8_lossy(&done.stdout).into_owned()),
        false => Err(format!("{program} {arguments:?}: {}", String::from_utf8_lossy(&done.stderr))),
    }
}

/// A namespace with one link to the tester: 198.18.0.1/24 and 2001:2::1/64 on `d0`; the tester's end is `t0`.
pub fn link(lab: &Lab) -> Result<Netns, String> {
    let (netns, tester) = (lab.namespace("daemon").map_err(text)?, lab.tester().map_err(text)?);
    let here = [
        format!("link add t0 type veth peer name d0 netns {}", netns.path()),
        "link set t0 addrgenmode none".to_owned(),
        "link set t0 up".to_owned(),
    ];
    tester.ip(&here).map_err(text)?;
    let there = [
        "link set lo up",
        "link set d0 up",
        "address add 203.0.113.1/32 dev lo",
        "address add 198.18.0.1/24 dev d0",
        "address add 2001:2::1/64 dev d0 nodad",
    ];
    netns.ip(&there.map(str::to_owned)).map_err(text)?;
    // Otherwise the kernel leaves checksums to an interface that never computes them.
    output(&netns, "ethtool", &["-K", "d0", "tx", "off"])?;
    Ok(netns)
}

/// Number of routes through the device that OSPF has installed in the kernel.
pub fn routes(netns: &Netns, daemon: &str) -> Result<usize, String> {
    let protocol = if daemon == "frr" { "ospf" } else { "bird" };
    let all = output(netns, "ip", &["-4", "route", "show", "proto", protocol])?;
    Ok(all.lines().filter(|line| line.contains(" via 198.18.0.2 ")).count())
}

/// Running daemons. Dropping this value kills them.
pub struct Daemons(Vec<Child>);

impl Daemons {
    /// Kills the last daemon, so that it cannot end its sessions properly.
    pub fn kill_last(&mut self) -> Result<(), String> {
        let mut child = self.0.pop().ok_or("no daemon runs")?;
        child.kill().map_err(text)?;
        child.wait().map(|_| ()).map_err(text)
    }
}

impl Drop for Daemons {
    fn drop(&mut self) {
        while !self.0.is_empty() && self.kill_last().is_ok() {}
    }
}

/// Makes root a member of FRR's groups, which its daemons require. Only the lab sees it.
fn groups(folder: &Path) -> Result<(), String> {
    let own = folder.join("group");
    let with = |line: &str| match line.rsplit_once(':') {
        Some((group, _)) if line.starts_with("frr") => format!("{group}:root\n"),
        _ => format!("{line}\n"),
    };
    let all = fs::read_to_string("/etc/group").map_err(text)?;
    fs::write(&own, all.lines().map(with).collect::<String>()).map_err(text)?;
    let done = Command::new("mount").arg("--bind").arg(&own).arg("/etc/group").status().map_err(text)?;
    if done.success() { Ok(()) } else { Err("cannot mount a list of groups".into()) }
}

/// Starts a program of FRR (`ospfd`, `bfdd`) after zebra, or BIRD (`bird`), with this configuration.
pub fn start(netns: &Netns, program: &str, folder: &Path, config: &str) -> Result<Daemons, String> {
    let file = folder.join(format!("{program}.conf"));
    fs::write(&file, config).map_err(text)?;
    fs::set_permissions(&file, fs::Permissions::from_mode(0o600)).map_err(text)?;
    let path = |name: &str| folder.join(name).display().to_string();
    let file = file.display().to_string();
    let mut daemons = Daemons(Vec::new());
    let mut run = |program: &str, arguments: &[&str]| -> Result<(), String> {
        let log = File::create(folder.join("log")).map_err(text)?;
        let spawn = || {
            let both = [log.try_clone()?, log];
            let [out, err] = both.map(Stdio::from);
            Command::new(program).args(arguments).stdin(Stdio::null()).stdout(out).stderr(err).spawn()
        };
        let child = netns.run(spawn).map_err(text)?.map_err(|e| format!("{program}: {e}"))?;
        daemons.0.push(child);
        Ok(())
    };
    if program == "bird" {
        run("/usr/sbin/bird", &["-f", "-c", &file, "-s", &path("bird.ctl"), "-P", &path("bird.pid")])?;
        return Ok(daemons);
    }
    groups(folder)?;
    let (socket, folder_name) = (path("zserv.api"), folder.display().to_string());
    let common =
        ["-u", "root", "-g", "root", "-P", "0", "--log", "stdout", "-z", &socket, "--vty_socket", &folder_name];
    run("/usr/lib/frr/zebra", &[&common[..], &["-f", "/dev/null", "-i", &path("zebra.pid")]].concat())?;
    let begun = Instant::now();
    while UnixStream::connect(&socket).is_err() {
        if begun.elapsed() > Duration::from_secs(20) {
            return Err("zebra does not listen".into());
        }
        std::thread::yield_now();
    }
    let program_path = format!("/usr/lib/frr/{program}");
    let mut arguments = [&common[..], &["-f", &file, "-i"]].concat();
    let pid = path(&format!("{program}.pid"));
    arguments.push(&pid);
    let control = format!("unix:{}", path("bfdd.sock"));
    if program == "bfdd" {
        arguments.extend(["--bfdctl", &control[5..]]);
    }
    run(&program_path, &arguments)?;
    Ok(daemons)
}
