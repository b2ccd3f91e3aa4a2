//! Whether a router still answers its operator during a trial, and how fast.

use std::time::Duration;

crate::choice! {
    /// How to ask a router.
    pub enum Question {
        /// An ICMP echo request to one of its addresses.
        Ping = "ping",
        /// A connection to its SSH server, until the server's banner arrives (RFC 4253 section 4.2).
        Ssh = "ssh",
        /// A GET of sysUpTime.
        Snmp = "snmp",
    }
}

impl Question {
    /// What a router lacks that cannot be asked this way.
    pub const fn lacks(self) -> &'static str {
        match self {
            Question::Ping => "it has no address at the first port",
            Question::Ssh => "the tester knows of no SSH server; set `ssh: true` if its kind has that parameter",
            Question::Snmp => "the tester knows of no SNMP agent; set `snmp: true` if its kind has that parameter",
        }
    }
}

/// How to ask a router during a trial and after it.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Inquiry {
    /// The kinds of questions.
    pub questions: Vec<Question>,
    /// Time between two questions of a kind.
    pub interval: Duration,
    /// How long to ask after the trial.
    pub afterwards: Duration,
}

/// Answers during one phase.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Answers {
    /// Questions sent.
    pub asked: u64,
    /// Time from question to answer, for each answered question in order.
    pub times: Vec<Duration>,
}

/// Answers to one kind of question.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Answered {
    /// Kind of question.
    pub question: Question,
    /// The way it takes: `port p1`.
    pub over: String,
    /// While the trial sent.
    pub during: Answers,
    /// After the trial.
    pub afterwards: Answers,
}
