//! How the machine disturbed tester and DUT during a trial.

use drophammer_lab::{Dut, ThreadTimes, receive_time};
use drophammer_model::Instant;
use drophammer_model::trial::{Held, ProcessorRecord, Silences, TrialResult};
use drophammer_port::clock::process_time;
use drophammer_rig::{Rig, Stalls, Times, Watch, Watched, own_times};
use std::time::Duration;

/// Watches the processors of a test setup. Does nothing in virtual time.
pub(crate) struct HostWatch {
    /// Watches the DUT's processor, if it has a dedicated one.
    dut: Option<Watch>,
}

/// Readings before a trial.
pub(crate) struct Before {
    cpu_time: Option<Duration>,
    dut_threads: Option<Vec<ThreadTimes>>,
    stolen: Option<Vec<u64>>,
    own: Option<Own>,
}

/// The tester's times at one instant.
#[derive(Clone, Copy)]
struct Own {
    /// Times of the calling thread.
    thread: Times,
    /// Processor time of all threads, and of the kernel threads that receive for the tester.
    process: Duration,
}

impl Own {
    fn now() -> Option<Own> {
        own_times().map(|thread| Own { thread, process: process_time() + receive_time() })
    }

    /// Returns how long the calling thread has waited since `before` for threads of other programs. This is a lower
    /// bound, because the tester's own threads may have run on other processors. `watch` is the time of the watch
    /// thread, which always runs on another processor.
    fn waited_since(self, before: Own, watch: Duration) -> Duration {
        let ran = self.thread.ran.saturating_sub(before.thread.ran);
        let others = self.process.saturating_sub(before.process).saturating_sub(ran + watch);
        self.thread.waited.saturating_sub(before.thread.waited).saturating_sub(others)
    }
}

/// Returns the processor time of a DUT, and the times of its threads.
fn used_by(device: &mut dyn Dut) -> (Option<Duration>, Option<Vec<ThreadTimes>>) {
    device.usage().map_or((None, None), |usage| (usage.cpu_time(), usage.threads()))
}

impl HostWatch {
    /// `processor` is the DUT's processor, if it has a dedicated one.
    pub(crate) fn new(rig: &Rig, processor: Option<usize>) -> HostWatch {
        let processor = processor.filter(|_| !rig.is_virtual());
        // With too few processors, the tester's threads share the DUT's processor.
        let own = processor.filter(|p| !rig.further_processors().contains(p));
        HostWatch { dut: own.and_then(|p| Watch::on(p).ok()) }
    }

    /// Call this right before a trial.
    pub(crate) fn begin(&self, rig: &Rig, device: &mut dyn Dut) -> Before {
        // The threads that drive ports of other hosts are there.
        let real = !rig.is_virtual() && !rig.is_far();
        let stolen = rig.stolen().filter(|_| real);
        if let Some(watch) = &self.dut {
            watch.begin();
        }
        let own = Own::now().filter(|_| real);
        let (cpu_time, dut_threads) = used_by(device);
        Before { cpu_time, dut_threads, stolen, own }
    }

    /// Call this right after a trial, even if it has no result.
    pub(crate) fn end(&self, before: Before, rig: &Rig, device: &mut dyn Dut, result: &mut TrialResult) {
        let health = &mut result.health;
        let (cpu_time, dut_threads) = used_by(device);
        let used = cpu_time.zip(before.cpu_time).map(|(now, then)| now.saturating_sub(then));
        let mut watched = self.dut.as_ref().and_then(Watch::end);
        if let (Some(watched), Some(own)) = (&mut watched, &dut_threads) {
            // The DUT's own threads are not other programs.
            watched.others.retain(|(thread, ..)| own.iter().all(|own| own.id != *thread));
        }
        let dut_waited = dut_threads.zip(before.dut_threads).map(|(now, then)| Waited::of(&then, &now));
        let watch = watched.as_ref().and_then(|watched| watched.own).unwrap_or_default();
        let waited = before.own.zip(Own::now()).map(|(then, now)| nanoseconds(now.waited_since(then, watch)));
        health.tester_waited_ns = waited.or(health.tester_waited_ns);
        let share = watched.as_ref().zip(used).and_then(|(watched, used)| TesterShare::of(watched, used));
        health.dut_processor = watched.map(|watched| {
            let stall_times = rig.started().map_or(Vec::new(), |started| {
                let now = (std::time::Instant::now(), rig.now().0 as i64 - started.0 as i64);
                stall_times(&watched, now)
            });
            let stalls = watched.stalls.unwrap_or_default();
            let (stall_times, stood_still_ns) = stood_still(stall_times, stalls, health.silences.as_ref());
            ProcessorRecord { stall_times, stood_still_ns, ..processor_record(&watched, used, dut_waited) }
        });
        let used = share.map_or(used, |share| Some(share.whole));
        health.tester_on_dut_ns = share.map(|share| nanoseconds(share.tester));
        if let (Some(then), Some(now)) = (before.stolen, rig.stolen()) {
            health.tester_stolen_ns = then.iter().zip(now).map(|(then, now)| now.saturating_sub(*then)).max();
        }
        health.dut_used_ns = used.map(nanoseconds);
        result.dut_cpu = used.and_then(|used| share_of_load(used, result.sending_s, result.receiving_s));
    }
}

