//! The network cards behind an interface: their receive queues, and the frames that they dropped because the tester was too slow.

use crate::Queue;
use crate::af_packet::driver;
use drophammer_model::Instant;
use std::fs::File;
use std::os::unix::fs::FileExt;
use std::path::Path;
use std::time::Duration;

/// Where the system describes its interfaces.
const CLASS: &str = "/sys/class/net";

/// Counters of frames that found a card's ring full. Drivers may count the same frame twice.
const DROPS: [&str; 3] = ["rx_missed_errors", "rx_fifo_errors", "rx_over_errors"];

/// How long a reading of the carrier is good for. It takes longer than sending a few frames.
const LOOK: Duration = Duration::from_millis(1);

/// True if the frames of an interface with this driver come from a program or another interface, not from a network card.
fn is_virtual(driver: &str) -> bool {
    matches!(driver, "veth" | "tun")
}

/// Returns the interfaces through which `interface` receives: the lowest interfaces below a VLAN interface, bond or
/// bridge, or itself.
fn lowest(class: &Path, interface: &str) -> Vec<String> {
    let entries = std::fs::read_dir(class.join(interface)).into_iter().flatten().flatten();
    let name = |entry: std::fs::DirEntry| Some(entry.file_name().to_str()?.strip_prefix("lower_")?.to_owned());
    let below: Vec<String> = entries.filter_map(name).collect();
    if below.is_empty() {
        return vec![interface.to_owned()];
    }
    below.iter().flat_map(|name| lowest(class, name)).collect()
}

/// Returns the cards behind `interface`. `driver_of` returns the driver of an interface.
fn cards(class: &Path, interface: &str, driver_of: impl Fn(&str) -> String) -> Vec<String> {
    lowest(class, interface).into_iter().filter(|name| !is_virtual(&driver_of(name))).collect()
}

/// Returns the number of receive queues of `interface` itself, at least one.
pub(crate) fn receive_queues(interface: &str) -> u32 {
    queues(Path::new(CLASS), interface)
}

fn queues(class: &Path, interface: &str) -> u32 {
    let entries = std::fs::read_dir(class.join(interface).join("queues")).into_iter().flatten().flatten();
    let receive = entries.filter(|entry| entry.file_name().to_string_lossy().starts_with("rx-"));
    u32::try_from(receive.count()).unwrap_or(1).max(1)
}

/// True if frames of several receive queues of a card meet at a port of `interface` that reads at most `read` queues.
/// Each queue may have its own processor, so a frame may overtake another before they reach the port.
pub(crate) fn merges_queues(interface: &str, read: u32) -> bool {
    merges(Path::new(CLASS), interface, read, driver)
}

fn merges(class: &Path, interface: &str, read: u32, driver_of: impl Fn(&str) -> String) -> bool {
    cards(class, interface, driver_of).iter().any(|card| queues(class, card) > read)
}

/// Frames that the cards behind an interface dropped.
#[derive(Debug, Default)]
pub(crate) struct CardDrops {
    cards: Vec<Card>,
    dropped: u64,
}

/// The counters of a card, each with its last value.
#[derive(Debug)]
struct Card(Vec<(File, u64)>);

impl CardDrops {
    /// Starts counting for `queue` of `interface`. Only the first queue counts, because a card counts the frames of all
    /// its queues together.
    pub fn open(interface: &str, queue: Queue) -> CardDrops {
        if queue.index > 0 {
            return CardDrops::default();
        }
        let class = Path::new(CLASS);
        CardDrops::of(class, &cards(class, interface, driver))
    }

    /// Starts counting for these cards.
    pub(crate) fn of(class: &Path, cards: &[String]) -> CardDrops {
        CardDrops { cards: cards.iter().map(|card| Card::open(class, card)).collect(), dropped: 0 }
    }

    /// Returns the number of frames dropped since the counter was opened.
    pub fn update(&mut self) -> u64 {
        self.dropped += self.cards.iter_mut().map(Card::new_drops).sum::<u64>();
        self.dropped
    }
}

impl Card {
    fn open(class: &Path, card: &str) -> Card {
        let folder = class.join(card).join("statistics");
        let files = DROPS.iter().filter_map(|name| File::open(folder.join(name)).ok());
        Card(files.filter_map(|file| number(&file).map(|value| (file, value))).collect())
    }

    /// Returns the number of frames dropped since the last call: the largest increase of any counter. An interface that
    /// is gone drops no more frames.
    fn new_drops(&mut self) -> u64 {
        let increase = |(file, last): &mut (File, u64)| {
            let Some(now) = number(file) else { return 0 };
            let before = std::mem::replace(last, now);
            // Some drivers restart their counters at 0 when the link comes up.
            now.checked_sub(before).unwrap_or(now)
        };
        self.0.iter_mut().map(increase).max().unwrap_or(0)
    }
}

/// Whether the link of a network card has carrier. Without it, the kernel refuses frames as if the card's ring were full.
#[derive(Debug)]
pub(crate) struct Carrier {
    /// The kernel's file `carrier`, which has 0 or 1.
    file: File,
    looked: Option<Instant>,
    is_gone: bool,
}

impl Carrier {
    /// `None` if the frames of this interface go to a program or another interface.
    pub fn open(interface: &str, driver: &str) -> Option<Carrier> {
        if is_virtual(driver) { None } else { Carrier::of(Path::new(CLASS), interface) }
    }

    pub(crate) fn of(class: &Path, interface: &str) -> Option<Carrier> {
        let file = File::open(class.join(interface).join("carrier")).ok()?;
        Some(Carrier { file, looked: None, is_gone: false })
    }

