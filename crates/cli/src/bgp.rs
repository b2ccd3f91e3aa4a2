//! `drophammer bgp`: one BGP session that advertises a table to a router, and reports what the router sends back.

mod job;

use crate::args::BgpArgs;
use crate::clock::{LOOK, Lines};
use crate::observer::stop_flag;
use crate::output::{cells, milliseconds, say};
use crate::run::{claim, usable_backend};
use crate::{Ended, Exit, Failure};
use drophammer_lab::kinds::external::refuse_in_use;
use drophammer_model::quantity::group_digits;
use drophammer_port::Backend;
use drophammer_testbed::speaker::{Speaker, SpeakerConfig, Table, Told};
use job::Job;
use serde_json::{Value, json};
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;

/// Time limit for the first answer of the peer. With `--for`, also for the peer to take more routes.
const PATIENCE: Duration = Duration::from_secs(60);
/// Time limit for the session to end.
const FAREWELL: Duration = Duration::from_secs(3);

/// `drophammer bgp`.
pub fn run(args: &BgpArgs) -> Ended {
    let job = Job::read(args).map_err(Failure::usage)?;
    let routes = job.table().map_err(Failure::usage)?;
    let stop = stop_flag()?;
    let _claims = claim("drophammer bgp", std::slice::from_ref(&job.interface))?;
    let speaker = open(&job, usable_backend(&args.backend)?)?;
    Feed::new(&job, routes, speaker, args.json).run(&stop)
}

fn open(job: &Job, backend: &Backend) -> Result<Speaker, Failure> {
    refuse_in_use(&job.interface).map_err(Failure::environment)?;
    let speaker = Speaker::open(&job.interface, backend, job.seed, &job.speaker);
    let mut speaker = speaker.map_err(Failure::environment)?;
    if !speaker.has_carrier().map_err(Failure::environment)? {
        let text = format!("interface `{}` has no carrier; plug the cable in, or set the other end up", job.interface);
        return Err(Failure::environment(text));
    }
    Ok(speaker)
}

/// How far the best session has come. This does not grow if every session ends at the same route.
#[derive(Debug, Default)]
struct Progress {
    /// Routes sent in earlier sessions.
    earlier: u64,
    /// Most routes sent in one session, and when.
    most: (u64, Duration),
}

impl Progress {
    /// `lost` is true if a session has ended since the last call.
    fn look(&mut self, advertised: u64, lost: bool, elapsed: Duration) {
        if lost {
            self.earlier = advertised;
        }
        let sent = advertised.saturating_sub(self.earlier);
        if sent > self.most.0 {
            self.most = (sent, elapsed);
        }
    }

    /// True if no session has got further for a long time. The first one came up at `up`.
    fn has_stalled(&self, up: Duration, elapsed: Duration) -> bool {
        elapsed > up.max(self.most.1) + PATIENCE
    }
}

/// The session, and what has been shown of it.
struct Feed<'a> {
    job: &'a Job,
    /// `None` if there are no routes to advertise.
    routes: Option<Table>,
    speaker: Speaker,
    json: bool,
    lines: Lines,
    /// When the session came up for the first time.
    up: Option<Duration>,
    /// When the peer acknowledged all routes for the first time.
    done: Option<Duration>,
    progress: Progress,
    /// Number of reported session losses.
    losses: u32,
    /// The reason last reported why the session has not come up.
    refused: Option<String>,
    /// True while standard output can be written.
    readable: bool,
}

