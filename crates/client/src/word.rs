//! Open enums: words of the API, to which a later release may add.

/// An enum of words.
pub trait Word: From<String> + Clone + Send + Sync + 'static {
    /// The words that this release knows.
    const WORDS: &'static [&'static str];
}

/// Defines an enum whose variants are words. A word that this release does not know becomes `Other`, so that a new
/// word is not an error.
macro_rules! words {
    ($(#[$meta:meta])* pub enum $name:ident { $($variant:ident = $word:literal,)+ }) => {
        $(#[$meta])*
        #[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord, Hash, Deserialize, Serialize)]
        #[serde(from = "String", into = "String")]
        pub enum $name {
            $(#[doc = concat!("`", $word, "`.")] $variant,)+
            /// A word that this release does not know, or an empty one if the member is missing.
            Other(String),
        }

        impl $name {
            /// The API's word.
            #[must_use]
            pub fn as_str(&self) -> &str {
                match self {
                    $(Self::$variant => $word,)+
                    Self::Other(word) => word,
                }
            }
        }

        impl $crate::word::Word for $name {
            const WORDS: &'static [&'static str] = &[$($word),+];
        }

        impl From<String> for $name {
            fn from(word: String) -> Self {
                match word.as_str() {
                    $($word => Self::$variant,)+
                    _ => Self::Other(word),
                }
            }
        }

        impl From<$name> for String {
            fn from(word: $name) -> Self {
                word.as_str().to_owned()
            }
        }

        impl Default for $name {
            fn default() -> Self {
                Self::Other(String::new())
            }
        }

        impl std::fmt::Display for $name {
            fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
                f.pad(self.as_str())
            }
        }
    };
}

pub(crate) use words;
