//! One connection to an SSH server, until its banner.

use crate::tcp::{ConnState, ConnectionId, TcpStack};
use drophammer_model::Instant;
use std::time::Duration;

/// What an SSH server begins with; lines before it are to be passed over (RFC 4253 section 4.2).
const SSH: &[u8] = b"SSH-";
/// Bytes that a server may say before the end of its banner. The banner itself has 255 at most.
const MOST: usize = 4096;

/// Questions and what came of them.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct BannerStats {
    /// Questions asked for.
    pub asked: u64,
    /// Those that a banner answered.
    pub answered: u64,
    /// Connections that the other side refused or ended before, and those with something else.
    pub refused: u64,
    /// The last banner, without its end of line; bytes that are no UTF-8 are replaced.
    pub last: Option<String>,
}

/// A question that was answered.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Greeting {
    /// When the connection was begun.
    pub asked: Instant,
    /// From then until the end of the banner.
    pub took: Duration,
}

/// What a connection has said.
#[derive(Debug, PartialEq, Eq)]
pub(super) enum Heard {
    /// Not enough yet.
    Nothing,
    /// A banner.
    Banner(String),
    /// It is over without one.
    End,
}

/// A connection that is under way.
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

    /// Takes what has come in.
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

    /// The banner whose end `byte` is.
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
