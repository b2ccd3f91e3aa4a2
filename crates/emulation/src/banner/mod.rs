//! Requests the banner of an SSH server on the gateway, like an operator's terminal: connects, reads the first line of the server
//! (RFC 4253 section 4.2), and resets the connection. It accepts no connections.

mod question;
#[cfg(test)]
mod tests;

pub use question::{BannerStats, Greeting};

use crate::device::DeviceConfig;
use crate::protocol::{Command, Input, Match, Output, Protocol, Refused, State};
use drophammer_model::Instant;
use drophammer_model::trial::Family;
use question::{Heard, Open};
use std::collections::VecDeque;
use std::net::{IpAddr, SocketAddr};

/// Name of the protocol.
pub const NAME: &str = "banner";
/// Port of SSH servers.
pub const SSH_PORT: u16 = 22;
/// It matches only the device's own connections, because it does not listen.
const MATCHES: [Match; 1] = [Match::TcpPort(SSH_PORT)];
/// Maximum number of open requests; another request ends the oldest.
const MOST_OPEN: usize = 64;
/// Maximum number of stored greetings.
const MOST_KEPT: usize = 1 << 16;

/// Requests the banner of the gateway's SSH server over this IP version at the next poll.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct AskBanner(pub Family);

/// Local address and gateway for the requests of one family.
#[derive(Clone, Copy, Debug)]
struct Ends {
    own: IpAddr,
    gateway: IpAddr,
}

/// The banner requests of one device.
pub struct Banner {
    v4: Option<Ends>,
    v6: Option<Ends>,
    asked: VecDeque<Ends>,
    open: VecDeque<Open>,
    /// True if all open requests must be abandoned.
    ends: bool,
    greetings: Vec<Greeting>,
    stats: BannerStats,
}

impl Banner {
    /// Banner requests of `device`. They are sent only on command.
    pub fn new(device: &DeviceConfig) -> Banner {
        Banner {
            v4: device.ipv4.map(|a| Ends { own: a.address.into(), gateway: a.gateway.into() }),
            v6: device.ipv6.map(|a| Ends { own: a.address.into(), gateway: a.gateway.into() }),
            asked: VecDeque::new(),
            open: VecDeque::new(),
            ends: false,
            greetings: Vec::new(),
            stats: BannerStats::default(),
        }
    }

    /// Results of the requests.
    pub fn stats(&self) -> &BannerStats {
        &self.stats
    }

    /// The requests that were answered since [`Banner::forget`], in the order of the answers.
    pub fn greetings(&self) -> &[Greeting] {
        &self.greetings
    }

    /// Forgets the answers. The next poll abandons open requests.
    pub fn forget(&mut self) {
        self.greetings.clear();
        self.asked.clear();
        self.ends = true;
    }

    /// Reads the received bytes of open connection `at`; returns true when it is finished.
    fn read(&mut self, now: Instant, at: usize, out: &mut Output<'_>) -> bool {
        let Some(open) = self.open.get_mut(at) else { return false };
        match open.read(out.tcp) {
            Heard::Nothing => false,
            Heard::Banner(line) => {
                self.stats.answered += 1;
                self.stats.last = Some(line);
                if self.greetings.len() < MOST_KEPT {
                    self.greetings.push(Greeting { asked: open.asked, took: now.since(open.asked) });
                }
                true
            }
            Heard::End => {
                self.stats.refused += 1;
                true
            }
        }
    }

    /// Resets a connection without waiting for the other side, so that no state remains on either side.
    fn close(open: &Open, out: &mut Output<'_>) {
        out.tcp.abort(open.connection);
        out.tcp.remove(open.connection);
    }
}

impl Protocol for Banner {
    fn name(&self) -> &'static str {
        NAME
    }

    fn matches(&self) -> &[Match] {
        &MATCHES
    }

    fn attach(&mut self, _: &mut crate::tcp::TcpStack) {
        // The old TCP stack no longer exists, and neither do its connections.
        self.open.clear();
    }

    fn receive(&mut self, now: Instant, input: Input<'_>, out: &mut Output<'_>) {
        let Input::Connections(ready) = input else { return };
        for connection in ready {
            let Some(at) = self.open.iter().position(|open| open.connection == *connection) else { continue };
            if self.read(now, at, out)
                && let Some(open) = self.open.remove(at)
            {
                Banner::close(&open, out);
            }
        }
    }

    fn poll(&mut self, now: Instant, _: usize, out: &mut Output<'_>) {
        if std::mem::take(&mut self.ends) {
            self.open.drain(..).for_each(|open| Banner::close(&open, out));
        }
        while let Some(Ends { own, gateway }) = self.asked.pop_front() {
            if self.open.len() == MOST_OPEN
                && let Some(oldest) = self.open.pop_front()
            {
                Banner::close(&oldest, out);
            }
            // Only a device that requests banners has TCP at this address.
            out.tcp.add_host(own);
            let connection = out.tcp.connect(now, own, SocketAddr::new(gateway, SSH_PORT));
            self.open.push_back(Open::new(connection, now));
        }
    }

    fn next_deadline(&self) -> Option<Instant> {
        (self.ends || !self.asked.is_empty()).then_some(Instant(0))
    }

    fn command(&mut self, _: Instant, command: &Command) -> Result<(), Refused> {
        let Command::Banner(AskBanner(family)) = command else { return Err(Refused::unknown(NAME)) };
        let ends = match family {
            Family::Ipv4 => self.v4,
            Family::Ipv6 => self.v6,
        };
        let Some(ends) = ends else {
            return Err(Refused::new(NAME, format!("the device has no {family} address: give it one and a gateway")));
        };
        self.stats.asked += 1;
        self.asked.push_back(ends);
        Ok(())
    }

    fn state(&self) -> State {
        State {
            sessions: 0,
            up: 0,
            counters: vec![
                ("banners_asked", self.stats.asked),
                ("banners_received", self.stats.answered),
                ("banners_refused", self.stats.refused),
            ],
        }
    }
}
