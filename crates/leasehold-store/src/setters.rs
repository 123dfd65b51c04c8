//! The setters of options.

/// Declares the methods of a type that set one field: `name(value: type): field = new value`. The type
/// itself is `#[must_use]`, or each of them.
#[doc(hidden)]
#[macro_export]
macro_rules! setters {
    ($type:ident { $(
        $(#[$doc:meta])* $set:ident($value:ident: $ty:ty): $($field:ident).+ = $new:expr;
    )* }) => {
        impl $type { $(
            $(#[$doc])*
            pub fn $set(mut self, $value: $ty) -> Self {
                self.$($field).+ = $new;
                self
            }
        )* }
    };
}
