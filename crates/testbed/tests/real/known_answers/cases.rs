//! The cases: each tests one fault or counter, and compares the result with the device's own account.

use super::bench::{ATTEMPTS, Bench, DISTURBED, Rests, Story, suite};
use super::{Case, Checked, check};
use drophammer_model::Instant;
use drophammer_reference::{
    Corrupt, DropAtLowLoad, Faults, Hold, Misroute, NOBODY, OwnFrames, Reorder, Sag, WrongNextHop,
};
use drophammer_testbed::device;
use std::collections::BTreeSet;
use std::time::Duration;

pub const CASES: &[Case] = &[
    ("without_faults_every_frame_arrives_once", nothing),
    ("dropped_frames_are_lost", drops),
    ("copies_are_duplicates", copies),
    ("changed_bytes_are_corrupted", corrupted),
    ("misrouted_frames_are_strays", strays),
    ("frames_to_a_wrong_next_hop_are_strays", wrong_next_hop),
    ("loss_at_low_load_vanishes_at_high_load", low_load),
    ("overtaken_frames_are_reordered_by_their_extent", reordered),
    ("held_frames_are_late", late),
    ("its_own_frames_are_no_test_traffic", own_frames),
    ("an_overload_loses_what_the_buffer_cannot_hold", overload),
    ("latency_is_the_delay_and_little_more", latency),
    ("counters_tell_what_happened_or_a_frame_more", counters),
    ("a_wrong_count_is_not_blamed_on_the_machine", blame),
    ("all_faults_at_once", |bench| account(bench, 50_000)),
    ("what_it_does_not_understand_is_refused", questions),
];

/// Cases that depend on the links.
pub const ON_TAP: &[&str] = &[
    "without_faults_every_frame_arrives_once",
    "dropped_frames_are_lost",
    "latency_is_the_delay_and_little_more",
    "all_faults_at_once",
];

/// Rate (frames per second) and duration (seconds) of most trials: 80,000 frames.
const RATE: f64 = 100_000.0;
const TIME: f64 = 0.8;
/// The fastest of about ten thousand frames may take this much longer than its delay in the device, because it passes
/// the kernel twice.
const OVERHEAD_NS: u64 = 300_000;

/// The counts of a receiver for these arrivals of one flow, computed directly from the definitions.
fn order(arrivals: &[u64]) -> (u64, u64, u64) {
    let (mut reordered, mut extent, mut in_sequence, mut next) = (0, 0, 0, 0);
    for (i, s) in arrivals.iter().enumerate() {
        let before = if i == 0 { *s == 0 } else { arrivals[i - 1] + 1 == *s };
        in_sequence += u64::from(before);
        if *s >= next {
            next = s + 1;
        } else {
            reordered += 1;
            // RFC 4737 section 4.2.1: the displacement is counted back to the earliest arrival with a higher number.
            // All displacements here are short.
            let first = (i.saturating_sub(1_000)..i).find(|j| arrivals[*j] > *s).unwrap_or(i);
            extent = extent.max((i - first) as u64);
        }
    }
    (reordered, extent, in_sequence)
}

fn found(story: &Story) -> (u64, u64, u64) {
    let extent = story.result.groups[0].max_reordering_extent;
    (story.sum(|g| g.reordered), extent, story.sum(|g| g.in_sequence))
}

/// The numbers that the device gave to the frames of the trial.
fn numbers(story: &Story) -> std::ops::RangeInclusive<u64> {
    story.before.truth.test_frames + 1..=story.after.truth.test_frames
}

fn same<T: PartialEq + std::fmt::Debug>(what: &str, found: T, expected: T) -> Checked {
    check(found == expected, || format!("{what}: {found:?} instead of {expected:?}"))
}

fn nothing(bench: &Bench) -> Checked {
    bench.with(
        |_| {},
        |up| {
            let spec = up.spec(false, RATE, TIME);
            up.undisturbed(spec, &Faults::default(), |s| {
                same("lost", s.sum(|g| g.lost), 0)?;
                same("received", s.received(), s.offered())?;
                same("order", found(s), (0, 0, s.offered()))?;
                same("others", s.sum(|g| g.duplicated + g.corrupted + g.stray + g.late), 0)
            })?;
            let spec = up.spec(true, RATE / 2.0, TIME / 2.0);
            up.undisturbed(spec, &Faults::default(), |s| same("received", s.received(), s.offered()))
        },
    )
}

