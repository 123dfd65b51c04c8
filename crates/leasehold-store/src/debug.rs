//! `Debug` of public types: each says what it shows.

/// Shows these values, or no more than the name. Whatever else the type has may be a secret, or large.
#[doc(hidden)]
#[macro_export]
macro_rules! debug {
    ($type:ident $(<$lifetime:lifetime>)?) => {
        impl std::fmt::Debug for $type $(<$lifetime>)? {
            fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
                f.debug_struct(stringify!($type)).finish_non_exhaustive()
            }
        }
    };
    ($type:ident $(<$kind:ident: $bound:ident>)?; |$it:ident| $($name:ident: $value:expr),+) => {
        impl $(<$kind: $bound>)? std::fmt::Debug for $type $(<$kind>)? {
            fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
                let $it = self;
                f.debug_struct(stringify!($type))
                    $(.field(stringify!($name), &$value))+
                    .finish_non_exhaustive()
            }
        }
    };
}
