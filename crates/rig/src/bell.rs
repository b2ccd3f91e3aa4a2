//! Wakes a thread that sleeps until frames arrive, when another thread has something for it.

use std::io::{self, Read, Write};
use std::os::fd::{AsFd, BorrowedFd};
use std::os::unix::net::UnixStream;

/// The end that wakes.
pub(crate) struct Bell(UnixStream);

/// The end that is woken: a descriptor that is readable after a ring, for `wait::until_readable`.
pub(crate) struct Ear(UnixStream);

/// Creates both ends.
///
/// # Errors
/// The operating system has no descriptors left.
pub(crate) fn bell() -> io::Result<(Bell, Ear)> {
    let (bell, ear) = UnixStream::pair()?;
    bell.set_nonblocking(true)?;
    ear.set_nonblocking(true)?;
    Ok((Bell(bell), Ear(ear)))
}

impl Bell {
    pub(crate) fn ring(&self) {
        // A full buffer wakes the other end too.
        let _ = (&self.0).write(&[1]);
    }
}

impl Ear {
    /// Forgets earlier rings. Whoever sleeps next looks for what they meant first.
    pub(crate) fn forget(&self) {
        let mut rung = [0; 256];
        while (&self.0).read(&mut rung).is_ok_and(|n| n == rung.len()) {}
    }
}

impl AsFd for Ear {
    fn as_fd(&self) -> BorrowedFd<'_> {
        self.0.as_fd()
    }
}
