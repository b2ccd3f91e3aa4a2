//! The end of a guest: it halts when it is asked to, or it is killed.

use crate::LabError;
use crate::process::Daemon;
use std::time::Duration;

/// Time in which a guest must end after it was asked to halt.
pub(super) const HALT: Duration = Duration::from_secs(3);

/// Fails once the guest has ended. After a panic of its kernel, its process waits for ever.
pub(super) fn works(guest: &mut Daemon) -> Result<(), LabError> {
    guest.check_works("Kernel panic")
}

/// Ends every process of a guest. If the guest works and `halt` succeeds, it has `limit` to end by itself. What is then
/// left of it is killed.
pub(super) fn end(mut guest: Daemon, halt: impl FnOnce(&mut Daemon) -> Result<(), LabError>, limit: Duration) {
    if works(&mut guest).is_ok() && halt(&mut guest).is_ok() {
        guest.await_end(limit);
    }
    kill(guest);
}

/// Kills every process of a guest.
pub(super) fn kill(mut guest: Daemon) {
    // The process leads a group; the guest's processes are its children and do not all end with it.
    guest.end(false);
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::process::tests_support::{await_gone, with_child};
    use nix::sys::signal::Signal;
    use nix::unistd::Pid;
    use std::time::Instant;

    /// Longer than any of these tests takes.
    const LONG: Duration = Duration::from_secs(60);
    /// A guest of two processes that never ends by itself.
    const ENDLESS: &str = "sleep 600 & echo $!; wait";

    /// Ends a guest that runs this shell script. Returns the time that this took and the guest's log, once no process of
    /// it is left.
    fn ended(
        script: &str,
        halt: impl FnOnce(&mut Daemon) -> Result<(), LabError>,
        limit: Duration,
    ) -> (Duration, String) {
        let folder = tempfile::tempdir().unwrap();
        let (guest, child) = with_child(script, folder.path());
        let (leader, begun) = (guest.pid(), Instant::now());
        end(guest, halt, limit);
        let took = begun.elapsed();
        [leader, child].into_iter().for_each(await_gone);
        (took, std::fs::read_to_string(folder.path().join("guest.log")).unwrap())
    }

    #[test]
    fn a_guest_that_does_not_halt_in_time_is_killed_with_its_processes() {
        let limit = Duration::from_millis(50);
        let (took, _) = ended(ENDLESS, |_| Ok(()), limit);
        assert!(took >= limit && took < LONG, "{took:?}");
    }

    #[test]
    fn a_guest_that_cannot_halt_is_killed_at_once() {
        let (took, _) = ended(ENDLESS, |_| Err(LabError::Stopped), LONG);
        assert!(took < LONG, "it does not answer: {took:?}");
        let panicked = format!("echo 'Kernel panic: BUG!'; {ENDLESS}");
        let (took, _) = ended(&panicked, |_| panic!("it is asked"), LONG);
        assert!(took < LONG, "it works no more: {took:?}");
    }

    #[test]
    fn a_guest_that_halts_is_not_killed_before() {
        let halt = |guest: &mut Daemon| {
            nix::sys::signal::kill(Pid::from_raw(guest.pid().cast_signed()), Signal::SIGTERM).unwrap();
            Ok(())
        };
        let (took, log) = ended(&format!("trap 'echo halted; exit' TERM; {ENDLESS}"), halt, LONG);
        assert!(log.ends_with("\nhalted\n") && took < LONG, "{took:?}: {log}");
    }
}
