//! The fast path of a router of kind `xdp` in a separate process: another instance of this program, started by the lab.

use drophammer_port::xdp_router::{Counter, XdpRouter};
use serde_json::{Map, Value, json};
use std::ffi::OsString;
use std::io::{BufRead, BufReader, ErrorKind, Write};
use std::os::unix::net::{UnixListener, UnixStream};
use std::path::Path;
use std::time::Duration;

pub use drophammer_lab::kinds::xdp::SUBCOMMAND;

/// Time limit for reading a request. It is long because a busy machine may delay the client. A client that disconnects
/// is noticed earlier.
const QUESTION: Duration = Duration::from_secs(5);

/// Runs the fast path until the process is terminated. Arguments: `SOCKET INTERFACE...`.
///
/// # Errors
/// Wrong arguments, an interface to which the program cannot be attached, or a socket that cannot be created.
pub fn run(arguments: &[OsString]) -> Result<(), String> {
    let [socket, interfaces @ ..] = arguments else {
        return Err("the fast path is started by the lab: SOCKET INTERFACE...".into());
    };
    let attach = |name: &OsString| {
        let name = name.to_string_lossy().into_owned();
        let router = XdpRouter::attach(&name).map_err(|e| format!("cannot attach the program to {name}: {e}"))?;
        Ok((name, router))
    };
    let routers = interfaces.iter().map(attach).collect::<Result<Vec<_>, String>>()?;
    let socket = Path::new(socket);
    let failed = |e: std::io::Error| format!("cannot listen on {}: {e}", socket.display());
    let listener = listen(socket).map_err(failed)?;
    for stream in listener.incoming() {
        // A client that disconnects does not end the fast path.
        drop(answer(stream.map_err(failed)?, &routers));
    }
    Ok(())
}

/// Listens on a socket. A fast path that was terminated leaves its socket behind, and the next one must replace it.
fn listen(socket: &Path) -> std::io::Result<UnixListener> {
    match std::fs::remove_file(socket) {
        Err(e) if e.kind() != ErrorKind::NotFound => Err(e),
        _ => UnixListener::bind(socket),
    }
}

fn answer(mut stream: UnixStream, routers: &[(String, XdpRouter)]) -> std::io::Result<()> {
    stream.set_read_timeout(Some(QUESTION))?;
    let mut line = String::new();
    if BufReader::new(&stream).read_line(&mut line)? == 0 {
        return Ok(());
    }
    let answer = match line.trim() {
        "counters" => counters(routers),
        other => json!({ "error": format!("unknown command `{other}`") }),
    };
    stream.write_all(format!("{answer}\n").as_bytes())
}

fn counters(routers: &[(String, XdpRouter)]) -> Value {
    let of = |router: &XdpRouter| -> Map<String, Value> {
        Counter::ALL.iter().map(|counter| (counter.name().to_owned(), json!(router.count(*counter)))).collect()
    };
    routers.iter().map(|(name, router)| (name.clone(), Value::Object(of(router)))).collect::<Map<_, _>>().into()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_socket_that_was_left_behind_is_replaced() {
        let folder = tempfile::tempdir().unwrap();
        let socket = folder.path().join("control");
        drop(listen(&socket).unwrap());
        assert!(socket.exists());
        let _again = listen(&socket).unwrap();
        UnixStream::connect(&socket).unwrap();
    }

    #[test]
    fn a_socket_that_cannot_be_made_is_an_error() {
        let folder = tempfile::tempdir().unwrap();
        assert!(listen(folder.path()).is_err());
        assert!(listen(&folder.path().join("missing/control")).is_err());
    }
}
