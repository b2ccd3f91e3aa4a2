//! What a provider's network of emulated routers costs the tester: CE routers with BGP, VLANs and BFD, VPN routes, LSPs of RSVP-TE, LSAs.
//!
//! Each case runs against the reference device, in virtual time and in real time over `memory` ports. It prints processor time and memory, in all
//! and for each session, route, LSP or LSA, and the ratio to the bare codec, which only writes the sent messages and parses the received ones. In
//! virtual time, processor time and memory are those of the tester and of the device together. In real time the device has a thread of its
//! own, whose processor time is separate.
//!
//! `cargo bench -p drophammer-testbed --bench provider_scale [-- CASE... [virtual|memory]]`, with the cases `sessions`,
//! `sessions-stalled`, `routes`, `lsps`, `lsps-reduced`, `lsas`.
//! `scale=0.1` runs a tenth of each number. Each case runs in its own process, so that its memory can be measured. It needs no privilege,
//! and takes less than 4 minutes.

mod cases;
mod codec;
#[path = "../../tests/common/mod.rs"]
mod common;
mod worlds;

use cases::CASES;
use std::process::Command;
use std::time::Instant;
use worlds::World;

/// Processor time of the calling thread, in s.
pub fn on_processor_s() -> f64 {
    // The scheduler updates the figure when the thread yields.
    std::thread::yield_now();
    recorded_s()
}

/// Processor time of the calling thread as last recorded, a few ms ago, in s. It costs the thread no turn.
pub fn recorded_s() -> f64 {
    let text = std::fs::read_to_string("/proc/thread-self/schedstat").unwrap_or_default();
    text.split_whitespace().next().and_then(|first| first.parse::<f64>().ok()).map_or(f64::NAN, |ns| ns / 1e9)
}

/// A figure of this process from /proc/self/status, in MiB.
pub fn status_mib(key: &str) -> f64 {
    let text = std::fs::read_to_string("/proc/self/status").unwrap_or_default();
    let line = text.lines().find_map(|line| line.strip_prefix(key)?.strip_prefix(':')).unwrap_or_default();
    line.split_whitespace().next().and_then(|kib| kib.parse::<f64>().ok()).map_or(f64::NAN, |kib| kib / 1024.0)
}

fn main() {
    let words: Vec<String> = std::env::args().skip(1).filter(|word| !word.starts_with("--bench")).collect();
    if words.iter().any(|word| word == "--test" || word == "--list") {
        return;
    }
    let scale = words.iter().find_map(|word| word.strip_prefix("scale=")?.parse().ok()).unwrap_or(1.0);
    let (begun, mut failed) = (Instant::now(), false);
    let named = |name: &str| words.iter().any(|word| word == name);
    let any = CASES.iter().any(|(name, _)| named(name));
    let worlds = [World::Virtual, World::Memory];
    let either = worlds.iter().any(|world| named(world.name()));
    for (name, case) in CASES.iter().filter(|(name, _)| !any || named(name)) {
        for world in worlds.iter().filter(|world| !either || named(world.name())) {
            if named("here") {
                case(*world, scale);
                continue;
            }
            let this = std::env::current_exe().unwrap_or_else(|e| panic!("the path of this program: {e}"));
            let arguments = ["here", name, world.name(), &format!("scale={scale}")];
            let ended = Command::new(this).args(arguments).status();
            if !ended.as_ref().is_ok_and(std::process::ExitStatus::success) {
                eprintln!("{name} in {} failed: {ended:?}", world.name());
                failed = true;
            }
        }
    }
    if failed {
        std::process::exit(1);
    }
    if !named("here") {
        println!("in all {:.0} s", begun.elapsed().as_secs_f64());
    }
}
