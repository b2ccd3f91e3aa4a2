//! Questions to a guest: one line per connection, answered by one line of JSON.

use crate::{LabError, Netns};
use serde_json::{Value, json};
use std::io::{BufRead, BufReader, ErrorKind, Write};
use std::net::{Ipv4Addr, SocketAddr, TcpStream};
use std::time::{Duration, Instant};

/// The tap of the management network, and its interface in the guest.
pub(super) const INTERFACE: &str = "m0";
/// The lab's address there. Suites must not use link-local addresses, so no port can have this network.
pub(super) const TESTER: Ipv4Addr = Ipv4Addr::new(169, 254, 77, 1);
/// The guest's address there.
pub(super) const GUEST: Ipv4Addr = Ipv4Addr::new(169, 254, 77, 2);
/// Prefix length of both addresses.
pub(super) const PREFIX: u8 = 30;
/// Port on which the guest listens.
pub(super) const PORT: u16 = 7077;

/// Time limit for a connection. A guest accepts immediately or is not up yet.
const CONNECT: Duration = Duration::from_millis(200);
/// How long a running guest may be too busy with frames to accept a connection or to answer: its kernel forwards before
/// its processes run, and works through the backlog after an overload. In a loop with a satellite link, packets of the
/// last trial circulate for 15 s.
const BUSY: Duration = Duration::from_secs(60);
/// Interval of the checks whether a guest that has not answered yet is still alive.
const LOOK: Duration = Duration::from_millis(100);

/// An answer that refuses a question, with the reason.
pub(super) fn refusal(why: &str) -> Value {
    json!({ "error": why })
}

/// Asks the guest whose management network is in the namespace `home`. The guest is up, but may be busy with forwarding for
/// a while. `alive` fails once the guest has ended, which also ends the wait for an answer. Fails with [`LabError::Io`] if
/// the guest does not answer, with [`LabError::Unusable`] and its reason if it refuses the question.
pub(super) fn ask(
    home: &Netns,
    question: &str,
    mut alive: impl FnMut() -> Result<(), LabError>,
) -> Result<Value, LabError> {
    let start = Instant::now();
    loop {
        match ask_once(home, question, &mut alive) {
            Err(LabError::Io { source, .. }) if is_busy(source.kind()) && start.elapsed() < BUSY => alive()?,
            // If the guest has just ended, report this rather than the missing answer.
            answer => return answer.or_else(|e| alive().and(Err(e))),
        }
    }
}

/// True for the errors of a connection to a guest that has no time: it accepts nothing, does not even answer ARP, or has closed the connection
/// without an answer because its network passed the question on too late.
pub(super) fn is_busy(kind: ErrorKind) -> bool {
    matches!(kind, ErrorKind::TimedOut | ErrorKind::HostUnreachable | ErrorKind::UnexpectedEof)
}

/// Like [`ask`], for a guest that may not be up yet.
pub(super) fn ask_once(
    home: &Netns,
    question: &str,
    mut alive: impl FnMut() -> Result<(), LabError>,
) -> Result<Value, LabError> {
    let failed = |e: std::io::Error| LabError::io("the guest does not answer")(e);
    let connect = || TcpStream::connect_timeout(&SocketAddr::from((GUEST, PORT)), CONNECT);
    let mut stream = home.run(connect)?.map_err(failed)?;
    stream.set_read_timeout(Some(LOOK)).map_err(failed)?;
    stream.write_all(format!("{question}\n").as_bytes()).map_err(failed)?;
    let (start, mut reader, mut line) = (Instant::now(), BufReader::new(stream), Vec::new());
    loop {
        match reader.read_until(b'\n', &mut line) {
            Ok(_) => break,
            Err(e) if e.kind() == ErrorKind::WouldBlock && start.elapsed() < BUSY => alive()?,
            Err(e) => return Err(failed(e)),
        }
    }
    let answer: Value = serde_json::from_slice(&line).map_err(|e| failed(e.into()))?;
    match answer.get("error").and_then(Value::as_str) {
        Some(why) => Err(LabError::unusable(format!("the guest: {why}"), "see uml.log in the folder of the run")),
        None => Ok(answer),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use nix::errno::Errno;

    #[test]
    fn a_guest_without_time_is_asked_again() {
        let kind = |errno: Errno| std::io::Error::from(errno).kind();
        // Without an answer to ARP, the kernel reports the guest as unreachable.
        assert!([Errno::ETIMEDOUT, Errno::EHOSTUNREACH].into_iter().all(|errno| is_busy(kind(errno))));
        assert!(![Errno::ECONNREFUSED, Errno::ECONNRESET].into_iter().any(|errno| is_busy(kind(errno))));
        let nothing = std::io::Error::from(serde_json::from_slice::<Value>(b"").unwrap_err());
        assert!(is_busy(nothing.kind()));
    }
}
