//! The capture around a port: the same frames pass with it and without it, and the file contains them.

use drophammer_model::quantity::Instant;
use drophammer_port::capture::{Capture, CaptureLimits, CaptureStatus};
use drophammer_port::memory::{self, RING_BURSTS};
use drophammer_port::simulated::{self, Device};
use drophammer_port::{BURST, Clock, Port, SystemClock};
use drophammer_wire::MacAddr;
use std::collections::VecDeque;
use std::path::{Path, PathBuf};
use std::process::Command;
use std::time::Duration;

/// A file that is removed with the test.
struct Place(PathBuf);

impl Place {
    fn new(name: &str) -> Place {
        Place(std::env::temp_dir().join(format!("drophammer-capture-{}-{name}.pcap", std::process::id())))
    }
}

impl Drop for Place {
    fn drop(&mut self) {
        let _ = std::fs::remove_file(&self.0);
    }
}

/// Test frames of these tests begin with 0xff.
fn is_test(frame: &[u8]) -> bool {
    frame[0] == 0xff
}

fn frame(n: usize, test: bool) -> Vec<u8> {
    let mut f = vec![0; 60 + n % 200];
    (f[0], f[1], f[2]) = (if test { 0xff } else { 2 }, (n >> 8) as u8, n as u8);
    f[12..14].copy_from_slice(&[0x88, 0xb5]);
    f
}

/// `(time in ns, length of the frame, kept bytes)` of each frame of a file.
fn read(path: &Path) -> (u32, Vec<(u64, usize, Vec<u8>)>) {
    let bytes = std::fs::read(path).unwrap();
    let word = |at: usize| u32::from_le_bytes(bytes[at..at + 4].try_into().unwrap());
    assert_eq!([word(0), word(4), word(8), word(12), word(20)], [0xa1b2_3c4d, 0x0004_0002, 0, 0, 1]);
    let (mut at, mut out) = (24, Vec::new());
    while at < bytes.len() {
        let kept = word(at + 8) as usize;
        let ns = u64::from(word(at)) * 1_000_000_000 + u64::from(word(at + 4));
        out.push((ns, word(at + 12) as usize, bytes[at + 16..at + 16 + kept].to_vec()));
        at += 16 + kept;
    }
    (word(16), out)
}

const ORIGIN: u64 = 1_700_000_000_123_456_789;

fn start<P>(port: P, place: &Place, limits: CaptureLimits, clock: SystemClock) -> (impl Port + use<P>, CaptureStatus)
where
    P: std::ops::DerefMut,
    P::Target: Port,
{
    Capture::start(port, &place.0, limits, ORIGIN, move || clock.now(), is_test).unwrap()
}

/// Waits until `done`, at most ten seconds.
fn until(what: &str, mut done: impl FnMut() -> bool) {
    let begun = std::time::Instant::now();
    while !done() {
        assert!(begun.elapsed() < Duration::from_secs(10), "{what}");
        std::thread::yield_now();
    }
}

/// All results of the ports of a pair while bursts of all lengths pass and some are refused: they must be the same with
/// and without a capture.
fn story(a: &mut dyn Port, b: &mut dyn Port) -> Vec<String> {
    let ahead = a.ahead().is_some();
    let mut told = vec![format!("{:?} {ahead}", a.info())];
    let mut n = 0;
    for round in 0..300 {
        // Every seventh round sends more than there is room for.
        for _ in 0..if round % 7 == 0 { RING_BURSTS + 1 } else { 1 } {
            let frames = 1 + (round * 13) % BURST;
            for slot in 0..frames {
                a.slots().put(slot, &frame(n, n % 3 == 0));
                n += 1;
            }
            told.push(format!("{:?}", a.send(frames).unwrap()));
        }
        loop {
            let came = b.receive().unwrap();
            if came.is_empty() {
                break;
            }
            told.extend(came.iter().map(|f| format!("{:?}", f.frame)));
        }
        b.slots().put(0, &frame(n, false));
        told.push(format!("{:?}", b.send(1).unwrap()));
        told.extend(a.receive().unwrap().iter().map(|f| format!("back {:?}", f.frame)));
    }
    told.push(format!("{:?} {} {}", a.counters().unwrap(), a.readable().is_none(), a.kernel_generator().is_none()));
    told
}

