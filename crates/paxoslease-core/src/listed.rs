//! Enums with a list of their variants, so that each variant is written once.

/// Defines an enum, and `ALL`, which lists its variants.
macro_rules! listed {
    ($(#[$of_enum:meta])* pub enum $name:ident { $($(#[$of_variant:meta])* $variant:ident,)* }) => {
        $(#[$of_enum])*
        pub enum $name {
            $($(#[$of_variant])* $variant,)*
        }

        impl $name {
            /// Every variant, in the order of their discriminants.
            pub const ALL: [Self; [$(stringify!($variant)),*].len()] = [$(Self::$variant),*];
        }
    };
}

pub(crate) use listed;
