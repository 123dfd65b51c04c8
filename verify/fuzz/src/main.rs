//! Drives one target, `LEASEHOLD_FUZZ_TARGET`: by coverage if it was built by
//! `scripts/fuzz`, else with the files that are its arguments.

#![cfg_attr(fuzzing, no_main)]

use leasehold_fuzz::{TARGETS, Target, target};

fn chosen() -> &'static Target {
    let name = std::env::var("LEASEHOLD_FUZZ_TARGET").unwrap_or_default();
    target(&name).unwrap_or_else(|| {
        let known: Vec<_> = TARGETS.iter().map(|target| target.name).collect();
        #[allow(clippy::panic, reason = "there is nothing else to do")]
        {
            panic!("LEASEHOLD_FUZZ_TARGET is {name:?}; there are {known:?}")
        }
    })
}

#[cfg(fuzzing)]
mod guided {
    use std::sync::LazyLock;

    use leasehold_fuzz::Target;

    static TARGET: LazyLock<&Target> = LazyLock::new(super::chosen);

    libfuzzer_sys::fuzz_target!(|data: &[u8]| (TARGET.run)(data));
}

#[cfg(not(fuzzing))]
fn main() -> std::io::Result<()> {
    let target = chosen();
    for file in std::env::args_os().skip(1) {
        (target.run)(&std::fs::read(file)?);
    }
    Ok(())
}