fn drops(bench: &Bench) -> Checked {
    bench.with(
        |_| {},
        |up| {
            let spec = up.spec(false, RATE, TIME);
            up.undisturbed(spec.clone(), &Faults { drop_every: 7, ..Faults::default() }, |s| {
                let (lost, left): (Vec<u64>, Vec<u64>) = numbers(s).partition(|n| n % 7 == 0);
                same("lost", s.sum(|g| g.lost), lost.len() as u64)?;
                same("by the device's account", s.grew(|t| t.dropped.fault_every), lost.len() as u64)?;
                let arrivals: Vec<u64> = left.iter().map(|n| n - numbers(s).start()).collect();
                same("order", found(s), order(&arrivals))
            })?;
            up.undisturbed(spec.clone(), &Faults { drop_share: 0.1, ..Faults::default() }, |s| {
                let share = s.sum(|g| g.lost) as f64 / s.offered() as f64;
                check((0.08..0.12).contains(&share), || format!("{share} lost"))?;
                same("lost", s.sum(|g| g.lost), s.grew(|t| t.dropped.fault_share))
            })?;
            let window = Some((Instant(200_000_000), Instant(400_000_000)));
            up.undisturbed_in_time(spec, &Faults { drop_window: window, ..Faults::default() }, |s| {
                let lost = s.sum(|g| g.lost);
                check(lost > 0 && lost < s.offered(), || format!("{lost} lost"))?;
                // There is one gap, so one frame does not follow its predecessor.
                same("order", found(s), (0, 0, s.received() - 1))?;
                same("lost", lost, s.grew(|t| t.dropped.fault_window))
            })
        },
    )
}

fn copies(bench: &Bench) -> Checked {
    bench.with(
        |_| {},
        |up| {
            let spec = up.spec(false, RATE, TIME);
            up.undisturbed(spec, &Faults { duplicate_every: 9, ..Faults::default() }, |s| {
                same("copies", s.grew(|t| t.duplicated), numbers(s).filter(|n| n % 9 == 0).count() as u64)?;
                same("duplicates", s.sum(|g| g.duplicated), s.grew(|t| t.duplicated))?;
                same("order", found(s), (0, 0, s.offered()))
            })
        },
    )
}

fn corrupted(bench: &Bench) -> Checked {
    bench.with(
        |_| {},
        |up| {
            // If the checksum is corrected, only the signature's own check can detect a damaged signature, and it
            // misses one in 65,536. So the pattern before the signature is damaged.
            for (offset, fix_checksum) in [(None, false), (Some(2), true)] {
                let corrupt = Some(Corrupt { every: 11, offset, fix_checksum });
                let spec = up.spec(false, RATE, TIME / 2.0);
                up.undisturbed(spec, &Faults { corrupt, ..Faults::default() }, |s| {
                    same("changed", s.grew(|t| t.corrupted), numbers(s).filter(|n| n % 11 == 0).count() as u64)?;
                    same("corrupted", s.sum(|g| g.corrupted), s.grew(|t| t.corrupted))?;
                    same("lost", s.sum(|g| g.lost), s.grew(|t| t.corrupted))
                })?;
            }
            Ok(())
        },
    )
}

fn strays(bench: &Bench) -> Checked {
    bench.with(
        |_| {},
        |up| {
            let misroute = Some(Misroute { every: 13, to_port: 0 });
            let spec = up.spec(false, RATE, TIME);
            up.undisturbed(spec, &Faults { misroute, ..Faults::default() }, |s| {
                same("misrouted", s.grew(|t| t.misrouted), numbers(s).filter(|n| n % 13 == 0).count() as u64)?;
                same("strays", s.sum(|g| g.stray), s.grew(|t| t.misrouted))?;
                same("lost", s.sum(|g| g.lost), s.grew(|t| t.misrouted))
            })
        },
    )
}

fn wrong_next_hop(bench: &Bench) -> Checked {
    bench.with(
        |_| {},
        |up| {
            let spec = up.spec(false, RATE, TIME / 2.0);
            let wrong_next_hop = Some(WrongNextHop { every: 13, mac: NOBODY });
            up.undisturbed(spec, &Faults { wrong_next_hop, ..Faults::default() }, |s| {
                same("misdirected", s.grew(|t| t.wrong_next_hop), numbers(s).filter(|n| n % 13 == 0).count() as u64)?;
                same("strays", s.sum(|g| g.stray), s.grew(|t| t.wrong_next_hop))?;
                same("lost", s.sum(|g| g.lost), s.grew(|t| t.wrong_next_hop))
            })
        },
    )
}

