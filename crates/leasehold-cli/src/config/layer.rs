//! The settings of the environment.

use super::setting::Origin;
use super::settings::Layer;
use super::table::{Key, TABLE, unusable};
use crate::failure::Failure;

/// What the environment sets of what was not typed.
pub(super) fn of_environment(is_typed: impl Fn(Key) -> bool) -> Result<Layer, Failure> {
    let mut layer = Layer::new();
    for row in TABLE.iter().filter(|row| !is_typed(row.key)) {
        let name = row.variable();
        let Some(value) = std::env::var_os(&name) else {
            continue;
        };
        let set = row.read(&value, None, Origin::variable(name.clone()));
        let set = set.map_err(|why| {
            let failure = unusable(&name, why);
            let hint = failure.hint.clone().unwrap_or_default();
            failure.hint(format!("{hint}, or unset {name}"))
        })?;
        layer.insert(row.key, set);
    }
    Ok(layer)
}
