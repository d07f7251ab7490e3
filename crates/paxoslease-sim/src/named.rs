//! Enums whose variants have names on the command line.

/// Declares such an enum: for each variant its name, and a sentence about it.
macro_rules! named {
    (
        $(#[doc = $doc:literal])* $type:ident;
        $($variant:ident, $name:literal, $description:literal;)*
    ) => {
        $(#[doc = $doc])*
        #[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Debug)]
        pub enum $type {
            $(#[doc = $description] $variant,)*
        }

        impl $type {
            /// All of them, in this order.
            pub const ALL: [Self; [$($name),*].len()] = [$(Self::$variant),*];

            /// The name on the command line.
            #[must_use]
            pub const fn name(self) -> &'static str {
                match self {
                    $(Self::$variant => $name,)*
                }
            }

            /// A sentence about it.
            #[must_use]
            pub const fn description(self) -> &'static str {
                match self {
                    $(Self::$variant => $description,)*
                }
            }
        }

        impl std::fmt::Display for $type {
            fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
                f.pad(self.name())
            }
        }
    };
}

pub(crate) use named;
