//! What chrony says about the clock of a host.
//!
//! chrony bounds the error of the clock that it synchronizes: half of the root delay, plus root dispersion, plus the
//! remaining correction (chronyc(1), `tracking`). Two hosts with such a bound know the difference of their clocks without
//! any message between them. With a hardware clock as its source (`refclock PHC`, which PTP sets), chrony bounds it better
//! than messages over a management network can. ptp4l alone reports offsets, but no bound, so nothing is asked of it.

use crate::clock::Offset;
use drophammer_port::{Clock, SystemClock};
use serde::{Deserialize, Serialize};
use std::process::Stdio;
use std::time::Duration;
use tokio::process::Command;
use tokio::time::timeout;

/// How long chronyc may take. It waits for a server that does not answer.
const PATIENCE: Duration = Duration::from_secs(1);
/// Reference of a server that follows no other clock (`local`). Its time is not that of other such servers.
const LOCAL: &str = "7F7F0101";

/// The wall clock of a host that chrony synchronizes.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Wall {
    /// Wall clock minus steady clock, in ns.
    pub minus_steady_ns: i64,
    /// Largest error of the wall clock in ns.
    pub error_ns: u64,
}

impl Wall {
    /// Returns the other host's steady clock minus this host's, if both wall clocks are as exact as they say.
    pub fn offset_to(self, other: Wall) -> Option<Offset> {
        let ns = self.minus_steady_ns.checked_sub(other.minus_steady_ns)?;
        Some(Offset { ns, error_ns: self.error_ns.checked_add(other.error_ns)? })
    }
}

/// Asks chrony about the wall clock of this host. `None` if chrony is not there or not synchronized.
pub async fn wall() -> Option<Wall> {
    let mut command = Command::new("chronyc");
    command.args(["-n", "-c", "tracking"]).stdin(Stdio::null()).stderr(Stdio::null()).kill_on_drop(true);
    let output = timeout(PATIENCE, command.output()).await.ok()?.ok()?;
    let error_ns = bound_ns(std::str::from_utf8(&output.stdout).ok()?)?;
    let minus_steady_ns = i64::try_from(SystemClock::start().wall_offset()).ok()?;
    Some(Wall { minus_steady_ns, error_ns })
}

/// Reads the largest error of the clock, in ns, from `chronyc -c tracking`. `None` if the clock is not synchronized.
fn bound_ns(tracking: &str) -> Option<u64> {
    let fields: Vec<&str> = tracking.trim().split(',').collect();
    let [reference, _, _, _, correction, _, _, _, _, _, delay, dispersion, _, leap, ..] = fields[..] else {
        return None;
    };
    if reference == LOCAL || !["Normal", "Insert second", "Delete second"].contains(&leap) {
        return None;
    }
    let seconds = |text: &str| text.parse::<f64>().ok().filter(|number| number.is_finite());
    let bound = seconds(correction)?.abs() + seconds(delay)?.abs() / 2.0 + seconds(dispersion)?.abs();
    Some((bound * 1e9).ceil() as u64)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_bound_is_that_of_the_manual() {
        // chrony 4.3, a client of a server on the same machine.
        let client = "7F000001,127.0.0.1,2,1764326400.123456789,0.000002000,-0.000001021,0.000003017,1.250,0.001,0.120,0.000041000,0.000012500,2.0,Normal\n";
        let bound = bound_ns(client).unwrap();
        assert!(bound.abs_diff(2_000 + 20_500 + 12_500) <= 1, "{bound}");
        let slow = client.replace(",0.000002000,", ",-0.000002000,");
        assert_eq!(bound_ns(&slow), bound_ns(client));
        for (from, to) in [
            ("Normal", "Not synchronised"),
            ("7F000001", LOCAL),
            ("0.000012500", "nan"),
            ("0.000012500", "much"),
            (",2.0,Normal", ""),
        ] {
            assert_eq!(bound_ns(&client.replace(from, to)), None, "{to}");
        }
        assert_eq!(bound_ns("506 Cannot talk to daemon\n"), None);
    }

    #[test]
    fn two_walls_give_the_difference_of_the_steady_clocks() {
        let own = Wall { minus_steady_ns: 1_000, error_ns: 20 };
        let other = Wall { minus_steady_ns: 400, error_ns: 7 };
        assert_eq!(own.offset_to(other), Some(Offset { ns: 600, error_ns: 27 }));
        let hostile = Wall { minus_steady_ns: i64::MIN, error_ns: u64::MAX };
        assert_eq!((own.offset_to(hostile), Wall { error_ns: 0, ..own }.offset_to(hostile)), (None, None));
    }
}
