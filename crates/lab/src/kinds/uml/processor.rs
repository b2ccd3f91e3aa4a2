//! Processors on which a guest's kernel cannot run.
//!
//! User Mode Linux before 6.13 saves the extended registers of a process in a buffer of fixed size and restores them by
//! ptrace(2), which requires all of them. On processors with AMX the registers are larger than the buffer: the first
//! process of the guest ends in a kernel panic ("ptrace set fp regs failed").

use crate::{LabError, process};
use std::fs;
use std::path::Path;
use std::process::Command;

/// The flag of /proc/cpuinfo of processors with such registers.
const LARGE: &str = "amx_tile";
/// The first version that saves them.
const SAVES: (u32, u32) = (6, 13);

/// Refuses a kernel that cannot save the registers of this machine's processor.
///
/// # Errors
/// [`LabError::Unusable`]; errors of asking the kernel for its version.
pub(super) fn refuse_unsaved_registers(kernel: &Path) -> Result<(), LabError> {
    if !has_large_registers(&fs::read_to_string("/proc/cpuinfo").unwrap_or_default()) {
        return Ok(());
    }
    let mut ask = Command::new(kernel);
    ask.arg("--version");
    let told = process::output(ask, None)?;
    match version(&told) {
        Some(version) if version < SAVES => Err(LabError::Unusable {
            what: format!(
                "User Mode Linux {} cannot save the registers of this machine's processor (AMX)",
                told.trim()
            ),
            remedy: format!("take a machine without AMX, or User Mode Linux {}.{} or newer", SAVES.0, SAVES.1),
        }),
        _ => Ok(()),
    }
}

fn has_large_registers(cpuinfo: &str) -> bool {
    let mut flags = cpuinfo.lines().filter(|line| line.starts_with("flags"));
    flags.next().is_some_and(|line| line.split_whitespace().any(|flag| flag == LARGE))
}

/// `6.1.176`, followed by any text.
fn version(text: &str) -> Option<(u32, u32)> {
    let mut parts = text.trim().split('.');
    Some((parts.next()?.parse().ok()?, parts.next()?.parse().ok()?))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn large_registers_are_a_flag_of_their_own() {
        assert!(has_large_registers("processor: 0\nflags\t\t: fpu avx512f amx_tile amx_int8\n"));
        assert!(!has_large_registers("flags\t\t: fpu avx512f amx_tiles\nbugs: amx_tile\n"));
    }

    #[test]
    fn versions_are_compared_as_numbers() {
        assert_eq!([version("6.1.176\n"), version("6.13"), version("x")], [Some((6, 1)), Some((6, 13)), None]);
        assert!(version("6.9.1") < Some(SAVES) && version("7.0") > Some(SAVES));
    }
}