impl<'a> Feed<'a> {
    fn new(job: &'a Job, routes: Option<Table>, speaker: Speaker, json: bool) -> Feed<'a> {
        let (lines, progress, readable) = (Lines::begin(), Progress::default(), true);
        Feed { job, routes, speaker, json, lines, up: None, done: None, progress, losses: 0, refused: None, readable }
    }

    /// Brings the session up, advertises the routes, and keeps the session up until it must end.
    fn run(mut self, stop: &AtomicBool) -> Result<Exit, Failure> {
        self.headline();
        if let Some(routes) = &self.routes {
            self.speaker.advertise(routes, self.job.packing).map_err(Failure::environment)?;
        }
        self.speaker.start();
        let kept = self.keep(stop);
        let told = self.speaker.told();
        let ended = kept.and_then(|()| self.speaker.stop(FAREWELL).map_err(Failure::environment));
        // A session that was up gets a summary, regardless of how it ended.
        if ended.is_ok() || self.up.is_some() {
            self.summary(&told);
        }
        ended?;
        let whole = told.session.losses == 0 && self.has_told_all();
        Ok(match self.up {
            // Without a session, nothing is known about the router.
            None => Exit::Environment,
            Some(_) if whole => Exit::Good,
            Some(_) => Exit::Failed,
        })
    }

    /// Keeps the session up until it must end.
    fn keep(&mut self, stop: &AtomicBool) -> Result<(), Failure> {
        while !self.is_over(stop)? {
            // Events whose time is reported end the wait.
            let event = match self.up {
                None => Some(Speaker::up()),
                Some(_) => (!self.has_told_all()).then(Speaker::acknowledged),
            };
            self.speaker.serve(LOOK, event).map_err(Failure::environment)?;
            self.look()?;
        }
        let elapsed = self.lines.elapsed();
        if self.has_stalled(elapsed) {
            let why = format!("for {} s, the peer has taken no more routes", PATIENCE.as_secs());
            self.say("given up", elapsed, json!({"event": "given up", "cause": why}), &format!(": {why}"));
        }
        Ok(())
    }

    /// True if the time of `--for` does not begin, because the peer does not take the routes.
    fn has_stalled(&self, elapsed: Duration) -> bool {
        let waits = self.job.duration.is_some() && !self.has_told_all();
        waits && self.up.is_some_and(|up| self.progress.has_stalled(up, elapsed))
    }

    /// True if the peer has acknowledged all routes, or if there are no routes.
    fn has_told_all(&self) -> bool {
        self.done.is_some() || self.routes.is_none()
    }

    /// True if the session must end. Fails if the session never came up.
    fn is_over(&self, stop: &AtomicBool) -> Result<bool, Failure> {
        let elapsed = self.lines.elapsed();
        if self.up.is_none() && !self.job.speaker.passive && elapsed > PATIENCE {
            let cause = self.speaker.cause().unwrap_or("it does not answer".into());
            let SpeakerConfig { peer, source, gateway, asn, peer_as, .. } = &self.job.speaker;
            let route = if peer == gateway { String::new() } else { format!("has a route to {source}, ") };
            return Err(Failure::environment(format!(
                "the session with {peer} is not up after {} s: {cause}; check that the router {route}has the BGP neighbour {source} \
                 in AS {asn}, and is itself in AS {peer_as}",
                PATIENCE.as_secs()
            )));
        }
        // The time starts when the peer has acknowledged all routes.
        let since = if self.routes.is_none() { self.up } else { self.done };
        let kept = self.job.duration.zip(since).is_some_and(|(time, since)| elapsed >= since + time);
        Ok(kept || self.has_stalled(elapsed) || !self.readable || stop.load(Ordering::Relaxed))
    }

    /// Shows what has changed.
    fn look(&mut self) -> Result<(), Failure> {
        let (told, elapsed) = (self.speaker.told(), self.lines.elapsed());
        if self.up.is_none() && told.session.established {
            self.up = Some(elapsed);
            self.say("session up", elapsed, json!({"event": "session up"}), "");
        }
        let cause = self.speaker.cause().filter(|_| self.up.is_none());
        if cause.is_some() && cause != self.refused {
            let text = cause.clone().unwrap_or_default();
            self.say("no session", elapsed, json!({"event": "no session", "cause": text}), &format!(": {text}"));
            self.refused = cause;
        }
        if told.skipped > 0 {
            return Err(Failure::new(Exit::Failed, too_long(told.skipped)));
        }
        if self.up.is_some() && !self.has_told_all() && is_done(&told) {
            self.done = Some(elapsed);
            let value = json!({"event": "all routes acknowledged", "routes": told.advertised, "updates": told.updates});
            self.say("all routes acknowledged", elapsed, value, &self.rate(&told));
        }
        self.progress.look(told.advertised, told.session.losses > self.losses, elapsed);
        if told.session.losses > self.losses {
            self.losses = told.session.losses;
            let cause = self.speaker.cause().unwrap_or_default();
            let value = json!({"event": "session down", "cause": cause});
            self.say("session down", elapsed, value, &format!(": {cause}"));
        }
        if self.lines.is_due() {
            self.line(elapsed, &told);
        }
        Ok(())
    }

    /// `: 100,000 routes in 10 UPDATEs in 1.000 s, 100,000 routes/s`, since the session came up. After a session loss
    /// there is no rate, because routes were advertised twice.
    fn rate(&self, told: &Told) -> String {
        if told.session.losses > 0 {
            return String::new();
        }
        let seconds = self.done.zip(self.up).map_or(0.0, |(done, up)| (done - up).as_secs_f64());
        let rate = told.advertised as f64 / seconds.max(1e-9);
        format!(
            ": {} routes in {} UPDATEs in {seconds:.3} s, {} routes/s",
            group_digits(told.advertised),
            group_digits(told.updates),
            group_digits(rate.round() as u64)
        )
    }

    fn headline(&mut self) {
        if self.json {
            return;
        }
        let columns = ["state", "advertised", "UPDATEs", "bytes sent", "received", "withdrawn"];
        let headline = self.job.headline(self.routes.as_ref());
        let text = format!("{headline}\n{}", row("time", &columns.map(str::to_owned)));
        self.print(&text);
    }

    fn line(&mut self, elapsed: Duration, told: &Told) {
        if self.json {
            let text = counts(told, elapsed).to_string();
            return self.print(&text);
        }
        let cells = [
            format!("{:?}", told.session.state),
            group_digits(told.advertised),
            group_digits(told.updates),
            group_digits(told.session.bytes_sent),
            group_digits(told.session.routes_announced),
            group_digits(told.session.routes_withdrawn),
        ];
        let text = row(&format!("{:.0} s", elapsed.as_secs_f64()), &cells);
        self.print(&text);
    }

    /// Prints an event.
    fn say(&mut self, what: &str, elapsed: Duration, mut value: Value, more: &str) {
        let text = if self.json {
            value["time_s"] = json!(milliseconds(elapsed));
            value.to_string()
        } else {
            format!("{what} after {:.3} s{more}", elapsed.as_secs_f64())
        };
        self.print(&text);
    }

    fn summary(&mut self, told: &Told) {
        let elapsed = self.lines.elapsed();
        if self.json {
            let mut value = counts(told, elapsed);
            value["session_up_s"] = json!(self.up.map(milliseconds));
            value["all_acknowledged_s"] = json!(self.done.map(milliseconds));
            value["losses"] = json!(told.session.losses);
            value["table"] = json!(self.routes.as_ref().map(|table| table.prefixes().name()));
            let text = json!({ "summary": value }).to_string();
            return self.print(&text);
        }
        let mut lines = vec![String::new()];
        match (self.up, self.done) {
            (None, _) => lines.push("the session did not come up".into()),
            (Some(_), None) if self.routes.is_some() => lines.push(format!(
                "{} of {} routes were sent; the peer has not acknowledged all of them",
                group_digits(told.advertised),
                group_digits(self.routes.as_ref().map_or(0, Table::len))
            )),
            _ => lines.push(format!(
                "advertised {} routes, received {} and {} withdrawals",
                group_digits(told.advertised),
                group_digits(told.session.routes_announced),
                group_digits(told.session.routes_withdrawn)
            )),
        }
        if told.session.losses > 0 {
            let times = if told.session.losses == 1 { "once".into() } else { format!("{} times", told.session.losses) };
            lines.push(format!("warning: the session went down {times}"));
        }
        self.print(&lines.join("\n"));
    }

    /// Prints a line. If nobody reads standard output, the session must end.
    fn print(&mut self, text: &str) {
        self.readable &= say(text).is_ok();
    }
}

/// True if the peer's TCP has acknowledged everything.
fn is_done(told: &Told) -> bool {
    told.session.established && told.all_acknowledged
}

/// Why routes were skipped. Only their attributes can be the cause: a session that is up supports their family, and the
/// speaker has a next hop for it. Routes that were not tried yet may be too long as well.
fn too_long(skipped: u64) -> String {
    let routes = if skipped == 1 { "1 route has".into() } else { format!("{} routes have", group_digits(skipped)) };
    format!(
        "so far, {routes} attributes too long for the peer's longest message; enable extended messages (RFC 8654) on \
         the peer, or leave these routes out"
    )
}

fn counts(told: &Told, elapsed: Duration) -> Value {
    json!({
        "time_s": milliseconds(elapsed), "state": format!("{:?}", told.session.state), "advertised": told.advertised,
        "updates": told.updates, "bytes_sent": told.session.bytes_sent, "received": told.session.routes_announced,
        "withdrawn": told.session.routes_withdrawn,
    })
}

fn row(label: &str, values: &[String]) -> String {
    format!("{label:<8}{}", cells(values, 14))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn sessions_that_end_at_the_same_route_stall() {
        let s = Duration::from_secs;
        let (mut flapping, mut slow) = (Progress::default(), Progress::default());
        for second in 1..=200 {
            // A prefix limit ends each session after 900 routes.
            flapping.look(second * 100, second % 10 == 1, s(second));
            slow.look(second, false, s(second));
        }
        assert_eq!((flapping.most.0, slow.most), (900, (200, s(200))));
        assert!(flapping.has_stalled(s(0), s(200)) && !flapping.has_stalled(s(0), s(65)));
        assert!(!slow.has_stalled(s(0), s(200)) && slow.has_stalled(s(0), s(261)));
    }

    #[test]
    fn skipped_routes_are_told_with_their_number_and_the_remedy() {
        let remedy = "; enable extended messages (RFC 8654) on the peer, or leave these routes out";
        for (skipped, routes) in [(1, "1 route has"), (12_000, "12,000 routes have")] {
            let cause = format!("so far, {routes} attributes too long for the peer's longest message");
            assert_eq!(too_long(skipped), format!("{cause}{remedy}"));
        }
    }
}
