//! Reports of synthetic, stored and malicious runs, in every format.

#![allow(missing_docs)]

#[path = "../synthetic/mod.rs"]
mod synthetic;

mod baseline;
mod compare;
mod corpus;
mod digest;
mod history;
mod hostile;
mod missing;
mod page;
mod paragraphs;
mod plots;
mod published;
mod ranks;
mod rates;
mod report;
mod stored_run;
mod twins;
