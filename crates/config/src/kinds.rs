//! The kinds of a stage. Reading, the manual and the error messages use one list.

use serde::de::DeserializeOwned;

use crate::{Document, Invalid, Table};

/// Options that are read from a table of a config.
///
/// Types that implement `Deserialize` implement this trait. Options with tables of stages implement it themselves.
pub trait FromTable: Sized {
    /// Reads the options from the table at the path `key`, without its key `kind`.
    ///
    /// # Errors
    /// [`Invalid`] if a required value is missing or wrong. The document has the mistakes.
    fn from_table<'t>(document: &mut Document<'t>, key: &str, table: Table<'t>) -> Result<Self, Invalid>;
}

impl<T: DeserializeOwned> FromTable for T {
    fn from_table<'t>(document: &mut Document<'t>, key: &str, table: Table<'t>) -> Result<Self, Invalid> {
        document.read(key, table, &[]).ok_or(Invalid)
    }
}

/// Options that report mistakes in their values and files.
pub trait Check {
    /// Reports mistakes, without loading a model. `key` is the path of the table.
    fn check(&self, key: &str, document: &mut Document<'_>);
}

/// The options of a stage, of one of several kinds. The key `kind` selects the kind. [`kinds!`](crate::kinds!) implements it.
pub trait Kinds: Sized {
    /// The names of all kinds.
    fn kinds() -> Vec<&'static str>;

    /// The name of this kind.
    fn kind(&self) -> &'static str;

    /// Reads the options of a kind; `None` if there is no kind of that name.
    fn from_kind<'t>(
        kind: &str,
        document: &mut Document<'t>,
        key: &str,
        table: Table<'t>,
    ) -> Option<Result<Self, Invalid>>;

    /// Reads a table with the key `kind`.
    ///
    /// # Errors
    /// [`Invalid`] if the kind is missing or unknown, or its options are wrong.
    fn from_stage<'t>(document: &mut Document<'t>, key: &str, table: Table<'t>) -> Result<Self, Invalid> {
        Self::from_stage_of(&Self::kinds(), document, key, table)
    }

    /// [`from_stage`](Kinds::from_stage) for a table that allows only the given kinds.
    ///
    /// # Errors
    /// Those of `from_stage`.
    fn from_stage_of<'t>(
        kinds: &[&str],
        document: &mut Document<'t>,
        key: &str,
        mut table: Table<'t>,
    ) -> Result<Self, Invalid> {
        let kind = document.take_kind(key, &mut table, kinds)?;
        Self::from_kind(&kind, document, key, table).unwrap_or(Err(Invalid))
    }
}

/// Defines the options of a stage as an enum with a variant for each kind.
///
/// A line has the value of the key `kind`, the variant and the type of its options. The enum implements [`Kinds`]. It
/// derefs to the trait after `dyn`, which all options implement. With a type parameter, the enum also has the kinds of
/// another such enum.
///
/// ```
/// use schemars::JsonSchema;
/// use serde::{Deserialize, Serialize};
/// use sporran_config::{Kinds, kinds};
///
/// /// The operations of all kinds.
/// pub trait Greeting {
///     fn greet(&self) -> String;
/// }
///
/// /// `kind = "hello"`
/// #[derive(Clone, Debug, PartialEq, Serialize, Deserialize, JsonSchema)]
/// pub struct Hello {
///     /// The name.
///     name: String,
/// }
///
/// impl Greeting for Hello {
///     fn greet(&self) -> String {
///         format!("Hello, {}!", self.name)
///     }
/// }
///
/// kinds! {
///     /// `[greeting]`, by `kind`.
///     pub enum GreetingOptions: dyn Greeting {
///         /// `kind = "hello"`: greets someone.
///         "hello" => Hello(Hello),
///     }
/// }
///
/// assert_eq!(GreetingOptions::kinds(), ["hello"]);
/// let options = GreetingOptions::Hello(Hello { name: "Morag".into() });
/// assert_eq!(options.greet(), "Hello, Morag!");
/// ```
#[macro_export]
macro_rules! kinds {
    (
        $(#[$about:meta])*
        $visible:vis enum $name:ident $(<$outer:ident>)?: dyn $does:path {
            $($(#[$line:meta])* $kind:literal => $variant:ident($options:ty),)+
        }
    ) => {
        $(#[$about])*
        #[derive(Clone, Debug, PartialEq, $crate::serde::Serialize, $crate::schemars::JsonSchema)]
        #[serde(tag = "kind", crate = "sporran_config::serde")]
        #[schemars(crate = "sporran_config::schemars")]
        $visible enum $name $(<$outer>)? {
            $($(#[$line])* #[serde(rename = $kind)] $variant($options),)+
            $(
                /// A kind of the caller's.
                #[serde(untagged)]
                Outer($outer),
            )?
        }

        impl $(<$outer: $crate::Kinds>)? $crate::Kinds for $name $(<$outer>)? {
            fn kinds() -> Vec<&'static str> {
                [vec![$($kind),+] $(, $outer::kinds())?].concat()
            }

            fn kind(&self) -> &'static str {
                match self {
                    $(Self::$variant(_) => $kind,)+
                    $(Self::Outer(outer) => <$outer as $crate::Kinds>::kind(outer),)?
                }
            }

            fn from_kind<'t>(
                kind: &str,
                document: &mut $crate::Document<'t>,
                key: &str,
                table: $crate::Table<'t>,
            ) -> Option<Result<Self, $crate::Invalid>> {
                match kind {
                    $($kind => Some(<$options as $crate::FromTable>::from_table(document, key, table).map(Self::$variant)),)+
                    $(other if $outer::kinds().contains(&other) => {
                        Some($outer::from_kind(other, document, key, table)?.map(Self::Outer))
                    })?
                    _ => None,
                }
            }
        }

        impl $(<$outer: $crate::Kinds + std::ops::Deref<Target = dyn $does> + 'static>)? std::ops::Deref
            for $name $(<$outer>)?
        {
            type Target = dyn $does;

            fn deref(&self) -> &Self::Target {
                match self {
                    $(Self::$variant(options) => options,)+
                    $(Self::Outer(outer) => <$outer as std::ops::Deref>::deref(outer),)?
                }
            }
        }
    };
}
