//! Parameters of tests, each declared once with its type.
//!
//! A [`Param`] is the only definition of the key, type, defaults and help of a parameter. Registry, schema and help use
//! its [`ParamSpec`], the suite reader fills in the default, and the test reads the value with [`Param::get`].

use crate::classes::ServiceClass;
use crate::quantity::{Bandwidth, FrameRate};
use crate::registry::{ParamKind, ParamSpec};
use crate::routes::GroupSizes;
use crate::size::PacketSize;
use crate::suite::{ParamValue, Params};
use crate::topology::CoreLinksDown;
use crate::trial::Family;
use std::marker::PhantomData;
use std::time::Duration;

/// A Rust type that a parameter can have.
pub trait ParamType: Sized {
    /// The kind of YAML from which the type is read.
    const KIND: ParamKind;

    /// Largest number that the type can hold.
    const MOST: u64 = u64::MAX;

    /// Converts the value to this type; `None` for a value of a different kind.
    fn read(value: &ParamValue) -> Option<Self>;

    /// Converts to the form of the suite reader; `None` for no value.
    fn value(self) -> Option<ParamValue>;

    /// The value if the parameter is absent; `None` if it is required.
    fn absent() -> Option<Self> {
        None
    }
}

/// A percentage as written in the suite: 50 for 50 %.
#[derive(Clone, Copy, Debug, PartialEq, PartialOrd)]
pub struct Percent(pub f64);

macro_rules! param_type {
    ($type:ty, $kind:expr, $variant:ident) => {
        param_type!($type, $kind, $variant, |v| v.clone(), |v| v);
    };
    ($type:ty, $kind:expr, $variant:ident, |$from:ident| $read:expr, |$to:ident| $write:expr) => {
        impl ParamType for $type {
            const KIND: ParamKind = $kind;
            fn read(value: &ParamValue) -> Option<Self> {
                match value {
                    ParamValue::$variant($from) => Some($read),
                    _ => None,
                }
            }
            fn value(self) -> Option<ParamValue> {
                let $to = self;
                Some(ParamValue::$variant($write))
            }
        }
    };
}

param_type!(Vec<PacketSize>, ParamKind::Sizes, Sizes);
param_type!(PacketSize, ParamKind::Size, Sizes, |v| v.first()?.clone(), |v| vec![v]);
param_type!(Vec<Percent>, ParamKind::Percents, Numbers, |v| v.iter().copied().map(Percent).collect(), |v| {
    v.into_iter().map(|p| p.0).collect()
});
param_type!(Percent, ParamKind::Percent, Number, |v| Percent(*v), |v| v.0);
param_type!(Duration, ParamKind::Duration, Duration);
param_type!(u64, ParamKind::Count, Count);
param_type!(Vec<u64>, ParamKind::Counts, Counts);
param_type!(FrameRate, ParamKind::Rate, Rate);
param_type!(Bandwidth, ParamKind::Speed, Speed);
param_type!(Vec<ServiceClass>, ParamKind::Classes, Classes);
param_type!(CoreLinksDown, ParamKind::CoreLinks, CoreLinks);
param_type!(bool, ParamKind::Flag, Flag);
param_type!(Vec<Family>, ParamKind::Families, Families);
param_type!(String, ParamKind::Text, Text);

impl ParamType for u32 {
    const KIND: ParamKind = ParamKind::Count;
    const MOST: u64 = u32::MAX as u64;

    // The suite reader refuses larger numbers.
    fn read(value: &ParamValue) -> Option<Self> {
        match value {
            ParamValue::Count(count) => u32::try_from(*count).ok(),
            _ => None,
        }
    }

    fn value(self) -> Option<ParamValue> {
        Some(ParamValue::Count(self.into()))
    }
}

/// A value written as a word in suite files. [`choice!`](crate::choice) implements it.
pub trait ChoiceWord: Sized {
    /// All words.
    const WORDS: &'static [&'static str];

    /// Returns the value for a word.
    fn of_word(word: &str) -> Option<Self>;

    /// Returns the word for a value.
    fn to_word(&self) -> &'static str;
}

