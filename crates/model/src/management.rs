//! Does a router still answer its operator, and how fast?

use std::time::Duration;

crate::choice! {
    /// How a router is asked.
    pub enum Question {
        /// An ICMP echo request to an address of its own.
        Ping = "ping",
        /// A connection to its SSH server at an address of its own, until the server's banner (RFC 4253 section 4.2).
        Ssh = "ssh",
        /// A GET of sysUpTime.
        Snmp = "snmp",
    }
}

impl Question {
    /// What a router lacks that is not asked so.
    pub const fn lacks(self) -> &'static str {
        match self {
            Question::Ping => "it has no address at the first port",
            Question::Ssh => "it has no SSH server that the tester knows of: `ssh: true` of the kinds that have it",
            Question::Snmp => "it has no SNMP agent that the tester knows of: `snmp: true` of the kinds that have it",
        }
    }
}

/// How a router is to be asked during a trial and after it.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Inquiry {
    /// What.
    pub questions: Vec<Question>,
    /// Time between two of a kind.
    pub interval: Duration,
    /// For how long it is asked once the trial is over.
    pub afterwards: Duration,
}

/// What came of asking in one phase.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Answers {
    /// Questions.
    pub asked: u64,
    /// Time from each question that was answered to its answer, in the order of the questions.
    pub times: Vec<Duration>,
}

/// What came of one kind of question.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Answered {
    /// Which.
    pub question: Question,
    /// By which way: `port p1`.
    pub over: String,
    /// While the trial sent.
    pub during: Answers,
    /// After it.
    pub afterwards: Answers,
}
