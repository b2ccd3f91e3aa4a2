//! The packet loop before other work of its processor.

/// While it lives, the calling thread runs before other ordinary work of its processor (nice -20), where the user may
/// ask for that; dropped, it runs as before. Not kept between trials: what is started then would inherit it.
#[derive(Debug)]
pub struct Favoured {
    before: Option<libc::c_int>,
}

/// Priority of the calling thread; threads have their own on Linux.
fn get() -> libc::c_int {
    // SAFETY: plain call; 0 names the calling thread. A result of -1 may be an error, but cannot be one for oneself.
    unsafe { libc::getpriority(libc::PRIO_PROCESS, 0) }
}

fn set(nice: libc::c_int) -> bool {
    // SAFETY: plain call; 0 names the calling thread.
    unsafe { libc::setpriority(libc::PRIO_PROCESS, 0, nice) == 0 }
}

impl Favoured {
    /// Favours the calling thread, if that is allowed.
    pub fn new() -> Favoured {
        let before = get();
        Favoured { before: set(-20).then_some(before) }
    }

    /// Was it allowed?
    pub fn is_granted(&self) -> bool {
        self.before.is_some()
    }
}

impl Default for Favoured {
    fn default() -> Self {
        Favoured::new()
    }
}

impl Drop for Favoured {
    fn drop(&mut self) {
        if let Some(before) = self.before {
            set(before);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_priority_is_given_back() {
        let before = get();
        let favoured = Favoured::new();
        assert_eq!(get(), if favoured.is_granted() { -20 } else { before });
        drop(favoured);
        assert_eq!(get(), before);
    }
}