impl<T: ChoiceWord> ParamType for Vec<T> {
    const KIND: ParamKind = ParamKind::Choices(T::WORDS);
    fn read(value: &ParamValue) -> Option<Self> {
        match value {
            ParamValue::Texts(words) => words.iter().map(|word| T::of_word(word)).collect(),
            _ => None,
        }
    }
    fn value(self) -> Option<ParamValue> {
        Some(ParamValue::Texts(self.iter().map(|one| one.to_word().to_owned()).collect()))
    }
}

/// A number above 0, or the word `fit`.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct OrFit(pub Option<u16>);

impl ParamType for OrFit {
    const KIND: ParamKind = ParamKind::CountOr("fit");
    fn read(value: &ParamValue) -> Option<Self> {
        count_or(value, "fit").map(OrFit)
    }
    fn value(self) -> Option<ParamValue> {
        Some(ParamValue::Text(self.0.map_or("fit".into(), |n| n.to_string())))
    }
}

impl ParamType for GroupSizes {
    const KIND: ParamKind = ParamKind::CountOr("internet");
    fn read(value: &ParamValue) -> Option<Self> {
        Some(count_or(value, "internet")?.map_or(GroupSizes::Internet, |n| GroupSizes::Fixed(n.into())))
    }
    fn value(self) -> Option<ParamValue> {
        Some(ParamValue::Text(match self {
            GroupSizes::Internet => "internet".into(),
            GroupSizes::Fixed(n) => n.to_string(),
        }))
    }
}

/// Reads the number from a text; `Some(None)` for `word`.
fn count_or(value: &ParamValue, word: &str) -> Option<Option<u16>> {
    match value {
        ParamValue::Text(text) if text == word => Some(None),
        ParamValue::Text(text) => text.parse().ok().filter(|n| *n > 0).map(Some),
        _ => None,
    }
}

/// Names of flows of the suite.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct FlowNames(pub Vec<String>);

param_type!(FlowNames, ParamKind::Flows, Texts, |v| FlowNames(v.clone()), |v| v.0);

/// An optional parameter has no value if the suite gives none.
impl<T: ParamType> ParamType for Option<T> {
    const KIND: ParamKind = T::KIND;
    const MOST: u64 = T::MOST;

    fn read(value: &ParamValue) -> Option<Self> {
        T::read(value).map(Some)
    }

    fn value(self) -> Option<ParamValue> {
        self.and_then(T::value)
    }

    fn absent() -> Option<Self> {
        Some(None)
    }
}

/// The declaration of a parameter of type `T`.
#[derive(Debug)]
pub struct Param<T> {
    spec: ParamSpec,
    of: PhantomData<fn() -> T>,
}

impl<T: ParamType> Param<T> {
    /// A parameter with a default for each profile, given as YAML text.
    pub const fn new(key: &'static str, quick: &'static str, conformant: &'static str, help: &'static str) -> Self {
        Param { spec: ParamSpec::new(key, T::KIND, quick, conformant, help).at_most(T::MOST), of: PhantomData }
    }

    /// A parameter with the same default for both profiles.
    pub const fn fixed(key: &'static str, default: &'static str, help: &'static str) -> Self {
        Param::new(key, default, default, help)
    }

    /// The same parameter, but with numbers of at most `most`.
    pub const fn at_most(&self, most: u64) -> Self {
        Param { spec: self.spec.at_most(most), of: PhantomData }
    }

    /// The description, for registry, schema and help.
    pub const fn spec(&self) -> ParamSpec {
        self.spec
    }

    /// Returns the value.
    ///
    /// # Panics
    /// If `params` has no value for it. That is a bug, because the suite reader fills in the defaults of all declared
    /// parameters.
    pub fn get(&self, params: &Params) -> T {
        let key = self.spec.key;
        self.find(params).unwrap_or_else(|| {
            let found = params.0.get(key);
            panic!(
                "parameter `{key}` has no usable value ({found:?}): the test does not declare it, a bug in Drophammer"
            )
        })
    }

    /// Returns the value, if the test has this parameter.
    pub fn find(&self, params: &Params) -> Option<T> {
        params.0.get(self.spec.key).map_or_else(T::absent, T::read)
    }

    /// Sets the parameter to this value, as a suite does.
    pub fn set(&self, params: &mut Params, value: T) {
        match value.value() {
            Some(value) => params.0.insert(self.spec.key.into(), value),
            None => params.0.remove(self.spec.key),
        };
    }
}