/// Readings at the start of a period that is not a trial.
pub(crate) struct HostSince {
    pub(crate) readings: Before,
    pub(crate) at: Instant,
}

/// The tester's share of the processor time that forwarding took.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
struct TesterShare {
    /// Processor time of the DUT and of the tester's ends of the links.
    whole: Duration,
    /// Processor time of the tester's ends.
    tester: Duration,
}

impl TesterShare {
    /// `used` is the time of the DUT's threads, which includes their receive work. So the softirqs that receive or send
    /// frames work for the interfaces to which they send: the tester's ends of the links. `None` if the time of these
    /// softirqs was not measured: the kernel's samples at its ticks are wrong if the frames are in step with the ticks.
    fn of(watched: &Watched, used: Duration) -> Option<TesterShare> {
        let measured = watched.softirq.filter(|_| watched.softirq_apart);
        let tester = watched.held_up.or(measured)?;
        Some(match watched.softirq_apart {
            true => TesterShare { whole: used + tester, tester },
            // A softirq may have interrupted a thread of another program.
            false => TesterShare { whole: used, tester: tester.min(used) },
        })
    }
}

/// How long the DUT's threads were ready to run but did not run.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
struct Waited {
    /// Sum over all threads, including waits for each other.
    all: Duration,
    /// Longest wait of one thread, less the time that all other threads ran. In this part it certainly did not wait for threads of
    /// the DUT. The value is exact if the DUT's threads are always ready to run, and too low if they often sleep.
    least: Duration,
}

/// Time that the kernel needs to switch a processor to another thread, plus a margin. The kernel counts it as waiting.
const TURN: Duration = Duration::from_micros(5);

impl Waited {
    /// Compares the threads that are in both readings. A thread that ended in between is left out.
    fn of(before: &[ThreadTimes], now: &[ThreadTimes]) -> Waited {
        let grown = now.iter().filter_map(|now| {
            let then = before.iter().find(|then| then.id == now.id)?;
            Some(ThreadTimes {
                id: now.id,
                ran: now.ran.saturating_sub(then.ran),
                waited: now.waited.saturating_sub(then.waited),
                turns: now.turns.saturating_sub(then.turns),
            })
        });
        let grown: Vec<ThreadTimes> = grown.collect();
        let ran: Duration = grown.iter().map(|thread| thread.ran).sum();
        let least = grown.iter().map(|thread| {
            let turning = TURN * u32::try_from(thread.turns).unwrap_or(u32::MAX);
            thread.waited.saturating_sub(ran - thread.ran).saturating_sub(turning)
        });
        Waited { all: grown.iter().map(|thread| thread.waited).sum(), least: least.max().unwrap_or_default() }
    }
}

/// Returns processor time as a share of the time in which the DUT had frames to forward. This includes the time after a
/// burst in which its buffer drains.
fn share_of_load(used: Duration, sending_s: f64, receiving_s: f64) -> Option<f64> {
    let load_s = sending_s.max(receiving_s);
    (load_s > 0.0).then(|| used.as_secs_f64() / load_s)
}

/// Kernel work each time a processor leaves its idle state, which no counter includes: 1 µs in a virtual machine, plus a margin.
const LEAVING_IDLE: Duration = Duration::from_micros(2);

