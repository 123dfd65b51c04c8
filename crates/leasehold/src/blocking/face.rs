//! Macros that declare the blocking API: one line for each type and each method.

/// Declares a type of the blocking API, or methods of one.
///
/// `struct Mutex;` wraps `crate::Mutex`. A method is its signature, after when it answers:
/// - `wait fn` runs the future of the async method of that name on this thread; one that cannot fail,
///   in a callback of another, on a thread of its own;
/// - `now fn` calls a method that waits for nothing.
///
/// Either way the answer is turned into the type that the signature names, and the
/// documentation ends with a link to the async method.
macro_rules! face {
    ($(#[$meta:meta])* struct $face:ident $(<$kind:ident: $bound:ident = $of:ident>)?;) => {
        $(#[$meta])*
        pub struct $face $(<$kind: $bound = $of>)? (pub(super) crate::$face $(<$kind>)?);

        impl $(<$kind: $bound>)? $face $(<$kind>)? {
            #[doc = concat!("The [`", stringify!($face), "`](crate::", stringify!($face), ") behind it, for async code.")]
            pub fn as_async(&self) -> &crate::$face $(<$kind>)? {
                &self.0
            }
        }

        impl $(<$kind: $bound>)? From<crate::$face $(<$kind>)?> for $face $(<$kind>)? {
            fn from(face: crate::$face $(<$kind>)?) -> Self {
                Self(face)
            }
        }

        impl $(<$kind: $bound>)? std::fmt::Debug for $face $(<$kind>)? {
            fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
                self.0.fmt(f)
            }
        }
    };
    (impl $(<$kind:ident: $bound:ident>)? $face:ident $(<$of:ident>)? { $($methods:tt)* }) => {
        #[allow(clippy::double_must_use, reason = "some types are not to be dropped, and some are")]
        impl $(<$kind: $bound>)? $face $(<$of>)? {
            $crate::blocking::face::methods! { $face; $($methods)* }
        }
    };
}

/// The methods of [`face`].
macro_rules! methods {
    ($face:ident;) => {};
    (
        $face:ident; $(#[$meta:meta])* $when:ident fn $method:ident $(<$kind:ident: $bound:ident>)?
        ($(&$($lt:lifetime)?)? $self:ident $(, $arg:ident: $ty:ty)*) -> Result<Option<$ok:ty>, Error>;
        $($rest:tt)*
    ) => {
        $(#[$meta])*
        #[doc = concat!("See [`crate::", stringify!($face), "::", stringify!($method), "`].\n\n# Errors\nThe same as the async method.")]
        pub fn $method $(<$kind: $bound>)? ($(&$($lt)?)? $self $(, $arg: $ty)*) -> Result<Option<$ok>, Error> {
            let answer = $crate::blocking::face::answer!($when $self.0.$method($($arg),*));
            answer.map(|ok| ok.map(<$ok>::from))
        }
        $crate::blocking::face::methods! { $face; $($rest)* }
    };
    (
        $face:ident; $(#[$meta:meta])* $when:ident fn $method:ident $(<$kind:ident: $bound:ident>)?
        ($(&$($lt:lifetime)?)? $self:ident $(, $arg:ident: $ty:ty)*) -> Result<$ok:ty, Error>;
        $($rest:tt)*
    ) => {
        $(#[$meta])*
        #[doc = concat!("See [`crate::", stringify!($face), "::", stringify!($method), "`].\n\n# Errors\nThe same as the async method.")]
        pub fn $method $(<$kind: $bound>)? ($(&$($lt)?)? $self $(, $arg: $ty)*) -> Result<$ok, Error> {
            $crate::blocking::face::answer!($when $self.0.$method($($arg),*)).map(<$ok>::from)
        }
        $crate::blocking::face::methods! { $face; $($rest)* }
    };
    (
        $face:ident; $(#[$meta:meta])* $when:ident fn $method:ident
        ($(&$($lt:lifetime)?)? $self:ident $(, $arg:ident: $ty:ty)*) -> $done:ty;
        $($rest:tt)*
    ) => {
        $(#[$meta])*
        #[doc = concat!("See [`crate::", stringify!($face), "::", stringify!($method), "`].")]
        #[must_use]
        pub fn $method($(&$($lt)?)? $self $(, $arg: $ty)*) -> $done {
            $crate::blocking::face::answer!($when always $self.0.$method($($arg),*)).into()
        }
        $crate::blocking::face::methods! { $face; $($rest)* }
    };
}

/// When a method of [`face`] has its answer. One that cannot fail is not refused in a callback of another.
macro_rules! answer {
    (wait always $future:expr) => {
        $crate::background::block_anywhere($future)
    };
    (now always $answer:expr) => {
        $answer
    };
    (wait $future:expr) => {
        $crate::background::block_on($future)
    };
    (now $answer:expr) => {
        $answer
    };
}

pub(super) use {answer, face, methods};
