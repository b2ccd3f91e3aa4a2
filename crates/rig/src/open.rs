//! Opening ports.

use drophammer_port::{Backend, Port, PortError, SystemClock};

/// A kernel generator that shares the processor of the packet loop generates loads from this rate on, in frames per
/// second. User space offers slower loads more evenly.
const SHARED_PPS: f64 = 300e3;

/// Opens `queues` queues, at least one, of each interface of the calling thread's network namespace as ports of `backend`. A
/// generator in the kernel runs on the processor `spare`, or on the processor of the packet loop.
///
/// # Errors
/// [`PortError::Open`] with the remedy.
pub fn open(
    interfaces: &[&str],
    backend: &Backend,
    queues: u32,
    clock: SystemClock,
    spare: Option<usize>,
) -> Result<Vec<Box<dyn Port + Send>>, PortError> {
    let mut ports = (backend.begin)(interfaces, queues.max(1), clock)?;
    for kernel in ports.iter_mut().filter_map(|port| port.kernel_generator()) {
        kernel.place(spare, if spare.is_some() { 0.0 } else { SHARED_PPS });
    }
    Ok(ports)
}
