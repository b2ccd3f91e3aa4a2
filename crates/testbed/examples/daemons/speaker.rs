//! An emulated router over the kernel's TCP: session, Adj-RIB-Out and Adj-RIB-In, with all messages of both sides.

use drophammer_emulation::bgp::{AdjRibIn, AdjRibOut, Closed, NextHops, Session, SessionConfig, State, TcpAction};
use drophammer_lab::Netns;
use drophammer_model::Instant;
use drophammer_wire::bgp::message::MAX_LEN_EXTENDED;
use drophammer_wire::bgp::{PORT, frame};
use std::io::{ErrorKind, Read, Write};
use std::net::{IpAddr, SocketAddr, TcpStream};
use std::time::{Duration, Instant as Clock};

/// A whole message: time, whether the daemon sent it, its bytes.
pub type Exchanged = (Duration, bool, Vec<u8>);

/// One router with one session.
pub struct Speaker<'a> {
    netns: &'a Netns,
    pub session: Session,
    pub adj_rib_out: AdjRibOut,
    pub adj_rib_in: AdjRibIn,
    pub exchanged: Vec<Exchanged>,
    daemon: SocketAddr,
    hops: NextHops,
    stream: Option<TcpStream>,
    held: Vec<u8>,
    unsent: Vec<u8>,
    begun: Clock,
}

impl<'a> Speaker<'a> {
    /// A router in this namespace that uses these next hops and connects to the daemon immediately; times count from
    /// `begun`.
    pub fn start(netns: &'a Netns, config: SessionConfig, daemon: IpAddr, hops: NextHops, begun: Clock) -> Speaker<'a> {
        let mut speaker = Speaker {
            netns,
            session: Session::new(config),
            adj_rib_out: AdjRibOut::new(),
            adj_rib_in: AdjRibIn::new(),
            exchanged: Vec::new(),
            daemon: SocketAddr::new(daemon, PORT),
            hops,
            stream: None,
            held: Vec::new(),
            unsent: Vec::new(),
            begun,
        };
        speaker.session.start(speaker.now());
        speaker
    }

    pub fn now(&self) -> Instant {
        Instant(self.begun.elapsed().as_nanos() as u64)
    }

    pub fn established(&self) -> bool {
        self.session.state() == State::Established
    }

    /// Ends the connection without a NOTIFICATION, as if the router had crashed, and its session with it.
    pub fn crash(&mut self, again: SessionConfig) {
        self.stream = None;
        self.held.clear();
        self.unsent.clear();
        self.session = Session::new(again);
        self.session.start(self.now());
    }

    fn connect(&mut self) -> Result<(), String> {
        let daemon = self.daemon;
        let connect = || TcpStream::connect_timeout(&daemon, Duration::from_secs(2));
        match self.netns.run(connect).map_err(|e| e.to_string())? {
            Ok(stream) => {
                stream.set_nonblocking(true).and_then(|()| stream.set_nodelay(true)).map_err(|e| e.to_string())?;
                self.stream = Some(stream);
                self.session.connected(self.now());
            }
            // The daemon does not listen yet.
            Err(_) => self.session.closed(self.now(), Closed::Refused),
        }
        Ok(())
    }

    /// Does all work that is due now.
    pub fn serve(&mut self) -> Result<(), String> {
        let now = self.now();
        loop {
            match self.session.poll(now) {
                TcpAction::None => break,
                TcpAction::Listen => {}
                TcpAction::Connect => self.connect()?,
                TcpAction::Close | TcpAction::Abort => self.stream = None,
            }
        }
        // Own messages first, so that the order of messages is that of their causes.
        self.write();
        self.read()?;
        self.write();
        Ok(())
    }

    fn write(&mut self) {
        let now = self.now();
        let Speaker { session, adj_rib_out, unsent, exchanged, .. } = self;
        let mut buffer = vec![0; MAX_LEN_EXTENDED];
        loop {
            let mut bytes = session.write(now, &mut buffer);
            if bytes == 0
                && session.state() == State::Established
                && let Some(agreed) = session.negotiated()
            {
                bytes = adj_rib_out.write(now, agreed, self.hops, &mut buffer);
                if bytes > 0 {
                    session.wrote(now);
                }
            }
            if bytes == 0 {
                break;
            }
            let at = self.begun.elapsed();
            messages(&buffer[..bytes], &mut |message| exchanged.push((at, false, message.to_vec())));
            unsent.extend_from_slice(&buffer[..bytes]);
        }
        if let Some(stream) = &mut self.stream {
            while !unsent.is_empty() {
                match stream.write(unsent) {
                    Ok(n) => _ = unsent.drain(..n),
                    Err(e) if e.kind() == ErrorKind::WouldBlock => break,
                    // Its last messages are still to be read.
                    Err(_) => unsent.clear(),
                }
            }
        }
    }

    fn read(&mut self) -> Result<(), String> {
        let (mut bytes, mut over) = (vec![0; 1 << 16], false);
        let mut fresh = Vec::new();
        while let Some(stream) = &mut self.stream {
            match stream.read(&mut bytes) {
                Ok(0) => over = true,
                Ok(n) => {
                    fresh.extend_from_slice(&bytes[..n]);
                    continue;
                }
                Err(e) if e.kind() == ErrorKind::WouldBlock => {}
                Err(_) => over = true,
            }
            break;
        }
        let (now, at) = (self.now(), self.begun.elapsed());
        self.held.extend_from_slice(&fresh);
        let Speaker { session, adj_rib_in, held, exchanged, .. } = self;
        let consumed = session.receive(now, held, &mut |body, agreed| adj_rib_in.update(now, body, agreed));
        messages(&held[..consumed], &mut |message| exchanged.push((at, true, message.to_vec())));
        held.drain(..consumed);
        if over {
            self.session.closed(now, Closed::ByPeer);
            self.stream = None;
        }
        Ok(())
    }
}

fn messages(mut bytes: &[u8], take: &mut dyn FnMut(&[u8])) {
    while let Ok(Some(message)) = frame(bytes, MAX_LEN_EXTENDED) {
        let (whole, rest) = bytes.split_at(message.message_len());
        take(whole);
        bytes = rest;
    }
}

/// Serves all until `enough`.
///
/// # Errors
/// What it waits for, if that does not happen within `limit`.
pub fn until(
    speakers: &mut [Speaker<'_>],
    what: &str,
    limit: Duration,
    mut enough: impl FnMut(&mut [Speaker<'_>]) -> bool,
) -> Result<(), String> {
    let begun = Clock::now();
    loop {
        speakers.iter_mut().try_for_each(Speaker::serve)?;
        if enough(speakers) {
            return Ok(());
        }
        if begun.elapsed() > limit {
            let ended: Vec<_> = speakers.iter().filter_map(|s| s.session.ended().map(ToString::to_string)).collect();
            return Err(format!("{what}: not within {limit:?}; sessions ended: {ended:?}"));
        }
        // Sockets are polled a thousand times a second: nothing is measured here.
        std::thread::sleep(Duration::from_millis(1));
    }
}
