//! Sleeps until frames arrive, for a device that is idle.

use std::io;
use std::os::fd::{AsRawFd, BorrowedFd};
use std::time::Duration;

/// Sleeps until one of `descriptors` is readable, for at most `time`. Returns true if one is.
///
/// # Errors
/// The errors of ppoll(2), except interruption by a signal.
pub fn until_readable(descriptors: &[BorrowedFd<'_>], time: Duration) -> io::Result<bool> {
    let mut polled: Vec<libc::pollfd> =
        descriptors.iter().map(|d| libc::pollfd { fd: d.as_raw_fd(), events: libc::POLLIN, revents: 0 }).collect();
    let seconds = libc::time_t::try_from(time.as_secs()).unwrap_or(libc::time_t::MAX);
    let limit = libc::timespec { tv_sec: seconds, tv_nsec: time.subsec_nanos().into() };
    // SAFETY: `polled` has as many entries as passed and lives through the call, and so does `limit`; no signal mask is passed.
    let n = unsafe { libc::ppoll(polled.as_mut_ptr(), polled.len() as libc::nfds_t, &limit, std::ptr::null()) };
    match n {
        0.. => Ok(n > 0),
        _ => match io::Error::last_os_error() {
            e if e.kind() == io::ErrorKind::Interrupted => Ok(false),
            e => Err(e),
        },
    }
}

/// Makes sleeps of the calling thread end on time. By default they end up to 50 µs late.
pub fn be_punctual() {
    timer_slack(1);
}

/// Sets how late the calling thread can be woken, in ns. Returns the previous value.
pub(crate) fn timer_slack(ns: u64) -> u64 {
    // SAFETY: plain calls without pointers; if refused, nothing changes.
    unsafe {
        let before = libc::prctl(libc::PR_GET_TIMERSLACK);
        libc::prctl(libc::PR_SET_TIMERSLACK, ns as libc::c_ulong);
        u64::try_from(before).unwrap_or(50_000)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::io::Write;
    use std::os::fd::AsFd;
    use std::os::unix::net::UnixStream;
    use std::time::Instant;

    #[test]
    fn it_wakes_for_what_can_be_read_and_else_at_the_end() {
        let (mut a, b) = UnixStream::pair().unwrap();
        let begun = Instant::now();
        assert!(!until_readable(&[a.as_fd(), b.as_fd()], Duration::from_millis(3)).unwrap());
        assert!(begun.elapsed() >= Duration::from_millis(3));
        a.write_all(b"x").unwrap();
        assert!(until_readable(&[a.as_fd(), b.as_fd()], Duration::from_secs(1_000)).unwrap());
    }
}
