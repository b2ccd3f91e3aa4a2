//! Scheduling priority of this session.
//!
//! If the kernel groups processes by session (autogroup), the nice value of a thread counts only within its own
//! session: a compiler in another terminal would take half of a processor from the packet loop. So this session gets
//! the highest priority while a lab exists. Afterwards its former priority is restored.

use std::fs;

const OWN: &str = "/proc/self/autogroup";
const HIGHEST: i32 = -20;

/// While this value lives, this session has priority over all others.
#[derive(Debug)]
pub(crate) struct Favoured {
    before: i32,
}

impl Favoured {
    /// Raises the priority of this session; `None` if the kernel has no autogroups, forbids the change, or the priority is
    /// already the highest.
    pub(crate) fn new() -> Option<Favoured> {
        let enabled = fs::read_to_string("/proc/sys/kernel/sched_autogroup_enabled").ok()?;
        let before = nice(&fs::read_to_string(OWN).ok()?)?;
        if enabled.trim() != "1" || before == HIGHEST {
            return None;
        }
        fs::write(OWN, HIGHEST.to_string()).ok()?;
        Some(Favoured { before })
    }

    /// Returns a shell command that restores the former priority of the session, for a process that outlives this one.
    pub(crate) fn undo(&self) -> String {
        format!("echo {} >{OWN}", self.before)
    }
}

impl Drop for Favoured {
    fn drop(&mut self) {
        let _ = fs::write(OWN, self.before.to_string());
    }
}

/// Parses the nice value from a line such as `/autogroup-222 nice 0`.
fn nice(text: &str) -> Option<i32> {
    text.trim().rsplit_once(" nice ")?.1.parse().ok()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_priority_of_a_session() {
        assert_eq!(nice("/autogroup-222 nice 0\n"), Some(0));
        assert_eq!(nice("/autogroup-7 nice -20\n"), Some(-20));
        assert_eq!((nice(""), nice("/autogroup-7")), (None, None));
    }
}
