//! From the records of a run to conclusions: intervals, ranks and verdicts, and what is said against a figure. Everything
//! here is a pure function of records.

pub mod criteria;
pub mod doubt;
pub mod drops;
pub mod held_up;
pub mod losses;
pub mod refutation;
pub mod rounds;
pub mod statistics;
