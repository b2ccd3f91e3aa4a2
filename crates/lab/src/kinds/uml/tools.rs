//! Programs by which the first process of a guest configures its kernel.

use crate::LabError;
use crate::process;
use std::fs;
use std::path::Path;
use std::process::Command;

pub(super) fn write_sysctl(key: &str, value: &str) -> Result<(), LabError> {
    let path = Path::new("/proc/sys").join(key);
    fs::write(&path, value).map_err(LabError::file("write", &path))
}

pub(super) fn command(program: &Path) -> Command {
    process::command(program, "guest")
}

pub(super) fn ip_command(arguments: &[&str]) -> Result<Command, LabError> {
    let mut command = command(&process::find("ip", "iproute2")?);
    command.args(arguments);
    Ok(command)
}

pub(super) fn tc(arguments: &[&str], input: Option<&str>) -> Result<String, LabError> {
    let mut command = command(&process::find("tc", "iproute2")?);
    command.args(arguments);
    process::output(command, input)
}

pub(super) fn ip(lines: &[String]) -> Result<(), LabError> {
    ip_batch(&["-batch", "-"], lines)
}

pub(super) fn ip_batch(arguments: &[&str], lines: &[String]) -> Result<(), LabError> {
    process::output(ip_command(arguments)?, Some(&(lines.join("\n") + "\n"))).map(drop)
}

/// Runs lines of tc(8), if there are any.
pub(super) fn tc_batch(lines: &[String]) -> Result<(), LabError> {
    if lines.is_empty() { Ok(()) } else { tc(&["-batch", "-"], Some(&(lines.join("\n") + "\n"))).map(drop) }
}
