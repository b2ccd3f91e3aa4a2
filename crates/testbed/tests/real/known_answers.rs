//! Known answers on real interfaces: whatever the reference device, a separate process, does to frames, the analyzer
//! counts what the device reports, and every frame is accounted for.
//!
//! With `DROPHAMMER_FRAMES=10000000` it sends at least this many frames through the device with all faults at the same
//! time, instead of the cases.

mod bench;
mod cases;

use crate::anew;
use crate::anew::Checked;
use bench::Bench;
use drophammer_lab::{Lab, Links};

/// Cases that are short enough to run always.
const ALWAYS: [&str; 3] = [
    "dropped_frames_are_lost",
    "overtaken_frames_are_reordered_by_their_extent",
    "counters_tell_what_happened_or_a_frame_more",
];

type Case = (&'static str, fn(&Bench) -> Checked);

fn check(good: bool, what: impl FnOnce() -> String) -> Checked {
    if good { Ok(()) } else { Err(what()) }
}

/// All cases on veth, and some of them on tap.
pub fn cases() -> Vec<anew::Case> {
    let title = |links: Links, name: &str| format!("{name} on {}", if links == Links::Veth { "veth" } else { "tap" });
    if let Ok(frames) = std::env::var("DROPHAMMER_FRAMES") {
        let all = |links| {
            let frames = frames.clone();
            anew::Case::in_lab(title(links, "all_faults_at_once"), move |lab| {
                let frames = frames.parse().map_err(|e| format!("DROPHAMMER_FRAMES: {e}"))?;
                cases::account(&Bench { lab, links }, frames)
            })
        };
        return vec![all(Links::Veth), all(Links::Tap)];
    }
    let on = |links: Links, (name, run): &'static Case| {
        let whole = anew::Case::in_lab(title(links, name), move |lab: &mut Lab| {
            let bench = Bench { lab, links };
            match drophammer_port::tap::usable() {
                // The error must name what the machine does not allow, with the remedy.
                Err(why) if links == Links::Tap => cases::refused(&bench, &why),
                _ => run(&bench),
            }
        });
        if ALWAYS.contains(name) && links == Links::Veth { whole } else { whole.long() }
    };
    let tap = cases::CASES.iter().filter(|(name, _)| cases::ON_TAP.contains(name));
    let veth = cases::CASES.iter().map(|case| on(Links::Veth, case));
    veth.chain(tap.map(|case| on(Links::Tap, case))).collect()
}
