//! Arguments from Python: durations, and options by name.

use std::time::Duration;

use leasehold::Invalid;
use pyo3::exceptions::PyTypeError;
use pyo3::prelude::*;
use pyo3::types::{PyBool, PyDict};

use crate::failure::Failure;

/// A year: a longer time is most likely a mistake in the unit.
const LONGEST: Duration = Duration::from_secs(366 * 24 * 3600);

/// A number of seconds, or a `timedelta`, which Python gets.
#[pyfunction]
pub(crate) fn duration(what: &str, value: &Bound<'_, PyAny>) -> PyResult<Duration> {
    let number = match value.hasattr("total_seconds")? {
        true => value.call_method0("total_seconds")?,
        false => value.clone(),
    };
    let seconds = number.extract::<f64>().ok();
    let seconds = seconds.filter(|_| !number.is_instance_of::<PyBool>());
    let duration = seconds.and_then(|seconds| Duration::try_from_secs_f64(seconds).ok());
    let duration = duration.filter(|duration| *duration <= LONGEST);
    duration.ok_or_else(|| {
        let message = format!("{what}={number:?} is not a time between 0 s and 366 days");
        let invalid = Invalid::new(message, "give a number of seconds, or a timedelta");
        Failure::from(invalid).into()
    })
}

/// Sets what the caller has given by name: `each` gets a name and a value, and returns whether it
/// knows the name. `None` stands for the default.
pub(crate) fn options(
    of: &str,
    given: &Bound<'_, PyDict>,
    mut each: impl FnMut(&str, &Bound<'_, PyAny>) -> PyResult<bool>,
) -> PyResult<()> {
    for (name, value) in given {
        let name: String = name.extract()?;
        let known = each(&name, &value);
        // No option takes `None`, so that it has set nothing.
        if !known.or_else(|error| value.is_none().then_some(true).ok_or(error))? {
            let message = format!("{of}() got an unexpected keyword argument '{name}'");
            return Err(PyTypeError::new_err(message));
        }
    }
    Ok(())
}