#[test]
fn what_passes_is_the_same_and_the_file_has_all_that_left_or_came() {
    let place = Place::new("same");
    let clock = SystemClock::start();
    let macs = [MacAddr::local(1), MacAddr::local(2)];
    let [mut a, mut b] = memory::pair(macs, 1_500, clock);
    let bare = story(&mut a, &mut b);
    let [a, mut b] = memory::pair(macs, 1_500, clock);
    let begun = clock.now();
    let (mut a, status) = start(Box::new(a) as Box<dyn Port + Send>, &place, CaptureLimits::default(), clock);
    assert_eq!(story(&mut a, &mut b), bare);
    drop(a);
    let ended = clock.now();
    assert_eq!((status.note(), status.missed()), (None, 0));
    let (snap, frames) = read(&place.0);
    assert_eq!((snap, frames.len() as u64), (65_535, status.frames()));
    // Frames received at the far end, and frames that came back; both without test frames.
    let told: Vec<&String> = bare.iter().filter(|l| l.starts_with("[2, ") || l.starts_with("back")).collect();
    let kept: Vec<String> = frames.iter().map(|f| format!("{:?}", f.2)).collect();
    let mut wanted: Vec<String> = told.iter().map(|l| l.trim_start_matches("back ").to_owned()).collect();
    let mut found = kept.clone();
    wanted.sort();
    found.sort();
    assert_eq!(found, wanted);
    assert!(bare.iter().any(|l| l.contains("refused: 5") || l.contains("refused: 6")), "nothing was refused");
    for (ns, len, kept) in &frames {
        assert_eq!(*len, kept.len());
        assert!((ORIGIN + begun.0..=ORIGIN + ended.0).contains(ns));
    }
    assert!(frames.windows(2).all(|w| w[0].0 <= w[1].0));
}

#[test]
fn tshark_reads_it() {
    if Command::new("tshark").arg("--version").output().is_err() {
        println!("skipped: tshark is not installed");
        return;
    }
    let place = Place::new("tshark");
    let clock = SystemClock::start();
    let [mut a, mut b] = memory::pair([MacAddr::local(1), MacAddr::local(2)], 1_500, clock);
    let limits = CaptureLimits { snap_length: 64, ..Default::default() };
    let (mut captured, _) = start(&mut a, &place, limits, clock);
    for n in 0..100 {
        captured.slots().put(0, &frame(n, n % 10 == 0));
        captured.send(1).unwrap();
        b.receive().unwrap();
    }
    drop(captured);
    let fields = ["-e", "frame.len", "-e", "frame.cap_len", "-e", "eth.type", "-e", "frame.time_epoch"];
    let output = Command::new("tshark").arg("-r").arg(&place.0).args(["-T", "fields"]).args(fields).output().unwrap();
    let text = String::from_utf8(output.stdout).unwrap();
    let lines: Vec<Vec<&str>> = text.lines().map(|l| l.split('\t').collect()).collect();
    assert_eq!(lines.len(), 90, "{text}{}", String::from_utf8_lossy(&output.stderr));
    let (_, frames) = read(&place.0);
    for (line, (ns, len, _)) in lines.iter().zip(&frames) {
        assert_eq!(line[..3], [len.to_string(), len.min(&64).to_string(), "0x88b5".to_owned()]);
        // The format is seconds with nanoseconds, or a date with them, depending on the version.
        assert!(line[3].contains(&format!("{:09}", ns % 1_000_000_000)), "{line:?} {ns}");
    }
}

#[test]
fn the_file_ends_at_its_limit_and_the_port_goes_on() {
    let place = Place::new("limit");
    let clock = SystemClock::start();
    let [mut a, mut b] = memory::pair([MacAddr::local(1), MacAddr::local(2)], 1_500, clock);
    let limits = CaptureLimits { snap_length: 60, file_bytes: 24 + 10 * 76 + 75 };
    let (mut captured, status) = start(&mut a, &place, limits, clock);
    for n in 0..100 {
        captured.slots().put(0, &frame(n, false));
        assert_eq!(captured.send(1).unwrap().accepted, 1);
        assert_eq!(b.receive().unwrap().len(), 1);
    }
    drop(captured);
    let (_, frames) = read(&place.0);
    assert_eq!((frames.len(), status.frames(), status.missed()), (10, 10, 0));
    let note = status.note().unwrap();
    assert_eq!(note, "the capture of m0 ended after 10 frames, when its file reached the size limit");
}

