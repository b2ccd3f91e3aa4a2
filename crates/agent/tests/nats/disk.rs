//! A disk that is full: the store of the server is a file system of its own.

use crate::anew::Checked;
use crate::bench::{Bed, agents, ensure, local, rig, spec, until, whole};
use drophammer_agent::bed::Bed as Server;
use std::path::Path;
use std::process::Command;
use std::time::Duration;

/// Room that the server wants for its streams. Nothing is reserved for it.
const ROOM: &str = "4g";

fn run(program: &str, arguments: &[&str]) -> Result<String, String> {
    let done = Command::new(program).args(arguments).output().map_err(|e| format!("{program}: {e}"))?;
    let text = String::from_utf8_lossy(&done.stdout).into_owned();
    ensure(done.status.success(), format!("{program} {arguments:?}: {}", String::from_utf8_lossy(&done.stderr)))?;
    Ok(text)
}

/// A server whose store is mounted in the mount namespace of this process.
pub fn server(folder: &Path) -> Result<Server, String> {
    let store = folder.join("store");
    std::fs::create_dir(&store).map_err(|e| e.to_string())?;
    run("mount", &["-t", "tmpfs", "-o", &format!("size={ROOM}"), "store", &store.display().to_string()])?;
    local(folder)
}

/// Changes the size of the store.
fn resize(store: &str, size: &str) -> Checked {
    run("mount", &["-o", &format!("remount,size={size}"), store]).map(drop)
}

fn store(bed: &Bed) -> String {
    bed.server.folder.join("store").display().to_string()
}

/// Leaves the server not a byte more than it uses.
pub fn fill(bed: &Bed) -> Checked {
    let store = store(bed);
    // The server may store something in between, and the kernel then refuses the smaller size.
    until("the disk is full", || {
        let used = run("df", &["--output=used", "-B1", &store]).unwrap_or_default();
        used.lines().last().is_some_and(|used| resize(&store, used.trim()).is_ok())
    })
}

/// Makes room again, and starts the server again.
pub fn make_room(bed: &Bed) -> Checked {
    resize(&store(bed), ROOM)?;
    drophammer_agent::bed::down(&bed.server.folder).map_err(|e| e.0)?;
    bed.server.up().map_err(|e| e.0)
}

/// A trial whose counts cannot be stored is void and says what to do; what was stored is still there afterwards.
pub fn full() -> Checked {
    let bed = Bed::up_with(|_, folder| server(folder))?;
    let _agents = agents(&bed)?;
    let mut bench = rig(&bed, "tester")?;
    whole(&mut bench)?;
    let before = bed.records()?;
    fill(&bed)?;
    let run = bench.when_ready(|bench| bench.run(&spec(Duration::from_millis(500))));
    let void = run.err().ok_or("a trial without stored counts has a result")?;
    eprintln!("disk full: {void}");
    ensure(void.contains("has room on its disk") || void.contains("make room and start it again"), void)?;
    make_room(&bed)?;
    until("the records are there again", || bed.records().is_ok_and(|now| now >= before))?;
    whole(&mut bench)?;
    ensure(bed.records()? >= before + 2, "the server has lost records")
}
