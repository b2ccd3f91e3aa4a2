//! Counts and names the frames that arrive at an interface. Sends nothing.

use drophammer_port::{Port, PortError, wait};
use drophammer_wire::conversation::{Conversation, conversation};
use std::collections::BTreeMap;
use std::os::fd::BorrowedFd;
use std::time::Duration;

/// Maximum number of conversations counted separately. Frames of all other conversations are counted together.
const MOST: usize = 10_000;
/// Length of the FCS in bytes. It is on the line but not in received frames.
const FCS: u64 = 4;

/// Number of frames and their bytes, FCS included.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Heard {
    /// Frames.
    pub frames: u64,
    /// Bytes.
    pub bytes: u64,
}

impl Heard {
    fn add(&mut self, bytes: u64) {
        self.frames += 1;
        self.bytes += bytes;
    }
}

/// Listens to an interface.
pub struct Listener {
    ports: Vec<Box<dyn Port + Send>>,
    total: Heard,
    known: BTreeMap<Conversation, Heard>,
    others: Heard,
}

impl Listener {
    /// Creates a listener for the queues of one interface.
    pub fn new(ports: Vec<Box<dyn Port + Send>>) -> Listener {
        Listener { ports, total: Heard::default(), known: BTreeMap::new(), others: Heard::default() }
    }

    /// Waits for frames for at most `time`, and counts those that have arrived. If no port has a descriptor to wait
    /// for, it polls once.
    ///
    /// # Errors
    /// The interface is gone.
    pub fn listen(&mut self, time: Duration) -> Result<(), PortError> {
        if !self.take()? {
            let descriptors: Vec<BorrowedFd<'_>> = self.ports.iter().filter_map(|port| port.readable()).collect();
            let waited = wait::until_readable(&descriptors, time);
            let interface = || self.ports.first().map(|port| port.info().interface.clone()).unwrap_or_default();
            waited.map_err(|source| PortError::Lost { interface: interface(), source })?;
            self.take()?;
        }
        Ok(())
    }

    /// Takes a burst from each queue. True if there were any frames.
    fn take(&mut self) -> Result<bool, PortError> {
        let Listener { ports, total, known, others } = self;
        let mut any = false;
        for port in ports {
            let received = port.receive()?;
            any |= !received.is_empty();
            for arrival in received.iter() {
                let bytes = arrival.frame.len() as u64 + FCS;
                total.add(bytes);
                let belongs = conversation(arrival.frame);
                let is_told_apart = known.len() < MOST || known.contains_key(&belongs);
                let heard = if is_told_apart { known.entry(belongs).or_default() } else { &mut *others };
                heard.add(bytes);
            }
        }
        Ok(any)
    }

    /// Returns the counts of all frames so far.
    pub fn total(&self) -> Heard {
        self.total
    }

    /// Returns the counts of frames outside of [`Listener::conversations`], whose number is limited.
    pub fn others(&self) -> Heard {
        self.others
    }

    /// Returns all conversations, largest number of frames first.
    pub fn conversations(&self) -> Vec<(String, Heard)> {
        let mut all: Vec<(&Conversation, &Heard)> = self.known.iter().collect();
        all.sort_by_key(|(_, heard)| std::cmp::Reverse(heard.frames));
        all.into_iter().map(|(conversation, heard)| (conversation.to_string(), *heard)).collect()
    }

    /// Returns the number of frames that arrived but were lost before they were counted here, because the machine was too slow.
    ///
    /// # Errors
    /// The interface is gone.
    pub fn drops(&mut self) -> Result<u64, PortError> {
        self.ports.iter_mut().map(|port| Ok(port.counters()?.receive_drops)).sum()
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use drophammer_port::{SystemClock, memory};
    use drophammer_rig::host_mac;

    #[test]
    fn every_frame_counts_and_the_most_frequent_come_first() {
        let clock = SystemClock::start();
        let [mut near, far] = memory::pair([0, 1].map(|i| host_mac(1, i)), 1_500, clock);
        let mut listener = Listener::new(vec![Box::new(far)]);
        // One ARP frame, two frames of an unknown type, and one conversation more than are counted separately.
        let mut send = |types: &[u16]| {
            for ethertype in types {
                let mut frame = [0; 60];
                frame[12..14].copy_from_slice(&ethertype.to_be_bytes());
                near.slots().put(0, &frame);
                assert_eq!(near.send(1).unwrap().accepted, 1);
            }
        };
        send(&[0x0806, 0x9000, 0x9000]);
        while listener.total().frames < 3 {
            listener.listen(Duration::from_secs(1)).unwrap();
        }
        assert_eq!(listener.total(), Heard { frames: 3, bytes: 3 * 64 });
        let words: Vec<_> = listener.conversations().into_iter().map(|(text, heard)| (text, heard.frames)).collect();
        assert_eq!(words, [("ethertype 0x9000".to_owned(), 2), ("arp".to_owned(), 1)]);
        assert_eq!((listener.others(), listener.drops().unwrap()), (Heard::default(), 0));
        for ethertype in 0..MOST as u16 - 1 {
            send(&[0x0600 + ethertype]);
            listener.listen(Duration::from_secs(1)).unwrap();
        }
        while listener.total().frames < MOST as u64 + 2 {
            listener.listen(Duration::from_secs(1)).unwrap();
        }
        assert_eq!(listener.conversations().len(), MOST);
        assert_eq!(
            listener.conversations().iter().map(|c| c.1.frames).sum::<u64>() + listener.others().frames,
            MOST as u64 + 2
        );
    }
}