fn low_load(bench: &Bench) -> Checked {
    bench.with(
        |_| {},
        |up| {
            let fault = |below_frames| DropAtLowLoad { every: 5, interval: Duration::from_millis(100), below_frames };
            // One limit is above the number of frames in any interval, the other is below it in nearly all intervals.
            for (below_frames, all) in [(u64::MAX, true), (10, false)] {
                let spec = up.spec(false, RATE / 2.0, TIME / 2.0);
                let faults = Faults { drop_at_low_load: Some(fault(below_frames)), ..Faults::default() };
                up.undisturbed_in_time(spec, &faults, |s| {
                    let lost = s.sum(|g| g.lost);
                    same("lost", lost, s.grew(|t| t.dropped.fault_low_load))?;
                    let every = numbers(s).filter(|n| n % 5 == 0).count() as u64;
                    check(if all { lost == every } else { lost < every }, || format!("{lost} lost of {every}"))
                })?;
            }
            Ok(())
        },
    )
}

fn reordered(bench: &Bench) -> Checked {
    bench.with(
        |_| {},
        |up| {
            for positions in [1, 5, 40] {
                let reorder = Some(Reorder { every: 100, positions });
                let spec = up.spec(false, RATE, TIME / 2.0);
                up.undisturbed(spec, &Faults { reorder, ..Faults::default() }, |s| {
                    let first = *numbers(s).start();
                    let (mut arrivals, mut parked) = (Vec::new(), Vec::new());
                    for n in numbers(s) {
                        if n % 100 == 0 {
                            parked.push((n - first, positions));
                            continue;
                        }
                        arrivals.push(n - first);
                        for (number, to_pass) in &mut parked {
                            *to_pass -= 1;
                            if *to_pass == 0 {
                                arrivals.push(*number);
                            }
                        }
                        parked.retain(|(_, to_pass)| *to_pass > 0);
                    }
                    arrivals.extend(parked.iter().map(|(number, _)| number));
                    same("lost", s.sum(|g| g.lost), 0)?;
                    let expired = s.grew(|t| t.reorder_expired);
                    // A device that is delayed for as long as a frame waits to be overtaken sends that frame first.
                    check(expired <= parked.len() as u64, || format!("{DISTURBED}{expired} frames waited too long"))?;
                    same("not overtaken", expired, parked.len() as u64)?;
                    check(s.grew(|t| t.reordered) > 100, || "too few to prove anything".into())?;
                    same("(reordered, extent, in sequence)", found(s), order(&arrivals))
                })?;
            }
            Ok(())
        },
    )
}

fn late(bench: &Bench) -> Checked {
    bench.with(
        |_| {},
        |up| {
            let hold = Some(Hold { every: 10, time: Duration::from_millis(1_050) });
            let mut spec = up.spec(false, RATE / 2.0, TIME / 4.0);
            spec.drain_s = 2.0;
            up.undisturbed_in_time(spec, &Faults { hold, ..Faults::default() }, |s| {
                same("lost", s.sum(|g| g.lost), 0)?;
                same("late", s.sum(|g| g.late), s.grew(|t| t.held))?;
                check(s.grew(|t| t.held) > 100, || "too few to prove anything".into())
            })
        },
    )
}

fn own_frames(bench: &Bench) -> Checked {
    bench.with(
        |_| {},
        |up| {
            // The first frame comes one interval after the beginning of the trial; one may fall between the end of the
            // trial and the query.
            let own_frames = Some(OwnFrames { interval: Duration::from_millis(150), port: 1 });
            let mut told = BTreeSet::new();
            for _ in 0..5 {
                let spec = up.spec(false, RATE / 10.0, TIME);
                let s = match up.story(&spec, &Faults { own_frames, ..Faults::default() }) {
                    Err(e) if e.starts_with(DISTURBED) => continue,
                    other => other?,
                };
                let other = s.result.health.other_received;
                let own = s.grew(|t| t.own_frames);
                check(other <= own && own > 4, || format!("{other} of {own}"))?;
                if other == own && s.beside() == 0 {
                    return same("lost", s.sum(|g| g.lost), 0);
                }
                told.insert((other, own));
            }
            Err(format!("(counted, sent): {told:?}"))
        },
    )
}

