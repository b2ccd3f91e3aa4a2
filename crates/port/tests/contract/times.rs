//! Whether a frame carries the time at which it arrived or the time at which it was read.

use crate::{Bench, Checked, check, frame};
use drophammer_port::Clock;
use std::time::Duration;

/// Time that the frame waits at the port.
const WAIT: Duration = Duration::from_millis(50);

/// A frame that waited is older than its reading, unless the port says that it gives frames the time of their reading.
pub fn arrivals(bench: &Bench) -> Checked {
    let mut ports = bench.pair()?;
    ports[0].slots().put(0, &frame(false, 60, 3, 0));
    let sent = ports[0].send(1).map_err(|e| e.to_string())?;
    check(sent.accepted == 1, || format!("{sent:?}"))?;
    let (mut came, mut read_at) = (Vec::new(), bench.clock.now());
    let end = read_at + WAIT * 100;
    // The frame waits at the port, also if the kernel took a while to pass it on.
    while came.is_empty() && read_at < end {
        std::thread::sleep(WAIT);
        read_at = bench.clock.now();
        came.extend(ports[1].receive().map_err(|e| e.to_string())?.iter().map(|arrival| arrival.at));
    }
    let stamped = ports[1].info().stamps_arrivals;
    check(stamped == (bench.name != "af_xdp"), || format!("stamps arrivals: {stamped}"))?;
    check(came.len() == 1 && (came[0] < read_at) == stamped, || format!("{came:?}, read at {read_at:?}"))
}
