//! How the command line names a value; tables do, too.

use clap::ValueEnum;

pub(crate) fn value_name(value: &impl ValueEnum) -> String {
    let value = value.to_possible_value();
    value.map_or_else(String::new, |value| value.get_name().to_owned())
}
