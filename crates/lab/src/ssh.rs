//! An SSH server (dropbear) in the namespace of a router. The tester reads its banner under load. Nobody can log in.

use crate::management::PATIENCE;
use crate::namespace_dut::NamespaceDut;
use crate::{Lab, LabError, process};
use drophammer_model::param::Param;
use std::fs;
use std::io::{BufRead, BufReader, Read};
use std::net::{IpAddr, Ipv4Addr, SocketAddr, TcpStream};
use std::path::Path;

/// Required program.
pub(crate) const NEED: (&str, &str) = ("dropbear", "dropbear-bin");
/// Program of the same package that makes its key.
const KEY_MAKER: &str = "dropbearkey";

/// Parameter of the kinds in namespaces.
pub(crate) const SSH: Param<bool> = Param::fixed(
    "ssh",
    "false",
    "also start an SSH server (dropbear) on the router's addresses, to check that it answers under load",
);

const PORT: u16 = 22;
/// Start of a banner (RFC 4253 section 4.2), and the maximum number of bytes to read.
const BANNER: &str = "SSH-";
const MOST: u64 = 255;

/// Starts the server, and waits until it sends its banner.
pub(crate) fn start(
    lab: &Lab,
    router: &mut NamespaceDut,
    name: &str,
    work_dir: &Path,
    stop: &dyn Fn() -> bool,
) -> Result<(), LabError> {
    let server = process::find(NEED.0, NEED.1)?;
    // Its key is removed with the lab.
    let state = lab.shared().state.join(format!("ssh-{name}"));
    fs::create_dir_all(&state).map_err(LabError::file("create", &state))?;
    let key = state.join("host-key");
    // A router that is brought up again keeps its key.
    if !key.exists() {
        let mut command = router.netns().command(&process::find(KEY_MAKER, NEED.1)?);
        command.args(["-t", "ed25519", "-f"]).arg(&key);
        process::output(command, None)?;
    }
    let mut command = router.netns().command(&server);
    // Run it in the foreground, with its log on standard error, without passwords and without root.
    command.args(["-F", "-E", "-s", "-w", "-r"]).arg(&key).arg("-P").arg(state.join("pid"));
    command.arg("-p").arg(PORT.to_string());
    router.helper(NEED.0, command, work_dir)?;
    router.wait(stop, |dut| {
        let greeted = dut.netns().run(|| greets(Ipv4Addr::LOCALHOST.into()))?;
        Ok(greeted.err().map(|e| format!("dropbear sends no banner: {e}")))
    })
}

/// Checks, from the calling thread's namespace, that the server at `address` sends its banner in time.
pub(crate) fn greets(address: IpAddr) -> Result<(), String> {
    let server = SocketAddr::from((address, PORT));
    let asked = || -> std::io::Result<String> {
        let stream = TcpStream::connect_timeout(&server, PATIENCE)?;
        stream.set_read_timeout(Some(PATIENCE))?;
        let mut line = Vec::new();
        BufReader::new(stream.take(MOST)).read_until(b'\n', &mut line)?;
        Ok(String::from_utf8_lossy(&line).into_owned())
    };
    match asked() {
        Ok(line) if line.starts_with(BANNER) => Ok(()),
        Ok(line) => Err(format!("it begins with {line:?}")),
        Err(e) => Err(e.to_string()),
    }
}
