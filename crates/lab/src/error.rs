//! Errors of the lab.

use std::path::Path;

/// An error of the lab. Every message says what failed and, if possible, how to fix it.
#[derive(Debug, thiserror::Error)]
pub enum LabError {
    /// The system forbids something that the lab needs.
    #[error("{what}\n  help: {remedy}")]
    Forbidden {
        /// What was refused.
        what: String,
        /// What the user can do.
        remedy: String,
    },
    /// A program is not installed.
    #[error(
        "the program `{program}` is neither in PATH nor in a usual folder\n  help: install the Debian package `{package}`, or add the folder of `{program}` to PATH"
    )]
    MissingProgram {
        /// Its name.
        program: String,
        /// The Debian package that contains it.
        package: String,
    },
    /// A command ended with an error.
    #[error("`{command}` failed ({status}): {output}")]
    Command {
        /// The command line.
        command: String,
        /// How it ended.
        status: String,
        /// What it wrote.
        output: String,
    },
    /// A system call or file operation failed.
    #[error("{what}: {source}")]
    Io {
        /// What was attempted.
        what: String,
        /// The system's answer.
        source: std::io::Error,
    },
    /// A condition was not met in time.
    #[error("not ready after {seconds:.1} s: {condition}{log}")]
    NotReady {
        /// What the lab waited for, and how far it got.
        condition: String,
        /// How long the lab waited.
        seconds: f64,
        /// Last lines of the logs, empty or starting with a newline.
        log: String,
    },
    /// A daemon of the DUT ended on its own.
    #[error("{name} ended by itself ({status}){log}")]
    DaemonDied {
        /// Name of the daemon.
        name: String,
        /// How it ended.
        status: String,
        /// Last lines of its log, empty or starting with a newline.
        log: String,
    },
    /// The suite asks for something that this DUT does not support or this machine lacks.
    #[error("{what}\n  help: {remedy}")]
    Unusable {
        /// What is wrong.
        what: String,
        /// What the user can do.
        remedy: String,
    },
    /// One of the tester's own interfaces was set down. The DUT is not the cause.
    #[error("the interface {0} of this machine went down\n  help: ip link set {0} up")]
    OwnInterface(String),
    /// The user asked to stop.
    #[error("stopped by the user")]
    Stopped,
}

impl LabError {
    /// [`LabError::Unusable`].
    pub(crate) fn unusable(what: impl Into<String>, remedy: impl Into<String>) -> LabError {
        LabError::Unusable { what: what.into(), remedy: remedy.into() }
    }

    /// [`LabError::Forbidden`].
    pub(crate) fn forbidden(what: impl Into<String>, remedy: impl Into<String>) -> LabError {
        LabError::Forbidden { what: what.into(), remedy: remedy.into() }
    }

    /// The error for a DUT link that lost its carrier.
    pub(crate) fn lost_carrier(link: &str) -> LabError {
        LabError::unusable(
            format!("{link} of the DUT lost its carrier"),
            "see the logs of the DUT in the folder of the run",
        )
    }

    /// Wraps a failed system call: `.map_err(LabError::io("mount sysfs"))`.
    pub(crate) fn io<E: Into<std::io::Error>>(what: impl Into<String>) -> impl FnOnce(E) -> LabError {
        let what = what.into();
        move |source| LabError::Io { what, source: source.into() }
    }

    /// Wraps a failed file operation.
    pub(crate) fn file<E: Into<std::io::Error>>(verb: &str, path: &Path) -> impl FnOnce(E) -> LabError {
        LabError::io(format!("cannot {verb} {}", path.display()))
    }

    /// Adds the last lines of a log to an error that has no log lines yet.
    pub(crate) fn with_log(self, text: &str) -> LabError {
        match self {
            LabError::NotReady { condition, seconds, log } if log.is_empty() && !text.is_empty() => {
                LabError::NotReady { condition, seconds, log: format!("\n{text}") }
            }
            other => other,
        }
    }
}
