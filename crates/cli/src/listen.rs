//! `drophammer listen`: frames that arrive at an interface.

use crate::args::ListenArgs;
use crate::clock::{LOOK, Lines};
use crate::observer::stop_flag;
use crate::output::{cells, milliseconds, say};
use crate::run::usable_backend;
use crate::{Ended, Exit, Failure};
use drophammer_model::quantity::{group_digits, show_duration};
use drophammer_port::{PortError, SystemClock};
use drophammer_testbed::listen::{Heard, Listener};
use serde_json::json;
use std::io;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;

/// The row of frames that are not counted separately.
const OTHERS: &str = "others";

/// `drophammer listen`.
pub fn run(args: &ListenArgs) -> Ended {
    let stop = stop_flag()?;
    let backend = usable_backend(&args.backend)?;
    let opened = drophammer_rig::open(&[&args.interface], backend, 1, SystemClock::start(), None);
    let lost = opened.and_then(|ports| hear(Listener::new(ports), args, &stop)).map_err(Failure::environment)?;
    Ok(if lost == 0 { Exit::Good } else { Exit::Failed })
}

/// Listens, prints a line per second, and the table at the end. Returns the number of frames that the machine lost.
fn hear(mut listener: Listener, args: &ListenArgs, stop: &AtomicBool) -> Result<u64, PortError> {
    let mut lines = Lines::begin();
    let (mut last, mut shown_at) = (Heard::default(), Duration::ZERO);
    let over = |elapsed: Duration| stop.load(Ordering::Relaxed) || args.duration.is_some_and(|end| elapsed >= end);
    // If nobody reads the output, the command ends.
    let mut readable = headline(args).is_ok();
    while readable && !over(lines.elapsed()) {
        listener.listen(LOOK)?;
        if lines.is_due() {
            let (now, elapsed) = (listener.total(), lines.elapsed());
            readable = line(args, elapsed, elapsed.saturating_sub(shown_at), last, now).is_ok();
            (last, shown_at) = (now, elapsed);
        }
    }
    let drops = listener.drops()?;
    if readable {
        let _ = summary(args, &listener, lines.elapsed(), drops);
    }
    Ok(drops)
}

fn headline(args: &ListenArgs) -> io::Result<()> {
    if args.json {
        return Ok(());
    }
    let until = args.duration.map_or("until Ctrl-C".into(), |end| format!("for {}", show_duration(end)));
    let columns = cells(&["frames/s", "Mbit/s", "frames so far"].map(str::to_owned), 16);
    say(format!("{}: listening {until}\n{:<8}{columns}", args.interface, "time"))
}

/// Prints a line for the frames that arrived in `during`, up to `at`.
fn line(args: &ListenArgs, at: Duration, during: Duration, last: Heard, now: Heard) -> io::Result<()> {
    let seconds = during.as_secs_f64().max(1e-9);
    let fps = (now.frames - last.frames) as f64 / seconds;
    let bits = (now.bytes - last.bytes) as f64 * 8.0 / seconds;
    if args.json {
        let time = milliseconds(at);
        return say(json!({"time_s": time, "fps": fps, "bits_per_second": bits, "frames": now.frames}));
    }
    let row = [group_digits(fps.round() as u64), format!("{:.3}", bits / 1e6), group_digits(now.frames)];
    say(format!("{:<8}{}", format!("{:.0} s", at.as_secs_f64()), cells(&row, 16)))
}

fn summary(args: &ListenArgs, listener: &Listener, elapsed: Duration, drops: u64) -> io::Result<()> {
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
        return say(value);
    }
    let mut lines = vec![String::new()];
    if rows.is_empty() {
        lines.push(format!("no frame arrived at {} in {:.1} s", args.interface, elapsed.as_secs_f64()));
    } else {
        lines.push(format!("{:>16}{:>20}  what", "frames", "bytes with FCS"));
    }
    let row = |(text, heard): (&str, Heard)| {
        format!("{:>16}{:>20}  {text}", group_digits(heard.frames), group_digits(heard.bytes))
    };
    lines.extend(rows.into_iter().map(row));
    if drops > 0 {
        let drops = group_digits(drops);
        lines.push(format!("warning: {drops} more frames arrived and were lost in the tester's own receive path"));
    }
    say(lines.join("\n"))
}
