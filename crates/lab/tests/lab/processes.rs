//! Runs each case in its own process, and checks that the host is then as before.

use super::external::ExternalLinks;
use super::{Checked, SOON};
use std::collections::BTreeSet;
use std::fs;
use std::io::{BufRead, BufReader};
use std::os::unix::fs::{MetadataExt, PermissionsExt};
use std::os::unix::process::ExitStatusExt;
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};
use std::sync::{Mutex, MutexGuard, PoisonError};
use std::time::Instant;

/// A copy of this program that every user can run. Dropping it deletes the copy.
pub struct Program {
    _folder: tempfile::TempDir,
    file: PathBuf,
}

impl Program {
    pub fn copy() -> Result<Program, String> {
        let text = |e: std::io::Error| e.to_string();
        let folder = tempfile::tempdir().map_err(text)?;
        fs::set_permissions(folder.path(), PermissionsExt::from_mode(0o755)).map_err(text)?;
        let file = folder.path().join("lab-test");
        fs::copy(std::env::current_exe().map_err(text)?, &file).map_err(text)?;
        Ok(Program { _folder: folder, file })
    }
}

/// State of the host: interfaces, named namespaces, mounts.
#[derive(Debug, PartialEq)]
struct Host {
    interfaces: BTreeSet<String>,
    named: String,
    mounts: usize,
}

fn names(folder: &str) -> BTreeSet<String> {
    let entries = fs::read_dir(folder).into_iter().flatten().flatten();
    entries.map(|e| e.file_name().into_string().unwrap()).collect()
}

fn host() -> Host {
    let named = Command::new("ip").args(["netns", "list"]).output().unwrap().stdout;
    Host {
        interfaces: names("/sys/class/net"),
        named: String::from_utf8(named).unwrap(),
        mounts: fs::read_to_string("/proc/self/mountinfo").unwrap().lines().count(),
    }
}

fn namespace(of: &str) -> Option<u64> {
    Some(fs::metadata(format!("/proc/{of}/ns/net")).ok()?.ino())
}

/// Main processes of the running cases.
static RUNNING: Mutex<BTreeSet<u32>> = Mutex::new(BTreeSet::new());

fn running() -> MutexGuard<'static, BTreeSet<u32>> {
    RUNNING.lock().unwrap_or_else(PoisonError::into_inner)
}

/// Marks the case with this main process as running until it is dropped.
struct Running(u32);

impl Running {
    fn begin(lab: u32) -> Running {
        running().insert(lab);
        Running(lab)
    }
}

impl Drop for Running {
    fn drop(&mut self) {
        running().remove(&self.0);
    }
}

/// The main process of the lab whose mark a process carries.
fn marked(pid: u32) -> Option<u32> {
    let environment = fs::read(format!("/proc/{pid}/environ")).ok()?;
    let mark = environment.split(|b| *b == 0).find_map(|v| v.strip_prefix(b"DROPHAMMER_LAB="))?;
    String::from_utf8_lossy(mark).split(':').next()?.parse().ok()
}

fn parent(pid: u32) -> Option<u32> {
    let status = fs::read_to_string(format!("/proc/{pid}/status")).ok()?;
    status.lines().find_map(|l| l.strip_prefix("PPid:\t"))?.parse().ok()
}

/// The processes of the lab whose main process is `lab`, and the network namespaces of all processes on this machine except
/// those of other running cases, whose new namespaces can reuse the number of a deleted one.
fn seen(lab: u32) -> (BTreeSet<u32>, BTreeSet<u64>) {
    let others: BTreeSet<u32> = running().iter().copied().filter(|other| *other != lab).collect();
    let home = namespace("self");
    let (mut processes, mut namespaces) = (BTreeSet::new(), BTreeSet::new());
    for pid in names("/proc").iter().filter_map(|name| name.parse::<u32>().ok()) {
        let mark = marked(pid);
        if mark == Some(lab) {
            processes.insert(pid);
        }
        let Some(own) = namespace(&pid.to_string()).filter(|own| Some(*own) != home) else { continue };
        let mut above = std::iter::successors(Some(pid), |pid| parent(*pid));
        if !mark.is_some_and(|mark| others.contains(&mark)) && !above.any(|pid| others.contains(&pid)) {
            namespaces.insert(own);
        }
    }
    (processes, namespaces)
}

/// Runs a scenario in a separate process and checks that the host is as before.
pub fn run(program: &Program, name: &str, user: &str) -> Checked {
    let folder = tempfile::tempdir().map_err(|e| e.to_string())?;
    let for_all = |path: &Path| fs::set_permissions(path, PermissionsExt::from_mode(0o777)).map_err(|e| e.to_string());
    for_all(folder.path())?;
    let work = folder.path().join("work");
    fs::create_dir(&work).map_err(|e| e.to_string())?;
    for_all(&work)?;

    let mut command = if user == "nobody" {
        let mut c = Command::new("setpriv");
        c.args(["--reuid", "65534", "--regid", "65534", "--clear-groups"]).arg(&program.file);
        c
    } else {
        Command::new(&program.file)
    };
    command.arg("--scenario").arg(name).arg(&work).current_dir(folder.path()).stdout(Stdio::piped());
    let _links = if name.starts_with("external") { Some(ExternalLinks::make()) } else { None };
    let before = host();
    let mut child = command.spawn().map_err(|e| e.to_string())?;
    let lab = child.id();
    let _running = Running::begin(lab);
    let home = namespace("self");
    let mut own = BTreeSet::new();
    let lines = BufReader::new(child.stdout.take().unwrap()).lines();
    for line in lines.map_while(Result::ok) {
        let processes = seen(lab).0;
        let of_lab = processes.iter().chain([&lab]).filter_map(|pid| namespace(&pid.to_string()));
        own.extend(of_lab.filter(|n| Some(*n) != home));
        if line == "READY" {
            // A guest has its interfaces inside, so the tester's namespace is the only one.
            if processes.len() < 3 || own.len() < if name == "uml-killed" { 1 } else { 2 } {
                child.kill().unwrap();
                return Err(format!(
                    "the lab is not visible from outside, so its end would prove nothing: {processes:?}"
                ));
            }
            child.kill().unwrap();
        } else {
            println!("    {name} as {user}: {line}");
        }
    }
    let status = child.wait().map_err(|e| e.to_string())?;
    let killed = status.signal() == Some(9);
    let wanted = name.ends_with("killed");
    if wanted && !killed || !wanted && !status.success() {
        return Err(format!("    {status}"));
    }
    // The kernel ends a PID namespace soon, but not immediately.
    let start = Instant::now();
    loop {
        let (processes, namespaces) = seen(lab);
        let after = host();
        if processes.is_empty() && namespaces.is_disjoint(&own) && after == before {
            println!("    {name} as {user}: host as before after {:.3} s", start.elapsed().as_secs_f64());
            return Ok(());
        }
        if start.elapsed() > SOON {
            return Err(format!("    left: {processes:?} {own:?}\n    before {before:?}\n    after  {after:?}"));
        }
        std::thread::sleep(std::time::Duration::from_millis(5));
    }
}
