//! Daemons in a namespace of the lab, with their own configurations.

use crate::freertr::{self, Bridge};
use drophammer_lab::{Lab, Netns};
use std::fs::{self, File};
use std::os::unix::fs::PermissionsExt;
use std::path::Path;
use std::process::{Child, Command, Stdio};
use std::time::{Duration, Instant};

/// Addresses of the daemon and of the routers on two links, IPv4 and IPv6.
pub const LINKS: [[[&str; 2]; 2]; 2] = [
    [["198.18.1.1", "198.18.1.2"], ["2001:2:0:1::1", "2001:2:0:1::2"]],
    [["198.19.1.1", "198.19.1.2"], ["2001:2:0:2::1", "2001:2:0:2::2"]],
];

/// Namespaces of the daemon and of the routers, with two links between them.
pub fn links(lab: &Lab) -> Result<[Netns; 2], String> {
    let text = |e: drophammer_lab::LabError| e.to_string();
    let (netns, routers) = (lab.namespace("daemon").map_err(text)?, lab.namespace("routers").map_err(text)?);
    let (mut here, mut there) = (Vec::new(), vec!["link set lo up".to_owned()]);
    for (i, families) in LINKS.iter().enumerate() {
        here.push(format!("link add t{i} type veth peer name d{i} netns {}", netns.path()));
        here.push(format!("link set t{i} up"));
        there.push(format!("link set d{i} up"));
        for [_, router] in families {
            let (length, nodad) = if router.contains(':') { (64, " nodad") } else { (24, "") };
            here.push(format!("address add {router}/{length} dev t{i}{nodad}"));
        }
    }
    routers.ip(&here).map_err(text)?;
    netns.ip(&there).map_err(text)?;
    // Otherwise the kernel leaves checksums to an interface that never computes them, and a daemon with its own network stack discards its segments.
    for i in 0..LINKS.len() {
        let done = || Command::new("ethtool").args(["-K", &format!("t{i}"), "tx", "off"]).output();
        let done = routers.run(done).map_err(text)?.map_err(|e| format!("ethtool: {e}"))?;
        if !done.status.success() {
            return Err(format!("ethtool: {}", String::from_utf8_lossy(&done.stderr)));
        }
    }
    Ok([netns, routers])
}

/// Gives the kernel the daemon's addresses, which another daemon may have taken away.
fn addresses(netns: &Netns) -> Result<(), String> {
    let line = |(link, address): (usize, &str)| match address.contains(':') {
        true => format!("address replace {address}/64 dev d{link} nodad"),
        false => format!("address replace {address}/24 dev d{link}"),
    };
    let all = LINKS.iter().enumerate().flat_map(|(link, families)| families.iter().map(move |[own, _]| (link, *own)));
    netns.ip(&all.map(line).collect::<Vec<_>>()).map_err(|e| e.to_string())
}

/// Makes root a member of FRR's groups, which its daemons require, and creates the folder to which OpenBGPD confines
/// itself. Only the lab sees either.
pub fn surroundings(folder: &Path) -> Result<(), String> {
    let text = |e: std::io::Error| e.to_string();
    let (groups, own) = (fs::read_to_string("/etc/group").map_err(text)?, folder.join("group"));
    let with = |line: &str| match line.rsplit_once(':') {
        Some((group, _)) if line.starts_with("frr") => format!("{group}:root\n"),
        _ => format!("{line}\n"),
    };
    fs::write(&own, groups.lines().map(with).collect::<String>()).map_err(text)?;
    let done = Command::new("mount").arg("--bind").arg(&own).arg("/etc/group").status().map_err(text)?;
    fs::create_dir_all("/run/openbgpd").map_err(text)?;
    if done.success() { Ok(()) } else { Err("cannot mount a list of groups".into()) }
}

/// Daemons that run; they end with this value.
pub struct Daemon {
    children: Vec<Child>,
    /// What carries frames to a daemon with its own network stack.
    bridge: Option<Bridge>,
    /// The version that it reports.
    pub version: String,
}