#[test]
fn a_full_disk_ends_the_capture_and_not_the_trial() {
    let clock = SystemClock::start();
    let [a, mut b] = memory::pair([MacAddr::local(1), MacAddr::local(2)], 1_500, clock);
    let full = Path::new("/dev/full");
    // Every write to /dev/full fails for lack of space, even the file header.
    let refused = Capture::start(Box::new(a), full, CaptureLimits::default(), 0, move || clock.now(), is_test);
    assert_eq!(refused.err().unwrap().kind(), std::io::ErrorKind::StorageFull);
    // A reader that closes the pipe after the header acts like a disk that fails during the run.
    let place = Place::new("pipe");
    assert!(Command::new("mkfifo").arg(&place.0).status().unwrap().success());
    let path = place.0.clone();
    let reader = std::thread::spawn(move || {
        let mut file = std::fs::File::open(path).unwrap();
        std::io::Read::read_exact(&mut file, &mut [0; 24]).unwrap();
    });
    let [mut a, mut c] = memory::pair([MacAddr::local(1), MacAddr::local(2)], 1_500, clock);
    let (mut captured, status) = start(&mut a, &place, CaptureLimits::default(), clock);
    reader.join().unwrap();
    until("the error is noted", || {
        captured.slots().put(0, &frame(1, false));
        assert_eq!(captured.send(1).unwrap().accepted, 1);
        assert_eq!(c.receive().unwrap().len(), 1);
        assert!(captured.receive().unwrap().is_empty());
        status.note().is_some()
    });
    let note = status.note().unwrap();
    assert!(note.starts_with("the capture of m0 ended: ") && note.contains("cannot be written"), "{note}");
    captured.slots().put(0, &frame(2, false));
    assert_eq!(captured.send(1).unwrap().accepted, 1);
    assert_eq!(c.receive().unwrap().get(0).frame, frame(2, false));
    assert!(b.receive().unwrap().is_empty());
}

#[test]
fn a_disk_that_stands_still_holds_nothing_up() {
    let place = Place::new("slow");
    assert!(Command::new("mkfifo").arg(&place.0).status().unwrap().success());
    let path = place.0.clone();
    let (go, wait) = std::sync::mpsc::channel::<()>();
    let reader = std::thread::spawn(move || {
        let mut file = std::fs::File::open(path).unwrap();
        // Reads nothing until it is notified, then everything.
        wait.recv().unwrap();
        let mut all = Vec::new();
        std::io::Read::read_to_end(&mut file, &mut all).unwrap();
        all.len()
    });
    let clock = SystemClock::start();
    let [mut a, mut b] = memory::pair([MacAddr::local(1), MacAddr::local(2)], 1_500, clock);
    let limits = CaptureLimits { file_bytes: u64::MAX, ..Default::default() };
    let (mut captured, status) = start(&mut a, &place, limits, clock);
    let mut sent = 0;
    until("frames go missing", || {
        for slot in 0..BURST {
            captured.slots().put(slot, &vec![2; 1_514]);
        }
        assert_eq!(captured.send(BURST).unwrap().accepted as usize, BURST);
        sent += BURST as u64;
        while !b.receive().unwrap().is_empty() {}
        status.missed() > 0
    });
    go.send(()).unwrap();
    drop(captured);
    assert_eq!(status.frames() + status.missed(), sent);
    assert_eq!(reader.join().unwrap() as u64, 24 + status.frames() * (16 + 1_514));
    assert!(status.note().unwrap().ends_with("because the disk was too slow"));
}

/// Returns each frame a microsecond later.
#[derive(Default)]
struct Echo(VecDeque<(Instant, usize, Vec<u8>)>);

impl Device for Echo {
    fn receive(&mut self, now: Instant, port: usize, frame: &[u8]) {
        self.0.push_back((now + Duration::from_micros(1), port, frame.to_vec()));
    }

    fn poll(&mut self, now: Instant, deliver: &mut dyn FnMut(Instant, usize, &[u8])) {
        while let Some((at, port, frame)) = self.0.pop_front_if(|f| f.0 <= now) {
            deliver(at, port, &frame);
        }
    }

    fn next_deadline(&self) -> Option<Instant> {
        self.0.front().map(|f| f.0)
    }
}

#[test]
fn in_virtual_time_frames_have_the_instants_at_which_they_leave_and_come() {
    let place = Place::new("virtual");
    let (mut clock, mut ports) = simulated::world(Box::<Echo>::default(), &[MacAddr::local(1)], 1_500);
    let port: Box<dyn Port> = Box::new(ports.remove(0));
    let (mut captured, _) =
        Capture::start(port, &place.0, CaptureLimits::default(), 0, || Instant(7), is_test).unwrap();
    let at: Vec<Instant> = (1..=4).map(|i| Instant(i * 10_000)).collect();
    for slot in 0..4 {
        captured.slots().put(slot, &frame(slot, slot == 2));
    }
    assert_eq!(captured.ahead().unwrap().send_at(&at).unwrap().accepted, 4);
    let mut came = 0;
    while came < 4 {
        clock.wait(Instant(50_000));
        came += captured.receive().unwrap().len();
    }
    drop(captured.into_inner());
    let (_, frames) = read(&place.0);
    let times: Vec<(u64, u8)> = frames.iter().map(|f| (f.0, f.2[2])).collect();
    assert_eq!(times, [(10_000, 0), (20_000, 1), (40_000, 3), (11_000, 0), (21_000, 1), (41_000, 3)]);
}