/// `used` is the processor time of the DUT's threads. Foreign time is the larger of two values: the observed time of
/// other programs, and the part of the elapsed time that nothing else explains. The second value covers programs that
/// ended in the meantime or that this process cannot see.
///
/// The DUT's threads waited for other programs at most as long as they waited in total, and at most as long as others ran.
fn processor_record(watched: &Watched, used: Option<Duration>, waited: Option<Waited>) -> ProcessorRecord {
    let own = watched.own.unwrap_or_default();
    // Otherwise the threads' times include softirq time.
    let interrupted = watched.softirq.filter(|_| watched.softirq_apart).unwrap_or_default();
    let seen = watched.programs.zip(used).map(|(programs, used)| programs.saturating_sub(used + own));
    let rest = watched.idle.zip(watched.idled).zip(used).map(|((idle, idled), used)| {
        let leaving = LEAVING_IDLE * u32::try_from(idled).unwrap_or(u32::MAX);
        let known = idle + leaving + used + interrupted + watched.stolen.unwrap_or_default() + own;
        watched.elapsed.saturating_sub(known)
    });
    let foreign = seen.max(rest).map(nanoseconds);
    let stalls = watched.stalls.unwrap_or_default();
    ProcessorRecord {
        elapsed_ns: nanoseconds(watched.elapsed),
        foreign_ns: foreign,
        waited_ns: foreign.map(|foreign| waited.map_or(foreign, |waited| nanoseconds(waited.all)).min(foreign)),
        waited_least_ns: foreign.zip(waited).map(|(foreign, waited)| nanoseconds(waited.least).min(foreign)),
        longest_foreign: watched.others.first().filter(|_| foreign > Some(0)).map(|(_, name, _)| name.clone()),
        stolen_ns: watched.stolen.map(nanoseconds),
        stalls: watched.stalls.map(|stalls| stalls.count),
        stalled_ns: nanoseconds(stalls.total),
        longest_stall_ns: nanoseconds(stalls.longest),
        stood_still_ns: None,
        stall_tolerated: false,
        stall_times: Vec::new(),
        watch_ns: watched.own.map_or(0, nanoseconds),
    }
}

/// Returns the stalls relative to the trial's start. `now_ns` is the time in ns from the trial's start until the instant `now`.
fn stall_times(watched: &Watched, (now, now_ns): (std::time::Instant, i64)) -> Vec<Held> {
    let ago = |at| i64::try_from(now.saturating_duration_since(at).as_nanos()).unwrap_or(i64::MAX);
    let held = |(from, late): &(std::time::Instant, Duration)| Held {
        from_ns: now_ns.saturating_sub(ago(*from)),
        ns: nanoseconds(*late),
    };
    watched.stall_times.iter().map(held).collect()
}

/// A stall may have started this long before the sentinel thread was due, in ns: the period of its wake-ups.
const BEFORE_STALL_NS: i64 = 5_000_000;

/// Returns the parts of the stalls in which nothing arrived at the tester, and the longest time in ns for which the processor may
/// have stood still. If the silences are unknown, the stalls are returned unchanged and the time is unknown.
fn stood_still(times: Vec<Held>, stalls: Stalls, silences: Option<&Silences>) -> (Vec<Held>, Option<u64>) {
    let Some(silences) = silences else { return (times, None) };
    let mut parts = Vec::new();
    let mut longest_ns = 0;
    for stall in &times {
        let silent: Vec<Held> = silences.within(stall.from_ns.saturating_sub(BEFORE_STALL_NS), stall.to_ns()).collect();
        let silence_ns = silent.iter().map(|part| part.ns).fold(silences.others_ns, u64::max);
        longest_ns = longest_ns.max(silence_ns.min(stall.ns));
        parts.extend(silent);
    }
    if stalls.count > times.len() as u64 {
        // The times of the shorter stalls are unknown. Each may have been in the longest silence.
        let stall_ns = times.iter().map(|stall| stall.ns).min().unwrap_or(nanoseconds(stalls.longest));
        let silence_ns = silences.longest.iter().map(|silence| silence.ns).fold(silences.others_ns, u64::max);
        longest_ns = longest_ns.max(silence_ns.min(stall_ns));
    }
    (parts, Some(longest_ns))
}