fn overload(bench: &Bench) -> Checked {
    const CAPACITY: u64 = 10_000;
    const BUFFER: u64 = 1_000;
    bench.with(
        |c| (c.capacity_pps, c.buffer) = (Some(CAPACITY), BUFFER as usize),
        |up| {
            let spec = up.spec(false, 40_000.0, TIME);
            up.undisturbed_in_time(spec, &Faults::default(), |s| {
                same("lost", s.sum(|g| g.lost), s.grew(|t| t.dropped.buffer))?;
                // The frames served between the first and the last arrival, and those in the buffer at that time.
                served(s, s.result.sending_s * CAPACITY as f64, BUFFER)
            })?;
            // After half a second the device has half the capacity.
            let sag = Some(Sag { from: Instant(500_000_000), capacity_pps: CAPACITY / 2 });
            let spec = up.spec(false, 40_000.0, TIME);
            up.undisturbed_in_time(spec, &Faults { sag, ..Faults::default() }, |s| {
                same("lost", s.sum(|g| g.lost), s.grew(|t| t.dropped.buffer))?;
                served(s, CAPACITY as f64 * (0.5 + (s.result.sending_s - 0.5) / 2.0), BUFFER)
            })
        },
    )
}

/// Checks that at most the frames served during the trial and those in the buffer were received. If the tester was not
/// delayed, the device always had frames to serve, and then not fewer were received.
fn served(s: &Story, served: f64, buffer: u64) -> Checked {
    let (least, most) = (0.9 * served, served + buffer as f64 + 2.0);
    let received = s.received() as f64;
    let steady = s.result.health.max_gap_ns < 5_000_000 && s.result.sending_s < 1.05 * TIME;
    check(received <= most && (received >= least || !steady), || format!("{received} received, not {least} to {most}"))
}

fn latency(bench: &Bench) -> Checked {
    bench.with(
        |c| c.delay = Duration::from_millis(2),
        |up| {
            let spec = up.spec(false, 20_000.0, TIME);
            up.undisturbed_in_time(spec, &Faults::default(), |s| {
                let l = &s.result.groups[0].latency;
                let bounds = 2_000_000..2_000_000 + OVERHEAD_NS;
                println!("    minimum {} ns, median {:?} ns", l.min_ns, l.percentile(50.0));
                check(bounds.contains(&l.min_ns), || format!("minimum {} ns is outside of {bounds:?}", l.min_ns))?;
                same("lost", s.sum(|g| g.lost), 0)
            })
        },
    )
}

fn counters(bench: &Bench) -> Checked {
    bench.with(
        |_| {},
        |up| {
            let spec = up.spec(false, RATE, TIME / 2.0);
            up.undisturbed(spec, &Faults::default(), |s| {
                let (b, a) = (s.before.ports, s.after.ports);
                same("control frames", s.grew(|t| t.control + t.ignored), 0)?;
                same("in_unicast", a[0].in_unicast - b[0].in_unicast, s.offered())?;
                same("in_octets", a[0].in_octets - b[0].in_octets, s.offered() * 64)?;
                same("out_unicast", a[1].out_unicast - b[1].out_unicast, s.received())?;
                same("out_octets", a[1].out_octets - b[1].out_octets, s.received() * 64)?;
                same("the way back", (a[1].in_unicast, a[0].out_unicast), (b[1].in_unicast, b[0].out_unicast))
            })?;
            let before = up.told()?;
            up.ask("faults {\"counter_error\": 1}")?;
            let after = up.told()?;
            same("a frame more", after.ports[0].in_unicast, before.ports[0].in_unicast + 1)?;
            same("the truth", after.truth.received, before.truth.received)
        },
    )
}

