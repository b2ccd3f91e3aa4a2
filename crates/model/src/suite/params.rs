//! Parameters of tests and DUT kinds after validation: typed and with defaults filled in.

use crate::classes::ServiceClass;
use crate::quantity::{Bandwidth, FrameRate, show_duration};
use crate::size::PacketSize;
use crate::topology::CoreLinksDown;
use crate::trial::Family;
use std::collections::BTreeMap;
use std::time::Duration;

/// Value of one parameter, in the variant that its [`crate::registry::ParamKind`] requires.
#[derive(Clone, Debug, PartialEq)]
pub enum ParamValue {
    /// `Sizes`.
    Sizes(Vec<PacketSize>),
    /// `Percents`, as written (50 for 50 %).
    Numbers(Vec<f64>),
    /// `Percent`, as written.
    Number(f64),
    /// `Duration`.
    Duration(Duration),
    /// `Count`.
    Count(u64),
    /// `Counts`, each once.
    Counts(Vec<u64>),
    /// `Rate`.
    Rate(FrameRate),
    /// `Speed`.
    Speed(Bandwidth),
    /// `Classes`.
    Classes(Vec<ServiceClass>),
    /// `CoreLinks`.
    CoreLinks(CoreLinksDown),
    /// `Flag`.
    Flag(bool),
    /// `Families`, each once.
    Families(Vec<Family>),
    /// `CountOr`, `Choice`, `Text`, `Command`, `File` (joined to the folder of the suite file).
    Text(String),
    /// `Choices`, `Interfaces`, `DutInterfaces`, `Ports`, `Flows`, each once.
    Texts(Vec<String>),
}

impl ParamValue {
    /// The value as JSON, for the stored record. Durations become text with a unit.
    pub fn to_json(&self) -> serde_json::Value {
        use serde_json::json;
        match self {
            ParamValue::Sizes(v) => json!(v),
            ParamValue::Numbers(v) => json!(v),
            ParamValue::Number(v) => json!(v),
            ParamValue::Duration(d) => json!(show_duration(*d)),
            ParamValue::Count(n) => json!(n),
            ParamValue::Counts(v) => json!(v),
            ParamValue::Rate(r) => json!(r),
            ParamValue::Speed(s) => json!(s),
            ParamValue::Classes(c) => json!(c),
            ParamValue::CoreLinks(CoreLinksDown::Count(n)) => json!(n),
            ParamValue::CoreLinks(CoreLinksDown::Named(names)) => {
                json!(names.iter().map(ToString::to_string).collect::<Vec<_>>())
            }
            ParamValue::Flag(b) => json!(b),
            ParamValue::Families(v) => json!(v),
            ParamValue::Text(t) => json!(t),
            ParamValue::Texts(t) => json!(t),
        }
    }
}

/// All parameters of one test or DUT. Validation guarantees that every parameter with a default is present. Tests read
/// them with their [`crate::Param`]; the getters return `None` for a key that is absent or has a value of a different
/// type.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct Params(pub BTreeMap<String, ParamValue>);

macro_rules! getters {
    ($($(#[$doc:meta])* $name:ident: $type:ty = $variant:ident,)*) => {$(
        $(#[$doc])*
        pub fn $name(&self, key: &str) -> Option<$type> {
            match self.0.get(key) {
                Some(ParamValue::$variant(v)) => Some(v.clone()),
                _ => None,
            }
        }
    )*};
}

impl Params {
    getters! {
        /// Frame sizes and mixes.
        sizes: Vec<PacketSize> = Sizes,
        /// Percentages.
        numbers: Vec<f64> = Numbers,
        /// One percentage.
        number: f64 = Number,
        /// A duration.
        duration: Duration = Duration,
        /// A whole number.
        count: u64 = Count,
        /// A frame rate.
        rate: FrameRate = Rate,
        /// The speed of a line.
        speed: Bandwidth = Speed,
        /// A boolean.
        flag: bool = Flag,
        /// IP versions.
        families: Vec<Family> = Families,
        /// A word, text or command.
        text: String = Text,
        /// A list of names.
        texts: Vec<String> = Texts,
    }

    /// All parameters as a JSON object.
    pub fn to_json(&self) -> serde_json::Value {
        serde_json::Value::Object(self.0.iter().map(|(k, v)| (k.clone(), v.to_json())).collect())
    }
}
