//! Helpers for a test program that enters the lab and also serves as the reference device.

#![allow(dead_code)] // each test file uses only a part

use super::{Memory, read_suite, run_of};
use drophammer_lab::Lab;
use drophammer_lab::kinds::uml::guest;
use drophammer_port::{Backend, INTERFACE_BACKENDS};
use drophammer_testbed::{Run, device, run_suite, xdp_router};
use std::path::Path;
use std::process::ExitCode;

/// If this process was started as a reference device, as the fast path of a router of kind `xdp`, or as a guest, runs
/// in that role until it ends. Otherwise returns `None`.
pub fn as_device() -> Option<ExitCode> {
    let args: Vec<_> = std::env::args_os().skip(1).collect();
    let first = args.first()?;
    let run: fn(&[std::ffi::OsString]) -> Result<(), String> = match first.to_str()? {
        device::SUBCOMMAND => device::run,
        xdp_router::SUBCOMMAND => xdp_router::run,
        guest::SUBCOMMAND => guest::run,
        _ => return None,
    };
    Some(match run(&args[1..]) {
        Ok(()) => ExitCode::SUCCESS,
        Err(e) => {
            eprintln!("error: {e}");
            ExitCode::FAILURE
        }
    })
}

/// Runs a suite on real DUTs, in one round, with the first backend. Trials are valid even if other programs disturb them.
///
/// # Errors
/// Errors of the run.
pub fn run_in_lab(lab: &mut Lab, text: &str, work_dir: &Path) -> Result<Memory, String> {
    run_in_lab_by(lab, &INTERFACE_BACKENDS[0], text, work_dir)
}

/// Like [`run_in_lab`], with this backend.
///
/// # Errors
/// Errors of the run.
pub fn run_in_lab_by(lab: &mut Lab, backend: &'static Backend, text: &str, work_dir: &Path) -> Result<Memory, String> {
    let suite = read_suite(text);
    let mut memory = Memory::default();
    for dut in &suite.duts {
        std::fs::create_dir_all(work_dir.join(&dut.name)).map_err(|e| e.to_string())?;
    }
    let run = Run { lab: Some(lab), work_dir, backend, ..run_of(&suite, 1) };
    run_suite(run, &mut memory).map_err(|e| e.to_string())?;
    Ok(memory)
}