impl<T: ParamType> Param<Option<T>> {
    /// An optional parameter, which has no value if the suite gives none.
    pub const fn optional(key: &'static str, help: &'static str) -> Self {
        Param { spec: ParamSpec::optional(key, T::KIND, help).at_most(T::MOST), of: PhantomData }
    }
}

impl Param<Duration> {
    /// Returns the value in seconds.
    ///
    /// # Panics
    /// If [`Param::get`] does.
    pub fn seconds(&self, params: &Params) -> f64 {
        self.get(params).as_secs_f64()
    }
}

/// Declares an enum written as words in suite files, for use as the type of a [`Param`].
///
/// ```
/// drophammer_model::choice! {
///     /// What fails.
///     pub enum Failure {
///         /// The link.
///         Link = "link",
///         /// The BGP session.
///         Session = "session",
///     }
/// }
/// assert_eq!(Failure::Link.to_string(), "link");
/// ```
#[macro_export]
macro_rules! choice {
    ($(#[$doc:meta])* $vis:vis enum $name:ident {
        $($(#[$variant_doc:meta])* $variant:ident = $word:literal),+ $(,)?
    }) => {
        $(#[$doc])*
        #[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
        $vis enum $name {
            $($(#[$variant_doc])* $variant),+
        }

        impl $name {
            /// As written in suite files.
            pub const fn word(self) -> &'static str {
                match self {
                    $($name::$variant => $word),+
                }
            }
        }

        impl ::std::fmt::Display for $name {
            fn fmt(&self, f: &mut ::std::fmt::Formatter<'_>) -> ::std::fmt::Result {
                f.write_str(self.word())
            }
        }

        impl $crate::param::ChoiceWord for $name {
            const WORDS: &'static [&'static str] = &[$($word),+];

            fn of_word(word: &str) -> Option<Self> {
                match word {
                    $($word => Some($name::$variant),)+
                    _ => None,
                }
            }

            fn to_word(&self) -> &'static str {
                self.word()
            }
        }

        impl $crate::param::ParamType for $name {
            const KIND: $crate::registry::ParamKind =
                $crate::registry::ParamKind::Choice(<$name as $crate::param::ChoiceWord>::WORDS);

            fn read(value: &$crate::suite::ParamValue) -> Option<Self> {
                match value {
                    $crate::suite::ParamValue::Text(word) => $crate::param::ChoiceWord::of_word(word),
                    _ => None,
                }
            }

            fn value(self) -> Option<$crate::suite::ParamValue> {
                Some($crate::suite::ParamValue::Text(self.word().into()))
            }
        }
    };
}

#[cfg(test)]
mod tests {
    use super::*;

    const STEP: Param<Percent> = Param::new("step", "20", "10", "step in %");
    const COUNT: Param<u32> = Param::new("count", "3", "5", "how many");

    #[test]
    fn a_fixed_default_is_that_of_both_profiles() {
        let spec = Param::<Bandwidth>::fixed("speed", "1 Mbit/s", "how fast").spec();
        assert_eq!((spec.quick, spec.conformant), (Some("1 Mbit/s"), Some("1 Mbit/s")));
        assert_eq!((spec.key, spec.kind, spec.help), ("speed", ParamKind::Speed, "how fast"));
    }

    #[test]
    fn counts_have_at_most_32_bits() {
        assert_eq!(COUNT.spec().most, u64::from(u32::MAX));
        assert_eq!(Param::<Option<u32>>::optional("count", "how many").spec().most, u64::from(u32::MAX));
        let params = |count| Params([("count".to_owned(), ParamValue::Count(count))].into());
        assert_eq!(COUNT.find(&params(u64::from(u32::MAX))), Some(u32::MAX));
        assert_eq!(COUNT.find(&params(1 << 40)), None);
    }

    #[test]
    #[should_panic(expected = "parameter `step` has no usable value (None)")]
    fn a_missing_value_is_reported() {
        STEP.get(&Params::default());
    }

    #[test]
    #[should_panic(expected = "parameter `step` has no usable value (Some(Count(3)))")]
    fn a_value_of_another_type_is_reported() {
        STEP.get(&Params([("step".to_owned(), ParamValue::Count(3))].into()));
    }
}
