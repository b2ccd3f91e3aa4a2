//! Memory from the kernel.

use std::io;
use std::ptr::NonNull;

/// Memory from `mmap`, unmapped when dropped.
#[derive(Debug)]
pub(crate) struct Mapping {
    start: NonNull<u8>,
    len: usize,
    /// The whole mapping: the memory, and the space before it that alignment needed.
    whole: (NonNull<u8>, usize),
}

/// Size of a large page on most processors.
const LARGE_PAGE: usize = 2 << 20;

impl Mapping {
    fn map(len: usize, flags: i32, fd: i32, offset: libc::off_t) -> io::Result<NonNull<u8>> {
        let access = libc::PROT_READ | libc::PROT_WRITE;
        // SAFETY: this creates a new mapping where the kernel chooses, so it cannot overlap our memory.
        let start = unsafe { libc::mmap(std::ptr::null_mut(), len, access, flags, fd, offset) };
        if start == libc::MAP_FAILED {
            return Err(io::Error::last_os_error());
        }
        NonNull::new(start.cast()).ok_or_else(|| io::ErrorKind::OutOfMemory.into())
    }

    /// Maps memory of the kernel, at `offset` of `fd`.
    pub(crate) fn shared(len: usize, fd: i32, offset: libc::off_t) -> io::Result<Mapping> {
        let start = Mapping::map(len, libc::MAP_SHARED | libc::MAP_POPULATE, fd, offset)?;
        Ok(Mapping { start, len, whole: (start, len) })
    }

    /// Allocates memory of our own, in large pages if available. Frames rotate through all of it, and with small pages
    /// nearly every frame would miss the TLB.
    pub(crate) fn own(len: usize) -> io::Result<Mapping> {
        let whole_len = len.next_multiple_of(LARGE_PAGE) + LARGE_PAGE;
        let whole = Mapping::map(whole_len, libc::MAP_PRIVATE | libc::MAP_ANONYMOUS, -1, 0)?;
        // SAFETY: the first multiple of a large page is less than a large page from the start, and the mapping is
        // longer by that size.
        let start = unsafe { whole.add(whole.align_offset(LARGE_PAGE)) };
        let mapping = Mapping { start, len, whole: (whole, whole_len) };
        // SAFETY: both calls get only memory of this mapping. The first may fail without harm. The second makes the
        // kernel provide all pages now, not during a trial.
        unsafe {
            libc::madvise(start.as_ptr().cast(), len.next_multiple_of(LARGE_PAGE), libc::MADV_HUGEPAGE);
            start.write_bytes(0, len);
        }
        Ok(mapping)
    }

    #[inline]
    pub(crate) fn start(&self) -> NonNull<u8> {
        self.start
    }

    #[inline]
    pub(crate) fn len(&self) -> usize {
        self.len
    }
}

// SAFETY: this is plain memory with a single owner, and nothing in it is tied to a thread.
unsafe impl Send for Mapping {}

impl Drop for Mapping {
    fn drop(&mut self) {
        // SAFETY: this value owns the mapping, and no pointer into it outlives the owner.
        unsafe { libc::munmap(self.whole.0.as_ptr().cast(), self.whole.1) };
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn own_memory_begins_at_a_large_page_and_is_zero() {
        let mapping = Mapping::own(3 * 4_096).unwrap();
        assert_eq!((mapping.start().as_ptr() as usize % LARGE_PAGE, mapping.len()), (0, 3 * 4_096));
        // SAFETY: the mapping has this length, is initialized, and nobody else accesses it.
        let bytes = unsafe { std::slice::from_raw_parts(mapping.start().as_ptr(), mapping.len()) };
        assert!(bytes.iter().all(|b| *b == 0));
    }
}
