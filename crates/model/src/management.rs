//! Does a router still answer its operator, and how fast?

use crate::param::ParamType;
use crate::registry::ParamKind;
use crate::suite::ParamValue;
use std::time::Duration;

/// How a router is asked.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum Question {
    /// An ICMP echo request to an address of its own.
    Ping,
    /// A GET of sysUpTime.
    Snmp,
}

impl Question {
    /// All, with their words in suite files.
    const ALL: [(&'static str, Question); 2] = [("ping", Question::Ping), ("snmp", Question::Snmp)];

    /// What it is called.
    pub fn word(self) -> &'static str {
        match self {
            Question::Ping => "ping",
            Question::Snmp => "snmp",
        }
    }
}

/// A list of questions, each once.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Questions(pub Vec<Question>);

impl ParamType for Questions {
    const KIND: ParamKind = ParamKind::Words(&["ping", "snmp"]);

    fn read(value: &ParamValue) -> Option<Self> {
        let ParamValue::Texts(words) = value else { return None };
        let question = |word: &String| Question::ALL.iter().find(|(known, _)| known == word).map(|(_, q)| *q);
        words.iter().map(question).collect::<Option<Vec<_>>>().map(Questions)
    }

    fn value(self) -> Option<ParamValue> {
        Some(ParamValue::Texts(self.0.into_iter().map(|q| q.word().to_owned()).collect()))
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
