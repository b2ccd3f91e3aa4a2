//! `drophammer listen`: frames that arrive at an interface.

use crate::Exit;
use crate::args::ListenArgs;
use crate::observer::stop_flag;
use crate::run::{fail, usable_backend};
use drophammer_model::quantity::group_digits;
use drophammer_port::{PortError, SystemClock};
use drophammer_testbed::listen::{Heard, Listener};
use serde_json::json;
use std::io::{self, Write};
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::{Duration, Instant};

/// Time between two lines.
const LINE: Duration = Duration::from_secs(1);
/// Longest wait for a frame; Ctrl-C is checked at this interval.
const LOOK: Duration = Duration::from_millis(20);
/// The line of frames that are not counted separately.
const OTHERS: &str = "further ones";

/// `drophammer listen`.
pub fn run(args: &ListenArgs) -> Exit {
    let stop = match stop_flag() {
        Ok(stop) => stop,
        Err(e) => return fail(Exit::Environment, format!("cannot listen for Ctrl-C: {e}")),
    };
    let backend = match usable_backend(&args.backend) {
        Ok(backend) => backend,
        Err(exit) => return exit,
    };
    let opened = drophammer_rig::open(&[&args.interface], backend, 1, SystemClock::start(), None);
    let heard = opened.and_then(|ports| hear(Listener::new(ports), args, &stop));
    match heard {
        Ok(0) => Exit::Good,
        Ok(_) => Exit::Failed,
        Err(e) => fail(Exit::Environment, e),
    }
}

/// Listens, with a line per second and the table at the end. Returns how many frames the machine lost.
fn hear(mut listener: Listener, args: &ListenArgs, stop: &AtomicBool) -> Result<u64, PortError> {
    let begun = Instant::now();
    let (mut lines, mut last, mut shown_at) = (0, Heard::default(), Duration::ZERO);
    let over = |elapsed: Duration| stop.load(Ordering::Relaxed) || args.duration.is_some_and(|end| elapsed >= end);
    // Without a reader of standard output the command ends.
    let mut readable = headline(args).is_ok();
    while readable && !over(begun.elapsed()) {
        listener.listen(LOOK)?;
        let elapsed = begun.elapsed();
        if elapsed >= LINE * (lines + 1) {
            let now = listener.total();
            readable = line(args, elapsed, elapsed.saturating_sub(shown_at), last, now).is_ok();
            (last, shown_at) = (now, elapsed);
            lines = (elapsed.as_nanos() / LINE.as_nanos()) as u32;
        }
    }
    let drops = listener.drops()?;
    if readable {
        let _ = summary(args, &listener, begun.elapsed(), drops);
    }
    Ok(drops)
}

fn headline(args: &ListenArgs) -> io::Result<()> {
    if args.json {
        return Ok(());
    }
    let out = &mut io::stdout().lock();
    let until = args
        .duration
        .map_or("until Ctrl-C".into(), |end| format!("for {}", drophammer_model::quantity::show_duration(end)));
    writeln!(out, "{}: listening {until}", args.interface)?;
    writeln!(out, "{:<8}{:>16}{:>16}{:>16}", "time", "frames/s", "Mbit/s", "frames so far")?;
    out.flush()
}

/// A line for the frames that arrived in `during`, up to `at`.
fn line(args: &ListenArgs, at: Duration, during: Duration, last: Heard, now: Heard) -> io::Result<()> {
    let out = &mut io::stdout().lock();
    let seconds = during.as_secs_f64().max(1e-9);
    let fps = (now.frames - last.frames) as f64 / seconds;
    let bits = (now.bytes - last.bytes) as f64 * 8.0 / seconds;
    if args.json {
        let time = (at.as_secs_f64() * 1e3).round() / 1e3;
        writeln!(out, "{}", json!({"time_s": time, "fps": fps, "bits_per_second": bits, "frames": now.frames}))?;
    } else {
        let cells = [group_digits(fps.round() as u64), format!("{:.3}", bits / 1e6), group_digits(now.frames)];
        let cells: String = cells.iter().map(|cell| format!("{cell:>16}")).collect();
        writeln!(out, "{:<8}{cells}", format!("{:.0} s", at.as_secs_f64()))?;
    }
    out.flush()
}

fn summary(args: &ListenArgs, listener: &Listener, elapsed: Duration, drops: u64) -> io::Result<()> {
    let out = &mut io::stdout().lock();
    let total = listener.total();
    let all = listener.conversations();
    let (shown, rest) = all.split_at(args.top.min(all.len()));
    let further = rest.iter().map(|(_, heard)| *heard).chain([listener.others()]);
    let further =
        further.fold(Heard::default(), |a, b| Heard { frames: a.frames + b.frames, bytes: a.bytes + b.bytes });
    let mut rows: Vec<(&str, Heard)> = shown.iter().map(|(text, heard)| (text.as_str(), *heard)).collect();
    if further.frames > 0 {
        rows.push((OTHERS, further));
    }
    if args.json {
        let rows = rows.iter().map(|(text, h)| json!({"what": text, "frames": h.frames, "bytes": h.bytes}));
        let value = json!({
            "interface": args.interface, "seconds": elapsed.as_secs_f64(), "frames": total.frames, "bytes": total.bytes,
            "tester_drops": drops, "conversations": rows.collect::<Vec<_>>(),
        });
        writeln!(out, "{value}")?;
        return out.flush();
    }
    writeln!(out)?;
    if rows.is_empty() {
        writeln!(out, "no frame came to {} in {:.1} s", args.interface, elapsed.as_secs_f64())?;
    } else {
        writeln!(out, "{:>16}{:>20}  what", "frames", "bytes with FCS")?;
    }
    for (text, heard) in rows {
        writeln!(out, "{:>16}{:>20}  {text}", group_digits(heard.frames), group_digits(heard.bytes))?;
    }
    if drops > 0 {
        writeln!(
            out,
            "warning: {} more frames came and were lost in the tester's own receive path",
            group_digits(drops)
        )?;
    }
    out.flush()
}