impl Drop for Daemon {
    fn drop(&mut self) {
        self.bridge = None;
        for child in &mut self.children {
            // OpenBGPD's parent ends its children when it is asked to end.
            let _ = Command::new("kill").arg(child.id().to_string()).status();
        }
        for child in &mut self.children {
            let begun = Instant::now();
            while matches!(child.try_wait(), Ok(None)) && begun.elapsed() < Duration::from_secs(5) {
                std::thread::sleep(Duration::from_millis(10));
            }
            let _ = child.kill();
            let _ = child.wait();
        }
    }
}

fn version(program: &str, flag: &str) -> Result<String, String> {
    let told = Command::new(program).arg(flag).output().map_err(|e| format!("{program}: {e}"))?;
    let text = [told.stdout, told.stderr].concat();
    let line = String::from_utf8_lossy(&text).lines().next().unwrap_or_default().to_owned();
    Ok(line.replace("BIRD version", "BIRD").replace("gobgpd version", "GoBGP").replace("bgpd version", "FRR"))
}

/// Starts `kind` (frr, bird, openbgpd, gobgp, freertr) with this configuration.
pub fn start(netns: &Netns, kind: &str, folder: &Path, config: &str) -> Result<Daemon, String> {
    let file = folder.join(format!("{kind}.conf"));
    fs::write(&file, config).map_err(|e| e.to_string())?;
    fs::set_permissions(&file, fs::Permissions::from_mode(0o600)).map_err(|e| e.to_string())?;
    let log = |name: &str| File::create(folder.join(format!("{name}.log"))).map_err(|e| e.to_string());
    let path = |name: &str| folder.join(name).display().to_string();
    let (file, dir) = (file.display().to_string(), folder.display().to_string());
    let mut daemon = Daemon { children: Vec::new(), bridge: None, version: String::new() };
    if kind == "freertr" {
        let (bridge, child) = freertr::start(netns, folder, config)?;
        return Ok(Daemon { children: vec![child], bridge: Some(bridge), version: "freeRtr".into() });
    }
    addresses(netns)?;
    let mut run = |program: &str, arguments: &[&str]| -> Result<(), String> {
        let name = program.rsplit('/').next().unwrap_or(program);
        let (out, err) = (log(name)?, log(&format!("{name}-errors"))?);
        let spawn = || {
            let mut command = Command::new(program);
            command.args(arguments).stdin(Stdio::null()).stdout(out).stderr(err);
            command.spawn()
        };
        let child = netns.run(spawn).map_err(|e| e.to_string())?.map_err(|e| format!("{program}: {e}"))?;
        daemon.children.push(child);
        Ok(())
    };
    daemon.version = match kind {
        "frr" => {
            let (socket, zpid, bpid) = (path("zserv.api"), path("zebra.pid"), path("bgpd.pid"));
            let common =
                ["-u", "root", "-g", "root", "-P", "0", "--log", "stdout", "-z", &socket, "--vty_socket", &dir];
            run("/usr/lib/frr/zebra", &[&common[..], &["-f", "/dev/null", "-i", &zpid]].concat())?;
            let begun = Instant::now();
            while std::os::unix::net::UnixStream::connect(&socket).is_err() {
                if begun.elapsed() > Duration::from_secs(20) {
                    return Err("zebra does not listen".into());
                }
                std::thread::sleep(Duration::from_millis(5));
            }
            run("/usr/lib/frr/bgpd", &[&common[..], &["-f", &file, "-i", &bpid]].concat())?;
            version("/usr/lib/frr/bgpd", "--version")?
        }
        "bird" => {
            run("/usr/sbin/bird", &["-f", "-c", &file, "-s", &path("bird.ctl"), "-P", &path("bird.pid")])?;
            version("/usr/sbin/bird", "--version")?
        }
        "openbgpd" => {
            run("/usr/sbin/bgpd", &["-d", "-f", &file])?;
            version("/usr/sbin/bgpd", "-V")?
        }
        "gobgp" => {
            let api = format!("unix://{}", path("gobgp.sock"));
            run("/usr/bin/gobgpd", &["-f", &file, "-p", "--pprof-disable", "--api-hosts", &api])?;
            version("/usr/bin/gobgpd", "--version")?
        }
        other => return Err(format!("no daemon {other}")),
    };
    Ok(daemon)
}