fn nanoseconds(time: Duration) -> u64 {
    u64::try_from(time.as_nanos()).unwrap_or(u64::MAX)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn waiting_for_threads_of_the_tester_is_not_the_hosts_doing() {
        let ms = Duration::from_millis;
        let at =
            |ran, waited, process| Own { thread: Times { ran: ms(ran), waited: ms(waited) }, process: ms(process) };
        let before = at(100, 10, 300);
        assert_eq!(at(500, 50, 700).waited_since(before, ms(0)), ms(40), "it was alone");
        assert_eq!(at(500, 50, 704).waited_since(before, ms(4)), ms(40), "but for the watch");
        assert_eq!(at(400, 110, 700).waited_since(before, ms(0)), ms(0), "a thread of ours had the processor");
        assert_eq!(at(400, 140, 700).waited_since(before, ms(0)), ms(30), "and somebody else too");
    }

    #[test]
    fn a_buffer_that_drains_is_load_too() {
        let percent = |sending_s, receiving_s| {
            share_of_load(Duration::from_millis(300), sending_s, receiving_s).map(|share| (share * 100.0).round())
        };
        assert_eq!(
            (percent(0.01, 0.4), percent(0.5, 0.5), percent(0.0, 0.0)),
            (Some(75.0), Some(60.0), None),
            "not 30 processors"
        );
    }

    #[test]
    fn threads_that_wait_for_each_other_wait_for_nobody_else() {
        let after = |id, ran, waited, turns| {
            let [ran, waited] = [ran, waited].map(Duration::from_millis);
            ThreadTimes { id, ran, waited, turns }
        };
        let times = |id, ran, waited| after(id, ran, waited, 0);
        let before = [times(7, 1_000, 100), times(8, 2_000, 200)];
        let waited = |now: &[ThreadTimes]| {
            let Waited { all, least } = Waited::of(&before, now);
            (all.as_millis(), least.as_millis())
        };
        // Both threads are always ready and take turns on the processor.
        assert_eq!(waited(&[times(7, 1_500, 600), times(8, 2_500, 700)]), (1_000, 0));
        // Another program uses the processor a third of the time.
        assert_eq!(waited(&[times(7, 1_330, 770), times(8, 2_330, 870)]), (1_340, 340));
        // One thread hardly runs although it is ready.
        assert_eq!(waited(&[times(7, 1_010, 500), times(8, 2_100, 200)]), (400, 300));
        assert_eq!(waited(&[times(9, 10, 500)]), (0, 0), "new");
        // A thread that sleeps between frames has to be woken for each frame.
        assert_eq!(waited(&[after(7, 1_010, 500, 10_000), times(8, 2_100, 200)]), (400, 250));
    }

    #[test]
    fn interrupts_are_the_testers_share() {
        let ms = Duration::from_millis;
        let watched = |softirq, softirq_apart| Watched { softirq, softirq_apart, ..Watched::default() };
        let share = |watched| TesterShare::of(&watched, ms(600)).map(|share| (share.whole, share.tester));
        assert_eq!(share(watched(Some(ms(150)), true)), Some((ms(750), ms(150))), "not in the times of threads");
        assert_eq!(share(watched(Some(ms(150)), false)), None, "sampled at ticks");
        assert_eq!(share(watched(None, true)), None);
        let held_up =
            |ns: u64, apart| Watched { held_up: Some(Duration::from_nanos(ns)), ..watched(Some(ms(300)), apart) };
        let exact = Duration::from_nanos(150_000_001);
        assert_eq!(share(held_up(150_000_001, false)), Some((ms(600), exact)));
        assert_eq!(share(held_up(150_000_001, true)), Some((ms(600) + exact, exact)));
        assert_eq!(share(held_up(610_000_000, false)), Some((ms(600), ms(600))));
        // Softirq time is not foreign even if the threads' times do not include it.
        let apart = Watched {
            elapsed: ms(1_000),
            idle: Some(ms(250)),
            programs: Some(ms(600)),
            held_up: Some(ms(140)),
            ..watched(Some(ms(150)), true)
        };
        assert_eq!(processor_record(&apart, Some(ms(600)), None).foreign_ns, Some(0));
    }

    #[test]
    fn stalls_have_the_time_of_the_trial() {
        let ms = Duration::from_millis;
        let before = std::time::Instant::now();
        let stall_times = vec![(before, ms(3)), (before + ms(30), ms(2))];
        let watched = Watched { stall_times, ..Watched::default() };
        // The trial started 10 ms after the first program started.
        let held = super::stall_times(&watched, (before + ms(50), 40_000_000));
        assert_eq!(held, [Held { from_ns: -10_000_000, ns: 3_000_000 }, Held { from_ns: 20_000_000, ns: 2_000_000 }]);
    }

    #[test]
    fn only_the_silent_part_of_a_stall_is_a_standstill() {
        let ms = |held: &[(i64, u64)]| -> Vec<Held> {
            held.iter().map(|(from, ms)| Held { from_ns: from * 1_000_000, ns: ms * 1_000_000 }).collect()
        };
        let known = |count, longest| Stalls { count, longest: Duration::from_millis(longest), ..Stalls::default() };
        let silences = |longest: &[(i64, u64)], others: u64| {
            Some(Silences { longest: ms(longest), others_ns: others * 1_000_000 })
        };
        let of = |times: &[(i64, u64)], stalls, silences: Option<Silences>| {
            let (parts, ns) = stood_still(ms(times), stalls, silences.as_ref());
            (parts, ns.map(|ns| ns / 1_000_000))
        };
        // A thread of the DUT kept the processor for 50 ms, and the host took the processor away for 20 ms at another time.
        let both = [(100, 50), (300, 20)];
        assert_eq!(of(&both, known(2, 50), silences(&[(297, 21)], 1)), (ms(&[(297, 21)]), Some(20)));
        // The same, but as one stall that contains the silence.
        assert_eq!(of(&[(100, 70)], known(1, 70), silences(&[(120, 20), (500, 60)], 1)), (ms(&[(120, 20)]), Some(20)));
        // Frames arrived throughout, as far as is known.
        assert_eq!(of(&both, known(2, 50), silences(&[(500, 60)], 3)), (vec![], Some(3)));
        // Nothing arrived, or the arrival times are unknown.
        assert_eq!(of(&both, known(2, 50), None), (ms(&both), None));
        // A stall whose time was not stored may have been in any silence.
        assert_eq!(of(&both, known(3, 50), silences(&[(500, 60)], 1)), (vec![], Some(20)));
        assert_eq!(of(&[], known(1, 9), silences(&[(500, 60)], 1)), (vec![], Some(9)));
        assert_eq!(of(&[], known(0, 0), silences(&[(500, 60)], 1)), (vec![], Some(0)));
    }

    #[test]
    fn what_nobody_of_us_used_is_foreign() {
        let ms = Duration::from_millis;
        let watched = Watched {
            elapsed: ms(1_000),
            idle: Some(ms(298)),
            idled: Some(1_000),
            programs: Some(ms(640)),
            others: vec![(417, "cc1".into(), ms(12)), (418, "as".into(), ms(3))],
            stolen: Some(ms(50)),
            softirq: Some(ms(150)),
            held_up: Some(ms(140)),
            softirq_apart: false,
            own: Some(ms(5)),
            stalls: Some(Stalls { count: 2, total: ms(9), longest: ms(7) }),
            stall_times: Vec::new(),
        };
        let processor_record = |watched: &Watched, used| {
            super::processor_record(watched, used, Some(Waited { all: ms(40), least: ms(7) }))
        };
        let record = processor_record(&watched, Some(ms(600)));
        assert_eq!((record.foreign_ns, record.watch_ns), (Some(45_000_000), 5_000_000));
        assert_eq!((record.stalls, record.stalled_ns, record.longest_stall_ns), (Some(2), 9_000_000, 7_000_000));
        assert_eq!(record.longest_foreign.as_deref(), Some("cc1"));
        assert_eq!(record.waited_ns, Some(40_000_000), "less than others ran");
        assert_eq!(record.waited_least_ns, Some(7_000_000));
        let unknown = super::processor_record(&watched, Some(ms(600)), None);
        assert_eq!(unknown.waited_ns, Some(45_000_000), "at most as long as others ran");
        assert_eq!(unknown.waited_least_ns, None);
        // Counters that are read one after the other may overlap by some microseconds.
        let record = processor_record(&watched, Some(ms(700)));
        assert_eq!((record.foreign_ns, record.longest_foreign), (Some(0), None));
        // Without the DUT's time, the rest is unknown too.
        assert_eq!(processor_record(&watched, None).foreign_ns, None);
        // The time that programs were seen to use counts as foreign even if the rest is smaller, and vice versa.
        let seen = Watched { idle: Some(ms(398)), ..watched.clone() };
        assert_eq!(processor_record(&seen, Some(ms(600))).foreign_ns, Some(35_000_000));
        let silent = Watched { programs: None, stalls: None, ..watched.clone() };
        let record = processor_record(&silent, Some(ms(600)));
        assert_eq!((record.foreign_ns, record.stalls, record.stolen_ns), (Some(45_000_000), None, Some(50_000_000)));
        let dumb = Watched { idle: None, ..silent };
        assert_eq!(processor_record(&dumb, Some(ms(600))).foreign_ns, None);
    }
}
