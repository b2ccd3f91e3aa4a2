//! Measures to the nanosecond how long softirqs that receive and send frames (types NET_RX and NET_TX) hold up the
//! threads of a processor.
//!
//! On most kernels `/proc/stat` cannot show this, because they sample the processor at each timer tick. Samples see
//! work that is in step with the ticks either always or never: at 100,000 frames per second, they showed 14 to 56 %
//! where 32 % was true.

use crate::bpf::assembler::{Alu, Helper, If, Instruction, Is, Label, Program, Register, Value, Width};
use crate::bpf::{self, SharedArray};
use std::io;
use std::os::fd::OwnedFd;
use std::time::Duration;

/// Numbers of the softirqs that send and receive frames (linux/interrupt.h). They differ only in the lowest bit.
const NET_TX: i32 = 2;
const NET_RX: i32 = 3;
/// Words of the array: start of the current softirq, or 0; time of all that have ended.
const STARTED: usize = 0;
const TOTAL: usize = 1;

// Registers preserved in calls: the value of the map, and the start.
const COUNTED: Register = 6;
const START: Register = 7;
const STACK: Register = 10;
const NAME_BYTES: i16 = 16;
/// Threads whose softirqs delay nobody: the kernel's own threads and the idle thread, by the first eight bytes of their names.
const NOBODY: [&[u8; 8]; 2] = [b"ksoftirq", b"swapper/"];

/// Counts the time of a processor for the lifetime of this value. Needs `CAP_BPF` and `CAP_PERFMON`.
#[derive(Debug)]
pub struct SoftirqTime {
    counted: SharedArray,
    _links: [OwnedFd; 2],
}

impl SoftirqTime {
    /// Starts counting on the processor with this number.
    ///
    /// # Errors
    /// The operating system's error: `EPERM` without the privilege.
    pub fn on(processor: usize) -> io::Result<SoftirqTime> {
        let counted = SharedArray::new(1, 2)?;
        let processor = i32::try_from(processor).map_err(|_| io::Error::from(io::ErrorKind::InvalidInput))?;
        let map = counted.descriptor();
        // Attach the end first: a start without its end would count until the next softirq ends.
        let ends = bpf::trace(&bpf::load_tracer(&at_end(processor, map))?, c"softirq_exit")?;
        let begins = bpf::trace(&bpf::load_tracer(&at_start(processor, map))?, c"softirq_entry")?;
        Ok(SoftirqTime { counted, _links: [begins, ends] })
    }

    /// Returns the time of all softirqs that have ended.
    pub fn total(&self) -> Duration {
        Duration::from_nanos(self.counted.get(0, TOTAL))
    }
}

/// Offset of a word of the array.
const fn offset(word: usize) -> i16 {
    8 * word as i16
}

/// Ends the program unless it runs for one of the two softirqs on this processor. The only argument of both tracepoints
/// is the number of the softirq.
fn only_on(p: &mut Program, processor: i32, end: Label) {
    p.load(Width::Long, 2, 1, 0);
    p.alu(Alu::Or, 2, Value(NET_TX ^ NET_RX));
    p.jump_if(If::Unequal, 2, Value(NET_RX), end);
    p.call(Helper::Processor);
    p.jump_if(If::Unequal, 0, Value(processor), end);
}

fn finish(mut p: Program, end: Label) -> Vec<Instruction> {
    p.here(end);
    p.set(0, Value(0));
    p.exit();
    p.assemble()
}

fn at_start(processor: i32, map: i32) -> Vec<Instruction> {
    let mut p = Program::default();
    let end = p.label();
    only_on(&mut p, processor, end);
    // This comes first, so that the rest of this program counts as the softirq's time.
    p.call(Helper::TimeNs);
    p.set(START, Is(0));
    p.set(1, Is(STACK));
    p.alu(Alu::Add, 1, Value(i32::from(-NAME_BYTES)));
    p.set(2, Value(i32::from(NAME_BYTES)));
    p.call(Helper::ThreadName);
    p.load(Width::Long, 1, STACK, -NAME_BYTES);
    for name in NOBODY {
        p.set_long(2, u64::from_ne_bytes(*name));
        p.jump_if(If::Equal, 1, Is(2), end);
    }
    p.set_map_value(1, map);
    p.store(Width::Long, 1, offset(STARTED), START);
    finish(p, end)
}

fn at_end(processor: i32, map: i32) -> Vec<Instruction> {
    let mut p = Program::default();
    let end = p.label();
    only_on(&mut p, processor, end);
    p.set_map_value(COUNTED, map);
    p.load(Width::Long, START, COUNTED, offset(STARTED));
    p.jump_if(If::Equal, START, Value(0), end);
    p.call(Helper::TimeNs);
    p.alu(Alu::Sub, 0, Is(START));
    p.load(Width::Long, 1, COUNTED, offset(TOTAL));
    p.alu(Alu::Add, 1, Is(0));
    p.store(Width::Long, COUNTED, offset(TOTAL), 1);
    p.set(1, Value(0));
    p.store(Width::Long, COUNTED, offset(STARTED), 1);
    finish(p, end)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::priority::{pin, usable};
    use std::net::UdpSocket;
    use std::time::Instant;

    /// Packets to oneself are received in softirqs of the sending thread.
    #[test]
    fn work_of_softirqs_is_counted_where_it_is_done() {
        let processor = *usable().last().unwrap();
        let counting = match SoftirqTime::on(processor) {
            Err(e) if matches!(e.raw_os_error(), Some(libc::EPERM | libc::EACCES)) => {
                return println!("left out: {e}");
            }
            made => made.unwrap(),
        };
        let work = move || {
            pin(processor).unwrap();
            let (to, from) = (UdpSocket::bind("127.0.0.1:0").unwrap(), UdpSocket::bind("127.0.0.1:0").unwrap());
            let (before, began) = (counting.total(), Instant::now());
            let packets = 20_000;
            for _ in 0..packets {
                from.send_to(&[0; 64], to.local_addr().unwrap()).unwrap();
            }
            let (counted, elapsed) = (counting.total() - before, began.elapsed());
            // Each packet takes at least half a microsecond.
            assert!(counted > Duration::from_nanos(100) * packets && counted < elapsed, "{counted:?} of {elapsed:?}");
        };
        std::thread::spawn(work).join().unwrap();
    }
}
