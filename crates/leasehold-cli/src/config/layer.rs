//! The settings of one place, and the options that they are filled into.

use std::collections::BTreeMap;
use std::path::{Path, PathBuf};
use std::time::Duration;

use leasehold::Wait;

use super::setting::{Origin, Setting};
use super::table::{Key, TABLE, Value, Written, unusable};
use crate::failure::Failure;

/// The settings of the environment, of a file or of a profile, or of several as one.
pub(crate) type Layer = BTreeMap<Key, Setting<Value>>;

/// An option of the command line whose value may be set elsewhere.
#[derive(Debug)]
pub(crate) enum Slot<'a> {
    Text(&'a mut Option<Setting<String>>),
    Path(&'a mut Option<Setting<PathBuf>>),
    Duration(&'a mut Option<Setting<Duration>>),
    Wait(&'a mut Option<Setting<Wait>>),
}

impl Slot<'_> {
    /// What was typed, or filled in.
    pub(crate) fn get(&self) -> Option<Setting<Value>> {
        fn of<T: Clone>(
            slot: &Option<Setting<T>>,
            value: fn(T) -> Value,
        ) -> Option<Setting<Value>> {
            let Setting { value: it, from } = slot.clone()?;
            Some(Setting::new(value(it), from))
        }
        match self {
            Self::Text(slot) => of(slot, Value::Text),
            Self::Path(slot) => of(slot, Value::Path),
            Self::Duration(slot) => of(slot, Value::Duration),
            Self::Wait(slot) => of(slot, Value::Wait),
        }
    }

    /// Sets the value, or takes it away.
    pub(crate) fn set(&mut self, found: Option<Setting<Value>>) {
        let (value, from) = found.map(|it| (it.value, it.from)).unzip();
        let from = from.unwrap_or(Origin::Default);
        match (self, value) {
            (Self::Text(slot), Some(Value::Text(it))) => **slot = Some(Setting::new(it, from)),
            (Self::Path(slot), Some(Value::Path(it))) => **slot = Some(Setting::new(it, from)),
            (Self::Duration(slot), Some(Value::Duration(it))) => {
                **slot = Some(Setting::new(it, from));
            }
            (Self::Wait(slot), Some(Value::Wait(it))) => **slot = Some(Setting::new(it, from)),
            (Self::Text(slot), _) => **slot = None,
            (Self::Path(slot), _) => **slot = None,
            (Self::Duration(slot), _) => **slot = None,
            (Self::Wait(slot), _) => **slot = None,
        }
    }
}

/// What the environment sets of what was not typed.
pub(super) fn of_environment(is_typed: impl Fn(Key) -> bool) -> Result<Layer, Failure> {
    let mut layer = Layer::new();
    for row in TABLE.iter().filter(|row| !is_typed(row.key)) {
        let name = row.variable();
        let Some(value) = std::env::var_os(&name) else {
            continue;
        };
        let written = Written {
            value: &value,
            base: Path::new(""),
            in_file: false,
        };
        let set = row.read(&written, Origin::variable(name.clone()));
        let set = set.map_err(|why| {
            let failure = unusable(&name, why);
            let hint = failure.hint.clone().unwrap_or_default();
            failure.hint(format!("{hint}, or unset {name}"))
        })?;
        layer.insert(row.key, set);
    }
    Ok(layer)
}
