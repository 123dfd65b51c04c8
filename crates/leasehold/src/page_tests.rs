//! The examples of the pages: `cargo test --doc` compiles and runs them.

macro_rules! pages {
    ($($name:ident: $path:literal,)*) => { $(
        #[doc = include_str!(concat!("../../../", $path))]
        mod $name {}
    )* };
}

#[cfg(feature = "metrics")]
pages! {
    metrics: "docs/metrics.md",
}

pages! {
    readme: "README.md",
    library: "docs/library.md",
    which_lock: "docs/which-lock.md",
    holding: "docs/holding.md",
    identity: "docs/identity.md",
    deadlocks: "docs/deadlocks.md",
    kinds: "docs/kinds.md",
    classic: "docs/stores/classic.md",
    recipe_migrations: "docs/recipes/migrations.md",
}
