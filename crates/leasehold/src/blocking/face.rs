//! How the blocking face is written: a type is a line, and so is each of its methods.

/// Declares a type of the blocking face, or methods of one.
///
/// `struct Mutex;` wraps `crate::Mutex`. A method is its signature, after what it does. Its
/// documentation ends with a link to the async method of that name, which it calls:
/// - `wait fn` runs the future of that method on this thread;
/// - `fn` answers at once.
///
/// Either way what comes of it is turned into the type that the signature names.
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
        impl $(<$kind: $bound>)? $face $(<$of>)? {
            $crate::blocking::face::methods! { $face; $($methods)* }
        }
    };
}

/// The methods of [`face`].
macro_rules! methods {
    ($face:ident;) => {};
    (
        $face:ident; $(#[$meta:meta])* wait fn $method:ident $(<$kind:ident: $bound:ident>)?
        ($(&$($lt:lifetime)?)? $self:ident $(, $arg:ident: $ty:ty)*) -> Result<Option<$ok:ty>, Error>;
        $($rest:tt)*
    ) => {
        $(#[$meta])*
        #[doc = concat!("See [`crate::", stringify!($face), "::", stringify!($method), "`].")]
        ///
        /// # Errors
        /// As there.
        pub fn $method $(<$kind: $bound>)? ($(&$($lt)?)? $self $(, $arg: $ty)*) -> Result<Option<$ok>, Error> {
            $crate::blocking::runtime::block_on($self.0.$method($($arg),*)).map(|ok| ok.map(<$ok>::from))
        }
        $crate::blocking::face::methods! { $face; $($rest)* }
    };
    (
        $face:ident; $(#[$meta:meta])* wait fn $method:ident $(<$kind:ident: $bound:ident>)?
        ($(&$($lt:lifetime)?)? $self:ident $(, $arg:ident: $ty:ty)*) -> Result<$ok:ty, Error>;
        $($rest:tt)*
    ) => {
        $(#[$meta])*
        #[doc = concat!("See [`crate::", stringify!($face), "::", stringify!($method), "`].")]
        ///
        /// # Errors
        /// As there.
        pub fn $method $(<$kind: $bound>)? ($(&$($lt)?)? $self $(, $arg: $ty)*) -> Result<$ok, Error> {
            $crate::blocking::runtime::block_on($self.0.$method($($arg),*)).map(<$ok>::from)
        }
        $crate::blocking::face::methods! { $face; $($rest)* }
    };
    (
        $face:ident; $(#[$meta:meta])* wait fn $method:ident
        ($(&$($lt:lifetime)?)? $self:ident $(, $arg:ident: $ty:ty)*) -> $done:ty;
        $($rest:tt)*
    ) => {
        $(#[$meta])*
        #[doc = concat!("See [`crate::", stringify!($face), "::", stringify!($method), "`].")]
        pub fn $method($(&$($lt)?)? $self $(, $arg: $ty)*) -> $done {
            $crate::blocking::runtime::block_on($self.0.$method($($arg),*)).into()
        }
        $crate::blocking::face::methods! { $face; $($rest)* }
    };
    (
        $face:ident; $(#[$meta:meta])* fn $method:ident
        ($(&$($lt:lifetime)?)? $self:ident $(, $arg:ident: $ty:ty)*) -> Result<$ok:ty, Error>;
        $($rest:tt)*
    ) => {
        $(#[$meta])*
        #[doc = concat!("See [`crate::", stringify!($face), "::", stringify!($method), "`].")]
        ///
        /// # Errors
        /// As there.
        pub fn $method($(&$($lt)?)? $self $(, $arg: $ty)*) -> Result<$ok, Error> {
            $self.0.$method($($arg),*).map(<$ok>::from)
        }
        $crate::blocking::face::methods! { $face; $($rest)* }
    };
    (
        $face:ident; $(#[$meta:meta])* fn $method:ident
        ($(&$($lt:lifetime)?)? $self:ident $(, $arg:ident: $ty:ty)*) -> $done:ty;
        $($rest:tt)*
    ) => {
        $(#[$meta])*
        #[doc = concat!("See [`crate::", stringify!($face), "::", stringify!($method), "`].")]
        #[must_use]
        pub fn $method($(&$($lt)?)? $self $(, $arg: $ty)*) -> $done {
            $self.0.$method($($arg),*).into()
        }
        $crate::blocking::face::methods! { $face; $($rest)* }
    };
}

pub(super) use {face, methods};
