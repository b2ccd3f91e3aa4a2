//! One connection to an SSH server, until its banner has arrived.

use crate::tcp::{ConnState, ConnectionId, TcpStack};
use drophammer_model::Instant;
use std::time::Duration;

/// Start of an SSH server's banner; lines before it must be ignored (RFC 4253 section 4.2).
const SSH: &[u8] = b"SSH-";
/// Maximum number of bytes that a server may send up to the end of its banner. The banner itself has at most 255.
const MOST: usize = 4096;

/// Counts of requests and their results.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct BannerStats {
    /// Requests started.
    pub asked: u64,
    /// Requests that a banner answered.
    pub answered: u64,
    /// Connections that the server refused, or that ended without a banner.
    pub refused: u64,
    /// The last banner without its end of line; invalid UTF-8 is replaced.
    pub last: Option<String>,
}

/// A request that was answered.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Greeting {
    /// Start of the connection.
    pub asked: Instant,
    /// Time from the start to the end of the banner.
    pub took: Duration,
}

/// Result of reading a connection.
#[derive(Debug, PartialEq, Eq)]
pub(super) enum Heard {
    /// No complete banner yet.
    Nothing,
    /// A banner.
    Banner(String),
    /// The connection ended without a banner.
    End,
}

/// An open connection, or one that is being opened.
#[derive(Debug)]
pub(super) struct Open {
    pub connection: ConnectionId,
    pub asked: Instant,
    line: Vec<u8>,
    read: usize,
}

impl Open {
    pub fn new(connection: ConnectionId, asked: Instant) -> Open {
        Open { connection, asked, line: Vec::new(), read: 0 }
    }

    /// Reads received bytes.
    pub fn read(&mut self, tcp: &mut TcpStack) -> Heard {
        let mut found = None;
        tcp.receive_with(self.connection, &mut |bytes| {
            for byte in bytes {
                if found.is_some() || self.read == MOST {
                    break;
                }
                self.read += 1;
                found = self.take(*byte);
            }
            bytes.len()
        });
        match found {
            Some(banner) => Heard::Banner(banner),
            None if self.read == MOST
                || matches!(tcp.state(self.connection), ConnState::Closed(_) | ConnState::PeerClosed) =>
            {
                Heard::End
            }
            None => Heard::Nothing,
        }
    }

    /// Adds a byte. Returns the banner if this byte ends it.
    fn take(&mut self, byte: u8) -> Option<String> {
        if byte != b'\n' {
            self.line.push(byte);
            return None;
        }
        let line = std::mem::take(&mut self.line);
        let line = line.strip_suffix(b"\r").unwrap_or(&line);
        line.starts_with(SSH).then(|| String::from_utf8_lossy(line).into_owned())
    }
}