    /// True if the link has no carrier.
    pub fn is_gone(&mut self, now: Instant) -> bool {
        if self.looked.is_none_or(|at| now.since(at) >= LOOK) {
            // The file of an interface that is down cannot be read.
            (self.looked, self.is_gone) = (Some(now), number(&self.file) == Some(0));
        }
        self.is_gone
    }
}

/// Returns the number that a system file currently contains.
pub(crate) fn number(file: &File) -> Option<u64> {
    let mut text = [0; 24];
    let length = file.read_at(&mut text, 0).ok()?;
    std::str::from_utf8(&text[..length]).ok()?.trim().parse().ok()
}

/// A folder that describes interfaces like `/sys/class/net`, for tests. It is removed when the value is dropped.
#[cfg(test)]
pub(crate) struct Described(std::path::PathBuf);

#[cfg(test)]
impl Described {
    pub fn new(name: &str) -> Described {
        let folder = std::env::temp_dir().join(format!("drophammer-device-{}-{name}", std::process::id()));
        std::fs::create_dir_all(&folder).unwrap();
        Described(folder)
    }

    pub fn class(&self) -> &Path {
        &self.0
    }

    /// Creates the interface `name` with `queues` receive queues and one send queue, on top of the interfaces `below`.
    pub fn interface(&self, name: &str, queues: u32, below: &[&str]) {
        let folder = self.0.join(name);
        std::fs::create_dir_all(folder.join("statistics")).unwrap();
        let all = (0..queues).map(|queue| format!("rx-{queue}")).chain(["tx-0".to_owned()]);
        all.for_each(|queue| std::fs::create_dir_all(folder.join("queues").join(queue)).unwrap());
        below.iter().for_each(|below| std::fs::create_dir_all(folder.join(format!("lower_{below}"))).unwrap());
    }

    /// Gives the interface `name` a carrier, or takes it away.
    pub fn carrier(&self, name: &str, has: bool) {
        std::fs::write(self.0.join(name).join("carrier"), format!("{}\n", u8::from(has))).unwrap();
    }

    /// Sets the [`DROPS`] counters of the interface `name`.
    pub fn drops(&self, name: &str, values: [u64; 3]) {
        for (counter, value) in DROPS.iter().zip(values) {
            std::fs::write(self.0.join(name).join("statistics").join(counter), format!("{value}\n")).unwrap();
        }
    }
}

#[cfg(test)]
impl Drop for Described {
    fn drop(&mut self) {
        let _ = std::fs::remove_dir_all(&self.0);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn driver_of(interface: &str) -> String {
        let name = match interface {
            "t0" => "veth",
            "p0" => "tun",
            _ => "ixgbe",
        };
        name.into()
    }

    #[test]
    fn frames_of_several_queues_come_together_only_where_a_card_has_more_than_are_read() {
        let system = Described::new("queues");
        let interfaces: [(&str, u32, &[&str]); 8] = [
            ("eth1", 4, &[]),
            ("eth2", 1, &[]),
            ("t0", 4, &[]),
            ("p0", 4, &[]),
            ("eth1.7", 1, &["eth1"]),
            ("bond0", 16, &["eth2"]),
            ("bond0.8", 16, &["bond0"]),
            ("br0", 1, &["t0", "p0"]),
        ];
        interfaces.iter().for_each(|(name, queues, below)| system.interface(name, *queues, below));
        let merges = |name: &str, read| merges(system.class(), name, read, driver_of);
        assert!(merges("eth1", 1) && merges("eth1", 3) && !merges("eth1", 4));
        assert!(!merges("eth2", 1), "one processor feeds the port");
        assert!(!merges("t0", 1) && !merges("p0", 1) && !merges("br0", 1), "no card");
        assert!(merges("eth1.7", 1), "the queues of the card below count");
        assert!(!merges("bond0", 1) && !merges("bond0.8", 1), "a bond has queues of its own that receive nothing");
        assert!(!merges("gone", 1));
        assert_eq!(["eth1", "bond0", "gone"].map(|name| queues(system.class(), name)), [4, 16, 1]);
    }

    #[test]
    fn a_frame_that_a_card_dropped_counts_once() {
        let system = Described::new("drops");
        let names = ["eth1".to_owned(), "eth2".to_owned()];
        names.iter().for_each(|name| system.interface(name, 1, &[]));
        system.drops("eth1", [1_000, 0, 70]);
        system.drops("eth2", [0; 3]);
        let mut drops = CardDrops::of(system.class(), &names);
        assert_eq!(drops.update(), 0, "what was dropped before does not count");
        system.drops("eth1", [1_005, 5, 70]);
        assert_eq!(drops.update(), 5, "two counters have the same frames");
        // A counter far below another one is still counted.
        system.drops("eth1", [1_005, 5, 72]);
        system.drops("eth2", [0, 0, 3]);
        assert_eq!((drops.update(), drops.update()), (10, 10));
        system.drops("eth1", [4, 0, 0]);
        assert_eq!(drops.update(), 14, "the driver has begun again");
        let mut none = CardDrops::of(system.class(), &["gone".to_owned()]);
        assert_eq!(none.update(), 0);
    }

    #[test]
    fn a_carrier_is_looked_at_again_after_a_while() {
        let system = Described::new("carrier");
        system.interface("eth1", 1, &[]);
        system.carrier("eth1", false);
        let mut carrier = Carrier::of(system.class(), "eth1").unwrap();
        assert!(carrier.is_gone(Instant(5)));
        system.carrier("eth1", true);
        assert!(carrier.is_gone(Instant(5) + LOOK / 2));
        assert!(!carrier.is_gone(Instant(5) + LOOK));
        assert!(Carrier::of(system.class(), "gone").is_none());
        assert!(Carrier::open("lo", "veth").is_none());
    }
}
