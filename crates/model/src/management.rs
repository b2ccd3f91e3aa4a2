//! Whether a router still answers its operator during a trial, and how fast.

use std::time::Duration;

crate::choice! {
    /// How a router is asked.
    pub enum Question {
        /// An ICMP echo request to one of its addresses.
        Ping = "ping",
        /// A connection to its SSH server at one of its addresses, until the server's banner (RFC 4253 section 4.2).
        Ssh = "ssh",
        /// A GET of sysUpTime.
        Snmp = "snmp",
    }
}

impl Question {
    /// What a router lacks if it cannot be asked in this way.
    pub const fn lacks(self) -> &'static str {
        match self {
            Question::Ping => "it has no address at the first port",
            Question::Ssh => "it has no SSH server that the tester knows of: `ssh: true` of the kinds that have it",
            Question::Snmp => "it has no SNMP agent that the tester knows of: `snmp: true` of the kinds that have it",
        }
    }
}

/// How a router is asked during a trial and after it.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Inquiry {
    /// The kinds of questions.
    pub questions: Vec<Question>,
    /// Time between two questions of a kind.
    pub interval: Duration,
    /// How long the router is asked after the trial.
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
    /// The way that it takes: `port p1`.
    pub over: String,
    /// While the trial sent.
    pub during: Answers,
    /// After the trial.
    pub afterwards: Answers,
}
