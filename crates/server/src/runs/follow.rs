//! A run as server-sent events (HTML Living Standard, section 9.2): each line of its record is an event.

use super::{LOOK, Run};
use axum::body::Bytes;
use futures_util::stream::{Stream, unfold};
use serde_json::json;
use std::convert::Infallible;
use std::fs::File;
use std::io;
use std::os::unix::fs::FileExt;
use std::sync::Arc;
use std::time::{Duration, Instant};
use tokio::sync::OwnedSemaphorePermit;

/// Name of the file of records in the folder of a run.
const RECORDS: &str = "run.jsonl";
/// Bytes of the record that are read at a time.
const AT_ONCE: usize = 64 << 10;
/// A comment is sent after this time without events, so that nothing on the way thinks that the connection is dead.
const HEARTBEAT: Duration = Duration::from_secs(15);
/// First event: a client that loses its connection tries again after a second.
const RETRY: &[u8] = b"retry: 1000\n\n";

/// A place in the record of a run.
pub struct Follower {
    run: Arc<dyn Run>,
    record: File,
    /// Number of the last event that was sent whole.
    number: u64,
    /// Bytes of the record that have been sent.
    sent: u64,
    /// Where the last whole line ends, as far as known: the run writes the line after it just now.
    whole: u64,
    /// Bytes of the record that were searched for ends of lines.
    searched: u64,
    /// True if `sent` is within a line.
    is_inside: bool,
    /// True once the end was told.
    is_over: bool,
    spoken: Instant,
    /// Longest time without a word.
    pub(super) heartbeat: Duration,
    _place: OwnedSemaphorePermit,
}

/// Where a client begins.
pub enum Begin {
    /// Events follow.
    At(Box<Follower>),
    /// The client has them all, with the end.
    Over,
    /// The run has no such event; it has this number of them.
    Unknown(u64),
}

impl Follower {
    /// Begins after event `after`; 0 for the first one.
    pub fn begin(run: Arc<dyn Run>, after: u64, place: OwnedSemaphorePermit) -> io::Result<Begin> {
        let record = File::open(run.folder().join(RECORDS))?;
        let has_ended = run.ended().is_some();
        let mut follower = Follower {
            run,
            record,
            number: 0,
            sent: 0,
            whole: 0,
            searched: 0,
            is_inside: false,
            is_over: false,
            spoken: Instant::now(),
            heartbeat: HEARTBEAT,
            _place: place,
        };
        while follower.number < after {
            let part = follower.part()?;
            if part.is_empty() {
                let is_end = has_ended && after == follower.number + 1;
                return Ok(if is_end { Begin::Over } else { Begin::Unknown(follower.number) });
            }
            for (at, byte) in part.iter().enumerate() {
                if *byte == b'\n' {
                    follower.number += 1;
                    if follower.number == after {
                        follower.sent += at as u64 + 1;
                        return Ok(Begin::At(Box::new(follower)));
                    }
                }
            }
            follower.sent += part.len() as u64;
        }
        Ok(Begin::At(Box::new(follower)))
    }

    /// The next bytes of whole lines, at most [`AT_ONCE`]; empty if there are none yet.
    fn part(&mut self) -> io::Result<Vec<u8>> {
        while self.whole <= self.sent {
            let more = read_at(&self.record, self.searched, AT_ONCE)?;
            if more.is_empty() {
                return Ok(more);
            }
            if let Some(end) = more.iter().rposition(|byte| *byte == b'\n') {
                self.whole = self.searched + end as u64 + 1;
            }
            self.searched += more.len() as u64;
        }
        let most = usize::try_from(self.whole - self.sent).unwrap_or(AT_ONCE).min(AT_ONCE);
        let mut part = read_at(&self.record, self.sent, most)?;
        // A line begins with a part, so that its first bytes tell what it is.
        if let Some(end) = part.iter().rposition(|byte| *byte == b'\n') {
            part.truncate(end + 1);
        }
        Ok(part)
    }

    /// The next bytes of the stream: empty if nothing has happened, `None` at its end.
    fn step(&mut self) -> io::Result<Option<Vec<u8>>> {
        if self.is_over {
            return Ok(None);
        }
        // This order: a run that has ended has written everything.
        let end = self.run.ended();
        let part = self.part()?;
        self.sent += part.len() as u64;
        let mut out = Vec::with_capacity(part.len() + 256);
        for line in part.split_inclusive(|byte| *byte == b'\n') {
            if !std::mem::replace(&mut self.is_inside, true) {
                out.extend_from_slice(format!("id: {}\nevent: {}\ndata: ", self.number + 1, kind(line)).as_bytes());
            }
            out.extend_from_slice(line);
            if line.ends_with(b"\n") {
                out.push(b'\n');
                self.number += 1;
                self.is_inside = false;
            }
        }
        if let Some(end) = end.filter(|_| out.is_empty()) {
            self.is_over = true;
            let data = json!({"code": end.code, "meaning": end.meaning});
            out = format!("id: {}\nevent: exit\ndata: {data}\n\n", self.number + 1).into_bytes();
        }
        Ok(Some(out))
    }

    /// Waits for the next bytes of the stream. A record that cannot be read ends it: the client tries again.
    async fn next(mut self: Box<Self>) -> Option<(Vec<u8>, Box<Self>)> {
        loop {
            let done = tokio::task::spawn_blocking(move || (self.step(), self)).await;
            let (step, this) = done.ok()?;
            self = this;
            let mut bytes = step.ok()??;
            if bytes.is_empty() && self.spoken.elapsed() >= self.heartbeat {
                bytes = b":\n\n".to_vec();
            }
            if !bytes.is_empty() {
                self.spoken = Instant::now();
                return Some((bytes, self));
            }
            tokio::time::sleep(LOOK).await;
        }
    }

    /// The events of the run until it has ended.
    pub fn events(self: Box<Self>) -> impl Stream<Item = Result<Bytes, Infallible>> {
        unfold((Some(RETRY), self), |(first, follower)| async move {
            let (bytes, follower) = match first {
                Some(first) => (first.to_vec(), follower),
                None => follower.next().await?,
            };
            Some((Ok(Bytes::from(bytes)), (None, follower)))
        })
    }
}

/// At most `most` bytes of a file from `offset` on.
fn read_at(file: &File, offset: u64, most: usize) -> io::Result<Vec<u8>> {
    let mut bytes = vec![0; most];
    let read = file.read_at(&mut bytes, offset)?;
    bytes.truncate(read);
    Ok(bytes)
}

/// What a line of the record is: `trial`.
fn kind(line: &[u8]) -> &str {
    let name = line.strip_prefix(br#"{"record":""#).and_then(|rest| rest.split(|byte| *byte == b'"').next());
    let name = name.filter(|name| name.iter().all(|byte| byte.is_ascii_lowercase() || *byte == b'_'));
    name.and_then(|name| std::str::from_utf8(name).ok()).unwrap_or("message")
}
