//! Checks whether a router still answers its operator during a trial, and how fast.

use std::time::Duration;

crate::choice! {
    /// How to query a router.
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
    /// What is missing on a router that cannot be queried this way.
    pub const fn lacks(self) -> &'static str {
        match self {
            Question::Ping => "it has no address at the first port",
            Question::Ssh => "the tester knows of no SSH server; set `ssh: true` if its kind has that parameter",
            Question::Snmp => "the tester knows of no SNMP agent; set `snmp: true` if its kind has that parameter",
        }
    }
}

/// Queries to a router during a trial and after it.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Inquiry {
    /// The kinds of queries.
    pub questions: Vec<Question>,
    /// Time between two queries of a kind.
    pub interval: Duration,
    /// How long queries continue after the trial.
    pub afterwards: Duration,
}

/// Answers during one period.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Answers {
    /// Number of queries sent.
    pub asked: u64,
    /// Time from query to answer, for each answered query in order.
    pub times: Vec<Duration>,
}

/// Answers to one kind of query.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Answered {
    /// Kind of query.
    pub question: Question,
    /// Path of the queries: `port p1`.
    pub over: String,
    /// Answers while the trial sent frames.
    pub during: Answers,
    /// Answers after the trial.
    pub afterwards: Answers,
}
