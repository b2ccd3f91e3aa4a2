//! Why a request about runs is refused. Unlike the errors of the API's model, which are texts, each error here has parts.

use crate::api::{Failure, FailureKind};
use serde::{Deserialize, Serialize};
use serde_json::{Value, json};

/// Something that is wrong.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct Wrong {
    /// What is wrong.
    pub message: String,
    /// How to correct it.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub remedy: Option<String>,
    /// Where it is, if it is in the suite or in a file that the suite includes.
    #[serde(default, flatten, skip_serializing_if = "Option::is_none")]
    pub place: Option<Place>,
}

/// A place in a suite.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Place {
    /// The file: `suite.yaml` for the suite itself.
    pub file: String,
    /// Line, from 1.
    pub line: usize,
    /// Column in characters, from 1.
    pub column: usize,
}

impl Wrong {
    /// Something whose remedy follows the last semicolon.
    pub fn of(text: &str) -> Wrong {
        let (message, remedy) = match text.rsplit_once("; ") {
            Some((message, remedy)) => (message, Some(remedy.to_owned())),
            None => (text, None),
        };
        Wrong { message: message.to_owned(), remedy, place: None }
    }
}

/// A refused request.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct Refusal {
    /// HTTP status.
    pub code: i32,
    pub kind: FailureKind,
    pub errors: Vec<Wrong>,
}

impl From<Failure> for Refusal {
    fn from(Failure { code, kind, errors }: Failure) -> Refusal {
        Refusal { code, kind, errors: errors.iter().map(|text| Wrong::of(text)).collect() }
    }
}

impl Refusal {
    pub fn to_json(&self) -> Value {
        json!({"code": self.code, "kind": self.kind.name(), "errors": self.errors})
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_error_has_only_the_parts_that_are_known() {
        let place = Some(Place { file: "suite.yaml".into(), line: 3, column: 7 });
        let placed = Wrong { place, ..Wrong::of("there is no test `x`; write `throughput`") };
        let failure = Failure { code: 409, ..Failure::validation(vec!["a; b; use c".into(), "d".into()]) };
        let mut refusal = Refusal::from(failure);
        refusal.errors.push(placed.clone());
        let placed_json = json!({
            "message": "there is no test `x`", "remedy": "write `throughput`", "file": "suite.yaml", "line": 3, "column": 7,
        });
        let errors = json!([{"message": "a; b", "remedy": "use c"}, {"message": "d"}, placed_json]);
        assert_eq!(refusal.to_json(), json!({"code": 409, "kind": "validation", "errors": errors}));
        assert_eq!(serde_json::from_value::<Vec<Wrong>>(errors).unwrap(), refusal.errors);
    }
}