/// Checks that these tests can fail: one miscounted frame leads to a complaint, even if the machine delayed tester and
/// device meanwhile.
fn blame(bench: &Bench) -> Checked {
    bench.with(
        |_| {},
        |up| {
            let spec = up.spec(false, RATE / 10.0, TIME / 4.0);
            let mut s = up.story(&spec, &Faults::default());
            for _ in 1..ATTEMPTS {
                s = s.or_else(|_| up.story(&spec, &Faults::default()));
            }
            let mut s = s?;
            let stalled = |s: &mut Story, ms: u64| s.result.health.max_gap_ns = ms * 1_000_000;
            s.after.longest_wait_ns = 0;
            let blamed = |s: &Story, rests| s.blamed("one frame too many".into(), rests).starts_with(DISTURBED);
            for (count, what) in [(true, "received"), (false, "duplicated")] {
                let mut wrong = s.result.groups[0].clone();
                *(if count { &mut wrong.received } else { &mut wrong.duplicated }) += 1;
                let right = std::mem::replace(&mut s.result.groups[0], wrong);
                check(s.accounted().is_err(), || format!("a frame more {what} is not seen"))?;
                s.result.groups[0] = right;
            }
            stalled(&mut s, 100);
            s.result.health.clock_step_ns = 5_000_000;
            check(!blamed(&s, Rests::OnCounts), || "100 ms excuse a wrong count".into())?;
            check(blamed(&s, Rests::OnTimes), || "100 ms do not excuse a wrong time".into())?;
            s.result.health.clock_step_ns = 0;
            stalled(&mut s, 20);
            check(!blamed(&s, Rests::OnTimes), || "20 ms excuse a wrong time".into())?;
            stalled(&mut s, 300);
            check(blamed(&s, Rests::OnCounts), || "frames may be on their way after 300 ms".into())
        },
    )
}

/// Sends at least `frames` frames through the device with every fault that loses, adds, changes or reorders frames.
/// Every frame must be accounted for.
pub fn account(bench: &Bench, frames: u64) -> Checked {
    bench.with(
        |c| (c.capacity_pps, c.buffer) = (Some(1_000_000), 1_000),
        |up| {
            let faults = Faults {
                drop_every: 101,
                drop_share: 0.001,
                corrupt: Some(Corrupt { every: 103, offset: None, fix_checksum: false }),
                misroute: Some(Misroute { every: 107, to_port: 0 }),
                duplicate_every: 109,
                hold: Some(Hold { every: 113, time: Duration::from_millis(20) }),
                reorder: Some(Reorder { every: 127, positions: 3 }),
                own_frames: Some(OwnFrames { interval: Duration::from_millis(10), port: 1 }),
                ..Faults::default()
            };
            let mut left = frames;
            let (mut number, mut disturbed) = (0, 0);
            while left > 0 {
                let per_trial = left.min(1_000_000) as f64;
                let mut spec = up.spec(true, RATE / 2.0, per_trial / RATE + 0.01);
                spec.drain_s = 1.0;
                let story = match up.story(&spec, &faults) {
                    Err(e) if e.starts_with(DISTURBED) && disturbed < ATTEMPTS => {
                        println!("    {e}");
                        disturbed += 1;
                        continue;
                    }
                    other => other?,
                };
                let offered = story.offered();
                check(offered > 0, || "nothing was offered".into())?;
                left = left.saturating_sub(offered);
                number += 1;
                println!("    {number}: {}", story.account());
            }
            let all = up.told()?.truth;
            println!(
                "    {frames} frames and more, none unaccounted for; {} overtaken, {} held",
                all.reordered, all.held
            );
            Ok(())
        },
    )
}

fn questions(bench: &Bench) -> Checked {
    bench.with(
        |_| {},
        |up| {
            for (line, word) in [
                ("nonsense", "nonsense"),
                ("faults {\"drop_evry\": 1}", "drop_evry"),
                ("faults {\"misroute\": {\"every\": 2, \"to_port\": 9}}", "port 9"),
            ] {
                let error = up.ask(line).err().unwrap_or_default();
                check(error.contains(word), || format!("`{line}`: `{error}`"))?;
            }
            up.told().map(drop)
        },
    )
}

/// Checks that taps that the machine does not allow are refused, with the remedy.
pub fn refused(bench: &Bench, why: &str) -> Checked {
    let suite = suite();
    let folder = tempfile::tempdir().map_err(|e| e.to_string())?;
    let config = drophammer_testbed::simulated::config(&suite.duts[0], &suite.ports, 1);
    let up =
        device::bring_up_with(bench.lab, &suite.duts[0], &suite.ports, folder.path(), bench.links, config, &|| false);
    let error = up.err().map(|e| e.to_string()).unwrap_or_default();
    check(error.contains(why) && error.contains("links: veth"), || format!("`{error}` does not say `{why}`"))
}
