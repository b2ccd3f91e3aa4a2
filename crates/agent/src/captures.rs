//! Captures of lent ports, and the way of their files through the object store.

use crate::Problem;
use crate::link::Link;
use drophammer_rig::{Capture, CaptureOrder, ROOM};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Duration;
use tokio::io::AsyncReadExt;
use tokio::time::timeout;

/// Largest file in bytes: the captured frames, and the header of the file.
const LARGEST: usize = ROOM + (1 << 10);
/// How long a file may take from the store to the controller.
const PATIENCE: Duration = Duration::from_secs(120);

/// The capture of a lent port. Requests can come twice or late; each has its number.
#[derive(Default)]
pub(crate) struct PortCapture {
    pub(crate) capture: Arc<Capture>,
    /// The newest request, and the one that started the capture.
    numbers: Mutex<(u64, u64)>,
}

impl PortCapture {
    fn numbers(&self) -> MutexGuard<'_, (u64, u64)> {
        self.numbers.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Starts or ends the capture. A request that came twice changes nothing.
    ///
    /// # Errors
    /// The request is late or impossible.
    pub(crate) fn carry_out(&self, number: u64, order: CaptureOrder) -> Result<(), String> {
        let mut numbers = self.numbers();
        if number < numbers.0 {
            return Err(format!("a late request {number} to capture"));
        }
        if number == numbers.0 {
            return Ok(());
        }
        numbers.0 = number;
        match order {
            CaptureOrder::Start { settings, .. } if !settings.filters.are_sound() => {
                return Err("impossible filters".into());
            }
            CaptureOrder::Start { settings, origin_ns } => {
                numbers.1 = number;
                self.capture.start(settings, origin_ns);
            }
            CaptureOrder::Stop => self.capture.stop(),
        }
        Ok(())
    }

    /// Ends the capture that request `started` began, and returns its file.
    ///
    /// # Errors
    /// The request is late, or the frames are gone.
    pub(crate) fn file(&self, number: u64, started: u64) -> Result<Vec<u8>, String> {
        let mut numbers = self.numbers();
        if number <= numbers.0 {
            return Err(format!("a late request {number} for captured frames"));
        }
        numbers.0 = number;
        if numbers.1 != started {
            let why = "the captured frames are gone, because the agent opened the port anew since the capture began";
            return Err(format!("{why}; start the capture again"));
        }
        self.capture.stop();
        Ok(self.capture.file())
    }
}

/// Stores a file as the object `name`.
pub(crate) async fn store(link: &Link, name: &str, file: &[u8]) -> Result<(), Problem> {
    let stored = link.captures().await?.put(name, &mut &file[..]).await;
    stored.map(drop).map_err(|e| Problem::of("the captured frames are not stored", e))
}

/// Fetches the object `name`, which has `bytes` bytes, and deletes it.
pub(crate) async fn fetch(link: &Link, name: &str, bytes: usize) -> Result<Vec<u8>, Problem> {
    let failed = |e: &dyn std::fmt::Display| Problem(format!("the captured frames cannot be fetched: {e}"));
    if bytes > LARGEST {
        return Err(failed(&format_args!("they have {bytes} bytes, more than {LARGEST}")));
    }
    let bucket = link.captures().await?;
    let mut file = Vec::new();
    let read = async {
        let object = bucket.get(name).await.map_err(|e| failed(&e))?;
        // Never more than was said, whatever the store has.
        object.take(bytes as u64 + 1).read_to_end(&mut file).await.map_err(|e| failed(&e))
    };
    let read = timeout(PATIENCE, read).await.unwrap_or_else(|_| Err(failed(&format_args!("not within {PATIENCE:?}"))));
    // Nobody else reads it. If this fails, the store deletes it later.
    let _ = bucket.delete(name).await;
    match read? {
        read if read == bytes => Ok(file),
        read => Err(failed(&format_args!("{read} of {bytes} bytes are stored"))),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use drophammer_rig::{CaptureSettings, Filter, FilterHeader};

    #[test]
    fn requests_that_come_twice_or_late_change_no_capture_and_lost_frames_are_told() {
        let port = PortCapture::default();
        let start = || CaptureOrder::Start { settings: CaptureSettings::default(), origin_ns: 0 };
        assert_eq!(port.carry_out(5, start()), Ok(()));
        assert!(port.capture.is_running());
        assert_eq!(port.carry_out(6, CaptureOrder::Stop), Ok(()));
        assert_eq!(port.carry_out(6, CaptureOrder::Stop), Ok(()), "it came twice");
        assert!(port.carry_out(5, start()).unwrap_err().contains("late request 5"));
        assert!(!port.capture.is_running());
        assert!(port.file(6, 5).unwrap_err().contains("late"));
        assert_eq!(port.file(7, 5).map(|file| file.len()), Ok(24), "the header of a file");
        assert!(port.file(7, 5).unwrap_err().contains("late"));
        assert!(
            PortCapture::default().file(8, 5).unwrap_err().contains("opened the port anew"),
            "an agent that was restarted"
        );
        let custom = Filter { header: FilterHeader::Custom(usize::MAX), fields: Vec::new() };
        let settings = CaptureSettings { filters: vec![custom].into(), ..CaptureSettings::default() };
        let order = CaptureOrder::Start { settings, origin_ns: 0 };
        assert!(port.carry_out(9, order).is_err() && !port.capture.is_running());
    }
}
